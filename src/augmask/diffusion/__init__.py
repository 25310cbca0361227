"""Denoisers: per-cell losses in training, rows in sampling.

A backbone turns a batch of completed rows into one loss per cell and never sees which
cells were observed; `reduce` masks and averages. Names map to backbones here, and an
object of the right shape is accepted wherever a name is.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from augmask.diffusion.keywords import signature_kinds
from augmask.errors import UsageError, did_you_mean
from augmask.validation import ValueSpec

if TYPE_CHECKING:
    from augmask.diffusion.base import Backbone
    from augmask.table.table import Layout

# name -> where the class is, so that naming a backbone imports only that one
BACKBONES: dict[str, str] = {
    "cdtd": "augmask.diffusion.cdtd:CDTD",
    "tabdiff": "augmask.diffusion.tabdiff:TabDiff",
    "tabddpm": "augmask.diffusion.tabddpm:TabDDPM",
}
NEEDED = ("cell_loss", "sample", "parameters", "state_dict")


class _Ready:
    """A maker of copies of a module that a user has built already."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.solvers = getattr(module, "solvers", None)

    def __call__(self, _layout: Layout) -> Backbone:
        made: Backbone = copy.deepcopy(self.module)
        return made


def resolve_backbone(backbone: Any) -> Callable[..., Backbone]:
    """Return what builds the backbone: called with a `Layout` and its own keywords.

    Parameters
    ----------
    backbone : str, callable or module
        A name, a class or function that is called with the layout, or a module that
        is copied for every fit.

    Examples
    --------
    >>> resolve_backbone("cdtd").__name__
    'CDTD'
    """
    if isinstance(backbone, str):
        if backbone not in BACKBONES:
            hint = did_you_mean(backbone, BACKBONES)
            raise UsageError(f"there is no backbone {backbone!r}{hint}")
        module, _, name = BACKBONES[backbone].partition(":")
        built: Callable[..., Backbone] = getattr(importlib.import_module(module), name)
        return built
    if hasattr(backbone, "cell_loss") and not isinstance(backbone, type):
        return _Ready(backbone)
    if callable(backbone):
        return cast("Callable[..., Backbone]", backbone)
    raise UsageError(
        "a backbone is a name, a class, or a module with the methods cell_loss and "
        f"sample, got {backbone!r}"
    )


def keywords_of(backbone: Any) -> dict[str, ValueSpec] | None:
    """Return what the backbone can be built with, and what each may be; None for any.

    Examples
    --------
    >>> str(keywords_of("cdtd")["depth"])
    'a whole number of at least 1 and at most 100'
    """
    return signature_kinds(resolve_backbone(backbone), isinstance(backbone, str))


def check_sampler(backbone: Any, steps: int, solver: str, **keywords: Any) -> None:
    """Raise now if sampling would be refused after a long training.

    An empty solver is the backbone's published one. Our own backbones are rehearsed on
    a table of one column; of a user's only the names of its solvers can be known.
    """
    known = getattr(resolve_backbone(backbone), "solvers", None)
    if solver and known is not None and solver not in known:
        raise UsageError(
            f"solver must be one of {tuple(known)} for this backbone, got {solver!r}"
        )
    if isinstance(backbone, str):
        from augmask.table.table import Layout

        toy: Any = build_backbone(backbone, Layout(("x",), (), ()), 0, **keywords)
        toy.check_sampler(steps, solver or toy.solvers[0])


def build_backbone(
    backbone: Any, layout: Layout, seed: int, **keywords: Any
) -> Backbone:
    """Build a backbone whose first weights depend on `seed` alone.

    So a user's backbone is reproducible too.
    """
    from augmask.diffusion.noise import first_weights

    with first_weights(seed):
        built = resolve_backbone(backbone)(layout, **keywords)
    lacking = [name for name in NEEDED if not hasattr(built, name)]
    if lacking:
        raise UsageError(
            f"a backbone needs {', '.join(NEEDED)}, and {type(built).__name__} lacks "
            f"{', '.join(lacking)}; see augmask.diffusion.base.Backbone"
        )
    return built


def build_members(
    backbone: Any, layout: Layout, seeds: Sequence[int], **keywords: Any
) -> tuple[list[Backbone], Backbone]:
    """Build a backbone for every seed, and what is sampled from: it, or all in turn."""
    members = [build_backbone(backbone, layout, seed, **keywords) for seed in seeds]
    if len(members) == 1:
        return members, members[0]
    from augmask.diffusion.ensemble import Ensemble

    return members, cast("Backbone", Ensemble(members))
