"""TabSyn (Zhang et al., 2024): diffusion in the latent space of an autoencoder.

First a small transformer autoencoder encodes every cell as four latent numbers, then a
denoiser learns the latents of all rows (`edm_rows`). New latents are decoded to numbers
and the most probable levels. A latent has no cells, so nothing can be masked: the
method needs a complete table, and every cell counts, observed or augmented.

Cells are tokens; one transformer computes the mean, a second the log variance of the
latents, and a third decodes them. The weight β of the KL divergence decreases while the
validation loss does not improve: in the end cells are reconstructed well, and the
latent space is still smooth.

As in the paper's comparison the denoiser is a plain MLP like TabDDPM's, and 30,000
steps are divided as the published epochs are. The validation loss of the autoencoder is
on a tenth of the rows; the denoiser learns from all rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from augmask.device import allow_tf32
from augmask.diffusion.nets import Heads, Tokenizer, transformer
from augmask.diffusion.ragged import Ragged
from augmask.diffusion.random_draws import normal_like, seeded_init
from augmask.rng import stream_seed
from augmask.table.table import Table
from augmask_bench.baselines.edm_rows import (
    SIGMA_DATA,
    RowDenoiser,
    RowSampler,
    tabsyn_net,
)
from augmask_bench.baselines.one_hot import CHUNK, Blocks, Rows, in_chunks, on_device
from augmask_bench.baselines.training import (
    Clock,
    Plateau,
    Schedule,
    Trainer,
    generator,
    held_out,
    train,
)

# the autoencoder's share of the time limit
VAE_SHARE = 0.4


@dataclass(frozen=True)
class VaeSettings:
    """Settings of the autoencoder; the defaults are the published ones.

    Parameters
    ----------
    steps, batch_size, lr
    token, depth : int
        Width of a token, and blocks of a transformer.
    beta, least_beta : float
        Initial and smallest β.
    beta_factor, beta_after : float and int
        Factor of β, and epochs without improvement before it applies.
    factor, slow_after : float and int
        The same for the learning rate.
    """

    steps: int = 9_000
    batch_size: int = 4096
    lr: float = 1e-3
    token: int = 4
    depth: int = 2
    beta: float = 1e-2
    least_beta: float = 1e-5
    beta_factor: float = 0.7
    beta_after: int = 10
    factor: float = 0.95
    slow_after: int = 10


@dataclass(frozen=True)
class TabSynSettings:
    """Settings of TabSyn; the defaults are the paper's.

    Parameters
    ----------
    vae : VaeSettings
    steps, batch_size, lr
        Of the denoiser.
    embedding, units, layers : int
        Width of its embedding of σ, and its hidden layers.
    factor, slow_after : float and int
        Factor of its learning rate, and epochs without improvement before it applies.
    patience : int
        Epochs without a lower loss that end its training.
    sampling_steps : int
        Steps of the sampler.
    held_out : float
        Share of the rows for the validation loss of the autoencoder.
    """

    vae: VaeSettings = field(default_factory=VaeSettings)
    steps: int = 21_000
    batch_size: int = 4096
    lr: float = 1e-3
    embedding: int = 256
    units: int = 805
    layers: int = 5
    factor: float = 0.9
    slow_after: int = 20
    patience: int = 500
    sampling_steps: int = 200
    held_out: float = 0.1


PAPER = TabSynSettings()
SMALL = TabSynSettings(
    vae=VaeSettings(steps=500, batch_size=512, lr=5e-3),
    steps=2_000,
    batch_size=512,
    lr=2e-3,
    embedding=128,
    units=256,
    layers=3,
    factor=0.8,
    slow_after=8,
    sampling_steps=50,
)


# -- autoencoder ----------------------------------------------------------------


class TokenVae(nn.Module):
    """Encoder and decoder.

    Shape
    -----
    - num: [B, d_num], cat: [B, C] codes, latent: [B, d, token], logits: [B, S]
    """

    def __init__(self, n_num: int, ragged: Ragged, token: int, depth: int) -> None:
        super().__init__()
        self.ragged = ragged
        self.tokens = Tokenizer(n_num, ragged, token)
        # a class token before the cells; its output is not part of the latent
        self.lead = nn.Parameter((2 * torch.rand(token) - 1) / math.sqrt(token))
        self.mean = transformer(token, depth)
        self.log_variance = transformer(token, depth)
        self.decoder = transformer(token, depth)
        self.heads = Heads(n_num, ragged, token)

    def _tokens(self, num: Tensor, cat: Tensor) -> Tensor:
        nowhere = num.new_zeros(cat.shape)
        cells = self.tokens(num, self.ragged.slots(cat), nowhere)
        lead = self.lead.expand(len(num), 1, -1)
        return torch.cat([lead, cells], 1)

    def encode(self, num: Tensor, cat: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log variance of the latents."""
        tokens = self._tokens(num, cat)
        return self.mean(tokens)[:, 1:], self.log_variance(tokens)[:, 1:]

    def latents(self, num: Tensor, cat: Tensor) -> Tensor:
        """Return the mean of the latents."""
        means: Tensor = self.mean(self._tokens(num, cat))[:, 1:]
        return means

    def decode(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Return numbers and logits."""
        numbers, logits = self.heads(self.decoder(latents))
        return numbers, logits

    def terms(
        self, num: Tensor, cat: Tensor, eps: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return squared error, cross-entropy and KL divergence, each as a mean.

        `eps` is the standard normal noise of the latents.
        """
        mean, log_variance = self.encode(num, cat)
        latents = mean + (log_variance / 2).exp() * eps
        numbers, logits = self.decode(latents)
        # a mean over no columns is 0, not NaN
        error = (numbers - num).square().sum() / max(num.numel(), 1)
        entropy = self.ragged.cross_entropy(logits, cat).sum() / max(cat.numel(), 1)
        divergence = mean.square() + log_variance.exp() - 1 - log_variance
        return error, entropy, divergence.mean() / 2


def known_levels(ragged: Ragged, learn: Tensor, check: Tensor) -> Tensor:
    """Return which held-out rows have only levels that occur in the training rows.

    Examples
    --------
    >>> ragged = Ragged((3,))
    >>> known_levels(ragged, torch.tensor([[0], [1]]), torch.tensor([[2], [1]]))
    tensor([False,  True])
    """
    occurs = torch.zeros(ragged.n_slots, dtype=torch.bool, device=learn.device)
    occurs[ragged.slots(learn).flatten()] = True
    known = occurs[ragged.slots(check)].all(1)
    # otherwise no row would be left
    return known if bool(known.any()) else torch.ones_like(known)


def train_vae(
    vae: TokenVae,
    num: Tensor,
    cat: Tensor,
    learn: Tensor,
    check: Tensor,
    settings: VaeSettings,
    noise: torch.Generator,
    clock: Clock,
) -> dict[str, object]:
    """Train the autoencoder on the rows `learn`; the rows `check` control β and lr.

    The validation loss is the cross-entropy alone, as published, or the squared error
    if no column is categorical.

    Returns
    -------
    dict
        Steps completed, the last validation loss, the last β and why training ended.
    """
    device = noise.device
    # a captured step reads β from this tensor
    beta_tensor = torch.tensor(settings.beta, dtype=torch.float32, device=device)
    beta = settings.beta
    held_num, held_cat = num[check], cat[check]
    known = known_levels(vae.ragged, cat[learn], held_cat)
    held_num, held_cat = held_num[known], held_cat[known]
    shape = (num.shape[1] + cat.shape[1], settings.token)

    def loss(rows: Tensor) -> Tensor:
        rows = learn.index_select(0, rows)
        some_num, some_cat = num.index_select(0, rows), cat.index_select(0, rows)
        eps = normal_like(some_num.new_empty(len(rows), *shape), noise)
        error, entropy, divergence = vae.terms(some_num, some_cat, eps)
        return error + entropy + beta_tensor * divergence

    # the same noise every time
    held_eps = normal_like(held_num.new_empty(len(held_num), *shape), noise)

    @torch.no_grad()
    def validation_loss() -> float:
        with allow_tf32(device):
            error, entropy, _ = vae.terms(held_num, held_cat, held_eps)
        return float(entropy if cat.shape[1] else error)

    trainer = Trainer(
        loss, vae.parameters(), len(learn), settings.batch_size, settings.lr, 0.0, noise
    )
    slow = Plateau(settings.slow_after)
    # β decreases one epoch earlier than the learning rate would
    relax = Plateau(settings.beta_after - 1, tolerance=0.0)
    ended, loss_now = "steps", math.inf
    while (left := settings.steps - trainer.done) > 0:
        trainer.steps(min(trainer.steps_to_epoch_end, left))
        loss_now = validation_loss()
        if slow.stalls(loss_now):
            trainer.lr *= settings.factor
        if relax.stalls(loss_now) and beta > settings.least_beta:
            beta *= settings.beta_factor
            beta_tensor.fill_(beta)
        if not math.isfinite(loss_now):
            ended = "loss not finite"
            break
        if clock.over:
            ended = "time"
            break
    return {"steps": trainer.done, "check": loss_now, "beta": beta, "ended": ended}


# -- diffusion of the latents ---------------------------------------------------


class TabSyn:
    """A trained TabSyn, see `fit`.

    Attributes
    ----------
    facts : dict
        Why training ended, and the results of `train_vae` and `train`.
    """

    def __init__(
        self,
        vae: TokenVae,
        net: RowDenoiser,
        blocks: Blocks,
        centre: Tensor,
        sampling_steps: int,
        facts: dict[str, object],
    ) -> None:
        self._vae, self._net, self._blocks = vae, net, blocks
        self._centre, self._sampling_steps = centre, sampling_steps
        self.facts = facts

    @torch.no_grad()
    def sample(self, n: int, seed: int) -> Rows:
        """Return `n` rows: scaled numbers, and codes."""
        device = self._centre.device
        noise = generator(device, stream_seed(seed, "sample"))

        def draw(size: int) -> tuple[Tensor, Tensor]:
            drawn = RowSampler(self._net, size, self._sampling_steps, noise).draw()
            latents = (drawn / SIGMA_DATA).view(size, *self._centre.shape)
            num, logits = self._vae.decode(latents + self._centre)
            return num, self._blocks.codes(logits)

        return in_chunks(draw, n)


@torch.no_grad()
def _latents(vae: TokenVae, num: Tensor, cat: Tensor) -> Tensor:
    """Return the latents of all rows, [n, d, token]."""
    with allow_tf32(num.device):
        chunks = zip(torch.split(num, CHUNK), torch.split(cat, CHUNK), strict=True)
        return torch.cat([vae.latents(*chunk) for chunk in chunks])


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
        Every cell is used, even where `observed` is False.
    settings : TabSynSettings
    seed : int
    device : torch.device
    seconds : float, optional
        Time limit; the autoencoder gets at most 40 %.

    Examples
    --------
    >>> import numpy as np
    >>> from augmask.table.table import Layout
    >>> rng = np.random.default_rng(0)
    >>> num, cat = rng.normal(size=(60, 1)), rng.integers(0, 2, (60, 1))
    >>> table = Table(num, cat, np.ones((60, 2), bool), Layout(("x",), ("y",), (2,)))
    >>> tiny = TabSynSettings(VaeSettings(steps=3), steps=3, units=8, sampling_steps=5)
    >>> model = fit(table, tiny, 0, torch.device("cpu"))
    >>> [part.shape for part in model.sample(5, seed=0)]
    [(5, 1), (5, 1)]
    """
    clock = Clock(seconds)
    blocks = Blocks(table.layout)
    num, cat, _ = on_device(table, device)
    learn, check = held_out(len(table), settings.held_out, seed)
    with seeded_init(stream_seed(seed, "init")):
        token, depth = settings.vae.token, settings.vae.depth
        # initialised on the CPU
        vae = TokenVae(table.layout.n_num, blocks.ragged, token, depth)
        width = token * table.layout.n_features
        net = tabsyn_net(width, settings.embedding, settings.units, settings.layers)
    blocks, vae, net = blocks.to(device), vae.to(device), net.to(device)
    noise = generator(device, stream_seed(seed, "vae"))
    vae_facts = train_vae(
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
    # scaled by one half, not by their deviation, as published
    rows = SIGMA_DATA * (latents - centre).flatten(1)
    noise = generator(device, stream_seed(seed, "noise"))
    trainer = Trainer(
        lambda some: net.loss(rows.index_select(0, some), noise).mean(),
        net.parameters(),
        len(rows),
        settings.batch_size,
        settings.lr,
        0.0,
        noise,
    )
    schedule = Schedule(
        settings.steps, settings.factor, settings.slow_after, settings.patience
    )
    net_facts = train(trainer, net, schedule, clock.part(1.0))
    facts: dict[str, object] = {
        "ended": net_facts["ended"],
        "vae": vae_facts,
        "diffusion": net_facts,
    }
    return TabSyn(vae, net, blocks, centre, settings.sampling_steps, facts)
