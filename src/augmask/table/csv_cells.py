"""Columns of a CSV file whose text says more than the numbers that were made of it.

pandas reads a column of whole numbers with holes as floats, which have 53 bits, and
`00273` as 273. Both are undone here: such whole numbers become nullable ones, and
digits with leading zeros stay text. The file is searched once for those, and only the
columns in question are read again, as text.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pandas as pd

from augmask.table.recover import is_code_like

# Beyond this, two neighbouring whole numbers may be one float.
EXACT = 2.0**53

_WHOLE = re.compile(r"\s*[+-]?\d{1,30}\s*")
_CODE_CELL = re.compile(rb'(?:^|[,"\r\n])[ \t]*[+-]?0\d+[ \t]*(?=[,"\r\n]|$)')
_PIECE = 1 << 24


def _open_bytes(path: Path) -> BinaryIO:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")


def _has_codes(path: Path) -> bool:
    """Say whether any cell of the file is digits with a leading zero."""
    with _open_bytes(path) as file:
        # whole lines at a time, so that no cell is cut
        while piece := file.read(_PIECE) + file.readline():
            if _CODE_CELL.search(piece):
                return True
    return False


def _largest_whole(series: pd.Series) -> float:
    """Return the largest size in a float column; NaN unless all values are whole."""
    seen = series.to_numpy(dtype=np.float64)
    seen = seen[~np.isnan(seen)]
    if not len(seen) or not (np.rint(seen) == seen).all():
        return float("nan")
    return float(np.abs(seen).max())


def _from_text(texts: pd.Series) -> pd.Series | None:
    """Return codes as text and digits as whole numbers; None for anything else."""
    seen = texts.dropna()
    levels = pd.unique(seen)
    if is_code_like(levels):
        return texts
    if not len(levels) or not all(_WHOLE.fullmatch(level) for level in levels):
        return None
    known = {level: int(level) for level in levels}
    for dtype in ("Int64", "UInt64"):
        room = np.iinfo(dtype.lower())
        if room.min <= min(known.values()) and max(known.values()) <= room.max:
            whole = pd.Series(0, index=texts.index, dtype=dtype)
            whole[texts.notna()] = pd.array([known[t] for t in seen], dtype=dtype)
            return whole.mask(texts.isna())
    return None


def _in_doubt(series: pd.Series, codes: bool) -> bool:
    """Say whether the text of a column is needed to tell its values."""
    kind = series.dtype.kind
    if kind == "f":
        largest = _largest_whole(series)
        return largest >= EXACT or (codes and largest == largest)
    if kind in "iu":
        return codes
    # Unsigned numbers beside holes come as text, the holes as empty text.
    return kind != "b" and bool((series == "").any())


def true_cells(
    frame: pd.DataFrame, path: Path, again: Callable[[list[int]], pd.DataFrame]
) -> pd.DataFrame:
    """Return a frame as pandas read it from `path`, with the cells as they stand there.

    Parameters
    ----------
    frame : DataFrame
    path : Path
    again : callable
        Reads the columns of these numbers anew, as text.
    """
    codes = any(dtype.kind in "iuf" for dtype in frame.dtypes) and _has_codes(path)
    columns = [frame.iloc[:, j] for j in range(frame.shape[1])]
    doubtful = [j for j, column in enumerate(columns) if _in_doubt(column, codes)]
    texts = again(doubtful) if doubtful else frame
    changed = False
    for place, j in enumerate(doubtful):
        found = _from_text(texts.iloc[:, place])
        # whole numbers without a hole were read as what they are
        plain = columns[j].dtype.kind in "iu"
        if found is not None and not (plain and found.dtype.kind in "iu"):
            columns[j], changed = found, True
    for j, column in enumerate(columns):
        holed = column.dtype.kind == "f" and column.isna().any()
        if holed and _largest_whole(column) < EXACT:
            columns[j], changed = column.astype("Int64"), True
    if not changed:
        return frame
    made = pd.concat(columns, axis=1)
    made.columns = frame.columns
    return made
