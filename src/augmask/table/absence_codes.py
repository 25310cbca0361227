"""Columns in few codes, to be counted against each other, and conditions on them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.table.absence_facts import Condition
from augmask.table.cells import read_cells
from augmask.table.decode import origin
from augmask.table.encode import codes_of, numbers_of
from augmask.table.recover import NUMPY_UNITS
from augmask.table.schema import NUMERIC, Column

Bools = npt.NDArray[np.bool_]

MOST_LEVELS, BINS = 30, 16
BLOCK = 256


class Coded:
    """A column in few codes, -1 where it is missing."""

    def __init__(self, frame: pd.DataFrame, column: Column, rows: Any) -> None:
        self.column = column
        values, seen = coded_cells(frame, column, rows)
        self.codes = np.full(len(seen), -1, np.int32)
        if column.kind in NUMERIC:
            known = values[seen]
            edges = np.unique(np.quantile(known, np.linspace(0, 1, BINS + 1)[1:-1]))
            self.codes[seen] = np.searchsorted(edges, known, side="left")
            self.size = len(edges) + 1
            return
        # the rarest levels are one code
        often = np.bincount(values[seen], minlength=column.card)
        self.order = np.argsort(-often, kind="stable")[:MOST_LEVELS]
        place = np.full(len(often), len(self.order), np.int32)
        place[self.order] = np.arange(len(self.order))
        self.codes[seen] = place[values[seen]]
        self.size = len(self.order) + (len(often) > len(self.order))


def coded_cells(frame: pd.DataFrame, column: Column, rows: Any) -> tuple[Any, Bools]:
    """Return numbers, or codes of levels, of some rows, and where they are observed."""
    part = frame[column.label]
    cells = read_cells(
        part if rows is None else part.iloc[rows], column.name, column.na_values
    )
    if column.kind in NUMERIC:
        return numbers_of(cells, column), cells.observed
    codes = codes_of(cells, column)
    return codes, codes >= 0


def counted(coded: Sequence[Coded], weights: npt.NDArray[np.float32]) -> list[Any]:
    """Return sums of weights [n, w] per code of each column."""
    sums = []
    for start in range(0, len(coded), BLOCK):
        block = coded[start : start + BLOCK]
        ends = np.cumsum([0, *(one.size for one in block)])
        marks = np.zeros((len(weights), ends[-1]), np.float32)
        for one, at in zip(block, ends, strict=False):
            rows = np.flatnonzero(one.codes >= 0)
            marks[rows, at + one.codes[rows]] = 1
        total = marks.T @ weights
        sums += [total[a:b] for a, b in pairwise(ends)]
    return sums


def level_condition(column: Column, codes: Any) -> Condition:
    """Return that a column has one of some levels, in the fewer words."""
    levels = column.every_level
    chosen = tuple(levels[code] for code in sorted(codes) if code < len(levels))
    others = tuple(level for level in levels if level not in chosen)
    if 0 < len(others) < len(chosen):
        return Condition(column.name, "not in", others)
    return Condition(column.name, "in", chosen)


def bound_condition(
    column: Column, values: Any, seen: Bools, target: Bools
) -> tuple[Condition, Bools, Bools]:
    """Return the best bound of a numeric column, and where it is satisfied."""
    order = np.flatnonzero(seen)[np.argsort(values[seen], kind="stable")]
    ordered, hit = values[order].astype(np.float64), target[order]
    ends = np.flatnonzero(np.diff(ordered) > 0)
    inside = np.zeros(len(seen), np.bool_)
    if not len(ends):
        return Condition(column.name, "<=", 0), inside, seen
    below = np.cumsum(hit)[ends]
    n_below = ends + 1
    total = hit.sum()
    # rows that a bound gets right, if what lies below it misses, or above
    low = below + (len(hit) - n_below) - (total - below)
    high = len(hit) - low
    down = low.max() >= high.max()
    at = int(ends[np.argmax(low if down else high)])
    bound = ordered[at]
    inside[seen] = (values[seen] <= bound) == down
    bound += origin(column)
    shown: Any = int(bound) if bound == int(bound) else float(bound)
    if column.kind == "datetime" and column.unit:
        kind = f"datetime64[{NUMPY_UNITS[column.unit]}]"
        shown = str(np.array(int(bound)).astype(kind))
    return Condition(column.name, "<=" if down else ">", shown), inside, seen
