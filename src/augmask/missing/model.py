"""`MissingModel`: a fitted model of P(observed | row).

The mask m of a row is drawn column by column, columns with few missing values first:

    P(m | x) = Π_j P(m_j | m_<j, observed values of x_<j)

where "< j" are the complete columns and those with fewer missing values than column j.
So missingness may depend on every value that the row still shows (MAR) and on which
earlier cells are missing (patterns). Columns that are always missing together share one
factor.

Each factor is a logistic regression on bins: a column is cut into quantile bins or
levels, missing is one more bin, and every bin has a weight. At the optimum the model
reproduces the missing rate in every bin of every column that it uses, up to a weak
ridge, hence the table's rates, pairwise co-missingness and dependence on single values.
A column enters only if a χ² test finds that it matters. A bin whose cells are missing
without exception ("no packs for non-smokers") gets log odds of ±CERTAIN.

It cannot learn dependence on the missing value itself (MNAR), which leaves no trace in
the table, nor on a column with more missing values than the one in question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse
from scipy.optimize import brentq, minimize
from scipy.special import chdtrc, expit, logit

from augmask.errors import DataError, UsageError, not_fitted
from augmask.missing.describe import missing_cells
from augmask.missing.simulate import hide_cells, is_ordered
from augmask.table.cells import as_floats
from augmask.table.codec import Codec
from augmask.table.infer import missing_mask
from augmask.table.schema import NUMERIC
from augmask.table.table import BoolArray, Table

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

MAX_BINS = 50
ROWS_PER_BIN = 100
# A level with fewer rows says nothing about its own rate; such levels share one bin.
ROWS_PER_LEVEL = 20
# Codes of missing cells and of rare levels.
MISSING, RARE = 0, 1

# Below this expected count a cell of a χ² table is pooled with the other small ones.
MIN_EXPECTED = 5.0
SIGNIFICANCE = 0.01
RIDGE = 1.0
# Log odds of a bin that is missing, or observed, without exception; far beyond what any
# sum of weights reaches. CHANCE is the probability of seeing such a bin by luck.
CERTAIN = 100.0
CHANCE = 1e-6
MAX_ITERATIONS = 100
TOLERANCE = 1e-7
# Cells counted per factor; larger tables choose their columns on a sample of the rows.
MAX_CELLS = 4_000_000
# Rows that `fit_missing_model` learns from: they give each rate within half a point.
MAX_ROWS = 20_000
# Beyond this a float no longer represents every integer.
EXACT_INTEGERS = 2.0**53


def with_missing(frame: pd.DataFrame, observed: BoolArray) -> pd.DataFrame:
    """Return a copy of a frame in which unobserved cells are missing.

    Examples
    --------
    >>> frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    >>> mask = np.array([[True, False], [True, True]])
    >>> with_missing(frame, mask)["b"].isna().tolist()
    [True, False]
    """
    if observed.shape != frame.shape:
        raise UsageError(
            f"observed must have the shape of the table, {frame.shape}, got "
            f"{observed.shape}"
        )
    columns = [
        hide_cells(frame.iloc[:, j], ~observed[:, j]) for j in range(frame.shape[1])
    ]
    return pd.concat(columns, axis=1).set_axis(frame.columns, axis=1)


# -- bins --------------------------------------------------------------------------


def _as_floats(series: pd.Series) -> Floats:
    """Return numbers unchanged and dates as seconds, NaN where missing."""
    values = as_floats(series)
    if values is None:
        raise DataError(
            f"column {series.name!r} was numeric in the fitted table but is "
            f"{series.dtype} here; convert it to numbers"
        )
    return values


@dataclass(frozen=True, eq=False)
class Bins:
    """The bins of one column; code 0 is a missing cell.

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
    def fit(cls, series: pd.Series, numeric: bool) -> Self:
        """Choose bins from the observed values of a column."""
        if not numeric:
            counts = series.value_counts()
            frequent = counts.index[counts.to_numpy() >= ROWS_PER_LEVEL]
            return cls(None, tuple(frequent.astype(object)))
        values = _as_floats(series)
        values = values[np.isfinite(values)]
        distinct = np.unique(values)
        if len(distinct) <= MAX_BINS:
            return cls((distinct[1:] + distinct[:-1]) / 2)
        n_bins = min(MAX_BINS, max(4, len(values) // ROWS_PER_BIN))
        return cls(np.unique(np.quantile(values, np.arange(1, n_bins) / n_bins)))

    @property
    def n_codes(self) -> int:
        """Number of codes, including the one for missing cells."""
        return 2 + len(self.levels if self.edges is None else self.edges)

    def encode(self, series: pd.Series) -> Codes:
        """Return the code of every cell."""
        if self.edges is not None:
            values = _as_floats(series)
            codes = 1 + np.searchsorted(self.edges, values, side="right")
            codes[np.isnan(values)] = MISSING
            return np.asarray(codes, dtype=np.int64)
        local, uniques = pd.factorize(series)
        code_of = {level: RARE + 1 + i for i, level in enumerate(self.levels)}
        by_unique = [code_of.get(v, RARE) for v in pd.Index(uniques).astype(object)]
        # pandas codes a missing cell as -1, which here reads the last entry.
        lookup = np.asarray([*by_unique, MISSING], dtype=np.int64)
        return np.asarray(lookup[local], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class BinnedTable:
    """The codes of all columns side by side, in the order of the factorization.

    Every bin of every column has its own number, so one `bincount` over the table
    counts them all.

    Parameters
    ----------
    columns : int array [d]
        Positions of the columns in the frame.
    bins : int array [n, d]
    ends : int array [d + 1]
        Column k owns the bins ends[k] .. ends[k + 1] - 1.
    """

    columns: Codes
    bins: npt.NDArray[np.int32]
    ends: Codes

    @classmethod
    def from_codes(
        cls, columns: Sequence[int], codes: Sequence[Codes], sizes: Sequence[int]
    ) -> BinnedTable:
        """Stack columns of codes; `sizes` are the numbers of codes."""
        ends = np.cumsum([0, *(sizes[j] for j in columns)])
        bins = np.empty((len(codes[0]), len(columns)), np.int32, order="F")
        for k, j in enumerate(columns):
            bins[:, k] = codes[j] + ends[k]
        return cls(np.array(columns), bins, ends)

    def first(self, count: int) -> BinnedTable:
        """Return the first `count` columns."""
        return BinnedTable(
            self.columns[:count], self.bins[:, :count], self.ends[: count + 1]
        )

    def select(self, positions: Codes) -> BinnedTable:
        """Return some of the columns with their bins renumbered."""
        sizes = np.diff(self.ends)[positions]
        ends = np.append(0, np.cumsum(sizes))
        shift = (ends[:-1] - self.ends[positions]).astype(np.int32)
        return BinnedTable(
            self.columns[positions], self.bins[:, positions] + shift, ends
        )

    def counts(
        self, missing: BoolArray, rows: BoolArray | slice
    ) -> tuple[Floats, Floats]:
        """Return how many of these rows fall in each bin, and how many are missing."""
        bins, n = self.bins[rows], int(self.ends[-1])
        total = np.bincount(bins.ravel(order="K"), minlength=n)
        n_missing = np.bincount(bins[missing[rows]].ravel(order="K"), minlength=n)
        return total.astype(np.float64), n_missing.astype(np.float64)


# -- one factor --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Factor:
    """P(m_j = 0 | bins of earlier columns), for columns that are missing together.

    Parameters
    ----------
    columns : tuple of int
        Positions of the columns that this factor decides.
    intercept : float
        Log odds of a missing value at weight 0.
    weights : dict from int to float array
        For each column that matters, by position, the log odds that its codes add.
    rate : float
        Missing rate in the fitted table.
    """

    columns: tuple[int, ...]
    intercept: float
    weights: dict[int, Floats]
    rate: float

    def _log_odds(self, codes: Sequence[Codes], n: int) -> Floats:
        score = np.full(n, self.intercept)
        for k, weight in self.weights.items():
            score += weight[codes[k]]
        return score

    def predict_proba(self, codes: Sequence[Codes], n: int) -> Floats:
        """Return the probability of a missing value in each of `n` rows."""
        return np.asarray(expit(self._log_odds(codes, n)), dtype=np.float64)

    def calibrated(self, codes: Sequence[Codes], n: int) -> Factor:
        """Return the factor with the intercept that gives these rows the table's rate.

        Bins that are certain stay certain.
        """
        score = self._log_odds(codes, n)
        uncertain = score[np.abs(score) < CERTAIN / 2]
        target = self.rate * n - np.count_nonzero(score >= CERTAIN / 2)
        if not 0 < target < len(uncertain):
            return self
        shift = brentq(
            lambda by: expit(uncertain + by).sum() - target,
            -CERTAIN,
            CERTAIN,
            xtol=1e-6,
        )
        return replace(self, intercept=self.intercept + float(shift))


def _chi2_p_values(
    total: Floats, n_missing: Floats, ends: Codes, rate: float
) -> Floats:
    """Return for each column the p-value of equal missing rates in all its bins."""
    starts = ends[:-1]
    small = total * min(rate, 1 - rate) < MIN_EXPECTED
    rest = np.add.reduceat(np.where(small, total, 0.0), starts)
    rest_missing = np.add.reduceat(np.where(small, n_missing, 0.0), starts)
    variance = rate * (1 - rate)

    def terms(n: Floats, count: Floats, used: BoolArray) -> Floats:
        n = np.where(used, n, 1.0)
        return np.where(used, (count - rate * n) ** 2 / (n * max(variance, 1e-300)), 0)

    statistic = np.add.reduceat(terms(total, n_missing, ~small), starts)
    statistic += terms(rest, rest_missing, rest > 0)
    df = np.add.reduceat((~small).astype(np.int64), starts) + (rest > 0) - 1
    p = np.where(df > 0, chdtrc(np.maximum(df, 1), statistic), 1.0)
    return np.asarray(p, dtype=np.float64)


def _fit_logistic(design: sparse.csr_array, missing: BoolArray) -> tuple[float, Floats]:
    """Return intercept and weights of a ridge-penalised logistic regression."""
    n, n_weights = design.shape
    y = missing.astype(np.float64)
    rate = y.mean()
    # Rare bins curve the loss less than frequent ones. In these units the curvature is
    # the same for all, which saves the optimiser most of its steps.
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
    theta = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MAX_ITERATIONS, "ftol": TOLERANCE},
    ).x
    return float(theta[0] / np.sqrt(n)), theta[1:] * unit


def _certain_bins(total: Floats, n_missing: Floats, rate: float) -> Floats:
    """Return +CERTAIN for bins always missing, -CERTAIN for never, else 0."""
    luck = np.log(CHANCE)
    always = (n_missing == total) & (total * np.log(rate) < luck)
    never = (n_missing == 0) & (total * np.log1p(-rate) < luck)
    return np.asarray(CERTAIN * (always.astype(np.float64) - never), dtype=np.float64)


def _screen_columns(table: BinnedTable, missing: BoolArray) -> BinnedTable:
    """Keep the columns that matter most on a sample of the rows, if there are many."""
    n, d = table.bins.shape
    if n * d <= MAX_CELLS:
        return table
    rows = np.zeros(n, dtype=np.bool_)
    rows[:: -(-n * d // MAX_CELLS)] = True
    total, n_missing = table.counts(missing, rows)
    p = _chi2_p_values(total, n_missing, table.ends, float(missing[rows].mean()))
    best = np.argsort(p, kind="stable")[: max(MAX_CELLS // n, 1)]
    return table.select(np.sort(best))


def _logit_of_rate(rate: float) -> float:
    with np.errstate(divide="ignore"):
        return float(np.clip(logit(rate), -CERTAIN / 2, CERTAIN / 2))


def _fit_weights(
    table: BinnedTable,
    rows: BoolArray,
    missing: BoolArray,
    counts: tuple[Floats, Floats],
    n_tests: int,
) -> tuple[float, dict[int, Floats]]:
    """Return the intercept and the weights of the columns that matter."""
    rate = float(missing[rows].mean())
    p = _chi2_p_values(*counts, table.ends, rate)
    used = np.flatnonzero(p < SIGNIFICANCE / max(n_tests, 1))
    if not len(used):
        return _logit_of_rate(rate), {}
    part = table.select(used)
    bins, n = np.ascontiguousarray(part.bins[rows]), int(rows.sum())
    design = sparse.csr_array(
        (np.ones(bins.size), bins.ravel(), np.arange(n + 1) * len(used)),
        shape=(n, int(part.ends[-1])),
    )
    intercept, weights = _fit_logistic(design, missing[rows])
    parts = np.split(weights, part.ends[1:-1])
    return intercept, dict(zip(part.columns.tolist(), parts, strict=True))


def fit_factor(
    columns: tuple[int, ...], missing: BoolArray, earlier: BinnedTable
) -> Factor:
    """Fit when `columns` are missing, given the codes of earlier columns."""
    weights: dict[int, Floats] = {}
    rate = float(missing.mean())
    n_tests = len(earlier.columns)
    if not n_tests or missing.all():
        return Factor(columns, _logit_of_rate(rate), weights, rate)
    table = _screen_columns(earlier, missing)
    counts = table.counts(missing, slice(None))
    certain = _certain_bins(*counts, rate)
    uncertain_rows = np.ones(len(missing), dtype=np.bool_)
    for k in np.flatnonzero(np.logical_or.reduceat(certain != 0, table.ends[:-1])):
        weights[int(table.columns[k])] = certain[table.ends[k] : table.ends[k + 1]]
        uncertain_rows &= certain[table.bins[:, k]] == 0
    if not uncertain_rows.any():
        return Factor(columns, 0.0, weights, rate)
    # The regression is fitted on the rows that no certain bin decides.
    if not uncertain_rows.all():
        counts = table.counts(missing, uncertain_rows)
    intercept, fitted = _fit_weights(table, uncertain_rows, missing, counts, n_tests)
    for j, weight in fitted.items():
        weights[j] = weights.get(j, 0.0) + weight
    return Factor(columns, intercept, weights, rate)


# -- the model ---------------------------------------------------------------------


class MissingModel:
    """Fitted model of P(observed | row).

    Attributes
    ----------
    columns_ : pandas.Index
        The columns of the fitted table.
    bins_ : tuple of Bins
        The bins of each column.
    factors_ : tuple of Factor
        One per group of columns that are missing together, in the order of drawing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age = rng.uniform(20, 80, 4000)
    >>> income = np.where(rng.random(4000) < (age > 50) * 0.8, np.nan, 100.0)
    >>> model = MissingModel().fit(pd.DataFrame({"age": age, "income": income}))
    >>> rows = pd.DataFrame({"age": [25.0, 75.0] * 500, "income": 100.0})
    >>> observed = model.draw_mask(rows, rng)
    >>> observed[::2, 1].mean() > 0.97, 0.1 < observed[1::2, 1].mean() < 0.3
    (np.True_, np.True_)
    """

    columns_: pd.Index
    bins_: tuple[Bins, ...]
    factors_: tuple[Factor, ...]

    def fit(
        self,
        frame: pd.DataFrame,
        numeric: Sequence[str] | None = None,
        missing: pd.DataFrame | None = None,
    ) -> Self:
        """Fit the model on an incomplete table.

        Parameters
        ----------
        frame : pandas.DataFrame
        numeric : sequence of str, optional
            Columns whose values are ordered; numbers and dates by default.
        missing : pandas.DataFrame of bool, optional
            True where a cell is missing; by default NaN, None and NaT are.
        """
        if not len(frame):
            raise DataError(
                "missingness is learned from rows but the table has none; pass at "
                "least one row"
            )
        hidden = missing_cells(frame, missing)
        if missing is not None:
            frame = with_missing(frame, ~hidden)
        bins: list[Bins] = []
        codes: list[Codes] = []
        for name in frame.columns:
            ordered = is_ordered(frame[name].dtype)
            cut = Bins.fit(frame[name], ordered if numeric is None else name in numeric)
            codes.append(
                np.where(hidden[:, len(bins)], MISSING, cut.encode(frame[name]))
            )
            bins.append(cut)

        groups: dict[bytes, list[int]] = {}
        for j in np.argsort(hidden.sum(axis=0), kind="stable"):
            groups.setdefault(hidden[:, j].tobytes(), []).append(int(j))
        table = BinnedTable.from_codes(
            [j for group in groups.values() for j in group],
            codes,
            [cut.n_codes for cut in bins],
        )
        n_earlier = 0
        factors = []
        for group in groups.values():
            mask = hidden[:, group[0]]
            if mask.any():
                factors.append(fit_factor(tuple(group), mask, table.first(n_earlier)))
            n_earlier += len(group)
        self.columns_ = frame.columns
        self.bins_ = tuple(bins)
        self.factors_ = tuple(factors)
        return self

    def draw_mask(self, rows: pd.DataFrame, rng: np.random.Generator) -> BoolArray:
        """Draw which cells of complete rows are observed.

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
        return self._draw(rows, rng, calibrate=False)[0]

    def calibrated(self, rows: pd.DataFrame, rng: np.random.Generator) -> Self:
        """Return the model that gives such rows the missing rates of the table.

        Generated rows differ a little from the table's, which shifts rates that depend
        on them. Only intercepts change: what a cell depends on stays.

        Parameters
        ----------
        rows : pandas.DataFrame
            Complete rows, such as those that will get missing values.
        rng : numpy.random.Generator
        """
        model = copy(self)
        model.factors_ = self._draw(rows, rng, calibrate=True)[1]
        return model

    def _draw(
        self, rows: pd.DataFrame, rng: np.random.Generator, calibrate: bool
    ) -> tuple[BoolArray, tuple[Factor, ...]]:
        """Return a mask and the factors that it was drawn from."""
        if not hasattr(self, "factors_"):
            raise not_fitted(self)
        absent = [name for name in self.columns_ if name not in rows.columns]
        if absent:
            raise DataError(
                f"rows to be masked must have every column of the fitted table, but "
                f"{absent[0]!r} is absent; add it"
            )
        n = len(rows)
        codes = [
            cut.encode(rows[name])
            for name, cut in zip(self.columns_, self.bins_, strict=True)
        ]
        observed = np.ones((n, len(codes)), dtype=bool)
        factors = []
        for fitted in self.factors_:
            factor = fitted.calibrated(codes, n) if calibrate else fitted
            missing = rng.random(n) < factor.predict_proba(codes, n)
            for j in factor.columns:
                observed[missing, j] = False
                codes[j] = np.where(missing, MISSING, codes[j])
            factors.append(factor)
        return observed, tuple(factors)

    def to_dict(self) -> dict[str, Any]:
        """Return the fitted state without its arrays, ready for JSON."""
        return {
            "columns": [str(name) for name in self.columns_],
            "levels": [
                None if cut.edges is not None else list(cut.levels)
                for cut in self.bins_
            ],
            "factors": [
                {
                    "columns": list(factor.columns),
                    "intercept": factor.intercept,
                    "rate": factor.rate,
                    "depends_on": list(factor.weights),
                }
                for factor in self.factors_
            ],
        }

    def arrays(self) -> dict[str, Floats]:
        """Return bin edges and weights as plain arrays."""
        edges = {
            f"edges.{j}": cut.edges
            for j, cut in enumerate(self.bins_)
            if cut.edges is not None
        }
        weights = {
            f"weights.{i}": np.concatenate(list(factor.weights.values()))
            for i, factor in enumerate(self.factors_)
            if factor.weights
        }
        return edges | weights

    @classmethod
    def from_parts(cls, facts: Mapping[str, Any], arrays: Mapping[str, Floats]) -> Self:
        """Rebuild from `to_dict()` and `arrays()`; raise ValueError on a mismatch."""
        bins = []
        for j, levels in enumerate(facts["levels"]):
            edges = None if levels is not None else arrays[f"edges.{j}"]
            bins.append(Bins(edges, tuple(levels or ())))
        factors = []
        for i, stored in enumerate(facts["factors"]):
            used = [int(k) for k in stored["depends_on"]]
            sizes = [bins[k].n_codes for k in used]
            flat = arrays[f"weights.{i}"] if used else np.zeros(0)
            if flat.shape != (sum(sizes),) or not np.isfinite(flat).all():
                raise ValueError("its missingness model does not match its columns")
            parts = np.split(flat, np.cumsum(sizes))[:-1]
            columns = tuple(int(j) for j in stored["columns"])
            weights = dict(zip(used, parts, strict=True))
            intercept, rate = float(stored["intercept"]), float(stored["rate"])
            factors.append(Factor(columns, intercept, weights, rate))
        if len(bins) != len(facts["columns"]) or any(
            not 0 <= j < len(bins) for factor in factors for j in factor.columns
        ):
            raise ValueError("its missingness model does not match its columns")
        model = cls()
        model.columns_ = pd.Index(list(facts["columns"]))
        model.bins_, model.factors_ = tuple(bins), tuple(factors)
        return model


# -- missing values of generated rows ----------------------------------------------


def fit_missing_model(
    frame: pd.DataFrame, codec: Codec, table: Table, rng: np.random.Generator
) -> MissingModel:
    """Fit P(observed | row) on an encoded frame, for rows like those `codec` decodes.

    Missing values that a column models as a level are generated with the rows, so here
    they are values and may explain others. Identifiers go missing at their rate, but a
    fresh identifier explains nothing.

    Parameters
    ----------
    frame : pandas.DataFrame
        With missing values.
    codec : Codec
        Fitted on it.
    table : Table
        `codec.encode(frame)`.
    rng : numpy.random.Generator
    """
    if len(frame) > MAX_ROWS:
        some = np.sort(rng.choice(len(frame), MAX_ROWS, replace=False))
        frame = frame.iloc[some].reset_index(drop=True)
        table = Table(
            table.num[some], table.cat[some], table.observed[some], table.layout
        )
    names = [column.name for column in codec.schema]
    missing = missing_mask(frame, codec.schema).rename(columns=str)[names]
    for column in codec.schema:
        # Generated empty, or with its missing values: none are to be added.
        if column.missing_is_level or column.kind == "all-missing":
            missing[column.name] = False
    rows = codec.decode(table.num, table.cat, rng, derive=False).rename(columns=str)
    numeric = [column.name for column in codec.schema if column.kind in NUMERIC]
    return MissingModel().fit(rows, numeric, missing)


def _nullable_column(column: pd.Series) -> pd.Series:
    """Return a column in the dtype that pandas gives it when values are missing."""
    dtype = column.dtype
    if dtype == np.dtype(bool):
        return column.astype(object)
    if isinstance(dtype, np.dtype) and dtype.kind in "iu":
        wide = column.abs().max() >= EXACT_INTEGERS
        return column.astype("Int64" if wide else "float64")
    return column


def draw_missing(
    model: MissingModel, rows: pd.DataFrame, rng: np.random.Generator
) -> pd.DataFrame:
    """Return complete rows with missing values drawn from `model`.

    Dtypes do not depend on the draw: every column that had missing values in the fitted
    table gets a dtype that allows them. Integers become float64 (Int64 beyond 2**53)
    and booleans objects; text, categories, dates and floats keep theirs.
    """
    observed = model.draw_mask(rows.set_axis(rows.columns.map(str), axis=1), rng)
    incomplete = {j for factor in model.factors_ for j in factor.columns}
    columns = [
        _nullable_column(rows.iloc[:, j]) if j in incomplete else rows.iloc[:, j]
        for j in range(rows.shape[1])
    ]
    frame = pd.concat(columns, axis=1).set_axis(rows.columns, axis=1)
    return with_missing(frame, observed)
