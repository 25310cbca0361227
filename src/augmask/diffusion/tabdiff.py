"""TabDiff: mixed-type diffusion with a noise schedule per column (Shi et al., 2025).

Numbers are noised as in EDM, each column along its own power-mean schedule. Categories
are masked, each column along its own log-linear schedule, and the loss of a masked
token is its cross-entropy, weighted so that the sum bounds the likelihood. Every cell
becomes a token of four numbers; a small transformer, an MLP and another transformer
turn noisy tokens into denoised numbers and class logits.

What differs from the published code, on purpose: what it builds and never uses is left
out (a CLS token, the last norm and head of both transformers, a logit for [MASK], which
no class prediction may contain); times are spread evenly over a batch instead of drawn
one by one, the same law with less noise; tables without numbers or without categories
and batches of one row work. The MLP has the size that the AugMask paper gives it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from augmask.diffusion import edm
from augmask.diffusion.base import Batch, CellLoss
from augmask.diffusion.nets import TimeEmbedding, mlp, product
from augmask.diffusion.noise import (
    Noise,
    low_discrepancy,
    normal_like,
    uniform_like,
)
from augmask.diffusion.power import (
    FIXED_K,
    FIXED_R,
    PowerSchedules,
    log_linear,
    power_mean,
)
from augmask.diffusion.ragged import Ragged
from augmask.diffusion.reduce import Reduction, Weight
from augmask.diffusion.sampling import InpaintConfig, Sampler, run_sampler
from augmask.diffusion.tabdiff_back import HeunWay, MultistepSampler
from augmask.diffusion.tokens import Heads, Tokenizer, transformer
from augmask.errors import UsageError
from augmask.table.table import Layout, Table

BLOCKS = 2  # of each transformer
TEMPERATURE = 0.01  # of the relaxed mask, from which only gradients come
# m'/m is 1e5 at time 0; no token is masked there, and none should weigh that much
EARLIEST = 1e-5


class Denoiser(nn.Module):
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
        """Embed EDM's c_noise, at the levels of the fixed schedule."""
        embedded: Tensor = self.time(power_mean(t, FIXED_R).log() / 4)
        return embedded

    def forward(
        self, x: Tensor, slots: Tensor, masked: Tensor, time: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Predict from scaled noisy numbers, partly masked levels and the time."""
        tokens = self.encoder(self.tokens(x, slots, masked))
        hidden = product(tokens.flatten(1), self.project) + time
        expanded = self.hidden.read(hidden, self.expand)
        found: tuple[Tensor, Tensor] = self.heads(
            self.decoder(expanded.reshape(tokens.shape))
        )
        return found


class TabDiff(nn.Module):
    """The backbone.

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
    # Models in turns fill a GPU already: its time goes into narrow tokens, not into
    # products. On an H200 six in turns made 669 steps a second; eight as one made 224,
    # with attention written as it is for sampling, and were not tried again since.
    stacks = False
    solvers = ("heun", "dpmpp_2m")
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
        self.net = Denoiser(
            self.n_num, self.ragged, width, depth, time_width, token_width
        )

    def init_from_data(self, table: Table) -> None:
        """Set nothing: no constant of TabDiff depends on the data."""

    # -- training ---------------------------------------------------------------

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

    def cell_loss(self, batch: Batch, generator: Noise) -> CellLoss:
        """Return EDM's weighted error of numbers, and the bound's share of categories.

        A token that was not masked has nothing to predict and loss zero.
        """
        num, cat = batch
        t = low_discrepancy(num, generator).clamp(min=EARLIEST)
        noise = normal_like(num, generator)
        masked = straight_through_mask(
            self.schedules.mask(t), uniform_like(num.new_empty(cat.shape), generator)
        )
        error, entropy = self._errors(batch, noise, self.schedules.sigma(t), masked, t)
        weight = self.schedules.mask_weight(t) * masked.detach()
        return CellLoss(torch.cat([error.square(), weight * entropy], 1))

    def type_weights(self, done: Weight) -> tuple[Weight, Weight]:
        """Return the weights of numeric and categorical losses.

        Parameters
        ----------
        done : float or Tensor
            Share of the training that is behind us.
        """
        return (1 - done if self.anneal else 1.0), 1.0

    def recover(self) -> str:
        """Answer a loss that is not finite: stop learning the noise schedules."""
        if self.schedules.freeze():
            return "TabDiff goes on with fixed noise schedules"
        return ""

    @torch.no_grad()
    def validation_loss(self, batch: Batch, generator: Noise) -> Tensor:
        """Return squared errors and cross-entropies at levels that are never learned.

        Two passes: at time t with masked tokens M ~ m(t), and at time 1 - t, where the
        complement of M is masked, just as often as m(1 - t) asks for. So every category
        is predicted once, with its own token masked and others at random, and every
        number twice, of which the mean is taken.
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

    # -- sampling ---------------------------------------------------------------

    def check_sampler(self, steps: int, solver: str) -> None:
        """Raise unless `sample` takes these steps and this solver."""
        if solver not in self.solvers:
            raise UsageError(f"solver must be one of {self.solvers}, got {solver!r}")
        if steps < 2:
            raise UsageError(f"steps must be at least 2 for TabDiff, got {steps}")

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: Noise,
        steps: int = 200,
        solver: str = "heun",
    ) -> Batch:
        """Go back from noise and masks to rows.

        Parameters
        ----------
        n : int
        generator : torch.Generator
            On the device of the module.
        steps : int
            Noise levels, at least 2.
        solver : {"heun", "dpmpp_2m"}
            As published: a little noise is added before every step, and the numbers
            take a second look (2 steps - 1 network calls). Or no added noise and second
            order with the memory of one step (DPM-Solver++ 2M, `steps` calls), which is
            enough with few steps. Categories are revealed in the same way by both.
        """
        return run_sampler(self.sampler(steps, solver), n, generator)

    @torch.no_grad()
    def sampler(self, steps: int, solver: str) -> Sampler:
        """Return the way back that `sample` follows."""
        self.check_sampler(steps, solver)
        return (
            HeunWay(self, steps) if solver == "heun" else MultistepSampler(self, steps)
        )

    def _denoise(
        self, x: Tensor, cat: Tensor, masked: Tensor, sigma: Tensor, time: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return denoised numbers and class logits of rows that share one time."""
        scaled = edm.scaled_input(x, sigma)
        out, logits = self.net(scaled, self.ragged.slots(cat), masked, time)
        return edm.denoised(x, out, sigma), logits


def straight_through_mask(m: Tensor, uniform: Tensor) -> Tensor:
    """Return 1 with probability m and else 0, with the gradient of a relaxed mask.

    Two Gumbel draws differ by a logistic one, so the relaxed binary sample is
    sigmoid((logit m + logit U) / temperature).

    Examples
    --------
    >>> straight_through_mask(torch.tensor([0.3, 0.3]), torch.tensor([0.6, 0.8]))
    tensor([0., 1.])
    """
    soft = torch.sigmoid((torch.logit(m) + torch.logit(uniform)) / TEMPERATURE)
    hard = (soft > 0.5).to(soft.dtype)
    return hard + (soft - soft.detach())
