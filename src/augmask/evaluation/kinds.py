"""The cells of one column in the form of its kind, whatever they were stored as.

Levels are those of the schema; any other value stays, as a level that nobody has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from augmask.errors import DataError
from augmask.table.cells import Cells
from augmask.table.recover import to_boolean, to_datetime, to_float
from augmask.table.schema import Column


def _single(cells: Cells, value: Any) -> Cells:
    values = np.array([value], dtype=cells.values.dtype)
    return replace(cells, values=values, observed=np.ones(1, bool))


def _called(column: Column) -> str:
    if column.kind != "category":
        return column.kind
    text = bool(column.levels) and isinstance(column.levels[0], str)
    return f"a category of {'text' if text else 'numbers'}"


def _level(value: Any, known: Mapping[Any, Any]) -> Any:
    """Return the level that a number means, whole ones without a decimal point."""
    return known.get(value, int(value) if float(value).is_integer() else value)


def as_kind(cells: Cells, column: Column) -> pd.Series | None:
    """Return the cells in the form of the column's kind, None if they cannot be so.

    Examples
    --------
    >>> from augmask.table.cells import read_cells
    >>> from augmask.table.infer import infer_schema
    >>> grade = infer_schema(pd.DataFrame({"grade": [1, 2] * 9}))["grade"]
    >>> as_kind(read_cells(pd.Series(["2", None, "7"]), "grade"), grade).tolist()
    [2, nan, 7]
    >>> as_kind(read_cells(pd.Series(["good"]), "grade"), grade) is None
    True
    """
    if column.kind in ("integer", "float"):
        numbers = to_float(cells)
        if numbers is None:
            return None
        return pd.Series(np.where(cells.observed, numbers.values, np.nan))
    if column.kind == "datetime":
        dates = to_datetime(cells)
        return None if dates is None else pd.Series(dates.values).where(cells.observed)
    known = column.every_level
    if column.kind == "boolean":
        plain = to_boolean(cells)
        codes, found = pd.factorize(cells.seen if plain is None else plain.seen)
        levels = found.tolist()
    elif isinstance(known[0], str):
        plain = cells
        codes, found = pd.factorize(cells.seen)
        levels = [str(value) for value in found]
        # "3" comes as a number from a file in which no other level was drawn.
        if cells.form != "text" and set(levels).isdisjoint(known):
            plain = None
    else:
        plain = to_float(cells)
        codes, found = pd.factorize(cells.seen if plain is None else plain.seen)
        same = {level: level for level in known}
        levels = [] if plain is None else [_level(v, same) for v in found.tolist()]
    if plain is None:
        return None
    categories = [*known, *(level for level in levels if level not in known)]
    place = {level: i for i, level in enumerate(categories)}
    taken = np.full(len(cells.values), -1)
    taken[cells.observed] = np.array([place[v] for v in levels], np.int64)[codes]
    dtype = pd.CategoricalDtype(pd.Index(categories, dtype=object))
    return pd.Series(pd.Categorical.from_codes(taken, dtype=dtype))


def clash(cells: Cells, column: Column, label: str) -> DataError:
    """Return the error about cells that cannot be of the column's kind."""
    # Many cells may be fine; the one to show is the first that is not.
    odd = next(
        (
            value
            for value in pd.unique(cells.seen)
            if as_kind(_single(cells, value), column) is None
        ),
        cells.seen[0],
    )
    return DataError(
        f"Column {column.name!r} is {_called(column)} in the real table, but in the "
        f"{label} table it is {cells.form} ({cells.dtype}) with cells such as "
        f"{str(odd)[:40]!r}; convert it, or declare its kind in the schema."
    )
