"""Paths and atomic writing: a file appears complete or not at all.

While a file is being written it has a hidden name that no reader takes for a table, and
its writer locks it. A killed writer leaves it unlocked; the next writer to the same
path removes it.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from augmask.errors import DataError, UsageError, brief_repr

try:
    import fcntl
except ImportError:  # without locks, leftovers of killed writers stay
    fcntl = None  # type: ignore[assignment]

PART = ".part"


def as_path(value: str | os.PathLike[str]) -> Path:
    """Return a user's value as a path, or raise `UsageError`.

    Examples
    --------
    >>> as_path("rows.csv").name
    'rows.csv'
    >>> as_path(5)
    Traceback (most recent call last):
    augmask.errors.UsageError: a file name must be text or a path, got 5
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(
        os.fspath(value), str
    ):
        raise UsageError(f"a file name must be text or a path, got {brief_repr(value)}")
    if "\0" in os.fspath(value):
        raise UsageError(
            f"a file name must not contain a null character, got {brief_repr(value)}"
        )
    return Path(value)


def is_regular_file(path: Path) -> bool:
    """Whether the path is a regular file, not a directory, pipe or device.

    Reading a pipe may wait for ever, and a device may have no end.
    """
    return stat.S_ISREG(path.stat().st_mode)


def _target(path: Path) -> Path:
    """Return the file to write: the target of a link, or the path itself."""
    try:
        return path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the link leads nowhere"
        raise DataError(f"cannot write {path}: {reason}") from error


def check_writable(path: str | Path) -> Path:
    """Return `path` if a file can be written there; call it before long work."""
    path = as_path(path)
    try:
        target = _target(path)
        folder = target.parent
        if target.is_symlink():
            raise DataError(f"cannot write {path}: the link leads nowhere")
        if target.is_dir():
            raise DataError(f"cannot write {path}: it is a directory; name a file")
        if target.exists() and not is_regular_file(target):
            raise DataError(f"cannot write {path}: it is a pipe or a device")
        if not folder.is_dir():
            raise DataError(f"cannot write {path}: there is no directory {folder}")
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        # for instance a name that is too long
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot write {path}: {reason}") from error
    if not os.access(folder, os.W_OK):
        raise DataError(f"cannot write {path}: no permission in {folder}")
    return path


def check_apart(option: str, out: Path, *inputs: Path | None) -> None:
    """Raise if an output is one of the inputs, whatever it is called.

    Parameters
    ----------
    option : str
        The option that names the output, for the message.
    out : Path
    *inputs : Path or None
        None is ignored.
    """
    for path in inputs:
        if path is not None and same_file(out, path):
            raise UsageError(
                f"{option} must not be an input, {out} is {path}; name another file"
            )


def same_file(a: Path, b: Path) -> bool:
    """Whether two paths are one file, whether it exists or not."""
    try:
        if a.resolve() == b.resolve():
            return True
        return a.exists() and b.exists() and a.samefile(b)
    except (OSError, RuntimeError, ValueError):
        # a path that cannot be resolved is an error where it is used
        return False


def _lock(handle: int) -> bool:
    """Lock an open file for this process; False if another process has locked it."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_leftovers(target: Path) -> None:
    """Remove what killed writers of `target` left."""
    start = f".{target.name}."
    for path in target.parent.iterdir():
        if not (path.name.startswith(start) and path.name.endswith(PART)):
            continue
        # removed in the meantime, or another user's
        with suppress(OSError), path.open("rb+") as file:
            if _lock(file.fileno()):
                path.unlink()


def _open_part(target: Path) -> tuple[int, Path]:
    """Return a new file beside `target`, open and locked, and its path."""
    while True:
        handle, name = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=PART, dir=target.parent
        )
        _lock(handle)
        # another writer may have removed it before it was locked
        if os.fstat(handle).st_nlink:
            return handle, Path(name)
        os.close(handle)


def _mode(target: Path) -> int:
    """Return the mode of an existing file, or the mode of a new one."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` on success.

    A reader sees the old file or the new one, never a part. After any failure, such as
    a full disk, the temporary file is removed and the old one stays. The mode of an
    existing file is kept, and a link is followed.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> with atomic_write(folder / "new.txt") as part:
    ...     _ = part.write_text("complete")
    >>> (folder / "new.txt").read_text()
    'complete'
    """
    path = check_writable(path)
    target = _target(path)
    handle: int | None = None
    part = target
    try:
        _remove_leftovers(target)
        handle, part = _open_part(target)
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.chmod(_mode(target))
        part.replace(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            f"cannot write {path}: {reason}; nothing was written"
        ) from error
    finally:
        if handle is not None:
            os.close(handle)
            part.unlink(missing_ok=True)
