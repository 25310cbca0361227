"""One factor of P(observed | row): a logistic regression on bins, and rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.optimize import brentq, minimize
from scipy.special import expit, logit
from scipy.stats import chi2

from augmask.missing.bins import Codes, Floats
from augmask.table.carrier import BoolArray

# Below this expected count a cell of a χ² table is pooled with the other small ones.
EXPECTED = 5.0
LEVEL_OF_TEST = 0.01
RIDGE = 1.0
# Log odds of a bin that misses, or shows, without exception; far beyond what any sum
# of weights reaches. Without exception by luck is what this share of bins may be.
RULE = 100.0
BY_LUCK = 1e-6
MAX_STEPS = 100
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


def _matters(codes: Codes, n_codes: int, hole: BoolArray) -> float:
    """Return the p-value of a χ² test that a column's bins share one rate of holes."""
    total = np.bincount(codes, minlength=n_codes).astype(np.float64)
    holes = np.bincount(codes, weights=hole, minlength=n_codes)
    rate = hole.mean()
    small = total * min(rate, 1 - rate) < EXPECTED
    total = np.append(total[~small], total[small].sum())
    holes = np.append(holes[~small], holes[small].sum())
    total, holes = total[total > 0], holes[total > 0]
    if len(total) < 2:
        return 1.0
    statistic = ((holes - rate * total) ** 2 / (total * rate * (1 - rate))).sum()
    return float(chi2.sf(statistic, len(total) - 1))


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


def _rules(codes: Codes, n_codes: int, hole: BoolArray) -> Floats:
    """Return +RULE for bins that always miss, -RULE for never, 0 for all others."""
    total = np.bincount(codes, minlength=n_codes)
    holes = np.bincount(codes, weights=hole, minlength=n_codes)
    rate = hole.mean()
    always = (holes == total) & (rate**total < BY_LUCK)
    never = (holes == 0) & ((1 - rate) ** total < BY_LUCK)
    return np.asarray(RULE * (always.astype(np.float64) - never), dtype=np.float64)


def _logistic_on_bins(
    columns: Sequence[int],
    codes: Mapping[int, Codes],
    sizes: Sequence[int],
    hole: BoolArray,
) -> tuple[float, dict[int, Floats]]:
    """Return the intercept and each column's weights; no weights if none matters."""
    rate = float(hole.mean())
    limit = LEVEL_OF_TEST / max(len(columns), 1)
    used = [k for k in columns if _matters(codes[k], sizes[k], hole) < limit]
    if not used:
        with np.errstate(divide="ignore"):
            return float(np.clip(logit(rate), -RULE / 2, RULE / 2)), {}
    ends = np.cumsum([sizes[k] for k in used])
    bins = np.stack([codes[k] for k in used], axis=1) + np.append(0, ends[:-1])
    n = len(hole)
    design = sparse.csr_array(
        (np.ones(bins.size), bins.ravel(), np.arange(n + 1) * len(used)),
        shape=(n, int(ends[-1])),
    )
    intercept, weights = _logistic(design, hole)
    return intercept, dict(zip(used, np.split(weights, ends[:-1]), strict=True))


def fit_factor(
    group: tuple[int, ...],
    hole: BoolArray,
    columns: Sequence[int],
    codes: Sequence[Codes],
    sizes: Sequence[int],
) -> Factor:
    """Learn when the columns of `group` miss, from the codes of earlier columns."""
    weights: dict[int, Floats] = {}
    open_rows = np.ones(len(hole), dtype=bool)
    for k in columns if not hole.all() else ():
        rules = _rules(codes[k], sizes[k], hole)
        if rules.any():
            weights[k] = rules
            open_rows &= rules[codes[k]] == 0
    if not open_rows.any():
        return Factor(group, 0.0, weights, float(hole.mean()))
    # What no rule decides is left to the regression.
    rest = {k: codes[k][open_rows] for k in columns}
    intercept, found = _logistic_on_bins(columns, rest, sizes, hole[open_rows])
    for k, weight in found.items():
        weights[k] = weights.get(k, 0.0) + weight
    return Factor(group, intercept, weights, float(hole.mean()))
