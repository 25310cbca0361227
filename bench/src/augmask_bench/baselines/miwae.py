"""MIWAE as a generator of rows (Mattei & Frellsen, 2019).

A variational autoencoder trained on observed cells only. The encoder reads a row with
zeros in place of missing values; with z_1 .. z_K drawn from q(z | x_obs), the bound

    log (1/K) Σ_k p(x_obs | z_k) p(z_k) / q(z_k | x_obs)

is maximised. Numbers have a Student t distribution, categories a softmax. New rows are
drawn from the prior: z ~ N(0, I), then every cell from its distribution given z; the
encoder is not used.

It differs on purpose from the imputer whose settings the paper uses: categories have
their own likelihood (`likelihood="student"` treats codes as numbers, as the imputer
does); the encoder's scale has a lower bound; every epoch visits all rows, in batches of
one size, and all `epochs` are run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from augmask.diffusion.nets import mlp, padded_linear
from augmask.diffusion.random_draws import RNG, normal_like, seeded_init
from augmask.errors import UsageError
from augmask.rng import stream, stream_seed
from augmask.table.table import Layout, Table
from augmask_bench.baselines.one_hot import Blocks, Rows, in_chunks, on_device
from augmask_bench.baselines.training import Clock, Trainer, generator, train_epochs

Likelihood = Literal["mixed", "student"]

LIKELIHOODS = ("mixed", "student")
DEPTH = 2  # hidden layers of both networks
MIN_SCALE = 1e-6  # of the encoder
SCALE_MIN, DF_MIN = 0.001, 3.0  # of the Student distributions


@dataclass(frozen=True)
class MiwaeSettings:
    """Settings of MIWAE.

    Parameters
    ----------
    likelihood : {"mixed", "student"}
        `mixed`: categories have a softmax. `student`: their codes are standardised,
        modelled like numbers, and rounded and clipped in the end.
    epochs, batch_size : int
    latent, hidden : int
        Entries of z, and units of a hidden layer.
    k : int
        Draws of z per row, the paper's K.
    lr : float
        Adam's learning rate.
    """

    likelihood: Likelihood = "mixed"
    epochs: int = 800
    batch_size: int = 256
    latent: int = 64
    hidden: int = 256
    k: int = 40
    lr: float = 1e-3

    def __post_init__(self) -> None:
        if self.likelihood not in LIKELIHOODS:
            raise UsageError(
                f"likelihood must be one of {LIKELIHOODS}, got {self.likelihood!r}"
            )


PAPER = MiwaeSettings()
SMALL = MiwaeSettings(epochs=200, latent=16, hidden=64, k=10)


def student_log_density(x: Tensor, loc: Tensor, scale: Tensor, df: Tensor) -> Tensor:
    """Return the log density of the Student t distribution, cell by cell.

    Examples
    --------
    >>> zero, one = torch.zeros(()), torch.ones(())
    >>> round(student_log_density(zero, zero, one, one).exp().item() * math.pi, 4)
    1.0
    """
    half = (df + 1) / 2
    constant = torch.lgamma(half) - torch.lgamma(df / 2) - (math.pi * df).log() / 2
    return constant - scale.log() - half * (((x - loc) / scale).square() / df).log1p()


class CellDistributions(NamedTuple):
    """Parameters of all cells given z: Student t, and logits of the levels."""

    loc: Tensor
    scale: Tensor
    df: Tensor
    logits: Tensor


class MiwaeNet(nn.Module):
    """Encoder and decoder.

    Parameters
    ----------
    layout : Layout
        Numeric columns, then categorical columns.
    settings : MiwaeSettings

    Shape
    -----
    - real: [B, r], codes: [B, C], seen: [B, r + C]
    """

    def __init__(self, layout: Layout, settings: MiwaeSettings) -> None:
        super().__init__()
        self.latent, self.k = settings.latent, settings.k
        self.blocks = Blocks(layout)
        self.n_real = layout.n_num
        self.encoder = mlp(self.blocks.width, settings.hidden, DEPTH)
        self.code = nn.Linear(settings.hidden, 2 * settings.latent)
        self.decoder = mlp(settings.latent, settings.hidden, DEPTH)
        n_out = 3 * self.n_real + self.blocks.ragged.n_slots
        self.head = nn.Linear(settings.hidden, n_out)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.orthogonal_(module.weight)

    def decode(self, z: Tensor) -> CellDistributions:
        """Return the distributions of the cells for every z, [n, latent]."""
        out = padded_linear(self.decoder(z), self.head)
        sizes = 3 * [self.n_real] + [self.blocks.ragged.n_slots]
        loc, scale, df, logits = torch.split(out, sizes, 1)
        return CellDistributions(
            loc, softplus(scale) + SCALE_MIN, softplus(df) + DF_MIN, logits
        )

    def bound(self, real: Tensor, codes: Tensor, mask: Tensor, noise: RNG) -> Tensor:
        """Return the bound of every row, [B].

        Missing values are multiplied by zero and must be finite.
        """
        n = len(real)
        x = self.blocks.matrix(real, codes) * self.blocks.expanded(mask)
        mean, rho = padded_linear(self.encoder(x), self.code).chunk(2, 1)
        spread = softplus(rho) + MIN_SCALE
        eps = normal_like(mean.new_empty(n, self.k, self.latent), noise)
        z = mean[:, None] + spread[:, None] * eps
        # the constants of the normal densities cancel
        prior = (eps.square() - z.square()).sum(2) / 2 + spread.log().sum(1)[:, None]

        # all draws of all rows form one batch
        params = self.decode(z.flatten(0, 1))
        x_real, x_code = (
            part[:, None].expand(-1, self.k, -1).flatten(0, 1) for part in (real, codes)
        )
        density = student_log_density(x_real, params.loc, params.scale, params.df)
        chance = -self.blocks.ragged.cross_entropy(params.logits, x_code)
        cells = torch.cat([density, chance], 1).view(n, self.k, -1)
        likelihood = (cells * mask[:, None]).sum(2)
        return (likelihood + prior).logsumexp(1) - math.log(self.k)


class _Codes:
    """Convert category codes to standardised numbers, and back.

    Parameters
    ----------
    table : Table
        Missing values do not affect mean and spread.
    """

    def __init__(self, table: Table) -> None:
        mask = table.cat_observed
        count = np.maximum(mask.sum(0), 1)
        codes = np.where(mask, table.cat, 0).astype(np.float64)
        self.mean = codes.sum(0) / count
        off = np.where(mask, codes - self.mean, 0.0)
        spread = np.sqrt((off**2).sum(0) / count)
        self.spread = np.where(spread > 0, spread, 1.0)
        last = np.array(table.layout.cards) - 1 - int(table.layout.reserved)
        self.last = np.maximum(last, 0)

    def as_numbers(self, table: Table) -> Table:
        """Return the table with numbers in place of codes."""
        num = np.concatenate([table.num, (table.cat - self.mean) / self.spread], 1)
        no_codes = np.empty((len(table), 0), dtype=np.int32)
        layout = Layout(table.layout.names, (), ())
        return Table(num, no_codes, table.observed, layout)

    def back(self, rows: Rows) -> Rows:
        """Return the rows with codes."""
        n_num = rows[0].shape[1] - len(self.mean)
        near = np.rint(rows[0][:, n_num:] * self.spread + self.mean)
        return rows[0][:, :n_num], np.clip(near, 0, self.last).astype(np.int32)


class Miwae:
    """A fitted MIWAE.

    Attributes
    ----------
    facts : dict
        Epochs and steps completed, the last epoch's negative bound, why training ended.
    """

    def __init__(
        self,
        net: MiwaeNet,
        codes: _Codes | None,
        device: torch.device,
        facts: dict[str, object],
    ) -> None:
        self._net, self._codes, self._device = net, codes, device
        self.facts = facts

    @torch.no_grad()
    def sample(self, n: int, seed: int) -> Rows:
        """Return numbers and codes of `n` new rows."""
        noise = generator(self._device, stream_seed(seed, "sample"))
        # torch cannot draw Student t numbers from a given generator; numpy can
        rng = stream(seed, "sample", "student")
        blocks = self._net.blocks

        def draw(count: int) -> tuple[Tensor, Tensor]:
            start = next(self._net.parameters()).new_empty(count, self._net.latent)
            params = self._net.decode(normal_like(start, noise))
            drawn = rng.standard_t(params.df.cpu().double().numpy())
            real = params.loc.cpu() + params.scale.cpu() * torch.from_numpy(drawn)
            chances = blocks.ragged.softmax(blocks.allowed(params.logits))
            return real, blocks.ragged.draw(chances, noise)

        rows = in_chunks(draw, n)
        return rows if self._codes is None else self._codes.back(rows)


def fit(
    table: Table,
    settings: MiwaeSettings,
    seed: int,
    device: torch.device,
    seconds: float | None = None,
) -> Miwae:
    """Fit MIWAE to the observed cells of a table.

    Parameters
    ----------
    table : Table
        Values of missing cells are not read.
    settings : MiwaeSettings
        `PAPER`, `SMALL` or your own.
    seed : int
    device : torch.device
    seconds : float, optional
        Time limit of the training.

    Examples
    --------
    >>> layout = Layout(("x",), ("y",), (2,))
    >>> codes = np.tile([[0], [1]], (50, 1)).astype(np.int32)
    >>> table = Table(2.0 * codes - 1, codes, np.ones((100, 2), dtype=bool), layout)
    >>> settings = MiwaeSettings(epochs=2, batch_size=50, latent=2, hidden=8, k=5)
    >>> model = fit(table, settings, 0, torch.device("cpu"))
    >>> num, cat = model.sample(7, seed=0)
    >>> num.shape, cat.shape, model.facts["steps"]
    ((7, 1), (7, 1), 4)
    """
    clock = Clock(seconds)
    coder = _Codes(table) if settings.likelihood == "student" else None
    modelled = table if coder is None else coder.as_numbers(table)
    real, codes, mask = on_device(modelled, device)
    n_num = modelled.layout.n_num
    # missing values are zero
    real, codes = real * mask[:, :n_num], codes * mask[:, n_num:]
    with seeded_init(stream_seed(seed, "init")):
        net = MiwaeNet(modelled.layout, settings)
    net = net.to(device)
    noise = generator(device, stream_seed(seed, "noise"))

    def loss(rows: Tensor) -> Tensor:
        return -net.bound(real[rows], codes[rows], mask[rows], noise).mean()

    trainer = Trainer(
        loss, net.parameters(), len(table), settings.batch_size, settings.lr, 0.0, noise
    )
    facts = train_epochs(trainer, settings.epochs, clock)
    return Miwae(net, coder, device, facts)
