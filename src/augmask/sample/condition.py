"""Rows that satisfy conditions and keep rules, by the law of the model.

Rows are drawn as the model draws them, and those that satisfy everything are kept: they
have exactly the law that is asked for. Where starts can be screened (see `source`),
that is affordable down to about one row in ten. What it does not find is completed: the
reverse process draws the rest of a row around cells that satisfy the conditions. A
condition such as `sex == "F"` gives such a cell. For one such as `30 <= age <= 40` the
kept rows tell in which combinations the cells in question occur, and these are drawn
again, their numbers spread a little (a smoothed bootstrap), so that they are new ones.

Nothing goes on for ever: the search is bounded, and if it finds no row, that is an
error with the number of rows that were tried. Where several conditions are rare
together, they are met one after the other, each among rows that satisfy those before.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from augmask.errors import ConditionError
from augmask.progress import Progress, silent
from augmask.rng import stream
from augmask.sample.constraints import Constraint
from augmask.sample.source import Drawn, Given, Source, joined
from augmask.table.decode import aside_series
from augmask.table.schema import NUMERIC
from augmask.table.table import BoolArray
from augmask.table.where import Where

log = logging.getLogger("augmask")

# Keeping rows costs 1 / rate; at this rate and above it is cheaper than completing.
MOSTLY = 0.6
# Kept rows that describe the cells in question well, and those that do at a pinch.
ENOUGH, FEW = 1_000, 50
# What a search may cost, as a share of the rows asked for: with the rows that are
# followed or completed after it, less than twice what plain rows cost. It goes on, up
# to MOST rows, only while it has found too few to complete around.
SEARCH, SCREENING = 0.6, 0.8
LEAST, MOST = 1_000, 20_000
FIRST = 4_096
# Kept rows whose cells are remembered.
REMEMBERED = 5_000
# What can only be kept or left, such as a rule in Python, must hold in so many rows.
RAREST = 0.01


class Clause(NamedTuple):
    """One thing that rows must satisfy, and the columns that it is about."""

    text: str
    columns: tuple[Any, ...]
    holds: Callable[[pd.DataFrame], BoolArray]


@dataclass(frozen=True, eq=False)
class Demand:
    """What rows must satisfy: given cells, conditions and rules.

    Parameters
    ----------
    where : Where or None
    rules : tuple of Rule
    """

    where: Where | None = None
    constraints: tuple[Constraint, ...] = ()

    @property
    def given(self) -> dict[Any, Any]:
        """The cells that are the same in every row."""
        return {} if self.where is None else self.where.exact

    def clauses(self, with_given: bool) -> list[Clause]:
        """Return what rows are tested for."""
        found = []
        conditions = {} if self.where is None else self.where.conditions
        for label, condition in conditions.items():
            if label in self.given and not with_given:
                continue

            def holds(frame: pd.DataFrame, at: Any = label, c: Any = condition) -> Any:
                return c.holds(frame[at])

            found.append(Clause(f"the condition on {str(label)!r}", (label,), holds))
        for constraint in self.constraints:
            found.append(
                Clause(
                    f"the rule {constraint.text}", constraint.columns, constraint.holds
                )
            )
        return found


def _all_hold(clauses: list[Clause], frame: pd.DataFrame) -> BoolArray:
    rows = np.ones(len(frame), dtype=np.bool_)
    for clause in clauses:
        rows &= clause.holds(frame)
    return rows


class _Search:
    """One run: a pilot, and rows completed around what it found."""

    def __init__(self, source: Source, n: int, demand: Demand) -> None:
        self.source, self.n, self.demand = source, n, demand
        self.screens = source.screens
        # Screened rows must meet given cells too; otherwise these are given.
        self.clauses = demand.clauses(self.screens)
        self.loose = demand.clauses(False)
        self.columns = tuple(
            dict.fromkeys(label for clause in self.loose for label in clause.columns)
        )
        self.fixable = bool(self.columns or demand.given)
        self.drawn = self.promising = self.followed = self.hits = self.completed = 0
        self.alone = np.zeros(len(self.loose))
        self.kept: list[Drawn] = []
        self.remembered = 0

    @property
    def rate(self) -> float:
        """Share of the rows, as the model draws them, that satisfy everything."""
        share = self.hits / max(self.followed, 1)
        return share * self.promising / max(self.drawn, 1)

    def facts(self) -> dict[str, Any]:
        """Return what was achieved, for the user."""
        return {
            # where all is given, nothing was left to chance
            "rate": round(self.rate, 6) if self.clauses else None,
            "drawn": self.drawn,
            "completed": self.completed,
        }

    def _given(self, n: int) -> Given | None:
        values = self.demand.given
        return self.source.constant(values, n) if values else None

    # -- keep what satisfies ----------------------------------------------------

    def _next_size(self, left: int) -> int:
        """Return how many rows to draw next in the hope for good ones; 0 to stop."""
        largest = self.source.settings.sampling_batch
        if not self.clauses:
            return min(left, largest)
        if not self.drawn:
            share = 1 if self.screens else 4
            return min(max(left // share, LEAST // 4), FIRST, largest)
        return min(self._hopeful(left), largest, max(self._bound() - self.drawn, 0))

    def _hopeful(self, left: int) -> int:
        """Return how many rows should hold as many good ones as are left."""
        wanted = left
        if not (self.screens or self.rate >= MOSTLY) and self.fixable:
            wanted = min(left, ENOUGH - self.hits)
        return math.ceil(max(wanted, 0) / max(self.rate, 1 / self.drawn)) + 1

    def _bound(self) -> int:
        """Return how many rows may be drawn in the hope for good ones."""
        if not self.fixable:
            # Nothing to complete around: keep or leave.
            return math.ceil(self.n / RAREST) + LEAST
        if self.screens:
            bound = math.ceil(SCREENING * self.n / self.source.screening_cost)
        elif self.rate >= MOSTLY:
            bound = 2 * self.n
        else:
            bound = math.ceil(SEARCH * self.n)
        bound = max(bound, LEAST)
        # Given cells alone can be completed around without a single row found.
        scarce = self.columns and self.hits < FEW and self.rate * bound < FEW
        return max(bound, MOST) if scarce else bound

    def _keep(self, left: int) -> Drawn | None:
        """Draw some rows and return the good ones; None when that is not worth it."""
        size = self._next_size(left)
        if not size:
            return None
        name = f"search {self.drawn}"
        if self.screens and self.clauses:
            promising, rows = self.source.screen(
                size, left + LEAST // 20, name, self._test
            )
        else:
            promising, rows = size, self.source.draw(size, name, self._given(size))
            self._test(rows.frame)
        good = _all_hold(self.clauses, rows.frame)
        self.drawn += size
        self.promising += promising
        self.followed += len(rows)
        self.hits += int(good.sum())
        rows = rows.taken(good)
        if self.remembered < REMEMBERED and len(rows):
            self.kept.append(rows)
            self.remembered += len(rows)
        return rows

    def _test(self, frame: pd.DataFrame) -> BoolArray:
        """Say which rows satisfy everything, and count what each clause allows."""
        for j, clause in enumerate(self.loose):
            self.alone[j] += clause.holds(frame).sum()
        return _all_hold(self.clauses, frame)

    # -- complete around cells that satisfy --------------------------------------

    def _no_support(self, text: str, tried: int) -> ConditionError:
        return ConditionError(
            f"none of {tried:,} rows satisfied {text}, so the model gives it less than "
            f"1 in {tried:,}; widen it or leave it out"
        )

    def _bank(self) -> tuple[Drawn | None, tuple[Any, ...]]:
        """Return rows whose cells in question are combinations that satisfy all."""
        given = tuple(self.demand.given)
        if not self.columns:
            return None, given
        if self.hits >= FEW or (self.hits and len(self.clauses) == 1):
            return joined(self.kept), given + self.columns
        for clause, held in zip(self.loose, self.alone, strict=True):
            if not held and (not given or not self.screens):
                raise self._no_support(clause.text, self.drawn)
        if len(self.clauses) == 1:
            raise self._no_support(self.clauses[0].text, self.drawn)
        return self._one_by_one(given)

    def _one_by_one(self, given: tuple[Any, ...]) -> tuple[Drawn, tuple[Any, ...]]:
        """Let conditions that are rare together be met one after the other."""
        order = np.argsort(self.alone, kind="stable")
        bank: Drawn | None = None
        labels = given
        for stage, j in enumerate(order):
            clause = self.loose[j]
            met = [self.loose[i] for i in order[: stage + 1]]
            kept: list[Drawn] = []
            tried = found = 0
            while tried < MOST and found < ENOUGH:
                size = min(FIRST, self.source.settings.sampling_batch, MOST - tried)
                around = self._given(size)
                if bank is not None:
                    around = self._around(bank, labels, size, f"stage {stage} {tried}")
                rows = self.source.draw(size, f"stage {stage} {tried}", around)
                kept.append(rows.taken(_all_hold(met, rows.frame)))
                tried, found = tried + size, found + len(kept[-1])
            if not found:
                raise self._no_support(f"{clause.text} together with the others", tried)
            bank = joined(kept)
            labels = tuple(dict.fromkeys(labels + clause.columns))
        assert bank is not None
        return bank, labels

    def _around(self, bank: Drawn, labels: tuple[Any, ...], n: int, name: str) -> Given:
        """Return cells to complete around: those of the bank, numbers spread a bit."""
        rng = stream(self.source.seed, "around", name)
        # Each is taken as often as any other, give or take one.
        turns = [rng.permutation(len(bank)) for _ in range(-(-n // len(bank)))]
        rows = bank.taken(np.concatenate(turns)[:n])
        codec = self.source.codec
        spread = [
            column
            for column in codec.schema
            if column.kind in NUMERIC
            and column.label in labels
            and column.label not in self.demand.given
            # Among whole or rounded numbers repeats are no copies, and heaps matter.
            and bank.frame[column.label].nunique() > len(bank) / 2
        ]
        if not spread or len(bank) < 2:
            return Given(rows, labels)
        at = [codec.layout.num_names.index(column.name) for column in spread]
        num = rows.num.copy()
        num[:, at] = _smoothed(bank.num[:, at], rows.num[:, at], rng)
        frame = codec.decode(num, rows.cat, rng)
        tried = rows.frame.copy()
        for column in spread:
            tried[column.label] = frame[column.label]
        about = [c for c in self.loose if c.columns and set(c.columns) <= set(labels)]
        good = _all_hold(about, tried)
        num[~good] = rows.num[~good]
        for column in spread:
            kept = rows.frame[column.label]
            tried[column.label] = tried[column.label].where(good, kept)
        return Given(Drawn(num, rows.cat, tried), labels)

    def _complete(self, left: int) -> Iterator[Drawn]:
        """Yield the rows that keeping did not find."""
        bank, labels = self._bank()
        bound = math.ceil(left / RAREST) + LEAST
        good = 0
        while good < left and self.completed < bound:
            share = good / self.completed if good else 1.0
            size = math.ceil((left - good) / share)
            size = min(size, self.source.settings.sampling_batch)
            name = f"rest {self.completed}"
            around = self._given(size)
            if bank is not None:
                around = self._around(bank, labels, size, name)
            rows = self.source.draw(size, name, around)
            rows = rows.taken(_all_hold(self.clauses, rows.frame))
            self.completed += size
            good += len(rows)
            yield rows

    def rows(self) -> Iterator[Drawn]:
        """Yield rows that satisfy everything, at least `n` in all."""
        left = self.n
        while left > 0 and (rows := self._keep(left)) is not None:
            left -= len(rows)
            yield rows
        if left > 0 and self.fixable:
            for rows in self._complete(left):
                left -= len(rows)
                yield rows
        if left > 0:
            texts = " and ".join(clause.text for clause in self.clauses)
            tried = self.drawn + self.completed
            raise ConditionError(
                f"{self.n - left:,} of {tried:,} rows satisfied {texts}, at least "
                f"{RAREST:.0%} must; loosen what is asked"
            )


def _smoothed(
    bank: np.ndarray, rows: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Spread rows taken from a bank, keeping its mean and covariance."""
    n, d = bank.shape
    # Silverman's rule, for one normal cloud
    width = (4 / (d + 2) / n) ** (1 / (d + 4))
    width = min(width, 1.0)
    center = bank.mean(axis=0)
    noise = rng.multivariate_normal(
        np.zeros(d), np.atleast_2d(np.cov(bank.T)), len(rows), check_valid="ignore"
    )
    near = center + math.sqrt(1 - width**2) * (rows - center)
    return np.asarray(near + width * noise)


def satisfying(
    source: Source, n: int, demand: Demand, progress: Progress = silent
) -> Iterator[pd.DataFrame]:
    """Yield `n` rows that satisfy a demand, as frames.

    Each frame has `attrs["where"]`: `rate`, the share of rows that satisfy everything
    of their own accord; `drawn`, how many rows were drawn to find out; `completed`, how
    many were then completed around cells that do.
    """
    search = _Search(source, n, demand)
    aside = [column for column in source.codec.schema if column.kind == "identifier"]
    done = 0
    for rows in search.rows():
        frame = rows.frame.iloc[: n - done].reset_index(drop=True)
        if not len(frame):
            continue
        for column in aside:
            frame[column.label] = aside_series(column, len(frame), done)
        done += len(frame)
        progress("sample", done, n, {"rate": search.rate} if search.clauses else {})
        frame.attrs["where"] = search.facts()
        yield frame
    log.info("conditions: %s", search.facts())
