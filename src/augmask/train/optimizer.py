"""AdamW, the exponential moving average of the weights, the learning-rate schedule."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from augmask.config import Settings

MIN_LR = 1e-6
BETA1 = 0.9
EPS = 1e-8


def learning_rate(peak: float, step: int, warmup: int, done: float) -> float:
    """Return the learning rate: linear warm-up, then linear decay to almost 0.

    `step` counts from 0. `done` is the fraction of the training completed, by steps or
    by time, whichever is larger: a run with a time limit also ends with a low rate.

    Examples
    --------
    >>> [round(learning_rate(1.0, s, 2, s / 10), 2) for s in (0, 1, 5, 10)]
    [0.5, 0.9, 0.5, 0.0]
    """
    return max(peak * min((step + 1) / max(warmup, 1), 1.0) * (1 - done), MIN_LR)


class EMA:
    """Exponential moving average of the weights `live`; you sample from `weights`.

    The decay ramps up as (1 + k) / (10 + k), so that early steps are soon forgotten.
    `step_weight`, the share of the live weights in the next update, is on the device.
    """

    def __init__(self, live: Tensor, decay: float) -> None:
        self.decay = decay
        self.live = live.detach()
        self.weights = self.live.clone()
        self.step_weight = torch.zeros((), device=live.device)

    def weight_at(self, step: int) -> float:
        """Return the share of the live weights in the update of step `step`, from 0."""
        return 1 - min(self.decay, (1 + step) / (10 + step))

    def update(self) -> None:
        """Move the average towards the live weights by `step_weight`."""
        self.weights.lerp_(self.live, self.step_weight)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context manager: put the averaged weights into the backbone."""
        live = self.live.clone()
        self.live.copy_(self.weights)
        try:
            yield
        finally:
            self.live.copy_(live)


class FlatAdamW:
    """`torch.optim.AdamW` without weight decay, for weights in one tensor.

    `state`, the step count and both moments, is allocated at once and updated in place.
    The learning rate `lr` is on the device, where a CUDA graph can read it.
    """

    def __init__(self, weights: Tensor, settings: Settings) -> None:
        device = weights.device
        self.weights, self.beta2 = weights, settings.beta2
        self.state = {
            "step": torch.zeros((), device=device),
            "exp_avg": torch.zeros_like(weights.detach()),
            "exp_avg_sq": torch.zeros_like(weights.detach()),
        }
        self.lr = torch.zeros((), device=device)
        on_cuda = device.type == "cuda"
        self._torch = torch.optim.AdamW(
            [weights],
            lr=self.lr if on_cuda else settings.lr,
            betas=(BETA1, settings.beta2),
            eps=EPS,
            weight_decay=0.0,
            fused=device.type in ("cpu", "cuda"),
            capturable=on_cuda,
        )
        self._torch.state[weights] = self.state

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next step."""
        self.lr.fill_(lr)
        if self.lr.device.type != "cuda":
            self._torch.param_groups[0]["lr"] = lr

    def step(self) -> None:
        """Update the weights from their gradient."""
        self._torch.step()
