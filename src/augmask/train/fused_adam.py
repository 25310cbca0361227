"""The optimiser's step and the pull on the average, as one where kernels are fused.

AdamW without decay, as torch has it. torch's own kernels for it take one parameter at a
time; all weights of a model are one parameter here, and written out like this they and
their average are moved in a single pass over memory once that is compiled.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from augmask.config import Settings
from augmask.diffusion.compiled import fused
from augmask.diffusion.cuda_graph import reason
from augmask.train.average import WeightAverage

log = logging.getLogger("augmask")

BETA1 = 0.9
EPS = 1e-8


def move(
    weights: Tensor,
    gradient: Tensor,
    memory: dict[str, Tensor],
    average: Tensor,
    rate: Tensor,
    ema_weight: Tensor,
    beta2: float,
) -> None:
    """Move weights against the gradient, and the average towards them, in place."""
    count, first, second = memory["step"], memory["exp_avg"], memory["exp_avg_sq"]
    count += 1
    first.lerp_(gradient, 1 - BETA1)
    second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    size = rate / (1 - BETA1**count)
    weights.sub_(size * first / ((second / (1 - beta2**count)).sqrt() + EPS))
    average.lerp_(weights, ema_weight)


class Adam:
    """Moves weights, which lie in one tensor, and their average.

    Parameters
    ----------
    weights : Parameter
        With a gradient when a step is taken.
    average : WeightAverage
        Of these weights.
    settings : Settings

    Attributes
    ----------
    memory : dict of Tensor
        What a step depends on besides: the number of steps and two running means.
    """

    def __init__(
        self, weights: Tensor, average: WeightAverage, settings: Settings
    ) -> None:
        device = weights.device
        self._weights, self._average, self._beta2 = weights, average, settings.beta2
        self.memory = {
            "step": torch.zeros((), device=device),
            "exp_avg": torch.zeros_like(weights.detach()),
            "exp_avg_sq": torch.zeros_like(weights.detach()),
        }
        # a recorded step reads both where they lie
        self.rate = torch.zeros((), device=device)
        self.ema_weight = torch.zeros((), device=device)
        on_gpu = device.type == "cuda"
        self._move = fused(move) if on_gpu and settings.compiled("cuda") else None
        self._torch = torch.optim.AdamW(
            [weights],
            lr=self.rate if on_gpu else settings.lr,
            betas=(BETA1, settings.beta2),
            eps=EPS,
            weight_decay=0.0,
            fused=device.type in ("cpu", "cuda"),
            capturable=on_gpu,
        )
        self._torch.state[weights] = self.memory

    def set(self, rate: float, ema_weight: float) -> None:
        """Set the learning rate and the share of the pull for the coming step."""
        self.rate.fill_(rate)
        self.ema_weight.fill_(ema_weight)
        if self._weights.device.type != "cuda":
            self._torch.param_groups[0]["lr"] = rate

    @torch.no_grad()
    def step(self) -> None:
        """Move the weights and the average."""
        if self._move is not None:
            try:
                self._move(
                    self._weights.detach(),
                    self._weights.grad,
                    self.memory,
                    self._average.weights,
                    self.rate,
                    self.ema_weight,
                    self._beta2,
                )
                return
            except Exception as error:
                # nothing has moved: it fails while it is compiled
                log.warning("weights move by torch's own kernels: %s", reason(error))
                self._move = None
        self._torch.step()
        self._average.update(self.ema_weight)
