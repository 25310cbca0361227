"""Denoisers: per-cell losses in training, rows in sampling.

A backbone turns a batch of completed rows into one loss per cell and never sees which
cells were observed; `reduce` masks and averages. Names map to backbones here, and an
object of the right shape is accepted wherever a name is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from augmask.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from augmask.diffusion.base import Backbone
    from augmask.table.carrier import Layout

# name -> where the class is, so that naming a backbone imports only that one
BACKBONES: dict[str, str] = {"cdtd": "augmask.diffusion.cdtd:CDTD"}


def resolve_backbone(backbone: str | Callable[..., Any]) -> Callable[..., Backbone]:
    """Return what builds the backbone: called with a `Layout` and network sizes.

    Examples
    --------
    >>> resolve_backbone("cdtd").__name__
    'CDTD'
    """
    if callable(backbone):
        return backbone
    if backbone not in BACKBONES:
        hint = did_you_mean(str(backbone), BACKBONES)
        raise UsageError(f"there is no backbone {backbone!r}{hint}")
    module, _, name = BACKBONES[backbone].partition(":")
    built: Callable[..., Backbone] = getattr(importlib.import_module(module), name)
    return built


def build_backbone(
    backbone: str | Callable[..., Any], layout: Layout, seed: int, **sizes: Any
) -> Backbone:
    """Build a backbone whose first weights depend on `seed` alone.

    torch modules draw their weights from torch's default generator. It is lent the
    state of our own stream while the module is built and given back as it was, so
    that a user's backbone is reproducible too and nobody's global state moves.
    """
    import torch

    ours = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.set_state(ours.get_state())
        return resolve_backbone(backbone)(layout, **sizes)
