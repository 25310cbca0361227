"""Stand-in for TabDDPM as published.

Rows are on the host and are moved batch by batch. Categories are logarithms of clamped
one-hot rows. Softmax, one-hot and draws loop over columns with index arrays on the
host. Sums over the levels of a column are differences of a cumulative log-sum-exp. Two
values are read back after every training step.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, one_hot, pad

from augmask.diffusion.tabddpm import TabDDPM, cosine_signal
from standins.common import (
    HostTensors,
    copied,
    endless,
    set_rate,
    sinusoids,
    update_ema,
)

PEAK, TOTAL = 2e-4, 30_000
DECAY = 0.999


class Draws(NamedTuple):
    """Draws of a step: times [B], noise of numbers, and logs of noisy one-hots."""

    t: Tensor
    num: Tensor
    log_cat: Tensor


def _at(table: Tensor, t: Tensor, shape: torch.Size) -> Tensor:
    """Look up one number per row and expand it over the row."""
    return table.gather(-1, t)[:, None].expand(shape)


def _log_add_exp(a: Tensor, b: Tensor) -> Tensor:
    top = torch.maximum(a, b)
    return top + torch.log((a - top).exp() + (b - top).exp())


def _log_sub_exp(a: Tensor, b: Tensor) -> Tensor:
    top = torch.maximum(a, b)
    return torch.log((a - top).exp() - (b - top).exp()) + top


class TabDDPMStandIn(nn.Module):
    """The stand-in.

    Parameters
    ----------
    ours : TabDDPM
        Sizes and weights are copied from it.
    cards : tuple of int
        Levels of each categorical column.
    """

    sampling_batch = 10_000

    def __init__(self, ours: TabDDPM, cards: tuple[int, ...]) -> None:
        super().__init__()
        self.cards, self.n_num, self.timesteps = cards, ours.n_num, ours.timesteps
        self.time = copy.deepcopy(ours.time.layers)
        self.project = copy.deepcopy(ours.project)
        self.hidden = nn.Sequential(*copy.deepcopy(list(ours.hidden)))
        self.head = copy.deepcopy(ours.head)
        ends = np.cumsum(cards)
        self.slices = [
            np.arange(e - k, e) for e, k in zip(ends.tolist(), cards, strict=True)
        ]
        like = ours.head.weight
        edges = torch.tensor([0, *ends.tolist()], device=like.device)
        self.register_buffer("edges", edges)
        sizes = np.repeat(cards, cards)
        self.register_buffer("sizes", torch.from_numpy(sizes).to(like))

        signal = cosine_signal(self.timesteps)
        before = np.append(1.0, signal[:-1])
        alpha, tiny = signal / before, 1e-40
        beta = 1 - alpha
        tables = {
            "log_alpha": np.log(alpha),
            "log_beta": np.log(beta + tiny),
            "log_signal": np.log(signal),
            "log_noise": np.log(1 - signal + tiny),
            "root_signal": np.sqrt(signal),
            "root_noise": np.sqrt(1 - signal),
            "root_recip": np.sqrt(1 / signal),
            "root_recip_less": np.sqrt(1 / signal - 1),
            "to_data": beta * np.sqrt(before) / (1 - signal),
            "stay": (1 - before) * np.sqrt(alpha) / (1 - signal),
            "beta": beta,
            "smallest": (beta * (1 - before) / (1 - signal))[1:2],
        }
        for name, table in tables.items():
            self.register_buffer(name, torch.from_numpy(table).to(like))

    # -- categories in logarithms -------------------------------------------------

    def log_onehot(self, codes: Tensor) -> Tensor:
        """Return log one-hot rows of all columns, zeros clamped to 1e-30."""
        parts = [one_hot(codes[:, j], k) for j, k in enumerate(self.cards)]
        flat = torch.cat(parts, 1).to(self.beta.dtype)
        return flat.clamp(min=1e-30).log()

    def _log_sums(self, x: Tensor) -> Tensor:
        """Return log Σ exp over each column, repeated over its levels."""
        running = torch.logcumsumexp(pad(x, [1, 0], value=-float("inf")), -1)
        starts, ends = self.edges[:-1], self.edges[1:]
        sums = _log_sub_exp(running[:, ends], running[:, starts])
        return torch.repeat_interleave(sums, ends - starts, -1)

    def _noised_law(self, log_x: Tensor, t: Tensor) -> Tensor:
        return _log_add_exp(
            log_x + _at(self.log_signal, t, log_x.shape),
            _at(self.log_noise, t, log_x.shape) - torch.log(self.sizes),
        )

    def _one_step_law(self, log_x: Tensor, t: Tensor) -> Tensor:
        return _log_add_exp(
            log_x + _at(self.log_alpha, t, log_x.shape),
            _at(self.log_beta, t, log_x.shape) - torch.log(self.sizes),
        )

    def _posterior(self, log_start: Tensor, log_x: Tensor, t: Tensor) -> Tensor:
        before = torch.where(t - 1 < 0, torch.zeros_like(t), t - 1)
        law = self._noised_law(log_start, before)
        spread = t[:, None] * torch.ones_like(log_start)
        law = torch.where(spread == 0, log_start, law)
        raw = law + self._one_step_law(log_x, t)
        return raw - self._log_sums(raw)

    def _log_classes(self, logits: Tensor) -> Tensor:
        out = torch.empty_like(logits)
        for levels in self.slices:
            out[:, levels] = log_softmax(logits[:, levels], 1)
        return out

    def _draw_classes(self, log_p: Tensor) -> Tensor:
        codes = []
        for levels in self.slices:
            column = log_p[:, levels]
            uniform = torch.rand_like(column)
            gumbel = -torch.log(-torch.log(uniform + 1e-30) + 1e-30)
            codes.append((gumbel + column).argmax(1)[:, None])
        return self.log_onehot(torch.cat(codes, 1))

    def _predict(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        time = self.time(sinusoids(t.to(x.dtype), self.project.out_features))
        out = self.head(self.hidden(self.project(x) + time))
        return out[:, : self.n_num], out[:, self.n_num :]

    # -- training -----------------------------------------------------------------

    def draw(self, num: Tensor, cat: Tensor) -> Draws:
        """Draw times and noise for a batch."""
        t = torch.randint(0, self.timesteps, (len(num),), device=num.device)
        noise = torch.randn_like(num)
        log_cat = self._draw_classes(self._noised_law(self.log_onehot(cat), t))
        return Draws(t, noise, log_cat)

    def losses(self, num: Tensor, cat: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """Return the losses of categories and of numbers, both [B]."""
        t, noise, log_x = draws
        x_num = (
            _at(self.root_signal, t, num.shape) * num
            + _at(self.root_noise, t, num.shape) * noise
        )
        log_start = self.log_onehot(cat)
        eps, logits = self._predict(torch.cat([x_num, log_x], 1), t)
        true = self._posterior(log_start, log_x, t)
        model = self._posterior(self._log_classes(logits), log_x, t)
        divergence = (true.exp() * (true - model)).sum(1)
        likelihood = -(log_start.exp() * model).sum(1)
        first = (t == torch.zeros_like(t)).to(num.dtype)
        losses = first * likelihood + (1 - first) * divergence
        chance = torch.ones_like(losses) / self.timesteps
        end = (self.timesteps - 1) * torch.ones_like(t)
        last = self._noised_law(log_start, end)
        uniform = -torch.log(self.sizes * torch.ones_like(last))
        constant = (last.exp() * (last - uniform)).sum(1)
        return (
            (losses / chance + constant) / len(self.cards),
            ((noise - eps) ** 2).mean(1),
        )

    def steps(self, num: Tensor, cat: Tensor, batch: int) -> Iterator[None]:
        """Train; yields after every step."""
        device = self.edges.device
        # one table of floats, codes included, shuffled at the start of every epoch
        rows = torch.cat([num, cat.to(num.dtype)], 1)
        loader = endless(HostTensors(rows, batch=batch, whole=False))
        optimizer = torch.optim.AdamW(self.parameters(), lr=PEAK, weight_decay=0.0)
        ema = copied(self)
        sums = [0.0, 0.0]
        for step in range(TOTAL):
            (x,) = next(loader)
            x = x.to(device)
            optimizer.zero_grad()
            b_num, b_cat = x[:, : self.n_num], x[:, self.n_num :].long()
            parts = self.losses(b_num, b_cat, self.draw(b_num, b_cat))
            categories, numbers = (part.mean() for part in parts)
            (categories + numbers).backward()
            optimizer.step()
            set_rate(optimizer, PEAK * (1 - step / TOTAL))
            sums[0] += categories.item() * len(x)
            sums[1] += numbers.item() * len(x)
            update_ema(ema, self, DECAY)
            yield

    # -- sampling -----------------------------------------------------------------

    @torch.no_grad()
    def sample(self, n: int, steps: int) -> tuple[Tensor, Tensor]:
        """Return numbers and codes of `n` rows; `steps` is T, as published."""
        if steps != self.timesteps:
            raise ValueError(f"the published sampler takes {self.timesteps} steps")
        device = self.edges.device
        x_num = torch.randn(n, self.n_num, device=device)
        log_x = self._draw_classes(torch.zeros(n, len(self.sizes), device=device))
        for i in reversed(range(self.timesteps)):
            t = torch.full((n,), i, device=device, dtype=torch.long)
            eps, logits = self._predict(torch.cat([x_num, log_x], 1), t)
            x_num = self._back(x_num, eps, t)
            law = self._posterior(self._log_classes(logits), log_x, t)
            log_x = self._draw_classes(law)
        flat = log_x.exp().round()
        codes = [flat[:, levels].argmax(1) for levels in self.slices]
        return x_num.cpu(), torch.stack(codes, 1).cpu()

    def _back(self, x: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """Take one reverse step of the numbers."""
        variance = torch.log(torch.cat([self.smallest, self.beta[1:]]))
        log_variance = _at(variance, t, x.shape)
        start = (
            _at(self.root_recip, t, x.shape) * x
            - _at(self.root_recip_less, t, x.shape) * eps
        )
        mean = _at(self.to_data, t, x.shape) * start + _at(self.stay, t, x.shape) * x
        noise = torch.randn_like(x)
        some = (t != 0).to(x.dtype)[:, None]
        return mean + some * torch.exp(0.5 * log_variance) * noise
