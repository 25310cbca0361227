"""What a conditional rule knows about each hole: μ̂, σ̂ or p̂, and how to draw from it.

The moments are kept apart from the models that made them: drawing is then cheap, can
be repeated, and can be bent (`perturb.py`) without fitting anything again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from augmask.table.table import BoolArray, CodeArray, FloatArray, Table

Float32Array = npt.NDArray[np.float32]

# Holes that codes are picked for at a time: the sums of all their probabilities, in
# double precision, would be larger than the probabilities themselves.
PIECE = 65_536


@dataclass(frozen=True, eq=False)
class NumMoments:
    """Gaussian factors N(μ̂_ij, σ̂_ij²) of one numeric column's holes, in row order."""

    mu: Float32Array
    sigma: Float32Array

    def arrays(self) -> tuple[Float32Array, ...]:
        """Return μ̂ and σ̂."""
        return self.mu, self.sigma


@dataclass(frozen=True, eq=False)
class CatMoments:
    """Class probabilities p̂_ij [holes, K_j] of one categorical column's holes."""

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


def pick_codes(p: FloatArray, u: FloatArray) -> CodeArray:
    """Turn uniform numbers `u` into codes with the probabilities of the rows of `p`.

    Examples
    --------
    >>> pick_codes(np.array([[0.5, 0.0, 0.5]] * 3), np.array([0.0, 0.49, 0.51]))
    array([0, 0, 2])
    """
    codes = np.empty(len(p), dtype=np.int64)
    for start in range(0, len(p), PIECE):
        piece = slice(start, start + PIECE)
        cumulated = np.cumsum(p[piece], axis=1, dtype=np.float64)
        # Scaling u by the total keeps rounding errors of the sum from ever reaching
        # past the last code that has probability.
        reached = cumulated <= (u[piece] * cumulated[:, -1])[:, None]
        codes[piece] = reached.sum(axis=1)
    return codes


def pick_alike(p: FloatArray, u: FloatArray) -> CodeArray:
    """Do what `pick_codes` does where all rows have the same probabilities `p`.

    Examples
    --------
    >>> pick_alike(np.array([0.5, 0.0, 0.5]), np.array([0.0, 0.49, 0.51]))
    array([0, 0, 2])
    """
    cumulated = np.cumsum(p, dtype=np.float64)
    codes = np.searchsorted(cumulated, u * cumulated[-1], side="right")
    return np.asarray(codes, dtype=np.int64)


def write_missing(
    table: Table, num: Iterable[FloatArray], cat: Iterable[CodeArray]
) -> Table:
    """Return `table` with one array of values per column written in its holes.

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
    """Fill each hole with an independent draw from its factor."""
    num = (f.mu + f.sigma * rng.standard_normal(len(f.mu)) for f in moments.num)
    cat = (pick_codes(f.p, rng.random(len(f.p))) for f in moments.cat)
    return write_missing(table, num, cat)
