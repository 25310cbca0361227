"""Files appear whole or not at all.

What is being written has a hidden name that no reader takes for a table, and is locked
by its writer. A writer that was killed leaves such a file unlocked; the next one that
writes to the same place removes it.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from augmask.errors import DataError, UsageError, shown

try:
    import fcntl
except ImportError:  # where there are no locks, what killed writers left stays
    fcntl = None  # type: ignore[assignment]

PART = ".part"


def as_path(value: str | os.PathLike[str]) -> Path:
    """Return the path that a user gave; raise on what is none.

    Examples
    --------
    >>> as_path("rows.csv").name
    'rows.csv'
    >>> as_path(5)
    Traceback (most recent call last):
    augmask.errors.UsageError: a file is named by text or a path, got 5
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(
        os.fspath(value), str
    ):
        raise UsageError(f"a file is named by text or a path, got {shown(value)}")
    if "\0" in os.fspath(value):
        raise UsageError(f"the name of a file has no zero in it, got {shown(value)}")
    return Path(value)


def is_plain(path: Path) -> bool:
    """Say whether there is a file that is neither a folder, a pipe nor a device.

    A pipe would be waited for, and a device may have no end.
    """
    return stat.S_ISREG(path.stat().st_mode)


def _target(path: Path) -> Path:
    """Return the file that is to be written: where a link leads."""
    try:
        return path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it leads nowhere"
        raise DataError(f"cannot write {path}: {reason}") from error


def check_writable(path: str | Path) -> Path:
    """Return `path` if a file can be put there, before hours of work go into it."""
    path = as_path(path)
    try:
        target = _target(path)
        folder = target.parent
        if target.is_symlink():
            raise DataError(f"cannot write {path}: it leads nowhere")
        if target.is_dir():
            raise DataError(f"cannot write {path}: it is a directory; name a file")
        if target.exists() and not is_plain(target):
            raise DataError(f"cannot write {path}: it is a pipe or a device")
        if not folder.is_dir():
            raise DataError(f"cannot write {path}: there is no directory {folder}")
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        # a name that is too long, or has a zero in it
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot write {path}: {reason}") from error
    if not os.access(folder, os.W_OK):
        raise DataError(f"cannot write {path}: no permission in {folder}")
    return path


def check_apart(option: str, out: Path, *inputs: Path | None) -> None:
    """Raise if an output is one of the inputs, under whatever name.

    Parameters
    ----------
    option : str
        How the output was given, for the message.
    out : Path
    *inputs : Path or None
        None stands for an input that was not given.
    """
    for path in inputs:
        if path is not None and same_file(out, path):
            raise UsageError(
                f"{option} must not be what is read, {out} is {path}; name another file"
            )


def same_file(a: Path, b: Path) -> bool:
    """Say whether two names are those of one file, whether it is there or not."""
    try:
        if a.resolve() == b.resolve():
            return True
        return a.exists() and b.exists() and a.samefile(b)
    except (OSError, RuntimeError, ValueError):
        # what cannot be looked up is said where it is used
        return False


def _locked(handle: int) -> bool:
    """Lock an open file for this process; False if another one has done so."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_leftovers(target: Path) -> None:
    """Remove what writers of `target` left that live no more."""
    start = f".{target.name}."
    for path in target.parent.iterdir():
        if not (path.name.startswith(start) and path.name.endswith(PART)):
            continue
        # gone already, or not ours to touch
        with suppress(OSError), path.open("rb+") as file:
            if _locked(file.fileno()):
                path.unlink()


def _open_part(target: Path) -> tuple[int, Path]:
    """Return a new file beside `target`, open and locked, and its path."""
    while True:
        handle, name = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=PART, dir=target.parent
        )
        _locked(handle)
        # another writer may have come before the lock did
        if os.fstat(handle).st_nlink:
            return handle, Path(name)
        os.close(handle)


def _mode(target: Path) -> int:
    """Return the mode of the file that is there, or that `open` would give one."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that takes its place on success.

    A reader sees the old file or the new one, never a part. On any failure, also a
    full disk, the temporary file is removed and the old one stays. The mode of an old
    file is kept, and a link is followed.
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
        raise DataError(f"cannot write {path}: {reason}; nothing was kept") from error
    finally:
        if handle is not None:
            os.close(handle)
            part.unlink(missing_ok=True)
