"""A table without what only a few of its rows have.

A model file names every level, and the smallest and the largest value of every column;
one that a single row has tells of a single person. Here rare levels become missing
values, and extremes are cut at the mean of the few that lie farthest out. Identifiers
are made without any trace of the observed ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from augmask.table.cells import Cells, read_cells
from augmask.table.encode import level_places
from augmask.table.recover import NUMPY_UNITS, instants, to_datetime, to_float
from augmask.table.schema import NUMERIC, Column, Schema

# What fewer rows share is not kept.
FEWEST = 5


def _common_ends(values: np.ndarray) -> tuple[float, float]:
    """Return means of the values that lie farthest out below and above."""
    few = min(FEWEST, len(values))
    ordered = np.sort(values)
    return float(ordered[:few].mean()), float(ordered[-few:].mean())


def _cut_dates(series: pd.Series, cells: Cells, column: Column) -> pd.Series:
    dates = to_datetime(cells)
    if dates is None or column.unit is None or series.dtype.kind != "M":
        return series
    whole = instants(dates, column.unit)[cells.observed]
    # relative, because a float does not hold nanoseconds since 1970
    low, high = _common_ends((whole - whole.min()).astype(np.float64))
    ends = np.rint([low, high]).astype(np.int64) + whole.min()
    stamps = ends.astype(f"datetime64[{NUMPY_UNITS[column.unit]}]")
    below, above = (pd.Timestamp(stamp) for stamp in stamps)
    zone = getattr(series.dtype, "tz", None)
    if zone is not None and column.unit == "D":
        below, above = (
            t.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
            for t in (below, above)
        )
    elif zone is not None:
        below, above = (t.tz_localize("UTC").tz_convert(zone) for t in (below, above))
    unit = series.dt.unit
    return series.clip(below.as_unit(unit), above.as_unit(unit))


def _cut_numbers(series: pd.Series, cells: Cells, column: Column) -> pd.Series:
    if column.kind == "datetime":
        return _cut_dates(series, cells, column)
    numbers = to_float(cells)
    if numbers is None:
        return series
    low, high = _common_ends(numbers.seen)
    if column.kind == "integer":
        low, high = float(np.rint(low)), float(np.rint(high))
    elif column.decimals is not None:
        low, high = round(low, column.decimals), round(high, column.decimals)
    if series.dtype.kind in "iu":
        return series.clip(int(low), int(high))
    if series.dtype.kind == "f":
        return series.clip(low, high)
    # numbers that are written as text cannot be cut, but left out
    out = cells.observed & ((numbers.values < low) | (numbers.values > high))
    return series.mask(out)


def _without_rare(series: pd.Series, rare: np.ndarray) -> pd.Series:
    series = series.mask(rare)
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.cat.remove_unused_categories()
    return series


def _trimmed(series: pd.Series, column: Column) -> pd.Series:
    cells = read_cells(series, column.name, column.na_values)
    if column.kind in NUMERIC:
        return _cut_numbers(series, cells, column)
    if column.kind == "constant" and cells.observed.sum() < FEWEST:
        return _without_rare(series, cells.observed)
    if column.kind == "category":
        places = level_places(cells, column)
        counts = np.bincount(places[places >= 0], minlength=len(column.every_level))
        rare = (places >= 0) & (counts[np.maximum(places, 0)] < FEWEST)
        return _without_rare(series, rare)
    return series


def without_extremes(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return the table without rare levels and with cut extremes.

    Parameters
    ----------
    frame : pandas.DataFrame
    schema : Schema
        Inferred from it; to be inferred anew from what is returned.

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> table = pd.DataFrame({"job": ["cook"] * 30 + ["king"], "pay": [5] * 30 + [999]})
    >>> plain = without_extremes(table, infer_schema(table))
    >>> plain["job"].isna().sum()
    np.int64(1)
    """
    labels = {str(label): label for label in frame.columns}
    columns: dict[Any, pd.Series] = {}
    for column in schema:
        label = labels[column.name]
        columns[label] = _trimmed(frame[label], column)
    return pd.DataFrame(columns)


def without_traces(schema: Schema) -> Schema:
    """Return the schema with identifiers that are made from nothing observed."""
    columns = []
    for column in schema:
        if column.kind == "identifier":
            number = (column.form or {}).get("make") == "number"
            form: dict[str, Any] = {"make": "placeholder", "prefix": column.name}
            if number:
                form = {"make": "number", "next": 1, "step": 1}
            column = replace(column, form=form)
        columns.append(column)
    return Schema(tuple(columns))
