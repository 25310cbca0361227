"""What a backbone can be built with: the names and the kinds of its keywords.

A signature says it: `anneal: bool`, `anchor: float | None`. Of our own backbones more
is known: sizes count from 1, no number is negative, and a network that no machine holds
is a slip.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_type_hints

from augmask.validation import ValueSpec, value_kind

# A hidden layer of 16,384 units has a GiB of weights.
MOST = {
    "width": 16_384,
    "time_width": 16_384,
    "cat_width": 1_024,
    "token_width": 1_024,
    "depth": 100,
}
MOST_OTHERS = 100_000
# half of these are sines and half cosines
LEAST = {"time_width": 2}
ABOVE_ZERO = ("low_noise",)


def _bounded(name: str, kind: ValueSpec) -> ValueSpec:
    """Return the kind of a keyword of one of our own backbones."""
    if kind.plain is int:
        most = MOST.get(name, MOST_OTHERS)
        return dataclasses.replace(kind, lowest=LEAST.get(name, 1), highest=most)
    if kind.plain is float and name in ABOVE_ZERO:
        return dataclasses.replace(kind, above=0)
    if kind.plain is float:
        return dataclasses.replace(kind, lowest=0)
    return kind


def _names_around(built: Callable[..., Any]) -> dict[str, Any]:
    """Return the names that annotations of a class or function may use."""
    made: Any = getattr(built, "func", built)  # of a partial
    code = inspect.getattr_static(made, "__init__") if isinstance(made, type) else made
    found: dict[str, Any] = getattr(inspect.unwrap(code), "__globals__", {})
    return found


def _meaning(annotation: Any, names: dict[str, Any]) -> Any:
    """Return an annotation that may be text; None if its names are not there."""
    held: Any = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(held, names).get("it")
    except Exception:
        # it is somebody else's text: names for a type checker only, for one
        return None


def signature_kinds(
    built: Callable[..., Any], own: bool
) -> dict[str, ValueSpec] | None:
    """Return the keywords after the layout and what each may be; None for any.

    Parameters
    ----------
    built : callable
        What builds the backbone.
    own : bool
        Whether it is one of augmask's.

    Examples
    --------
    >>> def net(layout, *, bias: bool = True): ...
    >>> str(signature_kinds(net, own=False)["bias"])
    'true or false'
    """
    parameters = list(inspect.signature(built).parameters.values())
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return None
    names = _names_around(built)
    kinds = {
        p.name: value_kind(None)
        if p.annotation is p.empty
        else value_kind(_meaning(p.annotation, names))
        for p in parameters[1:]
    }
    if own:
        return {name: _bounded(name, kind) for name, kind in kinds.items()}
    return kinds
