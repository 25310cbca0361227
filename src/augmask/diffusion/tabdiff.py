"""TabDiff: mixed-type diffusion with a noise schedule per column (Shi et al., 2025).

Numbers are noised as in EDM, each column along its own power-mean schedule. Categories
are masked, each column along its own log-linear schedule, and the loss of a masked
token is its cross-entropy, weighted so that the sum bounds the likelihood. Every cell
becomes a token of four numbers; a small transformer, an MLP and another transformer
turn noisy tokens into denoised numbers and class logits.

At time t in [0, 1] a numeric column j has σ_j(t), and a token of a categorical column
is masked with probability m_j(t):

    σ_j(t) = ( σ_min^(1/r) + t (σ_max^(1/r) - σ_min^(1/r)) )^r      r_j > 5, or 7
    m_j(t) = (1 - 1e-3 - 1e-5) t^k + 1e-5                           k_j > 1, or 1

The second values are those of the fixed schedules, where all columns are alike.

Differences from the published code, on purpose: what it builds and never uses is left
out (a CLS token, the last norm and head of both transformers, a logit for [MASK], which
no class prediction may contain); times are spread evenly over a batch instead of drawn
one by one, the same distribution with less noise; tables without numbers or without
categories and batches of one row work. The MLP has the size of the AugMask paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from augmask.diffusion import edm_preconditioning as edm
from augmask.diffusion.base import Batch, CellLoss
from augmask.diffusion.nets import (
    Heads,
    TimeEmbedding,
    Tokenizer,
    mlp,
    padded_linear,
    transformer,
)
from augmask.diffusion.ragged import Ragged
from augmask.diffusion.random_draws import (
    RNG,
    low_discrepancy,
    normal_like,
    uniform_like,
)
from augmask.diffusion.reduce import Reduction, Weight
from augmask.diffusion.sampling import (
    InpaintConfig,
    Sampler,
    SamplerMixin,
    at,
    corrected_offset,
    emitted_probs,
)
from augmask.table.table import Layout, Table

SIGMA_MIN, SIGMA_MAX = 0.002, 80.0
MASK_MIN = 1e-5
MASK_SPAN = 1 - 1e-3 - MASK_MIN
FIXED_R, FIXED_K = 7.0, 1.0
LOWEST_R, LOWEST_K = 5.0, 1.0
RAW_R, RAW_K = 7.0, -6.0  # published starts: r = 12.0009, k = 1.0025
BLOCKS = 2  # of each transformer
TEMPERATURE = 0.01  # of the relaxed mask, from which only gradients come
# m'/m is 1e5 at time 0; no token is masked there, and none should weigh that much
MIN_TIME = 1e-5
MAX_CHURN = 2**0.5 - 1


# -- the forward process -----------------------------------------------------------


def power_mean(t: Tensor, r: Tensor | float) -> Tensor:
    """Return σ(t).

    Examples
    --------
    >>> power_mean(torch.tensor([0.0, 1.0]), 7.0)
    tensor([2.0000e-03, 8.0000e+01])
    """
    low, high = SIGMA_MIN ** (1 / r), SIGMA_MAX ** (1 / r)
    sigma: Tensor = (low + t * (high - low)) ** r
    return sigma


def power_mean_time(sigma: Tensor, r: Tensor | float) -> Tensor:
    """Return the time at which a column has `sigma`; above 1 beyond σ_max."""
    low, high = SIGMA_MIN ** (1 / r), SIGMA_MAX ** (1 / r)
    time: Tensor = (sigma ** (1 / r) - low) / (high - low)
    return time


def log_linear(t: Tensor, k: Tensor | float) -> Tensor:
    """Return the probability m(t) that a token is masked."""
    return MASK_SPAN * t**k + MASK_MIN


class PowerSchedules(nn.Module):
    """The schedules of all columns, learned until they are frozen.

    Parameters
    ----------
    n_num, n_cat : int
    learnable : bool
        False for the fixed exponents from the start.

    Shape
    -----
    - times t: [B], sigma: [B, d_num], probabilities m: [B, C]

    Examples
    --------
    >>> PowerSchedules(1, 1).sigma(torch.tensor([1.0])).round().tolist()
    [[80.0]]
    """

    fixed: Tensor

    def __init__(self, n_num: int, n_cat: int, learnable: bool = True) -> None:
        super().__init__()
        self.raw_r = nn.Parameter(torch.full((n_num,), RAW_R))
        self.raw_k = nn.Parameter(torch.full((n_cat,), RAW_K))
        # a buffer, so that a captured step and a saved model see it change
        self.register_buffer("fixed", torch.tensor(not learnable))

    @property
    def r(self) -> Tensor:
        """Exponents of the numeric columns."""
        return torch.where(self.fixed, FIXED_R, LOWEST_R + softplus(self.raw_r))

    @property
    def k(self) -> Tensor:
        """Exponents of the categorical columns."""
        return torch.where(self.fixed, FIXED_K, LOWEST_K + softplus(self.raw_k))

    def sigma(self, t: Tensor) -> Tensor:
        """Return the sigma of every numeric column."""
        return power_mean(t[:, None], self.r)

    def mask(self, t: Tensor) -> Tensor:
        """Return the masking probability of every categorical column."""
        return log_linear(t[:, None], self.k)

    def mask_weight(self, t: Tensor) -> Tensor:
        """Return m'(t) / m(t), the weight of a masked token in the likelihood bound."""
        slope: Tensor = MASK_SPAN * self.k * t[:, None] ** (self.k - 1)
        return slope / self.mask(t)

    def time(self, sigma: Tensor) -> Tensor:
        """Return the earliest time at which a column has its `sigma` [B, d_num]."""
        return power_mean_time(sigma, self.r).amin(1)

    @torch.no_grad()
    def freeze(self) -> bool:
        """Switch to the fixed exponents; return whether they were learned until now."""
        learned = not bool(self.fixed)
        self.fixed.fill_(True)
        return learned


def straight_through_mask(m: Tensor, uniform: Tensor) -> Tensor:
    """Return 1 with probability m and else 0, with the gradient of a relaxed mask.

    The difference of two Gumbel draws is logistic, so the relaxed binary sample is
    sigmoid((logit m + logit U) / temperature).

    Examples
    --------
    >>> straight_through_mask(torch.tensor([0.3, 0.3]), torch.tensor([0.6, 0.8]))
    tensor([0., 1.])
    """
    soft = torch.sigmoid((torch.logit(m) + torch.logit(uniform)) / TEMPERATURE)
    hard = (soft > 0.5).to(soft.dtype)
    return hard + (soft - soft.detach())


# -- the network -------------------------------------------------------------------


class RawNetwork(nn.Module):
    """Noisy row and time in, numbers (before preconditioning) and logits out.

    Shape
    -----
    - x: [B, d_num], slots and masked: [B, C], embedded time: [B, t] or [1, t]
    - out: [B, d_num] and [B, S]
    """

    def __init__(
        self,
        n_num: int,
        ragged: Ragged,
        width: int,
        depth: int,
        time_width: int,
        token_width: int,
    ) -> None:
        super().__init__()
        flat = token_width * (n_num + len(ragged.offsets))
        self.time = TimeEmbedding(time_width)
        self.tokens = Tokenizer(n_num, ragged, token_width)
        self.encoder = transformer(token_width, BLOCKS)
        self.project = nn.Linear(flat, time_width)
        self.hidden = mlp(time_width, width, depth)
        self.expand = nn.Linear(width, flat)
        self.decoder = transformer(token_width, BLOCKS)
        self.heads = Heads(n_num, ragged, token_width)

    def embed_time(self, t: Tensor) -> Tensor:
        """Embed EDM's c_noise, with the sigma of the fixed schedule."""
        embedded: Tensor = self.time(power_mean(t, FIXED_R).log() / 4)
        return embedded

    def forward(
        self, x: Tensor, slots: Tensor, masked: Tensor, time: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Predict from scaled noisy numbers, partly masked levels and the time."""
        tokens = self.encoder(self.tokens(x, slots, masked))
        hidden = padded_linear(tokens.flatten(1), self.project) + time
        expanded = self.hidden.with_head(hidden, self.expand)
        out: tuple[Tensor, Tensor] = self.heads(
            self.decoder(expanded.reshape(tokens.shape))
        )
        return out


# -- the backbone: loss and sampling -----------------------------------------------


class TabDiff(SamplerMixin, nn.Module):
    """The TabDiff backbone.

    Solvers: `heun`, as published, adds a little noise before every step and denoises
    the numbers twice (2 `steps` - 1 network calls). `dpmpp_2m` adds no noise and is of
    second order from the memory of one step (DPM-Solver++ 2M, `steps` calls), which is
    enough with few steps. Both reveal categories in the same way.

    Parameters
    ----------
    layout : Layout
        Columns to model.
    width, depth : int
        Hidden layers of the MLP; 801 and 5 in the AugMask paper.
    time_width : int
        Width of the time embedding and of the first projection.
    token_width : int
        Numbers per token.
    learnable : bool
        Learn each column's noise schedule, or use the fixed ones.
    anneal : bool
        Bring the weight of numeric losses down from 1 to 0 over the training, as the
        published code does. AugMask's formulas do not show it.

    Examples
    --------
    >>> model = TabDiff(Layout(("x",), ("y",), (3,)), width=8, depth=1)
    >>> batch = Batch(torch.zeros(4, 1), torch.zeros(4, 1, dtype=torch.long))
    >>> model.cell_loss(batch, torch.Generator().manual_seed(0)).main.shape
    torch.Size([4, 2])
    """

    reduction: Reduction = "batch-by-type"
    # Separate models fill a GPU already: its time goes into narrow tokens, not into
    # matrix products. On an H200, six models took 669 steps a second one after the
    # other; eight as one batch took 224 (with an earlier version of attention).
    supports_batching = False
    solvers = ("heun", "dpmpp_2m")
    min_steps = 2
    inpaint_config = InpaintConfig(30, "dpmpp_2m")

    def __init__(
        self,
        layout: Layout,
        *,
        width: int = 801,
        depth: int = 5,
        time_width: int = 256,
        token_width: int = 4,
        learnable: bool = True,
        anneal: bool = True,
    ) -> None:
        super().__init__()
        self.n_num, self.n_cat, self.anneal = layout.n_num, layout.n_cat, anneal
        self.ragged = Ragged(layout.cards, layout.reserved)
        self.schedules = PowerSchedules(self.n_num, self.n_cat, learnable)
        self.net = RawNetwork(
            self.n_num, self.ragged, width, depth, time_width, token_width
        )

    def init_from_data(self, table: Table) -> None:
        """Set nothing: no constant of TabDiff depends on the data."""

    def denoise(
        self, x: Tensor, cat: Tensor, masked: Tensor, sigma: Tensor, time: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return denoised numbers and class logits."""
        scaled = edm.scaled_input(x, sigma)
        out, logits = self.net(scaled, self.ragged.slots(cat), masked, time)
        return edm.denoised(x, out, sigma), logits

    def _errors(
        self, batch: Batch, noise: Tensor, sigma: Tensor, masked: Tensor, t: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return F - target [B, d_num] and cross-entropies [B, C] of a noised batch."""
        num, cat = batch
        x = edm.scaled_input(num + sigma * noise, sigma)
        slots = self.ragged.slots(cat)
        out, logits = self.net(x, slots, masked, self.net.embed_time(t))
        return (
            out - edm.target(num, noise, sigma),
            self.ragged.cross_entropy(logits, cat),
        )

    def cell_loss(self, batch: Batch, generator: RNG) -> CellLoss:
        """Return EDM's weighted error of numbers, and the bound's share of categories.

        A token that is not masked has nothing to predict and loss zero.
        """
        num, cat = batch
        t = low_discrepancy(num, generator).clamp(min=MIN_TIME)
        noise = normal_like(num, generator)
        masked = straight_through_mask(
            self.schedules.mask(t), uniform_like(num.new_empty(cat.shape), generator)
        )
        error, entropy = self._errors(batch, noise, self.schedules.sigma(t), masked, t)
        weight = self.schedules.mask_weight(t) * masked.detach()
        return CellLoss(torch.cat([error.square(), weight * entropy], 1))

    def type_weights(self, progress: Weight) -> tuple[Weight, Weight]:
        """Return the weights of numeric and categorical losses."""
        return (1 - progress if self.anneal else 1.0), 1.0

    def recover(self) -> str:
        """After a loss that is not finite, stop learning the noise schedules."""
        if self.schedules.freeze():
            return "TabDiff continues with fixed noise schedules"
        return ""

    @torch.no_grad()
    def validation_loss(self, batch: Batch, generator: RNG) -> Tensor:
        """Return squared errors and cross-entropies under the fixed schedules.

        Two passes: at time t with masked tokens M ~ m(t), and at time 1 - t with the
        complement of M masked, which is as often as m(1 - t) says. So every category is
        predicted once, with its own token masked and others at random, and every number
        twice, of which the mean is taken.
        """
        num, cat = batch
        t = low_discrepancy(num, generator)
        m = log_linear(t, FIXED_K)[:, None]
        masked = (uniform_like(num.new_empty(cat.shape), generator) < m).to(num.dtype)
        noise = normal_like(num, generator)
        squared, entropy = torch.zeros_like(num), torch.zeros_like(masked)
        for time, hidden in ((t, masked), (1 - t, 1 - masked)):
            sigma = power_mean(time, FIXED_R)[:, None]
            error, entropies = self._errors(batch, noise, sigma, hidden, time)
            variance = sigma.square() / (1 + sigma.square())
            squared += variance * error.square() / 2
            entropy += hidden * entropies
        return torch.cat([squared, entropy], 1)

    def make_sampler(self, steps: int, solver: str) -> Sampler:
        """Return the reverse process."""
        return (HeunSampler if solver == "heun" else MultistepSampler)(self, steps)


# -- the samplers ------------------------------------------------------------------


class TabDiffState(NamedTuple):
    """The state of TabDiff's samplers."""

    num: Tensor
    cat: Tensor  # codes, without meaning under a mask
    masked: Tensor  # 1 or 0 per category
    denoised: Tensor  # numbers, by the last step
    has_last: Tensor  # [B, 1], 1 if the next step may use what the last one denoised
    class_probs: Tensor


class TabDiffSampler:
    """What both solvers share, see `augmask.diffusion.sampling.Sampler`.

    Numbers follow the probability-flow ODE, categories are revealed: in a step from
    masking probability m to m' a masked token gets a class drawn from the prediction,
    and a share m' / m of the tokens stays masked. `finish` includes the last step.
    """

    def __init__(self, model: TabDiff, steps: int) -> None:
        self.model, self.n_steps = model, steps - 1
        self.like = model.net.expand.weight
        self.n_slots = len(model.ragged.emitted)
        kind: dict[str, Any] = {"dtype": self.like.dtype, "device": self.like.device}
        self.t = torch.linspace(1, 0, steps, **kind)
        self.sigma = model.schedules.sigma(self.t)
        self.mask = model.schedules.mask(self.t)
        self.mask_hat = self.mask  # after noise is added, if a solver does
        self.next_sigma, self.next_mask = _next(self.sigma), _next(self.mask)
        self.times = model.net.embed_time(self.t)
        # the mean over columns; without numbers, the odds of a mask
        sigma = self.sigma if model.n_num else self.mask / (1 - self.mask)
        self.sigmas: Sequence[float] = sigma.mean(1).tolist()

    def start(self, n: int, rng: RNG) -> TabDiffState:
        """Return noise of the largest sigma, and every token masked."""
        x = self.sigma[0] * normal_like(self.like.new_empty(n, self.model.n_num), rng)
        masked = x.new_ones(n, self.model.n_cat)
        cat = torch.zeros_like(masked, dtype=torch.long)
        return TabDiffState(
            x, cat, masked, torch.zeros_like(x), x.new_zeros(n, 1), x.new_zeros(n, 0)
        )

    def step(self, state: TabDiffState, i: Tensor, rng: RNG) -> TabDiffState:
        """Take a step of the solver."""
        raise NotImplementedError

    def finish(self, state: TabDiffState, rng: RNG) -> Batch:
        """Take the last step, to numbers without noise and no mask."""
        last = torch.tensor(self.n_steps, device=self.t.device)
        state = self.step(state, last, rng)
        return Batch(state.num, state.cat)

    def renoise(self, state: TabDiffState, i: Tensor, rng: RNG) -> TabDiffState:
        """Add noise of variance σ² - σ'², and mask a share of what was revealed."""
        s, s_next = at(self.sigma, i), at(self.sigma, i + 1)
        m, m_next = at(self.mask, i), at(self.mask, i + 1)
        spread = (s.square() - s_next.square()).sqrt()
        return state._replace(
            num=state.num + spread * normal_like(state.num, rng),
            masked=self._masked_again(state.masked, 1 - (1 - m) / (1 - m_next), rng),
            has_last=torch.zeros_like(state.has_last),
        )

    def offset(self, batch: Batch) -> Tensor:
        """Return e = 0 for numbers; a known category is simply not masked."""
        return torch.zeros_like(batch.num)

    def updated_offset(
        self, e: Tensor, state: TabDiffState, batch: Batch, i: Tensor
    ) -> Tensor:
        """Correct e by what the step has denoised."""
        return corrected_offset(e, batch.num, state.denoised, at(self.sigma, i))

    def noise_known(self, batch: Batch, e: Tensor, i: Tensor, _rng: RNG) -> Batch:
        """Return x + σ e, and the codes themselves."""
        return Batch(batch.num + at(self.sigma, i) * e, batch.cat)

    def apply_known(
        self, state: TabDiffState, known: Batch, num: Tensor, cat: Tensor
    ) -> TabDiffState:
        """Replace and unmask known cells; the memory of the last step stays."""
        return state._replace(
            num=torch.where(num, known.num, state.num),
            cat=torch.where(cat, known.cat, state.cat),
            masked=torch.where(cat, 0.0, state.masked),
        )

    def _masked_again(self, masked: Tensor, share: Tensor, rng: RNG) -> Tensor:
        hide = uniform_like(torch.empty_like(masked), rng) < share
        return torch.where(hide, 1.0, masked)

    def _class_probs(self, logits: Tensor, state: TabDiffState) -> Tensor:
        """Return class probabilities, 1 for the class of a revealed token."""
        if not state.class_probs.shape[1]:
            return state.class_probs
        ragged = self.model.ragged
        p = ragged.softmax(logits.masked_fill(ragged.forbidden, -torch.inf))
        hidden = state.masked.index_select(1, ragged.column)
        p = torch.where(hidden > 0, p, ragged.one_hot(state.cat, p))
        return emitted_probs(p, ragged, state.class_probs)

    def _reveal(
        self, logits: Tensor, state: TabDiffState, i: Tensor, rng: RNG
    ) -> tuple[Tensor, Tensor]:
        """Draw classes for masked tokens, of which a share m' / m stays masked."""
        ragged = self.model.ragged
        mask, next_mask = at(self.mask_hat, i), at(self.next_mask, i)
        # the Gumbel-max trick, as a race of exponential clocks of rates p
        clocks = -uniform_like(logits, rng).log()
        race = (logits - clocks.log()).masked_fill(ragged.forbidden, -torch.inf)
        stays = uniform_like(logits.new_empty(state.cat.shape), rng) * mask < next_mask
        cat = torch.where(state.masked > 0, ragged.argmax(race), state.cat)
        return cat, torch.where(stays, state.masked, 0.0)


class HeunSampler(TabDiffSampler):
    """EDM's stochastic Heun solver: add noise, denoise, denoise at the next sigma."""

    def __init__(self, model: TabDiff, steps: int) -> None:
        super().__init__(model, steps)
        t_hat, self.sigma_hat = self.churned(min(1 / steps, MAX_CHURN))
        self.mask_hat = model.schedules.mask(t_hat)
        extra = self.sigma_hat.square() - self.sigma.square()
        self.extra = extra.clamp(min=0).sqrt()
        self.share = 1 - (1 - self.mask_hat) / (1 - self.mask)
        self.times_hat = model.net.embed_time(t_hat)

    def churned(self, gamma: float) -> tuple[Tensor, Tensor]:
        """Return times and sigmas after noise is added, unless it exceeds time 1.

        The columns' schedules differ, so one time fits one column only: the earliest is
        used. Without numeric columns the fixed schedule stands in.
        """
        raised = (1 + gamma) * self.sigma
        if self.model.n_num:
            later = self.model.schedules.time(raised)
        else:
            sigma = (1 + gamma) * power_mean(self.t, FIXED_R)
            later = power_mean_time(sigma, FIXED_R)
        room = later <= 1
        return (
            torch.where(room, later, self.t),
            torch.where(room[:, None], raised, self.sigma),
        )

    def step(self, state: TabDiffState, i: Tensor, rng: RNG) -> TabDiffState:
        """Take the Euler step and correct it."""
        state, denoised, logits = self._churn_and_denoise(state, i, rng)
        slope = (state.num - denoised) / at(self.sigma_hat, i)
        next_sigma = at(self.next_sigma, i)
        h = next_sigma - at(self.sigma_hat, i)
        to = state.num + h * slope
        # only the numbers are denoised again: the categories are still those of the
        # start
        d, _ = self.model.denoise(
            to, state.cat, state.masked, next_sigma, at(self.times, i + 1)
        )
        num = state.num + h * (slope + (to - d) / next_sigma) / 2
        probs = self._class_probs(logits, state)
        cat, masked = self._reveal(logits, state, i, rng)
        return TabDiffState(num, cat, masked, denoised, state.has_last, probs)

    def finish(self, state: TabDiffState, rng: RNG) -> Batch:
        """Take the last step, to σ = 0, without the correction."""
        last = torch.tensor(self.n_steps, device=self.t.device)
        state, denoised, logits = self._churn_and_denoise(state, last, rng)
        return Batch(denoised, self._reveal(logits, state, last, rng)[0])

    def _churn_and_denoise(
        self, state: TabDiffState, i: Tensor, rng: RNG
    ) -> tuple[TabDiffState, Tensor, Tensor]:
        """Add noise; return the noisier state, denoised numbers and logits."""
        state = state._replace(
            num=state.num + at(self.extra, i) * normal_like(state.num, rng),
            masked=self._masked_again(state.masked, at(self.share, i), rng),
        )
        sigma, time = at(self.sigma_hat, i), at(self.times_hat, i)
        denoised, logits = self.model.denoise(
            state.num, state.cat, state.masked, sigma, time
        )
        return state, denoised, logits


class MultistepSampler(TabDiffSampler):
    """DPM-Solver++ 2M: no added noise, one network call a step, memory of the last."""

    def __init__(self, model: TabDiff, steps: int) -> None:
        super().__init__(model, steps)
        self.ratio = self.next_sigma / self.sigma
        self.extrapolation = torch.zeros_like(self.ratio)
        if steps > 2:
            # the first step has no memory, and the last, to σ = 0, stays first order
            h = -self.ratio[:-1].log()
            self.extrapolation[1:-1] = h[1:] / (2 * h[:-1])

    def step(self, state: TabDiffState, i: Tensor, rng: RNG) -> TabDiffState:
        """Denoise, and extrapolate the change since the last step."""
        d, logits = self.model.denoise(
            state.num, state.cat, state.masked, at(self.sigma, i), at(self.times, i)
        )
        to = d + state.has_last * at(self.extrapolation, i) * (d - state.denoised)
        num = torch.lerp(to, state.num, at(self.ratio, i))
        probs = self._class_probs(logits, state)
        cat, masked = self._reveal(logits, state, i, rng)
        return TabDiffState(num, cat, masked, d, torch.ones_like(state.has_last), probs)


def _next(values: Tensor) -> Tensor:
    """Return for every step the values that it leads to, 0 for the last."""
    return torch.cat([values[1:], torch.zeros_like(values[:1])])
