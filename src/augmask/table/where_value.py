"""A value that a user compares a column with, in the terms of that column."""

from __future__ import annotations

import datetime as dt
import math
import sys
from typing import Any

import numpy as np
import pandas as pd

from augmask.errors import ConditionError, did_you_mean, shown
from augmask.table.cells import MAX_NUMBER, type_name
from augmask.table.recover import NUMPY_UNITS
from augmask.table.schema import NUMERIC, Column

QUOTE = "'"


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.bool_ | np.number) else value


def _wrong(column: Column, value: Any, holds: str) -> ConditionError:
    return ConditionError(
        f"column {column.name!r} holds {holds}, so it cannot be compared with the "
        f"{type_name(value)} {shown(value, 40).strip(QUOTE)!r}"
    )


def _number(column: Column, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(column, value, "numbers")
    # Python cannot make a float of such a number to look at it
    endless = isinstance(value, int) and abs(value) > MAX_NUMBER
    if endless or math.isnan(value):
        raise _wrong(column, value, f"numbers up to {MAX_NUMBER:g}")
    return value


def _instant(column: Column, value: Any) -> pd.Timestamp:
    if not isinstance(value, str | dt.date | np.datetime64 | pd.Timestamp):
        raise _wrong(column, value, "dates")
    try:
        found = pd.Timestamp(value)
    except (ValueError, OverflowError) as error:
        raise _wrong(column, value, "dates such as '2024-02-29'") from error
    if found is pd.NaT:
        raise _wrong(column, value, "dates")
    if column.tz is not None:
        if found.tz is not None:
            return found
        # Of an hour that the clock skips or repeats, the next instant and the first.
        return found.tz_localize(column.tz, ambiguous=True, nonexistent="shift_forward")
    if found.tz is not None:
        raise ConditionError(
            f"column {column.name!r} has no time zone, so it cannot be compared with "
            f"{str(value)!r}; leave the zone out"
        )
    return found


def levels_of(column: Column) -> list[Any]:
    """Return every level in its order, which means something for some columns."""
    every = column.every_level
    if column.ordered and column.categories:
        return [level for level in column.categories if level in every]
    if not isinstance(every[0], str):
        return sorted(every)
    return list(column.levels) if column.ordered else every


def _level(column: Column, value: Any) -> Any:
    levels = levels_of(column)
    text = isinstance(levels[0], str)
    if isinstance(value, str) != text or isinstance(value, bool) != isinstance(
        levels[0], bool
    ):
        holds = "text" if text else f"{type_name(levels[0])}s"
        raise _wrong(column, value, f"{holds} such as {levels[0]!r}")
    if value not in levels:
        raise ConditionError(
            f"column {column.name!r} has no level {shown(value)}"
            + did_you_mean(shown(value).strip("'"), map(str, levels))
        )
    return levels[levels.index(value)]


def _check_given(column: Column, value: Any) -> Any:
    """Return a plain value; a hole is none."""
    value = _plain(value)
    if value is None or value is pd.NA or value is pd.NaT:
        raise ConditionError(
            f"column {column.name!r} must be compared with a value, got {value!r}; "
            "holes are drawn by missing='learned'"
        )
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise ConditionError(
            f"column {column.name!r} is compared with a whole number that is larger "
            "than any number of a table; write one that the column can hold"
        )
    return value


def value_of(column: Column, value: Any) -> Any:
    """Return a value as its column has it, or say why it cannot have it."""
    value = _check_given(column, value)
    if column.kind == "datetime":
        return _instant(column, value)
    return (_number if column.kind in NUMERIC else _level)(column, value)


def end_of(column: Column, value: Any) -> Any:
    """Return the end of a range; among levels that are numbers it may be any."""
    if column.kind in ("boolean", "category"):
        first = levels_of(column)[0]
        if isinstance(first, str | bool) and not column.ordered:
            raise ConditionError(
                f"the levels of column {column.name!r} have no order, so there is no "
                "range of them; list those you want"
            )
        if not isinstance(first, str):
            return _number(column, _check_given(column, value))
    return value_of(column, value)


def ends_of(column: Column) -> tuple[Any, Any]:
    """Return the smallest and the largest value that a numeric column can have."""
    if column.kind != "datetime":
        return column.low, column.high
    stored = np.array([column.low, column.high], np.int64)
    low, high = map(
        pd.Timestamp, stored.astype(f"datetime64[{NUMPY_UNITS[str(column.unit)]}]")
    )
    if column.tz is None:
        return low, high
    if column.unit == "D":
        return _instant(column, low), _instant(column, high)
    low, high = (end.tz_localize("UTC").tz_convert(column.tz) for end in (low, high))
    return low, high
