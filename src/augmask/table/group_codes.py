"""Group codes: whole numbers that name groups, such as school 12 or plot 7.

Their order means little, so a network that learns them as numbers puts rows between two
schools. Other columns give such a column away: where it is a number, they change little
from one value to the next; where it is a code, they differ between neighbouring values
as much as between any two.

For each other column (numbers as ranks, frequent levels as 0 or 1) the search compares
two variances over the values of the candidate: of the means, and of their deviation
from the line between both neighbours, scaled such that the two agree if the order
means nothing. Both are corrected for the noise of means over few rows. Of all columns
that the candidate tells something about, the order must explain less than half, and one
column must be beyond doubt. A code that another one determines, such as the district of
a school, stays a number: `functional_dependencies` derives it, and levels cost time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_array
from scipy.stats import rankdata

from augmask.table.codec import encoded_column
from augmask.table.dtype_recovery import MAX_LEVELS
from augmask.table.notes import CODES
from augmask.table.schema import (
    NUMERIC,
    Column,
    Schema,
    searched_rows,
)

Floats = npt.NDArray[np.float64]

# Rows of the search, and the columns that it looks at.
MOST_ROWS, MOST_COLUMNS = 10_000, 200
# Levels of another column that are looked at, and rows that each needs.
MOST_TARGETS, FEWEST = 8, 100
# Rows per value, on average and of each value that is looked at.
PER_VALUE, PER_MEAN = 10, 5
FEWEST_VALUES = 5
# Share of a column's variance that the means explain, share of the means' variance that
# does not follow the order, and standard deviations by which chance is excluded.
EXPLAINED, UNORDERED, EVIDENCE = 0.05, 0.5, 10.0
# Share of the variance of all rows that a column keeps where the candidate is observed.
KEPT = 0.05
# Share of cells whose value is too rare for a level of its own.
RARE = 0.02


def _targets(frame: pd.DataFrame, columns: list[Column]) -> tuple[Floats, list[str]]:
    """Return standardised ranks and levels, NaN where missing, and their columns."""
    parts: list[Floats] = []
    names: list[str] = []

    def add(values: Floats, observed: npt.NDArray[np.bool_], name: str) -> None:
        spread = values.std()
        if spread > 0:
            target = np.full(len(frame), np.nan)
            target[observed] = (values - values.mean()) / spread
            parts.append(target)
            names.append(name)

    for column in columns:
        values, observed = encoded_column(frame, column)
        known = values[observed]
        if len(known) < FEWEST:
            continue
        if column.kind in NUMERIC:
            add(rankdata(known), observed, column.name)
            continue
        counts = np.bincount(known)
        for level in np.argsort(-counts, kind="stable")[:MOST_TARGETS]:
            if counts[level] >= FEWEST:
                add((known == level).astype(np.float64), observed, column.name)
    if not parts:
        return np.empty((len(frame), 0)), []
    return np.stack(parts, axis=1), names


def _target_without_order(values: Floats, targets: Floats) -> int | None:
    """Return the target that shows best that the order means little, if one does."""
    levels, codes = np.unique(values, return_inverse=True)
    at = (np.arange(len(codes)), codes)
    one_hot = csr_array((np.ones(len(codes)), at), (len(codes), len(levels))).T
    observed = ~np.isnan(targets)
    filled = np.where(observed, targets, 0.0)
    counts, sums = one_hot @ observed.astype(np.float64), one_hot @ filled
    squares = (filled**2).sum(axis=0)
    explained, unordered, best = 0.0, 0.0, (0.0, -1)
    for j in range(targets.shape[1]):
        keep = counts[:, j] >= PER_MEAN
        n, x = counts[keep, j], levels[keep]
        total = counts[:, j].sum()
        if len(n) < FEWEST_VALUES or total < FEWEST:
            continue
        variance = squares[j] / total - (sums[:, j].sum() / total) ** 2
        if variance < KEPT:
            continue
        within = squares[j] - (sums[:, j] ** 2 / np.maximum(counts[:, j], 1)).sum()
        noise = max(within, 0.0) / max(total - (counts[:, j] > 0).sum(), 1)
        mean = sums[keep, j] / n
        grand = (n * mean).sum() / n.sum()
        between = ((n * (mean - grand) ** 2).sum() - noise * (len(n) - 1)) / n.sum()
        if between < EXPLAINED * variance:
            continue
        # the deviation of each mean from the line between its neighbours
        left = (x[2:] - x[1:-1]) / (x[2:] - x[:-2])
        line = left * mean[:-2] + (1 - left) * mean[2:]
        scale = 1 + left**2 + (1 - left) ** 2
        chance = noise * (1 / n[1:-1] + left**2 / n[:-2] + (1 - left) ** 2 / n[2:])
        weight = n[1:-1] / n[1:-1].sum()
        excess = (((mean[1:-1] - line) ** 2 - chance) / scale * weight).sum()
        spread = np.sqrt((2 * (chance / scale * weight) ** 2).sum())
        explained += between / variance
        unordered += excess / variance
        if excess >= max(UNORDERED * between, EVIDENCE * spread):
            best = max(best, (between / variance, j))
    return best[1] if best[1] >= 0 and unordered >= UNORDERED * explained else None


def _is_candidate(column: Column, values: Floats) -> bool:
    if column.kind != "integer" or len(values) < FEWEST:
        return False
    counts = np.sort(np.unique(values, return_counts=True)[1])[::-1]
    rare = counts[MAX_LEVELS:].sum()
    many = len(values) >= PER_VALUE * len(counts)
    return bool(many and rare <= RARE * len(values))


def find_group_codes(frame: pd.DataFrame, schema: Schema) -> dict[str, str]:
    """Return the whole numbers that are codes of groups, and for each a reason.

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> rng = np.random.default_rng(0)
    >>> school, age = rng.integers(1, 30, 2_000), rng.integers(20, 60, 2_000)
    >>> rural = np.isin(school, rng.permutation(30)[:12])
    >>> frame = pd.DataFrame({"school": school, "age": age, "rural": rural})
    >>> find_group_codes(frame.assign(wage=age + rng.normal(size=2_000)), infer_schema(
    ...     frame))
    {'school': "codes of 29 groups: 'rural' does not follow their order"}
    """
    columns = [column for column in schema if column.learned][:MOST_COLUMNS]
    if not any(column.kind == "integer" for column in columns):
        return {}
    frame = searched_rows(frame, MOST_ROWS)
    targets, names = _targets(frame, columns)
    reasons: dict[str, str] = {}
    codes: dict[str, Floats] = {}
    for column in columns:
        if column.kind != "integer":
            continue
        values, observed = encoded_column(frame, column)
        if not _is_candidate(column, values[observed]):
            continue
        others = [j for j, name in enumerate(names) if name != column.name]
        best = _target_without_order(values[observed], targets[observed][:, others])
        if best is not None:
            codes[column.name] = np.where(observed, values, np.nan)
            count = len(np.unique(values[observed]))
            reasons[column.name] = (
                f"{CODES}{count} groups: {names[others[best]]!r} does not follow "
                "their order"
            )
    return {
        name: reason
        for name, reason in reasons.items()
        if not any(_is_function(codes[name], codes[other]) for other in codes)
    }


def _is_function(y: Floats, x: Floats) -> bool:
    """Whether x determines y, but y not x."""
    both = ~np.isnan(x) & ~np.isnan(y)
    n_x, n_y = len(np.unique(x[both])), len(np.unique(y[both]))
    return n_y < n_x == len(np.unique(x[both] + 1j * y[both]))


def with_group_codes(
    frame: pd.DataFrame,
    schema: Schema,
    decided: Collection[str],
    as_category: Callable[[Column, str], Column],
) -> Schema:
    """Return the schema with group codes as categories.

    Parameters
    ----------
    frame : pandas.DataFrame
    schema : Schema
        Of the frame.
    decided : collection of str
        Columns whose kind you have declared.
    as_category : callable
        From a column and a reason to the same column as a category.
    """
    reasons = find_group_codes(frame, schema)
    return Schema(
        tuple(
            as_category(column, reasons[column.name])
            if column.name in reasons and column.name not in decided
            else column
            for column in schema
        )
    )
