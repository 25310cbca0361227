"""EDM for rows that are vectors (Karras et al., 2022), for TabSyn and DiffPuter.

Rows are scaled to a standard deviation of about one half, σ_data; in units of σ_data
the preconditioning is that of `augmask.diffusion.edm_preconditioning`. In training σ is
log-normal. The sampler follows a fixed schedule of σ by Heun's method, with a little
fresh noise ("churn") before every step.

Known entries are inpainted as in RePaint (Lugmayr et al., 2022): at every σ they are
replaced by their value plus noise of that σ, and every step is repeated with renoising
in between, so that the unknown entries adapt to them. On a GPU the steps are CUDA
graphs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from augmask.device import allow_tf32
from augmask.diffusion import edm_preconditioning as edm
from augmask.diffusion.cuda_graph import cuda_graphed
from augmask.diffusion.nets import (
    HiddenLayers,
    TimeEmbedding,
    bf16_matmul,
    mlp,
    padded_linear,
)
from augmask.diffusion.random_draws import normal_like
from augmask.diffusion.sampling import at

SIGMA_DATA = 0.5
# ln σ in training
LOG_MEAN, LOG_SPREAD = -1.2, 1.2
# schedule of the sampler
SIGMA_MIN, SIGMA_MAX, RHO = 0.002, 80.0, 7.0
CHURN = 1.0
MOST_CHURN = math.sqrt(2) - 1


class SmoothHidden(HiddenLayers):
    """Hidden layers of SiLU units."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(sizes)
        for number, layer in enumerate(self):
            if not isinstance(layer, nn.Linear):
                self[number] = nn.SiLU()

    def forward_bf16(self, x: Tensor) -> Tensor:
        """Pass `x` through all layers in bfloat16."""
        out = x.to(torch.bfloat16)
        for layer in self:
            if isinstance(layer, nn.Linear):
                weight, bias = layer.weight, layer.bias
                out = nn.functional.linear(out, weight.to(out), bias.to(out))
            else:
                out = layer(out)
        # padded as the next layer expects, see Hidden
        return nn.functional.pad(out, (0, -out.shape[1] % 8))


class RowDenoiser(nn.Module):
    """The network F and the preconditioned denoiser D.

    F consists of a first layer, to whose output the embedding of σ is added, hidden
    layers and a last layer.

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
    - rows: [B, width], σ: [B], or [1] if all rows have the same
    """

    def __init__(self, width: int, embedding: int, hidden: HiddenLayers) -> None:
        super().__init__()
        self.width = width
        self.first = nn.Linear(width, embedding)
        self.time = TimeEmbedding(embedding)
        self.hidden = hidden
        self.last = nn.Linear(hidden.width, width)

    def _output(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Return F for noisy rows; rows and σ are in units of σ_data."""
        scaled = edm.scaled_input(x, sigma[:, None])
        # conditioned on ln σ / 4 in the original units
        embedded = self.time((SIGMA_DATA * sigma).log() / 4)
        out: Tensor = self.hidden.with_head(
            padded_linear(scaled, self.first) + embedded, self.last
        )
        return out

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Return D, the estimate of the clean rows."""
        x, sigma = x / SIGMA_DATA, sigma / SIGMA_DATA
        out = edm.denoised(x, self._output(x, sigma), sigma[:, None])
        return SIGMA_DATA * out

    def loss(self, clean: Tensor, noise: torch.Generator) -> Tensor:
        """Return EDM's weighted squared error per entry, [B, width]."""
        log_sigma = LOG_MEAN + LOG_SPREAD * normal_like(clean[:, 0], noise)
        clean, sigma = clean / SIGMA_DATA, log_sigma.exp() / SIGMA_DATA
        eps = normal_like(clean, noise)
        out = self._output(clean + sigma[:, None] * eps, sigma)
        return (out - edm.target(clean, eps, sigma[:, None])).square()


def diffputer_net(width: int, units: int) -> RowDenoiser:
    """Return the network of DiffPuter (and of the published TabSyn).

    Examples
    --------
    >>> net = diffputer_net(110, 1024)
    >>> round(sum(p.numel() for p in net.parameters()) / 1e6, 1)
    10.7
    """
    sizes = [units, 2 * units, 2 * units, units]
    return RowDenoiser(width, units, SmoothHidden(sizes))


def tabsyn_net(width: int, embedding: int, units: int, layers: int) -> RowDenoiser:
    """Return the TabDDPM-like network of TabSyn in the paper's comparison.

    Examples
    --------
    >>> net = tabsyn_net(60, 256, 805, 5)
    >>> round(sum(p.numel() for p in net.parameters()) / 1e6, 1)
    3.0
    """
    return RowDenoiser(width, embedding, mlp(embedding, units, layers))


# -- sampling -------------------------------------------------------------------


def sigma_schedule(count: int, device: torch.device) -> Tensor:
    """Return `count` values of σ from σ_max down to σ_min, and then 0.

    Examples
    --------
    >>> [round(t, 3) for t in sigma_schedule(3, torch.device("cpu")).tolist()]
    [80.0, 2.515, 0.002, 0.0]
    """
    # in float64: the power of 7 loses digits
    place = torch.arange(count, dtype=torch.float64) / max(count - 1, 1)
    high, low = SIGMA_MAX ** (1 / RHO), SIGMA_MIN ** (1 / RHO)
    sigmas = (high + place * (low - high)) ** RHO
    return torch.cat([sigmas, sigmas.new_zeros(1)]).float().to(device)


class _Steps:
    """The steps of the sampler, on tensors that stay in place for CUDA graphs."""

    def __init__(
        self, net: RowDenoiser, x: Tensor, sigmas: Tensor, noise: torch.Generator
    ) -> None:
        self.net, self.x, self.sigmas, self.noise = net, x, sigmas, noise
        self.place = torch.zeros((), dtype=torch.long, device=x.device)
        self._churn = min(CHURN / (len(sigmas) - 1), MOST_CHURN)
        self.known: Tensor | None = None
        self.is_known: Tensor | None = None

    def keep_known(self, known: Tensor, is_known: Tensor) -> None:
        """Inpaint around these entries from now on."""
        self.known, self.is_known = known, is_known

    def _renoised(self, sigma: Tensor, higher: Tensor) -> Tensor:
        """Return the rows with noise added up to a higher σ."""
        fresh = (higher.square() - sigma.square()).sqrt()
        return self.x + fresh * normal_like(self.x, self.noise)

    def _write(self, x: Tensor, sigma: Tensor) -> None:
        """Store the rows at σ, with the known entries noised to it."""
        if self.known is not None and self.is_known is not None:
            noised = self.known + sigma * normal_like(x, self.noise)
            x = torch.where(self.is_known, noised, x)
        self.x.copy_(x)

    def _slope(self, x: Tensor, sigma: Tensor) -> Tensor:
        denoised: Tensor = self.net(x, sigma)
        return (x - denoised) / sigma

    def down(self) -> None:
        """Heun step to the next σ: the mean of the slopes at both ends."""
        now, then = at(self.sigmas, self.place), at(self.sigmas, self.place + 1)
        above = (1 + self._churn) * now
        x = self._renoised(now, above)
        slope = self._slope(x, above)
        second = self._slope(x + (then - above) * slope, then)
        self._write(x + (then - above) * (slope + second) / 2, then)

    def last(self) -> None:
        """Euler step from the lowest σ to 0, where the slope is not defined."""
        now, then = at(self.sigmas, self.place), at(self.sigmas, self.place + 1)
        above = (1 + self._churn) * now
        x = self._renoised(now, above)
        self._write(x + (then - above) * self._slope(x, above), then)

    def up(self) -> None:
        """Renoise to the σ before the last step."""
        now, then = at(self.sigmas, self.place), at(self.sigmas, self.place + 1)
        self.x.copy_(self._renoised(then, now))


class RowSampler:
    """Samples a fixed number of rows; CUDA graphs are reused between calls.

    Parameters
    ----------
    net : RowDenoiser
    n : int
        Number of rows.
    count : int
        Number of sampling steps.
    noise : torch.Generator
        On the device of the network.
    bf16 : bool
        Whether hidden layers use bfloat16.
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
        self._steps = _Steps(net, x, sigma_schedule(count, device), noise)
        self._count, self._bf16 = count, bf16
        self._net, self._noise = net, noise
        self._down = cuda_graphed(self._steps.down, noise, "sampling")
        self._up = cuda_graphed(self._steps.up, noise, "sampling")

    def keep_known(self, known: Tensor, is_known: Tensor) -> RowSampler:
        """Fix the entries [n, width] where the mask is True.

        Call it before the first draw, or later with the same shapes.
        """
        steps = self._steps
        if steps.known is None or steps.is_known is None:
            steps.keep_known(known.clone(), is_known.clone())
        else:
            steps.known.copy_(known)
            steps.is_known.copy_(is_known)
        return self

    @torch.no_grad()
    def draw(self, repeats: int = 1) -> Tensor:
        """Return rows; every step but the last is repeated `repeats` times.

        The next draw overwrites the result.
        """
        steps, device = self._steps, self._noise.device
        steps.x.copy_(SIGMA_MAX * normal_like(steps.x, self._noise))
        with allow_tf32(device), bf16_matmul(self._net, self._bf16):
            for i in range(self._count - 1):
                steps.place.fill_(i)
                for repeat in range(repeats):
                    self._down()
                    if repeat < repeats - 1:
                        self._up()
            steps.place.fill_(self._count - 1)
            steps.last()
        return steps.x
