"""The small networks: a plain MLP, a path past it, and two ways to feed in the time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad


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
        # cos x is sin (x + π/2): fused, the two would both be computed for each half
        waves = torch.cat([angles, angles + math.pi / 2], 1).sin()
        value: Tensor = self.layer(waves)
        return value[:, 0]


# Adam moves every weight by about the learning rate a step; on a direct path the output
# moves so many times as far.
DIRECT_GAIN = 20.0


class DirectPath(nn.Module):
    """A linear path from input to output, zero at first, that the time opens and shuts.

    What one column says of another is for the most part linear. On a wide table it
    would have to find its way through hidden units that all columns share. On a narrow
    one it may cost more than it gives (docs/backbones.md).

    Shape
    -----
    - x: [B, n_in], embedded time: [B, t] or [1, t], out: [B, n_out]
    """

    def __init__(self, n_in: int, n_out: int, time_width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(time_width, n_in)
        nn.init.zeros_(self.gate.weight)
        nn.init.ones_(self.gate.bias)
        self.linear = nn.Linear(n_in, n_out, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Return what to add to the output."""
        opened = x * product(time, self.gate)
        return DIRECT_GAIN * product(opened, self.linear)


class Hidden(nn.Sequential):
    """Hidden layers of ReLU units, where nearly all products of a step are.

    Attributes
    ----------
    bf16 : bool
        Multiply in bfloat16. Weights, and what goes in and comes out, stay as they are.
    """

    bf16 = False

    def __init__(self, sizes: Sequence[int]) -> None:
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise(sizes):
            layers += [nn.Linear(n_in, n_out), nn.ReLU()]
        super().__init__(*layers)
        self.width = sizes[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Pass `x` through all layers."""
        if self.bf16:
            return self._rounded(x)[:, : self.width].to(x.dtype)
        for layer in self:
            x = layer(x)
        return x

    def read(self, x: Tensor, head: nn.Linear) -> Tensor:
        """Pass `x` through all layers and the head, which keeps its digits."""
        if self.bf16 and x.is_cuda and not torch.is_grad_enabled():
            # the factors are rounded, their sums are not, and nothing is copied
            weight = _aligned(head.weight.to(torch.bfloat16), (1, 0))
            out = torch.mm(self._rounded(x), weight.t(), out_dtype=torch.float32)
            return out[:, : head.out_features] + head.bias
        return product(self(x), head)

    def _rounded(self, x: Tensor) -> Tensor:
        """Pass `x` through all layers in bfloat16, padded to whole multiples of 8."""
        layers = [layer for layer in self if isinstance(layer, nn.Linear)]
        x = x.to(torch.bfloat16)
        if x.is_cuda and not torch.is_grad_enabled():
            out = _aligned(x, (1,))
            for layer in layers:
                weight = _aligned(layer.weight.to(torch.bfloat16), (1, 0))
                bias = _aligned(layer.bias.to(torch.bfloat16), (0,))
                out = _units(out, weight, bias)
            return out
        # A bias is a weight on a constant 1, which every layer hands on to the next:
        # so its gradient comes out of the same product as that of the weights.
        out = _aligned(pad(x, (0, 1), value=1.0), (1,))
        for layer in layers:
            weight = torch.cat([layer.weight, layer.bias[:, None]], 1)
            handed_on = pad(weight.new_ones(1, 1), (layer.in_features, 0))
            square = torch.cat([weight, handed_on]).to(torch.bfloat16)
            out = linear(out, _aligned(square, (1, 0))).relu()
        return out


def product(x: Tensor, layer: nn.Linear) -> Tensor:
    """Return layer(x); on a GPU with sizes that its tensor cores are made for."""
    if not x.is_cuda:
        out: Tensor = layer(x)
        return out
    weight = _aligned(layer.weight, (1, 0))
    # a layer may have none, which torch's types do not know
    bias = _aligned(layer.bias, (0,)) if layer.bias is not None else None
    return linear(_aligned(x, (1,)), weight, bias)[:, : layer.out_features]


@contextmanager
def bf16_matmul(module: Any, wanted: bool) -> Iterator[None]:
    """Let the hidden layers of a module multiply in bfloat16, or not, for a while."""
    layers = [m for m in module.modules() if isinstance(m, Hidden)]
    for layer in layers:
        layer.bf16 = wanted
    try:
        yield
    finally:
        for layer in layers:
            layer.bf16 = False


def _units(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return relu(x weightᵀ + bias)."""
    if x.is_cuda and not torch.is_grad_enabled():
        # all in one kernel, which knows no gradient
        return torch._addmm_activation(bias, x, weight.t())
    return linear(x, weight, bias).relu()


def units(x: Tensor, layer: nn.Linear) -> Tensor:
    """Return relu(layer(x)) for any leading shape, where no gradient is wanted."""
    flat = _units(x.flatten(0, -2), layer.weight, layer.bias)
    return flat.view(*x.shape[:-1], -1)


def _aligned(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Pad dimensions with zeros to multiples of 8, as fast bfloat16 products want."""
    ends = [end for dim in dims for end in (0, -x.shape[dim] % 8)]
    return pad(x, ends) if any(ends) else x


def mlp(n_in: int, width: int, depth: int) -> Hidden:
    """Return `depth` hidden layers of `width` ReLU units."""
    sizes = [n_in] + depth * [width]
    return Hidden(sizes)
