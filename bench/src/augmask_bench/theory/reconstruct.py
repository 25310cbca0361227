"""φ(·; W): the reconstruction of a completed row by a backbone, for fixed W = (t, ε).

The paper studies the denoiser as a differentiable function of the missing values z of a
row, with diffusion time and noise fixed. Rows are therefore soft here: numbers,
followed by a weight for every level of every category (0 and 1 for a known level,
probabilities for an uncertain one). Reconstructions have the same coordinates: denoised
numbers and class probabilities.

Your own backbone is supported if it has a method `reconstruction(n, generator)` that
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
from augmask.augmentation.misspecification import perturb
from augmask.augmentation.moments import CatMoments, Moments
from augmask.diffusion import edm_preconditioning as edm
from augmask.diffusion.cdtd import CAT, CDTD, NUM
from augmask.diffusion.random_draws import (
    log_time,
    low_discrepancy,
    normal_like,
    uniform_like,
)
from augmask.diffusion.tabddpm import Step, TabDDPM
from augmask.diffusion.tabdiff import MIN_TIME, TabDiff
from augmask.errors import UsageError, not_fitted
from augmask.table.frames import read_frame
from augmask.table.table import Table

if TYPE_CHECKING:
    from augmask.augmentation import Augmenter
    from augmask.model import AugMask

Phi = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Denoiser:
    """A source of functions φ(·; W).

    Parameters
    ----------
    draw : callable
        `draw(n, generator)` draws time and noise for n rows and returns φ, from soft
        rows [n, d_num + S] to reconstructions [n, d_num + S]; rows do not interact.
        Times should be spread evenly over the n rows, from the first to the last.
    device : torch.device or str
        The device of rows and generators.
    """

    draw: Callable[[int, torch.Generator], Phi]
    device: torch.device | str = "cpu"


def _mean_points(weights: Tensor, points: Tensor, member: Tensor) -> Tensor:
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
    points = model.category_points().detach()

    def phi(x: Tensor) -> Tensor:
        num, weights = x[:, : model.n_num], x[:, model.n_num :]
        x_num = num + sigma[:, NUM, None] * noise_num
        x_cat = _mean_points(weights, points, model.ragged.member)
        x_cat = x_cat + sigma[:, CAT, None, None] * noise_cat
        denoised, logits = model.denoise(x_num, x_cat, sigma, time)
        return torch.cat([denoised, model.ragged.softmax(logits)], 1)

    return phi


def _tabddpm(model: TabDDPM, n: int, generator: torch.Generator) -> Phi:
    like = model.head.weight
    u = low_discrepancy(like.new_empty(n), generator)
    t = (u * model.timesteps).long().clamp(max=model.timesteps - 1)
    coefficients = model.step_table.index_select(1, t).sum(0).to(like.dtype)
    step = Step(*coefficients[:, :, None].unbind(1))
    time = model.time(t.to(like.dtype)).detach()
    eps = normal_like(like.new_empty(n, model.n_num), generator)
    empty = like.new_empty(n, len(model.cards))
    kept = uniform_like(empty, generator) < step.signal
    other = model.ragged.one_hot(model.uniform_codes(empty, generator), eps)
    kept_slots = kept.index_select(1, model.ragged.column)

    def phi(x: Tensor) -> Tensor:
        num, weights = x[:, : model.n_num], x[:, model.n_num :]
        x_num = step.signal.sqrt() * num + step.noise.sqrt() * eps
        soft = torch.where(kept_slots, weights, other)
        eps_hat, logits = model.predict(x_num, soft, time, step)
        # (x_t - √(1 - ᾱ) ε̂) / √ᾱ, written so that the clean numbers cancel exactly
        denoised = num + (step.noise / step.signal).sqrt() * (eps - eps_hat)
        return torch.cat([denoised, model.ragged.softmax(logits)], 1)

    return phi


def _tabdiff(model: TabDiff, n: int, generator: torch.Generator) -> Phi:
    net = model.net
    like = net.expand.weight
    t = low_discrepancy(like.new_empty(n), generator).clamp(min=MIN_TIME)
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
        levels = _mean_points(weights, net.tokens.levels, model.ragged.member)
        embedded = torch.lerp(levels, net.tokens.mask.expand_as(levels), masked)
        scaled = edm.scaled_input(noisy, sigma)[:, :, None] * net.tokens.scale
        tokens = net.encoder(torch.cat([scaled, embedded], 1) + net.tokens.bias)
        wide = net.expand(net.hidden(net.project(tokens.flatten(1)) + time))
        out, logits = net.heads(net.decoder(wide.view_as(tokens)))
        # a level that is not masked is known and not predicted
        p = torch.where(hidden_slots, model.ragged.softmax(logits), weights)
        return torch.cat([edm.denoised(noisy, out, sigma), p], 1)

    return phi


RECONSTRUCTIONS: dict[type, Callable[[Any, int, torch.Generator], Phi]] = {
    CDTD: _cdtd,
    TabDDPM: _tabddpm,
    TabDiff: _tabdiff,
}


def denoiser_of(backbone: Any) -> Denoiser:
    """Return the denoiser of a backbone.

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
    for kind, reconstruction in RECONSTRUCTIONS.items():
        if isinstance(backbone, kind):
            return Denoiser(partial(reconstruction, backbone), device)
    raise UsageError(
        f"cannot inspect the backbone {type(backbone).__name__}: it is not CDTD, "
        "TabDDPM or TabDiff and has no method `reconstruction`; add the method"
    )


def _with_placeholder_level(p: CatMoments, card: int) -> CatMoments:
    """Return probabilities with a zero for the placeholder level, if there is one."""
    short = card - p.p.shape[1]
    return CatMoments(np.pad(p.p, ((0, 0), (0, short)))) if short else p


def inspect_model(
    model: AugMask,
    data: Any,
    augmenter: str | Augmenter = "lgbm-s",
    *,
    rng: np.random.Generator,
) -> tuple[Denoiser, Table, Moments]:
    """Return what the diagnostics need: denoiser, table and moments.

    Parameters
    ----------
    model : AugMask
        Fitted.
    data : DataFrame, polars frame, Arrow table or path
        An incomplete table with the model's columns, usually the training table.
    augmenter : str or Augmenter
        A LightGBM augmenter, whose conditional moments are used; it is fitted here. It
        may differ from the augmenter of the training: to compare two models, use the
        same for both.
    rng : numpy.random.Generator

    Returns
    -------
    denoiser : Denoiser
    table : Table
        The encoded rows.
    moments : Moments
        μ̂, σ̂ and p̂ of all missing values.
    """
    if not hasattr(model, "backbone_"):
        raise not_fitted(model)
    spread = model.seed if model.settings_.ties == "dequantize" else None
    table = model.codec_.encode(read_frame(data), spread)
    fitted: Any = resolve_augmenter(augmenter)
    fitted.fit(table, rng)
    if not hasattr(fitted, "moments_"):
        raise UsageError(
            f"the augmenter {type(fitted).__name__} has no conditional variances; use "
            "'lgbm-s' or 'lgbm-s-calibrated'"
        )
    perturbed = perturb(table, fitted.moments_, fitted.eta, fitted.lam)
    layout = model.layout_
    cat = [
        _with_placeholder_level(p, card)
        for p, card in zip(perturbed.cat, layout.cards, strict=True)
    ]
    table = table.filled(table.num, table.cat, layout)
    return (
        denoiser_of(model.backbone_),
        table,
        replace(perturbed, cat=tuple(cat)),
    )
