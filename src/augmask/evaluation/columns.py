"""Columns of several frames, read as floats or as codes that agree.

Levels of a categorical column are compared by value, as Python compares them: 1, 1.0
and True are one level, "1" is another. A column that is text in one table and numbers
in the other is therefore refused, because every level would count as unseen and the
score would be a silent zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import DataError, UsageError
from augmask.table.floats import as_floats

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Frames = Mapping[str, pd.DataFrame]


def _refuse_holes(holes: npt.NDArray[np.bool_], column: str, table: str) -> None:
    count = int(holes.sum())
    if count:
        raise DataError(
            f"A table to be scored is complete, but column {column!r} of the {table} "
            f"table has {count} missing or infinite values; drop or fill them first."
        )


def _floats(series: pd.Series, column: str, table: str, holes: bool) -> Floats:
    """Return a numeric, boolean or datetime column as float64, NaN only in holes."""
    missing = series.isna().to_numpy(dtype=bool)
    if not holes:
        _refuse_holes(missing, column, table)
    values = as_floats(series)
    if values is None:
        raise DataError(
            f"A numeric column holds numbers or dates, but column {column!r} of the "
            f"{table} table is {series.dtype}; list it as categorical."
        )
    _refuse_holes(~(np.isfinite(values) | missing), column, table)
    return values


def check_tables(
    tables: Frames, numeric: Sequence[str], categorical: Sequence[str]
) -> None:
    """Raise unless every table has rows and each named column exactly once.

    Examples
    --------
    >>> check_tables({"real": pd.DataFrame({"age": [31, 54]})}, ["age"], ["sex"])
    Traceback (most recent call last):
    augmask.errors.DataError: Column 'sex' stands 0 times in the real table, and a \
column to be scored stands there once; name the columns that both tables share.
    """
    names = [*numeric, *categorical]
    if not names:
        raise UsageError(
            "At least one column is scored, but both `numeric` and `categorical` are "
            "empty; name the columns to compare."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"A column is numeric or categorical, once, but {twice[0]!r} is listed "
            "more often; keep one mention."
        )
    for label, frame in tables.items():
        if not len(frame):
            raise DataError(
                f"A table to be scored has rows, but the {label} table has none; "
                "pass at least one row."
            )
        for name in names:
            found = int((frame.columns == name).sum())
            if found != 1:
                raise DataError(
                    f"Column {name!r} stands {found} times in the {label} table, and "
                    "a column to be scored stands there once; name the columns that "
                    "both tables share."
                )


def numbers(tables: Frames, column: str, holes: bool = False) -> list[Floats]:
    """Return a numeric column of each table as float64; dates become seconds.

    With `holes`, missing values are allowed and become NaN.

    Examples
    --------
    >>> day = pd.DataFrame({"seen": pd.to_datetime(["1970-01-02"])})
    >>> numbers({"real": day}, "seen")
    [array([86400.])]
    """
    return [
        _floats(frame[column], column, label, holes) for label, frame in tables.items()
    ]


def level_codes(
    tables: Frames, column: str, holes: bool = False
) -> tuple[list[Codes], list[Any], int]:
    """Return a categorical column of each table as codes that mean the same level.

    Returns
    -------
    codes : list of int arrays
        One per table, in the order of `tables`. With `holes`, missing values are
        allowed and get code -1.
    levels : list
        The level behind each code. Levels of the first table come first.
    n_first : int
        How many levels the first table has: a code of `n_first` or more was never
        seen there.

    Examples
    --------
    >>> real = pd.DataFrame({"city": ["Pau", "Metz", "Pau"]})
    >>> synthetic = pd.DataFrame({"city": ["Metz", "Brest"]})
    >>> codes, levels, n_first = level_codes({"real": real, "new": synthetic}, "city")
    >>> [c.tolist() for c in codes], levels, n_first
    ([[0, 1, 0], [1, 2]], ['Pau', 'Metz', 'Brest'], 2)
    """
    known: dict[Any, int] = {}
    coded: list[Codes] = []
    n_first: int | None = None
    text_first: set[bool] = set()
    for label, frame in tables.items():
        local, found = pd.factorize(frame[column])
        if not holes:
            _refuse_holes(local < 0, column, label)
        values = pd.Index(found).astype(object).tolist()
        translate = [known.setdefault(value, len(known)) for value in values]
        # The last entry is what code -1, a hole, is looked up as.
        coded.append(np.asarray([*translate, -1], dtype=np.int64)[local])
        n_first = len(known) if n_first is None else n_first
        text = {isinstance(value, str) for value in values}
        text_first = text_first or text
        # A column of holes has no type that could differ.
        if text and text.isdisjoint(text_first):
            first = next(iter(tables))
            raise DataError(
                f"A column has one type in all tables, but {column!r} is text in only "
                f"one of the {first} table ({tables[first][column].dtype}) and the "
                f"{label} table ({frame[column].dtype}); convert one of them."
            )
    return coded, list(known), n_first or 0


def one_hot(codes: Codes, n_levels: int) -> Floats:
    """Return 0/1 indicators; a code outside 0 .. `n_levels` - 1 gets a row of zeros.

    Examples
    --------
    >>> one_hot(np.array([1, 0, 2]), 2).tolist()
    [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]
    """
    return np.asarray(codes[:, None] == np.arange(n_levels), dtype=np.float64)
