"""Diffusion models: losses per cell in training, rows in sampling.

A backbone turns a batch of completed rows into one loss per cell and never sees which
cells were observed; `reduce` masks and averages. This module maps names to backbones;
wherever a name is accepted, so is a class or module that follows `base.Backbone`.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast, get_type_hints

from augmask.errors import UsageError, brief_repr, choices
from augmask.validation import ValueSpec, spec_for

if TYPE_CHECKING:
    from augmask.diffusion.base import Backbone
    from augmask.table.table import Layout

# name -> location of the class, so that using one backbone does not import the others
BACKBONES: dict[str, str] = {
    "cdtd": "augmask.diffusion.cdtd:CDTD",
    "tabdiff": "augmask.diffusion.tabdiff:TabDiff",
    "tabddpm": "augmask.diffusion.tabddpm:TabDDPM",
}
REQUIRED = ("cell_loss", "sample", "parameters", "state_dict")

# Bounds of our own backbones' keywords; a layer of 16,384 units has a GiB of weights.
MAX_SIZE = {
    "width": 16_384,
    "time_width": 16_384,
    "cat_width": 1_024,
    "token_width": 1_024,
    "depth": 100,
}
MAX_OTHER_SIZE = 100_000
MIN_SIZE = {"time_width": 2}  # half are sines, half cosines
POSITIVE = ("low_noise",)


class _CopyOf:
    """Builds copies of a module that the user has already built."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.solvers = getattr(module, "solvers", None)

    def __call__(self, _layout: Layout) -> Backbone:
        return cast("Backbone", copy.deepcopy(self.module))


def resolve_backbone(backbone: Any) -> Callable[..., Backbone]:
    """Return the callable that builds a backbone from a `Layout` and keywords.

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
            hint = choices(backbone, BACKBONES)
            raise UsageError(f"there is no backbone {backbone!r}{hint}")
        module, _, name = BACKBONES[backbone].partition(":")
        return cast(
            "Callable[..., Backbone]", getattr(importlib.import_module(module), name)
        )
    if hasattr(backbone, "cell_loss") and not isinstance(backbone, type):
        return _CopyOf(backbone)
    # such as the type int
    builtin = getattr(backbone, "__module__", "") == "builtins"
    if callable(backbone) and not builtin:
        return cast("Callable[..., Backbone]", backbone)
    raise UsageError(
        "a backbone is a name, a class, or a module with the methods cell_loss and "
        f"sample, got {brief_repr(backbone)}"
    )


def keywords_of(backbone: Any) -> dict[str, ValueSpec] | None:
    """Return the keywords that a backbone accepts and their types.

    Types come from the annotations (`anneal: bool`, `anchor: float | None`); numbers of
    our own backbones are bounded as well. None means that any keyword is accepted.

    Examples
    --------
    >>> str(keywords_of("cdtd")["depth"])
    'a whole number of at least 1 and at most 100'
    >>> def net(layout, *, bias: bool = True): ...
    >>> str(keywords_of(net)["bias"])
    'true or false'
    """
    build = resolve_backbone(backbone)
    parameters = list(inspect.signature(build).parameters.values())
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return None
    names = _annotation_globals(build)
    specs = {
        p.name: spec_for(
            None
            if p.annotation is p.empty
            else _evaluated_annotation(p.annotation, names)
        )
        for p in parameters[1:]
    }
    if isinstance(backbone, str):
        return {name: _bounded_spec(name, spec) for name, spec in specs.items()}
    return specs


def check_sampler(backbone: Any, steps: int, solver: str, **keywords: Any) -> None:
    """Raise now if sampling with these settings would fail after a long training.

    An empty solver is the backbone's default. Our own backbones are checked on a table
    of one column, other ones by the names of their solvers only.
    """
    solvers = getattr(resolve_backbone(backbone), "solvers", None)
    if solver and solvers is not None and solver not in solvers:
        raise UsageError(
            f"solver must be one of {tuple(solvers)} for this backbone, got {solver!r}"
        )
    if isinstance(backbone, str):
        from augmask.table.table import Layout

        toy: Any = build_backbone(backbone, Layout(("x",), (), ()), 0, **keywords)
        toy.check_sampler(steps, solver or toy.solvers[0])


def build_backbone(
    backbone: Any, layout: Layout, seed: int, **keywords: Any
) -> Backbone:
    """Build a backbone whose initial weights depend on `seed` alone."""
    from augmask.diffusion.random_draws import seeded_init

    with seeded_init(seed):
        built = resolve_backbone(backbone)(layout, **keywords)
    lacking = [name for name in REQUIRED if not hasattr(built, name)]
    if lacking:
        raise UsageError(
            f"a backbone needs {', '.join(REQUIRED)}, and {type(built).__name__} lacks "
            f"{', '.join(lacking)}; see augmask.diffusion.base.Backbone"
        )
    return built


def build_members(
    backbone: Any, layout: Layout, seeds: Sequence[int], **keywords: Any
) -> tuple[list[Backbone], Backbone]:
    """Build a backbone per seed; return them and their ensemble (or the only one)."""
    members = [build_backbone(backbone, layout, seed, **keywords) for seed in seeds]
    if len(members) == 1:
        return members, members[0]
    from augmask.diffusion.ensemble import Ensemble

    return members, cast("Backbone", Ensemble(members))


# -- keywords ----------------------------------------------------------------------


def _annotation_globals(build: Callable[..., Any]) -> dict[str, Any]:
    """Return the names that annotations of a class or function may use."""
    target: Any = getattr(build, "func", build)  # of a partial
    if isinstance(target, type):
        target = inspect.getattr_static(target, "__init__")
    names: dict[str, Any] = getattr(inspect.unwrap(target), "__globals__", {})
    return names


def _evaluated_annotation(annotation: Any, names: dict[str, Any]) -> Any:
    """Return an annotation that may be text; None if it cannot be evaluated."""
    holder: Any = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(holder, names).get("it")
    except Exception:
        # the user's text, whose names may exist for a type checker only
        return None


def _bounded_spec(name: str, spec: ValueSpec) -> ValueSpec:
    """Add the bounds of a keyword of one of our own backbones."""
    if spec.plain is int:
        highest = MAX_SIZE.get(name, MAX_OTHER_SIZE)
        return dataclasses.replace(spec, lowest=MIN_SIZE.get(name, 1), highest=highest)
    if spec.plain is float and name in POSITIVE:
        return dataclasses.replace(spec, above=0)
    if spec.plain is float:
        return dataclasses.replace(spec, lowest=0)
    return spec
