"""The variance-weighted sensitivity penalty of a denoiser.

Training with draws Z_S ~ T instead of one fixed completion adds to the loss of a row,
to second order around the conditional means μ (eq:sensitivity_penalty, and P_diag of
eq:multiple_coordinates for several missing cells S),

    P = Σ_{j∈S} σ_j² ‖∂φ̄_O / ∂z_j‖²,        φ̄(z) = E_W φ(z; W)

which measures how much the reconstruction of the observed cells O depends on unknown
values. A denoiser trained with stochastic completions learns to depend on them less.

The squared norm of a mean is estimated without bias from two independent halves A and B
of the draws of W, as ⟨J̄_A, J̄_B⟩. The version with the mean outside,
E_W ‖∂φ_O/∂z_j‖², is returned too: it is the term in the Hessian of the loss g itself
(without the part of ½ s'' that is certainly positive) and is never smaller.

A missing category with probabilities p has the covariance diag p - p pᵀ over its levels
and adds tr(J_j (diag p - p pᵀ) J_jᵀ), the variance of the derivative under p.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from augmask.augmentation.moments import Moments
from augmask.errors import DataError, UsageError
from augmask.table.table import BoolArray, Layout, Table
from augmask_bench.theory.reconstruct import Denoiser

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Limits of a chunk: entries of all Jacobians (2^22 are 16 MB), and rows that pass
# through the network, each with all its hidden layers.
MAX_ENTRIES = 2**22
MAX_ROWS = 2**12


@dataclass(frozen=True, eq=False)
class SoftRows:
    """Rows with missing values at their conditional mean, and its uncertainty.

    Parameters
    ----------
    x : float array [n, D]
        Numbers, then weights of levels; D = d_num + Σ K_j.
    scale : float array [n, D]
        σ̂ of a missing number, p̂ of the levels of a missing category, 0 elsewhere.
    observed : bool array [n, d]
    column : int array [D]
        The column of every coordinate.
    layout : Layout
    """

    x: Floats
    scale: Floats
    observed: BoolArray
    column: Indices
    layout: Layout

    def __getitem__(self, rows: Indices | slice) -> SoftRows:
        return SoftRows(
            self.x[rows],
            self.scale[rows],
            self.observed[rows],
            self.column,
            self.layout,
        )


def soft_rows(table: Table, moments: Moments) -> SoftRows:
    """Return the rows of a table with missing values at μ̂ and p̂.

    Examples
    --------
    >>> from augmask.augmentation.moments import CatMoments, NumMoments
    >>> table = Table(
    ...     np.array([[7.0], [0.0]]),
    ...     np.array([[0], [1]]),
    ...     np.array([[True, False], [False, True]]),
    ...     Layout(("a",), ("c",), (2,)),
    ... )
    >>> number = NumMoments(np.float32([3]), np.float32([2]))
    >>> levels = CatMoments(np.float32([[0.25, 0.75]]))
    >>> soft_rows(table, Moments((number,), (levels,))).x.tolist()
    [[7.0, 0.25, 0.75], [3.0, 0.0, 1.0]]
    """
    layout, n_num = table.layout, table.layout.n_num
    width = np.array([1] * n_num + list(layout.cards), dtype=np.int64)
    column = np.repeat(np.arange(layout.n_features), width)
    x = np.zeros((len(table), len(column)))
    scale = np.zeros_like(x)
    x[:, :n_num] = table.num
    for j, factor in enumerate(moments.num):
        missing = ~table.num_observed[:, j]
        x[missing, j], scale[missing, j] = factor.mu, factor.sigma
    for j, classes in enumerate(moments.cat):
        own = np.flatnonzero(column == n_num + j)
        missing = ~table.cat_observed[:, j]
        x[np.arange(len(table)), own[0] + table.cat[:, j]] = 1.0
        x[np.ix_(missing, own)] = scale[np.ix_(missing, own)] = classes.p
    return SoftRows(x, scale, table.observed, column, layout)


def sample_rows(table: Table, most: int, rng: np.random.Generator) -> Indices:
    """Return at most `most` rows with both missing and observed cells."""
    if most < 1:
        raise UsageError(f"rows must be at least 1, got {most}")
    known = table.observed.sum(axis=1)
    rows = np.flatnonzero((known > 0) & (known < table.layout.n_features))
    if not len(rows):
        raise DataError(
            "the table has no rows with both missing and observed cells; pass the "
            "incomplete table"
        )
    if len(rows) > most:
        rows = np.sort(rng.choice(rows, most, replace=False))
    return rows


def chunks(soft: SoftRows, draws: int) -> Iterator[slice]:
    """Split rows into chunks whose Jacobians fit into memory."""
    size = max(1, min(MAX_ENTRIES // (draws * len(soft.column)), MAX_ROWS // draws))
    for first in range(0, len(soft.x), size):
        yield slice(first, first + size)


def jacobians(
    denoiser: Denoiser, soft: SoftRows, draws: int, generator: torch.Generator
) -> Iterator[tuple[int, Tensor]]:
    """Yield (o, ∂φ_o/∂x) for every coordinate o; gradients [draws, n, D].

    All rows are copied `draws` times, copy after copy, so that the times of one row are
    spread evenly. Gradients of missing coordinates o are zero: they are not targets.
    """
    n = len(soft.x)
    rows = torch.tensor(soft.x, dtype=torch.float32, device=denoiser.device)
    x = rows.repeat(draws, 1).requires_grad_()
    out = denoiser.draw(len(x), generator)(x)
    observed = torch.tensor(soft.observed, device=denoiser.device)
    for o, j in enumerate(soft.column):
        counted = observed[:, j].to(out.dtype).repeat(draws)
        (gradient,) = torch.autograd.grad(
            (out[:, o] * counted).sum(), x, retain_graph=True, allow_unused=True
        )
        yield (
            o,
            torch.zeros_like(x).view(draws, n, -1)
            if gradient is None
            else gradient.view(draws, n, -1),
        )


def quadratic(
    g: Tensor, h: Tensor, scale: Tensor, member: Tensor, n_num: int
) -> Tensor:
    """Return gᵀ Σ_jj h for every column j: [..., D] becomes [..., d].

    σ² g h for a number, the covariance of g and h under p for a category.
    """
    weighted = scale * g
    num = weighted[..., :n_num] * (scale * h)[..., :n_num]
    levels = member[n_num:, n_num:]
    g_mean, h_mean = (weighted[..., n_num:] @ levels, (scale * h)[..., n_num:] @ levels)
    products = (weighted * h)[..., n_num:] @ levels
    return torch.cat([num, products - g_mean * h_mean], -1)


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """How much a denoiser depends on missing values.

    Parameters
    ----------
    penalty : float
        P, mean over rows. An estimate, which may be below 0 by its error.
    error : float
        Standard error of `penalty` over rows, times and noise.
    each_draw : float
        The same with the squared norm taken before the mean over times and noise.
    columns : pandas.DataFrame
        One row per incomplete column, the largest first: `column`; `penalty`, its mean
        contribution where it is missing; `variance`, its mean conditional variance
        there (for a category, 1 - Σ p²).
    n_rows : int
        Number of rows used.
    """

    penalty: float
    error: float
    each_draw: float
    columns: pd.DataFrame
    n_rows: int


def _row_penalties(
    denoiser: Denoiser, soft: SoftRows, draws: int, generator: torch.Generator
) -> tuple[Floats, Floats]:
    """Return P [n, d] per row and column, and its version with the mean outside."""
    n_num = soft.layout.n_num
    scale = torch.tensor(soft.scale, dtype=torch.float32, device=denoiser.device)
    member = torch.nn.functional.one_hot(
        torch.tensor(soft.column, device=denoiser.device)
    ).to(scale)
    halves = [jacobians(denoiser, soft, draws, generator) for _ in range(2)]
    of_mean = scale.new_zeros(soft.observed.shape)
    each = torch.zeros_like(of_mean)
    for (_, a), (_, b) in zip(*halves, strict=True):
        of_mean += quadratic(a.mean(0), b.mean(0), scale, member, n_num)
        for g in (a, b):
            each += quadratic(g, g, scale, member, n_num).mean(0) / 2
    return (
        of_mean.double().cpu().numpy(),
        each.double().cpu().numpy(),
    )


def _variances(soft: SoftRows) -> Floats:
    """Return the conditional variance of missing cells, [n, d]; 0 if observed."""
    variances = np.zeros(soft.observed.shape)
    for j in range(soft.layout.n_features):
        own = soft.scale[:, soft.column == j]
        number = j < soft.layout.n_num
        variances[:, j] = own[:, 0] ** 2 if number else own.sum(1) - (own**2).sum(1)
    return variances


def sensitivity(
    denoiser: Denoiser,
    table: Table,
    moments: Moments,
    *,
    rng: np.random.Generator,
    rows: int = 256,
    draws: int = 32,
) -> Sensitivity:
    """Estimate the variance-weighted sensitivity penalty of a denoiser.

    Parameters
    ----------
    denoiser : Denoiser
    table : Table
        Incomplete rows.
    moments : Moments
        Conditional means and spreads of missing cells. For a fitted model use
        `inspect_model` to get all three.
    rng : numpy.random.Generator
    rows : int
        Number of random rows, of those with both missing and observed cells.
    draws : int
        Number of times and noises per row, in each of two halves.

    Returns
    -------
    Sensitivity

    Examples
    --------
    A denoiser that predicts column b from column a, whose missing values have σ = 2:

    >>> from augmask.augmentation.moments import NumMoments
    >>> table = Table(
    ...     np.zeros((5, 2)),
    ...     np.zeros((5, 0), dtype=int),
    ...     np.array([[False, True]] * 5),
    ...     Layout(("a", "b"), (), ()),
    ... )
    >>> missing = NumMoments(np.zeros(5, np.float32), np.full(5, 2, np.float32))
    >>> none = NumMoments(np.float32([]), np.float32([]))
    >>> reader = Denoiser(lambda n, generator: lambda x: 0.5 * x[:, [0, 0]])
    >>> rng = np.random.default_rng(0)
    >>> sensitivity(reader, table, Moments((missing, none), ()), rng=rng).penalty
    1.0
    """
    if draws < 1:
        raise UsageError(f"draws must be at least 1, got {draws}")
    chosen = sample_rows(table, rows, rng)
    soft = soft_rows(table, moments)[chosen]
    seed = int(rng.integers(2**63))
    generator = torch.Generator(denoiser.device).manual_seed(seed)
    parts = [
        _row_penalties(denoiser, soft[chunk], draws, generator)
        for chunk in chunks(soft, draws)
    ]
    cells, each = (np.concatenate(kind) for kind in zip(*parts, strict=True))
    totals = cells.sum(axis=1)
    n = len(totals)
    missing = (~soft.observed).sum(axis=0)
    incomplete = np.flatnonzero(missing)
    names = np.array(soft.layout.names, dtype=object)
    columns = pd.DataFrame(
        {
            "column": names[incomplete],
            "penalty": cells.sum(axis=0)[incomplete] / missing[incomplete],
            "variance": _variances(soft).sum(axis=0)[incomplete] / missing[incomplete],
        }
    )
    return Sensitivity(
        penalty=float(totals.mean()),
        error=float(totals.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan"),
        each_draw=float(each.sum(axis=1).mean()),
        columns=columns.sort_values("penalty", ascending=False, ignore_index=True),
        n_rows=n,
    )
