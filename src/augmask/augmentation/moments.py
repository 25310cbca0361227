"""Moments of missing cells (μ̂, σ̂ or p̂), how to draw from them and to perturb them.

Moments are kept apart from the models that predict them: draws are then cheap, can be
repeated, and can be perturbed by context bias η and stochasticity λ without a new fit.
The paper's sensitivity section does so with one fitted LGBM-S: η pulls the conditional
mean or probabilities towards the marginal ones, λ scales the spread. (0, 1) is LGBM-S,
(0, 0) a point prediction, (1, 0) mean or mode.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from augmask.errors import UsageError
from augmask.table.table import BoolArray, CodeArray, FloatArray, Table

Float32Array = npt.NDArray[np.float32]

# Cells whose codes are drawn at a time: the cumulative probabilities of all of them, in
# double precision, would be larger than the probabilities themselves.
CHUNK = 65_536


@dataclass(frozen=True, eq=False)
class NumMoments:
    """Gaussian factors N(μ̂_ij, σ̂_ij²) of one column's missing cells, in row order."""

    mu: Float32Array
    sigma: Float32Array

    def arrays(self) -> tuple[Float32Array, ...]:
        """Return μ̂ and σ̂."""
        return self.mu, self.sigma


@dataclass(frozen=True, eq=False)
class CatMoments:
    """Class probabilities p̂_ij [n_missing, K_j] of one column's missing cells."""

    p: Float32Array

    def arrays(self) -> tuple[Float32Array, ...]:
        """Return p̂."""
        return (self.p,)


@dataclass(frozen=True, eq=False)
class Moments:
    """The factors of all columns: numeric ones first, then categorical ones."""

    num: tuple[NumMoments, ...]
    cat: tuple[CatMoments, ...]


def class_frequencies(codes: CodeArray, card: int) -> Float32Array:
    """Return the frequencies π̄ of `codes`, uniform if there are none.

    Examples
    --------
    >>> class_frequencies(np.array([0, 2, 2, 2]), 3).tolist()
    [0.25, 0.0, 0.75]
    >>> class_frequencies(np.array([], dtype=int), 2).tolist()
    [0.5, 0.5]
    """
    counts = np.bincount(codes, minlength=card)
    if not len(codes):
        counts = counts + 1
    return np.asarray(counts / counts.sum(), dtype=np.float32)


def codes_from_uniform(p: FloatArray, u: FloatArray) -> CodeArray:
    """Turn uniform numbers `u` into codes with the probabilities in the rows of `p`.

    If `p` has one dimension, all cells have these probabilities.

    Examples
    --------
    >>> u = np.array([0.0, 0.49, 0.51])
    >>> codes_from_uniform(np.array([[0.5, 0.0, 0.5]] * 3), u)
    array([0, 0, 2])
    >>> codes_from_uniform(np.array([0.5, 0.0, 0.5]), u)
    array([0, 0, 2])
    """
    # Scaling u by the total keeps rounding errors of the sum from ever reaching past
    # the last code that has probability.
    if p.ndim == 1:
        cumulative = np.cumsum(p, dtype=np.float64)
        codes = np.searchsorted(cumulative, u * cumulative[-1], side="right")
        return np.asarray(codes, dtype=np.int64)
    codes = np.empty(len(p), dtype=np.int64)
    for start in range(0, len(p), CHUNK):
        rows = slice(start, start + CHUNK)
        cumulative = np.cumsum(p[rows], axis=1, dtype=np.float64)
        below = cumulative <= (u[rows] * cumulative[:, -1])[:, None]
        codes[rows] = below.sum(axis=1)
    return codes


def write_missing(
    table: Table, num: Iterable[FloatArray], cat: Iterable[CodeArray]
) -> Table:
    """Return `table` with one array of values per column in its missing cells.

    Numbers pass through float32, so that a cache of draws in float32 is exact.
    """
    missing: BoolArray = ~table.observed
    filled_num, filled_cat = table.num.copy(), table.cat.copy()
    for j, values in enumerate(num):
        filled_num[missing[:, j], j] = values.astype(np.float32)
    for j, codes in enumerate(cat):
        filled_cat[missing[:, table.layout.n_num + j], j] = codes
    return table.filled(filled_num, filled_cat)


def draw_moments(table: Table, moments: Moments, rng: np.random.Generator) -> Table:
    """Fill each missing cell with an independent draw from its factor."""
    num = (m.mu + m.sigma * rng.standard_normal(len(m.mu)) for m in moments.num)
    cat = (codes_from_uniform(m.p, rng.random(len(m.p))) for m in moments.cat)
    return write_missing(table, num, cat)


def temper(q: Float32Array, lam: float) -> Float32Array:
    """Return q^(1/λ), normalised per row; at λ = 0 a point mass at the first maximum.

    Examples
    --------
    >>> q = np.array([[0.2, 0.8]], dtype=np.float32)
    >>> temper(q, 0.5).round(3)
    array([[0.059, 0.941]], dtype=float32)
    >>> temper(q, 0.0).tolist()
    [[0.0, 1.0]]
    """
    if lam == 1.0:
        return q
    if lam == 0.0:
        points = np.eye(q.shape[1], dtype=np.float32)
        return np.asarray(points[q.argmax(axis=1)])
    # In logarithms, because q^(1/λ) underflows for small λ; log 0 = -inf is intended.
    with np.errstate(divide="ignore"):
        log_q = np.log(q.astype(np.float64))
    power = np.exp((log_q - log_q.max(axis=1, keepdims=True)) / lam)
    return np.asarray(power / power.sum(axis=1, keepdims=True), dtype=np.float32)


def perturb(table: Table, moments: Moments, eta: float, lam: float) -> Moments:
    """Return `moments` perturbed by context bias `eta` and stochasticity `lam`.

    Parameters
    ----------
    table : Table
        The incomplete table; its observed cells give the marginal means and class
        frequencies.
    moments : Moments
        μ̂, σ̂ and p̂ (after label smoothing) of the fitted LGBM-S.
    eta : float in [0, 1]
        0 keeps the conditional context, 1 reverts to the marginal one.
    lam : float, at least 0
        1 keeps the estimated spread, 0 makes draws deterministic.

    Examples
    --------
    >>> from augmask.table.table import Layout
    >>> observed = np.array([[True], [True], [False]])
    >>> layout = Layout(("a",), (), ())
    >>> num = np.array([[1.0], [3.0], [0.0]])
    >>> table = Table(num, np.zeros((3, 0), int), observed, layout)
    >>> fitted = Moments((NumMoments(np.float32([4]), np.float32([1])),), ())
    >>> perturbed = perturb(table, fitted, eta=0.5, lam=2.0).num[0]
    >>> perturbed.mu.item(), perturbed.sigma.item()
    (3.0, 2.0)
    """
    if not 0.0 <= eta <= 1.0:
        raise UsageError(f"context bias eta must lie in [0, 1], got {eta}")
    if not (lam >= 0.0 and np.isfinite(lam)):
        raise UsageError(f"stochasticity lam must be finite and at least 0, got {lam}")
    if (eta, lam) == (0.0, 1.0):
        return moments
    num = []
    for j, factor in enumerate(moments.num):
        observed = table.num[table.num_observed[:, j], j]
        mean = np.float32(observed.mean(dtype=np.float64) if len(observed) else 0.0)
        mu = np.float32(1.0 - eta) * factor.mu + np.float32(eta) * mean
        num.append(NumMoments(mu, np.float32(lam) * factor.sigma))
    cat = []
    for j, classes in enumerate(moments.cat):
        codes = table.cat[table.cat_observed[:, j], j]
        pi = class_frequencies(codes, table.layout.cards[j])
        q = np.float32(1.0 - eta) * classes.p + np.float32(eta) * pi
        cat.append(CatMoments(temper(q, lam)))
    return Moments(tuple(num), tuple(cat))
