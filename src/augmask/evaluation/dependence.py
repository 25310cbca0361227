"""Dependence kept: how much of the dependence between real columns synthetic rows have.

Trend and C2ST need many rows before independent columns look different from real ones.
This score does not, because noise cancels in it. With a pair of binned columns (i, j),
cells (a, b) and shares p of the real table, the residuals

    R_ab = (p_ab - p_a p_b) / sqrt(p_a p_b)

are 0 if the columns are independent, and the sum of their squares is φ², the strength
of the dependence. With S the residuals of synthetic rows and R' those of other real
rows,

    dependence kept = Σ w <R, S> / Σ w <R, R'>,   w = 1 / √(|R|² + chance),

summed over pairs: 1 for fresh real rows, 0 for independent columns, and 0.7 if 30 % of
the rows were replaced by independent ones. The weights keep a few columns that
determine each other from deciding alone; `chance` is what |R|² would be if the columns
were independent. R' needs no second table: the real rows are
cut into folds, and only products of different folds count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.evaluation.tables import (
    Codes,
    Floats,
    Frames,
    level_codes,
    numbers,
    some_rows,
)
from augmask.rng import stream

# Few cells per pair: each adds noise.
BINS = 5
LEVELS = 8
# Rarer levels are merged.
RARE_SHARE, RARE_ROWS = 0.02, 5
FOLDS = 10
# Fewer rows that show both values say nothing about a pair.
MIN_ROWS = 50
# More rows would cost time and change nothing.
MOST_ROWS = 20_000


class Kept(NamedTuple):
    """The share of the dependence that is kept, and its standard error."""

    value: float
    error: float


class _Counts(NamedTuple):
    """Of rows: both indicators, an indicator beside any value, both values observed."""

    both: Floats
    beside: Floats
    rows: Floats


def _binned_codes(
    tables: Frames, numeric: Sequence[str], categorical: Sequence[str]
) -> tuple[list[list[Codes]], list[int]]:
    """Return codes of every column in every table, -1 if missing, and their number."""
    codes, sizes = [], []
    for name in numeric:
        values = numbers(tables, name, allow_missing=True)
        observed = values[0][~np.isnan(values[0])]
        cuts = np.unique(np.quantile(observed, np.arange(1, BINS) / BINS))
        codes.append(
            [np.where(np.isnan(v), -1, np.searchsorted(cuts, v)) for v in values]
        )
        sizes.append(len(cuts) + 1)
    for name in categorical:
        levels, known, _ = level_codes(tables, name, allow_missing=True)
        counts = np.bincount(levels[0][levels[0] >= 0], minlength=len(known))
        top = np.argsort(-counts, kind="stable")[: LEVELS - 1]
        top = top[counts[top] >= max(RARE_ROWS, RARE_SHARE * counts.sum())]
        translate = np.full(len(known) + 1, len(top))
        translate[top] = np.arange(len(top))
        translate[-1] = -1
        codes.append([translate[c] for c in levels])
        sizes.append(len(top) + 1)
    return codes, sizes


def _counts(
    codes: Sequence[Codes], sizes: Sequence[int], fold: npt.NDArray[np.int64]
) -> list[_Counts]:
    """Return the counts of every fold of a table."""
    starts = np.cumsum([0, *sizes])
    shown = np.zeros((len(fold), len(sizes)), dtype=np.float32)
    indicators = np.zeros((len(fold), starts[-1]), dtype=np.float32)
    for j, column in enumerate(codes):
        observed = np.flatnonzero(column >= 0)
        shown[observed, j] = 1
        indicators[observed, starts[j] + column[observed]] = 1
    parts = []
    for k in range(FOLDS):
        z, m = indicators[fold == k], shown[fold == k]
        parts.append(
            _Counts(*(np.asarray(x, np.float64) for x in (z.T @ z, z.T @ m, m.T @ m)))
        )
    return parts


def _added_counts(parts: Sequence[_Counts]) -> _Counts:
    """Return the counts of several folds together."""
    return _Counts(*(np.sum([part[i] for part in parts], axis=0) for i in range(3)))


class _Residuals:
    """Turns counts into residuals, and adds up the cells of every pair.

    Parameters
    ----------
    whole : _Counts
        Of the real table, for the shares.
    sizes : sequence of int
        Number of bins of each column.
    """

    def __init__(self, whole: _Counts, sizes: Sequence[int]) -> None:
        d = len(sizes)
        self.column = np.repeat(np.arange(d), sizes)
        observed = np.maximum(np.diag(whole.rows)[self.column], 1)
        share = np.diag(whole.both) / observed
        self.scale = 1 / np.sqrt(np.where(share > 0, share, 1))
        known = share > 0
        used = (self.column[:, None] < self.column) & known[:, None] & known
        self.first, self.second = np.nonzero(used)
        self.pair = self.column[self.first] * d + self.column[self.second]
        self.n_pairs = d * d
        self.enough = (whole.rows >= MIN_ROWS).ravel()

    def of(self, parts: Sequence[_Counts]) -> Floats:
        """Return the residuals of all cells of all pairs."""
        both, beside, rows = _added_counts(parts)
        a, b = self.first, self.second
        n = np.maximum(rows[self.column[a], self.column[b]], 1)
        alone = beside[a, self.column[b]] * beside[b, self.column[a]] / n**2
        # Centred by the means of the same rows.
        unbiased = n / np.maximum(n - 1, 1)
        return np.asarray(
            unbiased * (both[a, b] / n - alone) * self.scale[a] * self.scale[b]
        )

    def products(self, x: Floats, y: Floats) -> Floats:
        """Return the inner product of every pair."""
        return np.bincount(self.pair, x * y, minlength=self.n_pairs).astype(np.float64)


def _jackknife_variance(values: Sequence[float]) -> float:
    """Return the jackknife variance."""
    return (len(values) - 1) * float(np.var(values))


def dependence_kept(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    numeric: Sequence[str],
    categorical: Sequence[str],
    *,
    seed: int,
) -> Kept | None:
    """Return how much of the dependence between real columns synthetic rows have.

    Parameters
    ----------
    real, synthetic : pandas.DataFrame
        With or without missing values; a pair is compared on the rows that show both.
    numeric, categorical : sequence of str
    seed : int
        Cuts the rows into folds.

    Returns
    -------
    Kept or None
        None if the real table shows no dependence.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def people(n):
    ...     age = rng.normal(40, 10, n)
    ...     return pd.DataFrame({"age": age, "pay": age + rng.normal(0, 5, n)})
    >>> real, fresh = people(500), people(500)
    >>> round(dependence_kept(real, fresh, ["age", "pay"], [], seed=0).value, 1)
    1.0
    >>> broken = fresh.assign(pay=rng.permutation(fresh["pay"]))
    >>> dependence_kept(real, broken, ["age", "pay"], [], seed=0).value < 0.2
    True
    """
    tables: Frames = {"real": real, "synthetic": synthetic}
    tables = {
        label: some_rows(frame, MOST_ROWS, stream(seed, "dependence", "rows", label))
        for label, frame in tables.items()
    }
    codes, sizes = _binned_codes(tables, numeric, categorical)
    counts = []
    for i, (label, frame) in enumerate(tables.items()):
        rng = stream(seed, "dependence", label)
        fold = rng.permutation(np.arange(len(frame)) % FOLDS)
        counts.append(_counts([column[i] for column in codes], sizes, fold))
    a, b = counts
    whole = _added_counts(a)
    residuals = _Residuals(whole, sizes)
    r, s = residuals.of(a), residuals.of(b)
    # A pair of independent columns has |R|² = chance, and must not weigh much.
    chance = np.outer(np.subtract(sizes, 1), np.subtract(sizes, 1)).ravel()
    size = residuals.products(r, r) + chance / np.maximum(whole.rows.ravel(), 1)
    used = (size > 0) & residuals.enough
    weight = np.where(used, 1 / np.sqrt(np.where(used, size, 1)), 0)

    def total(x: Floats, y: Floats) -> float:
        return float(weight @ residuals.products(x, y))

    folds = [residuals.of([part]) for part in a]
    products = np.array([[total(x, y) for y in folds] for x in folds])

    def between(kept: Sequence[int]) -> float:
        """Return the mean product of two different folds."""
        part = products[np.ix_(kept, kept)]
        return float(part.sum() - np.trace(part)) / (len(kept) * (len(kept) - 1))

    everything = between(range(FOLDS))
    if not everything > 0:
        return None
    by_real, by_synthetic = [], []
    for k in range(FOLDS):
        others = [i for i in range(FOLDS) if i != k]
        rest = between(others)
        if not rest > 0:
            return None
        by_real.append(total(residuals.of([a[i] for i in others]), s) / rest)
        by_synthetic.append(total(r, residuals.of([b[i] for i in others])) / everything)
    error = np.sqrt(_jackknife_variance(by_real) + _jackknife_variance(by_synthetic))
    return Kept(total(r, s) / everything, float(error))
