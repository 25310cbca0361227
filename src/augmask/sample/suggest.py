"""Rules that a table keeps in every row, suggested to a user who may want them kept.

Only orders of two numbers or dates are suggested, and only if they are no accident of
two ranges: with the cells of one column shuffled, many rows would break it.
"""

from __future__ import annotations

import shlex
from keyword import iskeyword

import numpy as np
import pandas as pd

from augmask.missing.model import with_holes
from augmask.table.infer import missing_mask
from augmask.table.link_facts import is_linked
from augmask.table.schema import Column, Schema

MOST_ROWS = 5_000
MOST_COLUMNS = 80
MOST = 10
# Rows with both cells, and share of rows that must break it when cells are shuffled.
FEWEST, BROKEN = 200, 0.1


def _written(column: Column) -> str:
    """Return a name as a rule writes it."""
    plain = column.name.isidentifier() and not iskeyword(column.name)
    return column.name if plain else f"`{column.name}`"


def suggest_orders(frame: pd.DataFrame, schema: Schema) -> list[str]:
    """Return orders of two columns that every row keeps, the most telling first.

    Parameters
    ----------
    frame : pandas.DataFrame
    schema : Schema
        Of the frame.

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> start = np.arange(300) * 7 % 90
    >>> frame = pd.DataFrame({"start": start, "end": start + np.arange(300) % 11})
    >>> suggest_orders(frame, infer_schema(frame))
    ['start <= end']
    """
    found: list[tuple[float, str]] = []
    rng = np.random.default_rng(0)
    missing = missing_mask(frame, schema)
    known = with_holes(frame, ~missing.to_numpy())
    for kinds in (("integer", "float"), ("datetime",)):
        columns = [
            column
            for column in schema
            if column.kind in kinds and not is_linked(column) and "`" not in column.name
        ][:MOST_COLUMNS]
        numbers = [_numbers(known[column.label], column) for column in columns]
        if len(numbers) < 2:
            continue
        table = np.stack(numbers, axis=1)
        some = table
        if len(table) > MOST_ROWS:
            some = table[np.sort(rng.permutation(len(table))[:MOST_ROWS])]
        shuffled = rng.permuted(some, axis=0)
        for i, low in enumerate(columns):
            both = ~np.isnan(some) & ~np.isnan(some[:, [i]])
            kept = (some[:, [i]] <= some) | ~both
            for j in np.flatnonzero(kept.all(axis=0) & (both.sum(axis=0) >= FEWEST)):
                high = columns[j]
                same_zone = (low.tz is None) == (high.tz is None)
                if i == j or not same_zone or (table[:, i] > table[:, j]).any():
                    continue
                broken = float(np.mean(some[:, i] > shuffled[:, j]))
                equal = np.nanmean(some[:, i] == some[:, j])
                if broken >= BROKEN and equal < 1:
                    found.append((-broken, f"{_written(low)} <= {_written(high)}"))
    return [text for _, text in sorted(found)[:MOST]]


def orders_note(orders: list[str]) -> list[str]:
    """Return a note on the orders, if there are any."""
    if not orders:
        return []
    return [
        f"every row keeps {', '.join(orders)}; to have generated rows keep it too, fit "
        f"with --constraint {shlex.quote(orders[0])}"
    ]


def _numbers(series: pd.Series, column: Column) -> np.ndarray:
    """Return a column as floats, NaN where it is missing."""
    if column.kind != "datetime":
        plain = pd.to_numeric(series, errors="coerce")
        return np.asarray(plain.to_numpy(dtype=np.float64, na_value=np.nan))
    dates = pd.to_datetime(series, errors="coerce", utc=True)
    whole = dates.dt.tz_localize(None).astype("datetime64[us]")
    numbers = whole.astype("int64").to_numpy(dtype=np.float64)
    return np.where(np.asarray(whole.isna()), np.nan, numbers)
