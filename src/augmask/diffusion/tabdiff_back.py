"""TabDiff's ways from noise and masks to rows.

Numbers follow the probability-flow equation, categories are revealed: at a step from
masking probability m to m' a masked token gets a class drawn from the prediction, and a
share m' / m of them is masked still.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from augmask.diffusion.base import Batch
from augmask.diffusion.noise import Noise, normal_like, uniform_like
from augmask.diffusion.power import FIXED_R, power_mean, power_mean_time
from augmask.diffusion.sampling import State, at, corrected, emitted_probs

if TYPE_CHECKING:
    from augmask.diffusion.tabdiff import TabDiff

MAX_CHURN = 2**0.5 - 1


class _TabDiffWay:
    """What both solvers share; the last step is part of `finish`.

    The state holds numbers, codes, which of them are masked, what the numbers were
    denoised to, whether the next step may use that (0 or 1 per row), and beliefs.
    """

    def __init__(self, model: TabDiff, steps: int) -> None:
        self.model, self.n_steps = model, steps - 1
        self.like = model.net.expand.weight
        self.n_slots = len(model.ragged.emitted)
        kind: dict[str, Any] = {"dtype": self.like.dtype, "device": self.like.device}
        self.t = torch.linspace(1, 0, steps, **kind)
        self.sigma, self.mask = (
            model.schedules.sigma(self.t),
            model.schedules.mask(self.t),
        )
        self.next_sigma, self.next_mask = _next(self.sigma), _next(self.mask)
        self.times = model.net.embed_time(self.t)
        # columns have levels of their own; without numbers, as many as masks
        both = self.sigma if model.n_num else self.mask / (1 - self.mask)
        self.levels: Sequence[float] = both.mean(1).tolist()

    def start(self, n: int, noise: Noise) -> State:
        """Return noise of the largest level, and masks all over."""
        x = self.sigma[0] * normal_like(self.like.new_empty(n, self.model.n_num), noise)
        masked = x.new_ones(n, self.model.n_cat)
        # codes have no meaning under a mask
        cat = torch.zeros_like(masked, dtype=torch.long)
        usable, room = x.new_zeros(n, 1), x.new_zeros(n, 0)
        return x, cat, masked, torch.zeros_like(x), usable, room

    def step(self, state: State, i: Tensor, noise: Noise) -> State:
        """Take a step of the solver."""
        raise NotImplementedError

    def finish(self, state: State, noise: Noise) -> Batch:
        """Take the last step, to numbers without noise and no mask."""
        last = torch.tensor(self.n_steps, device=self.t.device)
        x, cat, *_ = self.step(state, last, noise)
        return Batch(x, cat)

    def offset(self, batch: Batch) -> State:
        """Return e = 0 for numbers; a known category is simply not masked."""
        return (torch.zeros_like(batch.num),)

    def updated_offset(
        self, offset: State, state: State, batch: Batch, i: Tensor
    ) -> State:
        """Correct e by what the step has denoised."""
        return (corrected(offset[0], batch.num, state[3], at(self.sigma, i)),)

    def noise_known(
        self, batch: Batch, offset: State, i: Tensor, _noise: Noise
    ) -> State:
        """Return x + σ e, and tokens without a mask."""
        shown = batch.num.new_zeros(batch.cat.shape)
        return batch.num + at(self.sigma, i) * offset[0], batch.cat, shown

    def renoise(self, state: State, i: Tensor, noise: Noise) -> State:
        """Add noise of variance σ² - σ'², and mask a share of what was revealed."""
        x, cat, masked, before, usable, class_probs = state
        s, s_next = at(self.sigma, i), at(self.sigma, i + 1)
        m, m_next = at(self.mask, i), at(self.mask, i + 1)
        x = x + (s.square() - s_next.square()).sqrt() * normal_like(x, noise)
        masked = self._masked_again(masked, 1 - (1 - m) / (1 - m_next), noise)
        return x, cat, masked, before, torch.zeros_like(usable), class_probs

    def apply_known(
        self, state: State, known: State, num: Tensor, cat: Tensor
    ) -> State:
        """Take known cells from `known`; the memory of the last step is kept."""
        return (
            torch.where(num, known[0], state[0]),
            torch.where(cat, known[1], state[1]),
            torch.where(cat, known[2], state[2]),
            *state[3:],
        )

    def _masked_again(self, masked: Tensor, share: Tensor, noise: Noise) -> Tensor:
        hide = uniform_like(torch.empty_like(masked), noise) < share
        return torch.where(hide, 1.0, masked)

    def _believed(
        self, logits: Tensor, cat: Tensor, masked: Tensor, room: Tensor
    ) -> Tensor:
        """Return what is believed of tokens; one that was revealed is sure."""
        if not room.shape[1]:
            return room
        ragged = self.model.ragged
        p = ragged.softmax(logits.masked_fill(ragged.forbidden, -torch.inf))
        hidden = masked.index_select(1, ragged.column)
        p = torch.where(hidden > 0, p, ragged.one_hot(cat, p))
        return emitted_probs(p, ragged, room)

    def _reveal(
        self,
        logits: Tensor,
        cat: Tensor,
        masked: Tensor,
        mask: Tensor,
        next_mask: Tensor,
        noise: Noise,
    ) -> tuple[Tensor, Tensor]:
        """Draw classes for masked tokens, of which a share m' / m stays masked."""
        ragged = self.model.ragged
        # the class whose exponential clock, of rate p, rings first
        clocks = -uniform_like(logits, noise).log()
        race = (logits - clocks.log()).masked_fill(ragged.forbidden, -torch.inf)
        stays = uniform_like(logits.new_empty(cat.shape), noise) * mask < next_mask
        cat = torch.where(masked > 0, ragged.argmax(race), cat)
        return cat, torch.where(stays, masked, 0.0)


class HeunWay(_TabDiffWay):
    """A little noise is added before every step, and the numbers look twice."""

    def __init__(self, model: TabDiff, steps: int) -> None:
        super().__init__(model, steps)
        t_hat, self.sigma_hat = self.churned(min(1 / steps, MAX_CHURN))
        self.mask_hat = model.schedules.mask(t_hat)
        extra = self.sigma_hat.square() - self.sigma.square()
        self.extra = extra.clamp(min=0).sqrt()
        self.share = 1 - (1 - self.mask_hat) / (1 - self.mask)
        self.times_hat = model.net.embed_time(t_hat)

    def churned(self, gamma: float) -> tuple[Tensor, Tensor]:
        """Return times and levels after noise was added, where there is room for it.

        The columns' schedules differ, so one time fits one column only: the earliest is
        taken. Without numeric columns the fixed schedule stands in.
        """
        raised = (1 + gamma) * self.sigma
        if self.model.n_num:
            later = self.model.schedules.time(raised)
        else:
            level = (1 + gamma) * power_mean(self.t, FIXED_R)
            later = power_mean_time(level, FIXED_R)
        room = later <= 1
        return (
            torch.where(room, later, self.t),
            torch.where(room[:, None], raised, self.sigma),
        )

    def step(self, state: State, i: Tensor, noise: Noise) -> State:
        """Take both looks."""
        x, cat, masked, logits, first = self._first_look(state, i, noise)
        slope = (x - first) / at(self.sigma_hat, i)
        next_sigma = at(self.next_sigma, i)
        sampler = next_sigma - at(self.sigma_hat, i)
        to = x + sampler * slope
        # the numbers look again from where they would arrive; the categories are still
        # those of the start
        time = at(self.times, i + 1)
        d, _ = self.model._denoise(to, cat, masked, next_sigma, time)
        x = x + sampler * (slope + (to - d) / next_sigma) / 2
        class_probs = self._believed(logits, cat, masked, state[5])
        cat, masked = self._revealed(logits, cat, masked, i, noise)
        return x, cat, masked, first, state[4], class_probs

    def finish(self, state: State, noise: Noise) -> Batch:
        """Take the last step, to σ = 0, with one look only."""
        last = torch.tensor(self.n_steps, device=self.t.device)
        _, cat, masked, logits, first = self._first_look(state, last, noise)
        return Batch(first, self._revealed(logits, cat, masked, last, noise)[0])

    def _first_look(
        self, state: State, i: Tensor, noise: Noise
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Add noise; return the raised state, logits and the denoised numbers."""
        x, cat, masked, *_ = state
        x = x + at(self.extra, i) * normal_like(x, noise)
        masked = self._masked_again(masked, at(self.share, i), noise)
        s = at(self.sigma_hat, i)
        d, logits = self.model._denoise(x, cat, masked, s, at(self.times_hat, i))
        return x, cat, masked, logits, d

    def _revealed(
        self, logits: Tensor, cat: Tensor, masked: Tensor, i: Tensor, noise: Noise
    ) -> tuple[Tensor, Tensor]:
        mask, next_mask = at(self.mask_hat, i), at(self.next_mask, i)
        return self._reveal(logits, cat, masked, mask, next_mask, noise)


class MultistepSampler(_TabDiffWay):
    """No added noise, one look a step and a memory of the last (DPM-Solver++ 2M)."""

    def __init__(self, model: TabDiff, steps: int) -> None:
        super().__init__(model, steps)
        self.keep = self.next_sigma / self.sigma
        self.ahead = torch.zeros_like(self.keep)
        if steps > 2:
            # the first step has no memory, and the last, to σ = 0, stays first order
            h = -self.keep[:-1].log()
            self.ahead[1:-1] = h[1:] / (2 * h[:-1])

    def step(self, state: State, i: Tensor, noise: Noise) -> State:
        """Take one look, and carry on the change since the last."""
        x, cat, masked, before, usable, room = state
        d, logits = self.model._denoise(
            x, cat, masked, at(self.sigma, i), at(self.times, i)
        )
        to = d + usable * at(self.ahead, i) * (d - before)
        x = torch.lerp(to, x, at(self.keep, i))
        mask, next_mask = at(self.mask, i), at(self.next_mask, i)
        class_probs = self._believed(logits, cat, masked, room)
        cat, masked = self._reveal(logits, cat, masked, mask, next_mask, noise)
        return x, cat, masked, d, torch.ones_like(usable), class_probs


def _next(levels: Tensor) -> Tensor:
    """Return for every step the levels that it leads to, nothing at the last."""
    return torch.cat([levels[1:], torch.zeros_like(levels[:1])])
