"""Conditional sampling: rows that satisfy `where` and all constraints.

Rejection sampling comes first: rows of the model that satisfy everything have exactly
the conditional distribution. With screening (see `row_generator`) it is affordable down
to about one row in ten. The remaining rows are inpainted around cells that satisfy the
conditions. An exact condition such as `sex == "F"` gives such a cell; for a range such
as `30 <= age <= 40` the cells are resampled from accepted rows, with numbers spread a
little (a smoothed bootstrap) so that they are new.

The search is bounded: if no row is accepted, an error reports how many were tried.
Conditions that are rare together are met one after the other, each among rows that
satisfy those before.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from augmask.errors import ConditionError
from augmask.missing.model import MissingModel, draw_missing
from augmask.progress import Progress, silent
from augmask.rng import stream, stream_seed
from augmask.sample.constraints import Constraint
from augmask.sample.row_generator import EncodedRows, KnownCells, RowGenerator
from augmask.table.codec import unlearned_series
from augmask.table.conditions import Where
from augmask.table.schema import NUMERIC
from augmask.table.table import BoolArray

log = logging.getLogger("augmask")

# Rejection costs 1 / rate; from this acceptance rate on it is cheaper than inpainting.
REJECTION_RATE = 0.6
# Accepted rows that describe the cells to inpaint around well, and the fewest that do.
ENOUGH_ACCEPTED, MIN_ACCEPTED = 1_000, 50
# Rows that a search may generate, as a share of the requested ones: with the rows that
# are completed afterwards, less than twice the cost of unconditional rows. The search
# continues, up to MAX_SEARCH rows, only while too few rows are accepted.
SEARCH_SHARE, SCREENING_SHARE = 0.6, 0.8
MIN_SEARCH, MAX_SEARCH = 1_000, 20_000
FIRST_BATCH = 4_096
# Accepted rows that are stored for inpainting.
MAX_STORED = 5_000
# The smallest acceptance rate where rows cannot be inpainted (Python constraints).
MIN_RATE = 0.01


class Clause(NamedTuple):
    """One thing that rows must satisfy, and the columns that it involves."""

    text: str
    columns: tuple[Any, ...]
    holds: Callable[[pd.DataFrame], BoolArray]


def _clause(where: Where) -> Clause:
    names = " or ".join(repr(str(label)) for label in where.columns)
    return Clause(f"the condition on {names}", where.columns, where.holds)


@dataclass(frozen=True, eq=False)
class RowFilter:
    """What rows must satisfy: conditions and constraints."""

    where: Where | None = None
    constraints: tuple[Constraint, ...] = ()

    @property
    def exact(self) -> dict[Any, Any]:
        """Values that are the same in every row."""
        return {} if self.where is None else self.where.exact

    def clauses(self, with_exact: bool) -> list[Clause]:
        """Return what rows are tested for."""
        where = Where() if self.where is None else self.where
        single = [
            *(
                Where({label: condition})
                for label, condition in where.conditions.items()
                if with_exact or label not in self.exact
            ),
            *(Where(missing={label: value}) for label, value in where.missing.items()),
            *(Where(alternatives=(group,)) for group in where.alternatives),
        ]
        constraints = [
            Clause(f"the constraint {each.text}", each.columns, each.holds)
            for each in self.constraints
        ]
        return [*map(_clause, single), *constraints]


def _all_hold(clauses: list[Clause], frame: pd.DataFrame) -> BoolArray:
    accepted = np.ones(len(frame), dtype=np.bool_)
    for clause in clauses:
        accepted &= clause.holds(frame)
    return accepted


def _no_support(text: str, tried: int) -> ConditionError:
    return ConditionError(
        f"none of {tried:,} rows satisfied {text}, so its probability is below 1 in "
        f"{tried:,}; widen it or leave it out"
    )


def _with_kernel_noise(
    bank: np.ndarray, rows: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Add kernel noise to rows resampled from a bank; mean and covariance stay."""
    n, d = bank.shape
    # Silverman's rule for a normal distribution.
    width = min((4 / (d + 2) / n) ** (1 / (d + 4)), 1.0)
    center = bank.mean(axis=0)
    noise = rng.multivariate_normal(
        np.zeros(d), np.atleast_2d(np.cov(bank.T)), len(rows), check_valid="ignore"
    )
    shrunk = center + math.sqrt(1 - width**2) * (rows - center)
    return np.asarray(shrunk + width * noise)


class _ConditionalSampler:
    """One run: rejection sampling, then inpainting around accepted cells."""

    def __init__(self, generator: RowGenerator, n: int, row_filter: RowFilter) -> None:
        self.generator, self.n, self.row_filter = generator, n, row_filter
        self.screening = generator.can_screen
        # Screened rows must satisfy exact conditions too; otherwise these are known
        # cells of every row.
        self.clauses = row_filter.clauses(self.screening)
        self.inexact = row_filter.clauses(False)
        self.columns = tuple(
            dict.fromkeys(label for clause in self.inexact for label in clause.columns)
        )
        self.can_inpaint = bool(self.columns or row_filter.exact)
        # Rows screened, predicted to be accepted, generated, accepted, and inpainted.
        self.tried = self.promising = self.generated = self.accepted = 0
        self.completed = 0
        self.accepted_alone = np.zeros(len(self.inexact))
        self.stored: list[EncodedRows] = []
        self.n_stored = 0

    @property
    def rate(self) -> float:
        """Estimated share of the model's rows that satisfy everything."""
        share = self.accepted / max(self.generated, 1)
        return share * self.promising / max(self.tried, 1)

    def report(self) -> dict[str, Any]:
        """Return the numbers shown to the user."""
        return {
            # None where every condition is exact and nothing was searched for.
            "rate": round(self.rate, 6) if self.clauses else None,
            "drawn": self.tried,
            "completed": self.completed,
        }

    def _exact_cells(self, n: int) -> KnownCells | None:
        values = self.row_filter.exact
        return self.generator.constant(values, n) if values else None

    # -- rejection sampling -----------------------------------------------------

    def _next_size(self, left: int) -> int:
        """Return how many rows to try next; 0 to stop."""
        largest = self.generator.settings.sampling_batch
        if not self.clauses:
            return min(left, largest)
        if not self.tried:
            divisor = 1 if self.screening else 4
            return min(max(left // divisor, MIN_SEARCH // 4), FIRST_BATCH, largest)
        return min(
            self._expected_tries(left), largest, max(self._most_tries() - self.tried, 0)
        )

    def _expected_tries(self, left: int) -> int:
        """Return how many tries should give the accepted rows that are needed."""
        needed = left
        rejecting = self.screening or self.rate >= REJECTION_RATE
        if not rejecting and self.can_inpaint:
            needed = min(left, ENOUGH_ACCEPTED - self.accepted)
        return math.ceil(max(needed, 0) / max(self.rate, 1 / self.tried)) + 1

    def _most_tries(self) -> int:
        """Return how many rows may be tried in all."""
        if not self.can_inpaint:
            return math.ceil(self.n / MIN_RATE) + MIN_SEARCH
        if self.screening:
            bound = math.ceil(SCREENING_SHARE * self.n / self.generator.screening_cost)
        elif self.rate >= REJECTION_RATE:
            bound = 2 * self.n
        else:
            bound = math.ceil(SEARCH_SHARE * self.n)
        bound = max(bound, MIN_SEARCH)
        # Exact cells alone can be inpainted around without any accepted row.
        too_few = (
            self.columns
            and self.accepted < MIN_ACCEPTED
            and self.rate * bound < MIN_ACCEPTED
        )
        return max(bound, MAX_SEARCH) if too_few else bound

    def _try(self, left: int) -> EncodedRows | None:
        """Generate a batch and return its accepted rows; None to stop."""
        size = self._next_size(left)
        if not size:
            return None
        name = f"search {self.tried}"
        if self.screening and self.clauses:
            promising, rows = self.generator.screen(
                size, left + MIN_SEARCH // 20, name, self._test
            )
        else:
            promising = size
            rows = self.generator.generate(size, name, self._exact_cells(size))
            self._test(rows.frame)
        accepted = _all_hold(self.clauses, rows.frame)
        self.tried += size
        self.promising += promising
        self.generated += len(rows)
        self.accepted += int(accepted.sum())
        rows = rows.select(accepted)
        if self.n_stored < MAX_STORED and len(rows):
            self.stored.append(rows)
            self.n_stored += len(rows)
        return rows

    def _test(self, frame: pd.DataFrame) -> BoolArray:
        """Return which rows satisfy everything, and count each clause alone."""
        for j, clause in enumerate(self.inexact):
            self.accepted_alone[j] += clause.holds(frame).sum()
        return _all_hold(self.clauses, frame)

    # -- inpainting around accepted cells -----------------------------------------

    def _bank(self) -> tuple[EncodedRows | None, tuple[Any, ...]]:
        """Return accepted rows, and the columns to inpaint around."""
        exact = tuple(self.row_filter.exact)
        if not self.columns:
            return None, exact
        if self.accepted >= MIN_ACCEPTED or (self.accepted and len(self.clauses) == 1):
            return EncodedRows.concat(self.stored), exact + self.columns
        for clause, count in zip(self.inexact, self.accepted_alone, strict=True):
            if not count and (not exact or not self.screening):
                raise _no_support(clause.text, self.tried)
        if len(self.clauses) == 1:
            raise _no_support(self.clauses[0].text, self.tried)
        return self._one_by_one(exact)

    def _one_by_one(
        self, exact: tuple[Any, ...]
    ) -> tuple[EncodedRows, tuple[Any, ...]]:
        """Meet clauses that are rare together one after the other, rarest first."""
        order = np.argsort(self.accepted_alone, kind="stable")
        bank: EncodedRows | None = None
        labels = exact
        for stage, j in enumerate(order):
            clause = self.inexact[j]
            so_far = [self.inexact[i] for i in order[: stage + 1]]
            parts: list[EncodedRows] = []
            tried = accepted = 0
            while tried < MAX_SEARCH and accepted < ENOUGH_ACCEPTED:
                largest = self.generator.settings.sampling_batch
                size = min(FIRST_BATCH, largest, MAX_SEARCH - tried)
                name = f"stage {stage} {tried}"
                known = self._exact_cells(size)
                if bank is not None:
                    known = self._resample(bank, labels, size, name)
                rows = self.generator.generate(size, name, known)
                parts.append(rows.select(_all_hold(so_far, rows.frame)))
                tried, accepted = tried + size, accepted + len(parts[-1])
            if not accepted:
                raise _no_support(f"{clause.text} together with the others", tried)
            bank = EncodedRows.concat(parts)
            labels = tuple(dict.fromkeys(labels + clause.columns))
        assert bank is not None
        return bank, labels

    def _resample(
        self, bank: EncodedRows, labels: tuple[Any, ...], n: int, name: str
    ) -> KnownCells:
        """Resample the cells of `labels` from the bank, numbers spread a little."""
        rng = stream(self.generator.seed, "around", name)
        # Each row of the bank occurs as often as any other, give or take one.
        turns = [rng.permutation(len(bank)) for _ in range(-(-n // len(bank)))]
        rows = bank.select(np.concatenate(turns)[:n])
        codec = self.generator.codec
        spread = [
            column
            for column in codec.schema
            if column.kind in NUMERIC
            and column.label in labels
            and column.label not in self.row_filter.exact
            # Repeats of integers or rounded numbers are not copies, and peaks matter.
            and bank.frame[column.label].nunique() > len(bank) / 2
        ]
        if not spread or len(bank) < 2:
            return KnownCells(rows, labels)
        at = [codec.layout.num_names.index(column.name) for column in spread]
        num = rows.num.copy()
        num[:, at] = _with_kernel_noise(bank.num[:, at], rows.num[:, at], rng)
        decoded = codec.decode(num, rows.cat, rng)
        frame = rows.frame.copy()
        for column in spread:
            frame[column.label] = decoded[column.label]
        # Rows that no longer satisfy the clauses keep their original numbers.
        known = set(labels)
        involved = [c for c in self.inexact if c.columns and set(c.columns) <= known]
        accepted = _all_hold(involved, frame)
        num[~accepted] = rows.num[~accepted]
        for column in spread:
            original = rows.frame[column.label]
            frame[column.label] = frame[column.label].where(accepted, original)
        return KnownCells(EncodedRows(num, rows.cat, frame), labels)

    def _inpaint(self, left: int) -> Iterator[EncodedRows]:
        """Yield the rows that rejection sampling did not give."""
        bank, labels = self._bank()
        bound = math.ceil(left / MIN_RATE) + MIN_SEARCH
        accepted = 0
        while accepted < left and self.completed < bound:
            share = accepted / self.completed if accepted else 1.0
            size = math.ceil((left - accepted) / share)
            size = min(size, self.generator.settings.sampling_batch)
            name = f"rest {self.completed}"
            known = self._exact_cells(size)
            if bank is not None:
                known = self._resample(bank, labels, size, name)
            rows = self.generator.generate(size, name, known)
            rows = rows.select(_all_hold(self.clauses, rows.frame))
            self.completed += size
            accepted += len(rows)
            yield rows

    def rows(self) -> Iterator[EncodedRows]:
        """Yield rows that satisfy everything, at least `n` in all."""
        left = self.n
        while left > 0 and (rows := self._try(left)) is not None:
            left -= len(rows)
            yield rows
        if left > 0 and self.can_inpaint:
            for rows in self._inpaint(left):
                left -= len(rows)
                yield rows
        if left > 0:
            texts = " and ".join(clause.text for clause in self.clauses)
            tried = self.tried + self.completed
            raise ConditionError(
                f"only {self.n - left:,} of {tried:,} rows satisfied {texts}, fewer "
                f"than {MIN_RATE:.0%}; loosen it"
            )


def _with_new_identifiers(
    rows: pd.DataFrame, generator: RowGenerator, start: int
) -> pd.DataFrame:
    """Return rows whose identifiers count on from row `start` of the generator."""
    rows = rows.reset_index(drop=True)
    for column in generator.codec.schema:
        if column.kind == "identifier":
            new = unlearned_series(column, len(rows), generator.first + start)
            kept = rows[column.label]
            if kept.isna().any():
                new = new.astype(kept.dtype).mask(kept.isna())
            rows[column.label] = new
    return rows


def sample_where(
    generator: RowGenerator, n: int, row_filter: RowFilter, progress: Progress = silent
) -> Iterator[pd.DataFrame]:
    """Yield `n` rows that satisfy a filter, as frames.

    Each frame has `attrs["where"]`: `rate`, the share of unconditional rows that are
    accepted; `drawn`, how many rows were drawn to estimate it; `completed`, how many
    were inpainted around accepted cells.
    """
    sampler = _ConditionalSampler(generator, n, row_filter)
    done = 0
    for rows in sampler.rows():
        frame = _with_new_identifiers(rows.frame.iloc[: n - done], generator, done)
        if not len(frame):
            continue
        done += len(frame)
        progress("sample", done, n, {"rate": sampler.rate} if sampler.clauses else {})
        frame.attrs["where"] = sampler.report()
        yield frame
    log.info("conditional sampling: %s", sampler.report())


def sample_where_missing(
    generator: RowGenerator,
    n: int,
    row_filter: RowFilter,
    missing: Where,
    model: MissingModel,
    progress: Progress = silent,
) -> Iterator[pd.DataFrame]:
    """Yield `n` incomplete rows, chosen by what is missing in them.

    Complete rows that satisfy `row_filter` get missing values drawn from `model`, and
    those that satisfy `missing` are kept: rejection sampling of a row with its mask.

    Parameters
    ----------
    generator : RowGenerator
    n : int
    row_filter : RowFilter
        What complete rows must satisfy.
    missing : Where
        What rows must satisfy beyond that. Its values are those before any were
        removed.
    model : MissingModel
    progress : callable
    """
    done = tried = drawn = completed = 0
    rate, turn = 1.0, 0
    bound = math.ceil(n / MIN_RATE) + MAX_SEARCH
    while done < n:
        # one more than expected, so that a last row is found in one go
        share = max(done, 1) / max(tried, 1)
        size = math.ceil((n - done) / share) + 1 if tried else n
        size = min(max(size, MIN_SEARCH // 4), FIRST_BATCH, bound - tried)
        if size <= 0:
            text = _clause(missing).text
            if not done:
                raise _no_support(text, tried)
            raise ConditionError(
                f"only {done:,} of {tried:,} rows satisfied {text}, fewer than "
                f"{MIN_RATE:.0%}; loosen it"
            )
        seed = stream_seed(generator.seed, "where missing", turn)
        source, turn = replace(generator, seed=seed), turn + 1
        frames = list(sample_where(source, size, row_filter))
        report = frames[-1].attrs["where"]
        frame = pd.concat(frames, ignore_index=True)
        incomplete = draw_missing(model, frame, stream(seed, "holes"))
        kept = incomplete[missing.holds(frame, incomplete)].iloc[: n - done]
        tried += size
        drawn += report["drawn"]
        completed += report["completed"]
        if not len(kept):
            continue
        rows = _with_new_identifiers(kept, generator, done)
        done += len(rows)
        rate = (report["rate"] or 1.0) * done / tried
        progress("sample", done, n, {"rate": rate})
        rows.attrs["where"] = {
            "rate": round(rate, 6),
            "drawn": drawn,
            "completed": completed,
        }
        yield rows
    log.info("sampling by what is missing: %s of %s rows kept", done, tried)
