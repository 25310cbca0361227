"""Train many models of the same architecture as one batched program.

A network of three million weights leaves most of a GPU idle. Models that differ only in
data, mask, strategy or seed can share their steps: their weights are the rows of one
tensor, and `torch.func.vmap` turns the loss of one model into the losses of all. Every
model keeps its own trainer, with its own shuffle, noise and history, and ends as it
would alone, up to rounding.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from augmask.diffusion.base import Batch
from augmask.diffusion.compiled import compile_function
from augmask.diffusion.cuda_graph import CudaGraph, first_line
from augmask.diffusion.random_draws import DrawSpec, RecordingRNG, ReplayRNG, draw_all
from augmask.train.accelerated.step import FixedIndices, FusedUpdate
from augmask.train.accelerated.streams import SideStream
from augmask.train.flat_params import FlatParams
from augmask.train.optimizer import EMA, FlatAdamW

if TYPE_CHECKING:
    from augmask.train.trainer import Trainer

log = logging.getLogger("augmask")


def can_batch(one: Trainer, other: Trainer) -> bool:
    """Whether two trainers can share their steps."""
    return (
        type(one.backbone) is type(other.backbone)
        and getattr(one.backbone, "supports_batching", True)
        and one.settings == other.settings
        and one.device == other.device
        and one.flat.shapes == other.flat.shapes
        and one.flat.weights.dtype == other.flat.weights.dtype
        and one.data.layout.n_num == other.data.layout.n_num
        and _same_constants(one.backbone, other.backbone)
    )


def _state_buffers(module: Any) -> dict[str, Tensor]:
    """Return the buffers in a model's state dict, which may differ between models."""
    learned = {name for name, _ in module.named_parameters()}
    return {k: v for k, v in module.state_dict().items() if k not in learned}


def _same_constants(one: Any, other: Any) -> bool:
    """Whether all other buffers, which follow from the layout, are equal."""
    mine, theirs = dict(one.named_buffers()), dict(other.named_buffers())
    state = _state_buffers(one)
    return mine.keys() == theirs.keys() and all(
        mine[k].shape == theirs[k].shape
        and (k in state or torch.equal(mine[k], theirs[k]))
        for k in mine
    )


class _Loss(nn.Module):
    """A trainer's loss as a module call, as `functional_call` needs it."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        self.backbone: Any = trainer.backbone
        self._trainer = [trainer]  # in a list, so that torch does not register it

    def forward(
        self, noise: Any, batch: Batch, supervised: Tensor, done: Tensor
    ) -> Tensor:
        return self._trainer[0].loss(noise, batch, supervised, done)[0]


def _draw_specs(trainer: Trainer) -> list[DrawSpec]:
    """Return the random draws of a step, from a dry run with its own generator."""
    recorder = RecordingRNG(torch.Generator(trainer.device))
    batch, supervised = trainer.data.example(trainer.settings.batch_size)
    with torch.no_grad():
        done = torch.zeros((), device=trainer.device)
        trainer.loss(recorder, batch, supervised, done)
    return recorder.specs


class BatchedModels:
    """Runs the steps of several trainers as one program.

    `Trainer.step` prepares the step of one model; `step` takes the steps of all. The
    trainers must be compatible (`can_batch`) and not started; those in `members` have
    not been detached.
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        first = trainers[0]
        settings, device = first.settings, first.device
        self._first = _Loss(first)
        self._draws = _draw_specs(first)
        self._flat = FlatParams([t.backbone for t in trainers])
        self._ema = EMA(self._flat.weights, settings.ema)
        self._optimizer = FlatAdamW(self._flat.weights, settings)
        self._update = FusedUpdate(self._optimizer, self._ema, settings)
        self._done = torch.zeros((), device=device)
        self._loss_sums = torch.zeros(len(trainers), device=device)
        self._buffers = {
            name: torch.stack([_state_buffers(t.backbone)[name] for t in trainers])
            for name in _state_buffers(first.backbone)
        }
        # The graph keeps drawing from the generator of a trainer that has left, so
        # that trainer gets a new one.
        self._data = [t.data for t in trainers]
        self._noise = [t.noise for t in trainers]
        self._streams = [SideStream(device) for _ in trainers]
        self._indices = FixedIndices()
        self._losses = self._all_losses
        if settings.compiled(device.type):
            self._losses = compile_function(self._all_losses)
        self._run = self._compute
        if device.type == "cuda":
            self._run = CudaGraph(self._compute, self._noise, "training")
        self._started = False
        self.members = list(trainers)
        for i, trainer in enumerate(trainers):
            row = slice(i, i + 1)
            trainer.attach(
                self,
                self._flat.row(i),
                self._ema.weights[row],
                {k: v[row] if v.dim() else v for k, v in self._optimizer.state.items()},
                self._loss_sums[i],
            )

    def _one_loss(
        self,
        weights: dict[str, Tensor],
        buffers: dict[str, Tensor],
        batch: Batch,
        supervised: Tensor,
        noise: list[Tensor],
    ) -> Tensor:
        named = {f"backbone.{k}": v for k, v in (weights | buffers).items()}
        arguments = (ReplayRNG(noise), batch, supervised, self._done)
        loss: Tensor = functional_call(self._first, named, arguments)
        return loss

    def _all_losses(
        self, weights: Tensor, batch: Batch, supervised: Tensor, noise: list[Tensor]
    ) -> Tensor:
        """Return the loss of every model, [M]."""
        losses: Tensor = vmap(self._one_loss)(
            self._flat.by_name(weights), self._buffers, batch, supervised, noise
        )
        return losses

    def _inputs(self) -> tuple[Batch, Tensor, list[Tensor]]:
        """Return batches, supervised cells and noise of all models, stacked.

        Each model gathers and draws on its own side stream: alone it would leave most
        of the GPU idle.
        """
        rows, device = [], self._done.device
        noise = [
            torch.empty(len(self._noise), *shape, dtype=dtype, device=device)
            for _, shape, dtype in self._draws
        ]
        for stream in self._streams:
            stream.fork()
        for i, stream in enumerate(self._streams):
            with stream.active():
                rows.append(self._data[i].batch())
                draw_all(self._draws, self._noise[i], [value[i] for value in noise])
        for stream in self._streams:
            stream.join()
        batches, supervised = zip(*rows, strict=True)
        num, cat = (torch.stack(parts) for parts in zip(*batches, strict=True))
        return Batch(num, cat), torch.stack(supervised), noise

    def _compute(self) -> None:
        """Do the work of `Trainer.train_step` for all models."""
        batch, supervised, noise = self._inputs()
        self._flat.weights.grad = None
        losses = self._losses(self._flat.weights, batch, supervised, noise)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        self._update()
        self._loss_sums += losses.detach()

    def step(self) -> None:
        """Take the step that all members have prepared."""
        if not self.members:
            return
        self._indices.load(trainer.data for trainer in self.members)
        schedule = self.members[0].schedule
        self._done.fill_(schedule.done)
        self._optimizer.set_lr(schedule.lr)
        self._ema.step_weight.fill_(schedule.ema_weight)
        if self._started:
            self._run()
            return
        self._started = True
        if self._losses != self._all_losses:
            error = self._try_step()
            if error is None:
                return
            log.warning(
                "torch.compile failed (%s); falling back to eager batched training",
                first_line(error),
            )
            self._losses = self._all_losses
        error = self._try_step()
        if error is not None:
            log.warning(
                "batched training failed (%s); training models one at a time",
                first_line(error),
            )
            for trainer in list(self.members):
                trainer.detach()
                trainer.run_step()

    def _try_step(self) -> Exception | None:
        """Take the step; on failure rewind the noise and return the error."""
        before = [noise.get_state() for noise in self._noise]
        try:
            self._run()
        except Exception as error:
            for noise, state in zip(self._noise, before, strict=True):
                noise.set_state(state)
            return error
        return None
