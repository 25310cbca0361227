"""Random numbers, drawn from a generator or replayed from tensors drawn before.

Everything random in a backbone is drawn by the functions here. `torch.compile` cannot
trace a generator: a step that draws in its middle breaks into several graphs. So the
draws of one call can be recorded (`RecordingRNG`), made in advance in the same order
from the same generator (`draw_all`), and handed out again (`ReplayRNG`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

Distribution = Literal["normal", "uniform", "low_discrepancy", "log_time"]

TIME_EPS = 1e-8  # keeps the logarithm of a time finite


class DrawSpec(NamedTuple):
    """A draw; "log_time" is the logarithm of the draw before it."""

    distribution: Distribution
    shape: torch.Size
    dtype: torch.dtype


@dataclass
class RecordingRNG:
    """A generator that records what is drawn from it."""

    generator: torch.Generator
    specs: list[DrawSpec] = field(default_factory=list)


@dataclass
class ReplayRNG:
    """Draws made in advance, handed out in their order."""

    values: Sequence[Tensor]
    position: int = 0

    def next(self) -> Tensor:
        """Return the next draw."""
        self.position += 1
        return self.values[self.position - 1]


RNG = torch.Generator | RecordingRNG | ReplayRNG


def _draw(spec: DrawSpec, rng: RNG, out: Tensor | None = None) -> Tensor:
    if isinstance(rng, ReplayRNG):
        return rng.next()
    if isinstance(rng, RecordingRNG):
        rng.specs.append(spec)
        rng = rng.generator
    kind: dict[str, Any] = {"device": rng.device, "dtype": spec.dtype}
    if spec.distribution == "low_discrepancy":
        (n,) = spec.shape
        start = torch.rand((), generator=rng, **kind)
        return torch.remainder(start + torch.arange(n, **kind) / n, 1.0, out=out)
    draw = torch.randn if spec.distribution == "normal" else torch.rand
    return draw(spec.shape, generator=rng, out=out, **kind)


def normal_like(x: Tensor, rng: RNG) -> Tensor:
    """Return standard normal noise of the shape and dtype of `x`."""
    return _draw(DrawSpec("normal", x.shape, x.dtype), rng)


def uniform_like(x: Tensor, rng: RNG) -> Tensor:
    """Return uniform noise of the shape and dtype of `x`."""
    return _draw(DrawSpec("uniform", x.shape, x.dtype), rng)


def low_discrepancy(rows: Tensor, rng: RNG) -> Tensor:
    """Return a uniform time for each row: one draw, then equal steps around (0, 1).

    The arithmetic is part of the draw: inside a compiled step it would be repeated for
    each of the thousand features of a time.
    """
    return _draw(DrawSpec("low_discrepancy", rows.shape[:1], rows.dtype), rng)


def log_time(u: Tensor, rng: RNG | None = None, out: Tensor | None = None) -> Tensor:
    """Return log u.

    With the `rng` that u was just drawn from, it is part of the draw, for the same
    reason as in `low_discrepancy`.
    """
    if isinstance(rng, ReplayRNG):
        return rng.next()
    if isinstance(rng, RecordingRNG):
        rng.specs.append(DrawSpec("log_time", u.shape, u.dtype))
    return torch.log(u + TIME_EPS, out=out)


def draw_all(
    specs: Sequence[DrawSpec],
    generator: torch.Generator,
    out: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """Make recorded draws in their order, into the tensors of `out` if given.

    Examples
    --------
    >>> x = torch.zeros(2, 3)
    >>> recording = RecordingRNG(torch.Generator().manual_seed(0))
    >>> first, second = normal_like(x, recording), uniform_like(x, recording)
    >>> replay = ReplayRNG(draw_all(recording.specs, torch.Generator().manual_seed(0)))
    >>> torch.equal(replay.next(), first), torch.equal(replay.next(), second)
    (True, True)
    """
    values: list[Tensor] = []
    for spec, place in zip(specs, out or len(specs) * [None], strict=True):
        if spec.distribution == "log_time":
            values.append(log_time(values[-1], out=place))
        else:
            values.append(_draw(spec, generator, place))
    return values


@contextmanager
def seeded_init(seed: int) -> Iterator[None]:
    """Context manager: modules built inside draw their weights from `seed`.

    torch modules draw from torch's default generator. Its state is replaced inside and
    restored afterwards, so global randomness is unaffected.
    """
    seeded = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        # not torch.manual_seed(), which would also change the state of GPU generators
        torch.default_generator.set_state(seeded.get_state())
        yield
