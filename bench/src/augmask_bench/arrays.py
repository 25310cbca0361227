"""Arrays that runs share through cache files, written atomically."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from augmask.errors import DataError
from augmask.files import atomic_write

Arrays = dict[str, np.ndarray]


def read_arrays(path: Path) -> Arrays | None:
    """Return the arrays of a file; None if it is missing, damaged or unreadable."""
    try:
        # opened here: numpy leaves a file open if it is not an archive
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return dict(stored)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        return None


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file, and create its folder if needed.

    Errors are ignored: a cache that cannot be written costs time and nothing else.
    """
    with suppress(OSError, DataError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # given a path, numpy would append a suffix
        with atomic_write(path) as part, part.open("wb") as file:
            np.savez_compressed(file, **arrays)
