"""MissDiff: diffusion that counts observed cells only (Ouyang et al., 2023).

A row is one vector: numbers, and one-hot blocks of -1 and 1. Holes are zeros, and the
network is not told about them. Noise is added in T steps and predicted,

    x_t = √ᾱ_t x_0 + √(1 - ᾱ_t) ε,     loss = Σ M (ε - ε_θ(x_t, t))² / Σ M,

where M marks the entries of observed cells. New rows are drawn by going all T steps
back from noise. The network takes the zero in a hole for a value, which can weaken what
columns have in common; and it learns that late, long after the law of each column, so a
short training gives columns that are right and hardly depend on each other. That is the
method, and is left as it is.

This is the discrete chain of the published code, with the sizes of the paper. What
differs, on purpose: numbers are scaled back by the inverse of their scaling (the
published one shifts and shrinks them); a transformer that is never run is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from augmask.device import fast_matmul
from augmask.diffusion.noise import Noise, first_weights, normal_like, uniform_like
from augmask.errors import UsageError
from augmask.rng import stream_seed
from augmask.table.table import FloatArray, Table
from augmask_bench.baselines.blocks import Blocks, Rows, in_pieces, on_device
from augmask_bench.baselines.descent import Clock, Descent, generator
from augmask_bench.baselines.epochs import learn_for
from augmask_bench.baselines.missdiff_net import MissDiffNet

Scaling = Literal["minmax_offset", "shared"]

SCALINGS = ("minmax_offset", "shared")
DROP = 0.1
# numbers that a layer holds at once while sampling
HELD_CPU, HELD_GPU = 2**20, 2**27


@dataclass(frozen=True)
class MissDiffSettings:
    """What decides about MissDiff's rows.

    Parameters
    ----------
    numeric_scaling : {"minmax_offset", "shared"}
        `minmax_offset`: a column's observed numbers are brought into (0, 1], so that
        the zero in a hole is no value of the column. The numbers of a `Table` come
        scaled to a normal law already; this is done on top of it. `shared`: nothing
        more is done, and a hole looks like the column's mean.
    epochs, batch : int
    lr, weight_decay : float
        Of Adam.
    drops : tuple of float
        Shares of the epochs after which the rate falls to a tenth.
    timesteps : int
        T.
    beta_min, beta_max : float
        The noise added in the first and last step; its square root grows evenly.
    channels, blocks, heads, feed : int
        The network, see `MissDiffNet`.
    time_width, position_width : int
        Its embeddings of the time and of a column's place.
    dropout : float
    """

    numeric_scaling: Scaling = "minmax_offset"
    epochs: int = 250
    batch: int = 64
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
# Fewer drops than in the paper: in so few epochs the early ones would end the learning
# before columns know of each other. No dropout: so small a network has none to spare.
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
    """β_t, and the share ᾱ_t of signal that is left, for t = 0 .. T - 1."""

    beta: FloatArray
    signal: FloatArray

    @classmethod
    def quadratic(cls, settings: MissDiffSettings) -> Chain:
        """Return the chain in which √β_t grows evenly.

        Examples
        --------
        >>> chain = Chain.quadratic(PAPER)
        >>> len(chain.beta), float(f"{chain.signal[-1]:.1e}")
        (100, 1.3e-09)
        """
        first, last = settings.beta_min**0.5, settings.beta_max**0.5
        beta = np.linspace(first, last, settings.timesteps) ** 2
        return cls(beta, np.cumprod(1 - beta))

    def back(self, t: int) -> tuple[float, float, float]:
        """Return a, b, c of the step x <- a (x - b ε_θ) + c noise from time t."""
        beta, signal = self.beta[t], self.signal[t]
        earlier = self.signal[t - 1] if t else 1.0
        spread = beta * (1 - earlier) / (1 - signal)
        out = (1 - beta) ** -0.5, beta * (1 - signal) ** -0.5, spread**0.5
        return float(out[0]), float(out[1]), float(out[2])


def observed_error(
    net: nn.Module, clean: Tensor, seen: Tensor, signal: Tensor, noise: Noise
) -> Tensor:
    """Return the mean squared error of the predicted noise in entries that are seen.

    Shape
    -----
    - clean, seen: [B, L], signal: [T]
    """
    part = uniform_like(clean[:, 0], noise)
    # u T may round up to T
    times = (part * len(signal)).long().clamp(max=len(signal) - 1)
    left = signal[times][:, None]
    eps = normal_like(clean, noise)
    noisy = left.sqrt() * clean + (1 - left).sqrt() * eps
    error: Tensor = seen * (eps - net(noisy, times, noise)).square()
    return error.sum() / seen.sum().clamp(min=1)


class Coding(Blocks):
    """Rows as vectors around zero, and back.

    Parameters
    ----------
    table : Table
        Numbers beneath holes have no part in the scaling.
    scaling : {"minmax_offset", "shared"}
    """

    shift: Tensor
    factor: Tensor

    def __init__(self, table: Table, scaling: Scaling) -> None:
        super().__init__(table.layout)
        shift = np.zeros(table.layout.n_num, dtype=np.float32)
        factor = np.ones_like(shift)
        for j, seen in enumerate(table.num_observed.T):
            if scaling == "minmax_offset" and seen.any():
                column = table.num[seen, j]
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
        Epochs and steps done, the last epoch's loss, why it ended.
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
        held = HELD_CPU if like.device.type == "cpu" else HELD_GPU
        each = self._coding.width * self._settings.channels

        def draw(count: int) -> tuple[Tensor, Tensor]:
            x = normal_like(like.new_empty(count, self._coding.width), noise)
            for t in reversed(range(self._settings.timesteps)):
                time = torch.full((count,), t, device=like.device)
                a, b, c = self._chain.back(t)
                x = a * (x - b * self._net(x, time))
                if t:
                    x = x + c * normal_like(x, noise)
            return self._coding.decoded(x)

        with fast_matmul(like.device):
            return in_pieces(draw, n, max(held // each, 1))


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
        What lies beneath its holes is not read.
    settings : MissDiffSettings
        `PAPER`, `SMALL` or one's own.
    seed : int
    device : torch.device
    seconds : float, optional
        Ends the training after the epoch in which this time is over.

    Examples
    --------
    >>> from augmask.table.table import Layout
    >>> layout = Layout(("x",), ("y",), (2,))
    >>> codes = np.tile([[0], [1]], (50, 1)).astype(np.int32)
    >>> table = Table(2.0 * codes - 1, codes, np.ones((100, 2), dtype=bool), layout)
    >>> settings = MissDiffSettings(epochs=2, batch=50, timesteps=5, channels=4)
    >>> model = fit(table, settings, 0, torch.device("cpu"))
    >>> num, cat = model.sample(7, seed=0)
    >>> num.shape, cat.shape, model.facts["steps"]
    ((7, 1), (7, 1), 4)
    """
    clock = Clock(seconds)
    coding = Coding(table, settings.numeric_scaling).to(device)
    with first_weights(stream_seed(seed, "init")):
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
    seen = coding.expanded(observed).float()
    clean = coding.encoded(num, cat) * seen
    signal = torch.from_numpy(Chain.quadratic(settings).signal).float().to(device)
    noise = generator(device, stream_seed(seed, "noise"))

    def loss(rows: Tensor) -> Tensor:
        return observed_error(net, clean[rows], seen[rows], signal, noise)

    descent = Descent(
        loss,
        net.parameters(),
        len(table),
        settings.batch,
        settings.lr,
        settings.weight_decay,
        noise,
    )
    facts = learn_for(descent, settings.epochs, clock, settings.rate)
    return MissDiff(net, coding, settings, facts)
