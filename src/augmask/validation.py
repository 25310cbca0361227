"""Specifications of values: types, bounds, lists and records, checked in one place.

Settings, backbone keywords, schema files and the schema inside a model file come from
Python, TOML, JSON or a command line. A specification says which values are valid, reads
text as such a value, and returns plain Python (no numpy scalars, no infinities), which
is what a model file can store.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from augmask.errors import AugMaskError, UsageError, brief_repr, did_you_mean

TYPES = {
    int: "a whole number",
    float: "a finite number",
    Real: "a finite number",
    bool: "true or false",
    str: "text",
}
BOOLEANS = {"true": True, "yes": True, "on": True}
BOOLEANS |= {"false": False, "no": False, "off": False}


class InvalidValue(Exception):
    """A value breaks its specification: `path` to the culprit, `problem` with it."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem, self.path = problem, path


class Spec:
    """Base of all specifications: `str(spec)` completes the sentence "must be ..."."""

    def fitting(self, value: Any) -> Any:
        """Return the value in plain Python, or raise `InvalidValue`."""
        raise NotImplementedError

    def checked(
        self, name: str, value: Any, error: type[AugMaskError] = UsageError
    ) -> Any:
        """Return the value in plain Python, or raise an error of one sentence."""
        try:
            return self.fitting(value)
        except InvalidValue as invalid:
            where = f"{name}: {invalid.path}" if invalid.path else name
            raise error(f"{where} {invalid.problem}") from None

    def _invalid(self, value: Any) -> InvalidValue:
        return InvalidValue(f"must be {self}, got {brief_repr(value)}")


@dataclass(frozen=True)
class ValueSpec(Spec):
    """A single value: its type, its bounds, or the values to choose from.

    Parameters
    ----------
    plain : type, optional
        `int`, `float`, `bool`, `str`, or `numbers.Real` for an int or a float that
        stays what it is; None for anything that a model file can store.
    choices : tuple
        If not empty, the only valid values.
    optional : bool
        Whether None is valid.
    lowest, above, highest, below : float, optional
        Inclusive and exclusive bounds of a number.

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
        """Parse text from a command line; return it unchanged if it does not parse."""
        word = text.strip().lower()
        if self.optional and word == "none":
            return None
        if self.choices:
            matches = [each for each in self.choices if str(each).lower() == word]
            return matches[0] if matches else text
        if self.plain is bool:
            return BOOLEANS.get(word, text)
        if self.plain is str:
            return text
        if self.plain is None and word in ("true", "false"):
            return BOOLEANS[word]
        parsers = (int, float) if self.plain in (None, Real) else (self.plain,)
        for parse in parsers:
            try:
                return parse(text)
            except ValueError:
                continue
        return text

    def fitting(self, value: Any) -> Any:
        """Return the value in plain Python, or raise `InvalidValue`."""
        if value is None and self.optional:
            return None
        if self.choices:
            return self._choice(value)
        if self.plain is None:
            return self._storable(value)
        if isinstance(value, bool | np.bool_):
            if self.plain is bool:
                return bool(value)
        elif self.plain is str and isinstance(value, str):
            return str(value)
        elif self.plain is int and isinstance(value, Integral):
            return self._within(int(value))
        elif self.plain in (float, Real) and isinstance(value, Real):
            try:
                number = float(value)
            except OverflowError:
                raise self._invalid(value) from None
            if math.isfinite(number):
                if self.plain is Real and isinstance(value, Integral):
                    return self._within(int(value))
                return self._within(number)
        raise self._invalid(value)

    def _choice(self, value: Any) -> Any:
        text = isinstance(value, str)
        # numpy has texts of its own
        plain = str(value) if text else value
        # 1 == True, but they are different choices.
        for each in self.choices:
            if type(plain) is type(each) and plain == each:
                return each
        known = [each for each in self.choices if isinstance(each, str)]
        hint = did_you_mean(plain, known, every=False) if text else ""
        raise InvalidValue(self._invalid(value).problem + hint)

    def _storable(self, value: Any) -> Any:
        """Return a value of any type that JSON can store."""
        plain = value.item() if isinstance(value, np.generic) else value
        try:
            json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise self._invalid(value) from None
        return plain

    def _within(self, value: Any) -> Any:
        if (
            (self.lowest is not None and value < self.lowest)
            or (self.above is not None and value <= self.above)
            or (self.highest is not None and value > self.highest)
            or (self.below is not None and value >= self.below)
        ):
            raise self._invalid(value)
        return value

    def __str__(self) -> str:
        if self.choices:
            text = "one of " + ", ".join(map(repr, self.choices))
        elif self.plain is None:
            text = "of numbers, text, true, false, and lists of these"
        else:
            text = TYPES[self.plain]
            bounds = {
                "of at least": self.lowest,
                "above": self.above,
                "at most": self.highest,
                "below": self.below,
            }
            parts = [f"{w} {b:,}" for w, b in bounds.items() if b is not None]
            text = " ".join([text, " and ".join(parts)]) if parts else text
        return f"{text} or none" if self.optional else text


SEED = ValueSpec(int, lowest=0, highest=2**64 - 1)


@dataclass(frozen=True)
class AnyOf(Spec):
    """A value that meets at least one of several specifications.

    Examples
    --------
    >>> AnyOf(ValueSpec(str), ValueSpec(bool)).checked("level", 3)
    Traceback (most recent call last):
    augmask.errors.UsageError: level must be text or true or false, got 3
    """

    specs: tuple[Spec, ...]
    description: str

    def __init__(self, *specs: Spec, description: str = "") -> None:
        object.__setattr__(self, "specs", specs)
        object.__setattr__(self, "description", description)

    def fitting(self, value: Any) -> Any:
        """Return the value as the first specification that accepts it."""
        for spec in self.specs:
            try:
                return spec.fitting(value)
            except InvalidValue:
                continue
        raise self._invalid(value)

    def __str__(self) -> str:
        *first, last = map(str, self.specs)
        return self.description or " or ".join([", ".join(first), last])


@dataclass(frozen=True)
class ListSpec(Spec):
    """A list whose items share one specification, or have one each.

    Parameters
    ----------
    each : Spec or tuple of Spec
        A tuple fixes the length and specifies each position.
    shortest : int
        The smallest valid length.
    distinct : bool
        Whether all items must differ.
    single : bool
        Whether one item may stand without a list.

    Examples
    --------
    >>> ListSpec(ValueSpec(int), single=True).checked("codes", -9)
    [-9]
    >>> ListSpec(ValueSpec(int)).checked("codes", [1, "x"])
    Traceback (most recent call last):
    augmask.errors.UsageError: codes: [1] must be a whole number, got 'x'
    """

    each: Spec | tuple[Spec, ...]
    shortest: int = 0
    distinct: bool = False
    single: bool = False

    def fitting(self, value: Any) -> list[Any]:
        """Return a list of plain items, or raise `InvalidValue`."""
        if self.single and not isinstance(value, list | tuple | Mapping):
            value = [value]
        if not isinstance(value, list | tuple) or len(value) < self.shortest:
            raise self._invalid(value)
        specs = self.each if isinstance(self.each, tuple) else [self.each] * len(value)
        if len(specs) != len(value):
            raise self._invalid(value)
        items = []
        for i, (spec, item) in enumerate(zip(specs, value, strict=True)):
            try:
                items.append(spec.fitting(item))
            except InvalidValue as invalid:
                path = f"[{i}]{invalid.path}"
                raise InvalidValue(invalid.problem, path) from None
        if self.distinct and len(set(items)) < len(items):
            raise self._invalid(value)
        return items

    def __str__(self) -> str:
        if isinstance(self.each, tuple):
            return f"a list of {len(self.each)} items"
        least = f"at least {self.shortest} " if self.shortest else ""
        kind = "different items" if self.distinct else "items"
        return f"a list of {least}{kind}, each {self.each}"


@dataclass(frozen=True)
class RecordSpec(Spec):
    """A mapping with known keys.

    Parameters
    ----------
    fields : mapping of str to Spec
    required : collection of str, optional
        Keys that must be there; by default all of them.
    optional : bool
        Whether None is valid.
    noun : str
        What messages call a key.

    Examples
    --------
    >>> point = RecordSpec({"x": ValueSpec(float), "y": ValueSpec(float)}, ["x"])
    >>> point.checked("origin", {"x": 0})
    {'x': 0.0}
    >>> point.checked("origin", {"x": 0, "z": 0})
    Traceback (most recent call last):
    augmask.errors.UsageError: origin has the unknown key 'z'; known: x, y
    """

    fields: Mapping[str, Spec]
    required: Collection[str] | None = None
    optional: bool = False
    noun: str = "key"

    def fitting(self, value: Any) -> dict[str, Any] | None:
        """Return a dictionary of plain values, or raise `InvalidValue`."""
        if value is None and self.optional:
            return None
        if not isinstance(value, Mapping):
            raise self._invalid(value)
        for key in value:
            if key not in self.fields:
                hint = did_you_mean(str(key), self.fields)
                raise InvalidValue(
                    f"has the unknown {self.noun} {brief_repr(key)}{hint}"
                )
        needed = self.fields if self.required is None else self.required
        absent = [key for key in needed if key not in value]
        if absent:
            raise InvalidValue(f"must have the {self.noun} {absent[0]!r}")
        plain = {}
        for key, item in value.items():
            try:
                plain[key] = self.fields[key].fitting(item)
            except InvalidValue as invalid:
                path = f"{key}{invalid.path}"
                raise InvalidValue(invalid.problem, path) from None
        return plain

    def __str__(self) -> str:
        return f"a table with the {self.noun}s {', '.join(self.fields)}"


@dataclass(frozen=True)
class Refined(Spec):
    """A specification with a further condition that its type cannot express.

    Examples
    --------
    >>> even = Refined(ValueSpec(int), lambda n: n % 2 == 0, "an even number")
    >>> even.checked("n", 3)
    Traceback (most recent call last):
    augmask.errors.UsageError: n must be an even number, got 3
    """

    spec: Spec
    test: Callable[[Any], bool]
    description: str

    def fitting(self, value: Any) -> Any:
        """Return the plain value if it also passes the test."""
        plain = self.spec.fitting(value)
        if plain is not None and not self.test(plain):
            raise self._invalid(value)
        return plain

    def __str__(self) -> str:
        return self.description


def spec_for(annotation: Any) -> ValueSpec:
    """Return the specification that a type annotation implies.

    Examples
    --------
    >>> str(spec_for(float | None))
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
