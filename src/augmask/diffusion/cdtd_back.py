"""CDTD's way from noise to rows: the probability-flow equation, solved step by step.

Euler moves x to r x + (1 - r) D with r = σ' / σ. The second-order step puts
D + (h / 2 h_before)(D - D_before) in D's place, h being the step in log σ
(DPM-Solver++ 2M); the last step, to σ = 0, stays first order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from augmask.diffusion.base import Batch
from augmask.diffusion.noise import Noise, log_time, normal_like
from augmask.diffusion.sampling import State, at, corrected, emitted_probs

if TYPE_CHECKING:
    from augmask.diffusion.cdtd import CDTD


class CDTDSampler:
    """See `augmask.diffusion.sampling.Sampler`.

    The state holds numbers, points of categories (flat), what both were denoised to in
    the step before, whether that may be used (0 or 1 per row), and beliefs.
    """

    # a start leads to nearly the same row by few steps as by many
    drawn_at_start = True

    def __init__(self, model: CDTD, steps: int, solver: str) -> None:
        self.model, self.n_steps = model, steps
        self.n_slots = len(model.ragged.emitted)
        self.points = model._points()
        slots = torch.arange(model.ragged.n_slots, device=self.points.device)
        block = self.points.new_zeros(len(slots), model.n_cat, model.cat_width)
        block[slots, model.ragged.column] = self.points
        # from the probabilities of all levels to the expected point of every column
        self.block = block.flatten(1)
        u = model.warp.sampling_times(
            torch.linspace(
                1, 0, steps + 1, dtype=block.dtype, device=self.points.device
            )
        )
        self.sigma = model.warp.sigma(u)
        self.times = model.net.embed_time(log_time(u))
        self.levels: Sequence[float] = self.sigma[:, 0].tolist()
        self.keep = self.sigma[1:] / self.sigma[:-1]
        self.ahead = torch.zeros_like(self.keep)
        if solver == "dpmpp_2m" and steps > 2:
            h = -self.keep.log()
            self.ahead[1:-1] = h[1:-1] / (2 * h[:-2])

    def start(self, n: int, noise: Noise) -> State:
        """Return noise of the largest level."""
        s_num, s_cat = self.sigma[0].unbind()
        like = self.points.new_empty
        x_num = s_num * normal_like(like(n, self.model.n_num), noise)
        x_cat = s_cat * normal_like(like(n, self.block.shape[1]), noise)
        nothing = torch.zeros_like
        usable, room = x_num.new_zeros(n, 1), like(n, 0)
        return x_num, x_cat, nothing(x_num), nothing(x_cat), usable, room

    def step(self, state: State, i: Tensor, _noise: Noise) -> State:
        """Take a step of the solver; nothing is drawn."""
        x_num, x_cat, before_num, before_cat, usable, room = state
        d_num, logits = self._denoise(x_num, x_cat, i)
        p = self.model.ragged.softmax(logits)
        d_cat = p @ self.block
        ahead_num, ahead_cat = at(self.ahead, i).unbind(1)
        keep_num, keep_cat = at(self.keep, i).unbind(1)
        to_num = d_num + usable * ahead_num * (d_num - before_num)
        to_cat = d_cat + usable * ahead_cat * (d_cat - before_cat)
        return (
            torch.lerp(to_num, x_num, keep_num),
            torch.lerp(to_cat, x_cat, keep_cat),
            d_num,
            d_cat,
            torch.ones_like(usable),
            emitted_probs(p, self.model.ragged, room),
        )

    def finish(self, state: State, _noise: Noise) -> Batch:
        """Read the categories once more, at the end point itself."""
        last = torch.tensor(self.n_steps - 1, device=self.sigma.device)
        _, logits = self._denoise(state[0], state[1], last)
        return Batch(state[0], self.model.ragged.argmax(logits))

    def offset(self, batch: Batch) -> State:
        """Return e = 0 for numbers and points."""
        n, wide = len(batch.num), self.block.shape[1]
        return torch.zeros_like(batch.num), batch.num.new_zeros(n, wide)

    def updated_offset(
        self, offset: State, state: State, batch: Batch, i: Tensor
    ) -> State:
        """Correct e by what the step has denoised."""
        s_num, s_cat = at(self.sigma, i).unbind(1)
        return (
            corrected(offset[0], batch.num, state[2], s_num),
            corrected(offset[1], self._points_of(batch), state[3], s_cat),
        )

    def noise_known(
        self, batch: Batch, offset: State, i: Tensor, _noise: Noise
    ) -> State:
        """Return x + σ e and v + σ e."""
        s_num, s_cat = at(self.sigma, i).unbind(1)
        return batch.num + s_num * offset[0], self._points_of(batch) + s_cat * offset[1]

    def renoise(self, state: State, i: Tensor, noise: Noise) -> State:
        """Add noise of variance σ² - σ'²; what was denoised is of the wrong level."""
        x_num, x_cat, *before, usable, class_probs = state
        variance = at(self.sigma, i).square() - at(self.sigma, i + 1).square()
        s_num, s_cat = variance.sqrt().unbind(1)
        return (
            x_num + s_num * normal_like(x_num, noise),
            x_cat + s_cat * normal_like(x_cat, noise),
            *before,
            torch.zeros_like(usable),
            class_probs,
        )

    def apply_known(
        self, state: State, known: State, num: Tensor, cat: Tensor
    ) -> State:
        """Take known cells from `known`; the memory of the last step is kept."""
        wide = cat.repeat_interleave(self.model.cat_width, 1)
        return (
            torch.where(num, known[0], state[0]),
            torch.where(wide, known[1], state[1]),
            *state[2:],
        )

    def _points_of(self, batch: Batch) -> Tensor:
        return self.points[self.model.ragged.slots(batch.cat)].flatten(1)

    def _denoise(
        self, x_num: Tensor, x_cat: Tensor, i: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Denoise rows of one level; placeholder levels get no weight."""
        denoised, logits = self.model._denoise(
            x_num, x_cat, at(self.sigma, i), at(self.times, i)
        )
        return denoised, logits.masked_fill(self.model.ragged.forbidden, -torch.inf)
