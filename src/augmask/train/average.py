"""The running average of the weights, which is what gets sampled from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from augmask.diffusion.base import Backbone


class WeightAverage:
    """Exponential average of everything learned, schedules included.

    The decay ramps up as (1 + k) / (10 + k), so early steps do not linger.
    """

    def __init__(self, backbone: Backbone, decay: float) -> None:
        self.decay = decay
        self._live: list[Tensor] = list(backbone.parameters())
        self.weights = [p.detach().clone() for p in self._live]

    def pull(self, step: int) -> float:
        """Return how far step `step`, from 0, pulls the average to the weights."""
        return 1 - min(self.decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def update(self, pull: Tensor) -> None:
        """Move the average towards the weights by a share that lies on the device."""
        steps = torch._foreach_sub(self._live, self.weights)
        torch._foreach_mul_(steps, pull)
        torch._foreach_add_(self.weights, steps)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the backbone carry the average for a while."""
        live = [p.detach().clone() for p in self._live]
        self.copy_in(self.weights)
        try:
            yield
        finally:
            self.copy_in(live)

    @torch.no_grad()
    def copy_in(self, weights: list[Tensor]) -> None:
        """Overwrite the backbone's parameters."""
        for parameter, value in zip(self._live, weights, strict=True):
            parameter.copy_(value)
