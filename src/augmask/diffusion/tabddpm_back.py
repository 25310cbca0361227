"""TabDDPM's way from noise to rows, visiting all of its times or some of them.

Numbers move to the mean of x_s given x_t and the predicted x_0, plus fresh noise, or
keep the noise that they have (DDIM). Categories are drawn from h(p), see `tabddpm`.

How much noise is fresh depends on how well x_0 is known. 1 - α, as published, is right
for cells of variance one; what remains if x_0 were known is less. Over a thousand steps
it does not matter. Over forty, with an exact network, cells of standard deviation 0.2
spread 8 % too far by the first and 15 % too little by the second. `interpolated_variance` goes two
thirds of the way from the second to the first (in logarithms; Nichol and Dhariwal,
2021, learn how far), which leaves cells of any spread from 0.1 to 1 short by 2 or 3 %.
A trained network adds spread of its own: see `augmask.sample.inpaint` for what that makes
of known cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from augmask.diffusion.base import Batch
from augmask.diffusion.noise import Noise, normal_like
from augmask.diffusion.sampling import State, at, corrected, emitted_probs

if TYPE_CHECKING:
    from augmask.diffusion.tabddpm import Step, TabDDPM
    from augmask.table.table import FloatArray


def sampling_times(timesteps: int, steps: int) -> FloatArray:
    """Return `steps` of the times, falling from T - 1 to 0.

    The last two times are always both visited. β is capped there, and a longer first
    step would magnify the network's error by √(ᾱ_s / ᾱ_t): 32 as published, 300 for a
    step of ten.

    Examples
    --------
    >>> sampling_times(1000, 5).astype(int).tolist()
    [999, 998, 665, 333, 0]
    >>> sampling_times(1000, 1).tolist()
    [999.0]
    """
    rest = np.linspace(0, timesteps - 2, steps - 1).round()[::-1]
    return np.concatenate([[timesteps - 1.0], rest])


# The way of the variance of fresh noise from that for a known x_0 to 1 - α.
FRESH = {"ancestral": 1.0, "interpolated_variance": 2 / 3}


class Move(NamedTuple):
    """What numbers are multiplied with on their way: x_0 = (x - a ε̂) / b, and so on."""

    noise: Tensor
    signal: Tensor
    to_data: Tensor
    stay: Tensor
    fresh: Tensor


def _moves(step: Step, solver: str) -> list[FloatArray]:
    """Return the columns of `Move` for every step, in float64."""
    noise, signal = np.sqrt(step.noise), np.sqrt(step.signal)
    if solver == "ddim":
        # √ᾱ_s x_0 + √(1 - ᾱ_s) ε, with ε = (x - √ᾱ_t x_0) / √(1 - ᾱ_t)
        stay = np.sqrt(step.earlier_noise) / noise
        to_data = np.sqrt(step.earlier_signal) - stay * signal
        return [noise, signal, to_data, stay, np.zeros_like(noise)]
    to_data = step.beta * np.sqrt(step.earlier_signal) / step.noise
    stay = step.earlier_noise * np.sqrt(step.alpha) / step.noise
    least = step.beta * step.earlier_noise / step.noise
    fresh = step.beta ** FRESH[solver] * least ** (1 - FRESH[solver])
    return [noise, signal, to_data, stay, np.sqrt(fresh)]


class TabDDPMSampler:
    """See `augmask.diffusion.sampling.Sampler`; the last step, to data, is `finish`.

    The state holds numbers, codes, what the numbers were denoised to, and beliefs.
    """

    def __init__(
        self, model: TabDDPM, step: Step, times: FloatArray, solver: str
    ) -> None:
        self.model, self.n_steps, self.solver = model, len(times) - 1, solver
        self.like = model.head.weight
        self.n_slots = len(model.ragged.emitted)

        def table(columns: list[FloatArray]) -> Tensor:
            return torch.from_numpy(np.stack(columns, 1)).to(self.like)

        self.moves = table(_moves(step, solver))
        self.step_table = table(list(step))
        levels = np.sqrt(step.noise / step.signal)
        self.levels: Sequence[float] = levels.tolist()
        self.times = model.time(table([times])[:, 0])
        self.make_step = type(step)

    def start(self, n: int, noise: Noise) -> State:
        """Return standard normal numbers and uniform codes."""
        like = self.like.new_empty
        x_num = normal_like(like(n, self.model.n_num), noise)
        x_cat = self.model._uniform_codes(like(n, len(self.model.cards)), noise)
        return x_num, x_cat, torch.zeros_like(x_num), like(n, 0)

    def step(self, state: State, i: Tensor, noise: Noise) -> State:
        """Move numbers and draw categories."""
        return self._step(state, i, noise, last=False)

    def finish(self, state: State, noise: Noise) -> Batch:
        """Take the last step, on which numbers get no fresh noise."""
        last = torch.tensor(self.n_steps, device=self.like.device)
        x_num, x_cat, *_ = self._step(state, last, noise, last=True)
        return Batch(x_num, x_cat)

    def offset(self, batch: Batch) -> State:
        """Return e = 0 for numbers; a known category is simply kept."""
        return (torch.zeros_like(batch.num),)

    def updated_offset(
        self, offset: State, state: State, batch: Batch, i: Tensor
    ) -> State:
        """Correct e by what the step has denoised."""
        step = self._at(i)
        sigma = (step.noise / step.signal).sqrt()
        return (corrected(offset[0], batch.num, state[2], sigma),)

    def noise_known(
        self, batch: Batch, offset: State, i: Tensor, _noise: Noise
    ) -> State:
        """Return √ᾱ x + √(1 - ᾱ) e, and the codes themselves."""
        step = self._at(i)
        return step.signal.sqrt() * batch.num + step.noise.sqrt() * offset[0], batch.cat

    def renoise(self, state: State, i: Tensor, noise: Noise) -> State:
        """Go up by the forward process of one step."""
        step = self._at(i)
        up = step._replace(signal=step.alpha, noise=step.beta)
        x_num, _, x_cat = self.model._noised(Batch(state[0], state[1]), up, noise)
        return x_num, x_cat, *state[2:]

    def apply_known(
        self, state: State, known: State, num: Tensor, cat: Tensor
    ) -> State:
        """Take known cells from `known`."""
        return (
            torch.where(num, known[0], state[0]),
            torch.where(cat, known[1], state[1]),
            *state[2:],
        )

    def _at(self, i: Tensor) -> Step:
        return self.make_step(*at(self.step_table, i).unbind(1))

    def _step(self, state: State, i: Tensor, noise: Noise, last: bool) -> State:
        (x_num, x_cat, _, room), model = state, self.model
        onehot = model.ragged.one_hot(x_cat, x_num)
        here = self._at(i)
        eps_hat, logits = model._predict(x_num, onehot, at(self.times, i), here)
        move = Move(*at(self.moves, i).unbind(1))
        x_0 = (x_num - move.noise * eps_hat) / move.signal
        if model.clip:
            bound = model.clip * model.largest
            x_0 = torch.maximum(torch.minimum(x_0, bound), -bound)
        x_num = move.to_data * x_0 + move.stay * x_num
        if self.solver != "ddim" and not last:
            x_num = x_num + move.fresh * normal_like(x_num, noise)
        p = model.ragged.softmax(logits.masked_fill(model.ragged.forbidden, -torch.inf))
        x_cat = model.ragged.draw(model._back(onehot, p, here), noise)
        return x_num, x_cat, x_0, emitted_probs(p, model.ragged, room)
