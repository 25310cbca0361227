"""P_diag and Δ: the cost of augmenting co-missing cells independently.

With several missing cells S in a row, joint draws add tr(ΓΣ) to its loss, to second
order (eq:multiple_coordinates): Σ is their covariance given the observed cells, and
Γ = J̄ᵀJ̄ with J̄ the Jacobian of the mean reconstruction of the observed cells.

    tr(ΓΣ) = P_diag + Δ      P_diag = Σ_j Γ_jj Σ_jj      Δ = 2 Σ_{j<k} Γ_jk Σ_jk

Augmenters that draw columns independently keep P_diag and lose Δ. The paper bounds it:

    |Δ| / P_diag  ≤  max_{j∈S} Σ_{k∈S, k≠j} A_jk |ρ_jk|O|

with ρ_jk|O their correlation and A_jk = |Γ_jk| / √(Γ_jj Γ_kk) the denoiser's coupling.
`missing.gap` computes it for a table alone, with A = 1. Here A comes from the fitted
denoiser: columns that it does not combine lose nothing, however dependent they are.

A category is a block of levels. With M_jk = Σ_jj^½ Γ_jk Σ_kk^½ and C_jk the whitened
covariance, Δ is Σ_{j≠k} tr(M_jk C_kj), ρ_jk the largest singular value of C_jk and A_jk
the sum of those of M_jk over √(tr M_jj · tr M_kk); for numbers these are the paper's,
and the inequality is unchanged. Σ_jj comes from the moments of the augmenter, C from
the Gaussian that `missing.gap` fits to the table.

One sentence of the paper is too strong. It says that Σ_k q_jk A_jk |ρ_jk|, with the
co-missingness q_jk in place of the indicator k ∈ S, bounds |Δ| / P_diag on average. Its
maximum over j bounds mean |Δ| / mean P_diag, and only if a column's part of P_diag does
not depend on what else is missing; it does not bound the mean of the ratios. The mean
of the rows' own bounds always does; this is `bound`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from augmask.augmentation.moments import Moments
from augmask.errors import UsageError
from augmask.missing.gap import LARGE_GAP, MODERATE_GAP, precision_matrix
from augmask.table.table import Table
from augmask_bench.theory.reconstruct import Denoiser
from augmask_bench.theory.sensitivity import (
    Floats,
    Indices,
    SoftRows,
    chunks,
    jacobians,
    sample_rows,
    soft_rows,
)

# Eigenvalues below this share of the largest count as zero.
FLAT = 1e-6


@dataclass(frozen=True, eq=False)
class Split:
    """The penalty of one row: its missing cells alone and together.

    Parameters
    ----------
    alone : float array [S]
        Γ_jj Σ_jj of each missing cell; their sum is P_diag.
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
        """The part that independent augmentation keeps."""
        return float(self.alone.sum())

    @property
    def parts(self) -> Floats:
        """Σ_k A_jk |ρ_jk| of each missing cell j; the largest is the row's bound."""
        return np.asarray((self.coupling * self.rho).sum(axis=1))


def root(covariance: Floats, inverse: bool = False) -> Floats:
    """Return the symmetric square root of a covariance, or its pseudo-inverse.

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
    """Split a row's penalty into P_diag and Δ.

    Parameters
    ----------
    m : float array [D_S, D_S]
        Σ_jj^½ Γ_jk Σ_kk^½, all blocks of the row's missing cells.
    c : float array [D_S, D_S]
        Whitened covariances; the diagonal blocks are not read.
    column : int array [D_S]
        The column of every coordinate, in blocks.

    Examples
    --------
    Two numbers with σ = 1, used with equal weight, of correlation 0.5:

    >>> row = split(np.ones((2, 2)), np.array([[1, 0.5], [0.5, 1]]), np.arange(2))
    >>> row.p_diag, row.delta, row.parts.tolist()
    (2.0, 1.0, [0.5, 0.5])
    """
    missing = np.unique(column)
    where = [np.flatnonzero(column == j) for j in missing]
    alone = np.array([np.trace(m[np.ix_(w, w)]) for w in where])
    coupling, rho = np.zeros((2, len(missing), len(missing)))
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
    """The whitened covariance of any missing cells, from a Gaussian of the table."""

    def __init__(self, table: Table, soft: SoftRows) -> None:
        self.column = soft.column
        x = np.where(table.observed[:, soft.column], soft.x, np.nan)
        known = ~np.isnan(x)
        mean = np.where(known, x, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        spread = np.where(known, (x - mean) ** 2, 0.0).sum(axis=0)
        self.sd = np.sqrt(spread / np.maximum(known.sum(axis=0), 1))
        self.precision, self.unseen = precision_matrix(x)

    def among(self, inside: Indices) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return C of the coordinates `inside`, and pairs never observed together."""
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
    denoiser: Denoiser, soft: SoftRows, draws: int, generator: torch.Generator
) -> Floats:
    """Return J̄ [n, D, D]; row o is the gradient of coordinate o."""
    means = [g.mean(0) for _, g in jacobians(denoiser, soft, draws, generator)]
    return np.asarray(torch.stack(means, 1).double().cpu().numpy())


def _row_split(
    jacobian: Floats, soft: SoftRows, row: int, gaussian: _Dependence
) -> Split:
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
    weighted = jacobian[:, inside] @ spread
    c, unseen = gaussian.among(inside)
    parts = split(weighted.T @ weighted, c, soft.column[inside])
    # columns that were never observed together may have any correlation
    first = np.unique(soft.column[inside], return_index=True)[1]
    open_pairs = unseen[np.ix_(first, first)]
    np.fill_diagonal(open_pairs, False)
    return Split(
        parts.alone, parts.delta, parts.coupling, np.where(open_pairs, 1.0, parts.rho)
    )


@dataclass(frozen=True, eq=False)
class CoMissing:
    """The cost of independent augmentation, for one denoiser and one table.

    Parameters
    ----------
    p_diag, delta : float
        Means of P_diag and Δ over incomplete rows.
    ratio : float
        Mean over the same rows of |Δ| / P_diag; 0 for a row with one missing cell.
    bound : float
        Mean of the rows' bounds max_j Σ_k A_jk |ρ_jk|O|; never below `ratio`.
    worst_case : float
        The same with A = 1, as without a denoiser; never below `bound`.
    columns : pandas.DataFrame
        One row per incomplete column, the largest first: `column`; `bound`, the mean of
        Σ_k A_jk |ρ_jk|O| over the rows in which j is missing, which is the paper's
        Σ_k q_jk A_jk |ρ_jk|; `partner`, the column that contributes most to it.
    n_rows : int
        Number of rows used.
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
        """The augmenter to use instead, or None if independent draws suffice.

        It is always `lgbm-chain`: `mice` is deterministic here and would lose P_diag
        along with Δ.
        """
        return "lgbm-chain" if self.bound >= LARGE_GAP else None

    @property
    def advice(self) -> str:
        """The result as a sentence."""
        numbers = f"(|Δ| / P_diag is {self.ratio:.2f}, at most {self.bound:.2f})"
        if self.bound < MODERATE_GAP:
            return f"Augmenting columns independently loses almost nothing {numbers}."
        if self.bound < LARGE_GAP:
            return f"Augmenting columns independently may lose a little {numbers}."
        return (
            "The model combines cells that depend on each other and are missing "
            f"together {numbers}; fit it with augmenter='lgbm-chain', which draws them "
            "jointly."
        )


def _by_column(soft: SoftRows, splits: list[Split]) -> pd.DataFrame:
    d = soft.layout.n_features
    total = np.zeros((d, d))
    for observed, row in zip(soft.observed, splits, strict=True):
        cells = np.flatnonzero(~observed)
        total[np.ix_(cells, cells)] += row.coupling * row.rho
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
    """Estimate the cost of augmenting co-missing cells independently.

    Parameters
    ----------
    denoiser : Denoiser
    table : Table
    moments : Moments
        As for `sensitivity`; for a fitted model use `inspect_model`.
    rng : numpy.random.Generator
    rows : int
        Number of random rows, of those with both missing and observed cells.
    draws : int
        Number of times and noises per row over which J̄ is averaged; with few of them
        the noise of J̄ makes P_diag too large.

    Returns
    -------
    CoMissing

    Examples
    --------
    a and b are equal and always missing together, but c determines both:

    >>> from augmask.augmentation.moments import NumMoments
    >>> from augmask.table.table import Layout
    >>> rng = np.random.default_rng(0)
    >>> a = rng.normal(size=500)
    >>> observed = np.ones((500, 3), dtype=bool)
    >>> observed[:100, :2] = False
    >>> table = Table(
    ...     np.stack([a, a, 2 * a], 1),
    ...     np.zeros((500, 0), dtype=int),
    ...     observed,
    ...     Layout(("a", "b", "c"), (), ()),
    ... )
    >>> missing = NumMoments(np.zeros(100, np.float32), np.ones(100, np.float32))
    >>> none = NumMoments(np.float32([]), np.float32([]))
    >>> adder = Denoiser(lambda *_: lambda x: x[:, [0, 1, 0]] + x[:, [0, 1, 1]])
    >>> moments = Moments((missing, missing, none), ())
    >>> result = co_missing(adder, table, moments, rng=rng)
    >>> result.p_diag, result.bound < 0.5, result.augmenter
    (2.0, True, None)
    """
    if draws < 1:
        raise UsageError(f"draws must be at least 1, got {draws}")
    chosen = sample_rows(table, rows, rng)
    all_rows = soft_rows(table, moments)
    gaussian = _Dependence(table, all_rows)
    soft = all_rows[chosen]
    seed = int(rng.integers(2**63))
    generator = torch.Generator(denoiser.device).manual_seed(seed)
    splits: list[Split] = []
    for chunk in chunks(soft, max(draws, len(soft.column))):
        part = soft[chunk]
        jacobians_of_rows = _mean_jacobians(denoiser, part, draws, generator)
        for row, jacobian in enumerate(jacobians_of_rows):
            splits.append(_row_split(jacobian, part, row, gaussian))
    p_diag = np.array([row.p_diag for row in splits])
    delta = np.array([row.delta for row in splits])
    ratios = np.abs(delta) / np.where(p_diag > 0, p_diag, np.inf)
    return CoMissing(
        p_diag=float(p_diag.mean()),
        delta=float(delta.mean()),
        ratio=float(ratios.mean()),
        bound=float(np.mean([row.parts.max() for row in splits])),
        worst_case=float(np.mean([row.rho.sum(axis=1).max() for row in splits])),
        columns=_by_column(soft, splits),
        n_rows=len(splits),
    )
