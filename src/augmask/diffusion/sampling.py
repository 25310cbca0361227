"""The reverse process from noise to rows, with or without known cells.

A backbone provides a `Sampler`: a start, one step, an end. `run_sampler` takes the
steps. `inpaint` does so for rows with `InpaintTask`: the network must denoise the other
cells as if it saw the known ones without noise, although it expects the same
sigma in all cells. RePaint (Lugmayr et al., 2022) adds fresh noise to known cells at
every step; the network then trusts a noisy copy, and samples spread too far around a
mean that is pulled inwards. Here the noise of a known cell is not drawn but solved for:
x + σ e, with the offset e such that the cell is denoised to its known value, D = x. If
rows are jointly normal, the other cells are then denoised exactly as if the known ones
had been observed. e starts at 0, is corrected after every step by what that step has
denoised, and stays within what noise could be. As in RePaint, steps at middle sigmas
are resampled: up by fresh noise and down again, which forgets errors of earlier steps.
Rows with different known cells are completed together.

At every step the network also predicts class probabilities. Their mean over samples, at
any sigma, is the probability given the known cells, and is less noisy than the share of
samples that end in a class.

On a GPU a step is captured as a CUDA graph, so it must not read a number from the
device and must not branch on `i`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from augmask.diffusion.base import Backbone, Batch
from augmask.diffusion.cuda_graph import cuda_graphed
from augmask.diffusion.ragged import Ragged
from augmask.diffusion.random_draws import RNG
from augmask.errors import UsageError

# A NamedTuple of tensors whose first dimension is the row, with a field `class_probs`.
State: TypeAlias = Any

# how much of the error x - D one step corrects, and the largest offset e
OFFSET_RATE, OFFSET_MAX = 0.5, 0.75
# sigmas at which class probabilities are collected: above, they do not know the row
# yet; below, each follows what its own sample has settled on
CLASS_PROBS_SIGMAS = (0.03, 0.3)


class InpaintConfig(NamedTuple):
    """How a backbone samples rows with known cells.

    Parameters
    ----------
    steps, solver : int, str
        Arguments of `ConditionalBackbone.sampler`.
    rounds : int
        How often each step at a middle sigma is taken.
    resample_sigmas : tuple of two floats
        The middle sigmas: above, a row is lost in noise; below, its cells have settled.
    """

    steps: int
    solver: str
    rounds: int = 3
    resample_sigmas: tuple[float, float] = (0.1, 3.0)


class Sampler(Protocol):
    """The reverse process of a backbone in a given number of steps.

    Step i = 0 .. n_steps - 1 leads from `sigmas[i]` to `sigmas[i + 1]`, `finish` from
    there to clean rows. `i` is an integer tensor [] on the device.

    A state is a NamedTuple of tensors [B, ...] whose shapes stay the same. Its field
    `class_probs` holds the probabilities that the last step predicted, [B, n_slots]. It
    is [B, 0] in `start`, and `step` must leave it so unless a caller has made room.

    The last five methods serve known cells only. An offset e, and what `noise_known`
    returns, are tensors or tuples of tensors, as the sampler likes.
    """

    n_steps: int
    sigmas: Sequence[float]  # relative to numbers of variance one
    n_slots: int  # levels of all categories that can be emitted

    def start(self, n: int, rng: RNG) -> State:
        """Return `n` rows of pure noise, at `sigmas[0]`."""

    def step(self, state: State, i: Tensor, rng: RNG) -> State:
        """Denoise from `sigmas[i]` to `sigmas[i + 1]`."""

    def finish(self, state: State, rng: RNG) -> Batch:
        """Return clean rows from a state at `sigmas[n_steps]`."""

    def renoise(self, state: State, i: Tensor, rng: RNG) -> State:
        """Undo step i by adding noise, from `sigmas[i + 1]` up to `sigmas[i]`."""

    def offset(self, batch: Batch) -> Any:
        """Return e = 0 for all cells that have an offset."""

    def updated_offset(self, offset: Any, state: State, batch: Batch, i: Tensor) -> Any:
        """Return e after step i has led to `state`; see `corrected_offset`."""

    def noise_known(self, batch: Batch, offset: Any, i: Tensor, rng: RNG) -> Any:
        """Return the cells of clean rows as they are at `sigmas[i]`, x + σ e."""

    def apply_known(self, state: State, known: Any, num: Tensor, cat: Tensor) -> State:
        """Return `state` with the cells of `known` where bool `num`, `cat` are True."""


@dataclass(frozen=True)
class InpaintTask:
    """Known cells of rows, the same or different ones in every row.

    Parameters
    ----------
    batch : Batch
        Clean rows. Unknown cells may hold any finite number and any code of their
        column.
    num, cat : bool Tensor [B, d_num] and [B, d_cat]
        True where the cell is known.
    rounds, resample_sigmas : int, tuple of two floats
        As in `InpaintConfig`; by default each step is taken once.
    class_probs : bool
        Whether to collect class probabilities.
    """

    batch: Batch
    num: Tensor
    cat: Tensor
    rounds: int = 1
    resample_sigmas: tuple[float, float] = (0.0, 0.0)
    class_probs: bool = False


# -- for samplers ------------------------------------------------------------------


def at(table: Tensor, i: Tensor) -> Tensor:
    """Return row i of a table as [1, ...], without reading i from the device.

    Examples
    --------
    >>> at(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor(1))
    tensor([[3., 4.]])
    """
    return table.index_select(0, i.reshape(1))


def corrected_offset(
    offset: Tensor, clean: Tensor, denoised: Tensor, sigma: Tensor
) -> Tensor:
    """Return e, moved so that the cell is denoised closer to its known value.

    A cell of variance one is denoised to (x + σ e) / (1 + σ²), so e would have to move
    by (1 + σ²) / σ times the error. Other cells of the row are corrected too and may
    carry the same information, so e moves by part of that.
    """
    move = OFFSET_RATE * (1 + sigma.square()) / sigma * (clean - denoised)
    return (offset + move).clamp(-OFFSET_MAX, OFFSET_MAX)


def emitted_probs(p: Tensor, ragged: Ragged, like: Tensor) -> Tensor:
    """Return the probabilities of all levels that can be emitted; `like` if empty."""
    return p.index_select(1, ragged.emitted) if like.shape[1] else like


def tensors(tree: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested tuples."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, tuple):
        for part in tree:
            yield from tensors(part)


def map_tensors(function: Callable[..., Any], first: Any, *rest: Any) -> Any:
    """Apply a function to the tensors of nested tuples, position by position.

    Examples
    --------
    >>> map_tensors(torch.add, Batch(torch.ones(1), torch.zeros(1)), (1, 2))
    Batch(num=tensor([2.]), cat=tensor([2.]))
    """
    if not isinstance(first, tuple):
        return function(first, *rest)
    parts = [map_tensors(function, *same) for same in zip(first, *rest, strict=True)]
    return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)


class SamplerMixin:
    """`sample` and `sampler` of a backbone, from its `make_sampler`."""

    solvers: tuple[str, ...]
    min_steps = 1
    max_steps: int | None = None

    def make_sampler(self, steps: int, solver: str) -> Sampler:
        """Return the reverse process; steps and solver are checked."""
        raise NotImplementedError

    def check_sampler(self, steps: int, solver: str) -> None:
        """Raise unless `sample` accepts these steps and this solver."""
        if solver not in self.solvers:
            raise UsageError(f"solver must be one of {self.solvers}, got {solver!r}")
        if steps < self.min_steps or steps > (self.max_steps or steps):
            bounds = f"at least {self.min_steps}"
            if self.max_steps:
                bounds = f"between {self.min_steps} and {self.max_steps}"
            raise UsageError(
                f"steps must be {bounds} for {type(self).__name__}, got {steps}"
            )

    @torch.no_grad()
    def sampler(self, steps: int, solver: str) -> Sampler:
        """Return the reverse process in `steps` steps, as `sample` runs it."""
        self.check_sampler(steps, solver)
        return self.make_sampler(steps, solver)

    def sample(
        self, n: int, generator: RNG, steps: int, solver: str | None = None
    ) -> Batch:
        """Run the reverse process from noise to `n` rows.

        Parameters
        ----------
        n : int
        generator : torch.Generator
            On the device of the module.
        steps : int
        solver : str, optional
            One of `solvers`; the first, the published one, by default.
        """
        return run_sampler(self.sampler(steps, solver or self.solvers[0]), n, generator)


# -- the reverse process -----------------------------------------------------------


@torch.no_grad()
def run_sampler(sampler: Sampler, n: int, rng: RNG) -> Batch:
    """Return `n` rows.

    Parameters
    ----------
    sampler : Sampler
    n : int
    rng : torch.Generator
        On the device of the backbone.
    """
    once = _moves(sampler.sigmas, sampler.n_steps, 1, (0.0, 0.0))
    return sampler.finish(_run(sampler, n, rng, once), rng)


@torch.no_grad()
def inpaint(sampler: Sampler, rng: RNG, known: InpaintTask) -> tuple[Batch, Tensor]:
    """Return rows with the known cells as they are and the others sampled given them.

    Parameters
    ----------
    sampler : Sampler
    rng : torch.Generator
        On the device of the backbone.
    known : InpaintTask

    Returns
    -------
    rows : Batch
    class_probs : Tensor [B, S]
        A weight per level of every category, not negative and to be normalised within
        each category; [B, 0] unless `known.class_probs`.
    """
    inpainting = InpaintingSampler(sampler, known)
    moves = _moves(sampler.sigmas, sampler.n_steps, known.rounds, known.resample_sigmas)
    state = _run(inpainting, len(known.num), rng, moves)
    return inpainting.finish(state, rng), state.class_probs


def inpainting_sampler(backbone: Backbone) -> Sampler:
    """Return the sampler for rows with known cells, see `backbone.inpaint_config`.

    Many of its steps are resampled, so it has fewer than that of `sample`.
    """
    conditional: Any = backbone
    if not hasattr(conditional, "sampler"):
        raise UsageError(
            "a backbone needs the method sampler to fill or fix cells, and "
            f"{type(backbone).__name__} lacks it; see "
            "augmask.diffusion.base.ConditionalBackbone"
        )
    steps, solver, *_ = conditional.inpaint_config
    sampler: Sampler = conditional.sampler(steps, solver)
    return sampler


class InpaintState(NamedTuple):
    """The state of the sampler, the offsets of known cells, summed probabilities."""

    state: State
    offset: Any
    class_probs: Tensor


class InpaintingSampler:
    """A sampler that puts the known cells into every state."""

    def __init__(self, sampler: Sampler, known: InpaintTask) -> None:
        self.sampler, self.known = sampler, known
        device = known.num.device
        self.first = torch.zeros((), dtype=torch.long, device=device)
        self.counts = torch.tensor(_probs_count(sampler), device=device)[:, None]

    def start(self, n: int, rng: RNG) -> InpaintState:
        """Return noise with the known cells in it."""
        state = self.sampler.start(n, rng)
        if self.known.class_probs:
            room = state.class_probs.new_zeros(n, self.sampler.n_slots)
            state = state._replace(class_probs=room)
        offset = self.sampler.offset(self.known.batch)
        probs = state.class_probs
        return InpaintState(self._apply(state, offset, self.first, rng), offset, probs)

    def step(self, current: InpaintState, i: Tensor, rng: RNG) -> InpaintState:
        """Take step i, correct the offsets, add up class probabilities."""
        state = self.sampler.step(current.state, i, rng)
        offset = self.sampler.updated_offset(current.offset, state, self.known.batch, i)
        probs = current.class_probs
        probs = probs + at(self.counts, i).to(probs) * state.class_probs
        return InpaintState(self._apply(state, offset, i + 1, rng), offset, probs)

    def renoise(self, current: InpaintState, i: Tensor, rng: RNG) -> InpaintState:
        """Undo step i."""
        state = self.sampler.renoise(current.state, i, rng)
        return current._replace(state=self._apply(state, current.offset, i, rng))

    def finish(self, current: InpaintState, rng: RNG) -> Batch:
        """Return clean rows, known cells exactly as they are."""
        num, cat = self.sampler.finish(current.state, rng)
        known = self.known
        return Batch(
            torch.where(known.num, known.batch.num, num),
            torch.where(known.cat, known.batch.cat, cat),
        )

    def _apply(self, state: State, offset: Any, i: Tensor, rng: RNG) -> State:
        cells = self.sampler.noise_known(self.known.batch, offset, i, rng)
        return self.sampler.apply_known(state, cells, self.known.num, self.known.cat)


def _probs_count(sampler: Sampler) -> list[float]:
    """Return for every sigma whether class probabilities count; at least one does."""
    low, high = CLASS_PROBS_SIGMAS
    passed = sampler.sigmas[: sampler.n_steps]
    nearest = min(passed, key=lambda sigma: max(low / sigma, sigma / high), default=0.0)
    return [float(low <= sigma <= high or sigma == nearest) for sigma in sampler.sigmas]


def _moves(
    sigmas: Sequence[float],
    n_steps: int,
    rounds: int,
    resample_sigmas: tuple[float, float],
) -> Iterator[tuple[str, int]]:
    """Yield which method of the sampler comes next, and its i.

    Examples
    --------
    >>> list(_moves([80.0, 1.0, 0.01], 2, 2, (0.1, 3.0)))
    [('step', 0), ('step', 1), ('renoise', 1), ('step', 1)]
    """
    low, high = resample_sigmas
    for i in range(n_steps):
        yield "step", i
        if low <= sigmas[i] <= high:
            for _ in range(rounds - 1):
                yield "renoise", i
                yield "step", i


def _run(
    sampler: Sampler | InpaintingSampler,
    n: int,
    rng: RNG,
    moves: Iterable[tuple[str, int]],
) -> State:
    """Return the state at `sigmas[n_steps]`."""
    # the state stays in place, so that a captured step finds it
    state = map_tensors(torch.clone, sampler.start(n, rng))
    i = torch.zeros((), dtype=torch.long, device=next(tensors(state)).device)

    def in_place(move: Callable[..., State]) -> Callable[[], None]:
        def take() -> None:
            map_tensors(Tensor.copy_, state, move(state, i, rng))

        return cuda_graphed(take, rng, "sampling")

    take: dict[str, Callable[[], None]] = {}
    for move, place in moves:
        # on first use: an unconditional sampler need not be able to renoise
        if move not in take:
            take[move] = in_place(getattr(sampler, move))
        i.fill_(place)
        take[move]()
    return state
