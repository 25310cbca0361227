"""Files appear whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from augmask.errors import DataError


def is_plain(path: Path) -> bool:
    """Say whether there is a file that is neither a folder, a pipe nor a device.

    A pipe would be waited for, and a device may have no end.
    """
    return stat.S_ISREG(path.stat().st_mode)


def check_writable(path: str | Path) -> Path:
    """Return `path` if a file can be put there, before hours of work go into it."""
    path = Path(path)
    folder = path.parent
    if path.is_dir():
        raise DataError(f"cannot write {path}: it is a directory; name a file")
    if not folder.is_dir():
        raise DataError(f"cannot write {path}: there is no directory {folder}")
    if not os.access(folder, os.W_OK):
        raise DataError(f"cannot write {path}: no permission in {folder}")
    return path


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that takes its place on success.

    A reader sees the old file or the new one, never a part. On any failure, also a
    full disk, the temporary file is removed and the old one stays.
    """
    path = check_writable(path)
    handle, name = tempfile.mkstemp(
        prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent
    )
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        # mkstemp makes files private; give the result the mode open() would give
        mask = os.umask(0)
        os.umask(mask)
        part.chmod(0o666 & ~mask)
        part.replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"cannot write {path}: {reason}; nothing was kept") from error
    finally:
        part.unlink(missing_ok=True)
