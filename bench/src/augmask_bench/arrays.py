"""Arrays that runs share through files, which are there whole or not at all."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from augmask.errors import DataError
from augmask.files import written_whole

Arrays = dict[str, np.ndarray]


def read_arrays(path: Path) -> Arrays | None:
    """Return what a file holds; None if it is absent, damaged or out of reach."""
    try:
        # opened here, because numpy leaves a file open that is no archive
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return dict(stored)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        return None


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file, and make its folder if need be.

    A folder that cannot be written to costs time and nothing else: what is shared here
    can be made again.
    """
    with suppress(OSError, DataError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # given a path, numpy would add a suffix of its own
        with written_whole(path) as part, part.open("wb") as file:
            np.savez_compressed(file, **arrays)
