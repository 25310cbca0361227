"""P(observed | row): which cells of a row one would have seen.

The mask m of a row is drawn column by column, columns with few holes first:

    P(m | x) = Π_j P(m_j | m_<j, values of x_<j that are observed)

where "< j" are the complete columns and those with fewer holes than column j. So a hole
may depend on every value that the row still shows when its turn comes (MAR), and on the
holes before it (patterns). Columns that are always missing together are drawn as one.

Each factor is a logistic regression on bins: a column is cut into quantile bins or
levels, a hole being one more bin, and every bin has a weight. At the optimum the model
repeats the share of holes in every bin of every column that it uses, up to a weak
ridge. Hence the rates, the pairwise co-missingness and the dependence on each single
value are those of the table, without any tuning. A column enters only if a χ² test says
that it matters; if none does, the holes are drawn by their rate. A bin that misses
without exception ("no packs for non-smokers") is taken as a rule.

What it cannot know: dependence on the hidden value itself (MNAR), which leaves no trace
in the table, and dependence on a column that has more holes than the one in question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import chi2

from augmask.errors import DataError, NotFittedError, UsageError
from augmask.missing.simulate import punch
from augmask.table.carrier import BoolArray
from augmask.table.floats import as_floats

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

MAX_BINS = 50
ROWS_PER_BIN = 100
# A level with fewer rows says nothing about its own rate; such levels share one bin.
ROWS_PER_LEVEL = 20
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
HOLE, RARE = 0, 1


def _floats(series: pd.Series) -> Floats:
    """Return numbers as they are and dates as seconds, NaN in holes."""
    values = as_floats(series)
    if values is None:
        raise DataError(
            f"Column {series.name!r} was numeric in the incomplete table and must be "
            f"so here, but it is {series.dtype}; convert it."
        )
    return values


@dataclass(frozen=True, eq=False)
class Bins:
    """How one column is cut: code 0 is a hole, the others are bins.

    Parameters
    ----------
    edges : float array or None
        Inner edges of a numeric column; its bins are coded 1 .. len(edges) + 1.
    levels : tuple
        Frequent levels of any other column, coded from 2; code 1 is every other level.
    """

    edges: Floats | None
    levels: tuple[Any, ...] = ()

    @classmethod
    def of(cls, series: pd.Series, numeric: bool) -> Self:
        """Choose bins for the values of a column, holes left out."""
        if not numeric:
            counts = series.value_counts()
            kept = counts.index[counts.to_numpy() >= ROWS_PER_LEVEL]
            return cls(None, tuple(kept.astype(object)))
        values = _floats(series)
        values = values[np.isfinite(values)]
        found = np.unique(values)
        if len(found) <= MAX_BINS:
            return cls((found[1:] + found[:-1]) / 2)
        n_bins = min(MAX_BINS, max(4, len(values) // ROWS_PER_BIN))
        return cls(np.unique(np.quantile(values, np.arange(1, n_bins) / n_bins)))

    @property
    def count(self) -> int:
        """Number of codes, the hole included."""
        return 2 + len(self.levels if self.edges is None else self.edges)

    def codes(self, series: pd.Series) -> Codes:
        """Return the code of every cell."""
        if self.edges is not None:
            values = _floats(series)
            codes = 1 + np.searchsorted(self.edges, values, side="right")
            codes[np.isnan(values)] = HOLE
            return np.asarray(codes, dtype=np.int64)
        local, found = pd.factorize(series)
        known = {level: RARE + 1 + i for i, level in enumerate(self.levels)}
        of = [known.get(v, RARE) for v in pd.Index(found).astype(object)]
        # pandas codes a hole as -1, which here reads the last entry.
        table = np.asarray([*of, HOLE], dtype=np.int64)
        return np.asarray(table[local], dtype=np.int64)


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
    """

    columns: tuple[int, ...]
    intercept: float
    weights: dict[int, Floats]

    def chance(self, codes: Sequence[Codes], n: int) -> Floats:
        """Return the chance of a hole in each of `n` rows."""
        score = np.full(n, self.intercept)
        for k, weight in self.weights.items():
            score += weight[codes[k]]
        return np.asarray(expit(score), dtype=np.float64)


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


def _fit_factor(
    group: tuple[int, ...],
    hole: BoolArray,
    columns: Sequence[int],
    codes: Sequence[Codes],
    sizes: Sequence[int],
) -> Factor:
    weights: dict[int, Floats] = {}
    open_rows = np.ones(len(hole), dtype=bool)
    for k in columns if not hole.all() else ():
        rules = _rules(codes[k], sizes[k], hole)
        if rules.any():
            weights[k] = rules
            open_rows &= rules[codes[k]] == 0
    if not open_rows.any():
        return Factor(group, 0.0, weights)
    # What no rule decides is left to the regression.
    rest = {k: codes[k][open_rows] for k in columns}
    intercept, found = _logistic_on_bins(columns, rest, sizes, hole[open_rows])
    for k, weight in found.items():
        weights[k] = weights.get(k, 0.0) + weight
    return Factor(group, intercept, weights)


def with_holes(frame: pd.DataFrame, observed: BoolArray) -> pd.DataFrame:
    """Return a copy of a frame that shows only the observed cells.

    Examples
    --------
    >>> frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    >>> with_holes(frame, np.array([[True, False], [True, True]]))["b"].isna().tolist()
    [True, False]
    """
    if observed.shape != frame.shape:
        raise UsageError(
            f"`observed` must have the shape of the table, {frame.shape}, got "
            f"{observed.shape}"
        )
    parts = [punch(frame.iloc[:, j], ~observed[:, j]) for j in range(frame.shape[1])]
    return pd.concat(parts, axis=1).set_axis(frame.columns, axis=1)


class MissingModel:
    """Learn from an incomplete table which cells of a row are seen.

    Attributes
    ----------
    columns_ : pandas.Index
        The columns of the table.
    bins_ : tuple of Bins
        How each of them is cut.
    factors_ : tuple of Factor
        One per group of columns with the same holes, in the order of drawing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age = rng.uniform(20, 80, 4000)
    >>> income = np.where(rng.random(4000) < (age > 50) * 0.8, np.nan, 100.0)
    >>> table = pd.DataFrame({"age": age, "income": income})
    >>> model = MissingModel().fit(table)
    >>> rows = pd.DataFrame({"age": [25.0, 75.0] * 500, "income": 100.0})
    >>> seen = model.observed(rows, rng)
    >>> seen[::2, 1].mean() > 0.97, 0.1 < seen[1::2, 1].mean() < 0.3
    (np.True_, np.True_)
    """

    columns_: pd.Index
    bins_: tuple[Bins, ...]
    factors_: tuple[Factor, ...]

    def fit(
        self,
        frame: pd.DataFrame,
        numeric: Sequence[str] | None = None,
        holes: pd.DataFrame | None = None,
    ) -> Self:
        """Learn from a table with holes.

        Parameters
        ----------
        frame : pandas.DataFrame
        numeric : sequence of str, optional
            Columns whose order means something. Numbers and dates by default.
        holes : pandas.DataFrame of bool, optional
            True where a cell is a hole, as in `describe`; NaN, None and NaT by default.
        """
        if not len(frame):
            raise DataError(
                "Holes are learned from rows, but the table has none; pass at least "
                "one row."
            )
        hidden = (frame.isna() if holes is None else holes).to_numpy(dtype=bool)
        if hidden.shape != frame.shape:
            raise UsageError(
                f"holes must have the shape of the table, {frame.shape}, got "
                f"{hidden.shape}"
            )
        if holes is not None:
            frame = with_holes(frame, ~hidden)
        bins: list[Bins] = []
        codes: list[Codes] = []
        for name in frame.columns:
            kind = frame[name].dtype
            ordered = kind.kind in "mM" or (
                is_numeric_dtype(kind) and not is_bool_dtype(kind)
            )
            cut = Bins.of(frame[name], ordered if numeric is None else name in numeric)
            bins.append(cut)
            codes.append(np.where(hidden[:, len(codes)], HOLE, cut.codes(frame[name])))
        sizes = [cut.count for cut in bins]

        groups: dict[bytes, list[int]] = {}
        for j in np.argsort(hidden.sum(axis=0), kind="stable"):
            groups.setdefault(hidden[:, j].tobytes(), []).append(int(j))
        earlier: list[int] = []
        factors = []
        for group in groups.values():
            hole = hidden[:, group[0]]
            if hole.any():
                factors.append(_fit_factor(tuple(group), hole, earlier, codes, sizes))
            earlier.extend(group)
        self.columns_ = frame.columns
        self.bins_ = tuple(bins)
        self.factors_ = tuple(factors)
        return self

    def observed(self, rows: pd.DataFrame, rng: np.random.Generator) -> BoolArray:
        """Draw which cells of complete rows one would have seen.

        Parameters
        ----------
        rows : pandas.DataFrame
            With the columns of the fitted table.
        rng : numpy.random.Generator

        Returns
        -------
        bool array [n, d]
            The paper's m; columns as in `columns_`.
        """
        if not hasattr(self, "factors_"):
            raise NotFittedError("Call fit before observed: no holes were learned yet.")
        absent = [name for name in self.columns_ if name not in rows.columns]
        if absent:
            raise DataError(
                f"Rows to be masked have every column of the incomplete table, but "
                f"{absent[0]!r} is absent; add it."
            )
        n = len(rows)
        codes = [
            cut.codes(rows[name])
            for name, cut in zip(self.columns_, self.bins_, strict=True)
        ]
        observed = np.ones((n, len(codes)), dtype=bool)
        for factor in self.factors_:
            hole = rng.random(n) < factor.chance(codes, n)
            for j in factor.columns:
                observed[hole, j] = False
                codes[j] = np.where(hole, HOLE, codes[j])
        return observed
