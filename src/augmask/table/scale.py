"""Numbers to normal scores and back, fitted on observed values only.

Each numeric column is mapped through its empirical quantiles to a standard normal and
then standardised: the preprocessing that the paper uses for every method. The formulas
are those of scikit-learn's `QuantileTransformer(output_distribution="normal")` followed
by `StandardScaler`, written on plain arrays so that a model file needs no pickle.

Two departures, both far out in the tails. A value counts as the extreme only if it
equals it (scikit-learn: within 1e-7 of it in the column's own unit, which ruins columns
of small numbers). And scores below 2e-7 are squeezed instead of cut, so that distinct
observed values keep distinct scores and the inverse returns them.

Tied values (the zeros of a zero-inflated column, rounded numbers) share a stretch of
scores. The recipe of the paper puts them in its middle, or at the far end if they are
the smallest: spikes that a network needs long to learn. Given a generator,
ties are spread over their stretch instead: the scores of every column are then standard
normal, and the inverse is the same, because the quantile function is flat there.

Between two quantiles lie about 30 values, which are taken to lie evenly. In the tail of
payments or durations they do not: rows that were perfect in their scores would have too
large a mean and several times the variance. So, where ties are spread, the first and
the last stretch are halved towards the extreme until few values are left in a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

Floats = npt.NDArray[np.float64]

# Values that are scaled at a time: what stands between them and their scores then fits
# into a processor's cache, however long the column is.
PIECE = 65_536

# Columns of smaller numbers than this are scaled in a unit of their own.
NEXT_TO_ZERO = 2.0**-900

# Scores stay within this distance of 0 and 1, so the extremes land on about +-5.2.
TAIL = 1e-7 - float(np.spacing(1))


def n_quantiles(n_observed: int) -> int:
    """Return how many quantiles a column with `n_observed` values supports.

    Examples
    --------
    >>> [n_quantiles(n) for n in (1, 100, 3000, 10**6)]
    [1, 10, 100, 1000]
    """
    return min(max(min(n_observed // 30, 1000), 10), n_observed)


def _halves(n_observed: int) -> int:
    """Return how often the outermost stretch between quantiles is to be halved.

    Examples
    --------
    >>> [_halves(n) for n in (7, 100, 3000, 10**6)]
    [0, 3, 4, 9]
    """
    stretches = n_quantiles(n_observed) - 1
    return int(np.log2(n_observed / stretches)) if stretches > 1 else 0


def _squeeze(u: Floats) -> Floats:
    """Map [0, 1] into [TAIL, 1 - TAIL]; the identity except next to both ends."""
    u = np.where(u < 2 * TAIL, TAIL + u / 2, u)
    return np.where(u > 1 - 2 * TAIL, 1 - TAIL - (1 - u) / 2, u)


def _release(p: Floats) -> Floats:
    """Undo `_squeeze`, sending everything beyond its range to 0 or 1."""
    u = np.where(p < 2 * TAIL, 2 * (p - TAIL), p)
    u = np.where(p > 1 - 2 * TAIL, 1 - 2 * (1 - TAIL - p), u)
    return np.clip(u, 0.0, 1.0)


def _between(u: Floats, q: Floats) -> Floats:
    """Interpolate between values `q` at equally spaced points of [0, 1].

    The same numbers as those of `np.interp`, which would search for each place.
    """
    last = len(q) - 1
    if last == 0:
        return np.full_like(u, q[0])
    points = np.linspace(0, 1, len(q))
    slopes = np.diff(q) / np.diff(points)
    at = np.minimum((u * last).astype(np.intp), last - 1)
    # rounding may have led to a neighbour
    at -= points[at] > u
    at += points[at + 1] <= u
    at = np.minimum(at, last - 1)
    return np.where(u < 1.0, slopes[at] * (u - points[at]) + q[at], q[-1])


def _interpolated(x: Floats, xs: Floats, ys: Floats) -> Floats:
    """Interpolate like `np.interp`, also where the slope is beyond a float.

    Between two numbers next to zero it is; a value there is taken for the lower one.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.interp(x, xs, ys)
    lost = ~((found >= ys[0]) & (found <= ys[-1]))
    if lost.any():
        found[lost] = ys[np.maximum(np.searchsorted(xs, x[lost], "right") - 1, 0)]
    return found


def _points(count: int, halves: int) -> Floats:
    """Return probabilities: `count` of them evenly, and the outer stretches halved.

    Examples
    --------
    >>> _points(3, 2).tolist()
    [0.0, 0.125, 0.25, 0.5, 0.75, 0.875, 1.0]
    """
    even = np.linspace(0, 1, count)
    if not halves:
        return even
    near = even[1] * 0.5 ** np.arange(halves, 0, -1)
    return np.concatenate([[0.0], near, even[1:-1], 1 - near[::-1], [1.0]])


@dataclass(frozen=True, eq=False)
class QuantileNormal:
    """The scaling of one numeric column.

    Parameters
    ----------
    quantiles : float array [q]
        Values at q equally spaced probabilities; the first and last are the observed
        minimum and maximum.
    mean, scale : float
        Mean and standard deviation of the normal scores.
    tails : float array [2, t]
        Values within the first and within the last stretch, at its half, its quarter
        and so on from the extreme; both ascending.

    Examples
    --------
    >>> scaler = QuantileNormal.fit(np.array([1.0, 2.0, 3.0, 4.0, 50.0]))
    >>> z = scaler.transform(np.array([1.0, 3.0, 50.0]))
    >>> abs(z).round(3)
    array([1.568, 0.   , 1.568])
    >>> scaler.inverse(np.append(z, 99.0)).round(6)
    array([ 1.,  3., 50., 50.])

    A column with a single value keeps it and gets the score 0:

    >>> constant = QuantileNormal.fit(np.array([7.0, 7.0]))
    >>> constant.inverse(constant.transform(np.array([7.0])) + 0.3)
    array([7.])
    """

    quantiles: Floats
    mean: float
    scale: float
    tails: Floats = field(default_factory=lambda: np.empty((2, 0)))

    @classmethod
    def fit(
        cls, values: npt.NDArray[Any], rng: np.random.Generator | None = None
    ) -> QuantileNormal:
        """Fit on the observed values of a column (at least one, all finite).

        With `rng`, ties are spread and tails are followed.
        """
        values = np.asarray(values, dtype=np.float64)
        if not len(values) or not np.isfinite(values).all():
            raise ValueError("a column is scaled by its observed, finite values")
        count, halves = (
            n_quantiles(len(values)),
            0 if rng is None else _halves(len(values)),
        )
        # Interpolated percentiles can step back by a rounding error among ties.
        knots = np.percentile(values, _points(count, halves) * 100)
        knots = np.maximum.accumulate(knots)
        inner = slice(1 + halves, len(knots) - 1 - halves)
        quantiles = np.concatenate([knots[:1], knots[inner], knots[1:][-1:]])
        tails = np.stack([knots[1 : inner.start], knots[inner.stop : -1]])
        scores = cls(quantiles, 0.0, 1.0, tails).transform(values, rng)
        scale = float(scores.std())
        # Scores are of order one, so anything this small is rounding.
        scale = scale if scale > 1e-9 else 1.0
        return cls(quantiles, float(scores.mean()), scale, tails)

    @property
    def _curve(self) -> tuple[Floats, Floats]:
        """Probabilities, and the values there."""
        q, (low, high) = self.quantiles, self.tails
        points = _points(len(q), len(low))
        return points, np.concatenate([q[:1], low, q[1:-1], high, q[1:][-1:]])

    def transform(
        self, values: npt.NDArray[Any], rng: np.random.Generator | None = None
    ) -> Floats:
        """Return the standardised normal scores; values out of range are clipped.

        With `rng`, tied values are spread over the scores that belong to them.
        """
        x = np.asarray(values, dtype=np.float64)
        z = np.empty_like(x)
        for start in range(0, len(x), PIECE):
            piece = slice(start, start + PIECE)
            z[piece] = self._scores(x[piece], rng)
        return z

    def _scores(self, x: Floats, rng: np.random.Generator | None) -> Floats:
        references, q = self._curve
        if max(abs(q[0]), abs(q[-1])) < NEXT_TO_ZERO:
            # exact, and slopes of such numbers are then no longer beyond a float
            x, q = x * 2.0**600, q * 2.0**600
        # Ties make the quantile function flat; the two one-sided interpolations are
        # the ends of a repeated value's flat stretch.
        left = _interpolated(x, q, references)
        right = -_interpolated(-x, -q[::-1], -references[::-1])
        u = (left + right) / 2
        if q[0] == q[-1]:
            u = np.full_like(u, 0.5)
        elif rng is not None:
            u = right + (left - right) * rng.random(x.shape)
        else:
            u = np.where(x <= q[0], 0.0, np.where(x >= q[-1], 1.0, u))
        z: Floats = (ndtri(_squeeze(u)) - self.mean) / self.scale
        return z

    def inverse(self, z: npt.NDArray[Any]) -> Floats:
        """Return values in the observed range."""
        scores = np.asarray(z, dtype=np.float64) * self.scale + self.mean
        u = _release(ndtr(scores))
        values = _between(u, self.quantiles)
        if self.tails.size:
            stretch = 1 / (len(self.quantiles) - 1)
            outer = (u < stretch) | (u > 1 - stretch)
            values[outer] = np.interp(u[outer], *self._curve)
        return values

    def arrays(self) -> dict[str, Floats]:
        """Return the fitted numbers as plain arrays."""
        return {
            "quantiles": self.quantiles,
            "moments": np.array([self.mean, self.scale], dtype=np.float64),
            "tails": self.tails,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> QuantileNormal:
        """Rebuild from `arrays()`; refuses numbers that no fit can produce."""
        quantiles = np.asarray(arrays["quantiles"], dtype=np.float64)
        moments = np.asarray(arrays["moments"], dtype=np.float64)
        tails = np.asarray(arrays["tails"], dtype=np.float64)
        shapes = (quantiles.shape, moments.shape, tails.shape)
        if quantiles.ndim != 1 or not len(quantiles) or moments.shape != (2,):
            raise ValueError(f"arrays of the shapes {shapes} are no scaling")
        if tails.ndim != 2 or len(tails) != 2 or (tails.size and len(quantiles) < 3):
            raise ValueError(f"arrays of the shapes {shapes} are no scaling")
        scaler = cls(quantiles, float(moments[0]), float(moments[1]), tails)
        _, values = scaler._curve
        ordered = np.isfinite(values).all() and (np.diff(values) >= 0).all()
        if not ordered or not np.isfinite(moments).all() or not moments[1] > 0:
            raise ValueError("quantiles must ascend and the scale must be positive")
        return scaler
