"""Scaled numbers and codes become the cells of one output column.

Whatever a sampler produces, the result keeps the column's promises: its dtype, the
observed range, whole numbers, decimals, its lattice, known levels, its time zone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.table.absence_facts import chosen_levels
from augmask.table.cells import AnyArray
from augmask.table.identifiers import fresh_values
from augmask.table.lattice import on_lattice
from augmask.table.recover import NUMPY_UNITS
from augmask.table.schema import Column

Mask = npt.NDArray[np.bool_]


def origin(column: Column) -> int:
    """Return what is subtracted before scaling.

    Nanoseconds since 1970 and long keys do not fit into a float; their distance from
    the smallest one mostly does.
    """
    if column.kind == "float" or column.low is None or column.high is None:
        return 0
    # A distance that would not fit into 64 bits cannot be taken.
    return int(column.low) if int(column.high) - int(column.low) < 2**62 else 0


def _holed(values: AnyArray, gate: Mask, column: Column) -> AnyArray:
    """Put holes where the gate says so."""
    if column.kind == "datetime":
        values[gate] = "NaT"
        return values
    values = values.astype(np.float64 if column.kind == "float" else object)
    values[gate] = np.nan if column.dtype.startswith("float") else None
    return values


def number_values(column: Column, x: AnyArray) -> AnyArray:
    """Turn numbers relative to the origin into values of the column."""
    low, high = column.low, column.high
    if column.lattice is not None and low is not None and high is not None:
        at = on_lattice(np.asarray(x + origin(column)), column.lattice, low, high)
        if column.kind == "float":
            return at if column.decimals is None else at.round(column.decimals)
        return np.rint(at).astype(np.int64)
    if column.kind == "float":
        values = np.clip(x, low, high)
        return values if column.decimals is None else values.round(column.decimals)
    # The largest float below 2**63; one more would turn negative as an integer.
    whole = np.rint(np.minimum(x, 2.0**63 - 1024)).astype(np.int64)
    return np.clip(whole + origin(column), low, high)


def _dates(column: Column, whole: AnyArray) -> AnyArray:
    return whole.astype(f"datetime64[{NUMPY_UNITS[str(column.unit)]}]")


def _date_series(column: Column, dates: AnyArray) -> pd.Series:
    """Return dates in the column's own resolution and time zone."""
    resolution = column.dtype.split("[")[1].split("]")[0].split(",")[0]
    index = pd.DatetimeIndex(dates.astype(f"datetime64[{resolution}]"))
    if column.tz is not None and column.unit == "D":
        # A local midnight that the clock skips is moved to the next instant.
        summer = np.zeros(len(index), bool)
        index = index.tz_localize(
            column.tz, ambiguous=summer, nonexistent="shift_forward"
        )
    elif column.tz is not None:
        index = index.tz_localize("UTC").tz_convert(column.tz)
    return pd.Series(index)


def _level_series(
    column: Column, codes: AnyArray, rng: np.random.Generator
) -> pd.Series:
    """Return levels for codes; the shared code of rare levels becomes one of them."""
    rare = len(column.levels)
    position = codes.astype(np.int64)
    hole = position == column.card - 1 if column.gated else np.zeros(len(codes), bool)
    table: list[Any] = column.every_level
    if column.folded:
        weight = np.array([count for _, count in column.folded], np.float64)
        at = (position == rare) & ~hole
        drawn = rng.choice(len(weight), size=int(at.sum()), p=weight / weight.sum())
        position[at] = rare + drawn
    position[hole] = 0
    if column.dtype == "category":
        place = {level: i for i, level in enumerate(column.categories)}
        lookup = np.array([place[level] for level in table], np.int64)
        taken = np.where(hole, -1, lookup[position])
        return pd.Series(_categorical(column, taken))
    dtype = pd.api.types.pandas_dtype(column.dtype)
    if isinstance(dtype, pd.StringDtype):
        # a string per level, not per cell, is converted
        position[hole] = -1
        return pd.Series(pd.array(table, dtype=dtype).take(position, allow_fill=True))
    whole = all(isinstance(level, (bool, int, float)) for level in table)
    values = np.array(table, None if whole else object)[position]
    if hole.any():
        values = values.astype(object)
        values[hole] = None
    return pd.Series(values, dtype=column.dtype)


def _categorical(column: Column, codes: AnyArray) -> pd.Categorical:
    categories = pd.Index(list(column.categories))
    dtype = pd.CategoricalDtype(categories, ordered=column.ordered)
    return pd.Categorical.from_codes(codes, dtype=dtype)


def kept_absent(
    column: Column,
    about: Column,
    told: AnyArray,
    codes: AnyArray,
    rng: np.random.Generator,
) -> AnyArray:
    """Return codes that are a hole exactly where another column says so.

    Parameters
    ----------
    column : Column
        Its `absent` names `about`.
    about : Column
    told : int array [n]
        Codes of `about`.
    codes : int array [n]
        Codes of the column if it is a category, else of the feature for its holes.
    rng : numpy.random.Generator
        Draws levels where there is a hole and should be none.
    """
    assert column.absent is not None
    inside = np.isin(told, chosen_levels(column.absent, about.levels))
    # where the other column is missing itself it says nothing
    known = told < len(about.levels)
    if column.kind != "category":
        return np.where(known, inside, codes)
    hole = column.card - 1
    wrong = known & ~inside & (codes == hole)
    often = np.array(column.absent["counts"], np.float64)
    codes = np.where(inside, hole, codes)
    codes[wrong] = rng.choice(len(often), int(wrong.sum()), p=often / often.sum())
    return codes


def aside_series(column: Column, n: int, start: int) -> pd.Series:
    """Return the cells of a column that was not learned."""
    if column.kind == "identifier":
        values = fresh_values(column.form or {}, start, n)
        return pd.Series(values, dtype=column.dtype)
    empty = column.kind == "all-missing"
    if column.dtype == "category":
        code = -1 if empty else column.categories.index(column.value)
        return pd.Series(_categorical(column, np.full(n, code)))
    if empty:
        hole = pd.NaT if column.dtype.startswith("datetime") else None
        return pd.Series([hole] * n, dtype=column.dtype)
    if column.unit is not None:
        return _date_series(column, _dates(column, np.full(n, column.value)))
    return pd.Series(np.full(n, column.value, dtype=object), dtype=column.dtype)


def learned_series(
    column: Column, values: AnyArray, hole: Mask | None, rng: np.random.Generator
) -> pd.Series:
    """Return the output cells of a learned column.

    Parameters
    ----------
    column : Column
    values : array [n]
        Level codes, or unscaled numbers relative to `origin`.
    hole : bool array [n] or None
        Where a kept hole is, for columns that have a feature of its own for it.
    rng : numpy.random.Generator
        Draws among rare levels that share a code.
    """
    if column.kind == "category":
        return _level_series(column, values, rng)
    cells = values == 1 if column.kind == "boolean" else number_values(column, values)
    if column.kind == "datetime":
        cells = _dates(column, cells)
    if hole is not None:
        cells = _holed(cells, hole, column)
    if column.kind == "datetime":
        return _date_series(column, cells)
    return pd.Series(cells, dtype=column.dtype)
