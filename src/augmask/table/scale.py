"""Quantile-normal scaling of a numeric column, fitted on observed values only.

Each numeric column is mapped through its empirical quantiles to a standard normal and
then standardised: the preprocessing that the paper uses for every method. The formulas
are those of scikit-learn's `QuantileTransformer(output_distribution="normal")` followed
by `StandardScaler`, on plain arrays so that a model file needs no pickle.

Two differences concern the far tails. A value is an extreme only if it equals it
(scikit-learn: within 1e-7 of it in the unit of the column, which ruins columns of small
numbers). And probabilities below 2e-7 are squeezed instead of clipped, so that distinct
observed values keep distinct scores and the inverse returns them.

Tied values (the zeros of a zero-inflated column, rounded numbers) share an interval of
scores. The paper places them at its midpoint, or at the outer end if they are the
extreme: spikes that a network takes long to learn. With a generator, ties are
dequantized instead, uniformly over their interval: the scores of every column are then
standard normal, and the inverse is unchanged, because the quantile function is flat
there.

The extremes of a column are at probabilities 0 and 1, squeezed to scores of about 5.2.
Of a few hundred values, two such scores make up a fifth of the variance and hide how
columns depend on each other. On request (`expected`) n values have the probabilities
1 / (n + 1) .. n / (n + 1) instead.

The inverse interpolates linearly between quantiles, which are about 30 values apart. In
the tails of payments or durations this gives too large a mean and several times the
variance. So, if ties are dequantized, the first and the last interval are halved
towards the extreme until few values are left in each part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

Floats = npt.NDArray[np.float64]

# Values per chunk, so that intermediate arrays fit into the processor's cache.
CHUNK = 65_536

# Columns of smaller numbers are rescaled first, because their slopes would overflow.
TINY = 2.0**-900

# Distance of probabilities from 0 and 1, so that the extremes get scores of about 5.2.
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
    """Return how often the outermost interval between quantiles is halved.

    Examples
    --------
    >>> [_halves(n) for n in (7, 100, 3000, 10**6)]
    [0, 3, 4, 9]
    """
    intervals = n_quantiles(n_observed) - 1
    return int(np.log2(n_observed / intervals)) if intervals > 1 else 0


def _squeeze(u: Floats) -> Floats:
    """Map [0, 1] into [TAIL, 1 - TAIL]; the identity except next to both ends."""
    u = np.where(u < 2 * TAIL, TAIL + u / 2, u)
    return np.where(u > 1 - 2 * TAIL, 1 - TAIL - (1 - u) / 2, u)


def _unsqueeze(p: Floats) -> Floats:
    """Invert `_squeeze`; values beyond its range become 0 or 1."""
    u = np.where(p < 2 * TAIL, 2 * (p - TAIL), p)
    u = np.where(p > 1 - 2 * TAIL, 1 - 2 * (1 - TAIL - p), u)
    return np.clip(u, 0.0, 1.0)


def _between(u: Floats, q: Floats) -> Floats:
    """Interpolate between values `q` at equally spaced points of [0, 1].

    Equals `np.interp` to the last bit, but needs no binary search.
    """
    last = len(q) - 1
    if last == 0:
        return np.full_like(u, q[0])
    points = np.linspace(0, 1, len(q))
    slopes = np.diff(q) / np.diff(points)
    at = np.minimum((u * last).astype(np.intp), last - 1)
    # Rounding may have selected a neighbour.
    at -= points[at] > u
    at += points[at + 1] <= u
    at = np.minimum(at, last - 1)
    return np.where(u < 1.0, slopes[at] * (u - points[at]) + q[at], q[-1])


def _interpolate(x: Floats, xs: Floats, ys: Floats) -> Floats:
    """Interpolate like `np.interp`; where the slope overflows, take the lower value."""
    with np.errstate(over="ignore", invalid="ignore"):
        y = np.interp(x, xs, ys)
    overflow = ~((y >= ys[0]) & (y <= ys[-1]))
    if overflow.any():
        left = np.searchsorted(xs, x[overflow], "right") - 1
        y[overflow] = ys[np.maximum(left, 0)]
    return y


def _points(count: int, halves: int) -> Floats:
    """Return `count` evenly spaced probabilities, with the outer intervals halved.

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


def knot_probabilities(n_observed: int, dequantized: bool) -> Floats:
    """Return the probabilities of the quantiles that a scaling of `n` values stores."""
    halves = _halves(n_observed) if dequantized else 0
    return _points(n_quantiles(n_observed), halves)


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
        Values inside the first and inside the last interval, at its half, its quarter
        and so on towards the extreme; both ascending.
    edge : float
        Probability beyond each extreme.

    Examples
    --------
    >>> scaler = QuantileNormal.fit(np.array([1.0, 2.0, 3.0, 4.0, 50.0]))
    >>> z = scaler.transform(np.array([1.0, 3.0, 50.0]))
    >>> abs(z).round(3)
    array([1.568, 0.   , 1.568])
    >>> scaler.inverse(np.append(z, 99.0)).round(6)
    array([ 1.,  3., 50., 50.])

    A column with a single value gets the score 0:

    >>> constant = QuantileNormal.fit(np.array([7.0, 7.0]))
    >>> constant.inverse(constant.transform(np.array([7.0])) + 0.3)
    array([7.])
    """

    quantiles: Floats
    mean: float
    scale: float
    tails: Floats = field(default_factory=lambda: np.empty((2, 0)))
    edge: float = 0.0

    @classmethod
    def fit(
        cls,
        values: npt.NDArray[Any],
        rng: np.random.Generator | None = None,
        expected: bool = False,
    ) -> QuantileNormal:
        """Fit on the observed values of a column (at least one, all finite).

        With `rng`, ties are dequantized and tails refined. With `expected`, extremes
        have the scores that are expected for as many normal numbers.
        """
        values = np.asarray(values, dtype=np.float64)
        if not len(values) or not np.isfinite(values).all():
            raise ValueError("scaling needs at least one value, all of them finite")
        points = knot_probabilities(len(values), dequantized=rng is not None)
        knots = np.percentile(values, points * 100)
        return cls.from_knots(knots, len(values), values, rng, expected)

    @classmethod
    def from_knots(
        cls,
        knots: Floats,
        n: int,
        values: Floats,
        rng: np.random.Generator | None = None,
        expected: bool = False,
    ) -> QuantileNormal:
        """Fit on quantiles of `n` values at `knot_probabilities(n)`.

        `values` are all of them or a sample, for the mean and the deviation of scores.
        """
        halves = 0 if rng is None else _halves(n)
        # Rounding can make interpolated percentiles decrease among ties.
        knots = np.maximum.accumulate(knots)
        inner = slice(1 + halves, len(knots) - 1 - halves)
        quantiles = np.concatenate([knots[:1], knots[inner], knots[1:][-1:]])
        tails = np.stack([knots[1 : inner.start], knots[inner.stop : -1]])
        edge = 1 / (n + 1) if expected else 0.0
        scores = cls(quantiles, 0.0, 1.0, tails, edge).transform(values, rng)
        scale = float(scores.std()) if len(scores) else 1.0
        # Scores are of order one, so anything this small is rounding noise.
        scale = scale if scale > 1e-9 else 1.0
        mean = float(scores.mean()) if len(scores) else 0.0
        return cls(quantiles, mean, scale, tails, edge)

    @property
    def _curve(self) -> tuple[Floats, Floats]:
        """Probabilities and the values of the quantile function there."""
        q, (low, high) = self.quantiles, self.tails
        points = _points(len(q), len(low))
        return points, np.concatenate([q[:1], low, q[1:-1], high, q[1:][-1:]])

    def transform(
        self, values: npt.NDArray[Any], rng: np.random.Generator | None = None
    ) -> Floats:
        """Return the standardised normal scores; values out of range are clipped.

        With `rng`, ties are dequantized.
        """
        x = np.asarray(values, dtype=np.float64)
        z = np.empty_like(x)
        for start in range(0, len(x), CHUNK):
            chunk = slice(start, start + CHUNK)
            z[chunk] = self._scores(x[chunk], rng)
        return z

    def _scores(self, x: Floats, rng: np.random.Generator | None) -> Floats:
        references, q = self._curve
        if max(abs(q[0]), abs(q[-1])) < TINY:
            # Exact, and keeps slopes finite.
            x, q = x * 2.0**600, q * 2.0**600
        # Ties make the quantile function flat; the two one-sided interpolations are the
        # ends of a tie's interval.
        left = _interpolate(x, q, references)
        right = -_interpolate(-x, -q[::-1], -references[::-1])
        u = (left + right) / 2
        if q[0] == q[-1]:
            u = np.full_like(u, 0.5)
        elif rng is not None:
            u = right + (left - right) * rng.random(x.shape)
        else:
            u = np.where(x <= q[0], 0.0, np.where(x >= q[-1], 1.0, u))
        if self.edge:
            u = self.edge + (1 - 2 * self.edge) * u
        z: Floats = (ndtri(_squeeze(u)) - self.mean) / self.scale
        return z

    def inverse(self, z: npt.NDArray[Any]) -> Floats:
        """Return values in the observed range."""
        scores = np.asarray(z, dtype=np.float64) * self.scale + self.mean
        u = _unsqueeze(ndtr(scores))
        if self.edge:
            u = np.clip((u - self.edge) / (1 - 2 * self.edge), 0.0, 1.0)
        values = _between(u, self.quantiles)
        if self.tails.size:
            interval = 1 / (len(self.quantiles) - 1)
            outer = (u < interval) | (u > 1 - interval)
            values[outer] = np.interp(u[outer], *self._curve)
        return values

    def arrays(self) -> dict[str, Floats]:
        """Return the fitted numbers as plain arrays."""
        moments = [self.mean, self.scale] + [self.edge] * (self.edge > 0)
        return {
            "quantiles": self.quantiles,
            "moments": np.array(moments, dtype=np.float64),
            "tails": self.tails,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> QuantileNormal:
        """Rebuild from `arrays()`; refuses arrays that no fit can produce."""
        quantiles = np.asarray(arrays["quantiles"], dtype=np.float64)
        moments = np.asarray(arrays["moments"], dtype=np.float64)
        tails = np.asarray(arrays["tails"], dtype=np.float64)
        shapes = (quantiles.shape, moments.shape, tails.shape)
        known = moments.shape in ((2,), (3,))
        if quantiles.ndim != 1 or not len(quantiles) or not known:
            raise ValueError(f"arrays of shapes {shapes} cannot be a scaling")
        if tails.ndim != 2 or len(tails) != 2 or (tails.size and len(quantiles) < 3):
            raise ValueError(f"arrays of shapes {shapes} cannot be a scaling")
        mean, scale, *edge = map(float, moments)
        scaler = cls(quantiles, mean, scale, tails, *edge)
        _, values = scaler._curve
        ordered = np.isfinite(values).all() and (np.diff(values) >= 0).all()
        if not ordered or not np.isfinite(moments).all() or not moments[1] > 0:
            raise ValueError("quantiles must ascend and the scale must be positive")
        if not 0 <= scaler.edge < 0.5:
            raise ValueError("the probability beyond an extreme must be below a half")
        return scaler
