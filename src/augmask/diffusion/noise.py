"""Where random numbers come from, and how to have them before they are asked for.

Everything random in a backbone is drawn here, from a generator that was handed down.
A compiler cannot look into a generator: a step that draws in its midst falls apart into
pieces. So the draws of one call can be noted (`Noted`), made beforehand in the same
order from the same generator (`drawn`), and handed out again (`Tape`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

Law = Literal["normal", "uniform"]


@dataclass
class Noted:
    """A generator that remembers what was drawn from it: law and shape."""

    generator: torch.Generator
    asked: list[tuple[Law, torch.Size]] = field(default_factory=list)


@dataclass
class Tape:
    """Draws that were made beforehand, handed out in their order."""

    values: Sequence[Tensor]
    position: int = 0

    def next(self) -> Tensor:
        """Return the draw that is next."""
        self.position += 1
        return self.values[self.position - 1]


Noise = torch.Generator | Noted | Tape


def _draw(law: Law, like: Tensor, shape: torch.Size, noise: Noise) -> Tensor:
    if isinstance(noise, Tape):
        return noise.next()
    if isinstance(noise, Noted):
        noise.asked.append((law, shape))
        noise = noise.generator
    draw = torch.randn if law == "normal" else torch.rand
    return draw(shape, generator=noise, device=like.device, dtype=like.dtype)


def normal_like(x: Tensor, noise: Noise) -> Tensor:
    """Return standard normal noise of the shape, type and place of `x`."""
    return _draw("normal", x, x.shape, noise)


def uniform_like(x: Tensor, noise: Noise) -> Tensor:
    """Return uniform noise of the shape, type and place of `x`."""
    return _draw("uniform", x, x.shape, noise)


def uniform_number(like: Tensor, noise: Noise) -> Tensor:
    """Return one uniform number of the type and place of `like`."""
    return _draw("uniform", like, torch.Size(), noise)


def drawn(
    asked: Sequence[tuple[Law, torch.Size]], like: Tensor, generator: torch.Generator
) -> list[Tensor]:
    """Draw what was noted, in the same order.

    Examples
    --------
    >>> x = torch.zeros(2, 3)
    >>> noted = Noted(torch.Generator().manual_seed(0))
    >>> first, second = normal_like(x, noted), uniform_like(x, noted)
    >>> tape = Tape(drawn(noted.asked, x, torch.Generator().manual_seed(0)))
    >>> torch.equal(tape.next(), first), torch.equal(tape.next(), second)
    (True, True)
    """
    return [_draw(law, like, shape, generator) for law, shape in asked]
