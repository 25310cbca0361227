"""Stand-in for CDTD as published.

Rows are on the host and are moved batch by batch. Cross-entropies are computed column
by column, and so are softmax and expected embeddings in every step of the sampler,
whose state is float64. Three values are read back after every training step. The weight
network regresses on a B × B matrix, which is what the published broadcast computes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, softmax, softplus

from augmask.diffusion.cdtd import CDTD
from standins.common import HostTensors, copied, endless, set_rate, sinusoids

PEAK, LOWEST, WARM_UP, TOTAL = 1e-3, 1e-6, 1000, 30_000
EDGE = 1e-7


class Draws(NamedTuple):
    """Draws of a step: times [B], noise of embeddings [B, C, e] and of numbers."""

    u: Tensor
    cat: Tensor
    num: Tensor


class Warp(nn.Module):
    """Two noise schedules, categories first, evaluated function by function."""

    def __init__(self, ours: CDTD) -> None:
        super().__init__()
        number, category = ours.warp.sigma_max.tolist()
        flip = [1, 0]  # ours has numbers first
        self.location = nn.Parameter(ours.warp.location.detach()[flip].clone())
        self.raw_steepness = nn.Parameter(ours.warp.raw_steepness.detach()[flip])
        self.raw_scale = nn.Parameter(ours.warp.raw_scale.detach()[flip])
        self.n_cat, self.n_num = ours.n_cat, ours.n_num
        largest = torch.tensor([category] * self.n_cat + [number] * self.n_num)
        self.register_buffer("sigma_max", largest.to(self.location))
        self.shadow = copied(self)

    @staticmethod
    def _cdf(x: Tensor, location: Tensor, steepness: Tensor) -> Tensor:
        return 1 / (1 + (x / (1 - x) / location.exp()) ** -steepness)

    @staticmethod
    def _density(x: Tensor, location: Tensor, steepness: Tensor) -> Tensor:
        z = (x / (1 - x) / location.exp()) ** -steepness
        return steepness / (x * (1 - x)) * (z / (1 + z) ** 2)

    @staticmethod
    def _quantile(u: Tensor, location: Tensor, steepness: Tensor) -> Tensor:
        return torch.sigmoid(location + torch.logit(u, eps=EDGE) / steepness)

    def sigma(self, u: Tensor) -> Tensor:
        """Return the noise level of every column, [B, C + d_num]."""
        steepness = 1 + softplus(self.raw_steepness)
        both = torch.vmap(self._quantile)(u.repeat(2, 1), self.location, steepness).T
        sigma = torch.column_stack(
            [
                both[:, :1].expand(-1, self.n_cat),
                both[:, 1:].expand(-1, self.n_num),
            ]
        )
        sigma = sigma.masked_fill((u == 0)[:, None], 0.0)
        sigma = sigma.masked_fill((u == 1)[:, None], 1.0)
        return sigma * self.sigma_max

    def fit_loss(self, sigma: Tensor, losses: Tensor) -> Tensor:
        """Regress on the mean loss of each kind per row, [B, 2]."""
        means = torch.cat(
            [
                losses[:, : self.n_cat].mean(1, keepdim=True),
                losses[:, self.n_cat :].mean(1, keepdim=True),
            ],
            1,
        )
        x = (sigma / self.sigma_max).clamp(EDGE, 1 - EDGE)
        x = torch.stack([x[:, 0], x[:, -1]])
        steepness = 1 + softplus(self.raw_steepness)
        scale = softplus(self.raw_scale)[:, None]
        guess = (torch.vmap(self._cdf)(x, self.location, steepness) * scale).T
        with torch.no_grad():
            density = torch.vmap(self._density)(x, self.location, steepness).T
        return (guess - means) ** 2 / (density + EDGE)

    def update_shadow(self) -> None:
        """Update the EMA of the warp with decay 0, as published: two copies."""
        with torch.no_grad():
            for p, old in zip(self.parameters(), self.shadow, strict=True):
                p.copy_(0.0 * old + 1.0 * p.detach())
            for p, old in zip(self.parameters(), self.shadow, strict=True):
                old.copy_(p)


class CDTDStandIn(nn.Module):
    """The stand-in.

    Parameters
    ----------
    ours : CDTD
        Sizes and weights are copied from it.
    cards : tuple of int
        Levels of each categorical column.
    """

    sampling_batch = 4096

    def __init__(self, ours: CDTD, cards: tuple[int, ...]) -> None:
        super().__init__()
        self.cards, self.n_num, self.n_cat = cards, ours.n_num, ours.n_cat
        self.cat_width = ours.cat_width
        ends = torch.tensor(cards).cumsum(0)
        self.register_buffer("offsets", (ends - torch.tensor(cards)).to(ours.group))
        self.embedding = nn.Embedding.from_pretrained(
            ours.embedding.detach().clone(), freeze=False
        )
        self.shift = nn.Parameter(ours.shift.detach().clone())
        self.time = copy.deepcopy(ours.net.time.layers)
        self.project = copy.deepcopy(ours.net.project)
        self.hidden = nn.Sequential(*copy.deepcopy(list(ours.net.hidden)))
        self.head = copy.deepcopy(ours.net.head)
        self.warp = Warp(ours)
        fourier = ours.log_weight.frequencies.clone()
        self.register_buffer("fourier", fourier)
        self.weight_layer = copy.deepcopy(ours.log_weight.layer)
        ones = torch.ones(self.n_num).to(ours.entropy)
        self.register_buffer("calibration", torch.cat([ours.entropy, ones]))

    # -- the network ------------------------------------------------------------

    def _points(self, cat: Tensor) -> Tensor:
        raw = self.embedding(cat + self.offsets) + self.shift
        return normalize(raw, dim=2, eps=1e-20) * math.sqrt(self.cat_width)

    def _points_of(self, column: int) -> Tensor:
        levels = torch.arange(self.cards[column], device=self.offsets.device)
        raw = self.embedding(levels + self.offsets[column]) + self.shift[column]
        return normalize(raw, dim=1, eps=1e-20) * math.sqrt(self.cat_width)

    def _denoise(
        self, x_cat: Tensor, x_num: Tensor, u: Tensor, sigma: Tensor
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return logits per column and denoised numbers."""
        s_cat, s_num = sigma[:, : self.n_cat], sigma[:, self.n_cat :]
        in_cat = x_cat / (1 + s_cat[:, :, None] ** 2).sqrt()
        in_num = x_num / (1 + s_num**2).sqrt()
        width = self.project.out_features
        time = self.time(sinusoids(250 * torch.log(u + 1e-8), width))
        row = torch.cat([in_num, in_cat.flatten(1)], 1)
        out = self.head(self.hidden(self.project(row) + time))
        number, *logits = out.split([self.n_num, *self.cards], -1)
        skip = 1 / (s_num**2 + 1)
        return tuple(logits), skip * x_num + s_num / (s_num**2 + 1).sqrt() * number

    # -- training ---------------------------------------------------------------

    def draw(self, num: Tensor) -> Draws:
        """Draw times and noise for a batch."""
        n = len(num)
        start = torch.rand(1, device=num.device, dtype=torch.float64)
        u = (start + torch.arange(n, device=num.device) / n) % 1
        shape = (n, self.n_cat, self.cat_width)
        noise = torch.randn(shape, device=num.device, dtype=num.dtype)
        return Draws(u, noise, torch.randn_like(num))

    def losses(
        self, num: Tensor, cat: Tensor, draws: Draws
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return main [B, d], warp [B, 2] and weight losses [B, B]; categories first.

        The training loss is the sum of the three means.
        """
        points = self._points(cat)
        with torch.no_grad():
            sigma = self.warp.sigma(draws.u).to(num.dtype)
            u = draws.u.to(num.dtype)
        s_cat, s_num = sigma[:, : self.n_cat], sigma[:, self.n_cat :]
        x_cat = points + draws.cat * s_cat[:, :, None]
        x_num = num + draws.num * s_num
        logits, denoised = self._denoise(x_cat, x_num, u, sigma)

        entropy = torch.stack(
            [
                cross_entropy(logits[j], cat[:, j], reduction="none")
                for j in range(self.n_cat)
            ],
            1,
        )
        squared = (denoised - num) ** 2
        plain = torch.cat([entropy, squared], 1) / self.calibration
        edm = (s_num**2 + 1) / (s_num**2 + EDGE)
        weighted = torch.cat([entropy, edm * squared], 1) / self.calibration
        angles = (0.25 * torch.log(u + 1e-8))[:, None] * self.fourier
        rho = self.weight_layer(torch.cat([angles.sin(), angles.cos()], 1)).exp()
        return (
            weighted / rho.detach(),
            self.warp.fit_loss(sigma.detach(), plain.detach()),
            (rho - weighted.detach().mean(1)) ** 2,
        )

    def steps(self, num: Tensor, cat: Tensor, batch: int) -> Iterator[None]:
        """Train; yields after every step."""
        device = self.offsets.device
        loader = endless(HostTensors(cat, num, batch=batch, whole=True))
        optimizer = torch.optim.AdamW(
            self.parameters(), lr=PEAK, betas=(0.9, 0.99), weight_decay=0.0
        )
        ema = copied(self)
        for step in range(TOTAL):
            optimizer.zero_grad()
            b_cat, b_num = (part.to(device) for part in next(loader))
            main, warp, weight = self.losses(b_num, b_cat, self.draw(b_num))
            loss = main.mean() + warp.mean() + weight.mean()
            loss.backward()
            optimizer.step()
            self.warp.update_shadow()
            decay = min(0.999, (1 + step) / (10 + step))
            with torch.no_grad():
                for old, new in zip(ema, self.parameters(), strict=True):
                    old.sub_((old - new).mul_(1 - decay))
            # read in every step, logged in every hundredth
            _ = loss.item(), warp.detach().mean().item(), main.detach().mean().item()
            set_rate(optimizer, _rate(step + 1))
            yield

    # -- sampling ---------------------------------------------------------------

    @torch.inference_mode()
    def sample(self, n: int, steps: int) -> tuple[Tensor, Tensor]:
        """Return numbers and codes of `n` rows."""
        device = self.offsets.device
        kind = {"device": device}
        u = torch.linspace(1, 0, steps + 1, device=device, dtype=torch.float64)
        sigmas = self.warp.sigma(u)
        x_cat = torch.randn(n, self.n_cat, self.cat_width, **kind).double()
        x_num = torch.randn(n, self.n_num, **kind).double()
        x_cat = x_cat * sigmas[0, : self.n_cat, None]
        x_num = x_num * sigmas[0, self.n_cat :]
        for now, then, time in zip(sigmas[:-1], sigmas[1:], u[:-1], strict=True):
            now, then = now.repeat(n, 1), then.repeat(n, 1)
            logits, denoised = self._denoise(
                x_cat.float(), x_num.float(), time.float().repeat(n), now.float()
            )
            expected = torch.zeros_like(x_cat)
            for j in range(self.n_cat):
                p = softmax(logits[j].double(), 1)
                expected[:, j] = p @ self._points_of(j).double()
            s_cat, s_num = now[:, : self.n_cat, None], now[:, self.n_cat :]
            h = then - now
            slope = (x_cat - expected) / s_cat
            x_cat = x_cat + h[:, : self.n_cat, None] * slope
            x_num = x_num + h[:, self.n_cat :] * (x_num - denoised.double()) / s_num
        logits, _ = self._denoise(
            x_cat.float(),
            x_num.float(),
            u[-2].float().repeat(n),
            sigmas[-2].repeat(n, 1).float(),
        )
        codes = torch.empty(n, self.n_cat, device=device)
        for j in range(self.n_cat):
            codes[:, j] = softmax(logits[j].double(), 1).argmax(1)
        return x_num.cpu(), codes.long().cpu()


def _rate(step: int) -> float:
    """Return the learning rate: linear warm-up, then linear decay."""
    if step < WARM_UP:
        return LOWEST + (PEAK - LOWEST) * step / WARM_UP
    return PEAK + (LOWEST - PEAK) * (step - WARM_UP) / (TOTAL - WARM_UP)
