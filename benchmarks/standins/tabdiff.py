"""Stand-in for TabDiff as published.

Rows come one by one from a `DataLoader` whose workers are restarted in every epoch.
Tokens are built, noised and read out column by column, with offsets that are read from
the device. Logits are padded to the widest column. In every step, the sampler compares
(widest column × columns) device scalars in Python. Two values are read back after every
training step; the EMA of the weights is updated once per epoch.

The published loop also evaluates the EMA weights on all rows after every epoch, which
roughly doubles the work of the network; this is left out here.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, softmax, softplus
from torch.utils.data import DataLoader, Dataset

from augmask.diffusion.nets import Block
from augmask.diffusion.tabdiff import TabDiff
from standins.common import copied, sinusoids, update_ema

PEAK, DECAY, EPOCHS = 1e-3, 0.997, 8_000
WORKERS = 4
TEMPERATURE = 0.01
NEVER = -1_000_000.0
LOW, HIGH = 0.002, 80.0
MASK_MIN, MASK_SPAN = 1e-5, 1 - 1e-3 - 1e-5


class Rows(Dataset):
    """One row at a time."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __getitem__(self, index: int) -> Tensor:
        return self.x[index]

    def __len__(self) -> int:
        return len(self.x)


class Draws(NamedTuple):
    """Draws of a step: times [B], noise of numbers, Gumbels [B, 2] per column."""

    t: Tensor
    num: Tensor
    gumbels: list[Tensor]


class Tokens(nn.Module):
    """Tokens of numbers and (relaxed) one-hot categories after a [CLS] token."""

    def __init__(self, ours: TabDiff, cards: tuple[int, ...]) -> None:
        super().__init__()
        theirs = ours.net.tokens
        levels = theirs.levels.detach().split(list(cards))
        with_mask = [
            torch.cat([level, mask[None]])
            for level, mask in zip(levels, theirs.mask.detach(), strict=True)
        ]
        self.levels = nn.Parameter(torch.cat(with_mask))
        cls = torch.zeros_like(self.levels[:1])
        self.scale = nn.Parameter(torch.cat([cls, theirs.scale.detach()]).detach())
        self.bias = nn.Parameter(theirs.bias.detach().clone())
        starts = np.cumsum([0] + [k + 1 for k in cards[:-1]])
        self.register_buffer("starts", torch.from_numpy(starts).to(cls.device))

    def forward(self, x: Tensor, onehot: Tensor) -> Tensor:
        """Return [B, 1 + d_num + C, width]."""
        ones = torch.ones(len(x), 1, device=x.device, dtype=x.dtype)
        tokens = self.scale[None] * torch.cat([ones, x], 1)[:, :, None]
        end = torch.tensor([onehot.shape[1]], device=x.device)
        ends = torch.cat([self.starts[1:], end])
        for first, last in zip(self.starts, ends, strict=True):
            if first < last:
                token = onehot[:, first:last].unsqueeze(1) @ self.levels[first:last]
                tokens = torch.cat([tokens, token], 1)
        none = torch.zeros(1, self.bias.shape[1], device=x.device, dtype=x.dtype)
        return tokens + torch.cat([none, self.bias])[None]


class Layer(nn.Module):
    """A transformer layer with separate queries, keys and values."""

    def __init__(self, ours: Block) -> None:
        super().__init__()
        width, kind = ours.qkv.in_features, _kind(ours.qkv.weight)
        self.q, self.k, self.v = (nn.Linear(width, width, **kind) for _ in range(3))
        with torch.no_grad():
            for mine, weight, bias in zip(
                (self.q, self.k, self.v),
                ours.qkv.weight.chunk(3),
                ours.qkv.bias.chunk(3),
                strict=True,
            ):
                mine.weight.copy_(weight)
                mine.bias.copy_(bias)
        first = isinstance(ours.before, nn.Identity)
        self.before = None if first else _layer_norm(ours.before, width)
        self.norm = _layer_norm(ours.norm, width)
        self.up, self.down = copy.deepcopy(ours.up), copy.deepcopy(ours.down)

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens of the same shape."""
        y = x if self.before is None else self.before(x)
        q, k, v = self.q(y), self.k(y), self.v(y)
        weights = softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]), -1)
        x = x + weights @ v
        return x + self.down(torch.relu(self.up(self.norm(x))))


def _kind(like: Tensor) -> dict:
    return {"device": like.device, "dtype": like.dtype}


def _layer_norm(ours: nn.Module, width: int) -> nn.LayerNorm:
    norm = nn.LayerNorm(width, **_kind(ours.weight))
    norm.load_state_dict(ours.state_dict())
    return norm


class TabDiffStandIn(nn.Module):
    """The stand-in, with learned noise schedules.

    Parameters
    ----------
    ours : TabDiff
        Sizes and weights are copied from it.
    cards : tuple of int
        Levels of each categorical column.
    """

    sampling_batch = 10_000

    def __init__(self, ours: TabDiff, cards: tuple[int, ...]) -> None:
        super().__init__()
        net, device = ours.net, ours.net.expand.weight.device
        self.cards, self.n_num, self.n_cat = cards, ours.n_num, ours.n_cat
        self.tokens = Tokens(ours, cards)
        self.encoder = nn.Sequential(*(Layer(block) for block in net.encoder))
        self.decoder = nn.Sequential(*(Layer(block) for block in net.decoder))
        self.time = copy.deepcopy(net.time.layers)
        with torch.no_grad():  # published: sines before cosines
            halves = net.time.layers[0].weight.chunk(2, 1)
            self.time[0].weight.copy_(torch.cat(halves[::-1], 1))
        self.project = copy.deepcopy(net.project)
        self.hidden = nn.Sequential(*copy.deepcopy(list(net.hidden)))
        self.expand = copy.deepcopy(net.expand)
        weight, bias = net.heads.weight.detach(), net.heads.bias.detach()
        self.numbers = nn.Parameter(weight[: self.n_num].clone())
        self.classes = nn.ModuleList()
        parts = zip(weight[self.n_num :].split(cards), bias.split(cards), strict=True)
        for w, b in parts:
            head = nn.Linear(w.shape[1], len(w) + 1, **_kind(w))
            with torch.no_grad():
                head.weight[:-1] = w
                head.bias[:-1] = b
            self.classes.append(head)
        self.raw_r = nn.Parameter(ours.schedules.raw_r.detach().clone())
        self.raw_k = nn.Parameter(ours.schedules.raw_k.detach().clone())
        self.register_buffer("mask_level", torch.tensor(cards, device=device))
        ends = np.cumsum([k + 1 for k in cards])
        self.slices = [
            np.arange(e - k - 1, e) for e, k in zip(ends.tolist(), cards, strict=True)
        ]

    # -- schedules and network ----------------------------------------------------

    def _sigma(self, t: Tensor) -> Tensor:
        r = softplus(self.raw_r) + 5.0
        low, high = LOW ** (1 / r), HIGH ** (1 / r)
        return (low + t * (high - low)).pow(r)

    def _time_of(self, sigma: Tensor) -> Tensor:
        r = softplus(self.raw_r) + 5.0
        low, high = LOW ** (1 / r), HIGH ** (1 / r)
        return (sigma.pow(1 / r) - low) / (high - low)

    def _total(self, t: Tensor) -> Tensor:
        """Return -log(1 - m), the noise of categories."""
        k = softplus(self.raw_k) + 1.0
        return -torch.log1p(-(MASK_SPAN * t.pow(k) + MASK_MIN))

    def _slope(self, t: Tensor) -> Tensor:
        k = softplus(self.raw_k) + 1.0
        slope = MASK_SPAN * k * t.pow(k - 1)
        return slope / (1 - (MASK_SPAN * t.pow(k) + MASK_MIN))

    def _denoise(
        self, x: Tensor, onehot: Tensor, t: Tensor, sigma: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return denoised numbers and logits of all levels, masks included."""
        ends = LOW ** (1 / 7), HIGH ** (1 / 7)
        fixed = (ends[0] + t * (ends[1] - ends[0])).pow(7)
        skip = 1 / (sigma**2 + 1)
        out = sigma / (sigma**2 + 1).sqrt()
        scaled = x / (1 + sigma**2).sqrt()
        tokens = self.encoder(self.tokens(scaled, onehot)[:, 1:])
        waves = sinusoids((fixed.log() / 4).flatten(), self.project.out_features)
        waves = waves.reshape(len(waves), 2, -1).flip(1).reshape(waves.shape)
        flat = self.project(tokens.reshape(len(x), -1)) + self.time(waves)
        flat = self.expand(self.hidden(flat))
        tokens = self.decoder(flat.reshape(tokens.shape))
        numbers = (tokens[:, : self.n_num] * self.numbers[None]).sum(-1)
        logits = [
            head(tokens[:, self.n_num + j]) for j, head in enumerate(self.classes)
        ]
        return skip * x + out * numbers, torch.cat(logits, -1)

    def _log_classes(self, logits: Tensor, codes: Tensor) -> Tensor:
        """Return log p [B, C, widest + 1]; unmasked tokens keep their class."""
        widest = max(self.cards) + 1
        padded = []
        for part in logits.split([k + 1 for k in self.cards], -1):
            rest = torch.ones(
                len(part), widest - part.shape[1], device=part.device, dtype=part.dtype
            )
            padded.append(torch.cat([part, NEVER * rest], -1))
        table = torch.stack(padded, -2)
        table[:, range(self.n_cat), self.mask_level] += NEVER
        table = table - torch.logsumexp(table, -1, keepdim=True)
        unmasked = codes != self.mask_level
        table[unmasked] = NEVER
        table[unmasked, codes[unmasked]] = 0
        return table

    def _onehot(self, codes: Tensor, like: Tensor) -> Tensor:
        parts = [one_hot(codes[:, j], k + 1) for j, k in enumerate(self.cards)]
        return torch.cat(parts, -1).to(like.dtype)

    # -- training -----------------------------------------------------------------

    def draw(self, num: Tensor) -> Draws:
        """Draw times and noise for a batch."""
        t = torch.rand(len(num), device=num.device, dtype=num.dtype)
        gumbels = [-num.new_empty(len(num), 2).exponential_().log() for _ in self.cards]
        return Draws(t, torch.randn_like(num), gumbels)

    def _noised(
        self, cat: Tensor, chance: Tensor, gumbels: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return codes and relaxed one-hot rows of a partly masked batch."""
        n = len(cat)
        slots = int(torch.sum(self.mask_level + 1))
        soft = torch.zeros(n, slots, device=cat.device, dtype=chance.dtype)
        codes = torch.zeros_like(cat)
        for j, levels in enumerate(self.slices):
            p = torch.zeros(n, 2, device=cat.device, dtype=chance.dtype)
            p[:, 0] = 1 - chance[:, j]
            p[:, 1] = chance[:, j]
            relaxed = softmax((torch.log(p) + gumbels[j]) / TEMPERATURE, -1)
            index = relaxed.max(-1, keepdim=True)[1]
            hard = torch.zeros_like(relaxed).scatter_(-1, index, 1.0)
            coin = hard - relaxed.detach() + relaxed
            last = torch.ones_like(cat[:, j]) * int(levels[-1])
            where = torch.stack([cat[:, j] + int(levels[0]), last], -1)
            soft[torch.arange(n, device=cat.device)[:, None], where] = coin
            codes[:, j] = torch.where(
                coin[:, 1] > coin[:, 0], self.mask_level[j], cat[:, j]
            )
        return codes, soft

    def losses(self, num: Tensor, cat: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """Return the losses of categories [B, C] and of numbers [B, d_num]."""
        t = draws.t[:, None]
        sigma, total, slope = self._sigma(t), self._total(t), self._slope(t)
        chance = -torch.expm1(-total)
        x = num + draws.num * sigma
        codes, onehot = self._noised(cat, chance, draws.gumbels)
        denoised, logits = self._denoise(x, onehot, draws.t, sigma)
        numbers = (sigma**2 + 1) / sigma**2 * (denoised - num) ** 2
        log_p = self._log_classes(logits, codes)
        log_true = log_p.gather(-1, cat[:, :, None]).squeeze(-1)
        return -slope / torch.expm1(total) * log_true, numbers

    def steps(self, num: Tensor, cat: Tensor, batch: int) -> Iterator[None]:
        """Train; yields after every step."""
        device = self.mask_level.device
        rows = Rows(torch.cat([num, cat.to(num.dtype)], 1))
        workers = min(WORKERS, os.cpu_count() or 1)
        loader = DataLoader(rows, batch_size=batch, shuffle=True, num_workers=workers)
        optimizer = torch.optim.AdamW(self.parameters(), lr=PEAK, weight_decay=0.0)
        ema = copied(self)
        for epoch in range(EPOCHS):
            share = 1 - epoch / EPOCHS
            sums = [0.0, 0.0]
            for x in loader:
                x = x.to(device)
                b_num, b_cat = x[:, : self.n_num], x[:, self.n_num :].long()
                optimizer.zero_grad()
                parts = self.losses(b_num, b_cat, self.draw(b_num))
                categories, numbers = (part.mean() for part in parts)
                (categories + share * numbers).backward()
                optimizer.step()
                sums[0] += categories.item() * len(x)
                sums[1] += numbers.item() * len(x)
                yield
            update_ema(ema, self, DECAY)

    # -- sampling -----------------------------------------------------------------

    @torch.no_grad()
    def sample(self, n: int, steps: int) -> tuple[Tensor, Tensor]:
        """Return numbers and codes of `n` rows."""
        device = self.mask_level.device
        t = torch.linspace(0, 1, steps, device=device)[:, None]
        sigma, total = self._sigma(t), self._total(t)
        next_sigma, next_total = torch.zeros_like(sigma), torch.zeros_like(total)
        next_sigma[1:], next_total[1:] = sigma[:-1], total[:-1]
        raised = (1 + min(1 / steps, math.sqrt(2) - 1)) * sigma
        later = self._time_of(raised).min(-1, keepdim=True).values
        beyond = (later > 1).squeeze()
        raised[beyond], later[beyond] = sigma[beyond], t[beyond]
        raised_total = self._total(later)

        x = torch.randn(n, self.n_num, device=device) * sigma[-1]
        codes = self.mask_level[None] * torch.ones(
            n, self.n_cat, dtype=torch.long, device=device
        )
        for i in reversed(range(steps)):
            extra = (raised[i] ** 2 - sigma[i] ** 2).sqrt()
            x_hat = x + extra * torch.randn_like(x)
            chance = -torch.expm1(total[i] - raised_total[i])
            hide = torch.rand(codes.shape, device=device) < chance
            codes = torch.where(hide, self.mask_level, codes)
            onehot = self._onehot(codes, x)
            denoised, logits = self._denoise(
                x_hat, onehot, later[i].squeeze().repeat(n), raised[i].repeat(n, 1)
            )
            slope = (x_hat - denoised) / raised[i]
            x = x_hat + (next_sigma[i] - raised[i]) * slope
            log_p = self._log_classes(logits, codes)
            revealed = self._reveal(log_p, codes, raised_total[i], next_total[i])
            if i > 0:
                onehot = self._onehot(codes, x)
                denoised, _ = self._denoise(
                    x, onehot, t[i - 1].squeeze().repeat(n), next_sigma[i].repeat(n, 1)
                )
                second = (x - denoised) / next_sigma[i]
                x = x_hat + (next_sigma[i] - raised[i]) * (slope + second) / 2
            codes = revealed
        if not torch.all(codes < self.mask_level):
            raise RuntimeError("a token is still masked")
        return x.cpu(), codes.cpu()

    def _reveal(
        self, log_p: Tensor, codes: Tensor, total: Tensor, next_total: Tensor
    ) -> Tensor:
        """Draw classes of masked tokens, some of which stay masked."""
        n, device = len(codes), codes.device
        now = (1 - torch.exp(-total).repeat(n, 1))[:, :, None]
        then = (1 - torch.exp(-next_total).repeat(n, 1))[:, :, None]
        weights = log_p.exp() * (now - then)
        weights[:, range(self.n_cat), self.mask_level] = then[:, :, 0]
        # as published: device scalars, one by one
        real = torch.tensor(
            [
                [int(i <= mask) for i in range(max(self.mask_level + 1))]
                for mask in self.mask_level
            ],
            device=device,
        )
        weights *= torch.ones_like(weights) * real
        clocks = 1e-10 - (torch.rand_like(weights) + 1e-10).log()
        drawn = (weights / clocks).argmax(-1)
        kept = (codes != self.mask_level).to(codes.dtype)
        return kept * codes + (1 - kept) * drawn
