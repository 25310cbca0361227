"""MIWAE as a generator of rows (Mattei & Frellsen, 2019).

A variational autoencoder that is trained on observed cells only. The encoder reads a
row with zeros in its holes; with z_1 .. z_K drawn from its law q(z | x_obs), the bound

    log (1/K) Σ_k p(x_obs | z_k) p(z_k) / q(z_k | x_obs)

is made as large as it gets. A number has a Student law, a category a softmax. New rows
are drawn from the prior: z ~ N(0, I), then every cell from its law given z, so the
encoder has no part in them.

What differs from the imputer whose settings the paper took over, on purpose: categories
have a law of their own (`likelihood="student"` brings back codes that are treated as
numbers); the encoder's scale has a floor; every epoch is a whole pass, in batches of
one size, and all of `epochs` are run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from augmask.diffusion.nets import mlp, product
from augmask.diffusion.noise import Noise, first_weights, normal_like
from augmask.errors import UsageError
from augmask.rng import stream, stream_seed
from augmask.table.table import Layout, Table
from augmask_bench.baselines.blocks import Blocks, Rows, in_pieces, on_device
from augmask_bench.baselines.descent import Clock, Descent, generator
from augmask_bench.baselines.epochs import learn_for

Likelihood = Literal["mixed", "student"]

LIKELIHOODS = ("mixed", "student")
DEPTH = 2  # hidden layers of both networks
FLOOR = 1e-6  # of the encoder's scale
SCALE_MIN, DF_MIN = 0.001, 3.0  # of the Student laws


@dataclass(frozen=True)
class MiwaeSettings:
    """What decides about MIWAE's rows.

    Parameters
    ----------
    likelihood : {"mixed", "student"}
        Whether categories are drawn from a softmax, or their codes are standardised,
        get a Student law like any number, and are rounded and clipped in the end.
    epochs, batch : int
    latent, hidden : int
        Entries of z, and units of a hidden layer.
    k : int
        Draws of z per row, the paper's K.
    lr : float
        Adam's learning rate.
    """

    likelihood: Likelihood = "mixed"
    epochs: int = 800
    batch: int = 256
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
    """Return the log density of Student's law, cell by cell.

    Examples
    --------
    >>> zero, one = torch.zeros(()), torch.ones(())
    >>> round(student_log_density(zero, zero, one, one).exp().item() * math.pi, 4)
    1.0
    """
    half = (df + 1) / 2
    constant = torch.lgamma(half) - torch.lgamma(df / 2) - (math.pi * df).log() / 2
    return constant - scale.log() - half * (((x - loc) / scale).square() / df).log1p()


class Laws(NamedTuple):
    """The laws of all cells given z: Student's, and logits of the levels."""

    loc: Tensor
    scale: Tensor
    df: Tensor
    logits: Tensor


class MiwaeNet(nn.Module):
    """Encoder and decoder.

    Parameters
    ----------
    layout : Layout
        Columns with a Student law, then columns with a softmax.
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

    def decode(self, z: Tensor) -> Laws:
        """Return the laws of the cells for every z, [n, latent]."""
        out = product(self.decoder(z), self.head)
        sizes = 3 * [self.n_real] + [self.blocks.ragged.n_slots]
        loc, scale, df, logits = torch.split(out, sizes, 1)
        return Laws(loc, softplus(scale) + SCALE_MIN, softplus(df) + DF_MIN, logits)

    def bound(self, real: Tensor, codes: Tensor, seen: Tensor, noise: Noise) -> Tensor:
        """Return the bound of every row's observed cells, [B].

        What is not seen is multiplied by zero; it must be finite.
        """
        n = len(real)
        x = self.blocks.matrix(real, codes) * self.blocks.expanded(seen)
        mean, rho = product(self.encoder(x), self.code).chunk(2, 1)
        spread = softplus(rho) + FLOOR
        eps = normal_like(mean.new_empty(n, self.k, self.latent), noise)
        z = mean[:, None] + spread[:, None] * eps
        # the normal laws' constants cancel
        prior = (eps.square() - z.square()).sum(2) / 2 + spread.log().sum(1)[:, None]

        # all draws of all rows are one batch
        laws = self.decode(z.flatten(0, 1))
        x_real, x_code = (
            part[:, None].expand(-1, self.k, -1).flatten(0, 1) for part in (real, codes)
        )
        density = student_log_density(x_real, laws.loc, laws.scale, laws.df)
        chance = -self.blocks.ragged.cross_entropy(laws.logits, x_code)
        cells = torch.cat([density, chance], 1).view(n, self.k, -1)
        likelihood = (cells * seen[:, None]).sum(2)
        return (likelihood + prior).logsumexp(1) - math.log(self.k)


class _Codes:
    """Category codes as standardised numbers, and back.

    Parameters
    ----------
    table : Table
        Codes beneath holes have no part in the mean and spread.
    """

    def __init__(self, table: Table) -> None:
        seen = table.cat_observed
        count = np.maximum(seen.sum(0), 1)
        codes = np.where(seen, table.cat, 0).astype(np.float64)
        self.mean = codes.sum(0) / count
        off = np.where(seen, codes - self.mean, 0.0)
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
        """Return the rows with codes again."""
        n_num = rows[0].shape[1] - len(self.mean)
        near = np.rint(rows[0][:, n_num:] * self.spread + self.mean)
        return rows[0][:, :n_num], np.clip(near, 0, self.last).astype(np.int32)


class Miwae:
    """A fitted MIWAE.

    Attributes
    ----------
    facts : dict
        Epochs and steps done, the last epoch's negative bound, why it ended.
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
        # torch draws no Student numbers from a generator of one's own; numpy does
        rng = stream(seed, "sample", "student")
        blocks = self._net.blocks

        def draw(count: int) -> tuple[Tensor, Tensor]:
            start = next(self._net.parameters()).new_empty(count, self._net.latent)
            laws = self._net.decode(normal_like(start, noise))
            drawn = rng.standard_t(laws.df.cpu().double().numpy())
            real = laws.loc.cpu() + laws.scale.cpu() * torch.from_numpy(drawn)
            chances = blocks.ragged.softmax(blocks.allowed(laws.logits))
            return real, blocks.ragged.draw(chances, noise)

        rows = in_pieces(draw, n)
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
        What lies beneath its holes is not read.
    settings : MiwaeSettings
        `PAPER`, `SMALL` or one's own.
    seed : int
    device : torch.device
    seconds : float, optional
        Ends the training after the epoch in which this time is over.

    Examples
    --------
    >>> layout = Layout(("x",), ("y",), (2,))
    >>> codes = np.tile([[0], [1]], (50, 1)).astype(np.int32)
    >>> table = Table(2.0 * codes - 1, codes, np.ones((100, 2), dtype=bool), layout)
    >>> settings = MiwaeSettings(epochs=2, batch=50, latent=2, hidden=8, k=5)
    >>> model = fit(table, settings, 0, torch.device("cpu"))
    >>> num, cat = model.sample(7, seed=0)
    >>> num.shape, cat.shape, model.facts["steps"]
    ((7, 1), (7, 1), 4)
    """
    clock = Clock(seconds)
    coder = _Codes(table) if settings.likelihood == "student" else None
    modelled = table if coder is None else coder.as_numbers(table)
    real, codes, seen = on_device(modelled, device)
    n_num = modelled.layout.n_num
    # a zero stands in every hole, whatever lay beneath it
    real, codes = real * seen[:, :n_num], codes * seen[:, n_num:]
    with first_weights(stream_seed(seed, "init")):
        net = MiwaeNet(modelled.layout, settings)
    net = net.to(device)
    noise = generator(device, stream_seed(seed, "noise"))

    def loss(rows: Tensor) -> Tensor:
        return -net.bound(real[rows], codes[rows], seen[rows], noise).mean()

    descent = Descent(
        loss, net.parameters(), len(table), settings.batch, settings.lr, 0.0, noise
    )
    facts = learn_for(descent, settings.epochs, clock)
    return Miwae(net, coder, device, facts)
