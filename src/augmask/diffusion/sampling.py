"""From noise back to rows: one loop for all backbones, whether cells are known or not.

A backbone gives a `Sampler`: where to start, one step, how to end. `run_sampler` takes the
steps. If cells are `Known`, the network must denoise the others as if it saw these
without noise, but it expects noise of one level in all cells. RePaint (Lugmayr et al.,
2022) puts fresh noise on known cells at every step; the network then believes a noisy
copy, and draws spread too far around a mean that is pulled inwards. Here the noise of a
known cell is not drawn but found: x + σ e, with e such that the cell is denoised to
what is known, D = x. If the row is jointly normal, the other cells are then denoised
exactly as if the known ones had been seen: given the known cells, their noisy copies
say nothing more. e starts at 0, is corrected in every step by what that step has
denoised, and stays within what noise could be. Steps at middle levels are taken several
times, up by fresh noise and down again, which forgets what earlier levels did wrong.
All rows go together, whatever is known of each.

On its way down the network says at every level how likely it takes each level of a
category to be. The mean of that over draws, at any level of noise, is how likely it is
given the known cells, and tells more than which level each draw happened to end in.

On a GPU the step is recorded once and replayed. So a step must not ask the device for a
number, and must not branch on `i`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from augmask.diffusion.base import Batch
from augmask.diffusion.cuda_graph import recorded
from augmask.diffusion.noise import Noise
from augmask.diffusion.ragged import Ragged
from augmask.errors import UsageError

# tensors whose first dimension is the row; shapes stay the same from step to step
State = tuple[Tensor, ...]

# how much of the miss x - D a step corrects, and how far e may go
GAIN, FARTHEST = 0.5, 0.75
# levels between which beliefs are collected: above, they do not know the row yet;
# below, each follows what its own draw has settled on
BELIEVED = (0.03, 0.3)


class InpaintConfig(NamedTuple):
    """How rows with known cells go: `Backbone.inpaint_config`.

    Parameters
    ----------
    steps, solver : int, str
        Of the way.
    rounds : int
        How often each step at a middle level is taken.
    repeated : tuple of two floats
        The middle levels: above, a row is lost in noise; below, its cells have settled.
    """

    steps: int
    solver: str
    rounds: int = 3
    repeated: tuple[float, float] = (0.1, 3.0)


class Sampler(Protocol):
    """A way back that a backbone has laid out for a number of steps.

    Place i = 0 .. n_steps is where step i starts, and `finish` after the last. Places
    come as whole numbers [] on the device. `levels` has the noise of every place,
    relative to numbers of variance one.

    The last part of a state is what the last step believed of every level of every
    category, [B, S], if there is room for it; `start` makes none, [B, 0].
    """

    n_steps: int
    levels: Sequence[float]
    n_slots: int  # S

    def start(self, n: int, noise: Noise) -> State:
        """Return `n` rows of nothing but noise, at place 0."""

    def step(self, state: State, i: Tensor, noise: Noise) -> State:
        """Go from place i to place i + 1."""

    def finish(self, state: State, noise: Noise) -> Batch:
        """Go from place `n_steps` to clean rows."""

    def renoise(self, state: State, i: Tensor, noise: Noise) -> State:
        """Go back up from place i + 1 to place i, by adding noise."""

    # -- for known cells --

    def offset(self, batch: Batch) -> State:
        """Return e = 0 for all cells that have one."""

    def updated_offset(
        self, offset: State, state: State, batch: Batch, i: Tensor
    ) -> State:
        """Return e after step i, which has led to `state`."""

    def noise_known(
        self, batch: Batch, offset: State, i: Tensor, noise: Noise
    ) -> State:
        """Return where known cells stand at place i."""

    def apply_known(
        self, state: State, known: State, num: Tensor, cat: Tensor
    ) -> State:
        """Return `state` with known cells from `known`; bool [B, d_num], [B, d_cat]."""


@dataclass(frozen=True)
class Known:
    """Cells that are known, the same ones or others in every row.

    Parameters
    ----------
    batch : Batch
        Clean rows; what stands in unknown cells does not matter, as long as it is
        finite and a code of its column.
    num, cat : bool Tensor [B, d_num] and [B, d_cat]
        True where the cell is known.
    rounds, repeated : int, tuple of two floats
        As in `InpaintConfig`; each step is taken once unless told.
    believe : bool
        Whether to collect beliefs.
    """

    batch: Batch
    num: Tensor
    cat: Tensor
    rounds: int = 1
    repeated: tuple[float, float] = (0.0, 0.0)
    believe: bool = False


class _Held:
    """A way on which known cells are kept; states end with their e and the beliefs."""

    def __init__(self, sampler: Sampler, known: Known) -> None:
        self.sampler, self.known = sampler, known
        self.first = torch.zeros((), dtype=torch.long, device=known.num.device)
        self.counts = torch.tensor(_counts(sampler), device=known.num.device)[:, None]

    def start(self, n: int, noise: Noise) -> State:
        *state, room = self.sampler.start(n, noise)
        if self.known.believe:
            room = room.new_zeros(n, self.sampler.n_slots)
        offset = self.sampler.offset(self.known.batch)
        return *self._hold((*state, room), offset, self.first, noise), *offset, room

    def step(self, state: State, i: Tensor, noise: Noise) -> State:
        state, offset, class_probs = self._split(state)
        state = self.sampler.step(state, i, noise)
        offset = self.sampler.updated_offset(offset, state, self.known.batch, i)
        class_probs = class_probs + at(self.counts, i).to(class_probs) * state[-1]
        return *self._hold(state, offset, i + 1, noise), *offset, class_probs

    def renoise(self, state: State, i: Tensor, noise: Noise) -> State:
        state, offset, class_probs = self._split(state)
        state = self.sampler.renoise(state, i, noise)
        return *self._hold(state, offset, i, noise), *offset, class_probs

    def finish(self, state: State, noise: Noise) -> Batch:
        num, cat = self.sampler.finish(self._split(state)[0], noise)
        known = self.known
        return Batch(
            torch.where(known.num, known.batch.num, num),
            torch.where(known.cat, known.batch.cat, cat),
        )

    def _hold(self, state: State, offset: State, i: Tensor, noise: Noise) -> State:
        noise_known = self.sampler.noise_known(self.known.batch, offset, i, noise)
        return self.sampler.apply_known(
            state, noise_known, self.known.num, self.known.cat
        )

    def _split(self, state: State) -> tuple[State, State, Tensor]:
        own = len(state) - 1 - len(self.sampler.offset(self.known.batch))
        return state[:own], state[own:-1], state[-1]


def _counts(sampler: Sampler) -> list[float]:
    """Return for every place whether a belief there counts; it does at one at least."""
    low, high = BELIEVED
    passed = sampler.levels[: sampler.n_steps]
    nearest = min(passed, key=lambda level: max(low / level, level / high), default=0.0)
    return [float(low <= level <= high or level == nearest) for level in sampler.levels]


def _path(
    levels: Sequence[float],
    n_steps: int,
    rounds: int,
    repeated: tuple[float, float],
) -> Iterator[tuple[bool, int]]:
    """Yield the moves: whether down or up, and between which places i and i + 1.

    Examples
    --------
    >>> list(_path([80.0, 1.0, 0.01], 2, 2, (0.1, 3.0)))
    [(True, 0), (True, 1), (False, 1), (True, 1)]
    """
    low, high = repeated
    for i in range(n_steps):
        yield True, i
        if low <= levels[i] <= high:
            for _ in range(rounds - 1):
                yield False, i
                yield True, i


def inpainting_sampler(backbone: Any) -> Sampler:
    """Return the way that rows with known cells go, by `backbone.inpaint_config`.

    Many of its steps are taken several times, so it has fewer than that of `sample`.
    """
    if not hasattr(backbone, "sampler"):
        raise UsageError(
            f"a backbone needs the method sampler to fill or fix cells, and "
            f"{type(backbone).__name__} lacks it; see augmask.diffusion.sampling.Sampler"
        )
    steps, solver, *_ = backbone.inpaint_config
    sampler: Sampler = backbone.sampler(steps, solver)
    return sampler


@torch.no_grad()
def run_sampler(sampler: Sampler, n: int, noise: Noise) -> Batch:
    """Return `n` rows at the end of the way.

    Parameters
    ----------
    way : Way
    n : int
    noise : torch.Generator
        On the device of the backbone.
    """
    once = _path(sampler.levels, sampler.n_steps, 1, (0.0, 0.0))
    return sampler.finish(_followed(sampler, n, noise, once), noise)


@torch.no_grad()
def inpaint(sampler: Sampler, noise: Noise, known: Known) -> tuple[Batch, Tensor]:
    """Return rows at the end of the way, and what was believed of categories.

    Parameters
    ----------
    way : Way
    noise : torch.Generator
        On the device of the backbone.
    known : Known
        What is known of the rows; it comes back as it is.

    Returns
    -------
    rows : Batch
    belief : Tensor [B, S]
        Of every level of every category, not negative, to be divided by the sum over
        the levels of a category; [B, 0] unless `known` asks for it.
    """
    held = _Held(sampler, known)
    path = _path(sampler.levels, sampler.n_steps, known.rounds, known.repeated)
    state = _followed(held, len(known.num), noise, path)
    return held.finish(state, noise), state[-1]


def _followed(
    taken: Sampler | _Held, n: int, noise: Noise, path: Iterable[tuple[bool, int]]
) -> State:
    """Return the state before the last step."""
    # the state stays in place, so that a recorded step finds it
    state = tuple(part.clone() for part in taken.start(n, noise))
    i = torch.zeros((), dtype=torch.long, device=state[0].device)

    def write(new: State) -> None:
        for part, value in zip(state, new, strict=True):
            part.copy_(value)

    moves = {
        True: recorded(lambda: write(taken.step(state, i, noise)), noise, "sampling"),
        False: recorded(
            lambda: write(taken.renoise(state, i, noise)), noise, "sampling"
        ),
    }
    for down, place in path:
        i.fill_(place)
        moves[down]()
    return state


# -- for ways ----------------------------------------------------------------------


def at(table: Tensor, i: Tensor) -> Tensor:
    """Return row i of a table as [1, ...], without asking the device for i.

    Examples
    --------
    >>> at(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor(1))
    tensor([[3., 4.]])
    """
    return table.index_select(0, i.reshape(1))


def emitted_probs(p: Tensor, ragged: Ragged, room: Tensor) -> Tensor:
    """Return probabilities of all levels that can be emitted, if there is room."""
    return p.index_select(1, ragged.emitted) if room.shape[1] else room


def corrected(offset: Tensor, clean: Tensor, denoised: Tensor, sigma: Tensor) -> Tensor:
    """Return e, moved so that what is denoised comes nearer to what is known.

    A cell of variance one is denoised to (x + σ e) / (1 + σ²), so e would have to move
    by (1 + σ²) / σ times the miss; other cells of the row are corrected as well, and
    may say the same again, so it moves by a part of that.
    """
    move = GAIN * (1 + sigma.square()) / sigma * (clean - denoised)
    return (offset + move).clamp(-FARTHEST, FARTHEST)
