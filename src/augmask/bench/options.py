"""Options of a plan onto frozen settings: known names and right types.

Settings are dataclasses of whole numbers, numbers, choices and lists of these. A part
that is a dataclass itself lends its name: `steps` of the part `vae` is `vae_steps`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from augmask.errors import UsageError, did_you_mean


class _Misfit(Exception):
    """A value that is none of its setting."""


def _bare(kind: Any) -> Any:
    """Return the type of an optional setting without its None."""
    parts = get_args(kind)
    if type(None) not in parts:
        return kind
    return next(part for part in parts if part is not type(None))


def _fitting(value: Any, kind: Any) -> Any:
    """Return a value as a setting of that type."""
    kind = _bare(kind)
    form, parts = get_origin(kind), get_args(kind)
    if form is tuple:
        many = value if isinstance(value, tuple) else (value,)
        return tuple(_fitting(each, parts[0]) for each in many)
    if form is Literal:
        fine = value in parts
    elif kind is int:
        fine = type(value) is int and value >= 1
    else:
        fine = type(value) in (int, float) and 0 <= value < math.inf
    if not fine:
        raise _Misfit
    # 1 and 1.0 are the same setting, and must give a run the same name
    return float(value) if kind is float else value


def _described(kind: Any) -> str:
    """Return what a setting of that type must be, in words."""
    kind = _bare(kind)
    form, parts = get_origin(kind), get_args(kind)
    if form is tuple:
        return f"a list, each {_described(parts[0])}"
    if form is Literal:
        return "one of " + ", ".join(map(repr, parts))
    if kind is int:
        return "a whole number of at least 1"
    return "a finite number of at least 0"


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
    >>> from augmask.baselines.arf import PAPER
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
        except _Misfit:
            raise UsageError(
                f"the option {name!r} of {whose} must be {_described(kinds[name])}, "
                f"got {value!r}"
            ) from None
    return _replaced(settings, changes)
