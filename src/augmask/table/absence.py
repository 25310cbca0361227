"""Structural missingness: cells that are missing because of what another cell says.

Survivors have no cause of death, non-smokers smoke no cigarettes a day. Such a cell is
not unknown but not applicable, and to fill it makes a row impossible. Here the missing
cells of each column are compared with the observed values of all others: is there a
condition on one column, or on two, where the column is (nearly) always missing, while
elsewhere it mostly is not?

The search counts on a sample of rows, for all pairs of columns at once as one matrix
product; only what it finds is checked on every row. Columns that miss in the same rows
are one pattern.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.table.absence_codes import (
    Bools,
    Coded,
    bound_condition,
    coded_cells,
    counted,
    level_condition,
)
from augmask.table.absence_facts import Absence, Condition
from augmask.table.cells import read_cells
from augmask.table.encode import gate_name
from augmask.table.schema import NUMERIC, Column, Schema

# Rows that are searched, fewer in wide tables, and patterns of missing cells.
MOST_ROWS, MOST_ROWS_WIDE, WIDE = 20_000, 2_000, 300
MOST_PATTERNS, MOST_PATTERNS_TWO = 200, 30
MOST_COLUMNS_TWO = 300
# Inside the condition so large a share is missing, outside no more than that.
INSIDE, OUTSIDE = 0.98, 0.5
# A condition of two columns must leave fewer exceptions, as so many more can be made.
OUTSIDE_TWO = 0.02
# It explains so many of the missing cells.
EXPLAINED = 0.5
# Rows inside and outside, and evidence in nats: chance does not make it.
FEWEST, EVIDENCE = 20, 25.0
# What is exact and plain enough to be acted on.
KNOWN, PLAIN = 0.95, 3


@dataclass(frozen=True)
class _Split:
    """Codes of one column where nearly all is missing, and how well they tell it."""

    at: int
    chosen: Bools
    wrong: float


def _splits(n: Any, m: Any, at: int, loose: float, outside: float) -> dict[int, _Split]:
    """Choose the codes whose rows are missing, for the patterns that they tell.

    Parameters
    ----------
    n : float array [codes]
        Rows of each code.
    m : float array [codes, patterns]
        How many of them are missing.
    at : int
        Which column it is.
    loose, outside : float
        Share missing that a code needs at least, and that may be missing elsewhere.
    """
    chosen = (m >= loose * n[:, None]) & (n >= 3)[:, None]
    total, every = n.sum(), m.sum(axis=0)
    inside, missing = n @ chosen, (m * chosen).sum(axis=0)
    rest, other = total - inside, every - missing
    # by chance each row inside would be missing as those of the whole are
    nats = missing * -np.log(np.maximum(every / max(total, 1), 1e-9))
    good = (np.minimum(inside, rest) >= FEWEST) & (missing >= EXPLAINED * every)
    good &= (other <= outside * rest) & (missing >= loose * inside) & (nats >= EVIDENCE)
    return {
        int(k): _Split(at, chosen[:, k], float(inside[k] - missing[k] + other[k]))
        for k in np.flatnonzero(good)
    }


class _Search:
    """The table as it is searched."""

    def __init__(self, frame: pd.DataFrame, schema: Schema, missing: Bools) -> None:
        self.frame, self.schema, self.missing = frame, schema, missing
        learned = [column for column in schema if column.learned]
        most = MOST_ROWS if len(learned) <= WIDE else MOST_ROWS_WIDE
        self.rows = None
        if len(frame) > most:
            order = np.random.default_rng(0).permutation(len(frame))
            self.rows = np.sort(order[:most])
        self.coded = [
            coded
            for column in learned
            if (coded := Coded(frame, column, self.rows)).size > 1
        ]

    def sampled(self, columns: Sequence[int]) -> npt.NDArray[np.float32]:
        part = self.missing[:, columns]
        part = part if self.rows is None else part[self.rows]
        return part.astype(np.float32)

    # -- one column ---------------------------------------------------------------

    def single(self, columns: Sequence[int]) -> list[Absence | None]:
        """Return the best condition on one column for each column that misses."""
        m = self.sampled(columns)
        ones = np.ones((len(m), 1), np.float32)
        counts = counted(self.coded, np.concatenate([ones, m], axis=1))
        told: list[list[_Split]] = [[] for _ in columns]
        for at, count in enumerate(counts):
            loose = 0.7 if self._numeric(at) else INSIDE
            for k, split in _splits(
                count[:, 0], count[:, 1:], at, loose, OUTSIDE
            ).items():
                told[k].append(split)
        found: list[Absence | None] = []
        for k, splits in enumerate(told):
            splits.sort(key=lambda split: (split.wrong, self._burden(split.at)))
            checked = (self._checked(split, columns[k]) for split in splits[:5])
            good = [absence for absence in checked if absence is not None]
            # exact ones first; among equals the order stands
            good.sort(key=lambda a: (not a.plain, a.outside + 1 - a.inside))
            found.append(good[0] if good else None)
        return found

    def _numeric(self, at: int) -> bool:
        return self.coded[at].column.kind in NUMERIC

    def _burden(self, at: int) -> tuple[float, bool, int]:
        """Say which of two columns that tell the same is the worse witness."""
        one = self.coded[at]
        return one.column.missing, self._numeric(at), one.size

    def _condition(
        self, split: _Split, target: Bools
    ) -> tuple[Condition, Bools, Bools]:
        """Return the condition, where it holds and where that is known, on all rows."""
        one = self.coded[split.at]
        values, seen = coded_cells(self.frame, one.column, None)
        if self._numeric(split.at):
            return bound_condition(one.column, values, seen, target)
        order = one.order
        codes = order[split.chosen[: len(order)]]
        if split.chosen[len(order) :].any():
            codes = np.setdiff1d(np.arange(one.column.card), order[~split.chosen[:-1]])
        inside = seen & np.isin(values, codes)
        return level_condition(one.column, codes), inside, seen

    def _checked(self, split: _Split, column: int) -> Absence | None:
        missing = self.missing[:, column]
        condition, inside, seen = self._condition(split, missing)
        return self._absence((condition,), "and", inside, seen, missing, OUTSIDE)

    def _absence(
        self,
        where: tuple[Condition, ...],
        join: str,
        inside: Bools,
        seen: Bools,
        missing: Bools,
        most_outside: float,
    ) -> Absence | None:
        """Return what is found if it holds on all rows."""
        n_in, n_out = int(inside.sum()), int((seen & ~inside).sum())
        if min(n_in, n_out) < FEWEST:
            return None
        share_in = float(missing[inside].mean())
        share_out = float(missing[seen & ~inside].mean())
        explained = missing[inside].sum() / missing.sum()
        if share_in < INSIDE or share_out > most_outside or explained < EXPLAINED:
            return None
        (first, *others) = where
        about = self.schema[first.column]
        plain = (
            not others
            and about.kind in ("category", "boolean")
            and not about.folded
            and share_in == 1
            and share_out == 0
            and explained >= KNOWN
            and len(first.value) <= PLAIN
        )
        return Absence(where, join, n_in, share_in, share_out, plain)

    # -- two columns --------------------------------------------------------------

    def double(self, column: int) -> Absence | None:
        """Return a condition on two columns, if one tells nearly every cell.

        Missing where one or the other holds: rows of which the first tells that they
        miss are taken away, and the second tells the rest. Missing where both hold is
        the same of the observed cells.
        """
        missing = self.sampled([column])[:, 0] > 0
        best: tuple[float, Absence] | None = None
        pool = self.coded[:MOST_COLUMNS_TWO]
        for target, join in ((missing, "or"), (~missing, "and")):
            weights = np.stack([np.ones(len(target)), target], 1).astype(np.float32)
            firsts = []
            for at, count in enumerate(counted(pool, weights)):
                n, m = count.T
                pure = (m == n) & (n >= FEWEST)
                gain = n[pure].sum()
                base = target.mean()
                enough = gain >= max(FEWEST, 0.05 * len(target))
                sure = gain * -math.log(max(base, 1e-9)) > EVIDENCE
                if enough and sure and (~pure & (n > 0)).any():
                    firsts.append((-gain, at, pure))
            firsts.sort(key=lambda first: first[:2])
            for _, at, pure in firsts[:4]:
                if self._numeric(at):
                    continue
                rest = (pool[at].codes >= 0) & ~np.append(pure, False)[pool[at].codes]
                absence = self._second(column, target, join, at, pure, rest)
                if absence is not None:
                    wrong = absence.outside + 1 - absence.inside
                    if best is None or wrong < best[0]:
                        best = wrong, absence
        return None if best is None else best[1]

    def _second(
        self, column: int, target: Bools, join: str, at: int, pure: Bools, rest: Bools
    ) -> Absence | None:
        weights = np.stack([rest, rest & target], 1).astype(np.float32)
        pool = self.coded[:MOST_COLUMNS_TWO]
        splits: list[_Split] = []
        for other, count in enumerate(counted(pool, weights)):
            if other != at and not self._numeric(other):
                n, m = count.T
                if (n[n > 0] < 3).any():
                    continue
                splits += _splits(n, m[:, None], other, INSIDE, OUTSIDE_TWO).values()
        splits.sort(key=lambda split: (split.wrong, self._burden(split.at)))
        whole = self.missing[:, column]
        for split in splits[:2]:
            one, in_one, seen_one = self._condition(_Split(at, pure, 0.0), whole)
            two, in_two, seen_two = self._condition(split, whole)
            inside, seen = in_one | in_two, seen_one & seen_two
            if join == "and":
                one, two = _negated(one), _negated(two)
                inside = ~inside
            found = self._absence(
                (one, two), join, inside & seen, seen, whole, OUTSIDE_TWO
            )
            if found is not None:
                return found
        return None


_NEGATED = {"in": "not in", "not in": "in"}


def _negated(condition: Condition) -> Condition:
    return Condition(condition.column, _NEGATED[condition.sign], condition.value)


def find_absences(frame: pd.DataFrame, schema: Schema) -> dict[str, Absence]:
    """Return the columns whose missing cells other columns determine.

    Parameters
    ----------
    frame : pandas.DataFrame
    schema : Schema
        Of the frame.

    Returns
    -------
    dict of str to Absence

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> smokes, a_day = ["no", "yes"] * 40, [None, 5, None, 9] * 20
    >>> frame = pd.DataFrame({"smokes": smokes, "a_day": a_day})
    >>> found = find_absences(frame, infer_schema(frame))["a_day"]
    >>> found.where[0].to_list(), found.rows, found.plain
    (['smokes', 'in', ['no']], 40, True)
    """
    columns = [
        (j, column)
        for j, column in enumerate(schema)
        if 0 < column.missing < 1 and (column.learned or column.kind == "constant")
    ]
    if not columns or len(frame) < 2 * FEWEST:
        return {}
    masks = np.zeros((len(frame), len(columns)), np.bool_)
    for k, (_, column) in enumerate(columns):
        masks[:, k] = ~read_cells(
            frame[column.label], column.name, column.na_values
        ).observed
    # columns that miss together are one pattern
    packed = np.packbits(masks, axis=0).T
    _, first, pattern = np.unique(
        packed, axis=0, return_index=True, return_inverse=True
    )
    pattern = pattern.ravel()
    counts = masks[:, first].sum(axis=0)
    enough = np.minimum(counts, len(frame) - counts) >= FEWEST
    order = np.argsort(-np.where(enough, counts, 0), kind="stable")
    asked = [int(p) for p in order[:MOST_PATTERNS] if enough[p]]
    if not asked:
        return {}
    search = _Search(frame, schema, masks)
    answers = search.single([int(first[p]) for p in asked])
    told: dict[int, Absence] = {}
    left = MOST_PATTERNS_TWO
    for p, answer in zip(asked, answers, strict=True):
        if (answer is None or answer.outside > OUTSIDE_TWO) and left:
            left -= 1
            answer = search.double(int(first[p])) or answer
        if answer is not None:
            told[p] = answer
    return {
        column.name: told[int(pattern[k])]
        for k, (_, column) in enumerate(columns)
        if int(pattern[k]) in told
    }


def with_absences(
    frame: pd.DataFrame,
    schema: Schema,
    declared: Collection[str],
    kept: Callable[[Column], Column],
) -> Schema:
    """Return the schema with what was found, and kept where it is beyond doubt.

    Parameters
    ----------
    frame : pandas.DataFrame
    schema : Schema
    declared : collection of str
        Columns whose missing cells the user has declared to be unknown or a level.
    kept : callable
        Returns a column with its missing cells as a level.
    """
    found = find_absences(frame, schema)
    if not found:
        return schema
    columns = []
    for column in schema:
        absence = found.get(column.name)
        if absence is not None:
            keep = absence.plain and column.name not in declared
            if keep and gate_name(column) not in schema.names:
                column = kept(column)
            stored = absence.to_dict()
            if column.name in declared:
                stored["declared"] = True
            if absence.plain and column.kind == "category":
                codes, seen = coded_cells(frame, column, None)
                often = np.bincount(codes[seen], minlength=1)
                stored["counts"] = [int(count) for count in often]
            column = replace(column, absent=stored)
        columns.append(column)
    return Schema(tuple(columns))
