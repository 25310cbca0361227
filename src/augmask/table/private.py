"""Remove from a table what only a few of its rows have.

A model file names every level and the range of every column, which may identify a
single person. Here rare levels become missing values, extremes are clipped at the mean
of the few most extreme ones, and identifiers keep no trace of the observed ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from augmask.table.cells import Cells
from augmask.table.codec import level_indices
from augmask.table.dtype_recovery import NUMPY_UNITS, instants, to_datetime, to_float
from augmask.table.schema import NUMERIC, Column, Schema, column_cells

# Values shared by fewer rows are removed.
FEWEST = 5


def _clip_limits(values: np.ndarray) -> tuple[float, float]:
    """Return the means of the few smallest and of the few largest values."""
    few = min(FEWEST, len(values))
    ordered = np.sort(values)
    return float(ordered[:few].mean()), float(ordered[-few:].mean())


def _clip_dates(series: pd.Series, cells: Cells, column: Column) -> pd.Series:
    dates = to_datetime(cells)
    if dates is None or column.unit is None or series.dtype.kind != "M":
        return series
    whole = instants(dates, column.unit)[cells.observed]
    # Relative, because nanoseconds since 1970 exceed the precision of a float.
    low, high = _clip_limits((whole - whole.min()).astype(np.float64))
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


def _clip_numbers(series: pd.Series, cells: Cells, column: Column) -> pd.Series:
    if column.kind == "datetime":
        return _clip_dates(series, cells, column)
    numbers = to_float(cells)
    if numbers is None:
        return series
    low, high = _clip_limits(numbers.observed_values)
    if column.kind == "integer":
        low, high = float(np.rint(low)), float(np.rint(high))
    elif column.decimals is not None:
        low, high = round(low, column.decimals), round(high, column.decimals)
    if series.dtype.kind in "iu":
        return series.clip(int(low), int(high))
    if series.dtype.kind == "f":
        return series.clip(low, high)
    # Numbers written as text cannot be clipped; mask them.
    outside = cells.observed & ((numbers.values < low) | (numbers.values > high))
    return series.mask(outside)


def _mask_rare(series: pd.Series, rare: np.ndarray) -> pd.Series:
    series = series.mask(rare)
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.cat.remove_unused_categories()
    return series


def _suppress(series: pd.Series, column: Column) -> pd.Series:
    cells = column_cells(series, column)
    if column.kind in NUMERIC:
        return _clip_numbers(series, cells, column)
    if column.kind == "constant" and cells.observed.sum() < FEWEST:
        return _mask_rare(series, cells.observed)
    if column.kind == "category":
        indices = level_indices(cells, column)
        known = indices >= 0
        counts = np.bincount(indices[known], minlength=len(column.all_levels))
        rare = known & (counts[np.maximum(indices, 0)] < FEWEST)
        return _mask_rare(series, rare)
    return series


def suppress_rare_values(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return the table without rare levels and with clipped extremes.

    Parameters
    ----------
    frame : pandas.DataFrame
    schema : Schema
        Of the frame; infer it again from the result.

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> table = pd.DataFrame({"job": ["cook"] * 30 + ["king"], "pay": [5] * 30 + [999]})
    >>> plain = suppress_rare_values(table, infer_schema(table))
    >>> plain["job"].isna().sum()
    np.int64(1)
    """
    labels = {str(label): label for label in frame.columns}
    return pd.DataFrame(
        {
            labels[column.name]: _suppress(frame[labels[column.name]], column)
            for column in schema
        }
    )


def anonymize_identifiers(schema: Schema) -> Schema:
    """Return the schema with identifiers that do not depend on the observed ones."""
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
