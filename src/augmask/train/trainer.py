"""One training step, and the whole state of a run as a flat dictionary of tensors.

The state serves twice: kept in memory it is what a non-finite step rolls back to,
written to disk it is a checkpoint. All tensors of a run stay where they are in memory,
so that a step can be recorded as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from augmask.config import Settings
from augmask.diffusion.base import Backbone, probe_loss, reduction_of, type_weights
from augmask.diffusion.nets import Hidden
from augmask.diffusion.reduce import reduce_cells
from augmask.rng import stream_seed
from augmask.train import parallel
from augmask.train.average import WeightAverage
from augmask.train.capture import Compiled, StepGraph
from augmask.train.data import TrainingData
from augmask.train.schedule import learning_rate


def _part(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the entries under `prefix/`, without it."""
    start = prefix + "/"
    return {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}


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
        self.parameters: list[Tensor] = list(backbone.parameters())
        self.average = WeightAverage(backbone, settings.ema)
        on_gpu = device.type == "cuda"
        # a graph replays with the rate that stands in memory, so there it is a tensor
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=torch.tensor(settings.lr, device=device) if on_gpu else settings.lr,
            betas=(0.9, settings.beta2),
            weight_decay=0.0,
            fused=device.type in ("cpu", "cuda"),
            capturable=on_gpu,
        )
        self.noise = torch.Generator(device)
        self.steps_done = 0
        self.caution = 1.0
        self.last: tuple[Tensor, Tensor] | None = None
        # what changes from step to step
        self._share = parallel.share(settings.batch)
        rows = self._share.stop - self._share.start
        self._pairs = torch.zeros(rows, dtype=torch.long, device=device)
        self._done = torch.zeros((), device=device)
        self._pull = torch.zeros((), device=device)
        self._window_loss = torch.zeros((), device=device)
        self._window_steps = 0
        self._fused: Compiled | None = None
        if settings.compiled(device.type):
            self._fused = Compiled(backbone.cell_loss)
        self._advance = self._compute
        # a graph would have to hold the talk of the processes too
        if on_gpu and parallel.size() == 1:
            self._advance = StepGraph(self._compute, self.noise)
        self.reseed_noise(0)

    def reseed_noise(self, attempt: int) -> None:
        """Start the noise stream of a given attempt."""
        own = [parallel.rank()] if parallel.size() > 1 else []
        self.noise.manual_seed(stream_seed(self.seed, "noise", attempt, *own))

    def _clear_window(self) -> None:
        self._window_loss.zero_()
        self._window_steps = 0

    def step(self, done: float) -> None:
        """Take one step; `done` is the share of the run behind us."""
        self._pairs.copy_(self.data.next_pairs(self.settings.batch)[self._share])
        self._done.fill_(done)
        self._pull.fill_(self.average.pull(self.steps_done))
        group = self.optimizer.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(self.learning_rate(done))
        else:
            group["lr"] = self.learning_rate(done)
        self._advance()
        self.steps_done += 1
        self._window_steps += 1

    def _compute(self) -> None:
        """Do what a step does on the device."""
        batch, counted = self.data.at(self._pairs)
        cell_loss = self._fused or self.backbone.cell_loss
        cell = cell_loss(batch, self.noise)
        loss = reduce_cells(
            cell,
            counted,
            reduction_of(self.backbone),
            self.data.n_num,
            type_weights(self.backbone, self._done),
        )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        parallel.average(self.parameters)
        self.optimizer.step()
        self.average.update(self._pull)
        self._window_loss += loss.detach()
        self.last = (sum(cell.aux.values(), cell.main).detach(), counted)

    @contextmanager
    def chosen_products(self) -> Iterator[None]:
        """Let the hidden layers multiply as the settings say, for a while."""
        layers = [m for m in self.backbone.modules() if isinstance(m, Hidden)]
        for layer in layers:
            layer.bf16 = self.settings.products == "bf16"
        try:
            yield
        finally:
            for layer in layers:
                layer.bf16 = False

    def learning_rate(self, done: float) -> float:
        """Return the rate of the coming step."""
        s = self.settings
        return self.caution * learning_rate(s.lr, self.steps_done, s.warmup, done)

    def window(self) -> float:
        """Return the mean loss since the last call; not finite if anything broke.

        The weights are looked at too: a step can break them after its loss was fine.
        """
        norms = torch.stack(torch._foreach_norm(self.parameters)).sum()
        health = self._window_loss / max(self._window_steps, 1) + 0 * norms
        self._clear_window()
        return parallel.lead(float(health.detach()))

    @torch.no_grad()
    def held_out_loss(self, rows: int = 4096) -> float:
        """Return the averaged weights' loss on the hidden cells."""
        probe = torch.Generator(self.device).manual_seed(
            stream_seed(self.seed, "probe")
        )
        watched = torch.nonzero(self.data.hidden.any(1))[:rows, 0]
        batch = self.data.gather(watched, torch.zeros_like(watched))
        hidden = self.data.hidden[watched]
        with self.average.in_place():
            losses = probe_loss(self.backbone, batch, probe)
        return parallel.lead(float(losses[hidden].mean()))

    def state(self) -> dict[str, Tensor]:
        """Return copies of everything that the next step depends on."""
        state = {"noise": self.noise.get_state()}
        state["counters"] = torch.tensor(
            [self.steps_done, self.caution], dtype=torch.float64
        )
        for name, value in self.data.state().items():
            state[f"data/{name}"] = value
        for name, value in self._buffers().items():
            state[f"buffer/{name}"] = value
        for i, p in enumerate(self.parameters):
            state[f"weight/{i}"] = p.detach()
            state[f"average/{i}"] = self.average.weights[i]
            for name, value in self.optimizer.state[p].items():
                state[f"optimizer/{i}/{name}"] = value
        return {name: value.clone() for name, value in state.items()}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state from `state()`."""
        noise = state.get(f"noise/{parallel.rank()}", state["noise"])
        self.noise.set_state(noise.cpu())
        steps, self.caution = state["counters"].tolist()
        self.steps_done = int(steps)
        self.data.restore(_part(state, "data"))
        for name, value in self._buffers().items():
            value.copy_(state[f"buffer/{name}"])
        for i, p in enumerate(self.parameters):
            p.copy_(state[f"weight/{i}"])
            self.average.weights[i].copy_(state[f"average/{i}"])
            self._restore_moments(p, _part(state, f"optimizer/{i}"))
        self._clear_window()

    def _buffers(self) -> dict[str, Tensor]:
        """Return what the backbone keeps besides weights, e.g. a changed schedule."""
        learned = {p.data_ptr() for p in self.parameters}
        kept = self.backbone.state_dict().items()
        return {name: v for name, v in kept if v.data_ptr() not in learned}

    def _restore_moments(self, p: Tensor, saved: Mapping[str, Tensor]) -> None:
        """Set the optimiser's memory of one parameter; empty means a fresh start."""
        mine = self.optimizer.state[p]
        for value in mine.values():
            value.zero_()
        for name, value in saved.items():
            if name in mine:
                mine[name].copy_(value)
            else:
                mine[name] = value.to(self.device, copy=True)
