"""Read CSV, TSV and other separated text, compressed or not, as it was written.

What a file does not say is either certain from its contents and told, or an error that
names the option. pandas parses the text; columns that it would change are read again.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import pandas as pd

from augmask.errors import AugMaskWarning, DataError
from augmask.table.dtype_recovery import any_leading_zero, are_numbers, suspected_texts
from augmask.table.read_options import ReadOptions

SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".dat", ".data")
COMPRESSED = (".gz", ".zip")
SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
BLANK = " "
# Beyond this, neighbouring whole numbers may be the same float.
EXACT = 2.0**53
# What pandas takes for a missing value besides an empty cell.
NA_WORDS = (
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"),
    *("1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
# The lines and characters that tell the separator and the header.
PEEK_ROWS, PEEK = 1_000, 1 << 18

_WHOLE = re.compile(r"\s*[+-]?\d{1,30}\s*")
_CHUNK = 1 << 24
_MARKS = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
# Files of other kinds, by their first bytes.
_OTHER_FILES = {
    b"PK\x03\x04": ("an Excel file or a zip archive", "name it .xlsx or .zip"),
    b"\xd0\xcf\x11\xe0": ("a file of an old Excel", "save it as .xlsx"),
    b"\x1f\x8b": ("compressed by gzip", "name it .gz"),
    b"PAR1": ("a Parquet file", "name it .parquet"),
    b"ARROW1": ("an Arrow file", "name it .feather"),
}


class Text(NamedTuple):
    """A text file: its encoding and separator, and its first rows."""

    path: Path
    encoding: str
    sep: str
    rows: list[list[str]]


# -- bytes ------------------------------------------------------------------------


@contextmanager
def _open_bytes(path: Path) -> Iterator[BinaryIO]:
    suffix = path.suffix.lower()
    if suffix == ".gz":
        with gzip.open(path, "rb") as zipped:
            yield cast(BinaryIO, zipped)
    elif suffix == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(_member(archive)) as inner:
            yield cast(BinaryIO, inner)
    else:
        with path.open("rb") as plain:
            yield plain


def _member(archive: zipfile.ZipFile) -> str:
    """Return the one table in an archive."""
    names = [
        name
        for name in archive.namelist()
        if not name.endswith("/") and not name.startswith("__MACOSX/")
    ]
    if len(names) != 1 or not names[0].lower().endswith(SUFFIXES):
        listed = ", ".join(names[:4]) or "nothing"
        raise DataError(
            f"a zip archive must hold one text file, {archive.filename} holds "
            f"{listed}; unpack it"
        )
    return names[0]


def _inner_name(path: Path) -> str:
    """Return the name of the text file without the suffix of its compression."""
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive:
            return _member(archive).lower()
    name = path.name.lower()
    return name.removesuffix(".gz")


def _encoding(path: Path, declared: str | None) -> str:
    """Return the encoding that the first bytes or the user declare."""
    with _open_bytes(path) as file:
        head = file.read(4_096)
    if declared is not None:
        return declared
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    for mark, (what, fix) in _OTHER_FILES.items():
        if head.startswith(mark):
            raise DataError(f"{path} is no text but {what}; {fix}")
    if b"\0" in head:
        order = "le" if head[1:2] == b"\0" else "be"
        raise DataError(
            f"{path} is no UTF-8 text; if it is UTF-16, add --encoding utf-16-{order}"
        )
    return "utf-8-sig"


def open_text(path: Path, encoding: str) -> io.TextIOWrapper:
    """Open a text file for `csv`, whatever its compression."""
    stack = _open_bytes(path)
    file = stack.__enter__()
    text = io.TextIOWrapper(file, encoding=encoding, newline="")
    # The wrapper keeps the file open, and closes it; the archive goes with it.
    text._opened_by = stack  # type: ignore[attr-defined]
    return text


# -- separators -------------------------------------------------------------------


def _reader(lines: Iterable[str], sep: str) -> Any:
    """Return a reader of the fields of each line."""
    if sep == BLANK:
        lines = (line.expandtabs(1).strip() + "\n" for line in lines)
    return csv.reader(lines, delimiter=sep, skipinitialspace=sep == BLANK)


def _sample(path: Path, encoding: str) -> tuple[str, bool]:
    """Return the first characters of a file, and whether there are more."""
    with open_text(path, encoding) as file:
        text = file.read(PEEK)
        more = len(text) == PEEK and bool(file.read(1))
    return text, more


def _peek(sample: str, more: bool, sep: str) -> list[list[str]]:
    """Return the first rows of a sample, without one that is cut."""
    rows: list[list[str]] = []
    try:
        for row in filter(None, _reader(io.StringIO(sample, newline=""), sep)):
            rows.append(row)
            if len(rows) > PEEK_ROWS:
                break
    except csv.Error:
        if not rows:
            raise
    return rows[:-1] if more and 1 < len(rows) <= PEEK_ROWS else rows


def _is_table(rows: Sequence[Sequence[str]]) -> bool:
    """Whether all rows have the same number of fields, more than one."""
    return bool(rows) and len(rows[0]) > 1 and len({len(row) for row in rows}) == 1


def _separator(path: Path, sample: str, more: bool) -> str:
    """Return the separator if it is certain, and tell it if it is unexpected."""
    expected = "\t" if _inner_name(path).endswith((".tsv", ".tab")) else ","
    plain = _inner_name(path).endswith((".txt", ".dat", ".data"))
    peeked = {sep: _peek(sample, more, sep) for sep in SEPARATORS}
    fitting = [sep for sep, rows in peeked.items() if _is_table(rows)]
    if len(fitting) == 1:
        (sep,) = fitting
        if sep != expected and not plain:
            warnings.warn(
                f"{path} is separated by {SEPARATORS[sep]}, and is read so; "
                f"--sep {_separator_as_typed(sep)} says it",
                AugMaskWarning,
                stacklevel=2,
            )
        return sep
    header = peeked[expected][0] if peeked[expected] else []
    if fitting:
        names = " or ".join(SEPARATORS[sep] for sep in fitting)
        raise DataError(
            f"{path} may be separated by {names}; say which with --sep "
            f"{_separator_as_typed(fitting[0])}"
        )
    if len(header) > 1:
        return expected
    first = sample.lstrip("\r\n").splitlines()[:1]
    others = [sep for sep in SEPARATORS if first and sep in first[0]]
    if plain and not others and _is_table(_peek(sample, more, BLANK)):
        others = [BLANK]
    if others:
        raise DataError(
            f"the columns of {path} are not separated by {SEPARATORS[expected]}, its "
            f"first line is {first[0][:40]!r}; name the separator, e.g. "
            f"--sep {_separator_as_typed(others[0])}"
        )
    return expected


def _separator_as_typed(sep: str) -> str:
    """Return a separator as one writes it on a command line."""
    return {"\t": "tab", BLANK: "space"}.get(sep, f"'{sep}'")


# -- the header -------------------------------------------------------------------


def _names_data(header: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Whether the first row looks like the others."""
    if len(body) < 3:
        return False
    numbers = texts = unlike = 0
    for name, *cells in zip(header, *body, strict=False):
        known = [cell.strip() for cell in cells if cell.strip()]
        numeric = bool(known) and bool(are_numbers(known).all())
        if numeric and are_numbers([name]).all():
            numbers += 1
        elif numeric:
            return False
        elif name.strip() in known:
            texts += 1
        else:
            unlike += 1
    return texts + numbers >= 2 and texts > 0 and texts >= unlike


def _is_numbers_only(header: Sequence[str]) -> bool:
    """Whether the names are numbers other than 0, 1, 2, as pandas writes them."""
    if not header or not are_numbers([name.strip() for name in header]).all():
        return False
    return [name.strip() for name in header] != [str(i) for i in range(len(header))]


def _second_names(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the texts of a second row that stand above numbers only."""
    header, second, *body = rows
    # A survey may have two such rows.
    body = body[1:] if len(body) > 3 else body
    if len(body) < 2 or any(len(row) != len(header) for row in (second, *body)):
        return []
    columns = [[cell.strip() for cell in cells] for cells in zip(*body, strict=True)]
    numeric = [
        bool(known) and bool(are_numbers(known).all())
        for known in (list(filter(None, cells)) for cells in columns)
    ]
    above = [cell.strip() for cell, n in zip(second, numeric, strict=True) if n]
    codes = suspected_texts(above)
    texts = [cell for cell in above if cell and cell not in codes]
    # Two, because a single one is rather a code for a missing value.
    return texts if len(texts) >= 2 and not are_numbers(texts).any() else []


def header_doubt(rows: Sequence[Sequence[str]], source: str) -> str | None:
    """Return why the first row may be data, as a sentence that names the options."""
    header = rows[0]
    if len(header) <= 2 and header[0].lower().startswith("sep="):
        return (
            f"the first line of {source} ('sep=') only tells Excel the separator; "
            "delete it"
        )
    fix = "add --no-header if it is data, or --header if these are names"
    if _is_numbers_only(header):
        shown = ", ".join(header[:4]) + (", ..." if len(header) > 4 else "")
        return f"the first line of {source} holds only numbers ({shown}); {fix}"
    named = [name for name in header if name.strip()]
    twice = [name for name, n in Counter(named).items() if n > 1]
    if twice:
        body = {cell for row in rows[1:] for cell in row}
        if are_numbers(twice).any() or body & set(twice):
            return (
                f"the first line of {source} looks like data, because it has "
                f"{twice[0]!r} more than once; {fix.split(',')[0]}, or rename a column"
            )
        return None
    if _names_data(header, rows[1:]):
        return f"the first line of {source} looks like the others; {fix}"
    texts = _second_names(rows) if len(rows) > 3 else []
    if texts:
        listed = ", ".join(map(repr, texts[:3])) + (", ..." if len(texts) > 3 else "")
        return (
            f"line 2 of {source} looks like a second line of names or units "
            f"({listed}); delete it, or add --header if it is data"
        )
    return None


def column_names(n: int) -> list[str]:
    """Return the names of columns without a header."""
    return [f"column_{i}" for i in range(1, n + 1)]


# -- cells as they were written ---------------------------------------------------

# pandas reads whole numbers with missing values as floats, which have 53 bits, and
# 00273 as 273. Columns in doubt are read again as text: whole numbers become nullable
# integers, and digits with leading zeros stay text.


def _code_cell(sep: str) -> re.Pattern[bytes]:
    mark = re.escape(sep.encode())
    return re.compile(
        rb'(?:^|[%b"\r\n])[ \t]*[+-]?0\d+[ \t]*(?=[%b"\r\n]|$)' % (mark, mark)
    )


def _has_codes(text: Text) -> bool:
    """Whether any cell of the file is digits with a leading zero."""
    cell = _code_cell(text.sep)
    if text.encoding.startswith(("utf-16", "utf-32")):
        with open_text(text.path, text.encoding) as file:
            return any(cell.search(line.encode()) for line in file)
    with _open_bytes(text.path) as file:
        # Whole lines at a time, so that no cell is cut.
        while chunk := file.read(_CHUNK) + file.readline():
            if cell.search(chunk):
                return True
    return False


def _largest_float(series: pd.Series) -> tuple[float, bool]:
    """Return the largest absolute value of floats, and whether all are whole."""
    values = series.dropna().to_numpy(dtype=np.float64)
    whole = bool((np.rint(values) == values).all()) and len(values) > 0
    return float(np.abs(values).max(initial=0.0)), whole


def _needs_text(series: pd.Series, codes: bool) -> bool:
    """Whether the text of a column is needed to read its values correctly."""
    kind = series.dtype.kind
    if kind == "f":
        largest, whole = _largest_float(series)
        return largest >= EXACT or (codes and whole)
    if kind in "iu":
        return codes or kind == "u"
    # pandas returns large unsigned numbers with missing values as text with "".
    return kind != "b" and (_is_beyond_64_bits(series) or bool((series == "").any()))


def _is_beyond_64_bits(series: pd.Series) -> bool:
    """Whether a column holds Python integers: no type of pandas holds them."""
    return series.dtype.kind == "O" and any(type(value) is int for value in series)


def _from_text(texts: pd.Series) -> pd.Series | None:
    """Return codes as text, digits as whole numbers if 64 bits hold them, else None."""
    known = texts.dropna()
    levels = pd.unique(known)
    if any_leading_zero(levels):
        return texts
    if not len(levels) or not all(_WHOLE.fullmatch(level) for level in levels):
        return None
    number = {level: int(level) for level in levels}
    limits = np.iinfo(np.int64)
    if min(number.values()) < limits.min or limits.max < max(number.values()):
        # No type that can be learned holds all their digits.
        return texts
    whole = pd.Series(0, index=texts.index, dtype="Int64")
    whole[texts.notna()] = pd.array([number[t] for t in known], dtype="Int64")
    return whole.mask(texts.isna())


def _whole_and_float(texts: pd.Series) -> pd.Series | None:
    """Return numbers of which floats do not hold all; None if they do."""
    levels = pd.unique(texts.dropna())
    whole = {level: int(level) for level in levels if _WHOLE.fullmatch(level)}
    if all(number == float(number) for number in whole.values()):
        return None
    numbers = {level: float(level) for level in levels} | whole
    cells = [None if pd.isna(text) else numbers[text] for text in texts]
    return pd.Series(cells, texts.index, dtype=object)


def retyped(texts: pd.Series) -> pd.Series:
    """Return text as the numbers or booleans that a reader makes of it, or as it is.

    Examples
    --------
    >>> retyped(pd.Series(["1", None, "3"])).dtype, retyped(pd.Series(["007"]))[0]
    (Int64Dtype(), '007')
    """
    whole = _from_text(texts)
    if whole is not None:
        return whole if whole is texts or whole.isna().any() else whole.astype("int64")
    known = pd.unique(texts.dropna())
    if len(known) and are_numbers(known).all():
        mixed = _whole_and_float(texts)
        if mixed is not None:
            return mixed
        return texts.map(float, na_action="ignore").astype("float64")
    if len(known) and set(known) <= {"True", "False", "TRUE", "FALSE", "true", "false"}:
        true = texts.str.lower() == "true"
        return true.astype("boolean").mask(texts.isna())
    return texts


def _restore_cells(
    frame: pd.DataFrame, text: Text, read_text: Callable[[list[int]], pd.DataFrame]
) -> pd.DataFrame:
    """Return the frame that pandas read with its cells as written.

    `read_text` reads the columns at some positions again, as text.
    """
    codes = any(dtype.kind in "iuf" for dtype in frame.dtypes) and _has_codes(text)
    columns = [frame.iloc[:, j] for j in range(frame.shape[1])]
    doubtful = [j for j, column in enumerate(columns) if _needs_text(column, codes)]
    texts = read_text(doubtful) if doubtful else frame
    changed = False
    for position, j in enumerate(doubtful):
        column = _from_text(texts.iloc[:, position])
        # Whole numbers without missing values were read correctly.
        correct = columns[j].dtype.kind in "iu"
        if column is None and columns[j].dtype.kind == "f":
            column = _whole_and_float(texts.iloc[:, position])
        if column is None and _is_beyond_64_bits(columns[j]):
            column = texts.iloc[:, position]
        if column is not None and not (correct and column.dtype.kind in "iu"):
            columns[j], changed = column, True
    for j, column in enumerate(columns):
        if column.dtype.kind == "f" and column.isna().any():
            largest, whole = _largest_float(column)
            if whole and largest < EXACT:
                columns[j], changed = column.astype("Int64"), True
    if not changed:
        return frame
    restored = pd.concat(columns, axis=1)
    restored.columns = frame.columns
    return restored


def _check_quotes(lines: Iterable[str], path: Path, sep: str) -> None:
    """Raise if text follows a closing quote, which pandas would join to the cell."""
    reader = csv.reader(lines, delimiter=sep, strict=True)
    try:
        for _ in reader:
            pass
    except csv.Error as error:
        # The other error of strict reading, an open quote at the end, may be a cut.
        if "expected after" in str(error):
            raise DataError(
                f"line {reader.line_num} of {path} has text after a closing quote; "
                "write a quote within quotes twice"
            ) from error


def _check_all_quotes(text: Text) -> None:
    """Check the quotes of a whole file if any stands after a backslash."""
    mark = b'\\"'
    with _open_bytes(text.path) as file:
        while chunk := file.read(_CHUNK) + file.readline():
            if mark in chunk:
                break
        else:
            return
    with open_text(text.path, text.encoding) as lines:
        _check_quotes(lines, text.path, text.sep)


def _check_widths(text: Text, width: int) -> None:
    """Raise unless every line that is not blank has as many fields as the header."""
    with open_text(text.path, text.encoding) as lines:
        reader = _reader(lines, text.sep)
        for row in reader:
            if row and len(row) != width:
                kind = "CSV" if text.sep == "," else "text"
                raise DataError(
                    f"every line of a {kind} file must have as many fields as the "
                    f"header ({width}), line {reader.line_num} of {text.path} has "
                    f"{len(row)}; correct the line, or name the separator with --sep"
                )


def _tell_words(
    frame: pd.DataFrame, path: Path, read_text: Callable[[list[int]], pd.DataFrame]
) -> None:
    """Say which words in columns of text count as missing values."""
    incomplete = [
        j
        for j, dtype in enumerate(frame.dtypes)
        if dtype.kind not in "iufb" and frame.iloc[:, j].isna().any()
    ]
    if not incomplete:
        return
    texts = read_text(incomplete)
    names = []
    words: Counter[str] = Counter()
    for position, j in enumerate(incomplete):
        column = texts.iloc[:, position]
        counts = column[column.isin(NA_WORDS)].value_counts()
        if len(counts):
            words.update({str(word): int(n) for word, n in counts.items()})
            names.append(str(frame.columns[j]))
    if names:
        listed = ", ".join(f"{word!r} ({n} cells)" for word, n in words.items())
        shown = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
        warnings.warn(
            f"{listed} in {shown} of {path} count as missing values; to keep them as "
            f"they are, add --na '{names[0]}='",
            AugMaskWarning,
            stacklevel=2,
        )


# -- all of it --------------------------------------------------------------------


def _read(text: Text, names: list[str] | None, **options: Any) -> pd.DataFrame:
    """Return what pandas reads; `names` if the file has none."""
    header: dict[str, Any] = {} if names is None else {"header": None, "names": names}
    with warnings.catch_warnings():
        # pandas only warns about a line longer than the header, and drops its end.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        read = partial(
            pd.read_csv,
            sep=r"\s+" if text.sep == BLANK else text.sep,
            encoding=text.encoding,
            low_memory=False,
            index_col=False,
            # In a file of one column a blank line is a missing value.
            skip_blank_lines=len(text.rows[0]) > 1,
            **header,
            **options,
        )
        if text.path.suffix.lower() != ".zip":
            return read(text.path)
        with _open_bytes(text.path) as file:
            return read(file)


def _open_text(path: Path, options: ReadOptions) -> tuple[Text, str, bool]:
    """Return a file, its first characters, and whether there are more."""
    encoding = _encoding(path, options.encoding)
    sample, more = _sample(path, encoding)
    sep = options.sep or _separator(path, sample, more)
    rows = _peek(sample, more, sep)
    if not rows:
        raise DataError(f"a table needs a header line, {path} is empty")
    return Text(path, encoding, sep, rows), sample, more


def _given_names(text: Text, options: ReadOptions) -> list[str] | None:
    """Return names for the columns of a file without a header, else None."""
    return column_names(len(text.rows[0])) if options.header is False else None


def read_texts(path: Path, options: ReadOptions) -> pd.DataFrame:
    """Return the cells of a file that `read_text_file` has read as they are written."""
    with warnings.catch_warnings():
        # It is told already.
        warnings.simplefilter("ignore", AugMaskWarning)
        text, _, _ = _open_text(path, options)
    names = _given_names(text, options)
    return _read(text, names, dtype="str", keep_default_na=False)


def read_text_file(
    path: Path, options: ReadOptions, check_labels: Callable[[list[str]], None]
) -> pd.DataFrame:
    """Return the table in a text file; `check_labels` raises for names of no use."""
    text, sample, more = _open_text(path, options)
    rows = text.rows
    if text.sep != BLANK:
        _check_quotes(io.StringIO(sample, newline=""), path, text.sep)
        if more:
            _check_all_quotes(text)
    names = _given_names(text, options)
    if names is None:
        doubt = None if options.header else header_doubt(rows, str(path))
        if doubt:
            raise DataError(doubt)
        check_labels([name for name in rows[0] if name.strip()])
    columns = names or rows[0]
    kept = [name for name in columns if options.keeps_words(name)]
    words: dict[str, Any] = {}
    if kept:
        # pandas drops its own words only if told all of them.
        words = {"keep_default_na": False}
        words["na_values"] = {
            name: [""] if name in kept else ["", *NA_WORDS] for name in columns
        }
    try:
        frame = _read(text, names, **words)
    except (pd.errors.ParserError, pd.errors.ParserWarning):
        _check_widths(text, len(columns))
        raise
    # pandas pads short lines with missing values, which reach the last column.
    if len(columns) > 1 and len(frame) and frame.iloc[:, -1].isna().any():
        _check_widths(text, len(columns))
    frame = _restore_cells(
        frame, text, lambda at: _read(text, names, usecols=at, dtype="str", **words)
    )
    plain = {"keep_default_na": False, "dtype": "str"}
    _tell_words(
        frame.drop(columns=[name for name in kept if name in frame]) if kept else frame,
        path,
        lambda at: _read(text, names, usecols=_positions(frame, kept, at), **plain),
    )
    return frame


def _positions(frame: pd.DataFrame, dropped: Sequence[str], at: list[int]) -> list[int]:
    """Return the positions in the file of columns counted without the dropped ones."""
    left = [j for j, name in enumerate(frame.columns) if name not in dropped]
    return [left[j] for j in at]
