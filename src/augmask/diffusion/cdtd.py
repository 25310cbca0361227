"""CDTD: continuous diffusion for mixed-type tables (Mueller et al., ICLR 2025).

Numbers are diffused as they are, categories as points v_jk on a sphere of radius 4 in
16 dimensions. One network sees all of a row, noised, and predicts numbers and class
logits; the expected point under the predicted classes is the denoised category (score
interpolation), so one ordinary differential equation carries both kinds.

What differs from the published code, on purpose: the re-weighting network regresses on
each cell's own loss, as AugMask writes it (the published one broadcasts to a B × B
matrix and learns a constant; without any division Adult ended alike or worse); the warp
is fitted per cell for the same reason, and can be anchored to its start (`anchor`, off
by default); class frequencies and entropies come from observed cells only; tables with
no numeric or no categorical column work.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, normalize

from augmask.diffusion import edm
from augmask.diffusion.base import Batch, CellLoss
from augmask.diffusion.cdtd_back import CDTDSampler
from augmask.diffusion.nets import (
    DirectPath,
    RandomFourier,
    TimeEmbedding,
    mlp,
    product,
)
from augmask.diffusion.noise import Noise, log_time, low_discrepancy, normal_like
from augmask.diffusion.precondition import Preconditioner
from augmask.diffusion.ragged import Ragged
from augmask.diffusion.reduce import Reduction
from augmask.diffusion.sampling import InpaintConfig, run_sampler
from augmask.diffusion.time_warp import TimeWarp
from augmask.errors import UsageError
from augmask.table.table import Layout, Table

SIGMA_MAX_NUM = 80.0
SIGMA_MAX_CAT = 100.0
EMBEDDING_SD = 1e-3  # of the raw embedding; only its direction matters
PSEUDO_COUNT = 1e-2  # keeps log p finite for a level that was never observed
ENTROPY_FLOOR = 1e-2  # nats; a column with one level would weigh infinitely
EDM_EDGE = 1e-7
Precondition = Literal["cell", "table"]
# With more inputs and outputs, `table` has a direct path. Of two tables that were
# tried, one with 36 is worse with the path and one with 281 without it.
WIDE = 200
NUM, CAT = 0, 1  # groups of the time warp
# noise levels between which a row is neither legible nor lost
PROBE_LEVELS = (0.05, 20.0)


class Denoiser(nn.Module):
    """Noisy row and time in, clean numbers (before preconditioning) and logits out.

    With `direct` a linear path leads past the hidden layers, see `DirectPath`.

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
        out = self.hidden.read(product(x, self.project) + time, self.head)
        return out if self.direct is None else out + self.direct(x, time)


class CDTD(nn.Module):
    """The backbone.

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
        Share of the time that training keeps the warp where it started; 0, the
        default, is as published. None takes the share of pairs of cells in a row that
        were not observed together, 1 - r² with r the share of observed cells: where
        much is missing, a free warp leaves little time for high noise levels
        (docs/backbones.md). The sampler follows the learned warp in either case.
    precondition : {"cell", "table"}
        What the network starts from. As published, each number's own noisy value, and
        nothing for categories, which enter as so many noisy coordinates. Or all that
        correlations and frequencies say, see `precondition`: a wide table needs it,
        and gets a direct path for what is linear (`DirectPath`).

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
        self.embedding = nn.Parameter(EMBEDDING_SD * torch.randn(slots, cat_width))
        self.shift = nn.Parameter(torch.zeros(self.n_cat, cat_width))
        n_in = self.n_num + self.n_cat * cat_width
        self.known: Preconditioner | None = None
        if precondition == "table":
            self.known = Preconditioner(self.n_num, self.ragged)
            n_in += self.n_num
        n_out = self.n_num + slots
        direct = self.known is not None and n_in + n_out > WIDE
        self.net = Denoiser(n_in, n_out, width, depth, time_width, direct)
        if self.known is not None:
            # torch divides by all coordinates; here a column counts as one
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

        At time 1 the untrained network then predicts the marginal law of every column,
        and every column's calibrated loss is 1.
        """
        frequencies = [
            _smoothed_frequencies(codes[seen], card)
            for codes, seen, card in zip(
                table.cat.T, table.cat_observed.T, table.layout.cards, strict=True
            )
        ]
        with torch.no_grad():
            if self.anchored_by_data:
                self.warp.anchor.fill_(1 - float(table.observed.mean()) ** 2)
            for j, p in enumerate(frequencies):
                self.entropy[j] = max(float(-(p * np.log(p)).sum()), ENTROPY_FLOOR)
            log_p = torch.from_numpy(np.log(np.concatenate([*frequencies, []])))
            self.net.head.bias[self.n_num :] = log_p.to(self.net.head.bias)
            if self.known is not None:
                self.known.init_from_data(table, log_p)

    # -- the forward process and the network ------------------------------------

    def _points(self) -> Tensor:
        """Return v, the points of all categories on their spheres, [S, e]."""
        # embedding(), not indexing: the gradient of an index is added up by threads in
        # any order, and the same seed would no longer give the same weights
        raw = self.embedding + embedding(self.ragged.column, self.shift)
        return math.sqrt(self.cat_width) * normalize(raw, dim=1)

    def _denoise(
        self, x_num: Tensor, x_cat: Tensor, sigma: Tensor, time: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return denoised numbers D [B, d_num] and class logits [B, S]."""
        s_num, s_cat = sigma[:, NUM, None], sigma[:, CAT, None]
        if self.known is not None:
            points = self._points()
            evidence = self.known.evidence(x_cat, points, s_cat)
            out = self.net(self.known.inputs(x_num, evidence, points, s_num), time)
            denoised = self.known.denoised(x_num, out[:, : self.n_num], s_num)
            return denoised, out[:, self.n_num :] + evidence
        scaled = [
            edm.scaled_input(x_num, s_num),
            edm.scaled_input(x_cat.flatten(1), s_cat),
        ]
        out = self.net(torch.cat(scaled, 1), time)
        denoised = edm.denoised(x_num, out[:, : self.n_num], s_num)
        return denoised, out[:, self.n_num :]

    def _losses_at(
        self, batch: Batch, log_u: Tensor, sigma: Tensor, generator: Noise
    ) -> tuple[Tensor, Tensor]:
        """Return calibrated losses A and W [B, d]: without and with EDM's weight."""
        num, cat = batch
        s_num, s_cat = sigma[:, NUM, None], sigma[:, CAT, None]
        points = embedding(self.ragged.slots(cat), self._points())
        x_num = num + s_num * normal_like(num, generator)
        x_cat = points + s_cat[:, :, None] * normal_like(points, generator)
        time = self.net.embed_time(log_u)
        denoised, logits = self._denoise(x_num, x_cat, sigma, time)

        squared = (denoised - num).square()
        entropy = self.ragged.cross_entropy(logits, cat) / self.entropy
        weight = (1 + s_num.square()) / (s_num.square() + EDM_EDGE)
        return (
            torch.cat([squared, entropy], 1),
            torch.cat([squared * weight, entropy], 1),
        )

    # -- training ---------------------------------------------------------------

    def cell_loss(self, batch: Batch, generator: Noise) -> CellLoss:
        """Return W / rho per cell; the warp and rho learn from the same cells.

        The three losses touch disjoint parameters: all targets are constants.
        """
        u = low_discrepancy(batch.num, generator)
        log_u = log_time(u, generator)
        with torch.no_grad():
            sigma = self.warp.sigma(u)
        plain, weighted = self._losses_at(batch, log_u, sigma, generator)
        rho = self.log_weight(0.25 * log_u).exp()[:, None]
        aux = {
            "weight": (rho - weighted.detach()).square(),
            "warp": self.warp.fit_loss(sigma, plain, self.group),
        }
        return CellLoss(main=weighted / rho.detach(), aux=aux)

    @torch.no_grad()
    def validation_loss(self, batch: Batch, generator: Noise) -> Tensor:
        """Return A per cell at noise levels that are the same in every state.

        The learned warp ties both groups to one time, so each group is scored at the
        times where it has these levels.
        """
        low, high = map(math.log, PROBE_LEVELS)
        levels = (low + (high - low) * low_discrepancy(batch.num, generator)).exp()
        parts = []
        for group in (NUM, CAT):
            u = self.warp.time(levels, group)
            sigma = self.warp.sigma(u)
            losses, _ = self._losses_at(batch, log_time(u), sigma, generator)
            parts.append(losses[:, self.group == group])
        return torch.cat(parts, 1)

    def diagnostics(self) -> dict[str, Tensor]:
        """Return location and steepness of the warp of numbers and of categories."""
        kinds = [("num", NUM)] * (self.n_num > 0) + [("cat", CAT)] * (self.n_cat > 0)
        location, steepness = self.warp.location.detach(), self.warp.steepness.detach()
        return {
            f"warp_{what}_{kind}": values[group]
            for kind, group in kinds
            for what, values in (("location", location), ("steepness", steepness))
        }

    # -- sampling ---------------------------------------------------------------

    def check_sampler(self, steps: int, solver: str) -> None:
        """Raise unless `sample` takes these steps and this solver."""
        if solver not in self.solvers:
            raise UsageError(f"solver must be one of {self.solvers}, got {solver!r}")
        if steps < 1:
            raise UsageError(f"steps must be at least 1 for CDTD, got {steps}")

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: Noise,
        steps: int = 200,
        solver: str = "euler",
    ) -> Batch:
        """Run the probability-flow equation from noise to rows.

        Parameters
        ----------
        n : int
        generator : torch.Generator
            On the device of the module.
        steps : int
            Network calls, less one.
        solver : {"euler", "dpmpp_2m"}
            First order as published, or second order with the memory of one step
            (DPM-Solver++ 2M), which needs fewer steps for the same error.
        """
        return run_sampler(self.sampler(steps, solver), n, generator)

    @torch.no_grad()
    def sampler(self, steps: int, solver: str) -> CDTDSampler:
        """Return the way back that `sample` follows."""
        self.check_sampler(steps, solver)
        return CDTDSampler(self, steps, solver)


def _smoothed_frequencies(codes: np.ndarray, card: int) -> np.ndarray:
    counts = np.bincount(codes, minlength=card) + PSEUDO_COUNT
    return np.asarray(counts / counts.sum())
