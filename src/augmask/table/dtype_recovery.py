"""Recover the true type of a column from its observed values.

Missing values turn whole numbers into floats and booleans into objects, files turn
dates into text, and people write -999 for "unknown".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import DataError
from augmask.table.cells import AnyArray, Cells
from augmask.table.formats import MAX_DECIMALS, DateFormat, Recognised, recognise
from augmask.table.lattice import ODD, without_heaps

# Levels of a category with a code of their own; number-like text with more levels is
# numeric.
MAX_LEVELS = 100
# Whole numbers with at most so many distinct values are levels.
MAX_INTEGER_LEVELS = 10

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
# 007 is a code: a number would lose its zeros.
_CODE = re.compile(r"\s*[+-]?0\d+\s*")
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?"
)
_ZONED = re.compile(r"(Z|[+-]\d\d:?\d\d)$")
_TRUE_FALSE = {"True": True, "TRUE": True, "true": True}
_TRUE_FALSE |= {"False": False, "FALSE": False, "false": False}

_TEXT_NA = frozenset(
    {"", "?", "??", "-", "--", "---", ".", "..", "*", "na", "n/a", "n.a.", "#n/a"}
    | {"<na>", "nan", "null", "none", "nil", "missing", "unknown", "unk", "(null)"}
    | {"not available", "not known", "not applicable", "undefined", "#ref!"}
    | {"#div/0!", "#value!", "#name?", "#null!", "#num!", "\u2013", "\u2014"}
    | {"0000-00-00", "0000-00-00 00:00:00", "00/00/0000", "00.00.0000"}
)
_HIGH_NA = tuple(float("9" * n) for n in range(2, 8))
_LOW_NA = (-1.0, *(-float("9" * n) for n in range(1, 8)))

NUMPY_UNITS = {"D": "D", "h": "h", "min": "m", "s": "s"}
NUMPY_UNITS |= {"ms": "ms", "us": "us", "ns": "ns"}


def are_numbers(texts: Sequence[str] | AnyArray) -> npt.NDArray[np.bool_]:
    """Return for each text whether it is a number.

    Examples
    --------
    >>> are_numbers(["1", "-2.5e3", "?", "1,5"]).tolist()
    [True, True, False, False]
    """
    return np.array([_NUMBER.fullmatch(text) is not None for text in texts], bool)


def to_boolean(cells: Cells) -> Cells | None:
    """Return the cells as booleans, or None if one is not."""
    if cells.form == "boolean":
        return cells
    if cells.form == "text":
        codes, levels = cells.factorized
        if not set(levels) <= _TRUE_FALSE.keys():
            return None
        known: AnyArray = np.array([_TRUE_FALSE[level] for level in levels], bool)
        known = known[codes]
    elif cells.form in ("integer", "float"):
        if not np.isin(cells.observed_values, (0, 1)).all():
            return None
        known = cells.observed_values.astype(bool)
    else:
        return None
    return cells.with_values("boolean", known)


def to_float(cells: Cells) -> Cells | None:
    """Return the cells as floats, or None if one is not a number."""
    if cells.form == "float":
        return cells
    if cells.form == "text":
        codes, levels = cells.factorized
        if not are_numbers(levels).all():
            return None
        parsed = np.array([float(level) for level in levels])
        if not np.isfinite(parsed).all():
            return None
        return cells.with_values("float", parsed[codes])
    if cells.form in ("integer", "boolean"):
        return cells.with_values("float", cells.observed_values.astype(np.float64))
    return None


def to_integer(cells: Cells) -> Cells | None:
    """Return the cells as whole numbers, or None if one is not."""
    if cells.form == "integer":
        return cells
    if cells.form == "text":
        # Not through floats, which would round long numbers.
        codes, levels = cells.factorized
        try:
            whole = np.array([int(level) for level in levels], np.int64)
        except (ValueError, OverflowError):
            whole = None
        if whole is not None:
            return cells.with_values("integer", whole[codes])
    as_float = to_float(cells)
    if as_float is None:
        return None
    known = as_float.observed_values
    # Beyond 2**53 every float is whole, which proves nothing.
    if not ((np.rint(known) == known) & (np.abs(known) < 2.0**53)).all():
        return None
    return cells.with_values("integer", known.astype(np.int64))


def to_datetime(cells: Cells) -> Cells | None:
    """Return ISO dates as datetimes, or None if one is not a date."""
    if cells.form == "datetime":
        return cells
    if cells.form != "text":
        return None
    codes, levels = cells.factorized
    if not all(_DATE.fullmatch(level) for level in levels):
        return None
    zoned = [_ZONED.search(level) is not None and len(level) > 10 for level in levels]
    if any(zoned) and not all(zoned):
        return None
    try:
        parsed = pd.to_datetime(pd.Index(levels), format="ISO8601", utc=any(zoned))
    except (ValueError, OverflowError):
        return None
    dtype, tz = str(parsed.dtype), "UTC" if any(zoned) else None
    if tz:
        parsed = parsed.tz_localize(None)
    return cells.with_values("datetime", parsed.to_numpy()[codes], dtype=dtype, tz=tz)


TO_FORM = {
    "integer": to_integer,
    "float": to_float,
    "boolean": to_boolean,
    "datetime": to_datetime,
}


def any_leading_zero(texts: Sequence[str] | AnyArray) -> bool:
    """Whether number-like texts are codes, whose leading zeros a number would lose."""
    return any(_CODE.fullmatch(text) for text in texts)


def recover(cells: Cells) -> Cells:
    """Return the cells in the form that missing values and files have hidden.

    Text of digits stays text: whether "10115" is a number is for `infer` to decide.

    Examples
    --------
    >>> from augmask.table.cells import read_cells
    >>> recover(read_cells(pd.Series([3.0, None, 5.0]), "visits")).form
    'integer'
    >>> recover(read_cells(pd.Series(["2020-02-29", None]), "day")).form
    'datetime'
    """
    if cells.categories is not None:
        return cells
    if cells.form == "float":
        return to_integer(cells) or cells
    if cells.form == "text":
        return to_boolean(cells) or to_datetime(cells) or cells
    return cells


def numbers_in_text(cells: Cells, na_declared: bool) -> Cells | None:
    """Return text as numbers if it holds nothing else and is meant so.

    It is if you have declared missing-value codes, or if it has too many levels for a
    category.
    """
    codes, levels = cells.factorized
    if not are_numbers(levels).all() or any_leading_zero(levels):
        return None
    # Digits that hardly ever repeat are a key.
    digits = all(level.isdigit() for level in levels)
    key = digits and len(levels) >= 0.95 * len(codes)
    if na_declared or (len(levels) > MAX_LEVELS and not key):
        return to_integer(cells) or to_float(cells)
    return None


def hidden_kind(cells: Cells) -> tuple[str, tuple[str, ...]] | None:
    """Return what a text column holds besides missing-value codes, and the codes.

    None if nothing looks like a code, or if the rest is text as well.

    Examples
    --------
    >>> from augmask.table.cells import read_cells
    >>> ages = pd.Series([*map(str, range(20, 60)), "?", "n/a"])
    >>> hidden_kind(read_cells(ages, "age"))
    ('numbers', ('?', 'n/a'))
    """
    levels = cells.factorized[1].tolist()
    suspected = suspected_texts(levels)
    rest = [level for level in levels if level not in set(suspected)]
    if not suspected or not rest:
        return None
    if are_numbers(rest).all():
        numeric = len(rest) > MAX_INTEGER_LEVELS and not any_leading_zero(rest)
        return ("numbers", suspected) if numeric else None
    if all(_DATE.fullmatch(level) for level in rest):
        return ("dates", suspected) if len(rest) > 1 else None
    recognised = recognise_values(rest)
    if recognised is None:
        return None
    return "dates" if recognised.format.kind == "datetime" else "numbers", suspected


def recognise_values(levels: Sequence[str]) -> Recognised | None:
    """Return the format of text that spells numbers or dates, None for other text.

    A few numbers or times of day are levels.
    """
    recognised = recognise(levels) if len(levels) > 1 else None
    if recognised is None or len(np.unique(recognised.format.parse(levels))) < 2:
        return None
    date = isinstance(recognised.format, DateFormat) and not recognised.format.is_time
    return recognised if date or len(levels) > MAX_INTEGER_LEVELS else None


def check_almost_numeric(cells: Cells, name: str) -> None:
    """Raise if a text column would be numbers or dates but for a few values."""
    codes, levels = cells.factorized
    hidden = hidden_kind(cells)
    if hidden is not None:
        what, texts = hidden
        count = int(np.isin(codes, np.flatnonzero(np.isin(levels, texts))).sum())
        raise DataError(
            f"column {name!r} holds {what}, but {count} of its {len(codes)} values are "
            f"not, such as {texts[0]!r}; if these mean a missing value, add "
            f"{na_flags(name, texts)} (or --na auto), or declare {{{name!r}: "
            f"{{'na_values': {list(texts)!r}}}}} in the schema; otherwise set its kind "
            "to 'category'"
        )
    others = levels[~are_numbers(levels)]
    if len(levels) <= MAX_LEVELS or not len(others):
        return
    n_others = int(np.isin(codes, np.flatnonzero(~are_numbers(levels))).sum())
    # Ticket numbers mix both freely; here there are few distinct exceptions.
    few = len(others) <= 20 or n_others <= 0.05 * len(codes)
    if few and n_others < len(codes) / 2:
        raise DataError(
            f"column {name!r} holds numbers, but {n_others} of its {len(codes)} values "
            f"are not, such as {others[0]!r}; if it means a missing value, add "
            f"{na_flags(name, others[:1].tolist())}, or declare them in the schema, "
            f"{{{name!r}: {{'na_values': [{others[0]!r}]}}}}, or set its kind to "
            "'category'"
        )


def decimals_of(values: AnyArray, dtype: str = "float64") -> int | None:
    """Return the number of decimals of nearly all values, None at full precision.

    Ignores one cell in a hundred, rounding noise of sums, and very frequent values such
    as zeros, which would hide the decimals of the others.

    Examples
    --------
    >>> decimals_of(np.array([1.25, 3.5, 2.0])), decimals_of(np.array([1 / 3]))
    (2, None)
    """
    values, counts = without_heaps(*np.unique(values, return_counts=True))
    narrow = np.dtype(dtype) if dtype in ("float32", "float16") else np.dtype(float)
    allowed = ODD * counts.sum() if counts.sum() >= 1 / ODD else 0
    for decimals in range(MAX_DECIMALS + 1):
        # The first few reject most columns of full precision at once.
        for part in (slice(100), slice(None)):
            some = values[part]
            rounded = np.round(some, decimals).astype(narrow)
            noise = np.minimum(1e-11 * np.abs(some), 1e-3 * 10.0**-decimals)
            off = rounded != some.astype(narrow)
            off &= np.abs(rounded - some) > noise
            if counts[part][off].sum() > allowed:
                break
        else:
            return decimals
    return None


def wall_clock(cells: Cells) -> AnyArray:
    """Return local time as naive datetime64."""
    if cells.tz is None:
        return cells.values
    local = pd.DatetimeIndex(cells.values).tz_localize("UTC").tz_convert(cells.tz)
    naive: AnyArray = local.tz_localize(None).to_numpy()
    return naive


def instants(cells: Cells, unit: str) -> npt.NDArray[np.int64]:
    """Return whole units since 1970, days in local time (0 where missing)."""
    source = wall_clock(cells) if unit == "D" else cells.values
    whole = source.astype(f"datetime64[{NUMPY_UNITS[unit]}]").astype(np.int64)
    return np.where(cells.observed, whole, 0)


def shared_unit(cells: Cells) -> str:
    """Return the coarsest unit that expresses every observed instant exactly.

    Days are local: midnight in Berlin is not midnight in UTC.
    """
    for unit, numpy_unit in NUMPY_UNITS.items():
        source = wall_clock(cells) if unit == "D" else cells.values
        known = source[cells.observed]
        if (known.astype(f"datetime64[{numpy_unit}]") == known).all():
            return unit
    return "ns"


def na_flags(name: str, codes: Sequence[object]) -> str:
    """Return the options of a command that declare missing-value codes of a column.

    Examples
    --------
    >>> na_flags("income", (-999, "n/a"))
    '--na income=-999 --na income=n/a'
    """
    return " ".join(f"--na {shlex.quote(f'{name}={code}')}" for code in codes)


def suspected_texts(levels: Sequence[str]) -> tuple[str, ...]:
    """Return the levels that commonly encode a missing value.

    Examples
    --------
    >>> suspected_texts(["Private", " ?", "N/A"])
    (' ?', 'N/A')
    """
    return tuple(level for level in levels if level.strip().casefold() in _TEXT_NA)


def suspected_numbers(values: AnyArray) -> tuple[float, ...]:
    """Return codes such as -999 that lie far from all other values.

    A code must be the extreme of the column, and either farther from the rest than the
    rest is wide or the only negative value.

    Examples
    --------
    >>> suspected_numbers(np.array([-999, *range(20, 60), -999]))
    (-999,)
    >>> suspected_numbers(np.array([-9.0, *range(-30, 40)]))
    ()
    """
    levels, counts = np.unique(values, return_counts=True)
    # Differences of 64-bit integers may overflow.
    whole, levels = levels.dtype.kind == "i", levels.astype(np.float64)
    codes: list[float] = []
    while len(levels) > 10:
        rest = levels[-1] - levels[1], levels[-2] - levels[0]
        low, high = levels[0], levels[-1]
        alone = levels[1] >= 0 > low and (low != -1 or counts[0] > 1)
        if low in _LOW_NA and (alone or levels[1] - low > rest[0]):
            codes.append(low)
            levels, counts = levels[1:], counts[1:]
        elif high in _HIGH_NA and high - levels[-2] > rest[1]:
            codes.append(high)
            levels, counts = levels[:-1], counts[:-1]
        else:
            break
    return tuple(sorted(int(code) if whole else float(code) for code in codes))
