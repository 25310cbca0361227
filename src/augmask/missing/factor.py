"""One factor of P(observed | row): a logistic regression on bins, and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import brentq, minimize
from scipy.special import chdtrc, expit, logit

from augmask.missing.bins import Codes, Floats
from augmask.table.table import BoolArray

# Below this expected count a cell of a χ² table is pooled with the other small ones.
EXPECTED = 5.0
LEVEL_OF_TEST = 0.01
RIDGE = 1.0
# Log odds of a bin that misses, or shows, without exception; far beyond what any sum
# of weights reaches. Without exception by luck is what this share of bins may be.
RULE = 100.0
BY_LUCK = 1e-6
MAX_STEPS = 100
# So many cells are counted for one column's holes. In a larger table the columns that
# may matter are chosen on some of its rows.
MOST_CELLS = 4_000_000
TOLERANCE = 1e-7


@dataclass(frozen=True, eq=False)
class Factor:
    """P(m_j = 0 | bins of earlier columns) for columns that miss together.

    Parameters
    ----------
    columns : tuple of int
        Positions of the columns that this factor decides.
    intercept : float
        Log odds of a hole at weight 0.
    weights : dict from int to float array
        For each column that matters, by position, what each of its codes adds.
    rate : float
        Share of holes in the table.
    """

    columns: tuple[int, ...]
    intercept: float
    weights: dict[int, Floats]
    rate: float

    def _score(self, codes: Sequence[Codes], n: int) -> Floats:
        """Return the log odds of a hole in each of `n` rows."""
        score = np.full(n, self.intercept)
        for k, weight in self.weights.items():
            score += weight[codes[k]]
        return score

    def chance(self, codes: Sequence[Codes], n: int) -> Floats:
        """Return the chance of a hole in each of `n` rows."""
        return np.asarray(expit(self._score(codes, n)), dtype=np.float64)

    def suited(self, codes: Sequence[Codes], n: int) -> Factor:
        """Return the factor with the intercept that gives these rows the table's rate.

        What rules decide stays decided.
        """
        score = self._score(codes, n)
        open_rows = score[np.abs(score) < RULE / 2]
        wanted = self.rate * n - np.count_nonzero(score >= RULE / 2)
        if not 0 < wanted < len(open_rows):
            return self
        shift = brentq(
            lambda by: expit(open_rows + by).sum() - wanted, -RULE, RULE, xtol=1e-6
        )
        return replace(self, intercept=self.intercept + float(shift))


@dataclass(frozen=True, eq=False)
class Ordered:
    """The codes of all columns side by side, in the order in which they are drawn.

    Every bin of every column has a number of its own, so that one count over a table
    tells how often each is there.

    Parameters
    ----------
    columns : int array [d]
        Positions of the columns in the table.
    bins : int array [n, d]
    ends : int array [d + 1]
        Column k owns the bins ends[k] .. ends[k + 1] - 1.
    """

    columns: Codes
    bins: npt.NDArray[np.int32]
    ends: Codes

    @classmethod
    def of(
        cls, columns: Sequence[int], codes: Sequence[Codes], sizes: Sequence[int]
    ) -> Ordered:
        """Lay out columns by their codes, which are below the sizes."""
        ends = np.cumsum([0, *(sizes[j] for j in columns)])
        bins = np.empty((len(codes[0]), len(columns)), np.int32, order="F")
        for k, j in enumerate(columns):
            bins[:, k] = codes[j] + ends[k]
        return cls(np.array(columns), bins, ends)

    def first(self, count: int) -> Ordered:
        """Return the first columns only."""
        return Ordered(
            self.columns[:count], self.bins[:, :count], self.ends[: count + 1]
        )

    def taken(self, at: Codes) -> Ordered:
        """Return some of the columns, their bins numbered anew."""
        sizes = np.diff(self.ends)[at]
        ends = np.append(0, np.cumsum(sizes))
        bins = self.bins[:, at] + (ends[:-1] - self.ends[at]).astype(np.int32)
        return Ordered(self.columns[at], bins, ends)

    def counts(self, hole: BoolArray, rows: BoolArray | slice) -> tuple[Floats, Floats]:
        """Return how many of these rows are in each bin, and how many holes."""
        bins, n = self.bins[rows], int(self.ends[-1])
        total = np.bincount(bins.ravel(order="K"), minlength=n)
        holes = np.bincount(bins[hole[rows]].ravel(order="K"), minlength=n)
        return total.astype(np.float64), holes.astype(np.float64)


def _matter(total: Floats, holes: Floats, ends: Codes, rate: float) -> Floats:
    """Return p-values of χ² tests that the bins of a column share one rate of holes."""
    starts = ends[:-1]
    small = total * min(rate, 1 - rate) < EXPECTED
    rest = np.add.reduceat(np.where(small, total, 0.0), starts)
    rest_holes = np.add.reduceat(np.where(small, holes, 0.0), starts)
    variance = rate * (1 - rate)

    def terms(n: Floats, found: Floats, there: BoolArray) -> Floats:
        n = np.where(there, n, 1.0)
        return np.where(there, (found - rate * n) ** 2 / (n * max(variance, 1e-300)), 0)

    statistic = np.add.reduceat(terms(total, holes, ~small), starts)
    statistic += terms(rest, rest_holes, rest > 0)
    freedom = np.add.reduceat((~small).astype(np.int64), starts) + (rest > 0) - 1
    tested = np.where(freedom > 0, chdtrc(np.maximum(freedom, 1), statistic), 1.0)
    return np.asarray(tested, dtype=np.float64)


def _logistic(design: sparse.csr_array, hole: BoolArray) -> tuple[float, Floats]:
    """Return intercept and weights of a ridge-penalised logistic regression."""
    n, n_weights = design.shape
    y = hole.astype(np.float64)
    rate = y.mean()
    # Rare bins bend the loss less than frequent ones. In these units all bend it alike,
    # which spares the optimiser most of its steps.
    unit = 1 / np.sqrt(design.sum(axis=0) * rate * (1 - rate) + RIDGE)
    transposed = design.T.tocsr()

    def loss(theta: Floats) -> tuple[float, Floats]:
        w = theta[1:] * unit
        score = design @ w + theta[0] / np.sqrt(n)
        residual = expit(score) - y
        value = np.logaddexp(0.0, score).sum() - y @ score + RIDGE * (w @ w) / 2
        gradient = np.empty_like(theta)
        gradient[0] = residual.sum() / np.sqrt(n)
        gradient[1:] = (transposed @ residual + RIDGE * w) * unit
        return value, gradient

    start = np.zeros(n_weights + 1)
    start[0] = logit(rate) * np.sqrt(n)
    found = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MAX_STEPS, "ftol": TOLERANCE},
    ).x
    return float(found[0] / np.sqrt(n)), found[1:] * unit


def _rules(total: Floats, holes: Floats, rate: float) -> Floats:
    """Return +RULE for bins that always miss, -RULE for never, 0 for all others."""
    luck = np.log(BY_LUCK)
    always = (holes == total) & (total * np.log(rate) < luck)
    never = (holes == 0) & (total * np.log1p(-rate) < luck)
    return np.asarray(RULE * (always.astype(np.float64) - never), dtype=np.float64)


def _promising(table: Ordered, hole: BoolArray) -> Ordered:
    """Return the columns that some of the rows say matter most.

    All rows of all columns would be too many to count, once for each column.
    """
    n, d = table.bins.shape
    if n * d <= MOST_CELLS:
        return table
    rows = np.zeros(n, dtype=np.bool_)
    rows[:: -(-n * d // MOST_CELLS)] = True
    total, holes = table.counts(hole, rows)
    tested = _matter(total, holes, table.ends, float(hole[rows].mean()))
    best = np.argsort(tested, kind="stable")[: max(MOST_CELLS // n, 1)]
    return table.taken(np.sort(best))


def _logistic_on_bins(
    table: Ordered,
    rows: BoolArray,
    hole: BoolArray,
    counts: tuple[Floats, Floats],
    tests: int,
) -> tuple[float, dict[int, Floats]]:
    """Return the intercept and each column's weights; no weights if none matters."""
    rate = float(hole[rows].mean())
    total, holes = counts
    limit = LEVEL_OF_TEST / max(tests, 1)
    used = np.flatnonzero(_matter(total, holes, table.ends, rate) < limit)
    if not len(used):
        with np.errstate(divide="ignore"):
            return float(np.clip(logit(rate), -RULE / 2, RULE / 2)), {}
    taken = table.taken(used)
    bins, n = np.ascontiguousarray(taken.bins[rows]), int(rows.sum())
    design = sparse.csr_array(
        (np.ones(bins.size), bins.ravel(), np.arange(n + 1) * len(used)),
        shape=(n, int(taken.ends[-1])),
    )
    intercept, weights = _logistic(design, hole[rows])
    parts = np.split(weights, taken.ends[1:-1])
    return intercept, dict(zip(taken.columns.tolist(), parts, strict=True))


def fit_factor(group: tuple[int, ...], hole: BoolArray, earlier: Ordered) -> Factor:
    """Learn when the columns of `group` miss, from the codes of earlier columns."""
    weights: dict[int, Floats] = {}
    rate = float(hole.mean())
    open_rows = np.ones(len(hole), dtype=np.bool_)
    tests = len(earlier.columns)
    if not tests or hole.all():
        with np.errstate(divide="ignore"):
            sure = float(np.clip(logit(rate), -RULE / 2, RULE / 2))
        return Factor(group, sure, weights, rate)
    table = _promising(earlier, hole)
    counts = table.counts(hole, slice(None))
    rules = _rules(*counts, rate)
    starts = table.ends[:-1]
    for k in np.flatnonzero(np.logical_or.reduceat(rules != 0, starts)):
        weights[int(table.columns[k])] = rules[table.ends[k] : table.ends[k + 1]]
        open_rows &= rules[table.bins[:, k]] == 0
    if not open_rows.any():
        return Factor(group, 0.0, weights, rate)
    # What no rule decides is left to the regression.
    if not open_rows.all():
        counts = table.counts(hole, open_rows)
    intercept, found = _logistic_on_bins(table, open_rows, hole, counts, tests)
    for j, weight in found.items():
        weights[j] = weights.get(j, 0.0) + weight
    return Factor(group, intercept, weights, rate)
