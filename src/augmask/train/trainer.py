"""One model in training: its training step, and its state as a dict of tensors.

A state in memory is what a non-finite step rolls back to; on disk it is a checkpoint.
Everything a step writes stays at one address, which a CUDA graph requires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor

from augmask.config import Settings
from augmask.device import allow_tf32, uses_bf16
from augmask.diffusion.base import (
    Backbone,
    Batch,
    reduction_of,
    type_weights,
    validation_loss,
)
from augmask.diffusion.nets import bf16_matmul
from augmask.diffusion.random_draws import RNG
from augmask.diffusion.reduce import reduce_cells
from augmask.rng import stream_seed
from augmask.train import parallel
from augmask.train.accelerated import accelerated_step
from augmask.train.data import TrainingData
from augmask.train.flat_params import FlatParams
from augmask.train.optimizer import EMA, FlatAdamW, learning_rate
from augmask.train.shards import ShardedData

if TYPE_CHECKING:
    from augmask.train.accelerated.batched_models import BatchedModels


class StepSchedule(NamedTuple):
    """Scalars that change from step to step."""

    done: float  # fraction of the training completed
    ema_weight: float
    lr: float


class Trainer:
    """A backbone with its data, optimiser and EMA.

    `step` never reads from the device: losses add up there until `mean_loss` is called.
    With several processes, each trains on its share of every batch with its own noise.

    Parameters
    ----------
    backbone : Backbone
        On its device and initialised from data.
    data : TrainingData or ShardedData
    settings : Settings
    seed : int
        Of the noise.
    device : torch.device

    Attributes
    ----------
    last : pair of Tensor [B, d], or None
        The cell losses of the latest step, main and auxiliary added up, and the mask of
        supervised cells.
    tensors : dict of Tensor
        Everything that steps change in place, by its name in a checkpoint.
    """

    def __init__(
        self,
        backbone: Backbone,
        data: TrainingData | ShardedData,
        settings: Settings,
        seed: int,
        device: torch.device,
    ) -> None:
        self.backbone, self.data, self.settings = backbone, data, settings
        self.seed, self.device = seed, device
        self.steps_done = 0
        self.lr_scale = 1.0  # halved after every restart
        self.schedule = StepSchedule(0.0, 0.0, 0.0)
        self.last: tuple[Tensor, Tensor] | None = None
        self._local_rows = parallel.local_rows(settings.batch_size)
        self._loss_count = 0
        self._batched: BatchedModels | None = None
        self._allocate()
        self.reseed_noise(0)

    def _allocate(self) -> None:
        """Create everything a step works on, and choose how it runs."""
        settings, device = self.settings, self.device
        self.flat = FlatParams([self.backbone])
        self.ema = EMA(self.flat.weights, settings.ema)
        self.optimizer = FlatAdamW(self.flat.weights, settings)
        self.noise = torch.Generator(device)
        self.done = torch.zeros((), device=device)
        self._loss_sum = torch.zeros((), device=device)
        self.tensors = self._named_tensors(self.optimizer.state)
        self.accelerated = accelerated_step(self)

    # -- the training step ---------------------------------------------------------

    def step(self, done: float) -> None:
        """Take one step; `done` is the fraction of the training completed.

        A trainer attached to a batch only prepares its step here.
        """
        self.data.advance(self.settings.batch_size, self._local_rows)
        self.schedule = StepSchedule(
            done, self.ema.weight_at(self.steps_done), self.learning_rate(done)
        )
        if self._batched is None:
            self.run_step()
        self.steps_done += 1
        self._loss_count += 1

    def run_step(self) -> None:
        """Run the prepared step, accelerated where possible."""
        self.done.fill_(self.schedule.done)
        self.optimizer.set_lr(self.schedule.lr)
        self.ema.step_weight.fill_(self.schedule.ema_weight)
        (self.accelerated or self.train_step)()

    def train_step(self) -> None:
        """Next batch, cell losses, masked mean, backward, optimiser, EMA."""
        batch, supervised = self.data.batch()
        loss, cells = self.loss(self.noise, batch, supervised, self.done)
        self.backward(loss)
        self.optimizer.step()
        self.ema.update()
        self.add_loss(loss, cells, supervised)

    def loss(
        self, noise: RNG, batch: Batch, supervised: Tensor, done: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the masked mean of the cell losses, and these without gradient."""
        # a RecordingRNG or ReplayRNG replaces the generator in `random_draws`
        cell = self.backbone.cell_loss(batch, cast(torch.Generator, noise))
        loss = reduce_cells(
            cell,
            supervised,
            reduction_of(self.backbone),
            self.data.layout.n_num,
            type_weights(self.backbone, done),
        )
        return loss, sum(cell.aux.values(), cell.main).detach()

    def backward(self, loss: Tensor) -> None:
        """Compute the gradient of the flat weights, averaged over all processes."""
        loss.backward()  # type: ignore[no-untyped-call]
        parallel.average_gradients(self.flat.collect_gradients())

    def add_loss(self, loss: Tensor, cells: Tensor, supervised: Tensor) -> None:
        """Keep the losses of a step on the device."""
        self._loss_sum += loss.detach()
        self.last = (cells, supervised)

    def learning_rate(self, done: float) -> float:
        """Return the learning rate of the next step."""
        s = self.settings
        return self.lr_scale * learning_rate(s.lr, self.steps_done, s.warmup, done)

    def reseed_noise(self, attempt: int) -> None:
        """Start the noise stream of a given attempt."""
        own = [parallel.rank()] if parallel.world_size() > 1 else []
        self.noise.manual_seed(stream_seed(self.seed, "noise", attempt, *own))

    @contextmanager
    def matmul_precision(self) -> Iterator[None]:
        """Context manager: use the configured matmul precision."""
        bf16 = uses_bf16(self.settings.matmul_precision, self.device)
        with allow_tf32(self.device), bf16_matmul(self.backbone, bf16):
            yield

    # -- results -------------------------------------------------------------------

    def mean_loss(self) -> float:
        """Return the mean loss since the last call, not finite if training failed.

        The weights are checked too: a step with a finite loss can still break them.
        """
        weights = self.flat.weights.detach().sum()
        mean = self._loss_sum / max(self._loss_count, 1) + 0 * weights
        self._reset_loss()
        return parallel.broadcast_value(float(mean))

    def _reset_loss(self) -> None:
        self._loss_sum.zero_()
        self._loss_count = 0

    @torch.no_grad()
    def held_out_loss(self, max_rows: int = 4096) -> float:
        """Return the loss of the averaged weights on held-out cells."""
        generator = torch.Generator(self.device).manual_seed(
            stream_seed(self.seed, "probe")
        )
        batch, held_out = self.data.held_out_batch(max_rows)
        with self.ema.applied():
            losses = validation_loss(self.backbone, batch, generator)
        return parallel.broadcast_value(float(losses[held_out].mean()))

    @torch.no_grad()
    def finalize(self, weights: Tensor | None) -> None:
        """End the training; leave these weights, or else the EMA, in the backbone."""
        self.detach()
        self.flat.weights.copy_(self.ema.weights if weights is None else weights)
        self.flat.release()
        # a reference cycle that would keep the table alive
        self.accelerated = None

    # -- state ---------------------------------------------------------------------

    def _named_tensors(
        self, optimizer_state: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        tensors = {"weights": self.flat.weights, "average": self.ema.weights}
        # the backbone's state besides its weights, e.g. a schedule
        for name, value in self.backbone.state_dict().items():
            if name not in self.flat.shapes:
                tensors[f"buffer/{name}"] = value
        for name, value in optimizer_state.items():
            tensors[f"optimizer/{name}"] = value
        return tensors

    @torch.no_grad()
    def state(self, out: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Return copies of everything the next step depends on.

        Pass an earlier state as `out` to reuse its memory.
        """
        state = {"noise": self.noise.get_state()}
        state["counters"] = torch.tensor(
            [self.steps_done, self.lr_scale], dtype=torch.float64
        )
        for name, value in self.data.state().items():
            state[f"data/{name}"] = value
        if out is None:
            return state | {name: value.clone() for name, value in self.tensors.items()}
        copies = {name: out[name] for name in self.tensors}
        torch._foreach_copy_(list(copies.values()), list(self.tensors.values()))
        return state | copies

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Return to a state from `state()`."""
        self.detach()
        self._load(state)
        self._reset_loss()

    def _load(self, state: Mapping[str, Tensor]) -> None:
        noise = state.get(f"noise/{parallel.rank()}", state["noise"])
        self.noise.set_state(noise.cpu())
        steps, self.lr_scale = state["counters"].tolist()
        if not (0 <= steps <= self.settings.steps and steps == int(steps)):
            raise ValueError(f"a run of {self.settings.steps} steps is not at {steps}")
        self.steps_done = int(steps)
        prefix = "data/"
        self.data.restore(
            {
                k.removeprefix(prefix): v
                for k, v in state.items()
                if k.startswith(prefix)
            }
        )
        for name, value in self.tensors.items():
            value.copy_(state[name])

    # -- sharing steps with other models -------------------------------------------

    def attach(
        self,
        batched: BatchedModels,
        flat: FlatParams,
        ema_weights: Tensor,
        optimizer_state: Mapping[str, Tensor],
        loss_sum: Tensor,
    ) -> None:
        """Let `batched` run the steps, in memory that it owns."""
        self._batched, self.flat, self.accelerated = batched, flat, None
        self.ema = EMA(flat.weights, self.settings.ema)
        self.ema.weights = ema_weights
        self._loss_sum = loss_sum
        self.tensors = self._named_tensors(optimizer_state)

    @torch.no_grad()
    def detach(self) -> None:
        """Continue alone from the current state, if attached."""
        if self._batched is None:
            return
        state, loss_sum = self.state(), self._loss_sum
        self._batched.members.remove(self)
        self._batched = None
        self._allocate()
        self._load(state)
        self._loss_sum.copy_(loss_sum)
