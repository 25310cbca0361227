"""Validation of plans: known keys, values of the right type, options of baselines.

The settings of a baseline are a frozen dataclass of numbers, choices and tuples of
these. A field that is a dataclass itself lends its name as a prefix: `steps` of the
field `vae` is the option `vae_steps`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from augmask.errors import UsageError, did_you_mean
from augmask.validation import InvalidValue, ValueSpec, spec_for

TYPES = {
    **{str: "text", int: "a whole number", float: "a number"},
    **{bool: "true or false", list: "a list", Mapping: "a table of settings"},
}


# -- keys and values of a plan --------------------------------------------------


def check_keys(entry: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Raise at the first unknown key."""
    known = list(known)
    for key in entry:
        if key not in known:
            raise UsageError(f"{place} has no key {key!r}{did_you_mean(key, known)}")


def typed(entry: Mapping[str, Any], key: str, types: Any, default: Any) -> Any:
    """Return a value after checking its type; a boolean is not a number."""
    value = entry.get(key, default)
    wrong = value is not None and not isinstance(value, types)
    if wrong or (isinstance(value, bool) and types is not bool):
        last = types[-1] if isinstance(types, tuple) else types
        raise UsageError(f"{key} must be {TYPES[last]}, got {value!r}")
    return value


def as_list(entry: Mapping[str, Any], key: str, types: Any, default: Any) -> list[Any]:
    """Return a list without duplicates; a single value becomes a list of one."""
    value = entry.get(key, default)
    items = value if isinstance(value, list) else [value]
    if not items:
        raise UsageError(f"{key} must not be an empty list")
    for item in items:
        typed({key: item}, key, types, None)
    return list(dict.fromkeys(items))


def texts(entry: Mapping[str, Any], key: str) -> list[str]:
    """Return a list of texts; empty if the key is missing."""
    return as_list(entry, key, str, None) if entry.get(key) else []


def one_of(key: str, value: str, known: Iterable[str]) -> str:
    """Return the value if it is a known one."""
    known = list(known)
    if value not in known:
        raise UsageError(f"there is no {key} {value!r}{did_you_mean(value, known)}")
    return value


# -- options of a baseline ------------------------------------------------------


def _without_none(annotation: Any) -> Any:
    """Return the type of an optional setting without None."""
    parts = get_args(annotation)
    if type(None) not in parts:
        return annotation
    return next(part for part in parts if part is not type(None))


def _spec(annotation: Any) -> ValueSpec:
    """Return the values that a scalar setting may have: no negative numbers."""
    spec = spec_for(annotation)
    if spec.choices:
        return spec
    return dataclasses.replace(spec, lowest=1 if spec.plain is int else 0)


def _convert(value: Any, annotation: Any) -> Any:
    """Return a value as a setting of that type, or raise `InvalidValue`."""
    annotation = _without_none(annotation)
    if get_origin(annotation) is tuple:
        items = value if isinstance(value, tuple) else (value,)
        return tuple(_convert(item, get_args(annotation)[0]) for item in items)
    return _spec(annotation).fitting(value)


def _describe(annotation: Any) -> str:
    """Return what a setting of that type must be, in words."""
    annotation = _without_none(annotation)
    if get_origin(annotation) is tuple:
        return f"a list, each {_describe(get_args(annotation)[0])}"
    return str(_spec(annotation))


def _annotations(settings: Any) -> dict[str, Any]:
    """Return the type of every setting by the name of its option."""
    annotations: dict[str, Any] = {}
    for name, annotation in get_type_hints(type(settings)).items():
        if dataclasses.is_dataclass(annotation):
            inner = _annotations(getattr(settings, name))
            annotations |= {f"{name}_{part}": inner[part] for part in inner}
        else:
            annotations[name] = annotation
    return annotations


def _replace(settings: Any, changes: Mapping[str, Any]) -> Any:
    values = {}
    for field in dataclasses.fields(settings):
        value, prefix = getattr(settings, field.name), f"{field.name}_"
        if dataclasses.is_dataclass(value):
            inner = {
                name.removeprefix(prefix): change
                for name, change in changes.items()
                if name.startswith(prefix)
            }
            values[field.name] = _replace(value, inner)
        elif field.name in changes:
            values[field.name] = changes[field.name]
    return dataclasses.replace(settings, **values)


def with_options(settings: Any, options: Iterable[tuple[str, Any]], owner: str) -> Any:
    """Return the settings with some of them changed, or raise.

    Parameters
    ----------
    settings : dataclass
    options : iterable of (name, value)
        A list is passed as a tuple.
    owner : str
        The generator, for messages.

    Examples
    --------
    >>> from augmask_bench.baselines.arf import PAPER
    >>> with_options(PAPER, [("num_trees", 3)], "arf")
    ArfSettings(num_trees=3, max_iters=10, min_node_size=5)
    >>> with_options(PAPER, [("trees", 3)], "arf")
    Traceback (most recent call last):
    augmask.errors.UsageError: arf has no option 'trees'; did you mean 'num_trees'?
    """
    annotations = _annotations(settings)
    changes = {}
    for name, value in options:
        if name not in annotations:
            hint = did_you_mean(name, annotations)
            raise UsageError(f"{owner} has no option {name!r}{hint}")
        try:
            changes[name] = _convert(value, annotations[name])
        except InvalidValue:
            raise UsageError(
                f"the option {name!r} of {owner} must be "
                f"{_describe(annotations[name])}, got {value!r}"
            ) from None
    return _replace(settings, changes)
