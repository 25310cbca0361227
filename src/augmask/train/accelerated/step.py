"""The training step with a compiled loss, a fused update and a CUDA graph."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from augmask.config import Settings
from augmask.diffusion.compiled import Compiled, compile_function
from augmask.diffusion.cuda_graph import CudaGraph, first_line
from augmask.train.optimizer import BETA1, EMA, EPS, FlatAdamW

if TYPE_CHECKING:
    from augmask.train.data import TrainingData
    from augmask.train.shards import ShardedData
    from augmask.train.trainer import Trainer

log = logging.getLogger("augmask")


class FixedIndices:
    """Copies the indices of batches to fixed addresses, where a CUDA graph reads them.

    Prefetched batches have no indices: their rows are already at fixed addresses.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, Tensor] = {}

    def load(self, loaders: Iterable[TrainingData | ShardedData]) -> None:
        """Move the indices of the current batch of every loader, by one copy."""
        targets, sources = [], []
        for data in loaders:
            if data.indices is None:
                continue
            buffer = self._buffers.get(id(data))
            if buffer is None or len(buffer) != len(data.indices):
                buffer = self._buffers[id(data)] = torch.empty_like(data.indices)
            targets.append(buffer)
            sources.append(data.indices)
            data.indices = buffer
        if targets:
            torch._foreach_copy_(targets, sources)


def adam_ema_step(
    weights: Tensor,
    gradient: Tensor,
    state: dict[str, Tensor],
    ema: Tensor,
    lr: Tensor,
    ema_weight: Tensor,
    beta2: float,
) -> None:
    """Update weights by AdamW without weight decay, and their EMA, in place.

    The formula of `torch.optim.AdamW`, whose own kernel cannot include the EMA.
    """
    count, first, second = state["step"], state["exp_avg"], state["exp_avg_sq"]
    count += 1
    first.lerp_(gradient, 1 - BETA1)
    second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    size = lr / (1 - BETA1**count)
    weights.sub_(size * first / ((second / (1 - beta2**count)).sqrt() + EPS))
    ema.lerp_(weights, ema_weight)


class FusedUpdate:
    """`optimizer.step()` and `ema.update()`, as one kernel in compiled runs on CUDA."""

    def __init__(self, optimizer: FlatAdamW, ema: EMA, settings: Settings) -> None:
        self._optimizer, self._ema = optimizer, ema
        self._fused: Callable[..., None] | None = None
        if optimizer.weights.device.type == "cuda" and settings.compiled("cuda"):
            self._fused = compile_function(adam_ema_step)

    @torch.no_grad()
    def __call__(self) -> None:
        """Update the weights and their EMA."""
        optimizer, ema = self._optimizer, self._ema
        if self._fused is not None:
            try:
                self._fused(
                    optimizer.weights.detach(),
                    optimizer.weights.grad,
                    optimizer.state,
                    ema.weights,
                    optimizer.lr,
                    ema.step_weight,
                    optimizer.beta2,
                )
                return
            except Exception as error:
                # compilation fails before any weight has changed
                log.warning(
                    "torch.compile failed (%s); falling back to torch.optim.AdamW",
                    first_line(error),
                )
                self._fused = None
        optimizer.step()
        ema.update()


class AcceleratedStep:
    """`Trainer.train_step`, compiled if `compiled`, in a CUDA graph if `graphed`."""

    def __init__(self, trainer: Trainer, compiled: bool, graphed: bool) -> None:
        self._trainer = trainer
        self._loss: Any = trainer.loss
        if compiled:
            self._loss = Compiled(trainer.loss, "training")
        self._update = FusedUpdate(trainer.optimizer, trainer.ema, trainer.settings)
        self._indices = FixedIndices()
        self.graph: CudaGraph | None = None
        if graphed:
            self.graph = CudaGraph(self._compute, [trainer.noise], "training")

    def __call__(self) -> None:
        """Take one step."""
        self._indices.load([self._trainer.data])
        (self.graph or self._compute)()

    def _compute(self) -> None:
        trainer = self._trainer
        batch, supervised = trainer.data.batch()
        loss, cells = self._loss(trainer.noise, batch, supervised, trainer.done)
        trainer.backward(loss)
        self._update()
        trainer.add_loss(loss, cells, supervised)
