"""Spelling: how a text file writes its cells, for the rows that are imputed from it.

`TRUE`, `1.50` and `2021-06-10T18:24Z` are a boolean, a number and an instant, which
pandas writes as `True`, `1.5` and `2021-06-10 18:24:00+00:00`. A file that is imputed
keeps its cells letter by letter, and imputed cells are written like the others where
these agree.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from augmask.table import text_files
from augmask.table.cells import AnyArray, read_cells
from augmask.table.read_options import TableFile
from augmask.table.schema import Schema

Write = Callable[[Any], str]

_TRUE = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_DECIMALS = re.compile(r"[+-]?\d+(?:\.(\d*))?")
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d"
    r"(?:(?P<sep>[T ])\d\d:\d\d(?P<second>:\d\d(?:\.(?P<digits>\d+))?)?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?)?"
)
_PRECISION = {0: "seconds", 3: "milliseconds", 6: "microseconds"}


def _boolean_writer(known: Sequence[str]) -> Write:
    """Return how booleans are written: the most frequent text of each."""
    words: dict[bool, str] = {}
    for word, _ in Counter(text.strip() for text in known).most_common():
        value = _TRUE.get(word.lower())
        if value is not None:
            words.setdefault(value, word)
    lower = any(word.islower() for word in words.values())
    upper = any(word.isupper() for word in words.values())

    def write(value: Any) -> str:
        word = words.get(bool(value))
        if word is not None:
            return word
        plain = str(bool(value))
        return plain.upper() if upper else plain.lower() if lower else plain

    return write


def _number_writer(known: Sequence[str]) -> Write:
    """Return how numbers are written: with as many decimals as all others."""
    found = [_DECIMALS.fullmatch(text.strip()) for text in known]
    decimals = {len(match[1] or "") for match in found if match}
    fixed = decimals.pop() if len(decimals) == 1 and all(found) else None
    # `47` beside `2.25`
    whole = all(found) and 0 in decimals

    def write(value: Any) -> str:
        if fixed is not None:
            text = f"{value:.{fixed}f}"
            if float(text) == value:
                return text
        return str(int(value)) if whole and value == int(value) else str(value)

    return write


def _instant_writer(known: Sequence[str]) -> Write:
    """Return how instants are written: ISO 8601 in the precision and zone of others."""
    found = [_INSTANT.fullmatch(text.strip()) for text in known]
    forms = {
        (m["sep"], bool(m["second"]), len(m["digits"] or ""), m["zone"])
        for m in found
        if m
    }
    if len(forms) != 1 or not all(found):
        return str
    sep, seconds, digits, zone = forms.pop()
    precision = _PRECISION.get(digits) if seconds else "minutes"

    def write(value: Any) -> str:
        if sep is None:
            return str(value.date())
        if precision is None:
            return str(value)
        if zone:
            offset = dt.datetime.strptime(zone, "%z").tzinfo
            value = value.tz_convert(offset).tz_localize(None)
        return f"{value.isoformat(sep, precision)}{zone or ''}"

    def checked(value: Any) -> str:
        text = write(value)
        return text if pd.Timestamp(text) == value else str(value)

    return checked


_WRITERS: Mapping[str, Callable[[Sequence[str]], Write]] = {
    "b": _boolean_writer,
    "i": _number_writer,
    "u": _number_writer,
    "f": _number_writer,
    "M": _instant_writer,
}


def _spelled_values(values: pd.Series, known: Sequence[str]) -> list[str]:
    """Return imputed values as text, like that of the known cells of their column."""
    writer = _WRITERS.get(values.dtype.kind)
    write = writer(known) if writer is not None and len(known) else str
    return [write(value) for value in values]


def written_cells(source: TableFile, out: Path) -> pd.DataFrame | None:
    """Return the cells of a file as written, None if it or the output is no text."""
    suffixes = (*text_files.SUFFIXES, *text_files.COMPRESSED)
    if not all(str(path).lower().endswith(suffixes) for path in (source.path, out)):
        return None
    return text_files.read_texts(source.path, source.options)


def as_in_file(
    imputed: pd.DataFrame, frame: pd.DataFrame, texts: pd.DataFrame, schema: Schema
) -> pd.DataFrame:
    """Return imputed rows with the cells of their file as it writes them.

    Parameters
    ----------
    imputed : DataFrame
        The rows of `frame`, completed, once or several times in succession; other
        columns stay.
    frame : DataFrame
        The rows as read from the file.
    texts : DataFrame
        Their cells as written.
    schema : Schema
        Of the model, which knows the codes for missing values.

    Examples
    --------
    >>> texts = {"paid": ["TRUE", "", "FALSE"], "kg": ["1.50", "2.25", ""]}
    >>> frame = pd.DataFrame({"paid": [True, None, False], "kg": [1.5, 2.25, None]})
    >>> imputed = pd.DataFrame({"paid": [True, True, False], "kg": [1.5, 2.25, 0.5]})
    >>> from augmask.table.infer import infer_schema
    >>> schema = infer_schema(frame)
    >>> as_in_file(imputed, frame, pd.DataFrame(texts), schema).values.tolist()
    [['TRUE', '1.50'], ['TRUE', '2.25'], ['FALSE', '0.50']]
    """
    n_draws = len(imputed) // len(texts)
    columns = {}
    for label in imputed.columns:
        if label not in texts.columns:
            columns[label] = imputed[label]
            continue
        written = texts[label].to_numpy(dtype=object)
        column: AnyArray = np.tile(written, n_draws)
        name = str(label)
        if name in schema.names:
            cells = read_cells(frame[label], name, schema[name].na_values)
            observed = np.tile(cells.observed, n_draws)
            complete = imputed[label].notna().to_numpy()
            at = complete & ~observed
            if schema[name].kind == "category":
                # Levels that the model does not know are imputed, too.
                both = complete & observed
                given = np.tile(frame[label].to_numpy(dtype=object), n_draws)[both]
                at[both] = given != imputed[label].to_numpy(dtype=object)[both]
            known = written[cells.observed].tolist()
            column[at] = _spelled_values(imputed[label][at], known)
        columns[label] = pd.Series(column, index=imputed.index, dtype="str")
    return pd.DataFrame(columns)
