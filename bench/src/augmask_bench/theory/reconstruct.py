"""φ(·; W): what a backbone makes of a completed row, once its randomness W is fixed.

The paper studies the denoiser as a function of the values z in a row's holes, with the
diffusion time and noise W = (t, ε) held still. Values are moved continuously there, so
a row is soft here: its numbers, followed by a weight for every level of every category
(0 and 1 for a known level, probabilities for an uncertain one). What comes back has the
same coordinates: denoised numbers and class probabilities.

A backbone of your own takes part if it has a method `reconstruction(n, generator)` that
draws W for n rows and returns such a function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from augmask.augmentation import resolve_augmenter
from augmask.augmentation.moments import CatMoments, Moments
from augmask.augmentation.perturb import perturb
from augmask.diffusion import edm
from augmask.diffusion.cdtd import CAT, CDTD, NUM
from augmask.diffusion.noise import (
    log_time,
    low_discrepancy,
    normal_like,
    uniform_like,
)
from augmask.diffusion.tabddpm import Step, TabDDPM
from augmask.diffusion.tabdiff import EARLIEST, TabDiff
from augmask.errors import NotFittedError, UsageError
from augmask.table.frames import read_frame
from augmask.table.table import Table

if TYPE_CHECKING:
    from augmask.augmentation.base import Augmenter
    from augmask.model import AugMask

Phi = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Denoiser:
    """A source of functions φ(·; W).

    Parameters
    ----------
    draw : callable
        `draw(n, generator)` fixes time and noise for n rows and returns φ, from soft
        rows [n, d_num + S] to reconstructions [n, d_num + S]; rows do not mix. Times
        are best spread evenly over the n rows, from the first to the last.
    device : torch.device or str
        Where rows and generators must be.
    """

    draw: Callable[[int, torch.Generator], Phi]
    device: torch.device | str = "cpu"


def _mixed(weights: Tensor, points: Tensor, member: Tensor) -> Tensor:
    """Return each column's mean point under its weights, [B, C, e]."""
    return torch.einsum("bs,se,sc->bce", weights, points, member)


def _cdtd(model: CDTD, n: int, generator: torch.Generator) -> Phi:
    like = model.embedding
    u = low_discrepancy(like.new_empty(n), generator)
    sigma = model.warp.sigma(u).detach()
    time = model.net.embed_time(log_time(u)).detach()
    noise_num = normal_like(like.new_empty(n, model.n_num), generator)
    shape = (n, model.n_cat, model.cat_width)
    noise_cat = normal_like(like.new_empty(shape), generator)
    points = model._points().detach()

    def phi(x: Tensor) -> Tensor:
        num, weights = x[:, : model.n_num], x[:, model.n_num :]
        x_num = num + sigma[:, NUM, None] * noise_num
        x_cat = _mixed(weights, points, model.ragged.member)
        x_cat = x_cat + sigma[:, CAT, None, None] * noise_cat
        denoised, logits = model._denoise(x_num, x_cat, sigma, time)
        return torch.cat([denoised, model.ragged.softmax(logits)], 1)

    return phi


def _tabddpm(model: TabDDPM, n: int, generator: torch.Generator) -> Phi:
    like = model.head.weight
    u = low_discrepancy(like.new_empty(n), generator)
    t = (u * model.timesteps).long().clamp(max=model.timesteps - 1)
    looked_up = model.step_table.index_select(1, t).sum(0).to(like.dtype)
    step = Step(*looked_up[:, :, None].unbind(1))
    time = model.time(t.to(like.dtype)).detach()
    eps = normal_like(like.new_empty(n, model.n_num), generator)
    empty = like.new_empty(n, len(model.cards))
    kept = uniform_like(empty, generator) < step.signal
    other = model.ragged.one_hot(model._uniform_codes(empty, generator), eps)
    kept_slots = kept.index_select(1, model.ragged.column)

    def phi(x: Tensor) -> Tensor:
        num, weights = x[:, : model.n_num], x[:, model.n_num :]
        x_num = step.signal.sqrt() * num + step.noise.sqrt() * eps
        soft = torch.where(kept_slots, weights, other)
        eps_hat, logits = model._predict(x_num, soft, time, step)
        # (x_t - √(1 - ᾱ) ε̂) / √ᾱ, written so that the clean numbers cancel exactly
        denoised = num + (step.noise / step.signal).sqrt() * (eps - eps_hat)
        return torch.cat([denoised, model.ragged.softmax(logits)], 1)

    return phi


def _tabdiff(model: TabDiff, n: int, generator: torch.Generator) -> Phi:
    net = model.net
    like = net.expand.weight
    t = low_discrepancy(like.new_empty(n), generator).clamp(min=EARLIEST)
    sigma = model.schedules.sigma(t).detach()
    time = net.embed_time(t).detach()
    noise = normal_like(like.new_empty(n, model.n_num), generator)
    empty = like.new_empty(n, model.n_cat)
    hidden = uniform_like(empty, generator) > 1 - model.schedules.mask(t)
    masked = hidden.to(like.dtype)[:, :, None]
    hidden_slots = hidden.index_select(1, model.ragged.column)

    def phi(x: Tensor) -> Tensor:
        num, weights = x[:, : model.n_num], x[:, model.n_num :]
        noisy = num + sigma * noise
        levels = _mixed(weights, net.tokens.levels, model.ragged.member)
        seen = torch.lerp(levels, net.tokens.mask.expand_as(levels), masked)
        scaled = edm.scaled_input(noisy, sigma)[:, :, None] * net.tokens.scale
        tokens = net.encoder(torch.cat([scaled, seen], 1) + net.tokens.bias)
        wide = net.expand(net.hidden(net.project(tokens.flatten(1)) + time))
        out, logits = net.heads(net.decoder(wide.view_as(tokens)))
        # A level that is not masked is known, and nothing is predicted about it.
        p = torch.where(hidden_slots, model.ragged.softmax(logits), weights)
        return torch.cat([edm.denoised(noisy, out, sigma), p], 1)

    return phi


DOORS: dict[type, Callable[[Any, int, torch.Generator], Phi]] = {
    CDTD: _cdtd,
    TabDDPM: _tabddpm,
    TabDiff: _tabdiff,
}


def denoiser_of(backbone: Any) -> Denoiser:
    """Return the denoiser inside a backbone.

    Examples
    --------
    >>> from augmask.table.table import Layout
    >>> inside = denoiser_of(CDTD(Layout(("x",), ("y",), (3,)), width=8, depth=1))
    >>> phi = inside.draw(2, torch.Generator().manual_seed(0))
    >>> phi(torch.tensor([[0.5, 0.0, 1.0, 0.0], [0.5, 0.2, 0.3, 0.5]])).shape
    torch.Size([2, 4])
    """
    device = next(backbone.parameters()).device
    if hasattr(backbone, "reconstruction"):
        return Denoiser(backbone.reconstruction, device)
    for kind, door in DOORS.items():
        if isinstance(backbone, kind):
            return Denoiser(partial(door, backbone), device)
    raise UsageError(
        "A denoiser can be looked into if its backbone is CDTD, TabDDPM or TabDiff or "
        f"has a method `reconstruction`, and {type(backbone).__name__} is none of "
        "these; add the method."
    )


def _padded(p: CatMoments, card: int) -> CatMoments:
    """Return probabilities with a zero for a placeholder level, if there is one."""
    short = card - p.p.shape[1]
    return CatMoments(np.pad(p.p, ((0, 0), (0, short)))) if short else p


def opened(
    model: AugMask,
    data: Any,
    augmenter: str | Augmenter = "lgbm-s",
    *,
    rng: np.random.Generator,
) -> tuple[Denoiser, Table, Moments]:
    """Return what the diagnostics of this folder look at: denoiser, table, moments.

    Parameters
    ----------
    model : AugMask
        Fitted.
    data : DataFrame, polars frame, Arrow table or path
        An incomplete table with the model's columns, in general the one it learned.
    augmenter : str or Augmenter
        The rule whose conditional moments are used, one of the LightGBM rules; it is
        fitted here. It need not be the rule that the model was trained with: to compare
        two models, use the same for both.
    rng : numpy.random.Generator

    Returns
    -------
    denoiser : Denoiser
    table : Table
        The rows as the model sees them.
    moments : Moments
        μ̂, σ̂ and p̂ of all holes.
    """
    if not hasattr(model, "backbone_"):
        raise NotFittedError("This AugMask is not fitted yet; call fit first.")
    spread = model.seed if model.settings_.ties == "dequantize" else None
    table = model.codec_.encode(read_frame(data), spread)
    rule: Any = resolve_augmenter(augmenter)
    rule.fit(table, rng)
    if not hasattr(rule, "moments_"):
        raise UsageError(
            "The sensitivity penalty weighs by conditional variances, which "
            f"{type(rule).__name__} does not have; use 'lgbm-s' or "
            "'lgbm-s-calibrated'."
        )
    bent = perturb(table, rule.moments_, rule.eta, rule.lam)
    layout = model.layout_
    cat = [_padded(p, card) for p, card in zip(bent.cat, layout.cards, strict=True)]
    table = table.filled(table.num, table.cat, layout)
    return denoiser_of(model.backbone_), table, replace(bent, cat=tuple(cat))
