"""TabSyn's autoencoder: every cell becomes four numbers of a smooth latent space.

Cells are tokens, of which two small transformers make the mean and the log variance of
four latent numbers each; a third reads latents back. The weight β of the pull towards
the standard normal falls while the check on rows held out does not become better: at
the end cells come back as they were, and the space is still smooth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from augmask.device import fast_matmul
from augmask.diffusion.noise import normal_like
from augmask.diffusion.ragged import Ragged
from augmask.diffusion.tokens import Heads, Tokenizer, transformer
from augmask_bench.baselines.descent import Clock, Descent, Plateau


@dataclass(frozen=True)
class VaeSettings:
    """How the autoencoder learns; the defaults are the published ones.

    Parameters
    ----------
    steps, batch, lr
    token, depth : int
        Width of a token and blocks of a transformer.
    beta, least_beta : float
        Where β starts, and below which it does not fall further.
    beta_factor, beta_after : float and int
        What β is multiplied by, and after how many epochs without a better check.
    factor, slow_after : float and int
        The same for the learning rate.
    """

    steps: int = 9_000
    batch: int = 4096
    lr: float = 1e-3
    token: int = 4
    depth: int = 2
    beta: float = 1e-2
    least_beta: float = 1e-5
    beta_factor: float = 0.7
    beta_after: int = 10
    factor: float = 0.95
    slow_after: int = 10


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
        # stands before the cells; what comes of it is not part of the latent
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
        """Return squared error, cross-entropy and divergence, each as a mean.

        `eps` is the noise of the latents, in units of their deviation.
        """
        mean, log_variance = self.encode(num, cat)
        latents = mean + (log_variance / 2).exp() * eps
        numbers, logits = self.decode(latents)
        # a mean over no column is 0 here, not NaN
        error = (numbers - num).square().sum() / max(num.numel(), 1)
        entropy = self.ragged.cross_entropy(logits, cat).sum() / max(cat.numel(), 1)
        ema_weight = mean.square() + log_variance.exp() - 1 - log_variance
        return error, entropy, ema_weight.mean() / 2


def known_levels(ragged: Ragged, learn: Tensor, check: Tensor) -> Tensor:
    """Return which of the rows to check on have no level that is new to the learner.

    Examples
    --------
    >>> ragged = Ragged((3,))
    >>> known_levels(ragged, torch.tensor([[0], [1]]), torch.tensor([[2], [1]]))
    tensor([False,  True])
    """
    seen = torch.zeros(ragged.n_slots, dtype=torch.bool, device=learn.device)
    seen[ragged.slots(learn).flatten()] = True
    known = seen[ragged.slots(check)].all(1)
    # or there is nothing to check on
    return known if bool(known.any()) else torch.ones_like(known)


def learn_vae(
    vae: TokenVae,
    num: Tensor,
    cat: Tensor,
    learn: Tensor,
    check: Tensor,
    settings: VaeSettings,
    noise: torch.Generator,
    clock: Clock,
) -> dict[str, object]:
    """Train the autoencoder on the rows `learn`; `check` decides about β and the rate.

    Watched is the cross-entropy alone, as published, or the squared error where no
    column is a category.

    Returns
    -------
    dict
        Steps done, the last check, β at the end and why it ended.
    """
    device = noise.device
    # a recorded step reads it where it lies
    beta_there = torch.tensor(settings.beta, dtype=torch.float32, device=device)
    beta = settings.beta
    held_num, held_cat = num[check], cat[check]
    known = known_levels(vae.ragged, cat[learn], held_cat)
    held_num, held_cat = held_num[known], held_cat[known]
    shape = (num.shape[1] + cat.shape[1], settings.token)

    def loss(rows: Tensor) -> Tensor:
        rows = learn.index_select(0, rows)
        some_num, some_cat = num.index_select(0, rows), cat.index_select(0, rows)
        eps = normal_like(some_num.new_empty(len(rows), *shape), noise)
        error, entropy, ema_weight = vae.terms(some_num, some_cat, eps)
        return error + entropy + beta_there * ema_weight

    # the same noise in every check
    held_eps = normal_like(held_num.new_empty(len(held_num), *shape), noise)

    @torch.no_grad()
    def checked() -> float:
        with fast_matmul(device):
            error, entropy, _ = vae.terms(held_num, held_cat, held_eps)
        return float(entropy if cat.shape[1] else error)

    descent = Descent(
        loss, vae.parameters(), len(learn), settings.batch, settings.lr, 0.0, noise
    )
    slow = Plateau(settings.slow_after)
    # falls in the epoch that completes them, not in the one after, as the rate does
    loosen = Plateau(settings.beta_after - 1, tolerance=0.0)
    ended, watched = "steps", math.inf
    while (left := settings.steps - descent.done) > 0:
        descent.steps(min(descent.steps_of_epoch, left))
        watched = checked()
        if slow.stalls(watched):
            descent.rate *= settings.factor
        if loosen.stalls(watched) and beta > settings.least_beta:
            beta *= settings.beta_factor
            beta_there.fill_(beta)
        if not math.isfinite(watched):
            ended = "loss not finite"
            break
        if clock.over:
            ended = "time"
            break
    return {"steps": descent.done, "check": watched, "beta": beta, "ended": ended}
