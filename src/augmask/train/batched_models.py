"""Many models of one make as one: their steps are single, batched products.

A network of three million weights leaves most of a GPU idle. Models that differ only in
data, mask, strategy or seed can take their steps together: their weights are the rows
of one tensor, and `torch.func` turns the loss of one into the losses of all. Every
model keeps its own trainer, with its own shuffle, noise and books; the stack only takes
over the arithmetic of the step. So each ends as it would alone, but for rounding.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from augmask.diffusion.base import Batch
from augmask.diffusion.compiled import fused
from augmask.diffusion.cuda_graph import CudaGraph, reason
from augmask.diffusion.noise import DrawSpec, RecordingRNG, ReplayRNG, drawn
from augmask.train.average import WeightAverage
from augmask.train.data import place
from augmask.train.flat_params import Flat
from augmask.train.fused_adam import Adam
from augmask.train.streams import Lane
from augmask.train.trainer import Trainer

log = logging.getLogger("augmask")


MOST = 16  # more at once are no faster


def stacked(trainers: Sequence[Trainer]) -> list[Stack]:
    """Return stacks of those trainers that are alike and gain by it.

    A CPU has nothing to gain: its cores are busy with one model.
    """
    groups: list[list[Trainer]] = []
    for trainer in trainers:
        if trainer.device.type != "cuda":
            continue
        for group in groups:
            if len(group) < MOST and alike(group[0], trainer):
                group.append(trainer)
                break
        else:
            groups.append([trainer])
    return [Stack(group) for group in groups if len(group) > 1]


def alike(one: Trainer, other: Trainer) -> bool:
    """Whether two trainers could take their steps together."""
    return (
        type(one.backbone) is type(other.backbone)
        and getattr(one.backbone, "stacks", True)
        and one.settings == other.settings
        and one.device == other.device
        and one.flat.shapes == other.flat.shapes
        and one.flat.weights.dtype == other.flat.weights.dtype
        and one.data.n_num == other.data.n_num
        and _same_constants(one.backbone, other.backbone)
    )


def _kept(module: Any) -> dict[str, Tensor]:
    """Return the buffers that belong to a model's state."""
    learned = {name for name, _ in module.named_parameters()}
    return {k: v for k, v in module.state_dict().items() if k not in learned}


def _same_constants(one: Any, other: Any) -> bool:
    """Whether what follows from the layout alone is the same in both."""
    mine, theirs = dict(one.named_buffers()), dict(other.named_buffers())
    kept = _kept(one)
    return mine.keys() == theirs.keys() and all(
        mine[k].shape == theirs[k].shape
        and (k in kept or torch.equal(mine[k], theirs[k]))
        for k in mine
    )


class _Loss(nn.Module):
    """A trainer's loss as the call of a module, whose weights can be exchanged."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        self.backbone: Any = trainer.backbone
        self._trainer = [trainer]  # in a list, so that torch does not look inside

    def forward(
        self, noise: Any, batch: Batch, counted: Tensor, done: Tensor
    ) -> Tensor:
        return self._trainer[0].loss(noise, batch, counted, done)[0]


def _noted(trainer: Trainer) -> list[DrawSpec]:
    """Return what a step draws, from a trial that leaves no trace."""
    noted = RecordingRNG(torch.Generator(trainer.device))
    batch, counted = trainer.data.at(torch.zeros(trainer.settings.batch_size).long())
    with torch.no_grad():
        trainer.loss(noted, batch, counted, torch.zeros((), device=trainer.device))
    return noted.asked


class Stack:
    """The arithmetic of the steps of several trainers.

    Parameters
    ----------
    trainers : sequence of Trainer
        Each `alike` the first, and not yet started.
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        first = trainers[0]
        self._first = _Loss(first)
        self._draws = _noted(first)
        self._flat = Flat([t.backbone for t in trainers])
        weights = self._flat.weights
        self._average = WeightAverage(weights, first.settings.ema)
        self._adam = Adam(weights, self._average, first.settings)
        self._done = torch.zeros((), device=first.device)
        self._window = torch.zeros(len(trainers), device=first.device)
        self._buffers = {
            name: torch.stack([_kept(t.backbone)[name] for t in trainers])
            for name in _kept(first.backbone)
        }
        # a graph goes on drawing from the generator of one that has left: nobody else
        # may use it then
        self._data = [t.data for t in trainers]
        self._noise = [t.noise for t in trainers]
        self._lanes = [Lane(first.device) for _ in trainers]
        self._losses = self._all_losses
        if first.settings.compiled(first.device.type):
            self._losses = fused(self._all_losses)
        self._advance = self._compute
        if first.device.type == "cuda":
            self._advance = CudaGraph(self._compute, self._noise, "training")
        self._started = False
        self._rows = {id(trainer): row for row, trainer in enumerate(trainers)}
        self.members = list(trainers)
        for row, trainer in enumerate(trainers):
            average = self._average.weights[row : row + 1]
            trainer.join(self, self._flat.row(row), average, self._window[row])

    # -- what a trainer asks for --------------------------------------------------

    def moments(self, trainer: Trainer) -> dict[str, Tensor]:
        """Return what the optimiser remembers of a trainer's weights."""
        row = self._rows[id(trainer)]
        kept = self._adam.memory.items()
        return {name: v[row : row + 1] if v.dim() else v for name, v in kept}

    def forget(self, trainer: Trainer) -> None:
        """Let a trainer go; its row is computed on and looked at by nobody."""
        self.members.remove(trainer)

    # -- the step -------------------------------------------------------------------

    def _one_loss(
        self,
        weights: dict[str, Tensor],
        buffers: dict[str, Tensor],
        batch: Batch,
        counted: Tensor,
        values: list[Tensor],
    ) -> Tensor:
        named = {f"backbone.{k}": v for k, v in (weights | buffers).items()}
        given = (ReplayRNG(values), batch, counted, self._done)
        loss: Tensor = functional_call(self._first, named, given)
        return loss

    def _all_losses(
        self, weights: Tensor, batch: Batch, counted: Tensor, values: list[Tensor]
    ) -> Tensor:
        """Return the loss of every model, [M]."""
        named = self._flat.by_name(weights)
        losses: Tensor = vmap(self._one_loss)(
            named, self._buffers, batch, counted, values
        )
        return losses

    def _given(self) -> tuple[Batch, Tensor, list[Tensor]]:
        """Return the rows of all, which cells count, and the noise.

        Every model gathers and draws on its own, side by side with the others: alone it
        would leave most of a GPU idle.
        """
        rows, device = [], self._done.device
        values = [
            torch.empty(len(self._noise), *shape, dtype=dtype, device=device)
            for _, shape, dtype in self._draws
        ]
        for lane in self._lanes:
            lane.start()
        for i, lane in enumerate(self._lanes):
            with lane.taken():
                rows.append(self._data[i].staged())
                drawn(self._draws, self._noise[i], [value[i] for value in values])
        for lane in self._lanes:
            lane.leave()
        batches, counted = zip(*rows, strict=True)
        num, cat = (torch.stack(parts) for parts in zip(*batches, strict=True))
        return Batch(num, cat), torch.stack(counted), values

    def _compute(self) -> None:
        """Do what a step of all does on the device."""
        batch, counted, values = self._given()
        self._flat.weights.grad = None
        losses = self._losses(self._flat.weights, batch, counted, values)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        self._adam.step()
        self._window += losses.detach()

    def advance(self) -> None:
        """Take the step that the members have prepared."""
        if not self.members:
            return
        place([trainer.data for trainer in self.members])
        pace = self.members[0].pace
        self._done.fill_(pace.done)
        self._adam.set(pace.rate, pace.ema_weight)
        if self._started:
            self._advance()
            return
        self._started = True
        if self._losses != self._all_losses:
            error = self._tried()
            if error is None:
                return
            log.warning("models are trained without fused kernels: %s", reason(error))
            self._losses = self._all_losses
        error = self._tried()
        if error is not None:
            log.warning("models are trained in turns, not as one: %s", reason(error))
            for trainer in list(self.members):
                trainer.leave()
                trainer.take_step()

    def _tried(self) -> Exception | None:
        """Take the step; if that fails, leave no trace and return why."""
        before = [noise.get_state() for noise in self._noise]
        try:
            self._advance()
        except Exception as error:
            for noise, state in zip(self._noise, before, strict=True):
                noise.set_state(state)
            return error
        return None
