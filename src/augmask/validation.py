"""What a setting may be: its type, its bounds, and how text is read as it.

Settings come from Python, from plans and from command lines, where all is text. Here is
the one place that says whether a value will do, and makes it plain: a model file takes
no numpy number and no infinity.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from augmask.errors import UsageError, shown

TYPES = {int: "a whole number", float: "a finite number", bool: "true or false"}
WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False}
WORDS |= {"off": False}


class Misfit(Exception):
    """A value that will not do."""


@dataclass(frozen=True)
class ValueSpec:
    """The values that one setting may have.

    Parameters
    ----------
    plain : type, optional
        `int`, `float`, `bool` or `str`; None for anything that a model file can hold.
    choices : tuple
        If there are any, the only values.
    optional : bool
        Whether it may be None.
    lowest, above, highest, below : float, optional
        Bounds of a number, with and without the bound itself.

    Examples
    --------
    >>> width = ValueSpec(int, lowest=1, highest=100)
    >>> width.checked("width", width.read("32"))
    32
    >>> width.checked("width", width.read("-1"))
    Traceback (most recent call last):
    augmask.errors.UsageError: width must be a whole number of at least 1 and at most \
100, got -1
    >>> ValueSpec(bool).read("false")
    False
    """

    plain: type | None = None
    choices: tuple[Any, ...] = ()
    optional: bool = False
    lowest: float | None = None
    above: float | None = None
    highest: float | None = None
    below: float | None = None

    def read(self, text: str) -> Any:
        """Return what the text means here; the text itself if it means nothing."""
        word = text.strip().lower()
        if self.optional and word == "none":
            return None
        if self.choices:
            meant = [each for each in self.choices if str(each).lower() == word]
            return meant[0] if meant else text
        if self.plain is bool:
            return WORDS.get(word, text)
        if self.plain is str:
            return text
        if self.plain is None and word in ("true", "false"):
            return WORDS[word]
        for number in (int, float) if self.plain is None else (self.plain,):
            try:
                return number(text)
            except ValueError:
                continue
        return text

    def checked(self, name: str, value: Any) -> Any:
        """Return the value as plain Python has it, or say what it should have been."""
        try:
            return self.fitting(value)
        except Misfit:
            raise UsageError(f"{name} must be {self}, got {shown(value)}") from None

    def fitting(self, value: Any) -> Any:
        """Return the value as plain Python has it, or raise `Misfit`."""
        if value is None and self.optional:
            return None
        if self.choices:
            # 1 is not True
            for each in self.choices:
                if type(value) is type(each) and value == each:
                    return each
            raise Misfit
        if self.plain is None:
            return _storable(value)
        if isinstance(value, bool | np.bool_):
            if self.plain is not bool:
                raise Misfit
            return bool(value)
        if self.plain is str and isinstance(value, str):
            return str(value)
        if self.plain is int and isinstance(value, Integral):
            return self._within(int(value))
        if self.plain is float and isinstance(value, Real):
            try:
                number = float(value)
            except OverflowError:
                raise Misfit from None
            if math.isfinite(number):
                return self._within(number)
        raise Misfit

    def _within(self, value: Any) -> Any:
        if (
            (self.lowest is not None and value < self.lowest)
            or (self.above is not None and value <= self.above)
            or (self.highest is not None and value > self.highest)
            or (self.below is not None and value >= self.below)
        ):
            raise Misfit
        return value

    def __str__(self) -> str:
        if self.choices:
            what = "one of " + ", ".join(map(repr, self.choices))
        elif self.plain is None:
            what = "of numbers, text, true, false, and lists of these"
        else:
            what = TYPES.get(self.plain, "text")
            bounds = {
                "of at least": self.lowest,
                "above": self.above,
                "at most": self.highest,
                "below": self.below,
            }
            said = [f"{w} {b:,}" for w, b in bounds.items() if b is not None]
            what = " ".join([what, " and ".join(said)]) if said else what
        return f"{what} or none" if self.optional else what


def _storable(value: Any) -> Any:
    """Return a value of unknown type if a model file can hold it."""
    if isinstance(value, np.generic):
        value = value.item()
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise Misfit from None
    return value


def value_kind(annotation: Any) -> ValueSpec:
    """Return what an annotation says of a value; anything where it says little.

    Examples
    --------
    >>> str(value_kind(float | None))
    'a finite number or none'
    """
    optional = False
    if get_origin(annotation) in (Union, UnionType):
        parts = [part for part in get_args(annotation) if part is not NoneType]
        optional = len(parts) < len(get_args(annotation))
        annotation = parts[0] if len(parts) == 1 else None
    if get_origin(annotation) is Literal:
        return ValueSpec(None, get_args(annotation), optional)
    if annotation in (int, float, bool, str):
        return ValueSpec(annotation, (), optional)
    return ValueSpec()
