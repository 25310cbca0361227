"""One training step, and the whole state of a run as a flat dictionary of tensors.

The state serves twice: kept in memory it is what a non-finite step rolls back to,
written to disk it is a checkpoint. All tensors of a run stay where they are in memory,
so that a step can be recorded as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor

from augmask.config import Settings
from augmask.device import fast_matmul, uses_bf16
from augmask.diffusion.base import (
    Backbone,
    Batch,
    reduction_of,
    type_weights,
    validation_loss,
)
from augmask.diffusion.compiled import Compiled
from augmask.diffusion.cuda_graph import CudaGraph
from augmask.diffusion.nets import bf16_matmul
from augmask.diffusion.noise import Noise
from augmask.diffusion.reduce import reduce_cells
from augmask.rng import stream_seed
from augmask.train import parallel
from augmask.train.average import WeightAverage
from augmask.train.data import TrainingData, place
from augmask.train.flat_params import Flat
from augmask.train.fused_adam import Adam
from augmask.train.schedule import learning_rate


def _part(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the entries under `prefix/`, without it."""
    start = prefix + "/"
    return {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}


class Companions(Protocol):
    """What a trainer knows of the stack that takes its steps."""

    def moments(self, trainer: Trainer) -> dict[str, Tensor]:
        """Return what the optimiser remembers of that trainer's weights."""

    def forget(self, trainer: Trainer) -> None:
        """Let a trainer go."""


class Pace(NamedTuple):
    """What a step depends on besides its rows.

    The share of the run behind us, how far the average is pulled, the learning rate.
    """

    done: float
    ema_weight: float
    rate: float


class Trainer:
    """A backbone, its optimiser and its average, moved one step at a time.

    Nothing in `step` reads the device: losses add up there until `window` asks. One of
    several processes computes its share of every batch with noise of its own.

    Parameters
    ----------
    backbone : Backbone
        Already on its device and initialised from data.
    data : TrainingData
    settings : Settings
    seed : int
        Of the noise.
    device : torch.device

    Attributes
    ----------
    pace : Pace
        Of the coming step.
    last : pair of Tensor [B, d]
        The losses per cell of the latest step, main and auxiliary together, and the
        mask that they met.
    """

    def __init__(
        self,
        backbone: Backbone,
        data: TrainingData,
        settings: Settings,
        seed: int,
        device: torch.device,
    ) -> None:
        self.backbone, self.data, self.settings = backbone, data, settings
        self.seed, self.device = seed, device
        self.steps_done = 0
        self.lr_scale = 1.0
        self.pace = Pace(0.0, 0.0, 0.0)
        self.last: tuple[Tensor, Tensor] | None = None
        self._share = parallel.share(settings.batch_size)
        self._window_steps = 0
        self._stack: Companions | None = None
        self._stand_alone()
        self.reseed_noise(0)

    def _stand_alone(self) -> None:
        """Make all that a step works on."""
        settings, device = self.settings, self.device
        self._by_name: dict[str, Tensor] | None = None
        self.flat = Flat([self.backbone])
        self.average = WeightAverage(self.flat.weights, settings.ema)
        self._adam = Adam(self.flat.weights, self.average, settings)
        self._done = torch.zeros((), device=device)
        self.noise = torch.Generator(device)
        self._window_loss = torch.zeros((), device=device)
        self._fused: Compiled | None = None
        if settings.compiled(device.type):
            self._fused = Compiled(self.loss, "training")
        self._replay: CudaGraph | None = None
        # a graph would have to hold the talk of the processes too
        if device.type == "cuda" and parallel.size() == 1:
            self._replay = CudaGraph(self._compute, [self.noise], "training")

    def join(
        self, stack: Companions, flat: Flat, average: Tensor, loss: Tensor
    ) -> None:
        """Leave the arithmetic of the steps to a stack, which lends its memory."""
        self._stack, self.flat, self._by_name = stack, flat, None
        self.average = WeightAverage(flat.weights, self.settings.ema)
        self.average.weights = average
        self._window_loss = loss

    @torch.no_grad()
    def leave(self) -> None:
        """Go on alone from here, if this was one of a stack."""
        if self._stack is None:
            return
        state, loss = self.state(), self._window_loss
        self._stack.forget(self)
        self._stack = None
        self._stand_alone()
        self._load(state)
        self._window_loss.copy_(loss)

    def take_step(self) -> None:
        """Take the step that was prepared."""
        place([self.data])
        self._done.fill_(self.pace.done)
        self._adam.set(self.pace.rate, self.pace.ema_weight)
        (self._replay or self._compute)()

    def reseed_noise(self, attempt: int) -> None:
        """Start the noise stream of a given attempt."""
        own = [parallel.rank()] if parallel.size() > 1 else []
        self.noise.manual_seed(stream_seed(self.seed, "noise", attempt, *own))

    def _clear_window(self) -> None:
        self._window_loss.zero_()
        self._window_steps = 0

    def step(self, done: float) -> None:
        """Take one step; `done` is the share of the run behind us.

        In a stack it is prepared here, and taken when all are ready.
        """
        self.data.ask(self.settings.batch_size, self._share)
        ema_weight = self.average.ema_weight(self.steps_done)
        self.pace = Pace(done, ema_weight, self.learning_rate(done))
        if self._stack is None:
            self.take_step()
        self.steps_done += 1
        self._window_steps += 1

    def loss(
        self, noise: Noise, batch: Batch, counted: Tensor, done: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch and, as constants, that of its cells."""
        # what stands for a generator is taken wherever noise comes from `noise.py`
        cell = self.backbone.cell_loss(batch, cast(torch.Generator, noise))
        loss = reduce_cells(
            cell,
            counted,
            reduction_of(self.backbone),
            self.data.n_num,
            type_weights(self.backbone, done),
        )
        return loss, sum(cell.aux.values(), cell.main).detach()

    def _compute(self) -> None:
        """Do what a step does on the device."""
        batch, counted = self.data.staged()
        loss, cells = (self._fused or self.loss)(self.noise, batch, counted, self._done)
        loss.backward()
        self.flat.take_gradients()
        parallel.average([self.flat.weights])
        self._adam.step()
        self._window_loss += loss.detach()
        self.last = (cells, counted)

    @contextmanager
    def matmul_precision(self) -> Iterator[None]:
        """Multiply as the settings say, for a while."""
        bf16 = uses_bf16(self.settings.matmul_precision, self.device)
        with fast_matmul(self.device), bf16_matmul(self.backbone, bf16):
            yield

    def learning_rate(self, done: float) -> float:
        """Return the rate of the coming step."""
        s = self.settings
        return self.lr_scale * learning_rate(s.lr, self.steps_done, s.warmup, done)

    def window(self) -> float:
        """Return the mean loss since the last call; not finite if anything broke.

        The weights are looked at too: a step can break them after its loss was fine.
        """
        weights = self.flat.weights.detach().sum()
        health = self._window_loss / max(self._window_steps, 1) + 0 * weights
        self._clear_window()
        return parallel.lead(float(health))

    @torch.no_grad()
    def held_out_loss(self, rows: int = 4096) -> float:
        """Return the averaged weights' loss on the hidden cells."""
        probe = torch.Generator(self.device).manual_seed(
            stream_seed(self.seed, "probe")
        )
        batch, hidden = self.data.watched(rows)
        with self.average.in_place():
            losses = validation_loss(self.backbone, batch, probe)
        return parallel.lead(float(losses[hidden].mean()))

    @torch.no_grad()
    def finalize(self, weights: Tensor | None) -> None:
        """End the training: leave these weights in the backbone, or the average."""
        self.leave()
        final = self.average.weights if weights is None else weights
        self.flat.weights.copy_(final)
        self.flat.release()
        # they hold on to the trainer, and it to the table
        self._fused = self._replay = None

    @torch.no_grad()
    def state(self, into: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Return copies of everything that the next step depends on.

        An earlier state that is no longer needed may be given to be written over.
        """
        state = {"noise": self.noise.get_state()}
        state["counters"] = torch.tensor(
            [self.steps_done, self.lr_scale], dtype=torch.float64
        )
        for name, value in self.data.state().items():
            state[f"data/{name}"] = value
        tensors = self._tensors()
        if into is None:
            return state | {name: value.clone() for name, value in tensors.items()}
        copies = {name: into[name] for name in tensors}
        torch._foreach_copy_(list(copies.values()), list(tensors.values()))
        return state | copies

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state from `state()`."""
        self.leave()
        self._load(state)
        self._clear_window()

    def _load(self, state: Mapping[str, Tensor]) -> None:
        noise = state.get(f"noise/{parallel.rank()}", state["noise"])
        self.noise.set_state(noise.cpu())
        steps, self.lr_scale = state["counters"].tolist()
        if not (0 <= steps <= self.settings.steps and steps == int(steps)):
            raise ValueError(f"a run of {self.settings.steps} steps is not at {steps}")
        self.steps_done = int(steps)
        self.data.restore(_part(state, "data"))
        for name, value in self._tensors().items():
            value.copy_(state[name])

    def _tensors(self) -> dict[str, Tensor]:
        """Return all that steps change in place; the same until join or leave."""
        if self._by_name is None:
            found = {"weights": self.flat.weights, "average": self.average.weights}
            # what the backbone keeps besides weights, e.g. a changed schedule
            for name, value in self.backbone.state_dict().items():
                if name not in self.flat.shapes:
                    found[f"buffer/{name}"] = value
            stack = self._stack
            memory = stack.moments(self) if stack else self._adam.memory
            for name, value in memory.items():
                found[f"optimizer/{name}"] = value
            self._by_name = found
        return self._by_name
