"""`Where`: which rows are wanted, as one condition per column.

A user writes a mapping or a text. Both become the same three forms, checked against
what the columns of the learned table can hold: `Exactly` a value, `OneOf` some values,
or `Between` two ends. A range over the levels of a category, where they have an order,
becomes the set of the levels within it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import ConditionError, did_you_mean
from augmask.table.schema import NUMERIC, Column, Schema
from augmask.table.where_text import Name, read_comparisons
from augmask.table.where_value import end_of, ends_of, levels_of, value_of

BoolArray = npt.NDArray[np.bool_]
_SETS = (list, set, frozenset, np.ndarray, pd.Index, pd.Series)
_MIRRORED = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ASIDE = {
    "identifier": "it is an identifier, which is made afresh",
    "constant": "it is constant",
    "all-missing": "it was never observed",
}


@dataclass(frozen=True)
class Exactly:
    """The cell has this value."""

    value: Any

    def holds(self, cells: pd.Series) -> BoolArray:
        """Say of each cell whether it is the value."""
        return _true(cells == self.value)


@dataclass(frozen=True)
class OneOf:
    """The cell has one of these values."""

    values: tuple[Any, ...]

    def holds(self, cells: pd.Series) -> BoolArray:
        """Say of each cell whether it is one of the values."""
        return _true(cells.isin(list(self.values)))


@dataclass(frozen=True)
class Between:
    """The cell lies between two ends, which belong to the range unless open."""

    low: Any
    high: Any
    open_low: bool = False
    open_high: bool = False

    def holds(self, cells: pd.Series) -> BoolArray:
        """Say of each cell whether it lies within."""
        above = cells > self.low if self.open_low else cells >= self.low
        below = cells < self.high if self.open_high else cells <= self.high
        return _true(above) & _true(below)


Condition = Exactly | OneOf | Between


def _true(answers: pd.Series) -> BoolArray:
    """Return plain booleans; a hole satisfies nothing."""
    return np.asarray(answers.fillna(False), dtype=np.bool_)


# -- all that is asked of one column --------------------------------------------


class _Asked:
    """Collects the comparisons with one column and joins them."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.values: list[Any] | None = None
        self.low: tuple[Any, bool] | None = None
        self.high: tuple[Any, bool] | None = None

    def is_one_of(self, values: Iterable[Any]) -> None:
        found = [value_of(self.column, value) for value in values]
        if self.values is not None:
            found = [value for value in found if value in self.values]
        self.values = list(dict.fromkeys(found))

    def is_beyond(self, sign: str, value: Any) -> None:
        end, is_open = end_of(self.column, value), sign in ("<", ">")
        if sign in (">", ">="):
            tighter = self.low is None or (end, is_open) > self.low
            self.low = (end, is_open) if tighter else self.low
        else:
            # Of two equal ends the open one is the tighter.
            tighter = self.high is None or (end, not is_open) < (
                self.high[0],
                not self.high[1],
            )
            self.high = (end, is_open) if tighter else self.high

    def _contradiction(self) -> ConditionError:
        return ConditionError(
            f"no value of column {self.column.name!r} can satisfy all that is asked "
            f"of it; it is of kind {self.column.kind} and {self._possible()}"
        )

    def _possible(self) -> str:
        if self.column.kind in NUMERIC:
            low, high = ends_of(self.column)
            return f"was observed from {low} to {high}"
        levels = levels_of(self.column)
        shown = ", ".join(repr(level) for level in levels[:5])
        return f"has the levels {shown}" + (", ..." if len(levels) > 5 else "")

    def _within(self, rank: Callable[[Any], Any]) -> Callable[[Any], bool]:
        """Return the test of being within both ends, compared by `rank`."""

        def within(value: Any) -> bool:
            for end, above in ((self.low, True), (self.high, False)):
                if end is None:
                    continue
                at, limit = rank(value), rank(end[0])
                beyond = at > limit if above else at < limit
                if not beyond and (end[1] or at != limit):
                    return False
            return True

        return within

    def condition(self) -> Condition:
        """Return the normal form, or say that no value is left."""
        column = self.column
        if column.kind not in NUMERIC:
            levels = levels_of(column)
            wanted = levels if self.values is None else self.values
            words = isinstance(levels[0], str)
            within = self._within(levels.index if words else lambda level: level)
            return self._listed([value for value in wanted if within(value)])
        low, high = ends_of(column)
        if self.values is not None:
            inside = self._within(lambda value: value)
            kept = [v for v in self.values if inside(v) and low <= v <= high]
            if column.kind == "integer":
                kept = [int(value) for value in kept if value == int(value)]
            return self._listed(kept)
        self.low = max(self.low or (low, False), (low, False))
        upper = self.high or (high, False)
        self.high = upper if upper[0] <= high else (high, False)
        return self._range()

    def _listed(self, values: list[Any]) -> Condition:
        if not values:
            raise self._contradiction()
        return Exactly(values[0]) if len(values) == 1 else OneOf(tuple(values))

    def _range(self) -> Condition:
        assert self.low is not None
        assert self.high is not None
        (low, open_low), (high, open_high) = self.low, self.high
        if low > high:
            raise self._contradiction()
        if self.column.kind == "integer":
            low = math.floor(low) + 1 if open_low else math.ceil(low)
            high = math.ceil(high) - 1 if open_high else math.floor(high)
            open_low = open_high = False
        if low > high or (low == high and (open_low or open_high)):
            raise self._contradiction()
        if low == high:
            return Exactly(low)
        return Between(low, high, open_low, open_high)


@dataclass(frozen=True)
class Where:
    """One condition per column; a row must satisfy all of them.

    Parameters
    ----------
    conditions : dict from column label to Condition

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> frame = pd.DataFrame({"age": [*range(20, 50)] * 2, "sex": ["f", "m", "m"] * 20})
    >>> where = read_where("sex == 'f' and 30 < age <= 40", infer_schema(frame))
    >>> where.conditions["age"]
    Between(low=31, high=40, open_low=False, open_high=False)
    >>> frame[where.holds(frame)]["age"].tolist()
    [32, 35, 38, 32, 35, 38]
    """

    conditions: dict[Any, Condition]

    @property
    def exact(self) -> dict[Any, Any]:
        """The columns that must have one value, and that value."""
        return {
            label: condition.value
            for label, condition in self.conditions.items()
            if isinstance(condition, Exactly)
        }

    @property
    def loose(self) -> dict[Any, Condition]:
        """The conditions that several values satisfy."""
        return {
            label: condition
            for label, condition in self.conditions.items()
            if not isinstance(condition, Exactly)
        }

    def holds(self, frame: pd.DataFrame) -> BoolArray:
        """Say of each row whether it satisfies every condition."""
        rows = np.ones(len(frame), dtype=np.bool_)
        for label, condition in self.conditions.items():
            rows &= condition.holds(frame[label])
        return rows


def learned_column(name: Any, schema: Schema, what: str) -> Column:
    """Return a learned column of that name; `what` names what asked for it."""
    found = [column for column in schema if column.name == str(name)]
    if not found:
        raise ConditionError(
            f"{what} names the column {str(name)!r}, which the model does not have"
            + did_you_mean(str(name), schema.names)
        )
    if not found[0].learned:
        raise ConditionError(
            f"{what} names the column {str(name)!r}, which was not learned: "
            f"{_ASIDE[found[0].kind]}"
        )
    return found[0]


def _from_text(text: str, ask: Callable[[Any], _Asked]) -> None:
    for found in read_comparisons(text):
        left, sign, right = found.left, found.sign, found.right
        if isinstance(left, Name) == isinstance(right, Name):
            raise ConditionError(
                "each comparison of a condition has one column and one value, got "
                f"{getattr(left, 'text', left)} {sign} {getattr(right, 'text', right)}"
                "; a rule between columns is given to fit"
            )
        if isinstance(right, Name):
            if sign == "in":
                raise ConditionError(
                    "`in` has the column before it and a list after it"
                )
            left, sign, right = right, _MIRRORED[sign], left
        asked = ask(left.text)
        if sign in ("==", "in"):
            asked.is_one_of(right if sign == "in" else [right])
        else:
            asked.is_beyond(sign, right)


def _from_mapping(wanted: Mapping[Any, Any], ask: Callable[[Any], _Asked]) -> None:
    for name, value in wanted.items():
        asked = ask(name)
        if isinstance(value, tuple):
            if len(value) != 2 or all(end is None for end in value):
                raise ConditionError(
                    f"a range of column {str(name)!r} is a tuple (low, high), one of "
                    f"them may be None, got {value!r}; a set of values is a list"
                )
            for sign, end in zip((">=", "<="), value, strict=True):
                if end is not None:
                    asked.is_beyond(sign, end)
        elif isinstance(value, _SETS):
            asked.is_one_of(list(value))
        else:
            asked.is_one_of([value])


def read_where(wanted: Any, schema: Schema) -> Where:
    """Return conditions in their normal form, checked against a schema.

    Parameters
    ----------
    wanted : mapping or str
        ``{"sex": "F", "age": (30, 40), "city": ["A", "B"]}``: a value, a tuple for a
        range with both ends (None for no end), a list or set for several values. Or a
        text: ``'sex == "F" and 30 <= age < 40 and city in ["A", "B"]'``.
    schema : Schema

    Raises
    ------
    ConditionError
        When it cannot be read, names no learned column, or no value satisfies it.
    """
    asked: dict[Any, _Asked] = {}

    def ask(name: Any) -> _Asked:
        column = learned_column(name, schema, "the condition")
        return asked.setdefault(column.label, _Asked(column))

    if isinstance(wanted, str):
        _from_text(wanted, ask)
    elif isinstance(wanted, Mapping):
        _from_mapping(wanted, ask)
    else:
        raise ConditionError(
            "where must be a mapping of column to value, a text, or a frame of partial "
            f"rows, got {type(wanted).__name__}"
        )
    if not asked:
        raise ConditionError("where must name at least one column, got none")
    return Where({label: one.condition() for label, one in asked.items()})
