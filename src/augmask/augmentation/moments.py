"""Moments of missing cells (μ̂, σ̂ or p̂), and how to draw from them.

Moments are kept apart from the models that predict them: draws are then cheap, can be
repeated, and can be perturbed without a new fit (`misspecification`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
