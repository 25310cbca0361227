"""MissDiff's network: every encoded column is a token, and tokens look at each other.

It is the network of TabCSDI without the transformer that is never run and without the
conditional input. A token is one number, lifted to C channels; five gated blocks pass
it on, and each adds to the output. A 1x1 convolution is a linear layer on the channels,
so all is laid out as [B, L, C], as products on a GPU like it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention, silu

from augmask.diffusion.noise import Noise, uniform_like
from augmask.errors import UsageError

SHARED = 8  # the learned part of the side information, one vector for all columns


def step_codes(timesteps: int, width: int) -> Tensor:
    """Return sin and cos of t 10^(4k / (h - 1)) for every time t, [T, width].

    Examples
    --------
    >>> codes = step_codes(100, 4)
    >>> [round(c, 4) for c in codes[1].tolist()]
    [0.8415, -0.3056, 0.5403, -0.9522]
    """
    half = width // 2
    powers = torch.arange(half, dtype=torch.float64) / max(half - 1, 1)
    # in float64: the fastest sinusoid is at t 10⁴
    angles = torch.arange(timesteps, dtype=torch.float64)[:, None] * 10 ** (4 * powers)
    return torch.cat([angles.sin(), angles.cos()], 1).float()


def position_codes(length: int, width: int) -> Tensor:
    """Return the usual sinusoids of positions 0 .. L - 1, [L, width].

    Examples
    --------
    >>> [round(c, 4) for c in position_codes(2, 2)[1].tolist()]
    [0.8415, 0.5403]
    """
    rates = 10_000 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, :width].float()


def dropped(x: Tensor, rate: float, noise: Noise | None) -> Tensor:
    """Return `x` with a share of zeros, the rest made larger; `x` where no noise is.

    torch's own dropout draws from the global generator.
    """
    if noise is None or not rate:
        return x
    kept = uniform_like(x, noise) >= rate
    return x * kept / (1 - rate)


def convolution(n_in: int, n_out: int) -> nn.Linear:
    """Return a 1x1 convolution, its weights normal after Kaiming."""
    layer = nn.Linear(n_in, n_out)
    nn.init.kaiming_normal_(layer.weight)
    return layer


class Encoder(nn.Module):
    """One transformer layer with its norms behind the sums.

    Shape
    -----
    - tokens, out: [B, L, C]
    """

    def __init__(self, channels: int, heads: int, feed: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(channels, 3 * channels)
        nn.init.xavier_uniform_(self.qkv.weight)
        nn.init.zeros_(self.qkv.bias)
        self.out = nn.Linear(channels, channels)
        nn.init.zeros_(self.out.bias)
        self.up, self.down = nn.Linear(channels, feed), nn.Linear(feed, channels)
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)

    def _attended(self, tokens: Tensor, noise: Noise | None) -> Tensor:
        n, length, channels = tokens.shape
        heads = self.qkv(tokens).view(n, length, 3, self.heads, channels // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        if noise is None or not self.dropout:
            seen = scaled_dot_product_attention(q, k, v)
        else:
            # written out, because torch's own drops by the global generator; L is a
            # hundred or two, so the weights are no larger than the tokens
            scores = q @ (k / math.sqrt(q.shape[-1])).mT
            seen = dropped(scores.softmax(-1), self.dropout, noise) @ v
        out: Tensor = self.out(seen.transpose(1, 2).reshape(n, length, channels))
        return out

    def forward(self, tokens: Tensor, noise: Noise | None) -> Tensor:
        """Return tokens of the same shape; cells are dropped where noise is given."""
        seen = dropped(self._attended(tokens, noise), self.dropout, noise)
        tokens = self.norm1(tokens + seen)
        wide = dropped(gelu(self.up(tokens)), self.dropout, noise)
        fed = dropped(self.down(wide), self.dropout, noise)
        out: Tensor = self.norm2(tokens + fed)
        return out


class Gated(nn.Module):
    """A residual block: the time, a transformer layer, the columns' names, a gate."""

    def __init__(self, width: int, side: int, encoder: Encoder) -> None:
        super().__init__()
        channels = encoder.out.out_features
        self.time = nn.Linear(width, channels)
        self.encoder = encoder
        self.middle = convolution(channels, 2 * channels)
        self.side = convolution(side, 2 * channels)
        self.last = convolution(channels, 2 * channels)

    def forward(
        self, tokens: Tensor, time: Tensor, side: Tensor, noise: Noise | None
    ) -> tuple[Tensor, Tensor]:
        """Return the tokens for the next block, and what this one says."""
        y = self.encoder(tokens + self.time(time)[:, None], noise)
        gate, value = (self.middle(y) + self.side(side)).chunk(2, -1)
        rest, said = self.last(gate.sigmoid() * value.tanh()).chunk(2, -1)
        return (tokens + rest) / math.sqrt(2), said


class MissDiffNet(nn.Module):
    """Predicts the noise in every encoded column.

    Parameters
    ----------
    length : int
        L, the number of encoded columns.
    timesteps : int
        T.
    channels, blocks, heads, feed : int
        C, the residual blocks, and the heads and feed-forward units of each.
    time_width, position_width : int
        Widths of the two embeddings.
    dropout : float

    Shape
    -----
    - x: [B, L], times: [B] whole numbers in 0 .. T - 1, out: [B, L]

    Examples
    --------
    >>> net = MissDiffNet(3, 10, channels=8, blocks=2, heads=2, feed=4)
    >>> net(torch.zeros(5, 3), torch.zeros(5, dtype=torch.long)).shape
    torch.Size([5, 3])
    """

    step_codes: Tensor
    position_codes: Tensor

    def __init__(
        self,
        length: int,
        timesteps: int,
        *,
        channels: int = 256,
        blocks: int = 5,
        heads: int = 4,
        feed: int = 64,
        time_width: int = 1024,
        position_width: int = 1024,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if channels % heads:
            raise UsageError(
                f"channels must be a multiple of heads, got {channels} and {heads}"
            )
        steps = step_codes(timesteps, time_width)
        positions = position_codes(length, position_width)
        self.register_buffer("step_codes", steps, persistent=False)
        self.register_buffer("position_codes", positions, persistent=False)
        self.shared = nn.Parameter(torch.randn(SHARED))
        self.lift = convolution(1, channels)
        self.time1 = nn.Linear(steps.shape[1], time_width)
        self.time2 = nn.Linear(time_width, time_width)
        side = positions.shape[1] + SHARED
        self.blocks = nn.ModuleList(
            Gated(time_width, side, Encoder(channels, heads, feed, dropout))
            for _ in range(blocks)
        )
        self.join = convolution(channels, channels)
        self.lower = nn.Linear(channels, 1)
        nn.init.zeros_(self.lower.weight)

    def forward(self, x: Tensor, times: Tensor, noise: Noise | None = None) -> Tensor:
        """Return the predicted noise; `noise` is what dropout draws from, if any."""
        tokens = self.lift(x[:, :, None]).relu()
        time = silu(self.time2(silu(self.time1(self.step_codes[times]))))
        names = self.shared.expand(len(self.position_codes), -1)
        side = torch.cat([self.position_codes, names], 1)
        total = torch.zeros_like(tokens)
        for block in self.blocks:
            tokens, said = block(tokens, time, side, noise)
            total = total + said
        total = total / math.sqrt(len(self.blocks))
        out: Tensor = self.lower(self.join(total).relu())
        return out[:, :, 0]
