"""Reading the words of a plan: known keys, right types, one sentence if not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from augmask.errors import UsageError, did_you_mean

TYPES = {
    **{str: "text", int: "a whole number", float: "a number"},
    **{bool: "true or false", list: "a list", Mapping: "a table of settings"},
}


def check_keys(given: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Raise at the first key that is not known."""
    known = list(known)
    for key in given:
        if key not in known:
            raise UsageError(f"{place} has no key {key!r}{did_you_mean(key, known)}")


def typed(given: Mapping[str, Any], key: str, kinds: Any, default: Any) -> Any:
    """Return a value of the given type; a truth value is no number."""
    value = given.get(key, default)
    wrong = value is not None and not isinstance(value, kinds)
    if wrong or (isinstance(value, bool) and kinds is not bool):
        every = kinds if isinstance(kinds, tuple) else (kinds,)
        names = TYPES[every[-1]]
        raise UsageError(f"{key} must be {names}, got {value!r}")
    return value


def listed(given: Mapping[str, Any], key: str, kinds: Any, default: Any) -> list[Any]:
    """Return a list without repetitions; a single value is a list of one."""
    value = given.get(key, default)
    items = value if isinstance(value, list) else [value]
    if not items:
        raise UsageError(f"{key} must name at least one")
    for item in items:
        typed({key: item}, key, kinds, None)
    return list(dict.fromkeys(items))


def texts(given: Mapping[str, Any], key: str) -> list[str]:
    """Return a list of texts; an absent one is empty."""
    return listed(given, key, str, None) if given.get(key) else []


def chosen(key: str, value: str, known: Iterable[str]) -> str:
    """Return the value if it is one of those known."""
    known = list(known)
    if value not in known:
        raise UsageError(f"there is no {key} {value!r}{did_you_mean(value, known)}")
    return value
