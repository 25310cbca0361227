"""MissDiff: diffusion with a loss on observed cells only (Ouyang et al., 2023).

A row is one vector: numbers, and one-hot blocks of -1 and 1. Missing values are zeros,
and the network does not receive the mask. Noise is added in T steps and predicted,

    x_t = √ᾱ_t x_0 + √(1 - ᾱ_t) ε,     loss = Σ M (ε - ε_θ(x_t, t))² / Σ M,

where M marks the entries of observed cells. The sampler reverses all T steps. The
network reads the zero of a missing value as data, which can weaken dependence between
columns; and it learns dependence late, long after the marginals, so a short training
gives correct marginals of nearly independent columns. This is the published method.

This is the discrete chain of the published code, with the sizes of the paper. It
differs on purpose in two points: numbers are decoded by the inverse of their scaling
(the published decoding shifts and shrinks them), and a transformer that the published
code never runs is omitted.

The network is that of TabCSDI without the conditional input: every encoded column is a
token of C channels, which passes through gated residual blocks, and each block adds to
the output. A 1x1 convolution is a linear layer on the channels, in the layout
[B, L, C].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention, silu

from augmask.device import allow_tf32
from augmask.diffusion.random_draws import RNG, normal_like, seeded_init, uniform_like
from augmask.errors import UsageError
from augmask.rng import stream_seed
from augmask.table.table import FloatArray, Table
from augmask_bench.baselines.one_hot import Blocks, Rows, in_chunks, on_device
from augmask_bench.baselines.training import Clock, Trainer, generator, train_epochs

Scaling = Literal["minmax_offset", "shared"]

SCALINGS = ("minmax_offset", "shared")
DROP = 0.1
SHARED = 8  # width of the learned side information, one vector for all columns
# maximum size of an activation while sampling
MAX_CPU, MAX_GPU = 2**20, 2**27


@dataclass(frozen=True)
class MissDiffSettings:
    """Settings of MissDiff.

    Parameters
    ----------
    numeric_scaling : {"minmax_offset", "shared"}
        `minmax_offset` scales a column's observed numbers to (0, 1], so that the zero
        of a missing value is not a value of the column. This comes on top of the
        scaling to a normal distribution that the numbers of a `Table` already have.
        `shared` does nothing more: a missing value looks like the column's mean.
    epochs, batch_size : int
    lr, weight_decay : float
        Of Adam.
    drops : tuple of float
        Shares of the epochs after which the learning rate is divided by ten.
    timesteps : int
        T.
    beta_min, beta_max : float
        β of the first and last step; √β grows linearly.
    channels, blocks, heads, feed : int
        The network, see `MissDiffNet`.
    time_width, position_width : int
        Widths of the embeddings of time and of a column's position.
    dropout : float
    """

    numeric_scaling: Scaling = "minmax_offset"
    epochs: int = 250
    batch_size: int = 64
    lr: float = 5e-4
    weight_decay: float = 1e-6
    drops: tuple[float, ...] = (0.25, 0.5, 0.75, 0.9)
    timesteps: int = 100
    beta_min: float = 1e-4
    beta_max: float = 0.5
    channels: int = 256
    blocks: int = 5
    heads: int = 4
    feed: int = 64
    time_width: int = 1024
    position_width: int = 1024
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.numeric_scaling not in SCALINGS:
            raise UsageError(
                f"numeric_scaling must be one of {SCALINGS}, "
                f"got {self.numeric_scaling!r}"
            )

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        falls = sum(epoch >= int(share * self.epochs) for share in self.drops)
        return self.lr * DROP**falls


PAPER = MissDiffSettings()
# Fewer drops than in the paper: in so few epochs the early ones would end the training
# before dependence is learned. No dropout: the network is too small for it.
SMALL = MissDiffSettings(
    epochs=20,
    lr=5e-3,
    drops=(0.7, 0.9),
    timesteps=50,
    channels=32,
    blocks=2,
    heads=2,
    feed=16,
    time_width=64,
    position_width=64,
    dropout=0.0,
)


class Chain(NamedTuple):
    """β_t and the remaining share ᾱ_t of signal, for t = 0 .. T - 1."""

    beta: FloatArray
    signal: FloatArray

    @classmethod
    def quadratic(cls, settings: MissDiffSettings) -> Chain:
        """Return the chain in which √β_t grows linearly.

        Examples
        --------
        >>> chain = Chain.quadratic(PAPER)
        >>> len(chain.beta), float(f"{chain.signal[-1]:.1e}")
        (100, 1.3e-09)
        """
        first, last = settings.beta_min**0.5, settings.beta_max**0.5
        beta = np.linspace(first, last, settings.timesteps) ** 2
        return cls(beta, np.cumprod(1 - beta))

    def reverse(self, t: int) -> tuple[float, float, float]:
        """Return a, b, c of the step x <- a (x - b ε_θ) + c noise from time t."""
        beta, signal = self.beta[t], self.signal[t]
        earlier = self.signal[t - 1] if t else 1.0
        spread = beta * (1 - earlier) / (1 - signal)
        out = (1 - beta) ** -0.5, beta * (1 - signal) ** -0.5, spread**0.5
        return float(out[0]), float(out[1]), float(out[2])


# -- network: every encoded column is a token -----------------------------------


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


def dropped(x: Tensor, rate: float, noise: RNG | None) -> Tensor:
    """Apply dropout if `noise` is given; torch's uses the global generator."""
    if noise is None or not rate:
        return x
    kept = uniform_like(x, noise) >= rate
    return x * kept / (1 - rate)


def convolution(n_in: int, n_out: int) -> nn.Linear:
    """Return a 1x1 convolution with Kaiming normal weights."""
    layer = nn.Linear(n_in, n_out)
    nn.init.kaiming_normal_(layer.weight)
    return layer


class Encoder(nn.Module):
    """One post-norm transformer layer.

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

    def _attended(self, tokens: Tensor, noise: RNG | None) -> Tensor:
        n, length, channels = tokens.shape
        heads = self.qkv(tokens).view(n, length, 3, self.heads, channels // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        if noise is None or not self.dropout:
            attended = scaled_dot_product_attention(q, k, v)
        else:
            # written out, because torch's dropout draws from the global generator; L is
            # at most a few hundred, so the weights are no larger than the tokens
            scores = q @ (k / math.sqrt(q.shape[-1])).mT
            attended = dropped(scores.softmax(-1), self.dropout, noise) @ v
        out: Tensor = self.out(attended.transpose(1, 2).reshape(n, length, channels))
        return out

    def forward(self, tokens: Tensor, noise: RNG | None) -> Tensor:
        """Return tokens of the same shape; with noise, dropout is applied."""
        attended = dropped(self._attended(tokens, noise), self.dropout, noise)
        tokens = self.norm1(tokens + attended)
        wide = dropped(gelu(self.up(tokens)), self.dropout, noise)
        fed = dropped(self.down(wide), self.dropout, noise)
        out: Tensor = self.norm2(tokens + fed)
        return out


class Gated(nn.Module):
    """A gated residual block with time, a transformer layer and side information."""

    def __init__(self, width: int, side: int, encoder: Encoder) -> None:
        super().__init__()
        channels = encoder.out.out_features
        self.time = nn.Linear(width, channels)
        self.encoder = encoder
        self.middle = convolution(channels, 2 * channels)
        self.side = convolution(side, 2 * channels)
        self.last = convolution(channels, 2 * channels)

    def forward(
        self, tokens: Tensor, time: Tensor, side: Tensor, noise: RNG | None
    ) -> tuple[Tensor, Tensor]:
        """Return the tokens for the next block, and the skip output of this one."""
        y = self.encoder(tokens + self.time(time)[:, None], noise)
        gate, value = (self.middle(y) + self.side(side)).chunk(2, -1)
        rest, skip = self.last(gate.sigmoid() * value.tanh()).chunk(2, -1)
        return (tokens + rest) / math.sqrt(2), skip


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
    - x: [B, L], times: [B] integers in 0 .. T - 1, out: [B, L]

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

    def forward(self, x: Tensor, times: Tensor, noise: RNG | None = None) -> Tensor:
        """Return the predicted noise; dropout draws from `noise` if given."""
        tokens = self.lift(x[:, :, None]).relu()
        time = silu(self.time2(silu(self.time1(self.step_codes[times]))))
        names = self.shared.expand(len(self.position_codes), -1)
        side = torch.cat([self.position_codes, names], 1)
        total = torch.zeros_like(tokens)
        for block in self.blocks:
            tokens, skip = block(tokens, time, side, noise)
            total = total + skip
        total = total / math.sqrt(len(self.blocks))
        out: Tensor = self.lower(self.join(total).relu())
        return out[:, :, 0]


# -- loss, fit and sampling -----------------------------------------------------


def observed_error(
    net: nn.Module, clean: Tensor, mask: Tensor, signal: Tensor, noise: RNG
) -> Tensor:
    """Return the mean squared error of the predicted noise in observed entries.

    Shape
    -----
    - clean, mask: [B, L], signal: [T]
    """
    part = uniform_like(clean[:, 0], noise)
    # u T may round up to T
    times = (part * len(signal)).long().clamp(max=len(signal) - 1)
    left = signal[times][:, None]
    eps = normal_like(clean, noise)
    noisy = left.sqrt() * clean + (1 - left).sqrt() * eps
    error: Tensor = mask * (eps - net(noisy, times, noise)).square()
    return error.sum() / mask.sum().clamp(min=1)


class Coding(Blocks):
    """Encode rows as vectors around zero, and decode them.

    Parameters
    ----------
    table : Table
        Missing values do not affect the scaling.
    scaling : {"minmax_offset", "shared"}
    """

    shift: Tensor
    factor: Tensor

    def __init__(self, table: Table, scaling: Scaling) -> None:
        super().__init__(table.layout)
        shift = np.zeros(table.layout.n_num, dtype=np.float32)
        factor = np.ones_like(shift)
        for j, mask in enumerate(table.num_observed.T):
            if scaling == "minmax_offset" and mask.any():
                column = table.num[mask, j]
                shift[j] = column.min() - 1
                factor[j] = column.max() - column.min() + 1
        self.register_buffer("shift", torch.from_numpy(shift))
        self.register_buffer("factor", torch.from_numpy(factor))

    def encoded(self, num: Tensor, cat: Tensor) -> Tensor:
        """Return the vectors, [n, L]."""
        onehot = self.ragged.one_hot(cat, num)
        return torch.cat([(num - self.shift) / self.factor, 2 * onehot - 1], 1)

    def decoded(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return numbers and codes."""
        num, block = self.split(x)
        return num * self.factor + self.shift, self.codes(block)


class MissDiff:
    """A fitted MissDiff.

    Attributes
    ----------
    facts : dict
        Epochs and steps completed, the last epoch's loss, why training ended.
    """

    def __init__(
        self,
        net: MissDiffNet,
        coding: Coding,
        settings: MissDiffSettings,
        facts: dict[str, object],
    ) -> None:
        self._net, self._coding, self._settings = net, coding, settings
        self._chain = Chain.quadratic(settings)
        self.facts = facts

    @torch.no_grad()
    def sample(self, n: int, seed: int) -> Rows:
        """Return numbers and codes of `n` new rows."""
        like = self._coding.shift
        noise = generator(like.device, stream_seed(seed, "sample"))
        largest = MAX_CPU if like.device.type == "cpu" else MAX_GPU
        each = self._coding.width * self._settings.channels

        def draw(count: int) -> tuple[Tensor, Tensor]:
            x = normal_like(like.new_empty(count, self._coding.width), noise)
            for t in reversed(range(self._settings.timesteps)):
                time = torch.full((count,), t, device=like.device)
                a, b, c = self._chain.reverse(t)
                x = a * (x - b * self._net(x, time))
                if t:
                    x = x + c * normal_like(x, noise)
            return self._coding.decoded(x)

        with allow_tf32(like.device):
            return in_chunks(draw, n, max(largest // each, 1))


def fit(
    table: Table,
    settings: MissDiffSettings,
    seed: int,
    device: torch.device,
    seconds: float | None = None,
) -> MissDiff:
    """Fit MissDiff to the observed cells of a table.

    Parameters
    ----------
    table : Table
        Values of missing cells are not read.
    settings : MissDiffSettings
        `PAPER`, `SMALL` or your own.
    seed : int
    device : torch.device
    seconds : float, optional
        Time limit of the training.

    Examples
    --------
    >>> from augmask.table.table import Layout
    >>> layout = Layout(("x",), ("y",), (2,))
    >>> codes = np.tile([[0], [1]], (50, 1)).astype(np.int32)
    >>> table = Table(2.0 * codes - 1, codes, np.ones((100, 2), dtype=bool), layout)
    >>> settings = MissDiffSettings(epochs=2, batch_size=50, timesteps=5, channels=4)
    >>> model = fit(table, settings, 0, torch.device("cpu"))
    >>> num, cat = model.sample(7, seed=0)
    >>> num.shape, cat.shape, model.facts["steps"]
    ((7, 1), (7, 1), 4)
    """
    clock = Clock(seconds)
    coding = Coding(table, settings.numeric_scaling).to(device)
    with seeded_init(stream_seed(seed, "init")):
        net = MissDiffNet(
            coding.width,
            settings.timesteps,
            channels=settings.channels,
            blocks=settings.blocks,
            heads=settings.heads,
            feed=settings.feed,
            time_width=settings.time_width,
            position_width=settings.position_width,
            dropout=settings.dropout,
        )
    net = net.to(device)
    num, cat, observed = on_device(table, device)
    mask = coding.expanded(observed).float()
    clean = coding.encoded(num, cat) * mask
    signal = torch.from_numpy(Chain.quadratic(settings).signal).float().to(device)
    noise = generator(device, stream_seed(seed, "noise"))

    def loss(rows: Tensor) -> Tensor:
        return observed_error(net, clean[rows], mask[rows], signal, noise)

    trainer = Trainer(
        loss,
        net.parameters(),
        len(table),
        settings.batch_size,
        settings.lr,
        settings.weight_decay,
        noise,
    )
    facts = train_epochs(trainer, settings.epochs, clock, settings.rate)
    return MissDiff(net, coding, settings, facts)
