"""P_diag and Δ: what a denoiser loses when co-missing cells are filled one by one.

With several holes S in a row, joint fillings add tr(ΓΣ) to its loss, to second order
(eq:multiple_coordinates): Σ is their covariance given the observed cells, Γ = J̄ᵀJ̄ with
J̄ the Jacobian of the mean reconstruction of the observed cells.

    tr(ΓΣ) = P_diag + Δ      P_diag = Σ_j Γ_jj Σ_jj      Δ = 2 Σ_{j<k} Γ_jk Σ_jk

Rules that fill column by column keep P_diag and lose Δ. The paper bounds the loss by

    |Δ| / P_diag  ≤  max_{j∈S} Σ_{k∈S, k≠j} A_jk |ρ_jk|O|

with ρ_jk|O their correlation and A_jk = |Γ_jk| / √(Γ_jj Γ_kk) the denoiser's coupling.
`missing.gap` does this for a table alone, with A = 1. Here the fitted denoiser tells A:
columns that it does not combine cannot lose anything, however much they depend.

What a category adds is a block of levels. With M_jk = Σ_jj^½ Γ_jk Σ_kk^½ and C_jk the
whitened covariance, Δ is Σ_{j≠k} tr(M_jk C_kj), ρ_jk the largest singular value of C_jk
and A_jk the sum of those of M_jk over √(tr M_jj · tr M_kk); for numbers these are the
paper's, and the inequality holds as it stands. Σ_jj comes from the moments of the rule,
C from the Gaussian that `missing.gap` fits to the table.

One sentence of the paper is too strong. It says that Σ_k q_jk A_jk |ρ_jk|, with the
co-missingness q_jk in place of the indicator k ∈ S, bounds |Δ| / P_diag on average. The
largest of these over j bounds mean |Δ| / mean P_diag, and only if what a column adds to
P_diag does not depend on what else is missing; the mean of the ratios it does not
bound. What does, always, is the mean of the rows' own bounds, and that is `bound`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from augmask.augmentation.moments import Moments
from augmask.errors import UsageError
from augmask.missing.gap import MUCH, SOME, precision_of
from augmask.table.table import Table
from augmask_bench.theory.reconstruct import Denoiser
from augmask_bench.theory.sensitivity import (
    Floats,
    Indices,
    Soft,
    chosen_rows,
    jacobians,
    pieces,
    soft_rows,
)

# Directions with less than this share of the largest variance count as none.
FLAT = 1e-6


@dataclass(frozen=True, eq=False)
class Split:
    """One row: what its holes add, alone and together.

    Parameters
    ----------
    alone : float array [S]
        Γ_jj Σ_jj of each hole; their sum is P_diag.
    delta : float
        Δ.
    coupling, rho : float array [S, S]
        A_jk and |ρ_jk|O|, 0 on the diagonals.
    """

    alone: Floats
    delta: float
    coupling: Floats
    rho: Floats

    @property
    def p_diag(self) -> float:
        """What filling one by one keeps."""
        return float(self.alone.sum())

    @property
    def parts(self) -> Floats:
        """Σ_k A_jk |ρ_jk| of each hole j; the largest is the row's bound."""
        return np.asarray((self.coupling * self.rho).sum(axis=1))


def root(covariance: Floats, inverse: bool = False) -> Floats:
    """Return the symmetric root of a covariance, or its inverse where it has one.

    Examples
    --------
    >>> root(np.diag([4.0, 0.0])).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    >>> root(np.diag([4.0, 0.0]), inverse=True).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh(covariance)
    flat = values <= FLAT * max(values[-1], 0.0)
    roots = np.sqrt(np.where(flat, 1.0, values))
    scaled = np.where(flat, 0.0, 1 / roots if inverse else roots)
    return np.asarray((vectors * scaled) @ vectors.T)


def split(m: Floats, c: Floats, column: Indices) -> Split:
    """Take a row's penalty apart.

    Parameters
    ----------
    m : float array [D_S, D_S]
        Σ_jj^½ Γ_jk Σ_kk^½, all blocks of the row's holes.
    c : float array [D_S, D_S]
        Whitened covariances; the diagonal blocks are not read.
    column : int array [D_S]
        The column of every coordinate, in blocks.

    Examples
    --------
    Two numbers with σ = 1, read with equal weight, correlated by 0.5:

    >>> found = split(np.ones((2, 2)), np.array([[1, 0.5], [0.5, 1]]), np.arange(2))
    >>> found.p_diag, found.delta, found.parts.tolist()
    (2.0, 1.0, [0.5, 0.5])
    """
    holes = np.unique(column)
    where = [np.flatnonzero(column == j) for j in holes]
    alone = np.array([np.trace(m[np.ix_(w, w)]) for w in where])
    coupling, rho = np.zeros((2, len(holes), len(holes)))
    delta = 0.0
    for a, first in enumerate(where):
        for b, second in enumerate(where[:a]):
            both = np.ix_(first, second)
            delta += 2 * float((m[both] * c[both]).sum())
            size = np.sqrt(alone[a] * alone[b])
            if size > 0:
                largest = np.linalg.svd(m[both], compute_uv=False).sum()
                coupling[a, b] = coupling[b, a] = min(largest / size, 1.0)
            largest = np.linalg.svd(c[both], compute_uv=False)[0]
            rho[a, b] = rho[b, a] = min(float(largest), 1.0)
    return Split(alone, delta, coupling, rho)


class _Dependence:
    """The whitened covariance of any set of holes, from a Gaussian of the table."""

    def __init__(self, table: Table, soft: Soft) -> None:
        self.column = soft.column
        x = np.where(table.observed[:, soft.column], soft.x, np.nan)
        known = ~np.isnan(x)
        mean = np.where(known, x, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        spread = np.where(known, (x - mean) ** 2, 0.0).sum(axis=0)
        self.sd = np.sqrt(spread / np.maximum(known.sum(axis=0), 1))
        self.precision, self.unseen = precision_of(x)

    def among(self, inside: Indices) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return C of the coordinates `inside`, and which pairs were never seen."""
        both = np.ix_(inside, inside)
        sd = self.sd[inside]
        inverse = np.linalg.inv(self.precision[both])
        covariance = np.asarray(inverse * np.outer(sd, sd), dtype=np.float64)
        white = np.zeros_like(covariance)
        for j in np.unique(self.column[inside]):
            own = np.flatnonzero(self.column[inside] == j)
            block = np.ix_(own, own)
            white[block] = root(covariance[block], inverse=True)
        return white @ covariance @ white, self.unseen[both]


def _mean_jacobians(
    denoiser: Denoiser, soft: Soft, draws: int, generator: torch.Generator
) -> Floats:
    """Return J̄ [n, D, D], line o the gradient of coordinate o."""
    means = [g.mean(0) for _, g in jacobians(denoiser, soft, draws, generator)]
    return np.asarray(torch.stack(means, 1).double().cpu().numpy())


def _row_split(jacobian: Floats, soft: Soft, row: int, gaussian: _Dependence) -> Split:
    hidden = ~soft.observed[row]
    inside = np.flatnonzero(hidden[soft.column])
    spread = np.zeros((len(inside), len(inside)))
    for j in np.flatnonzero(hidden):
        own = np.flatnonzero(soft.column[inside] == j)
        scale = soft.scale[row, inside[own]]
        if j < soft.layout.n_num:
            spread[own, own] = scale
        else:
            spread[np.ix_(own, own)] = root(np.diag(scale) - np.outer(scale, scale))
    leaning = jacobian[:, inside] @ spread
    c, unseen = gaussian.among(inside)
    found = split(leaning.T @ leaning, c, soft.column[inside])
    # Columns that were never observed together may depend in any way.
    first = np.unique(soft.column[inside], return_index=True)[1]
    open_pairs = unseen[np.ix_(first, first)]
    np.fill_diagonal(open_pairs, False)
    return Split(
        found.alone, found.delta, found.coupling, np.where(open_pairs, 1.0, found.rho)
    )


@dataclass(frozen=True, eq=False)
class CoMissing:
    """What filling one by one loses, for one denoiser and one table.

    Parameters
    ----------
    p_diag, delta : float
        Means over rows with holes of P_diag and Δ.
    ratio : float
        Mean over the same rows of |Δ| / P_diag; 0 where a row has one hole only.
    bound : float
        Mean of the rows' bounds max_j Σ_k A_jk |ρ_jk|O|; never below `ratio`.
    worst_case : float
        The same with A = 1, as without a denoiser; never below `bound`.
    columns : pandas.DataFrame
        One line per column with holes, the largest first: `column`; `bound`, the mean
        of Σ_k A_jk |ρ_jk|O| over the rows in which j is missing, which is the paper's
        Σ_k q_jk A_jk |ρ_jk|; `partner`, the column that adds most to it.
    n_rows : int
        Rows that were looked at.
    """

    p_diag: float
    delta: float
    ratio: float
    bound: float
    worst_case: float
    columns: pd.DataFrame
    n_rows: int

    @property
    def augmenter(self) -> str | None:
        """The rule to use instead, or None if filling one by one will do.

        It is always `lgbm-chain`. `mice` is deterministic here: it would lose P_diag
        along with Δ.
        """
        return "lgbm-chain" if self.bound >= MUCH else None

    @property
    def advice(self) -> str:
        """The finding as a sentence."""
        numbers = f"(|Δ| / P_diag is {self.ratio:.2f}, at most {self.bound:.2f})"
        if self.bound < SOME:
            return f"Filling columns one by one loses next to nothing {numbers}."
        if self.bound < MUCH:
            return f"Filling columns one by one may lose a little {numbers}."
        return (
            "The model combines cells that depend on each other and are missing "
            f"together {numbers}; fit it with augmenter='lgbm-chain', which draws them "
            "jointly."
        )


def _by_column(soft: Soft, splits: list[Split]) -> pd.DataFrame:
    d = soft.layout.n_features
    total = np.zeros((d, d))
    for seen, found in zip(soft.observed, splits, strict=True):
        holes = np.flatnonzero(~seen)
        total[np.ix_(holes, holes)] += found.coupling * found.rho
    missing = (~soft.observed).sum(axis=0)
    parts = total / np.maximum(missing, 1)[:, None]
    names = soft.layout.names
    lines = pd.DataFrame(
        {
            "column": names,
            "bound": parts.sum(axis=1),
            "partner": [
                names[k] if parts[j, k] else None
                for j, k in enumerate(parts.argmax(axis=1))
            ],
        }
    )[missing > 0]
    return lines.sort_values("bound", ascending=False, ignore_index=True)


def co_missing(
    denoiser: Denoiser,
    table: Table,
    moments: Moments,
    *,
    rng: np.random.Generator,
    rows: int = 200,
    draws: int = 64,
) -> CoMissing:
    """Say what filling co-missing cells one by one costs a denoiser.

    Parameters
    ----------
    denoiser : Denoiser
    table : Table
    moments : Moments
        As for `sensitivity`; for a fitted model all three come from `opened`.
    rng : numpy.random.Generator
    rows : int
        Look at so many random rows, of those that have holes and observed cells.
    draws : int
        Times and noises per row that J̄ is averaged over; few of them make P_diag too
        large, by the noise of J̄.

    Returns
    -------
    CoMissing

    Examples
    --------
    a and b are the same and always missing together, but then c tells both:

    >>> from augmask.augmentation.moments import NumMoments
    >>> from augmask.table.table import Layout
    >>> rng = np.random.default_rng(0)
    >>> a = rng.normal(size=500)
    >>> seen = np.ones((500, 3), dtype=bool)
    >>> seen[:100, :2] = False
    >>> table = Table(
    ...     np.stack([a, a, 2 * a], 1),
    ...     np.zeros((500, 0), dtype=int),
    ...     seen,
    ...     Layout(("a", "b", "c"), (), ()),
    ... )
    >>> hole = NumMoments(np.zeros(100, np.float32), np.ones(100, np.float32))
    >>> none = NumMoments(np.float32([]), np.float32([]))
    >>> adder = Denoiser(lambda *_: lambda x: x[:, [0, 1, 0]] + x[:, [0, 1, 1]])
    >>> found = co_missing(adder, table, Moments((hole, hole, none), ()), rng=rng)
    >>> found.p_diag, found.bound < 0.5, found.augmenter
    (2.0, True, None)
    """
    if draws < 1:
        raise UsageError(f"At least one draw per row is needed, got draws={draws}.")
    chosen = chosen_rows(table, rows, rng)
    every = soft_rows(table, moments)
    gaussian = _Dependence(table, every)
    soft = every[chosen]
    seed = int(rng.integers(2**63))
    generator = torch.Generator(denoiser.device).manual_seed(seed)
    splits: list[Split] = []
    for piece in pieces(soft, max(draws, len(soft.column))):
        part = soft[piece]
        found = _mean_jacobians(denoiser, part, draws, generator)
        for row, jacobian in enumerate(found):
            splits.append(_row_split(jacobian, part, row, gaussian))
    p_diag = np.array([one.p_diag for one in splits])
    delta = np.array([one.delta for one in splits])
    ratios = np.abs(delta) / np.where(p_diag > 0, p_diag, np.inf)
    return CoMissing(
        p_diag=float(p_diag.mean()),
        delta=float(delta.mean()),
        ratio=float(ratios.mean()),
        bound=float(np.mean([one.parts.max() for one in splits])),
        worst_case=float(np.mean([one.rho.sum(axis=1).max() for one in splits])),
        columns=_by_column(soft, splits),
        n_rows=len(splits),
    )
