"""EDM for rows that are plain vectors (Karras et al., 2022): TabSyn and DiffPuter.

Rows are scaled to a standard deviation of about one half, σ_data. In units of σ_data
this is the preconditioning of `augmask.diffusion.edm`, and that is where it comes from.
Noise levels are log-normal in training. Rows come back through a fixed ladder of levels
by Heun's method, with a little fresh noise ("churn") before every step.

Entries that are known are kept as RePaint does (Lugmayr et al., 2022): at every level
they are put back with noise of that level, and every step is repeated, up and down
again, so that the unknown entries come to suit them. On a GPU the moves are recorded.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from augmask.device import fast_matmul
from augmask.diffusion import edm
from augmask.diffusion.cuda_graph import recorded
from augmask.diffusion.nets import (
    Hidden,
    TimeEmbedding,
    bf16_matmul,
    mlp,
    product,
)
from augmask.diffusion.noise import normal_like
from augmask.diffusion.sampling import at

SIGMA_DATA = 0.5
# ln σ in training
LOG_MEAN, LOG_SPREAD = -1.2, 1.2
# the ladder
SIGMA_MIN, SIGMA_MAX, RHO = 0.002, 80.0, 7.0
CHURN = 1.0
MOST_CHURN = math.sqrt(2) - 1


class SmoothHidden(Hidden):
    """Hidden layers of SiLU units."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(sizes)
        for number, layer in enumerate(self):
            if not isinstance(layer, nn.Linear):
                self[number] = nn.SiLU()

    def _rounded(self, x: Tensor) -> Tensor:
        """Pass `x` through all layers in bfloat16."""
        out = x.to(torch.bfloat16)
        for layer in self:
            if isinstance(layer, nn.Linear):
                weight, bias = layer.weight, layer.bias
                out = nn.functional.linear(out, weight.to(out), bias.to(out))
            else:
                out = layer(out)
        # as wide as what reads it expects, see Hidden
        return nn.functional.pad(out, (0, -out.shape[1] % 8))


class RowDenoiser(nn.Module):
    """The network F and, around it, the denoiser D.

    F is a first layer, to which the embedded level is added, hidden layers, and a last
    layer.

    Parameters
    ----------
    width : int
        Entries of a row.
    embedding : int
        Width of the first layer.
    hidden : Hidden
        From `embedding` to any width.

    Shape
    -----
    - rows: [B, width], levels σ: [B] or, if all rows have the same, [1]
    """

    def __init__(self, width: int, embedding: int, hidden: Hidden) -> None:
        super().__init__()
        self.width = width
        self.first = nn.Linear(width, embedding)
        self.time = TimeEmbedding(embedding)
        self.hidden = hidden
        self.last = nn.Linear(hidden.width, width)

    def _output(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Return F for noisy rows in units of σ_data, and their levels in them."""
        scaled = edm.scaled_input(x, sigma[:, None])
        # levels are named by the ln σ / 4 of rows as they are
        named = self.time((SIGMA_DATA * sigma).log() / 4)
        out: Tensor = self.hidden.read(product(scaled, self.first) + named, self.last)
        return out

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Return D, the rows as they probably were before noise of level σ."""
        x, sigma = x / SIGMA_DATA, sigma / SIGMA_DATA
        out = edm.denoised(x, self._output(x, sigma), sigma[:, None])
        return SIGMA_DATA * out

    def loss(self, clean: Tensor, noise: torch.Generator) -> Tensor:
        """Return EDM's weighted squared error of every entry, [B, width]."""
        log_sigma = LOG_MEAN + LOG_SPREAD * normal_like(clean[:, 0], noise)
        clean, sigma = clean / SIGMA_DATA, log_sigma.exp() / SIGMA_DATA
        eps = normal_like(clean, noise)
        out = self._output(clean + sigma[:, None] * eps, sigma)
        return (out - edm.target(clean, eps, sigma[:, None])).square()


def wide(width: int, units: int) -> RowDenoiser:
    """Return the network of DiffPuter (and of TabSyn as first published).

    Examples
    --------
    >>> net = wide(110, 1024)
    >>> round(sum(p.numel() for p in net.parameters()) / 1e6, 1)
    10.7
    """
    sizes = [units, 2 * units, 2 * units, units]
    return RowDenoiser(width, units, SmoothHidden(sizes))


def deep(width: int, embedding: int, units: int, layers: int) -> RowDenoiser:
    """Return the network of TabDDPM's kind that TabSyn has in the comparison.

    Examples
    --------
    >>> net = deep(60, 256, 805, 5)
    >>> round(sum(p.numel() for p in net.parameters()) / 1e6, 1)
    3.0
    """
    return RowDenoiser(width, embedding, mlp(embedding, units, layers))


# -- back to rows ------------------------------------------------------------------


def ladder(count: int, device: torch.device) -> Tensor:
    """Return `count` levels from σ_max down to σ_min, and then 0.

    Examples
    --------
    >>> [round(t, 3) for t in ladder(3, torch.device("cpu")).tolist()]
    [80.0, 2.515, 0.002, 0.0]
    """
    # so steep a power wants more digits than the levels are then kept with
    place = torch.arange(count, dtype=torch.float64) / max(count - 1, 1)
    high, low = SIGMA_MAX ** (1 / RHO), SIGMA_MIN ** (1 / RHO)
    levels = (high + place * (low - high)) ** RHO
    return torch.cat([levels, levels.new_zeros(1)]).float().to(device)


class _Ladder:
    """The moves between two levels, on rows that stay in place.

    A move must not ask the device for a number, so it may be recorded.
    """

    def __init__(
        self, net: RowDenoiser, x: Tensor, levels: Tensor, noise: torch.Generator
    ) -> None:
        self.net, self.x, self.levels, self.noise = net, x, levels, noise
        self.place = torch.zeros((), dtype=torch.long, device=x.device)
        self._churn = min(CHURN / (len(levels) - 1), MOST_CHURN)
        self.known: Tensor | None = None
        self.is_known: Tensor | None = None

    def hold(self, known: Tensor, is_known: Tensor) -> None:
        """Keep these entries from now on."""
        self.known, self.is_known = known, is_known

    def _noisier(self, sigma: Tensor, wanted: Tensor) -> Tensor:
        """Return the rows at another, higher level."""
        fresh = (wanted.square() - sigma.square()).sqrt()
        return self.x + fresh * normal_like(self.x, self.noise)

    def _settle(self, x: Tensor, sigma: Tensor) -> None:
        """Write the rows down, which are now at level σ."""
        if self.known is not None and self.is_known is not None:
            placed = self.known + sigma * normal_like(x, self.noise)
            x = torch.where(self.is_known, placed, x)
        self.x.copy_(x)

    def _slope(self, x: Tensor, sigma: Tensor) -> Tensor:
        denoised: Tensor = self.net(x, sigma)
        return (x - denoised) / sigma

    def down(self) -> None:
        """Go to the next level, by the mean of the slopes at both ends."""
        now, then = at(self.levels, self.place), at(self.levels, self.place + 1)
        above = (1 + self._churn) * now
        x = self._noisier(now, above)
        slope = self._slope(x, above)
        second = self._slope(x + (then - above) * slope, then)
        self._settle(x + (then - above) * (slope + second) / 2, then)

    def last(self) -> None:
        """Go from the lowest level to no noise, where a slope has no meaning."""
        now, then = at(self.levels, self.place), at(self.levels, self.place + 1)
        above = (1 + self._churn) * now
        x = self._noisier(now, above)
        self._settle(x + (then - above) * self._slope(x, above), then)

    def up(self) -> None:
        """Go back to the level from which the last move came."""
        now, then = at(self.levels, self.place), at(self.levels, self.place + 1)
        self.x.copy_(self._noisier(then, now))


class RowSampler:
    """Rows from noise, of one number at a time: what was recorded is used again.

    Parameters
    ----------
    net : RowDenoiser
    n : int
        Rows at once.
    count : int
        Levels of the ladder.
    noise : torch.Generator
        On the device of the network.
    bf16 : bool
        Let hidden layers multiply in bfloat16.
    """

    def __init__(
        self,
        net: RowDenoiser,
        n: int,
        count: int,
        noise: torch.Generator,
        bf16: bool = False,
    ) -> None:
        device = noise.device
        x = torch.zeros(n, net.width, device=device)
        self._moves = _Ladder(net, x, ladder(count, device), noise)
        self._count, self._bf16 = count, bf16
        self._net, self._noise = net, noise
        self._down = recorded(self._moves.down, noise, "sampling")
        self._up = recorded(self._moves.up, noise, "sampling")

    def hold(self, known: Tensor, is_known: Tensor) -> RowSampler:
        """Keep entries [n, width] that are known where the mask says so.

        To be said before the first draw, or with the same shapes.
        """
        moves = self._moves
        if moves.known is None or moves.is_known is None:
            moves.hold(known.clone(), is_known.clone())
        else:
            moves.known.copy_(known)
            moves.is_known.copy_(is_known)
        return self

    @torch.no_grad()
    def draw(self, repeats: int = 1) -> Tensor:
        """Return rows; every step but the last is taken `repeats` times.

        The result is overwritten by the next draw.
        """
        moves, device = self._moves, self._noise.device
        moves.x.copy_(SIGMA_MAX * normal_like(moves.x, self._noise))
        with fast_matmul(device), bf16_matmul(self._net, self._bf16):
            for i in range(self._count - 1):
                moves.place.fill_(i)
                for again in range(repeats):
                    self._down()
                    if again < repeats - 1:
                        self._up()
            moves.place.fill_(self._count - 1)
            moves.last()
        return moves.x
