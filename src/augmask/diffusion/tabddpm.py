"""TabDDPM: Gaussian and multinomial diffusion side by side (Kotelnikov et al., 2023).

Time is a whole number t = 0 .. T - 1. A number loses signal to Gaussian noise, a
category is replaced by a uniform draw from its levels with probability 1 - ᾱ_t:

    x_t = √ᾱ_t x_0 + √(1 - ᾱ_t) ε              numbers
    x_t = x_0 with probability ᾱ_t, else uniform   categories

One network reads the noisy row and predicts ε and the law p of each clean category.
A step back from t to s < t, with α = ᾱ_t / ᾱ_s, draws a category from

    h(p)_k ∝ [α 1(k = x_t) + (1 - α) / K] [ᾱ_s p_k + (1 - ᾱ_s) / K]

In training s = t - 1, and the loss of a category is T KL( h(x_0) ‖ h(p) ).

What differs from the published code, on purpose: the divergence is computed per column
from probabilities (a cumulative log-sum-exp over all columns is off by up to 0.8);
its constant end term is left out; times are spread evenly over a batch instead of drawn
one by one, which leaves every row's time uniform and the loss less noisy; categories
enter as 0 and 1 instead of log 1e-30 and 0 (`log_onehot` brings that back); samplers
may take fewer than T steps.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from augmask.diffusion.base import Batch, CellLoss
from augmask.diffusion.nets import TimeEmbedding, mlp, product
from augmask.diffusion.noise import (
    Noise,
    low_discrepancy,
    normal_like,
    uniform_like,
)
from augmask.diffusion.ragged import Ragged
from augmask.diffusion.reduce import Reduction
from augmask.diffusion.sampling import InpaintConfig, run_sampler
from augmask.diffusion.tabddpm_back import TabDDPMSampler, sampling_times
from augmask.errors import UsageError
from augmask.table.table import FloatArray, Layout, Table

BETA_MAX = 0.999
LOG_ZERO = math.log(1e-30)
# a class that the network rules out costs 46 nats, not infinitely many
P_MIN = 1e-20
# where the scaling puts a column's smallest and largest value
EXTREME = 5.2


def cosine_signal(timesteps: int) -> FloatArray:
    """Return ᾱ_t, the share of signal left at every time, in float64.

    Examples
    --------
    >>> signal = cosine_signal(1000)
    >>> float(round(1 - signal[0], 7)), float(round(signal[-1], 11))
    (4.13e-05, 2.43e-09)
    """
    ends = np.arange(timesteps + 1) / timesteps
    wanted = np.cos((ends + 0.008) / 1.008 * np.pi / 2) ** 2
    betas = np.minimum(1 - wanted[1:] / wanted[:-1], BETA_MAX)
    return np.asarray(np.cumprod(1 - betas))


class Step(NamedTuple):
    """What a step from time t to an earlier time s multiplies with.

    `signal` is ᾱ and `noise` 1 - ᾱ, both kept because neither is 1 minus the other in
    float32. Data itself has signal 1 and noise 0.
    """

    signal: Any
    noise: Any
    earlier_signal: Any
    earlier_noise: Any
    alpha: Any
    beta: Any


def step_between(signal: FloatArray, earlier: FloatArray) -> Step:
    """Return the coefficients of steps, from ᾱ at their two ends."""
    return Step(
        signal,
        1 - signal,
        earlier,
        1 - earlier,
        signal / earlier,
        (earlier - signal) / earlier,
    )


class TabDDPM(nn.Module):
    """The backbone.

    Parameters
    ----------
    layout : Layout
        Columns to model.
    width, depth : int
        Hidden layers; 256 and 3 in the paper.
    time_width : int
        Width of the time embedding and of the first projection.
    timesteps : int
        T, at least 2.
    log_onehot : bool
        Feed categories as logarithms, 0 and -69, as published.
    clip : float
        Bound predicted numbers to so many times the largest observed one while
        sampling; 0 means no bound, as published. The first steps magnify the network's
        error, so short trainings and samplers of few steps need a bound of 1.
    normal_start : bool
        Let the network add to the noise that a standard normal number would have,
        ε̂ = √(1 - ᾱ) x_t + √ᾱ f, which is what scaled columns are on the whole. Without
        it, as published, ε̂ = f, and a column that little is known about is pulled
        inwards at low noise.

    Examples
    --------
    >>> model = TabDDPM(Layout(("x",), ("y",), (3,)), width=8, depth=1)
    >>> batch = Batch(torch.zeros(4, 1), torch.zeros(4, 1, dtype=torch.long))
    >>> model.cell_loss(batch, torch.Generator().manual_seed(0)).main.shape
    torch.Size([4, 2])
    """

    reduction: Reduction = "row-by-type"
    solvers = ("ancestral", "interpolated_variance", "ddim")
    step_table: Tensor
    cards: Tensor
    largest: Tensor

    def __init__(
        self,
        layout: Layout,
        *,
        width: int = 256,
        depth: int = 3,
        time_width: int = 128,
        timesteps: int = 1000,
        log_onehot: bool = False,
        clip: float = 0.0,
        normal_start: bool = False,
    ) -> None:
        super().__init__()
        if timesteps < 2:
            raise UsageError(f"timesteps must be at least 2, got {timesteps}")
        self.n_num, self.timesteps = layout.n_num, timesteps
        self.inpaint_config = InpaintConfig(
            min(40, timesteps), "interpolated_variance", 8, (0.2, 1.0)
        )
        self.log_onehot, self.clip = log_onehot, clip
        self.normal_start = normal_start
        self.ragged = Ragged(layout.cards, layout.reserved)
        slots = self.ragged.n_slots
        self.time = TimeEmbedding(time_width)
        self.project = nn.Linear(self.n_num + slots, time_width)
        self.hidden = mlp(time_width, width, depth)
        self.head = nn.Linear(width, self.n_num + slots)

        self.signal = cosine_signal(timesteps)
        before = np.concatenate([[1.0], self.signal[:-1]])
        table = torch.from_numpy(np.stack(step_between(self.signal, before), 1))
        # as float32 and what float32 leaves over: the sum is right in float32 and in
        # float64, also on devices that have no float64
        coarse = table.float()
        both = torch.stack([coarse, (table - coarse).float()])
        self.register_buffer("step_table", both, persistent=False)
        cards = torch.tensor(layout.cards, dtype=torch.float32)
        self.register_buffer("cards", cards, persistent=False)
        largest = torch.full((self.n_num,), EXTREME)
        self.register_buffer("largest", largest, persistent=clip > 0)

    def init_from_data(self, table: Table) -> None:
        """Remember the largest observed number of every column, if there is a bound."""
        if not self.clip:
            return
        for j, (column, seen) in enumerate(
            zip(table.num.T, table.num_observed.T, strict=True)
        ):
            if seen.any():
                self.largest[j] = float(np.abs(column[seen]).max())

    # -- the two processes and the network ----------------------------------------

    def _uniform_codes(self, like: Tensor, generator: Noise) -> Tensor:
        """Return codes that are uniform over the levels of their column."""
        drawn = (uniform_like(like, generator) * self.cards).long()
        # u K may round up to K
        return torch.minimum(drawn, self.cards.long() - 1)

    def _noised(
        self, batch: Batch, step: Step, generator: Noise
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return noisy numbers, their noise ε, and noisy codes."""
        num, cat = batch
        eps = normal_like(num, generator)
        x_num = step.signal.sqrt() * num + step.noise.sqrt() * eps
        like = num.new_empty(cat.shape)
        kept = uniform_like(like, generator) < step.signal
        x_cat = torch.where(kept, cat, self._uniform_codes(like, generator))
        return x_num, eps, x_cat

    def _predict(
        self, x_num: Tensor, onehot: Tensor, time: Tensor, step: Step
    ) -> tuple[Tensor, Tensor]:
        """Return the predicted noise [B, d_num] and class logits [B, S]."""
        x_cat = LOG_ZERO * (1 - onehot) if self.log_onehot else onehot
        hidden = product(torch.cat([x_num, x_cat], 1), self.project) + time
        out = self.hidden.read(hidden, self.head)
        eps_hat = out[:, : self.n_num]
        if self.normal_start:
            eps_hat = step.noise.sqrt() * x_num + step.signal.sqrt() * eps_hat
        return eps_hat, out[:, self.n_num :]

    def _back(self, onehot: Tensor, p: Tensor, step: Step) -> Tensor:
        """Return h(p) up to a factor per column: the weights of a step back."""
        each = (1 / self.cards).index_select(0, self.ragged.column)
        from_here: Tensor = step.alpha * onehot + step.beta * each
        from_data: Tensor = step.earlier_signal * p + step.earlier_noise * each
        return from_here * from_data

    # -- training -----------------------------------------------------------------

    def _losses_at(self, batch: Batch, t: Tensor, generator: Noise) -> Tensor:
        """Return [B, d]: squared error of ε, and T times the divergence."""
        looked_up = self.step_table.index_select(1, t).sum(0).to(batch.num.dtype)
        step = Step(*looked_up[:, :, None].unbind(1))
        x_num, eps, x_cat = self._noised(batch, step, generator)
        onehot = self.ragged.one_hot(x_cat, x_num)
        time = self.time(t.to(x_num.dtype))
        eps_hat, logits = self._predict(x_num, onehot, time, step)

        p = self.ragged.softmax(logits).clamp(min=P_MIN)
        clean = self.ragged.one_hot(batch.cat, x_num)
        h = self.ragged.normalise(self._back(onehot, p, step))
        target = self.ragged.normalise(self._back(onehot, clean, step))
        # Σ h (1 - r + r log r) with r = target / h is the divergence if both sum to
        # one. No term is negative, and at r = 1 rounding errors of h cancel to first
        # order. At t = 0 the target is x_0 itself, and this is -log h(p)[x_0].
        r = (target / h).clamp(min=P_MIN)
        divergence = self.ragged.total(h * (1 - r + r * r.log()))
        return torch.cat([(eps_hat - eps).square(), self.timesteps * divergence], 1)

    def cell_loss(self, batch: Batch, generator: Noise) -> CellLoss:
        """Return the losses at one random time per row."""
        u = low_discrepancy(batch.num, generator)
        t = (u * self.timesteps).long().clamp(max=self.timesteps - 1)
        return CellLoss(self._losses_at(batch, t, generator))

    @torch.no_grad()
    def validation_loss(self, batch: Batch, generator: Noise) -> Tensor:
        """Return the same losses at times that are equally spaced over the rows."""
        rows = torch.arange(len(batch.num), device=batch.num.device)
        t = (2 * rows + 1) * self.timesteps // (2 * len(rows))
        return self._losses_at(batch, t, generator)

    # -- sampling -----------------------------------------------------------------

    def check_sampler(self, steps: int, solver: str) -> None:
        """Raise unless `sample` takes these steps and this solver."""
        if solver not in self.solvers:
            raise UsageError(f"solver must be one of {self.solvers}, got {solver!r}")
        if not 1 <= steps <= self.timesteps:
            raise UsageError(
                f"steps must be between 1 and {self.timesteps}, the timesteps that "
                f"TabDDPM was built with, got {steps}"
            )

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: Noise,
        steps: int = 1000,
        solver: str = "ancestral",
    ) -> Batch:
        """Go back from noise to rows.

        Parameters
        ----------
        n : int
        generator : torch.Generator
            On the device of the module.
        steps : int
            Network calls, at most T; with T of them every time is visited.
        solver : {"ancestral", "interpolated_variance", "ddim"}
            Numbers move by random steps of variance 1 - α as published, or of a smaller
            one (see `tabddpm_back`), or without fresh noise (DDIM). Categories are
            drawn in all.
        """
        return run_sampler(self.sampler(steps, solver), n, generator)

    @torch.no_grad()
    def sampler(self, steps: int, solver: str) -> TabDDPMSampler:
        """Return the way back that `sample` follows."""
        self.check_sampler(steps, solver)
        times = sampling_times(self.timesteps, steps)
        signal = self.signal[times.astype(int)]
        step = step_between(signal, np.concatenate([signal[1:], [1.0]]))
        return TabDDPMSampler(self, step, times, solver)
