"""The running average of the weights, which is what gets sampled from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor


class WeightAverage:
    """Exponential average of everything learned, schedules included.

    The decay ramps up as (1 + k) / (10 + k), so early steps do not linger.

    Parameters
    ----------
    live : Tensor
        The weights, which change where they lie.
    decay : float
    """

    def __init__(self, live: Tensor, decay: float) -> None:
        self.decay = decay
        self.live = live.detach()
        self.weights = self.live.clone()

    def ema_weight(self, step: int) -> float:
        """Return how far step `step`, from 0, pulls the average to the weights."""
        return 1 - min(self.decay, (1 + step) / (10 + step))

    def update(self, ema_weight: Tensor) -> None:
        """Move the average towards the weights by a share that lies on the device."""
        self.weights.lerp_(self.live, ema_weight)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the backbone carry the average for a while."""
        live = self.live.clone()
        self.live.copy_(self.weights)
        try:
            yield
        finally:
            self.live.copy_(live)
