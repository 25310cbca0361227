"""Columns that are (nearly) functions of others, and how they are encoded.

The school of this year is that of last year in 96 of 100 rows; a name follows from a
code; a total is the sum of its parts. A network that learns both columns side by side
gets each right and the pair wrong. So a column that follows from another one has a
feature of its own, "y follows x": yes or no where both cells are observed, unknown
elsewhere. The column itself is encoded as ever. In decoding, where the feature says
yes, the cell is what the other column implies. Without an exception in the table there
is no feature: the cell always follows.

A link is plain data in the schema: `column`, `how` (see `link_facts`), `share` of the
`rows` with both cells in which it holds, the `pairs` of a map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.table.cells import Cells
from augmask.table.link_facts import is_linked
from augmask.table.recover import to_boolean, to_float
from augmask.table.schema import Column, Schema

Bools = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]

# Kinds that can follow or be followed. Dates come in too many spellings.
LINKED = ("integer", "float", "category", "boolean")
# Sums are equal but for rounding noise.
NOISE = 1e-7


def _objects(values: Any, missing: Bools) -> Values:
    """Return values as objects, None where one is missing."""
    plain: Values = np.asarray(values, dtype=object).copy()
    plain[missing] = None
    return plain


def cell_values(cells: Cells, column: Column) -> Values:
    """Return comparable values: floats, or texts as objects; NaN or None in holes."""
    read = to_boolean if column.kind == "boolean" else to_float
    textual = column.kind == "category" and isinstance(column.levels[0], str)
    if not textual and cells.form != "empty":
        plain = read(cells)
        if plain is not None:
            values = plain.values.astype(np.float64)
            return np.where(cells.observed, values, np.nan)
    return _objects(cells.values, ~cells.observed)


def series_values(series: pd.Series) -> Values:
    """Return the same of a decoded column."""
    values = series.astype(object)
    missing = np.asarray(values.isna())
    plain = values[~missing]
    if len(plain) and all(isinstance(v, (bool, int, float)) for v in plain.unique()):
        numbers: Values = values.where(~missing, np.nan).to_numpy(dtype=np.float64)
        return numbers
    return _objects(values, missing)


def implied(link: Mapping[str, Any], sources: Sequence[Values]) -> Values:
    """Return what the other columns imply; NaN or None where they say nothing."""
    if link["how"] == "sum":
        total: Values = sources[0] + sources[1]
        return total
    if link["how"] == "difference":
        rest: Values = sources[0] - sources[1]
        return rest
    (source,) = sources
    if link["how"] == "same":
        return source
    keys, values = zip(*link["pairs"], strict=True)
    kind: Any = object if isinstance(keys[0], str) else np.float64
    at = pd.Index(list(keys), dtype=kind).get_indexer(source.astype(kind))
    kind = object if isinstance(values[0], str) else np.float64
    # the last one, for what is not in the map
    table = np.array([*values, None if kind is object else np.nan], kind)
    told: Values = table[at]
    return told


def agrees(link: Mapping[str, Any], told: Values, own: Values) -> tuple[Bools, Bools]:
    """Return where the column is what is implied, and where both are known."""
    known = ~(pd.isna(told) | pd.isna(own))
    if told.dtype == object or own.dtype == object:
        return known & (told == own), known
    if link["how"] in ("sum", "difference"):
        near = np.abs(told - own) <= NOISE * np.maximum(np.abs(own), 1.0)
        return known & near, known
    return known & (told == own), known


def flags(
    column: Column, sources: Sequence[Values], own: Values
) -> tuple[Bools, Bools]:
    """Return whether the column follows, and where that is observed."""
    link = column.follows or {}
    return agrees(link, implied(link, sources), own)


def following(
    column: Column, drawn: pd.Series, sources: Sequence[pd.Series], flag: Bools | None
) -> pd.Series:
    """Return a decoded column with what the others imply, where it follows them.

    A value that the column never had, and a cell that is kept missing, stay as drawn.

    Parameters
    ----------
    column : Column
    drawn : pandas.Series
    sources : sequence of pandas.Series
        The decoded columns that it follows.
    flag : bool array or None
        Where it follows; None if it always does.
    """
    link = column.follows or {}
    told = implied(link, [series_values(source) for source in sources])
    at = ~pd.isna(told) & ~np.asarray(drawn.isna())
    if flag is not None:
        at &= flag
    if column.kind in ("integer", "float"):
        assert column.low is not None
        assert column.high is not None
        number = np.where(at, told, column.low).astype(np.float64)
        if column.kind == "float" and column.decimals is not None:
            number = number.round(column.decimals)
        if column.kind == "integer":
            at &= number == np.rint(number)
        at &= (number >= column.low) & (number <= column.high)
        values: Any = number[at]
        if column.kind == "integer":
            values = values.astype(np.int64)
    else:
        levels: list[Any] = column.every_level
        kind: Any = object if isinstance(levels[0], str) else np.float64
        index = pd.Index(np.array(levels, kind))
        place = index.get_indexer(told) if told.dtype == kind else np.full(len(at), -1)
        at &= place >= 0
        values = [levels[i] for i in place[at]]
    if not at.any():
        return drawn
    result = drawn.copy()
    result[at] = pd.Series(values, index=result.index[at]).astype(drawn.dtype)
    return result


def in_order(schema: Schema) -> list[Column]:
    """Return the columns that follow others, each after those that it follows."""
    waiting = {column.name: column for column in schema if is_linked(column)}
    ordered: list[Column] = []
    while waiting:
        ready = [
            column
            for column in waiting.values()
            if not any(name in waiting for name in (column.follows or {})["column"])
        ]
        if not ready:
            break
        for column in ready:
            ordered.append(waiting.pop(column.name))
    return ordered
