"""Options of a plan onto frozen settings: known names and right types.

Settings are dataclasses of whole numbers, numbers, choices and lists of these. A part
that is a dataclass itself lends its name: `steps` of the part `vae` is `vae_steps`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from augmask.errors import UsageError, did_you_mean
from augmask.validation import Misfit, ValueSpec, value_kind


def _bare(kind: Any) -> Any:
    """Return the type of an optional setting without its None."""
    parts = get_args(kind)
    if type(None) not in parts:
        return kind
    return next(part for part in parts if part is not type(None))


def _bounded(kind: Any) -> ValueSpec:
    """Return what a setting that is no list may be."""
    found = value_kind(kind)
    if found.choices:
        return found
    return dataclasses.replace(found, lowest=1 if found.plain is int else 0)


def _fitting(value: Any, kind: Any) -> Any:
    """Return a value as a setting of that type."""
    kind = _bare(kind)
    if get_origin(kind) is tuple:
        many = value if isinstance(value, tuple) else (value,)
        return tuple(_fitting(each, get_args(kind)[0]) for each in many)
    return _bounded(kind).fitting(value)


def _described(kind: Any) -> str:
    """Return what a setting of that type must be, in words."""
    kind = _bare(kind)
    if get_origin(kind) is tuple:
        return f"a list, each {_described(get_args(kind)[0])}"
    return str(_bounded(kind))


def _kinds(settings: Any) -> dict[str, Any]:
    """Return the type of every setting by its name."""
    found: dict[str, Any] = {}
    for name, kind in get_type_hints(type(settings)).items():
        if dataclasses.is_dataclass(kind):
            inner = _kinds(getattr(settings, name))
            found |= {f"{name}_{part}": what for part, what in inner.items()}
        else:
            found[name] = kind
    return found


def _replaced(settings: Any, changes: Mapping[str, Any]) -> Any:
    own = {}
    for field in dataclasses.fields(settings):
        value, begins = getattr(settings, field.name), f"{field.name}_"
        if dataclasses.is_dataclass(value):
            inner = {
                name.removeprefix(begins): change
                for name, change in changes.items()
                if name.startswith(begins)
            }
            own[field.name] = _replaced(value, inner)
        elif field.name in changes:
            own[field.name] = changes[field.name]
    return dataclasses.replace(settings, **own)


def with_options(settings: Any, options: Iterable[tuple[str, Any]], whose: str) -> Any:
    """Return settings of which some are changed, or raise.

    Parameters
    ----------
    settings : dataclass
    options : iterable of (name, value)
        A list is given as a tuple.
    whose : str
        How messages call the owner of the settings.

    Examples
    --------
    >>> from augmask_bench.baselines.arf import PAPER
    >>> with_options(PAPER, [("num_trees", 3)], "arf")
    ArfSettings(num_trees=3, max_iters=10, min_node_size=5)
    >>> with_options(PAPER, [("trees", 3)], "arf")
    Traceback (most recent call last):
    augmask.errors.UsageError: arf has no option 'trees'; did you mean 'num_trees'?
    """
    kinds = _kinds(settings)
    changes = {}
    for name, value in options:
        if name not in kinds:
            hint = did_you_mean(name, kinds)
            raise UsageError(f"{whose} has no option {name!r}{hint}")
        try:
            changes[name] = _fitting(value, kinds[name])
        except Misfit:
            raise UsageError(
                f"the option {name!r} of {whose} must be {_described(kinds[name])}, "
                f"got {value!r}"
            ) from None
    return _replaced(settings, changes)
