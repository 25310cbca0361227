"""An endless shuffle: every epoch visits every row, in a new random order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from augmask.augmentation.completions import Completions
from augmask.rng import stream
from augmask.train import parallel


class Epoch(NamedTuple):
    """The order of one epoch, and the generator state that it was drawn from."""

    order: Tensor
    generator_state: Tensor


class Shuffle:
    """Indices of pairs of row and completion: row r with completion k is k n + r.

    A batch may span two epochs, so no row is ever left out. With the plan `stack` an
    epoch visits every pair. If `synchronized`, all processes use the order of the main
    process.
    """

    def __init__(
        self,
        completions: Completions,
        seed: int,
        device: torch.device,
        synchronized: bool,
    ) -> None:
        self._completions, self._seed = completions, seed
        self._synchronized = synchronized
        self._generator = torch.Generator(device).manual_seed(seed)
        self._epoch, self._cursor = 0, 0
        self._current: Epoch | None = None

    def take(self, size: int) -> Tensor:
        """Return the indices of the next `size` pairs."""
        parts: list[Tensor] = []
        while size:
            if self._current is None:
                self._current = self._start_epoch()
            order = self._current.order
            part = order[self._cursor : self._cursor + size]
            self._cursor += len(part)
            size -= len(part)
            parts.append(part)
            if self._cursor >= len(order):
                self._epoch, self._cursor, self._current = self._epoch + 1, 0, None
        return (torch.cat(parts) if len(parts) > 1 else parts[0]).long()

    def _start_epoch(self) -> Epoch:
        return self._draw(self._epoch)

    def _draw(self, epoch: int) -> Epoch:
        """Draw the order of an epoch."""
        generator_state = self._generator.get_state()
        n, device = len(self._completions.table), self._generator.device
        rng = stream(self._seed, "epoch", epoch)
        completion = self._completions.draw_of_epoch(epoch, rng)
        pairs = n * self._completions.n_draws
        # 64-bit indices would take as much memory as the table itself
        short = device.type == "cpu" and pairs < 2**31
        order = torch.randperm(
            pairs if completion is None else n,
            generator=self._generator,
            device=device,
            dtype=torch.int32 if short else torch.int64,
        )
        if completion is not None:
            order += completion * n
        if self._synchronized:
            # different GPU models may shuffle differently from the same seed
            parallel.broadcast([order])
        return Epoch(order, generator_state)

    def state(self) -> dict[str, Tensor]:
        """Return the position in the shuffle, for a checkpoint.

        Orders can be as long as the table, so the generator state that reproduces
        them is stored instead.
        """
        epoch = self._current
        generator = epoch.generator_state if epoch else self._generator.get_state()
        position = torch.tensor([self._cursor, self._epoch])
        return {"generator": generator, "position": position}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Return to a state from `state()`."""
        cursor, epoch = state["position"].tolist()
        pairs = len(self._completions.table) * self._completions.n_draws
        if not (0 <= cursor < pairs and epoch >= 0):
            raise ValueError(f"there is no row {cursor} in epoch {epoch}")
        self._generator.set_state(state["generator"].cpu())
        self._cursor, self._epoch = cursor, epoch
        self._current = None
