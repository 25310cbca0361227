"""A lock on the folder of a grid, so that two commands do not do the same work.

The operating system releases it when its process ends, however it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

POLL_SECONDS = 0.2


@contextmanager
def folder_lock(
    folder: Path, waiting: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold the lock of a folder; wait while another process holds it.

    Parameters
    ----------
    folder : Path
        Created if it is missing.
    waiting : callable
        Called once if the lock is not free at once.

    Examples
    --------
    >>> import tempfile
    >>> with folder_lock(Path(tempfile.mkdtemp())):
    ...     pass
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as file:
        told = False
        while fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    waiting()
                told = True
                time.sleep(POLL_SECONDS)
        yield
