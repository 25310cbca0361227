"""TabSyn (Zhang et al., 2024): diffusion in the latent space of an autoencoder.

First a small transformer autoencoder learns the cells (`tabsyn_vae`), then a denoiser
learns the latents of all rows (`edm_rows`). New latents are decoded to numbers and the
most probable levels. A latent has no cells, so there is nothing to mask: the method
wants a complete table, and every cell counts, observed or filled.

As in the comparison with AugMask the denoiser is a plain MLP of TabDDPM's kind, and
30,000 steps are split as the published epochs are. The schedule of the autoencoder
watches rows that are held out of the table, a tenth of them; the denoiser learns from
all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from augmask.device import fast_matmul
from augmask.diffusion.noise import first_weights
from augmask.rng import stream_seed
from augmask.table.table import Table
from augmask_bench.baselines.blocks import PIECE, Blocks, Rows, in_pieces, on_device
from augmask_bench.baselines.descent import (
    Clock,
    Descent,
    Schedule,
    descend,
    generator,
    held_out,
)
from augmask_bench.baselines.edm_rows import SIGMA_DATA, RowDenoiser, RowSampler, deep
from augmask_bench.baselines.tabsyn_vae import TokenVae, VaeSettings, learn_vae

# the autoencoder's share of a time limit
VAE_SHARE = 0.4


@dataclass(frozen=True)
class TabSynSettings:
    """What decides about the rows of TabSyn; the defaults are the paper's.

    Parameters
    ----------
    vae : VaeSettings
    steps, batch, lr
        Of the denoiser.
    embedding, units, layers : int
        Its width at the level of the noise, and its hidden layers.
    factor, slow_after : float and int
        What its rate is multiplied by, and after how many epochs without a better loss.
    patience : int
        Epochs without a lower loss that end its training.
    levels : int
        Noise levels of the sampler.
    held_out : float
        Share of the rows that the schedule of the autoencoder watches.
    """

    vae: VaeSettings = field(default_factory=VaeSettings)
    steps: int = 21_000
    batch: int = 4096
    lr: float = 1e-3
    embedding: int = 256
    units: int = 805
    layers: int = 5
    factor: float = 0.9
    slow_after: int = 20
    patience: int = 500
    levels: int = 200
    held_out: float = 0.1


PAPER = TabSynSettings()
SMALL = TabSynSettings(
    vae=VaeSettings(steps=500, batch=512, lr=5e-3),
    steps=2_000,
    batch=512,
    lr=2e-3,
    embedding=128,
    units=256,
    layers=3,
    factor=0.8,
    slow_after=8,
    levels=50,
)


class TabSyn:
    """A trained TabSyn, see `fit`.

    Attributes
    ----------
    facts : dict
        Why it ended, and what `learn_vae` and `descend` say of the two trainings.
    """

    def __init__(
        self,
        vae: TokenVae,
        net: RowDenoiser,
        blocks: Blocks,
        centre: Tensor,
        levels: int,
        facts: dict[str, object],
    ) -> None:
        self._vae, self._net, self._blocks = vae, net, blocks
        self._centre, self._levels = centre, levels
        self.facts = facts

    @torch.no_grad()
    def sample(self, n: int, seed: int) -> Rows:
        """Return `n` rows: scaled numbers, and codes."""
        device = self._centre.device
        noise = generator(device, stream_seed(seed, "sample"))

        def draw(size: int) -> tuple[Tensor, Tensor]:
            drawn = RowSampler(self._net, size, self._levels, noise).draw()
            latents = (drawn / SIGMA_DATA).view(size, *self._centre.shape)
            num, logits = self._vae.decode(latents + self._centre)
            return num, self._blocks.codes(logits)

        return in_pieces(draw, n)


@torch.no_grad()
def _latents(vae: TokenVae, num: Tensor, cat: Tensor) -> Tensor:
    """Return the latents of all rows, [n, d, token]."""
    with fast_matmul(num.device):
        pieces = zip(torch.split(num, PIECE), torch.split(cat, PIECE), strict=True)
        return torch.cat([vae.latents(*piece) for piece in pieces])


def fit(
    table: Table,
    settings: TabSynSettings,
    seed: int,
    device: torch.device,
    seconds: float | None = None,
) -> TabSyn:
    """Train TabSyn on a complete table.

    Parameters
    ----------
    table : Table
        Every cell is taken as it stands, also where `observed` is False.
    settings : TabSynSettings
    seed : int
    device : torch.device
    seconds : float, optional
        At most 40 % of them are the autoencoder's.

    Examples
    --------
    >>> import numpy as np
    >>> from augmask.table.table import Layout
    >>> rng = np.random.default_rng(0)
    >>> num, cat = rng.normal(size=(60, 1)), rng.integers(0, 2, (60, 1))
    >>> table = Table(num, cat, np.ones((60, 2), bool), Layout(("x",), ("y",), (2,)))
    >>> tiny = TabSynSettings(VaeSettings(steps=3), steps=3, units=8, levels=5)
    >>> model = fit(table, tiny, 0, torch.device("cpu"))
    >>> [part.shape for part in model.sample(5, seed=0)]
    [(5, 1), (5, 1)]
    """
    clock = Clock(seconds)
    blocks = Blocks(table.layout)
    num, cat, _ = on_device(table, device)
    learn, check = held_out(len(table), settings.held_out, seed)
    with first_weights(stream_seed(seed, "init")):
        token, depth = settings.vae.token, settings.vae.depth
        # all of it on the CPU: what networks are made of is read there
        vae = TokenVae(table.layout.n_num, blocks.ragged, token, depth)
        width = token * table.layout.n_features
        net = deep(width, settings.embedding, settings.units, settings.layers)
    blocks, vae, net = blocks.to(device), vae.to(device), net.to(device)
    noise = generator(device, stream_seed(seed, "vae"))
    vae_facts = learn_vae(
        vae,
        num,
        cat,
        learn.to(device),
        check.to(device),
        settings.vae,
        noise,
        clock.part(VAE_SHARE),
    )

    latents = _latents(vae, num, cat)
    centre = latents.mean(0)
    # by a half, not by their deviation, as published
    rows = SIGMA_DATA * (latents - centre).flatten(1)
    noise = generator(device, stream_seed(seed, "noise"))
    descent = Descent(
        lambda some: net.loss(rows.index_select(0, some), noise).mean(),
        net.parameters(),
        len(rows),
        settings.batch,
        settings.lr,
        0.0,
        noise,
    )
    schedule = Schedule(
        settings.steps, settings.factor, settings.slow_after, settings.patience
    )
    net_facts = descend(descent, net, schedule, clock.part(1.0))
    facts: dict[str, object] = {
        "ended": net_facts["ended"],
        "vae": vae_facts,
        "diffusion": net_facts,
    }
    return TabSyn(vae, net, blocks, centre, settings.levels, facts)
