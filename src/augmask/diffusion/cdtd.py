"""CDTD: continuous diffusion for mixed-type tables (Mueller et al., ICLR 2025).

Numbers are diffused directly, categories as points v_jk on a sphere of radius 4 in 16
dimensions. One network sees the whole noisy row and predicts numbers and class logits;
the expected point under the predicted classes is the denoised category (score
interpolation), so one probability-flow ODE carries both kinds.

Differences from the published code, on purpose: the re-weighting network regresses on
each cell's own loss, as AugMask writes it (the published one broadcasts to a B × B
matrix and learns a constant; without any division Adult ended alike or worse); the warp
is fitted per cell for the same reason, and can be anchored to its start (`anchor`, off
by default); class frequencies and entropies come from observed cells only; tables with
no numeric or no categorical column work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, normalize, softplus

from augmask.diffusion import edm_preconditioning as edm
from augmask.diffusion.base import Batch, CellLoss
from augmask.diffusion.joint_precondition import (
    JointPreconditioner,
    shared,
    spread_points,
)
from augmask.diffusion.nets import (
    DirectPath,
    RandomFourier,
    TimeEmbedding,
    mlp,
    padded_linear,
)
from augmask.diffusion.ragged import Ragged
from augmask.diffusion.random_draws import RNG, log_time, low_discrepancy, normal_like
from augmask.diffusion.reduce import Reduction
from augmask.diffusion.sampling import (
    InpaintConfig,
    SamplerMixin,
    at,
    corrected_offset,
    emitted_probs,
)
from augmask.diffusion.table_precondition import Preconditioner
from augmask.errors import UsageError
from augmask.table.table import Layout, Table

SIGMA_MAX_NUM = 80.0
SIGMA_MAX_CAT = 100.0
LOGIT_EPS = 1e-7  # closer to 0 or 1 a float32 logit is noise
INITIAL_STEEPNESS = 1.01
BISECTIONS = 32  # until float32 cannot resolve the interval
EMBEDDING_SD = 1e-3  # of the raw embedding; only its direction matters
PSEUDO_COUNT = 1e-2  # keeps log p finite for a level that was never observed
MIN_ENTROPY = 1e-2  # nats; a column with one level would weigh infinitely
EDM_EPS = 1e-7
Precondition = Literal["cell", "table", "joint"]
# With more inputs and outputs, `table` has a direct path. Of two tables that were
# tried, one with 36 is worse with the path and one with 281 without it.
WIDE = 200
# Numbers of a matrix of all levels times all coordinates: 512 MiB.
MOST_BLOCK = 2**27
NUM, CAT = 0, 1  # groups of the time warp
# sigmas between which a row is neither legible nor lost
VALIDATION_SIGMAS = (0.05, 20.0)


# -- the forward process: sigma as a function of time ------------------------------


class TimeWarp(nn.Module):
    """The learned distribution of sigma in training.

    Every group of columns (numeric, categorical) has a distribution over the scaled
    x = σ / σ_max in (0, 1), log-logistic in the odds of x:

        F(x) = sigmoid( ν (logit x - a) )          the warp, from x to time u
        f(x) = ν F (1 - F) / (x (1 - x))           its density
        Q(u) = sigmoid( a + logit(u) / ν )         its inverse, from time to x

    Scaled by s, F is regressed on the loss as a function of x. Drawing u uniformly then
    spends most steps where the loss changes fastest.

    A warp can be anchored: it keeps its initial F₀ for the share α of the time,

        G(x) = (1 - α) F(x) + α F₀(x)

    The published one has α = 0. The anchor is for training alone: a sampler with times
    even in G would take most of its steps at high sigmas, where rows hardly change, so
    its times are even in F.

    Parameters
    ----------
    sigma_max : tuple of float
        The largest sigma of every group.
    low_noise : float
        How many times more time the lower half of the sigmas gets at the start than
        the upper half; 3 as published. It is learned from there, a thousandth a step,
        so a short run should start where long ones end, near 100.
    anchored : bool
        Whether a share of the time stays at the start; buffer `anchor` holds α.

    Shape
    -----
    - times u: [B], sigma: [B, G] for G groups

    Examples
    --------
    >>> warp = TimeWarp((80.0, 100.0))
    >>> warp.sigma(torch.tensor([0.0, 1.0])).tolist()
    [[0.0, 0.0], [80.0, 100.0]]
    """

    sigma_max: Tensor
    anchor: Tensor

    def __init__(
        self,
        sigma_max: tuple[float, ...],
        low_noise: float = 3.0,
        anchored: bool = False,
    ) -> None:
        super().__init__()
        self.anchored = anchored
        self.register_buffer("anchor", torch.zeros(()), persistent=anchored)
        self.register_buffer("sigma_max", torch.tensor(sigma_max), persistent=False)
        ones = torch.ones(len(sigma_max))
        self.start = -math.log(low_noise) / INITIAL_STEEPNESS
        self.location = nn.Parameter(self.start * ones)
        self.raw_steepness = nn.Parameter(
            _inverse_softplus(INITIAL_STEEPNESS - 1) * ones
        )
        self.raw_scale = nn.Parameter(_inverse_softplus(1.0) * ones)

    @property
    def steepness(self) -> Tensor:
        """ν, always above 1 so that the density stays bounded."""
        return 1 + softplus(self.raw_steepness)

    def sigma(self, u: Tensor) -> Tensor:
        """Return the sigma of every group at times `u`, exact at both ends."""
        x = torch.sigmoid(self._odds(u.clamp(LOGIT_EPS, 1 - LOGIT_EPS)[:, None]))
        x = torch.where(u[:, None] <= 0, torch.zeros_like(x), x)
        x = torch.where(u[:, None] >= 1, torch.ones_like(x), x)
        return x * self.sigma_max

    def sampling_times(self, u: Tensor) -> Tensor:
        """Return the times [B] at which sigma is what a free warp has at `u` [B].

        A row has one time for all groups, so it is the mean of theirs. Ends are exact.
        """
        if not self.anchored:
            return u
        odds = self.location + (
            torch.logit(u.clamp(LOGIT_EPS, 1 - LOGIT_EPS)[:, None]) / self.steepness
        )
        times = self._time(odds).mean(1)
        return torch.where((u <= 0) | (u >= 1), u, times)

    def time(self, sigma: Tensor, group: int) -> Tensor:
        """Return the times [B] at which `group` has the given `sigma` [B]."""
        x = (sigma / self.sigma_max[group]).clamp(LOGIT_EPS, 1 - LOGIT_EPS)[:, None]
        return self._time(torch.logit(x))[:, group]

    def _time(self, odds: Tensor) -> Tensor:
        """Return G where x has these log odds, [B, G]."""
        free = torch.sigmoid(self.steepness * (odds - self.location))
        if not self.anchored:
            return free
        initial = torch.sigmoid(INITIAL_STEEPNESS * (odds - self.start))
        return torch.lerp(free, initial, self.anchor)

    def _odds(self, u: Tensor) -> Tensor:
        """Return the log odds of x at times u [B, 1]."""
        free = self.location + torch.logit(u) / self.steepness
        if not self.anchored:
            return free
        initial = self.start + torch.logit(u) / INITIAL_STEEPNESS
        # G has no inverse in closed form, but it lies between those of its parts
        low, high = torch.minimum(free, initial), torch.maximum(free, initial)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            above = self._time(middle) < u
            low = torch.where(above, middle, low)
            high = torch.where(above, high, middle)
        return (low + high) / 2

    def density(self, odds: Tensor) -> Tensor:
        """Return the density of x at these log odds for times drawn evenly, [B, G]."""
        z = self.steepness * (odds - self.location)
        # sigmoid(-z) keeps the digits that 1 - sigmoid(z) loses
        slope = self.steepness * torch.sigmoid(z) * torch.sigmoid(-z)
        if self.anchored:
            z = INITIAL_STEEPNESS * (odds - self.start)
            initial = INITIAL_STEEPNESS * torch.sigmoid(z) * torch.sigmoid(-z)
            slope = torch.lerp(slope, initial, self.anchor)
        return slope / (torch.sigmoid(odds) * torch.sigmoid(-odds))

    def fit_loss(self, sigma: Tensor, losses: Tensor, group: Tensor) -> Tensor:
        """Regress the scaled warp on the losses at `sigma`.

        Parameters
        ----------
        sigma : Tensor [B, G]
        losses : Tensor [B, d]
            Used as constants.
        group : Tensor [d]
            The group of every column.

        Returns
        -------
        Tensor [B, d]
            Squared errors over the density, which corrects for drawing sigma through
            the warp itself.
        """
        x = (sigma.detach() / self.sigma_max).clamp(LOGIT_EPS, 1 - LOGIT_EPS)
        odds = torch.logit(x)
        cdf = torch.sigmoid(self.steepness * (odds - self.location))
        density = self.density(odds).detach()
        predicted = softplus(self.raw_scale) * cdf
        error = predicted.index_select(1, group) - losses.detach()
        return error.square() / (density[:, group] + LOGIT_EPS)


def _inverse_softplus(value: float) -> float:
    return math.log(math.expm1(value))


# -- the network -------------------------------------------------------------------


class RawNetwork(nn.Module):
    """Noisy row and time in, numbers (before preconditioning) and logits out.

    With `direct` a linear path bypasses the hidden layers, see `DirectPath`.

    Shape
    -----
    - x: [B, d_num + C * e], embedded time: [B, t] or [1, t], out: [B, d_num + S]
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        width: int,
        depth: int,
        time_width: int,
        direct: bool = False,
    ) -> None:
        super().__init__()
        self.time = TimeEmbedding(time_width)
        self.project = nn.Linear(n_in, time_width)
        self.hidden = mlp(time_width, width, depth)
        self.head = nn.Linear(width, n_out)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.direct = DirectPath(n_in, n_out, time_width) if direct else None

    def embed_time(self, log_u: Tensor) -> Tensor:
        """Embed the logarithm of the time, see `log_time`."""
        embedded: Tensor = self.time(250 * log_u)
        return embedded

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Predict from a scaled noisy row and its embedded time."""
        out = self.hidden.with_head(padded_linear(x, self.project) + time, self.head)
        return out if self.direct is None else out + self.direct(x, time)


# -- the backbone: loss and sampling -----------------------------------------------


class CDTD(SamplerMixin, nn.Module):
    """The CDTD backbone.

    Solvers: `euler`, first order as published, and `dpmpp_2m`, second order from the
    memory of one step (DPM-Solver++ 2M), which needs fewer steps for the same error.
    Sampling takes `steps` + 1 network calls.

    Parameters
    ----------
    layout : Layout
        Columns to model.
    width, depth : int
        Hidden layers; 796 and 5 in the paper.
    time_width : int
        Width of the time embedding and of the first projection.
    cat_width : int
        Dimensions of a category's embedding.
    low_noise : float
        Where the time warp starts, see `TimeWarp`.
    anchor : float, optional
        Share of the training time that the warp stays at its start; 0, the default, is
        as published. None uses the share of pairs of cells in a row that were not
        observed together, 1 - r² with r the share of observed cells: where much is
        missing, a free warp leaves little time for high sigmas
        (docs/research/backbones.md). The sampler follows the learned warp in either
        case.
    precondition : {"cell", "table", "joint"}
        What the network starts from. `cell`, as published: each number's own noisy
        value, and nothing for categories. `table`: all that correlations and
        frequencies imply, see `precondition`. Wide tables need it, and also get a
        direct linear path (`DirectPath`). `joint`: a linear model of numbers and levels
        together, see `joint_precondition`; its cost grows with the cube of the number
        of levels, and points of categories are not learned.

    Examples
    --------
    >>> model = CDTD(Layout(("x",), ("y",), (3,)), width=8, depth=1)
    >>> batch = Batch(torch.zeros(4, 1), torch.zeros(4, 1, dtype=torch.long))
    >>> model.cell_loss(batch, torch.Generator().manual_seed(0)).main.shape
    torch.Size([4, 2])
    """

    reduction: Reduction = "batch"
    solvers = ("euler", "dpmpp_2m")
    inpaint_config = InpaintConfig(30, "dpmpp_2m")
    group: Tensor
    entropy: Tensor

    def __init__(
        self,
        layout: Layout,
        *,
        width: int = 796,
        depth: int = 5,
        time_width: int = 256,
        cat_width: int = 16,
        low_noise: float = 3.0,
        anchor: float | None = 0.0,
        precondition: Precondition = "cell",
    ) -> None:
        super().__init__()
        if precondition not in get_args(Precondition):
            raise UsageError(
                f"precondition must be one of {get_args(Precondition)}, got "
                f"{precondition!r}"
            )
        if anchor is not None and not 0 <= anchor <= 1:
            raise UsageError(f"anchor must lie between 0 and 1, got {anchor!r}")
        self.n_num, self.n_cat, self.cat_width = layout.n_num, layout.n_cat, cat_width
        self.ragged = Ragged(layout.cards, layout.reserved)
        slots = self.ragged.n_slots
        self.joint: JointPreconditioner | None = None
        if precondition == "joint":
            self.joint = JointPreconditioner(self.n_num, self.ragged)
            self.register_buffer("embedding", spread_points(layout.cards, cat_width))
            self.register_buffer("shift", torch.zeros(self.n_cat, cat_width))
        else:
            self.embedding = nn.Parameter(EMBEDDING_SD * torch.randn(slots, cat_width))
            self.shift = nn.Parameter(torch.zeros(self.n_cat, cat_width))
        n_in = self.n_num + self.n_cat * cat_width
        self.preconditioner: Preconditioner | None = None
        if precondition == "table":
            self.preconditioner = Preconditioner(self.n_num, self.ragged)
        started = precondition != "cell"
        n_in += self.n_num * started
        n_out = self.n_num + slots
        direct = started and n_in + n_out > WIDE
        self.net = RawNetwork(n_in, n_out, width, depth, time_width, direct)
        if started:
            # torch scales by the number of coordinates; here a column counts as one
            with torch.no_grad():
                self.net.project.weight *= math.sqrt(n_in / layout.n_features)
        self.warp = TimeWarp((SIGMA_MAX_NUM, SIGMA_MAX_CAT), low_noise, anchor != 0)
        self.warp.anchor.fill_(anchor or 0.0)
        self.anchored_by_data = anchor is None
        # rho(u), the loss expected at time u
        self.log_weight = RandomFourier(512)

        group = torch.tensor([NUM] * self.n_num + [CAT] * self.n_cat)
        self.register_buffer("group", group.long(), persistent=False)
        self.register_buffer("entropy", torch.ones(self.n_cat))

    def init_from_data(self, table: Table) -> None:
        """Set class frequencies, entropies and the anchor from observed cells.

        At time 1 the untrained network then predicts the marginal distribution of every
        column, and every column's calibrated loss is 1.
        """
        frequencies = [
            _smoothed_frequencies(codes[observed], card)
            for codes, observed, card in zip(
                table.cat.T, table.cat_observed.T, table.layout.cards, strict=True
            )
        ]
        with torch.no_grad():
            if self.anchored_by_data:
                self.warp.anchor.fill_(1 - float(table.observed.mean()) ** 2)
            for j, p in enumerate(frequencies):
                self.entropy[j] = max(float(-(p * np.log(p)).sum()), MIN_ENTROPY)
            log_p = torch.from_numpy(np.log(np.concatenate([*frequencies, []])))
            if self.joint is not None:
                self.joint.init_from_data(table, log_p, self.category_points())
                return
            self.net.head.bias[self.n_num :] = log_p.to(self.net.head.bias)
            if self.preconditioner is not None:
                self.preconditioner.init_from_data(table, log_p)

    def category_points(self) -> Tensor:
        """Return v, the points of all categories on their spheres, [S, e]."""
        # embedding(), not indexing: threads add up the gradient of an index in any
        # order, and the same seed would no longer give the same weights
        raw = self.embedding + embedding(self.ragged.column, self.shift)
        return math.sqrt(self.cat_width) * normalize(raw, dim=1)

    def denoise(
        self, x_num: Tensor, x_cat: Tensor, sigma: Tensor, time: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return denoised numbers D [B, d_num] and class logits [B, S]."""
        s_num, s_cat = sigma[:, NUM, None], sigma[:, CAT, None]
        if self.joint is not None:
            points = self.category_points()
            evidence = self.joint.evidence(x_cat, points, s_cat)
            start = self.joint.start(x_num, evidence, points, sigma)
            out = self.net(start.inputs, time)
            num, cat = out[:, : self.n_num], out[:, self.n_num :]
            return start.mean + start.spread * num, start.logits + cat
        if self.preconditioner is not None:
            points = self.category_points()
            evidence = self.preconditioner.evidence(x_cat, points, s_cat)
            inputs = self.preconditioner.inputs(x_num, evidence, points, s_num)
            out = self.net(inputs, time)
            denoised = self.preconditioner.denoised(x_num, out[:, : self.n_num], s_num)
            return denoised, out[:, self.n_num :] + evidence
        scaled = [
            edm.scaled_input(x_num, s_num),
            edm.scaled_input(x_cat.flatten(1), s_cat),
        ]
        out = self.net(torch.cat(scaled, 1), time)
        denoised = edm.denoised(x_num, out[:, : self.n_num], s_num)
        return denoised, out[:, self.n_num :]

    def losses_at(
        self, batch: Batch, log_u: Tensor, sigma: Tensor, generator: RNG
    ) -> tuple[Tensor, Tensor]:
        """Return calibrated losses A and W [B, d]: without and with EDM's weight."""
        num, cat = batch
        s_num, s_cat = sigma[:, NUM, None], sigma[:, CAT, None]
        points = embedding(self.ragged.slots(cat), self.category_points())
        x_num = num + s_num * normal_like(num, generator)
        x_cat = points + s_cat[:, :, None] * normal_like(points, generator)
        time = self.net.embed_time(log_u)
        denoised, logits = self.denoise(x_num, x_cat, sigma, time)

        squared = (denoised - num).square()
        entropy = self.ragged.cross_entropy(logits, cat) / self.entropy
        weight = (1 + s_num.square()) / (s_num.square() + EDM_EPS)
        return (
            torch.cat([squared, entropy], 1),
            torch.cat([squared * weight, entropy], 1),
        )

    def cell_loss(self, batch: Batch, generator: RNG) -> CellLoss:
        """Return W / rho per cell; the warp and rho learn from the same cells.

        The three losses train disjoint parameters: all targets are constants.
        """
        u = low_discrepancy(batch.num, generator)
        log_u = log_time(u, generator)
        if self.joint is not None:
            u, log_u = shared(u), shared(log_u)
        with torch.no_grad():
            sigma = self.warp.sigma(u)
        plain, weighted = self.losses_at(batch, log_u, sigma, generator)
        rho = self.log_weight(0.25 * log_u).exp()[:, None]
        aux = {
            "weight": (rho - weighted.detach()).square(),
            "warp": self.warp.fit_loss(sigma, plain, self.group),
        }
        return CellLoss(main=weighted / rho.detach(), aux=aux)

    @torch.no_grad()
    def validation_loss(self, batch: Batch, generator: RNG) -> Tensor:
        """Return A per cell at sigmas that do not depend on what was learned.

        The learned warp ties both groups to one time, so each group is scored at the
        times where it has these sigmas.
        """
        low, high = map(math.log, VALIDATION_SIGMAS)
        sigmas = (low + (high - low) * low_discrepancy(batch.num, generator)).exp()
        if self.joint is not None:
            sigmas = shared(sigmas)
        parts = []
        for group in (NUM, CAT):
            u = self.warp.time(sigmas, group)
            losses, _ = self.losses_at(
                batch, log_time(u), self.warp.sigma(u), generator
            )
            parts.append(losses[:, self.group == group])
        return torch.cat(parts, 1)

    def diagnostics(self) -> dict[str, Tensor]:
        """Return location and steepness of the warp of numbers and of categories."""
        kinds = [("num", NUM)] * (self.n_num > 0) + [("cat", CAT)] * (self.n_cat > 0)
        location, steepness = self.warp.location.detach(), self.warp.steepness.detach()
        return {
            f"warp_{name}_{kind}": values[group]
            for kind, group in kinds
            for name, values in (("location", location), ("steepness", steepness))
        }

    def make_sampler(self, steps: int, solver: str) -> CDTDSampler:
        """Return the reverse process."""
        return CDTDSampler(self, steps, solver)


def _smoothed_frequencies(codes: np.ndarray, card: int) -> np.ndarray:
    counts = np.bincount(codes, minlength=card) + PSEUDO_COUNT
    return np.asarray(counts / counts.sum())


# -- the sampler -------------------------------------------------------------------


class NoisyCells(NamedTuple):
    """Numbers and the flattened points of categories, or their offsets."""

    num: Tensor  # [B, d_num]
    points: Tensor  # [B, C * e]


class CDTDState(NamedTuple):
    """The state of `CDTDSampler`."""

    num: Tensor
    points: Tensor
    denoised_num: Tensor  # by the last step
    denoised_points: Tensor
    has_last: Tensor  # [B, 1], 1 if the next step may use what the last one denoised
    class_probs: Tensor


class CDTDSampler:
    """The probability-flow ODE, see `augmask.diffusion.sampling.Sampler`.

    Euler moves x to r x + (1 - r) D with r = σ' / σ. The second-order step replaces D
    by D + (h / 2 h_last)(D - D_last), h being the step in log σ (DPM-Solver++ 2M); the
    last step, to σ = 0, stays first order.
    """

    # a start leads to nearly the same row in few steps as in many
    deterministic = True

    def __init__(self, model: CDTD, steps: int, solver: str) -> None:
        self.model, self.n_steps = model, steps
        self.n_slots = len(model.ragged.emitted)
        self.points = model.category_points()
        self.point_width = model.n_cat * model.cat_width
        # maps the probabilities of all levels to the expected point of every column
        self.block: Tensor | None = None
        if model.ragged.n_slots * self.point_width <= MOST_BLOCK:
            slots = torch.arange(model.ragged.n_slots, device=self.points.device)
            block = self.points.new_zeros(len(slots), model.n_cat, model.cat_width)
            block[slots, model.ragged.column] = self.points
            self.block = block.flatten(1)
        u = model.warp.sampling_times(
            torch.linspace(
                1, 0, steps + 1, dtype=self.points.dtype, device=self.points.device
            )
        )
        self.sigma = model.warp.sigma(u)
        self.times = model.net.embed_time(log_time(u))
        self.sigmas: Sequence[float] = self.sigma[:, 0].tolist()
        self.ratio = self.sigma[1:] / self.sigma[:-1]
        self.extrapolation = torch.zeros_like(self.ratio)
        if solver == "dpmpp_2m" and steps > 2:
            h = -self.ratio.log()
            self.extrapolation[1:-1] = h[1:-1] / (2 * h[:-2])

    def expected_points(self, p: Tensor) -> Tensor:
        """Return the mean point of every column, [B, C e], under probabilities."""
        if self.block is not None:
            return p @ self.block
        ragged = self.model.ragged
        empty = p.new_zeros(len(p), self.model.n_cat)
        # a CUDA device adds up in any order, which changes the last bits of rows
        means = [
            ragged.total(p * coordinate)
            if p.is_cuda
            else empty.index_add(1, ragged.column, p * coordinate)
            for coordinate in self.points.unbind(1)
        ]
        return torch.stack(means, 2).flatten(1)

    def start(self, n: int, rng: RNG) -> CDTDState:
        """Return noise of the largest sigma."""
        s_num, s_cat = self.sigma[0].unbind()
        empty = self.points.new_empty
        num = s_num * normal_like(empty(n, self.model.n_num), rng)
        points = s_cat * normal_like(empty(n, self.point_width), rng)
        return CDTDState(
            num,
            points,
            torch.zeros_like(num),
            torch.zeros_like(points),
            num.new_zeros(n, 1),
            empty(n, 0),
        )

    def step(self, state: CDTDState, i: Tensor, _rng: RNG) -> CDTDState:
        """Take a step of the solver, which draws nothing."""
        d_num, logits = self.denoise(state, i)
        p = self.model.ragged.softmax(logits)
        d_points = self.expected_points(p)
        more_num, more_cat = at(self.extrapolation, i).unbind(1)
        r_num, r_cat = at(self.ratio, i).unbind(1)
        to_num = d_num + state.has_last * more_num * (d_num - state.denoised_num)
        to_points = d_points + state.has_last * more_cat * (
            d_points - state.denoised_points
        )
        return CDTDState(
            torch.lerp(to_num, state.num, r_num),
            torch.lerp(to_points, state.points, r_cat),
            d_num,
            d_points,
            torch.ones_like(state.has_last),
            emitted_probs(p, self.model.ragged, state.class_probs),
        )

    def finish(self, state: CDTDState, _rng: RNG) -> Batch:
        """Read the categories once more, at the end point itself."""
        last = torch.tensor(self.n_steps - 1, device=self.sigma.device)
        _, logits = self.denoise(state, last)
        return Batch(state.num, self.model.ragged.argmax(logits))

    def renoise(self, state: CDTDState, i: Tensor, rng: RNG) -> CDTDState:
        """Add noise of variance σ² - σ'²; what was denoised is of the wrong sigma."""
        variance = at(self.sigma, i).square() - at(self.sigma, i + 1).square()
        s_num, s_cat = variance.sqrt().unbind(1)
        return state._replace(
            num=state.num + s_num * normal_like(state.num, rng),
            points=state.points + s_cat * normal_like(state.points, rng),
            has_last=torch.zeros_like(state.has_last),
        )

    def offset(self, batch: Batch) -> NoisyCells:
        """Return e = 0 for numbers and points."""
        zeros = batch.num.new_zeros(len(batch.num), self.point_width)
        return NoisyCells(torch.zeros_like(batch.num), zeros)

    def updated_offset(
        self, offset: NoisyCells, state: CDTDState, batch: Batch, i: Tensor
    ) -> NoisyCells:
        """Correct e by what the step has denoised."""
        s_num, s_cat = at(self.sigma, i).unbind(1)
        points = self._points_of(batch)
        return NoisyCells(
            corrected_offset(offset.num, batch.num, state.denoised_num, s_num),
            corrected_offset(offset.points, points, state.denoised_points, s_cat),
        )

    def noise_known(
        self, batch: Batch, offset: NoisyCells, i: Tensor, _rng: RNG
    ) -> NoisyCells:
        """Return x + σ e and v + σ e."""
        s_num, s_cat = at(self.sigma, i).unbind(1)
        return NoisyCells(
            batch.num + s_num * offset.num,
            self._points_of(batch) + s_cat * offset.points,
        )

    def apply_known(
        self, state: CDTDState, known: NoisyCells, num: Tensor, cat: Tensor
    ) -> CDTDState:
        """Replace known cells; the memory of the last step stays."""
        coordinates = cat.repeat_interleave(self.model.cat_width, 1)
        return state._replace(
            num=torch.where(num, known.num, state.num),
            points=torch.where(coordinates, known.points, state.points),
        )

    def denoise(self, state: CDTDState, i: Tensor) -> tuple[Tensor, Tensor]:
        """Return denoised numbers and logits, -inf for placeholder levels."""
        denoised, logits = self.model.denoise(
            state.num, state.points, at(self.sigma, i), at(self.times, i)
        )
        return denoised, logits.masked_fill(self.model.ragged.forbidden, -torch.inf)

    def _points_of(self, batch: Batch) -> Tensor:
        return self.points[self.model.ragged.slots(batch.cat)].flatten(1)
