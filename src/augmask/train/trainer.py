"""One training step, and the whole state of a run as a flat dictionary of tensors.

The state serves twice: kept in memory it is what a non-finite step rolls back to,
written to disk it is a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from augmask.config import Settings
from augmask.diffusion.base import Backbone, CellLoss
from augmask.diffusion.reduce import reduce_cells
from augmask.rng import stream_seed
from augmask.train.average import WeightAverage
from augmask.train.data import TrainingData
from augmask.train.schedule import learning_rate


def _part(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the entries under `prefix/`, without it."""
    start = prefix + "/"
    return {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}


class Trainer:
    """A backbone, its optimiser and its average, moved one step at a time.

    Nothing in `step` reads the device: losses add up there until `window` asks.

    Parameters
    ----------
    backbone : Backbone
        Already on its device and initialised from data.
    data : TrainingData
    settings : Settings
    seed : int
        Of the noise.
    device : torch.device
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
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=settings.lr,
            betas=(0.9, 0.99),
            weight_decay=0.0,
            fused=device.type in ("cpu", "cuda"),
        )
        self.noise = torch.Generator(device)
        self.steps_done = 0
        self.caution = 1.0
        self.reseed_noise(0)
        self._clear_window()

    def reseed_noise(self, attempt: int) -> None:
        """Start the noise stream of a given attempt."""
        self.noise.manual_seed(stream_seed(self.seed, "noise", attempt))

    def _clear_window(self) -> None:
        self._window_loss = torch.zeros((), device=self.device)
        self._window_steps = 0

    def step(self, done: float) -> tuple[CellLoss, Tensor]:
        """Take one step; return its losses per cell and the mask they met."""
        batch, counted = self.data.next_batch(self.settings.batch)
        cell = self.backbone.cell_loss(batch, self.noise)
        loss = reduce_cells(cell, counted, self.backbone.reduction, self.data.n_num)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.param_groups[0]["lr"] = self.learning_rate(done)
        self.optimizer.step()
        self.average.update(self.steps_done)
        self.steps_done += 1
        self._window_loss += loss.detach()
        self._window_steps += 1
        return cell, counted

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
        return float(health.detach())

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
            losses = self.backbone.probe_loss(batch, probe)
        return float(losses[hidden].mean())

    def state(self) -> dict[str, Tensor]:
        """Return copies of everything that the next step depends on."""
        state = {"noise": self.noise.get_state()}
        state["counters"] = torch.tensor(
            [self.steps_done, self.caution], dtype=torch.float64
        )
        for name, value in self.data.state().items():
            state[f"data/{name}"] = value
        for i, p in enumerate(self.parameters):
            state[f"weight/{i}"] = p.detach()
            state[f"average/{i}"] = self.average.weights[i]
            for name, value in self.optimizer.state[p].items():
                state[f"optimizer/{i}/{name}"] = value
        return {name: value.clone() for name, value in state.items()}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state from `state()`."""
        self.noise.set_state(state["noise"].cpu())
        steps, self.caution = state["counters"].tolist()
        self.steps_done = int(steps)
        self.data.restore(_part(state, "data"))
        self.optimizer.state.clear()
        for i, p in enumerate(self.parameters):
            p.copy_(state[f"weight/{i}"])
            self.average.weights[i].copy_(state[f"average/{i}"])
            moments = _part(state, f"optimizer/{i}")
            if moments:
                self.optimizer.state[p] = {
                    name: value.to(self.device, copy=True)
                    for name, value in moments.items()
                }
        self._clear_window()
