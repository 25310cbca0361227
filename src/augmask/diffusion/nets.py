"""The small networks: a plain MLP and two ways to feed it the time."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class TimeEmbedding(nn.Module):
    """Sinusoids of a time, then Linear, SiLU, Linear.

    Shape
    -----
    - times: [B], embedding: [B, width]
    """

    frequencies: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        frequencies = torch.exp(-math.log(10_000) * torch.arange(half) / half)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(2 * half, width), nn.SiLU(), nn.Linear(width, width)
        )

    def forward(self, times: Tensor) -> Tensor:
        """Embed a vector of times."""
        angles = times[:, None] * self.frequencies
        embedded: Tensor = self.layers(torch.cat([angles.cos(), angles.sin()], 1))
        return embedded


class RandomFourier(nn.Module):
    """A scalar function of a scalar, zero at first: random sinusoids, one layer.

    Shape
    -----
    - times: [B], value: [B]
    """

    frequencies: Tensor

    def __init__(self, count: int) -> None:
        super().__init__()
        frequencies = torch.randn(count) * 2 * math.pi
        self.register_buffer("frequencies", frequencies)
        self.layer = nn.Linear(2 * count, 1)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, times: Tensor) -> Tensor:
        """Evaluate the function."""
        angles = times[:, None] * self.frequencies
        value: Tensor = self.layer(torch.cat([angles.sin(), angles.cos()], 1))
        return value[:, 0]


class Hidden(nn.Sequential):
    """Hidden layers, where nearly all products of a step are.

    Attributes
    ----------
    bf16 : bool
        Multiply in bfloat16. Weights, and what goes in and comes out, stay as they are.
    """

    bf16 = False

    def forward(self, x: Tensor) -> Tensor:
        """Pass `x` through all layers."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            out = x
            for layer in self:
                out = layer(out)
        return out.to(x.dtype)


def mlp(n_in: int, width: int, depth: int) -> Hidden:
    """Return `depth` hidden layers of `width` ReLU units."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(n_in, width), nn.ReLU()]
        n_in = width
    return Hidden(*layers)
