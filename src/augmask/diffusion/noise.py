"""Where random numbers come from, and how to have them before they are asked for.

Everything random in a backbone is drawn here, from a generator that was handed down.
A compiler cannot look into a generator: a step that draws in its midst falls apart into
pieces. So the draws of one call can be noted (`RecordingRNG`), made beforehand in the same
order from the same generator (`drawn`), and handed out again (`ReplayRNG`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

Law = Literal["normal", "uniform", "even", "log"]

LEAST_TIME = 1e-8  # keeps the logarithm of a time finite


class DrawSpec(NamedTuple):
    """A draw: its law, shape and type; "log" is what `log_time` makes of the last."""

    law: Law
    shape: torch.Size
    dtype: torch.dtype


@dataclass
class RecordingRNG:
    """A generator that remembers what was drawn from it."""

    generator: torch.Generator
    asked: list[DrawSpec] = field(default_factory=list)


@dataclass
class ReplayRNG:
    """Draws that were made beforehand, handed out in their order."""

    values: Sequence[Tensor]
    position: int = 0

    def next(self) -> Tensor:
        """Return the draw that is next."""
        self.position += 1
        return self.values[self.position - 1]


Noise = torch.Generator | RecordingRNG | ReplayRNG


def _draw(asked: DrawSpec, noise: Noise, out: Tensor | None = None) -> Tensor:
    if isinstance(noise, ReplayRNG):
        return noise.next()
    if isinstance(noise, RecordingRNG):
        noise.asked.append(asked)
        noise = noise.generator
    kind: dict[str, Any] = {"device": noise.device, "dtype": asked.dtype}
    if asked.law == "even":
        (n,) = asked.shape
        start = torch.rand((), generator=noise, **kind)
        return torch.remainder(start + torch.arange(n, **kind) / n, 1.0, out=out)
    draw = torch.randn if asked.law == "normal" else torch.rand
    return draw(asked.shape, generator=noise, out=out, **kind)


def normal_like(x: Tensor, noise: Noise) -> Tensor:
    """Return standard normal noise of the shape and type of `x`."""
    return _draw(DrawSpec("normal", x.shape, x.dtype), noise)


def uniform_like(x: Tensor, noise: Noise) -> Tensor:
    """Return uniform noise of the shape and type of `x`."""
    return _draw(DrawSpec("uniform", x.shape, x.dtype), noise)


def low_discrepancy(rows: Tensor, noise: Noise) -> Tensor:
    """Return a uniform time for each row: one draw, then equal steps around (0, 1).

    It counts as drawn, so that a compiler finds it made: it would put the arithmetic
    into each of the thousand features of a time.
    """
    return _draw(DrawSpec("even", rows.shape[:1], rows.dtype), noise)


def log_time(
    u: Tensor, noise: Noise | None = None, out: Tensor | None = None
) -> Tensor:
    """Return log u, for times of which most of the change is near 0.

    Given the noise that u was drawn from just before, it counts as drawn too: put into
    each feature of a time it would cost more than the features.
    """
    if isinstance(noise, ReplayRNG):
        return noise.next()
    if isinstance(noise, RecordingRNG):
        noise.asked.append(DrawSpec("log", u.shape, u.dtype))
    return torch.log(u + LEAST_TIME, out=out)


def drawn(
    asked: Sequence[DrawSpec],
    generator: torch.Generator,
    places: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """Draw what was noted, in the same order, and put it where there are places.

    Examples
    --------
    >>> x = torch.zeros(2, 3)
    >>> noted = RecordingRNG(torch.Generator().manual_seed(0))
    >>> first, second = normal_like(x, noted), uniform_like(x, noted)
    >>> tape = ReplayRNG(drawn(noted.asked, torch.Generator().manual_seed(0)))
    >>> torch.equal(tape.next(), first), torch.equal(tape.next(), second)
    (True, True)
    """
    made: list[Tensor] = []
    for each, out in zip(asked, places or len(asked) * [None], strict=True):
        if each.law == "log":
            made.append(log_time(made[-1], out=out))
        else:
            made.append(_draw(each, generator, out))
    return made


@contextmanager
def first_weights(seed: int) -> Iterator[None]:
    """Let modules that are made here draw their weights from a stream of their own.

    torch modules draw them from torch's default generator. It is lent the state of our
    stream for a while and given back as it was, so nobody's global state moves.
    """
    ours = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        # not torch.manual_seed(), which would move the global state of GPUs too
        torch.default_generator.set_state(ours.get_state())
        yield
