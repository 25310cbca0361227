"""Rows as vectors: numbers, then a one-hot block per categorical column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from augmask.diffusion.ragged import Ragged
from augmask.table.table import Layout, Table

# maximum number of rows generated at once
CHUNK = 65_536

Rows = tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]


def on_device(table: Table, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return numbers (float32), codes (long) and the mask of observed cells."""
    num = torch.from_numpy(np.array(table.num, dtype=np.float32))
    cat = torch.from_numpy(np.array(table.cat, dtype=np.int64))
    observed = torch.from_numpy(np.array(table.observed))
    return num.to(device), cat.to(device), observed.to(device)


def in_chunks(
    draw: Callable[[int], tuple[Tensor, Tensor]], n: int, chunk: int = CHUNK
) -> Rows:
    """Return `n` rows, drawn in chunks of at most `chunk` rows.

    Examples
    --------
    >>> draw = lambda k: (torch.zeros(k, 2), torch.zeros(k, 1, dtype=torch.long))
    >>> [part.shape for part in in_chunks(draw, 5, chunk=2)]
    [(5, 2), (5, 1)]
    """
    sizes = [min(chunk, n - start) for start in range(0, n, chunk)] or [0]
    drawn = [draw(size) for size in sizes]
    num = torch.cat([num.cpu() for num, _ in drawn]).numpy().astype(np.float32)
    cat = torch.cat([cat.cpu() for _, cat in drawn]).numpy().astype(np.int32)
    return num, cat


class Blocks(nn.Module):
    """Numbers and one-hot blocks, concatenated to one matrix.

    Parameters
    ----------
    layout : Layout

    Attributes
    ----------
    width : int
        Columns of the matrix, L = d_num + Σ_j K_j.
    feature : Tensor [L]
        The feature of each column of the matrix.
    ragged : Ragged
        The blocks.

    Shape
    -----
    - num: [n, d_num], cat: [n, C] codes, observed: [n, d], matrix: [n, L]

    Examples
    --------
    >>> blocks = Blocks(Layout(("age",), ("sex",), (2,)))
    >>> matrix = blocks.matrix(torch.tensor([[0.5]]), torch.tensor([[1]]))
    >>> matrix.tolist()
    [[0.5, 0.0, 1.0]]
    >>> blocks.expanded(torch.tensor([[True, False]])).tolist()
    [[True, False, False]]
    >>> num, block = blocks.split(matrix)
    >>> blocks.codes(block).tolist()
    [[1]]
    """

    feature: Tensor

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.n_num = layout.n_num
        self.ragged = Ragged(layout.cards, layout.reserved)
        self.width = layout.n_num + self.ragged.n_slots
        feature = torch.cat(
            [torch.arange(layout.n_num), layout.n_num + self.ragged.column]
        )
        self.register_buffer("feature", feature, persistent=False)

    def matrix(self, num: Tensor, cat: Tensor) -> Tensor:
        """Return the numbers followed by the one-hot blocks of the codes."""
        return torch.cat([num, self.ragged.one_hot(cat, num)], 1)

    def expanded(self, observed: Tensor) -> Tensor:
        """Expand a mask of cells to a mask of the matrix."""
        return observed.index_select(1, self.feature)

    def split(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numbers and the blocks."""
        return matrix[:, : self.n_num], matrix[:, self.n_num :]

    def allowed(self, block: Tensor) -> Tensor:
        """Return the blocks with -inf at codes that are never generated."""
        return block.masked_fill(self.ragged.forbidden, -torch.inf)

    def codes(self, block: Tensor) -> Tensor:
        """Return the level with the largest entry in every block."""
        return self.ragged.argmax(self.allowed(block))
