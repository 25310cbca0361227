"""Mask, then reduce: the one place where losses per cell become a number.

This is the method. A backbone returns one loss per cell without knowing which cells
were observed; here missing cells drop out and the others are averaged, by one of the
paper's two means (ε keeps an empty mask finite):

    Mean_ps(l; m) = (1/B) Σ_b [ Σ_j m_bj l_bj / (Σ_j m_bj + ε) ]        over="row"
    Mean_gl(l; m) = Σ_bj m_bj l_bj / (Σ_bj m_bj + ε)                    over="batch"

Under `torch.distributed` numerators and denominators are summed over the processes
before they are divided. A mean of the processes' own means would weight a cell by how
many missing values its process happened to get.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from augmask.errors import UsageError

if TYPE_CHECKING:
    from augmask.diffusion.base import CellLoss

EPS = 1e-8

Over = Literal["batch", "row"]
Weight = float | Tensor
# CDTD; TabDiff; TabDDPM
Reduction = Literal["batch", "batch-by-type", "row-by-type"]


def _ratio(total: Tensor, count: Tensor) -> Tensor:
    """Return total / count over all processes, with the gradient DDP expects.

    DDP averages gradients over W processes, so each process differentiates W times its
    own share of the global ratio; the value returned is the global ratio itself.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return total / (count + EPS)
    sums = torch.stack([total.detach(), count.detach().to(total.dtype)])
    dist.all_reduce(sums)
    share = dist.get_world_size() * total / (sums[1] + EPS)
    return share + (sums[0] / (sums[1] + EPS) - share).detach()


def observed_mean(
    cell_losses: Tensor, observed: Tensor, over: Over = "batch"
) -> Tensor:
    """Average the losses of observed cells; missing cells contribute nothing at all.

    Parameters
    ----------
    cell_losses : Tensor [B, d]
        One loss per cell.
    observed : bool Tensor [B, d]
        True where the cell was observed.
    over : {"batch", "row"}
        Mean over all observed cells of the batch, or mean over rows of each row's mean.

    Returns
    -------
    Tensor
        A scalar, differentiable in the losses of observed cells only.

    Examples
    --------
    A missing cell drops out even if its loss is not a number:

    >>> losses = torch.tensor([[1.0, float("nan")], [2.0, 6.0]])
    >>> observed = torch.tensor([[True, False], [True, True]])
    >>> observed_mean(losses, observed).item()
    3.0
    >>> observed_mean(losses, observed, over="row").item()
    2.5
    """
    if cell_losses.shape != observed.shape:
        raise UsageError(
            "cell_losses and observed must have the same shape, "
            f"got {tuple(cell_losses.shape)} and {tuple(observed.shape)}"
        )
    # where(), not a product: 0 * nan is nan
    masked = torch.where(observed, cell_losses, torch.zeros_like(cell_losses))
    count = observed.to(masked.dtype)
    if over == "batch":
        return _ratio(masked.sum(), count.sum())
    if over == "row":
        rows = masked.sum(1) / (count.sum(1) + EPS)
        return _ratio(rows.sum(), torch.ones_like(rows).sum())
    raise UsageError(f"over must be 'batch' or 'row', got {over!r}")


def reduce_cells(
    cell: CellLoss,
    observed: Tensor,
    reduction: Reduction,
    n_num: int,
    weights: tuple[Weight, Weight] = (1.0, 1.0),
) -> Tensor:
    """Return the training loss: main plus auxiliary losses over observed cells.

    Parameters
    ----------
    cell : CellLoss
    observed : bool Tensor [B, d]
        The cells that are supervised.
    reduction : {"batch", "batch-by-type", "row-by-type"}
        By type: numeric and categorical cells are averaged separately and added.
    n_num : int
        Number of numeric columns, which come first.
    weights : pair of float or Tensor
        Of the numeric and the categorical mean, if they are separate.
    """
    over: Over = "row" if reduction == "row-by-type" else "batch"
    parts: list[tuple[slice, Weight]] = [(slice(None), 1.0)]
    if reduction != "batch":
        by_type = (slice(0, n_num), slice(n_num, None))
        parts = list(zip(by_type, weights, strict=True))
    total = cell.main.new_zeros(())
    for losses in (cell.main, *cell.aux.values()):
        for columns, weight in parts:
            if observed[:, columns].shape[1]:
                mean = observed_mean(
                    losses[:, columns], observed[:, columns], over=over
                )
                total = total + weight * mean
    return total
