"""TabDDPM: Gaussian and multinomial diffusion side by side (Kotelnikov et al., 2023).

Time is a whole number t = 0 .. T - 1. A number loses signal to Gaussian noise, a
category is replaced by a uniform level of its column with probability 1 - ᾱ_t:

    x_t = √ᾱ_t x_0 + √(1 - ᾱ_t) ε                  numbers
    x_t = x_0 with probability ᾱ_t, else uniform   categories

One network reads the noisy row and predicts ε and the distribution p of each clean
category. A step back from t to s < t, with α = ᾱ_t / ᾱ_s, draws a category from

    h(p)_k ∝ [α 1(k = x_t) + (1 - α) / K] [ᾱ_s p_k + (1 - ᾱ_s) / K]

In training s = t - 1, and the loss of a category is T KL( h(x_0) ‖ h(p) ).

Differences from the published code, on purpose: the divergence is computed per column
from probabilities (a cumulative log-sum-exp over all columns is off by up to 0.8);
its constant end term is left out; times are spread evenly over a batch instead of drawn
one by one, which leaves every row's time uniform and the loss less noisy; categories
enter as 0 and 1 instead of log 1e-30 and 0 (`log_onehot` brings that back); samplers
may take fewer than T steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from augmask.diffusion.base import Batch, CellLoss
from augmask.diffusion.nets import TimeEmbedding, mlp, padded_linear
from augmask.diffusion.ragged import Ragged
from augmask.diffusion.random_draws import (
    RNG,
    low_discrepancy,
    normal_like,
    uniform_like,
)
from augmask.diffusion.reduce import Reduction
from augmask.diffusion.sampling import (
    InpaintConfig,
    SamplerMixin,
    at,
    corrected_offset,
    emitted_probs,
)
from augmask.errors import UsageError
from augmask.table.table import FloatArray, Layout, Table

BETA_MAX = 0.999
LOG_ZERO = math.log(1e-30)
P_MIN = 1e-20  # a class that the network rules out costs 46 nats, not infinitely many
NUM_MAX = 5.2  # where the scaling puts a column's smallest and largest value
# The exponent of 1 - α in the variance of fresh noise, see `TabDDPMSampler`.
VARIANCE_EXPONENT = {"ancestral": 1.0, "interpolated_variance": 2 / 3}


# -- the forward process -----------------------------------------------------------


def cosine_signal(timesteps: int) -> FloatArray:
    """Return ᾱ_t, the share of signal left at every time, in float64.

    Examples
    --------
    >>> signal = cosine_signal(1000)
    >>> float(round(1 - signal[0], 7)), float(round(signal[-1], 11))
    (4.13e-05, 2.43e-09)
    """
    ends = np.arange(timesteps + 1) / timesteps
    cosine = np.cos((ends + 0.008) / 1.008 * np.pi / 2) ** 2
    betas = np.minimum(1 - cosine[1:] / cosine[:-1], BETA_MAX)
    return np.asarray(np.cumprod(1 - betas))


class Step(NamedTuple):
    """Coefficients of a step from time t to an earlier time s.

    `signal` is ᾱ and `noise` 1 - ᾱ; both are stored because neither is 1 minus the
    other in float32. Clean data has signal 1 and noise 0.
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


# -- the backbone: network, loss and sampling --------------------------------------


class TabDDPM(SamplerMixin, nn.Module):
    """The TabDDPM backbone.

    Solvers: numbers move by random steps of variance 1 - α as published (`ancestral`),
    of a smaller one (`interpolated_variance`, see `TabDDPMSampler`), or without fresh
    noise (`ddim`). All draw categories. Sampling takes `steps` network calls, at most
    T; with T of them every time is visited.

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
        While sampling, clip predicted numbers at this multiple of the largest observed
        one; 0 means no bound, as published. The first steps magnify the network's
        error, so short trainings and samplers of few steps need a bound of 1.
    normal_start : bool
        Let the network add to the noise that a standard normal number would have,
        ε̂ = √(1 - ᾱ) x_t + √ᾱ f, as scaled columns are nearly normal. Without it, as
        published, ε̂ = f, and a column that little is known about is pulled inwards at
        low noise.

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
        self.n_num = layout.n_num
        self.timesteps = self.max_steps = timesteps
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
        earlier = np.concatenate([[1.0], self.signal[:-1]])
        table = torch.from_numpy(np.stack(step_between(self.signal, earlier), 1))
        # as float32 and the remainder of float32: the sum is right in float32 and in
        # float64, also on devices without float64
        coarse = table.float()
        both = torch.stack([coarse, (table - coarse).float()])
        self.register_buffer("step_table", both, persistent=False)
        cards = torch.tensor(layout.cards, dtype=torch.float32)
        self.register_buffer("cards", cards, persistent=False)
        largest = torch.full((self.n_num,), NUM_MAX)
        self.register_buffer("largest", largest, persistent=clip > 0)

    def init_from_data(self, table: Table) -> None:
        """Store the largest observed number of every column, if numbers are clipped."""
        if not self.clip:
            return
        for j, (column, observed) in enumerate(
            zip(table.num.T, table.num_observed.T, strict=True)
        ):
            if observed.any():
                self.largest[j] = float(np.abs(column[observed]).max())

    def uniform_codes(self, like: Tensor, generator: RNG) -> Tensor:
        """Return codes that are uniform over the levels of their column."""
        codes = (uniform_like(like, generator) * self.cards).long()
        # u K may round up to K
        return torch.minimum(codes, self.cards.long() - 1)

    def add_noise(
        self, batch: Batch, step: Step, generator: RNG
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return noisy numbers, their noise ε, and noisy codes."""
        num, cat = batch
        eps = normal_like(num, generator)
        x_num = step.signal.sqrt() * num + step.noise.sqrt() * eps
        like = num.new_empty(cat.shape)
        unchanged = uniform_like(like, generator) < step.signal
        x_cat = torch.where(unchanged, cat, self.uniform_codes(like, generator))
        return x_num, eps, x_cat

    def predict(
        self, x_num: Tensor, onehot: Tensor, time: Tensor, step: Step
    ) -> tuple[Tensor, Tensor]:
        """Return the predicted noise [B, d_num] and class logits [B, S]."""
        x_cat = LOG_ZERO * (1 - onehot) if self.log_onehot else onehot
        hidden = padded_linear(torch.cat([x_num, x_cat], 1), self.project) + time
        out = self.hidden.with_head(hidden, self.head)
        eps_hat = out[:, : self.n_num]
        if self.normal_start:
            eps_hat = step.noise.sqrt() * x_num + step.signal.sqrt() * eps_hat
        return eps_hat, out[:, self.n_num :]

    def posterior(self, onehot: Tensor, p: Tensor, step: Step) -> Tensor:
        """Return h(p), up to a factor per column."""
        each = (1 / self.cards).index_select(0, self.ragged.column)
        from_here: Tensor = step.alpha * onehot + step.beta * each
        from_data: Tensor = step.earlier_signal * p + step.earlier_noise * each
        return from_here * from_data

    def losses_at(self, batch: Batch, t: Tensor, generator: RNG) -> Tensor:
        """Return [B, d]: squared error of ε, and T times the divergence."""
        coefficients = self.step_table.index_select(1, t).sum(0).to(batch.num.dtype)
        step = Step(*coefficients[:, :, None].unbind(1))
        x_num, eps, x_cat = self.add_noise(batch, step, generator)
        onehot = self.ragged.one_hot(x_cat, x_num)
        time = self.time(t.to(x_num.dtype))
        eps_hat, logits = self.predict(x_num, onehot, time, step)

        p = self.ragged.softmax(logits).clamp(min=P_MIN)
        clean = self.ragged.one_hot(batch.cat, x_num)
        h = self.ragged.normalise(self.posterior(onehot, p, step))
        target = self.ragged.normalise(self.posterior(onehot, clean, step))
        # Σ h (1 - r + r log r) with r = target / h is the divergence if both sum to
        # one. No term is negative, and at r = 1 rounding errors of h cancel to first
        # order. At t = 0 the target is x_0 itself, and this is -log h(p)[x_0].
        r = (target / h).clamp(min=P_MIN)
        divergence = self.ragged.total(h * (1 - r + r * r.log()))
        return torch.cat([(eps_hat - eps).square(), self.timesteps * divergence], 1)

    def cell_loss(self, batch: Batch, generator: RNG) -> CellLoss:
        """Return the losses at one random time per row."""
        u = low_discrepancy(batch.num, generator)
        t = (u * self.timesteps).long().clamp(max=self.timesteps - 1)
        return CellLoss(self.losses_at(batch, t, generator))

    @torch.no_grad()
    def validation_loss(self, batch: Batch, generator: RNG) -> Tensor:
        """Return the same losses at times that are equally spaced over the rows."""
        rows = torch.arange(len(batch.num), device=batch.num.device)
        t = (2 * rows + 1) * self.timesteps // (2 * len(rows))
        return self.losses_at(batch, t, generator)

    def make_sampler(self, steps: int, solver: str) -> TabDDPMSampler:
        """Return the reverse process."""
        return TabDDPMSampler(self, steps, solver)


# -- the sampler -------------------------------------------------------------------


def sampling_times(timesteps: int, steps: int) -> FloatArray:
    """Return `steps` of the times, falling from T - 1 to 0.

    T - 1 and T - 2 are always both visited. β is capped there, and a longer first step
    would magnify the network's error by √(ᾱ_s / ᾱ_t): 32 as published, 300 for a step
    of ten.

    Examples
    --------
    >>> sampling_times(1000, 5).astype(int).tolist()
    [999, 998, 665, 333, 0]
    >>> sampling_times(1000, 1).tolist()
    [999.0]
    """
    rest = np.linspace(0, timesteps - 2, steps - 1).round()[::-1]
    return np.concatenate([[timesteps - 1.0], rest])


class Move(NamedTuple):
    """Coefficients of a step of numbers.

    x_0 = (x - `noise` ε̂) / `signal`, then x' = `to_data` x_0 + `stay` x + `fresh` z
    """

    noise: Any
    signal: Any
    to_data: Any
    stay: Any
    fresh: Any


def moves(step: Step, solver: str) -> Move:
    """Return the coefficients of all steps, in float64."""
    noise, signal = np.sqrt(step.noise), np.sqrt(step.signal)
    if solver == "ddim":
        # √ᾱ_s x_0 + √(1 - ᾱ_s) ε, with ε = (x - √ᾱ_t x_0) / √(1 - ᾱ_t)
        stay = np.sqrt(step.earlier_noise) / noise
        to_data = np.sqrt(step.earlier_signal) - stay * signal
        return Move(noise, signal, to_data, stay, np.zeros_like(noise))
    to_data = step.beta * np.sqrt(step.earlier_signal) / step.noise
    stay = step.earlier_noise * np.sqrt(step.alpha) / step.noise
    smallest = step.beta * step.earlier_noise / step.noise
    exponent = VARIANCE_EXPONENT[solver]
    variance = step.beta**exponent * smallest ** (1 - exponent)
    return Move(noise, signal, to_data, stay, np.sqrt(variance))


class TabDDPMState(NamedTuple):
    """The state of `TabDDPMSampler`."""

    num: Tensor
    cat: Tensor
    denoised: Tensor  # numbers, by the last step
    class_probs: Tensor


class TabDDPMSampler:
    """Ancestral sampling or DDIM, see `augmask.diffusion.sampling.Sampler`.

    Numbers move to the mean of x_s given x_t and the predicted x_0, plus fresh noise,
    or keep the noise that they have (DDIM). Categories are drawn from h(p). `finish`
    includes the last step, to clean data.

    The right variance of the fresh noise depends on how well x_0 is known. 1 - α, as
    published, is right for cells of variance one; if x_0 were known, it would be
    smaller. Over a thousand steps this does not matter. Over forty, with an exact
    network, cells of standard deviation 0.2 spread 8 % too far by the first and 15 %
    too little by the second. `interpolated_variance` goes two thirds of the way from
    the second to the first (in logarithms; Nichol and Dhariwal, 2021, learn how far),
    which leaves cells of any spread from 0.1 to 1 short by 2 or 3 %.
    """

    def __init__(self, model: TabDDPM, steps: int, solver: str) -> None:
        self.model, self.n_steps, self.solver = model, steps - 1, solver
        self.like = model.head.weight
        self.n_slots = len(model.ragged.emitted)
        times = sampling_times(model.timesteps, steps)
        signal = model.signal[times.astype(int)]
        step = step_between(signal, np.concatenate([signal[1:], [1.0]]))

        def table(columns: Sequence[FloatArray]) -> Tensor:
            return torch.from_numpy(np.stack(columns, 1)).to(self.like)

        self.move_table = table(moves(step, solver))
        self.step_table = table(step)
        self.sigmas: Sequence[float] = np.sqrt(step.noise / step.signal).tolist()
        self.times = model.time(table([times])[:, 0])

    def start(self, n: int, rng: RNG) -> TabDDPMState:
        """Return standard normal numbers and uniform codes."""
        empty = self.like.new_empty
        num = normal_like(empty(n, self.model.n_num), rng)
        cat = self.model.uniform_codes(empty(n, len(self.model.cards)), rng)
        return TabDDPMState(num, cat, torch.zeros_like(num), empty(n, 0))

    def step(self, state: TabDDPMState, i: Tensor, rng: RNG) -> TabDDPMState:
        """Move numbers and draw categories."""
        return self._step(state, i, rng, last=False)

    def finish(self, state: TabDDPMState, rng: RNG) -> Batch:
        """Take the last step, in which numbers get no fresh noise."""
        last = torch.tensor(self.n_steps, device=self.like.device)
        state = self._step(state, last, rng, last=True)
        return Batch(state.num, state.cat)

    def renoise(self, state: TabDDPMState, i: Tensor, rng: RNG) -> TabDDPMState:
        """Take one step of the forward process."""
        step = self._coefficients(i)
        up = step._replace(signal=step.alpha, noise=step.beta)
        num, _, cat = self.model.add_noise(Batch(state.num, state.cat), up, rng)
        return state._replace(num=num, cat=cat)

    def offset(self, batch: Batch) -> Tensor:
        """Return e = 0 for numbers; a known category is simply put in place."""
        return torch.zeros_like(batch.num)

    def updated_offset(
        self, e: Tensor, state: TabDDPMState, batch: Batch, i: Tensor
    ) -> Tensor:
        """Correct e by what the step has denoised."""
        step = self._coefficients(i)
        sigma = (step.noise / step.signal).sqrt()
        return corrected_offset(e, batch.num, state.denoised, sigma)

    def noise_known(self, batch: Batch, e: Tensor, i: Tensor, _rng: RNG) -> Batch:
        """Return √ᾱ x + √(1 - ᾱ) e, and the codes themselves."""
        step = self._coefficients(i)
        num = step.signal.sqrt() * batch.num + step.noise.sqrt() * e
        return Batch(num, batch.cat)

    def apply_known(
        self, state: TabDDPMState, known: Batch, num: Tensor, cat: Tensor
    ) -> TabDDPMState:
        """Replace known cells."""
        return state._replace(
            num=torch.where(num, known.num, state.num),
            cat=torch.where(cat, known.cat, state.cat),
        )

    def _coefficients(self, i: Tensor) -> Step:
        return Step(*at(self.step_table, i).unbind(1))

    def _step(
        self, state: TabDDPMState, i: Tensor, rng: RNG, last: bool
    ) -> TabDDPMState:
        model, ragged = self.model, self.model.ragged
        onehot = ragged.one_hot(state.cat, state.num)
        step = self._coefficients(i)
        eps_hat, logits = model.predict(state.num, onehot, at(self.times, i), step)
        move = Move(*at(self.move_table, i).unbind(1))
        x_0 = (state.num - move.noise * eps_hat) / move.signal
        if model.clip:
            bound = model.clip * model.largest
            x_0 = torch.maximum(torch.minimum(x_0, bound), -bound)
        num = move.to_data * x_0 + move.stay * state.num
        if self.solver != "ddim" and not last:
            num = num + move.fresh * normal_like(num, rng)
        p = ragged.softmax(logits.masked_fill(ragged.forbidden, -torch.inf))
        cat = ragged.draw(model.posterior(onehot, p, step), rng)
        probs = emitted_probs(p, ragged, state.class_probs)
        return TabDDPMState(num, cat, x_0, probs)
