"""An endless shuffle: every pass visits every row, in an order of its own.

On a GPU the order of the next pass is drawn beside the steps of this one: sorting
random numbers takes many small kernels, and the next step would wait for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from augmask.augmentation.completions import Completions
from augmask.rng import stream
from augmask.train import parallel
from augmask.train.streams import Lane


class _Pass(NamedTuple):
    """The order of a pass, and the state of the generator that it was drawn in."""

    order: Tensor
    began: Tensor


class Shuffle:
    """Numbers of pairs of row and completion: row r with completion k is k n + r.

    A batch may reach over the end of one pass into the next, so no row is ever left
    out. With the policy `stack` a pass visits every pair.

    Parameters
    ----------
    completions : Completions
    seed : int
    home : torch.device
        Where the orders lie.
    shared : bool
        Whether all processes must be given the order of the first.
    """

    def __init__(
        self, completions: Completions, seed: int, home: torch.device, shared: bool
    ) -> None:
        self._completions, self._seed, self._shared = completions, seed, shared
        self._generator = torch.Generator(home).manual_seed(seed)
        # processes would have to talk in the same order on every lane
        self._lane = Lane(home) if parallel.size() == 1 else Lane(None)
        self._epoch, self._cursor = 0, 0
        self._now: _Pass | None = None
        self._next: _Pass | None = None

    def take(self, size: int) -> Tensor:
        """Return the numbers of the next `size` pairs."""
        parts: list[Tensor] = []
        while size:
            order = self._order()
            part = order[self._cursor : self._cursor + size]
            self._cursor += len(part)
            size -= len(part)
            parts.append(part)
            if self._cursor >= len(order):
                self._epoch, self._cursor, self._now = self._epoch + 1, 0, None
        return (torch.cat(parts) if len(parts) > 1 else parts[0]).long()

    def _order(self) -> Tensor:
        if self._now is None:
            self._now = self._next or self._drawn(self._epoch)
            self._lane.leave()
            self._next = self._drawn(self._epoch + 1) if self._lane.beside else None
        return self._now.order

    def _drawn(self, epoch: int) -> _Pass:
        began = self._generator.get_state()
        n, home = len(self._completions.table), self._generator.device
        rng = stream(self._seed, "epoch", epoch)
        draw = self._completions.draw_of_epoch(epoch, rng)
        pairs = n * self._completions.n_draws
        # long numbers would take as much as the table's own
        short = home.type == "cpu" and pairs < 2**31
        self._lane.start()
        with self._lane.taken():
            order = torch.randperm(
                pairs if draw is None else n,
                generator=self._generator,
                device=home,
                dtype=torch.int32 if short else torch.int64,
            )
            if draw is not None:
                order += draw * n
        if self._shared:
            # GPUs of two kinds may shuffle differently from the same seed
            parallel.copy_lead([order])
        return _Pass(order, began)

    def state(self) -> dict[str, Tensor]:
        """Return where the shuffle stands, for a checkpoint.

        The orders themselves are not in it: they are made again from the generator,
        because they may be as long as the table.
        """
        coming = self._now or self._next
        began = coming.began if coming else self._generator.get_state()
        return {
            "generator": began,
            "position": torch.tensor([self._cursor, self._epoch]),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state from `state()`."""
        cursor, epoch = state["position"].tolist()
        pairs = len(self._completions.table) * self._completions.n_draws
        if not (0 <= cursor < pairs and epoch >= 0):
            raise ValueError(f"there is no row {cursor} of pass {epoch}")
        self._generator.set_state(state["generator"].cpu())
        self._cursor, self._epoch = cursor, epoch
        self._now = self._next = None
