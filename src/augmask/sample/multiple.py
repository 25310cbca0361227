"""Several completions of one table: what they agree on, and how to pool analyses.

A hole is uncertain, and one completion hides that. Each of m completions is a draw from
the law of the holes given the observed cells; an analysis is run on every one, and
Rubin's rules add the variance between them to the variance within.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from augmask.errors import UsageError

FloatArray = npt.NDArray[np.float64]


class Shares(NamedTuple):
    """How likely every level is in every hole of a category: levels, and [holes, K]."""

    levels: Sequence[Any]
    shares: FloatArray


class Filled(NamedTuple):
    """The holes of one column: their rows by number, and m values for each.

    `class_probs` is what the model has said of a category on the way to these values;
    numbers and dates have none.
    """

    rows: npt.NDArray[np.intp]
    values: Sequence[pd.Series]
    class_probs: Shares | None = None


class Imputations(Sequence[pd.DataFrame]):
    """The completions, one frame each.

    Parameters
    ----------
    frame : DataFrame
        The table with its holes, in the types of the completed one.
    filled : mapping of column label to Filled
        Columns without holes are left out.
    draws : int
        m.

    Examples
    --------
    >>> frame = pd.DataFrame({"x": [1.0, np.nan]})
    >>> drawn = [pd.Series([value]) for value in (2.0, 3.0, 4.0)]
    >>> found = Imputations(frame, {"x": Filled(np.array([1]), drawn)}, 3)
    >>> found[-1]["x"].tolist()
    [1.0, 4.0]
    >>> found.summary()[["row", "column", "mean", "sd"]].values.tolist()
    [[1, 'x', 3.0, 1.0]]
    """

    def __init__(
        self, frame: pd.DataFrame, filled: Mapping[Any, Filled], draws: int
    ) -> None:
        self._frame, self._filled, self._draws = frame, dict(filled), draws

    def __len__(self) -> int:
        return self._draws

    def __repr__(self) -> str:
        return f"Imputations({self._draws} draws, {self.n_filled} holes)"

    @property
    def n_filled(self) -> int:
        """How many cells were filled, in each draw."""
        return sum(len(found.rows) for found in self._filled.values())

    @overload
    def __getitem__(self, k: int) -> pd.DataFrame: ...
    @overload
    def __getitem__(self, k: slice) -> list[pd.DataFrame]: ...
    def __getitem__(self, k: int | slice) -> pd.DataFrame | list[pd.DataFrame]:
        if isinstance(k, slice):
            return [self[i] for i in range(*k.indices(self._draws))]
        if not -self._draws <= k < self._draws:
            raise IndexError(f"there are {self._draws} draws, asked for number {k}")
        frame = self._frame.copy()
        for label, found in self._filled.items():
            frame[label] = completed(frame[label], found.rows, found.values[k])
        frame.attrs["filled"] = self.n_filled
        return frame

    def __iter__(self) -> Iterator[pd.DataFrame]:
        return (self[k] for k in range(self._draws))

    def long(self) -> pd.DataFrame:
        """Return all completions below each other, their number 1 .. m as `draw`.

        The index is that of the table, once for every draw.
        """
        name = "draw"
        while name in self._frame.columns:
            name += "_"
        parts = []
        for k, frame in enumerate(self, start=1):
            frame.insert(0, name, k)
            parts.append(frame)
        return pd.concat(parts)

    def best(self) -> pd.DataFrame:
        """Return one frame with the mean (else the likeliest level) in every hole.

        Nearer to the truth cell by cell than a draw, but a column filled so spreads too
        little: use it to predict, not to estimate.
        """
        frame = self._frame.copy()
        for label, (rows, values, class_probs) in self._filled.items():
            if not len(rows):
                continue
            dtype = values[0].dtype
            if class_probs is not None:
                middle = pd.Series(_told_shares(class_probs)["mode"], dtype=object)
            else:
                middle = values[0]
                if len(values) > 1:
                    middle = pd.Series(_spread(values, 0.5)["mean"])
                if pd.api.types.is_integer_dtype(dtype):
                    middle = middle.round()
            frame[label] = completed(frame[label], rows, middle.astype(dtype))
        return frame

    def summary(self, level: float = 0.9) -> pd.DataFrame:
        """Return one row per hole: what its draws say.

        Parameters
        ----------
        level : float
            Of the interval.

        Returns
        -------
        DataFrame
            `row` (label of the index) and `column`; for numbers and dates `mean`, `sd`
            (dates: in days), `lower` and `upper`; for categories the likeliest level
            `mode`, its `probability`, and the `entropy` of all levels in nats. What
            does not apply is empty.

        Notes
        -----
        What is said of categories is the model's belief on the way to its draws, which
        is finer than a count of m draws.

        A further draw falls into the interval with probability `level`, or more where
        draws may be equal. Its ends are ordered draws, between which so many of m + 1
        fall; with too few draws for that (less than 19 for 90 %) it is mean ± t
        √(1 + 1/m) sd, right for normal draws. Both tails are alike, unless a value that
        more than 1 - `level` of the draws share stands at one end, such as 0 where
        nothing was earned: the other tail is then cut by what this one cannot be.
        """
        if not 0 < level < 1:
            raise UsageError(f"level must lie between 0 and 1, got {level!r}")
        if self._draws < 2:
            raise UsageError("a summary needs at least 2 draws, got 1")
        parts = [
            _summarised(self._frame, label, found, level)
            for label, found in self._filled.items()
            if len(found.rows)
        ]
        names = ["row", "column", "mean", "sd", "lower", "upper"]
        names += ["mode", "probability", "entropy"]
        if not parts:
            return pd.DataFrame(columns=names)
        # dates stay dates beside numbers
        joined: dict[str, list[Any]] = {name: [] for name in names}
        for part in parts:
            for name in names:
                joined[name].extend(part.get(name, [None] * len(part["row"])))
        return pd.DataFrame({name: _tidy(values) for name, values in joined.items()})


def _tidy(values: list[Any]) -> pd.Series:
    """Return values as numbers where all are numbers or nothing."""
    if all(value is None or isinstance(value, float) for value in values):
        return pd.Series(values, dtype="float64")
    return pd.Series(values, dtype="object").infer_objects()


def completed(series: pd.Series, rows: Any, values: pd.Series) -> pd.Series:
    """Return the column with values in its holes."""
    if series.dtype == values.dtype:
        cells = series.array.copy()
        cells[rows] = values.array
        return pd.Series(cells, index=series.index)
    # some cell of the column is not of the type that was learned
    mixed = series.astype(object)
    new = values.to_numpy(dtype=object)
    own = pd.api.types.infer_dtype(series, skipna=True)
    if own in ("string", "decimal"):
        # a file takes no column of two types
        make = str if own == "string" else lambda value: Decimal(str(value))
        new = np.array([None if pd.isna(v) else make(v) for v in new], dtype=object)
    mixed.iloc[rows] = new
    return mixed.astype(series.dtype) if own == "string" else mixed.infer_objects()


def _summarised(
    frame: pd.DataFrame, label: Any, found: Filled, level: float
) -> dict[str, list[Any]]:
    rows = frame.index[found.rows].tolist()
    part: dict[str, list[Any]] = {"row": rows, "column": [label] * len(rows)}
    if found.class_probs is None:
        return part | _spread(found.values, level)
    return part | _told_shares(found.class_probs)


def _spread(values: Sequence[pd.Series], level: float) -> dict[str, list[Any]]:
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
    tail = round((1 - level) / 2 * (m + 1), 9)
    if tail >= 1:
        lower, upper = _ends(np.sort(draws, axis=0), tail)
    else:
        reach = stats.t.ppf((1 + level) / 2, m - 1) * np.sqrt(1 + 1 / m) * sd
        lower, upper = mean - reach, mean + reach

    def told(numbers: FloatArray) -> list[Any]:
        if not dated:
            return [float(number) for number in numbers]
        return [origin + number * day for number in numbers]

    return {
        "mean": told(mean),
        "sd": [float(one) for one in sd],
        "lower": told(lower),
        "upper": told(upper),
    }


def _ends(ordered: FloatArray, tail: float) -> tuple[FloatArray, FloatArray]:
    """Return between which of m ordered draws [m, n] all but two tails of m + 1 lie."""
    m, n = ordered.shape

    def at(place: FloatArray) -> FloatArray:
        below = np.clip(np.floor(place).astype(np.intp), 1, m - 1)
        low, high = (
            np.take_along_axis(ordered, k[None] - 1, 0)[0] for k in (below, below + 1)
        )
        return np.asarray(low + (place - below) * (high - low))

    def spare(end: FloatArray, outside: FloatArray) -> FloatArray:
        lump = (ordered == end).sum(0) > 2 * tail
        return np.where(lump, np.maximum(tail - outside, 0.0), 0.0)

    cut = np.full(n, tail)
    lower, upper = at(cut), at(m + 1 - cut)
    above = spare(upper, (ordered > upper).sum(0))
    beneath = spare(lower, (ordered < lower).sum(0))
    return at(cut + above), at(m + 1 - cut - beneath)


def _told_shares(class_probs: Shares) -> dict[str, list[Any]]:
    """Return the likeliest level of every hole, its probability and the entropy."""
    levels, shares = class_probs
    with np.errstate(divide="ignore"):
        logs = np.where(shares > 0, np.log(np.maximum(shares, 1e-300)), 0.0)
    return {
        "mode": [levels[code] for code in shares.argmax(1)],
        "probability": [float(p) for p in shares.max(1)],
        "entropy": [float(max(h, 0.0)) for h in -(shares * logs).sum(1)],
    }


@dataclass(frozen=True)
class Pooled:
    """An estimate from several completions.

    Parameters
    ----------
    estimate : float
        Mean of the estimates.
    within, between, total : float
        Variance within completions, between them, and both together.
    df : float
        Degrees of freedom of the interval.
    lower, upper : float
        The interval.
    """

    estimate: float
    within: float
    between: float
    total: float
    df: float
    lower: float
    upper: float


def pool(
    estimates: Any, variances: Any, level: float = 0.95, complete_df: float = np.inf
) -> Pooled:
    """Pool the estimates of m completions by Rubin's rules.

    Parameters
    ----------
    estimates, variances : sequence of m floats
        The estimate that each completion gives, and its squared standard error.
    level : float
        Of the interval.
    complete_df : float
        Degrees of freedom that the estimate would have without holes; if finite, they
        bound those of the pooled one (Barnard and Rubin, 1999).

    Examples
    --------
    >>> found = pool([1.0, 2.0, 3.0], [0.5, 0.5, 0.5])
    >>> found.estimate, found.within, found.between, round(found.total, 4)
    (2.0, 0.5, 1.0, 1.8333)
    """
    q, u = (np.asarray(list(v), dtype=np.float64) for v in (estimates, variances))
    if q.shape != u.shape or q.ndim != 1 or len(q) < 2:
        raise UsageError(
            "pool needs one estimate and one variance of each of at least 2 "
            f"completions, got {len(q)} and {len(u)}"
        )
    if not (np.isfinite(q).all() and np.isfinite(u).all() and (u >= 0).all()):
        raise UsageError("estimates must be finite and variances at least 0")
    if not 0 < level < 1:
        raise UsageError(f"level must lie between 0 and 1, got {level!r}")
    m = len(q)
    estimate, within, between = q.mean(), u.mean(), q.var(ddof=1)
    added = (1 + 1 / m) * between
    total = within + added
    share = added / total if total > 0 else 0.0
    df = (m - 1) / share**2 if share > 0 else np.inf
    if np.isfinite(complete_df):
        seen = (complete_df + 1) / (complete_df + 3) * complete_df * (1 - share)
        df = 1 / (1 / df + 1 / seen) if seen > 0 else 0.0
    reach = stats.t.ppf((1 + level) / 2, df) if np.isfinite(df) else None
    if reach is None:
        reach = stats.norm.ppf((1 + level) / 2)
    half = reach * np.sqrt(total)
    numbers = (estimate, within, between, total, df, estimate - half, estimate + half)
    return Pooled(*map(float, numbers))
