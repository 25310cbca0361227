"""Categorical columns of different sizes in one flat tensor, without a loop.

All levels of all columns are one row of S = Σ_j K_j slots: column j owns the slots
offset_j .. offset_j + K_j - 1. Sums over a column's levels are one product with the 0/1
matrix of slots and columns. Padding every column to the widest one would cost eight
times as much on a table with one 42-level column.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from augmask.diffusion.random_draws import RNG, uniform_like

SPLIT = float(2**13 + 1)  # Veltkamp's constant for the first eleven bits


class Ragged(nn.Module):
    """Softmax, cross-entropy and argmax of C flat columns.

    Parameters
    ----------
    cards : tuple of int
        Levels of each column, K_j.
    reserved : bool
        Whether each column's last level is a placeholder, which the network may read
        but never emits; `forbidden` marks its slot.

    Shape
    -----
    - logits, probabilities: [B, S]
    - codes: [B, C], each in 0 .. K_j - 1

    Examples
    --------
    >>> ragged = Ragged((2, 3))
    >>> logits = torch.tensor([[0.0, 0.0, 5.0, 0.0, 0.0]])
    >>> ragged.softmax(logits)[0, :2].tolist()
    [0.5, 0.5]
    >>> ragged.argmax(logits).tolist()
    [[0, 0]]
    """

    offsets: Tensor
    column: Tensor
    member: Tensor
    pad: Tensor
    place: Tensor
    forbidden: Tensor
    emitted: Tensor

    def __init__(self, cards: tuple[int, ...], reserved: bool = False) -> None:
        super().__init__()
        # sizes are read from these tensors, also under a meta device
        with torch.device("cpu"):
            self._register(cards, reserved)

    def _register(self, cards: tuple[int, ...], reserved: bool) -> None:
        sizes = torch.tensor(cards, dtype=torch.long)
        ends = sizes.cumsum(0)
        column = torch.repeat_interleave(torch.arange(len(cards)), sizes)
        self.n_slots = int(sizes.sum())
        self.register_buffer("offsets", ends - sizes, persistent=False)
        self.register_buffer("column", column, persistent=False)
        # one_hot() takes three times the memory on the way
        member = torch.zeros(self.n_slots, max(len(cards), 1))
        member.scatter_(1, column[:, None], 1.0)
        self.register_buffer("member", member[:, : len(cards)], persistent=False)
        # Columns of similar size are reduced together: each is padded to the next power
        # of two by repeating its last slot, which changes neither maximum nor argmax.
        widths = [1 << (card - 1).bit_length() for card in cards]
        self.sizes = [(w, widths.count(w)) for w in sorted(set(widths))] or [(1, 0)]
        by_width = sorted(range(len(cards)), key=widths.__getitem__)
        pad = [
            torch.arange(widths[j]).clamp(max=cards[j] - 1) + self.offsets[j]
            for j in by_width
        ]
        self.register_buffer("pad", torch.cat([sizes[:0], *pad]), persistent=False)
        place = torch.argsort(torch.tensor(by_width, dtype=torch.long))
        self.register_buffer("place", place, persistent=False)
        forbidden = torch.zeros(self.n_slots, dtype=torch.bool)
        if reserved:
            forbidden[ends - 1] = True
        self.register_buffer("forbidden", forbidden, persistent=False)
        emitted = torch.nonzero(~forbidden)[:, 0]
        self.register_buffer("emitted", emitted, persistent=False)

    def slots(self, codes: Tensor) -> Tensor:
        """Return the slot of every code."""
        return codes + self.offsets

    def _by_column(
        self, values: Tensor, reduce: Callable[[Tensor, int], Tensor]
    ) -> Tensor:
        """Reduce over the levels of every column, [B, C]."""
        # index_select() is twice as fast as indexing
        padded = values.index_select(1, self.pad)
        parts = torch.split(padded, [width * count for width, count in self.sizes], 1)
        reduced = [
            reduce(part.view(len(values), count, width), -1)
            for part, (width, count) in zip(parts, self.sizes, strict=True)
        ]
        return torch.cat(reduced, 1).index_select(1, self.place)

    def _shifted_exp(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return exp(logits - column maximum) and the maximum, [B, S] and [B, C]."""
        # each column needs its own maximum: one column far below the row's maximum
        # would underflow to a sum of zero. It is a constant for the gradient.
        top = self._by_column(logits.detach(), torch.amax)
        return (logits - top.index_select(1, self.column)).exp(), top

    def total(self, weights: Tensor) -> Tensor:
        """Return the sum over each column's levels, [B, C]."""
        member = self.member.to(weights.dtype)
        if weights.is_cuda and weights.dtype == torch.float32:
            # TF32 rounds every weight to eleven bits, and probabilities would no longer
            # sum to one. So the first eleven bits (Veltkamp's splitting) and the rest
            # are summed separately; float64 would be three times slower.
            raised = SPLIT * weights.detach()
            first = raised - (raised - weights.detach())
            return first @ member + (weights - first) @ member
        return weights @ member

    def normalise(self, weights: Tensor) -> Tensor:
        """Return the weights divided by their column's sum, [B, S]."""
        # index_select(), not indexing: its gradient is summed in a fixed order
        return weights / self.total(weights).index_select(1, self.column)

    def softmax(self, logits: Tensor) -> Tensor:
        """Return probabilities that sum to one within every column."""
        raised, _ = self._shifted_exp(logits)
        return self.normalise(raised)

    def one_hot(self, codes: Tensor, like: Tensor) -> Tensor:
        """Return 1 in the slot of every code, else 0, [B, S]; dtype as `like`."""
        zeros = like.new_zeros(len(codes), self.n_slots)
        return zeros.scatter(1, self.slots(codes), 1.0)

    def cross_entropy(self, logits: Tensor, codes: Tensor) -> Tensor:
        """Return -log p of the given codes, [B, C]."""
        raised, top = self._shifted_exp(logits)
        log_sum = self.total(raised).log() + top
        return log_sum - logits.gather(1, self.slots(codes))

    def argmax(self, logits: Tensor) -> Tensor:
        """Return the code of the largest logit of every column, [B, C]."""
        return self._by_column(logits, torch.argmax)

    def draw(self, weights: Tensor, generator: RNG) -> Tensor:
        """Return codes drawn with probability proportional to the weights, [B, C]."""
        # the first of exponential clocks whose rates are the weights; a uniform of 0
        # makes a clock that never rings, and no clock rings at time 0
        return self.argmax(weights / -uniform_like(weights, generator).log())
