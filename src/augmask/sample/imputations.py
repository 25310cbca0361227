"""Multiple imputation: `Imputations` and its summary, and `pool` (Rubin's rules).

One completion hides the uncertainty of a missing value. Each of m completions is a draw
from the distribution of the missing values given the observed ones; you run an analysis
on every one, and `pool` adds the variance between them to the variance within.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import eq
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from augmask.errors import UsageError
from augmask.table.frame_kinds import numbered
from augmask.validation import ValueSpec

CONFIDENCE = ValueSpec(float, above=0, below=1)

FloatArray = npt.NDArray[np.float64]


class ClassProbs(NamedTuple):
    """Levels of a category, and their probabilities [n_imputed, K]."""

    levels: Sequence[Any]
    probs: FloatArray


class ImputedColumn(NamedTuple):
    """The imputed cells of one column: row numbers, and m series of values.

    `class_probs` are the network's probabilities of a category; None for numbers and
    dates. `write` spells values in the format of the column, if it has one.
    """

    rows: npt.NDArray[np.intp]
    values: Sequence[pd.Series]
    class_probs: ClassProbs | None = None
    write: Callable[[pd.Series], pd.Series] | None = None

    def written(self, values: pd.Series) -> pd.Series:
        """Return values as cells of the table."""
        return values if self.write is None else self.write(values)


class Imputations(Sequence[pd.DataFrame]):
    """A sequence of completions, one frame each.

    Parameters
    ----------
    frame : DataFrame
        The incomplete table, in the dtypes of the completed one.
    imputed : mapping of column label to ImputedColumn
        Without columns in which nothing is imputed.
    n_draws : int
        The number of completions.
    own_kind : callable, optional
        Turns a completed frame into what the table was passed as.

    Examples
    --------
    >>> frame = pd.DataFrame({"x": [1.0, np.nan]})
    >>> values = [pd.Series([value]) for value in (2.0, 3.0, 4.0)]
    >>> draws = Imputations(frame, {"x": ImputedColumn(np.array([1]), values)}, 3)
    >>> draws[-1]["x"].tolist()
    [1.0, 4.0]
    >>> draws.summary()[["row", "column", "mean", "sd"]].values.tolist()
    [[1, 'x', 3.0, 1.0]]
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        imputed: Mapping[Any, ImputedColumn],
        n_draws: int,
        own_kind: Callable[[pd.DataFrame], Any] = lambda frame: frame,
    ) -> None:
        self._frame, self._imputed, self._n_draws = frame, dict(imputed), n_draws
        self._own_kind = own_kind

    def __len__(self) -> int:
        return self._n_draws

    def __repr__(self) -> str:
        return f"Imputations({self._n_draws} draws of {self.n_imputed} missing values)"

    @property
    def n_imputed(self) -> int:
        """Number of imputed cells, in each draw."""
        return sum(len(column.rows) for column in self._imputed.values())

    @overload
    def __getitem__(self, k: int) -> pd.DataFrame: ...
    @overload
    def __getitem__(self, k: slice) -> list[pd.DataFrame]: ...
    def __getitem__(self, k: int | slice) -> pd.DataFrame | list[pd.DataFrame]:
        if isinstance(k, slice):
            return [self[i] for i in range(*k.indices(self._n_draws))]
        if not -self._n_draws <= k < self._n_draws:
            raise IndexError(
                f"draw {k} is out of range: there are {self._n_draws} draws"
            )
        return self._own_kind(self._completed(k))

    def _completed(self, k: int) -> pd.DataFrame:
        frame = self._frame.copy()
        for label, column in self._imputed.items():
            values = column.written(column.values[k])
            frame[label] = fill_column(frame[label], column.rows, values)
        frame.attrs["filled"] = self.n_imputed
        return frame

    def __iter__(self) -> Iterator[pd.DataFrame]:
        return (self[k] for k in range(self._n_draws))

    def long(self) -> pd.DataFrame:
        """Return all completions in one frame, numbered 1 .. m in a column `draw`.

        The index is that of the table, repeated for every draw.
        """
        name = "draw"
        while name in self._frame.columns:
            name += "_"
        return numbered(list(self), name)

    def best(self) -> pd.DataFrame:
        """Return one frame with means of numbers and the most probable categories.

        Cell by cell it is closer to the truth than a draw, but its columns have too
        little variance: use it to predict, not to estimate.
        """
        frame = self._frame.copy()
        for label, column in self._imputed.items():
            rows, values, class_probs = column[:3]
            if not len(rows):
                continue
            dtype = values[0].dtype
            if class_probs is not None:
                center = pd.Series(_category_summary(class_probs)["mode"], dtype=object)
            else:
                center = values[0]
                if len(values) > 1:
                    center = pd.Series(_numeric_summary(values, 0.5)["mean"])
                if pd.api.types.is_integer_dtype(dtype):
                    center = center.round()
            center = column.written(center.astype(dtype))
            frame[label] = fill_column(frame[label], rows, center)
        return self._own_kind(frame)

    def summary(self, confidence: float = 0.9) -> pd.DataFrame:
        """Return one row per imputed cell with statistics of its draws.

        Parameters
        ----------
        confidence : float, default 0.9
            Of the interval from `lower` to `upper`.

        Returns
        -------
        DataFrame
            `row` (label of the index) and `column`; for numbers and dates `mean`, `sd`
            (dates: in days), `lower` and `upper`; for categories the most probable
            level `mode`, its `probability`, and the `entropy` of all levels in nats.
            What does not apply is empty.

        Notes
        -----
        Probabilities of categories are those of the network, which are finer than
        counts of m draws.

        A further draw falls into the interval with probability `confidence`, or more
        where draws may be equal. Its ends are order statistics of the m draws; with too
        few draws for that (less than 19 for 90 %) it is mean ± t √(1 + 1/m) sd, exact
        for normal draws. Both tails have the same probability, unless more than
        1 - `confidence` of the draws share a value at one end, such as a capital gain
        of 0: the other tail then takes what this one cannot have.
        """
        confidence = CONFIDENCE.checked("confidence", confidence)
        if self._n_draws < 2:
            raise UsageError("a summary needs at least 2 draws, got 1; raise n_draws")
        parts = []
        for label, column in self._imputed.items():
            if len(column.rows):
                rows = self._frame.index[column.rows].tolist()
                part = {"row": rows, "column": [label] * len(rows)}
                if column.class_probs is None:
                    part |= _numeric_summary(column.values, confidence)
                else:
                    part |= _category_summary(column.class_probs)
                parts.append(part)
        names = ["row", "column", "mean", "sd", "lower", "upper"]
        names += ["mode", "probability", "entropy"]
        if not parts:
            return pd.DataFrame(columns=names)
        # Lists, so that dates stay dates beside numbers.
        joined: dict[str, list[Any]] = {name: [] for name in names}
        for part in parts:
            for name in names:
                joined[name].extend(part.get(name, [None] * len(part["row"])))
        return pd.DataFrame(
            {name: _to_series(values) for name, values in joined.items()}
        )


def _to_series(values: list[Any]) -> pd.Series:
    """Return values as floats where all are floats or None."""
    if all(value is None or isinstance(value, float) for value in values):
        return pd.Series(values, dtype="float64")
    return pd.Series(values, dtype="object").infer_objects()


def fill_column(series: pd.Series, rows: Any, values: pd.Series) -> pd.Series:
    """Return the column with values in the rows of these numbers."""
    if series.dtype == values.dtype:
        cells = series.array.copy()
        cells[rows] = values.array
        return pd.Series(cells, index=series.index)
    # Some cell of the column does not have the learned dtype.
    mixed = series.astype(object)
    new = values.to_numpy(dtype=object)
    own = pd.api.types.infer_dtype(series, skipna=True)
    if own in ("string", "decimal"):
        # A file allows no column of two types.
        make = str if own == "string" else lambda value: Decimal(str(value))
        new = np.array([None if pd.isna(v) else make(v) for v in new], dtype=object)
    mixed.iloc[rows] = new
    if own == "string":
        return mixed.astype(series.dtype)
    typed = mixed.infer_objects()
    # As floats, whole numbers beyond 2**53 would equal their neighbours.
    if typed.dtype.kind == "f" and not typed.isna().any():
        return typed if all(map(eq, mixed, typed)) else mixed
    return typed


def _numeric_summary(
    values: Sequence[pd.Series], confidence: float
) -> dict[str, list[Any]]:
    """Return mean, standard deviation and interval of numbers or dates."""
    dated = pd.api.types.is_datetime64_any_dtype(values[0].dtype)
    origin = values[0].iloc[0] if dated else 0
    day = pd.Timedelta(days=1)
    draws = np.stack(
        [
            np.asarray((one - origin) / day if dated else one, dtype=np.float64)
            for one in values
        ]
    )
    m = len(draws)
    mean, sd = draws.mean(0), draws.std(0, ddof=1)
    tail = round((1 - confidence) / 2 * (m + 1), 9)
    if tail >= 1:
        lower, upper = _interval(np.sort(draws, axis=0), tail)
    else:
        half = stats.t.ppf((1 + confidence) / 2, m - 1) * np.sqrt(1 + 1 / m) * sd
        lower, upper = mean - half, mean + half

    def to_list(numbers: FloatArray) -> list[Any]:
        if not dated:
            return [float(number) for number in numbers]
        return [origin + number * day for number in numbers]

    return {
        "mean": to_list(mean),
        "sd": [float(one) for one in sd],
        "lower": to_list(lower),
        "upper": to_list(upper),
    }


def _interval(ordered: FloatArray, tail: float) -> tuple[FloatArray, FloatArray]:
    """Return order statistics of draws [m, n] that cut `tail` of m + 1 on each side."""
    m, n = ordered.shape

    def quantile(place: FloatArray) -> FloatArray:
        k = np.clip(np.floor(place).astype(np.intp), 1, m - 1)
        low, high = (np.take_along_axis(ordered, i[None] - 1, 0)[0] for i in (k, k + 1))
        return np.asarray(low + (place - k) * (high - low))

    def unused(end: FloatArray, n_outside: FloatArray) -> FloatArray:
        """Return the part of a tail that a point mass at `end` cannot have."""
        mass = (ordered == end).sum(0) > 2 * tail
        return np.where(mass, np.maximum(tail - n_outside, 0.0), 0.0)

    cut = np.full(n, tail)
    lower, upper = quantile(cut), quantile(m + 1 - cut)
    above = unused(upper, (ordered > upper).sum(0))
    below = unused(lower, (ordered < lower).sum(0))
    return quantile(cut + above), quantile(m + 1 - cut - below)


def _category_summary(class_probs: ClassProbs) -> dict[str, list[Any]]:
    """Return the most probable level of every cell, its probability, the entropy."""
    levels, probs = class_probs
    with np.errstate(divide="ignore"):
        logs = np.where(probs > 0, np.log(np.maximum(probs, 1e-300)), 0.0)
    return {
        "mode": [levels[code] for code in probs.argmax(1)],
        "probability": [float(p) for p in probs.max(1)],
        "entropy": [float(max(h, 0.0)) for h in -(probs * logs).sum(1)],
    }


@dataclass(frozen=True)
class Pooled:
    """A pooled estimate.

    Parameters
    ----------
    estimate : float
        Mean of the m estimates.
    within, between, total : float
        Variance within completions, between them, and in total.
    df : float
        Degrees of freedom of the interval.
    lower, upper : float
        The confidence interval.
    """

    estimate: float
    within: float
    between: float
    total: float
    df: float
    lower: float
    upper: float


def pool(
    estimates: Any,
    variances: Any,
    *,
    confidence: float = 0.95,
    complete_df: float = np.inf,
) -> Pooled:
    """Pool the estimates of m completions by Rubin's rules.

    Parameters
    ----------
    estimates, variances : sequence of m floats
        The estimate of each completion, and its squared standard error.
    confidence : float, default 0.95
        Of the interval.
    complete_df : float
        Degrees of freedom of the estimate on complete data; if finite, they bound those
        of the pooled one (Barnard and Rubin, 1999).

    Examples
    --------
    >>> pooled = pool([1.0, 2.0, 3.0], [0.5, 0.5, 0.5])
    >>> pooled.estimate, pooled.within, pooled.between, round(pooled.total, 4)
    (2.0, 0.5, 1.0, 1.8333)
    """
    try:
        q, u = (np.asarray(list(v), dtype=np.float64) for v in (estimates, variances))
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"estimates and variances must be lists of numbers: {error}"
        ) from error
    if q.shape != u.shape or q.ndim != 1 or len(q) < 2:
        raise UsageError(
            "pool needs one estimate and one variance for each of at least 2 "
            f"completions, got {len(q)} and {len(u)}"
        )
    if not (np.isfinite(q).all() and np.isfinite(u).all() and (u >= 0).all()):
        raise UsageError("estimates must be finite and variances at least 0")
    confidence = CONFIDENCE.checked("confidence", confidence)
    m = len(q)
    estimate, within, between = q.mean(), u.mean(), q.var(ddof=1)
    added = (1 + 1 / m) * between
    total = within + added
    share = added / total if total > 0 else 0.0
    df = (m - 1) / share**2 if share > 0 else np.inf
    if np.isfinite(complete_df):
        observed = (complete_df + 1) / (complete_df + 3) * complete_df * (1 - share)
        df = 1 / (1 / df + 1 / observed) if observed > 0 else 0.0
    law = stats.t(df) if np.isfinite(df) else stats.norm
    half = law.ppf((1 + confidence) / 2) * np.sqrt(total)
    numbers = (estimate, within, between, total, df, estimate - half, estimate + half)
    return Pooled(*map(float, numbers))
