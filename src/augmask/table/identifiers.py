"""Identifiers: recognised, never learned, generated anew.

A model must not repeat keys, codes or free text, which would copy people into the
output. New values keep the form of the observed ones, never equal one of them, and
never repeat where those did not: the value of output row i is a function of i alone, so
batches are independent. Names, addresses and the like come from pools of `fakes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import gcd, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from augmask.table.cells import AnyArray, Cells
from augmask.table.personal import FAKES, personal_reason, words_of
from augmask.validation import AnyOf, ListSpec, RecordSpec, Refined, ValueSpec

# The most digits of a number, and characters of a text, that a form may have.
MOST_DIGITS = 1_000
MOST_VALUES = 10**MOST_DIGITS

# With fewer values, any column may happen to be distinct.
MIN_ROWS = 20
_NEARLY_ALL = 0.95

_KEY_WORDS = {"id", "ids", "uuid", "guid", "key", "pk", "rowid", "ssn"}
_ROW_WORDS = {"index", "idx", "no", "nr", "row", "unnamed: 0", "number", "rownames"}
_RUN = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)


def named_like_key(name: str) -> bool:
    """Whether the name of a column suggests a key.

    Examples
    --------
    >>> [named_like_key(n) for n in ("id", "case.id", "customerID", "paid", "video")]
    [True, True, True, False, False]
    """
    words = words_of(name)
    return bool(words) and (words[-1] in _KEY_WORDS or words[0] == "id")


def counts_rows(cells: Cells) -> bool:
    """Whether whole numbers change by one fixed step per row."""
    rows, values = np.flatnonzero(cells.observed), cells.observed_values
    if len(values) < MIN_ROWS:
        return False
    step, rest = divmod(int(values[1]) - int(values[0]), int(rows[1] - rows[0]))
    span = int(values[-1]) - int(values[0])
    if rest or not step or span != step * int(rows[-1] - rows[0]):
        return False
    return bool((values - values[0] == step * (rows - rows[0])).all())


def integer_reason(cells: Cells, name: str, n_distinct: int) -> str | None:
    """Return why whole numbers are an identifier, or None if they are not."""
    n = len(cells.observed_values)
    if n_distinct == n and counts_rows(cells):
        return "whole numbers that count the rows"
    key = named_like_key(name)
    if n_distinct == n and n > 2 and (key or name.strip().lower() in _ROW_WORDS):
        return "whole numbers, all different, named like a key"
    if key and n_distinct > 100 and n_distinct > 0.1 * n:
        return f"{n_distinct} different whole numbers, named like a key"
    return None


def text_reason(
    name: str, levels: list[str], n_observed: int, n_rare: int
) -> str | None:
    """Return why text is an identifier, or None if it is not.

    `levels` are the distinct values of `n_observed` cells, of which `n_rare` have a
    level that would be too rare to be learned.
    """
    personal = personal_reason(name, levels, n_observed)
    if personal or n_observed < MIN_ROWS:
        return personal
    share = len(levels) / n_observed
    words = float(np.mean([len(level.split()) for level in levels[:1000]]))
    if words >= 5 and share > 0.3:
        return f"free text: {words:.0f} words on average, {share:.0%} different"
    if share >= _NEARLY_ALL:
        return f"nearly all values differ ({len(levels)} of {n_observed})"
    if n_rare > n_observed / 2:
        return f"{len(levels)} different values, most of them rare"
    if named_like_key(name) and len(levels) > 100 and share > 0.1:
        return f"{len(levels)} different values, named like a key"
    return None


def _counter(levels: list[str]) -> dict[str, Any] | None:
    """Return prefix, number and suffix if only one run of digits varies."""
    parts = [_RUN.fullmatch(level) for level in levels]
    if not all(parts):
        return None
    ends = {(m.group(1), m.group(3)) for m in parts if m}
    if len(ends) != 1:
        return None
    prefix, suffix = ends.pop()
    runs = [m.group(2) for m in parts if m]
    widths = {len(run) for run in runs}
    if max(widths) > MOST_DIGITS:
        return None
    padded = len(widths) == 1 or any(run[0] == "0" for run in runs)
    return {
        "make": "counter",
        "prefix": prefix,
        "suffix": suffix,
        "next": max(int(run) for run in runs) + 1,
        "width": max(widths) if padded else 0,
    }


def _template(levels: list[str]) -> dict[str, Any] | None:
    """Return the characters of each position if all values have one length."""
    width = len(levels[0])
    if not 0 < width <= MOST_DIGITS or any(
        len(level) != width or "\0" in level for level in levels
    ):
        return None
    table = np.array(levels, dtype=f"U{width}").view("U1").reshape(-1, width)
    slots = ["".join(np.unique(table[:, i]).tolist()) for i in range(width)]
    size = prod(map(len, slots))
    if size > MOST_VALUES:
        return None
    step = max(int(size * 0.6180339887), 1)
    while gcd(step, size) > 1:
        step += 1
    # Row i gets value number (first + step * i) mod size. Invert this for the observed
    # values, and start in the longest range of rows that meets none of them.
    back = pow(step, -1, size) if size > 1 else 0
    places = [{char: k for k, char in enumerate(slot)} for slot in slots]
    used = sorted(_number(level, places) * back % size for level in levels)
    gaps = np.array(
        [b - a for a, b in zip(used, [*used[1:], used[0] + size], strict=True)],
        object,
    )
    best = int(np.argmax(gaps))
    fresh = int(gaps[best]) - 1
    first = (used[best] + 1) * step % size
    # Model files are JSON, where numbers beyond 64 bits are not safe.
    return {
        "make": "template",
        "slots": slots,
        "first": str(first),
        "step": str(step),
        # If no value is left, all are lengthened from the start.
        "fresh": str(fresh or size),
        "lap": 0 if fresh else 1,
    }


def _number(text: str, places: list[dict[str, int]]) -> int:
    """Return the rank of a text among all that the slots can spell."""
    number = 0
    for char, place in zip(text, places, strict=True):
        number = number * len(place) + place[char]
    return number


def _spell(number: int, slots: list[str]) -> str:
    chars = []
    for slot in reversed(slots):
        number, k = divmod(number, len(slot))
        chars.append(slot[k])
    return "".join(reversed(chars))


def identifier_form(cells: Cells, name: str) -> dict[str, Any]:
    """Return how new values are made: numbers, counters, templates or placeholders.

    Fitting a model replaces this by a pool where the column has fakes (see `fakes`).

    Examples
    --------
    >>> import pandas as pd
    >>> from augmask.table.cells import read_cells
    >>> cells = read_cells(pd.Series(["P-007", "P-008"]), "code")
    >>> form = identifier_form(cells, "code")
    >>> fresh_values(form, start=0, n=3).tolist()
    ['P-009', 'P-010', 'P-011']
    """
    if cells.form in ("integer", "float"):
        last = int(np.ceil(cells.observed_values.max()))
        # Close to the limit of 64 bits there is only room below.
        if last > 2**62:
            low = int(np.floor(cells.observed_values.min()))
            return {"make": "number", "next": min(low, 2**62) - 1, "step": -1}
        rows, values = np.flatnonzero(cells.observed), cells.observed_values
        step = 1
        if cells.form == "integer" and counts_rows(cells):
            step = abs(int(values[1] - values[0]) // int(rows[1] - rows[0]))
        return {"make": "number", "next": last + step, "step": step}
    if cells.form == "text":
        levels = sorted(set(cells.observed_values.tolist()))
        form = _counter(levels) or _template(levels)
        if form:
            return form
    return {"make": "placeholder", "prefix": name}


# What `_repeated_fake` adds to a fake, once or more often.
_AGAIN = {
    "email": r"(\+\d+)+(?=@)",
    "phone": r"(\s*(x|ext\.?)\s*\d+)+$",
    "url": r"(/+\d*)+$",
    "street": r"(\s*/\s*\d+)+$",
    "address": r"(\s*/\s*\d+)+$",
}


def pool_root(fake: str, text: str) -> str:
    """Return a text without what `_repeated_fake` may have added to it.

    Examples
    --------
    >>> pool_root("email", "ann+2@example.org"), pool_root("name", "Ann Lee 17")
    ('ann@example.org', 'Ann Lee')
    """
    return re.sub(
        _AGAIN.get(fake, r"(\s+\d+)+$"), "", text.strip(), flags=re.IGNORECASE
    )


def _repeated_fake(fake: str, text: str, lap: int) -> str:
    """Return a fake that is used for the `lap`-th time, as a different text."""
    if fake == "email":
        return text.replace("@", f"+{lap}@")
    joint = {"phone": " x", "url": "/", "street": " / ", "address": " / "}
    return f"{text}{joint.get(fake, ' ')}{lap}"


def _scattered_places(rows: range, size: int) -> npt.NDArray[np.int64]:
    """Return a place below `size` for each row, without order (splitmix64)."""
    x = np.arange(rows.start, rows.stop, dtype=np.uint64)
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) % np.uint64(size)).astype(np.int64)


def fresh_values(form: Mapping[str, Any], start: int, n: int) -> AnyArray:
    """Return the identifiers of output rows `start` .. `start + n - 1`."""
    rows = range(start, start + n)
    make = form["make"]
    if make == "number":
        numbers = np.arange(start, start + n, dtype=np.int64)
        return numbers * int(form["step"]) + int(form["next"])
    if make == "counter":
        prefix, suffix, width = form["prefix"], form["suffix"], form["width"]
        values = [f"{prefix}{form['next'] + i:0{width}d}{suffix}" for i in rows]
    elif make == "template":
        slots = list(form["slots"])
        size = prod(map(len, slots))
        first, step, fresh = (int(form[key]) for key in ("first", "step", "fresh"))
        values = []
        for i in rows:
            lap, k = divmod(i + fresh * int(form["lap"]), fresh)
            text = _spell((first + step * k) % size, slots)
            # From the second lap on, values are longer than any observed one.
            values.append(f"{text}-{lap}" if lap else text)
    elif make == "pool":
        pool, fake = form["values"], form["fake"]
        if not form["unique"]:
            values = [pool[k] for k in _scattered_places(rows, len(pool))]
        else:
            values = []
            for i in rows:
                lap, k = divmod(i, len(pool))
                values.append(
                    _repeated_fake(fake, pool[k], lap + 1) if lap else pool[k]
                )
    elif make == "placeholder":
        values = [f"{form['prefix']} {i + 1:06d}" for i in rows]
    else:
        raise ValueError(f"unknown identifier form {make!r}")
    return np.array(values, dtype=object)


# -- stored forms, which may have been tampered with ------------------------------

_TEXT = ValueSpec(str)
_INT64 = ValueSpec(int, lowest=-(2**63), highest=2**63 - 1)
_DIGITS = Refined(
    _TEXT, lambda text: bool(re.fullmatch("[0-9]{1,1001}", text)), "up to 1,001 digits"
)
_SLOTS = Refined(
    ListSpec(Refined(_TEXT, bool, "at least one character")),
    lambda slots: len(slots) <= MOST_DIGITS,
    f"a list of at most {MOST_DIGITS:,} texts",
)


def _form(make: str, **fields: Any) -> RecordSpec:
    return RecordSpec({"make": ValueSpec(None, (make,))} | fields, optional=True)


FORM_SPEC = AnyOf(
    _form("number", next=_INT64, step=_INT64),
    _form(
        "counter",
        prefix=_TEXT,
        suffix=_TEXT,
        next=ValueSpec(int, lowest=0, highest=MOST_VALUES),
        width=ValueSpec(int, lowest=0, highest=MOST_DIGITS),
    ),
    _form(
        "template",
        slots=_SLOTS,
        first=_DIGITS,
        step=_DIGITS,
        fresh=Refined(_DIGITS, lambda text: text.strip("0") != "", "a positive number"),
        lap=ValueSpec(None, (0, 1)),
    ),
    _form("placeholder", prefix=_TEXT),
    _form(
        "pool",
        fake=ValueSpec(None, FAKES),
        values=ListSpec(_TEXT, shortest=1, distinct=True),
        unique=ValueSpec(bool),
    ),
    description="a known form of identifiers",
)
