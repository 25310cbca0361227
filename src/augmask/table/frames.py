"""Tables come in: pandas, polars, Arrow, or a path.

Whatever the source, the result is a pandas frame with unique column names, at least
one row and one column. Whole numbers with holes, and Arrow's booleans, arrive as
nullable types: a hole never turns them into floats on the way in.
"""

from __future__ import annotations

import csv
import gzip
import math
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
import pyarrow as pa

from augmask.errors import DataError
from augmask.files import is_plain
from augmask.table.csv_cells import true_cells

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".feather", ".arrow")

_DAMAGE = (
    csv.Error,
    EOFError,
    OSError,
    ValueError,
    zlib.error,
    pa.ArrowException,
    pd.errors.ParserError,
    pd.errors.ParserWarning,
)


def _one_line(error: BaseException) -> str:
    """Return the first line of an error's text, for use inside a sentence."""
    lines = str(error).strip().splitlines()
    line = lines[0].rstrip(".") if lines else type(error).__name__
    return line.removeprefix("Error tokenizing data. C error: ")


def _check_labels(labels: Iterable[Any], source: str) -> None:
    """Raise unless the labels are strings or numbers that differ as text."""
    labels = list(labels)
    if not labels:
        raise DataError(f"a table needs at least one column, {source} has none")
    for label in labels:
        number = isinstance(label, int | float) and not isinstance(label, bool)
        if not isinstance(label, str) and not (number and math.isfinite(label)):
            raise DataError(
                f"column names must be text or numbers, {source} has {label!r}; "
                "rename it"
            )
        try:
            str(label).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"column names must be valid Unicode, {source} has {label!a}; rename it"
            ) from error
    twice = [name for name, n in Counter(str(c) for c in labels).items() if n > 1]
    if twice:
        raise DataError(
            f"column names must be unique, {source} has {twice[0]!r} more than once; "
            "rename one of them"
        )


def _open_text(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open("r", encoding="utf-8-sig", newline="")


def _csv_header(path: Path) -> list[str]:
    """Return the header as it stands in the file: pandas renames duplicates."""
    with _open_text(path) as lines:
        for row in csv.reader(lines):
            if row:
                return row
    raise DataError(f"a table needs a header line, {path} is empty")


def _csv_widths(path: Path) -> Iterator[tuple[int, int]]:
    """Yield the line number and the number of fields of every non-blank line."""
    with _open_text(path) as lines:
        reader = csv.reader(lines)
        for row in reader:
            if row:
                yield reader.line_num, len(row)


def _check_widths(path: Path, width: int) -> None:
    for line, found in _csv_widths(path):
        if found != width:
            raise DataError(
                f"every line of a CSV file must have as many fields as the header "
                f"({width}), line {line} of {path} has {found}"
            )


def _read_csv(path: Path) -> pd.DataFrame:
    header = _csv_header(path)
    _check_labels((name for name in header if name.strip()), str(path))
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise DataError(
            f"a CSV file must be separated by commas, {path} starts with "
            f"{header[0][:40]!r}; save it with commas"
        )
    with warnings.catch_warnings():
        # A line longer than the header is only a warning in pandas, and loses data.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        read = partial(
            pd.read_csv,
            path,
            encoding="utf-8-sig",
            low_memory=False,
            index_col=False,
            # In a file of one column a blank line is a hole, not an empty line.
            skip_blank_lines=len(header) > 1,
        )
        try:
            frame = read()
        except (pd.errors.ParserError, pd.errors.ParserWarning):
            _check_widths(path, len(header))
            raise
    # pandas fills short lines with holes. They can only end in the last column.
    if len(header) > 1 and len(frame) and frame.iloc[:, -1].isna().any():
        _check_widths(path, len(header))
    return true_cells(frame, path, lambda at: read(usecols=at, dtype="str"))


def _nullable(kind: pa.DataType) -> Any:
    """Return the pandas type that holds an Arrow type together with its holes."""
    if pa.types.is_boolean(kind):
        return pd.BooleanDtype()
    if pa.types.is_integer(kind):
        name = str(kind)
        return pd.api.types.pandas_dtype(name.replace("i", "I", 1).replace("uI", "UI"))
    return None


def _stored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of an extension type as the plain one that it is stored as."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    plain = [chunk.storage for chunk in column.chunks]
    return pa.chunked_array(plain, column.type.storage_type)


def _from_arrow(table: pa.Table, source: str, ours: bool = False) -> pd.DataFrame:
    """Return a frame; what a table of ours holds is given back column by column."""
    _check_labels(table.column_names, source)
    table = pa.table([_stored(column) for column in table.columns], table.column_names)
    frame = table.to_pandas(
        types_mapper=_nullable,
        date_as_object=False,
        split_blocks=ours,
        self_destruct=ours,
    )
    if ours:
        # Arrow keeps what it has freed, here most of the size of the file's contents
        pa.default_memory_pool().release_unused()
    return frame


def _read_path(path: Path) -> pd.DataFrame:
    name = path.name.lower()
    if not path.exists():
        raise DataError(f"no such file: {path}")
    if path.is_dir():
        raise DataError(f"a table must be a file, {path} is a directory")
    if not name.endswith(SUFFIXES):
        raise DataError(
            f"a table's file name must end in {', '.join(SUFFIXES)}, got {path.name}"
        )
    if not is_plain(path):
        raise DataError(f"a table must be a plain file, {path} is a pipe or a device")
    try:
        if name.endswith((".csv", ".csv.gz")):
            return _read_csv(path)
        if name.endswith(".parquet"):
            from pyarrow import parquet

            return _from_arrow(parquet.read_table(path), str(path), ours=True)
        from pyarrow import feather

        return _from_arrow(feather.read_table(path), str(path), ours=True)
    except PermissionError as error:
        raise DataError(f"no permission to read {path}") from error
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(
            f"the text of a table must be encoded in UTF-8, {path} is not: "
            f"{_one_line(error)}; save it as UTF-8"
        ) from error
    except _DAMAGE as error:
        kind = "CSV" if ".csv" in name else name.rsplit(".", 1)[-1].capitalize()
        raise DataError(
            f"{path} cannot be read as {kind}: {_one_line(error)}"
        ) from error


def _convert(source: Any) -> tuple[pd.DataFrame, str]:
    """Return a pandas frame and how to call it in a message."""
    if isinstance(source, pd.DataFrame):
        return source, "the frame"
    if isinstance(source, (str, Path)):
        path = Path(source).expanduser()
        return _read_path(path), str(path)
    # polars is no dependency: its frames are known by where they come from.
    if type(source).__module__.split(".")[0] == "polars":
        if hasattr(source, "collect"):
            source = source.collect()
        if hasattr(source, "columns"):
            return _from_arrow(source.to_arrow(), "the frame"), "the frame"
    if isinstance(source, (pa.Table, pa.RecordBatch)):
        table = pa.table(source) if isinstance(source, pa.RecordBatch) else source
        return _from_arrow(table, "the table"), "the table"
    raise DataError(
        "a table must be a pandas or polars frame, an Arrow table or a path, got "
        f"{type(source).__name__}"
    )


def read_frame(source: Any) -> pd.DataFrame:
    """Return a table as a pandas frame with a plain index.

    Parameters
    ----------
    source : pandas or polars DataFrame, pyarrow.Table, str or Path
        A path must end in .csv, .csv.gz, .parquet, .feather or .arrow. The index of
        a frame is ignored.

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    DataError
        When there is nothing to learn from, the names are ambiguous, or the file
        cannot be read.

    Examples
    --------
    >>> read_frame(pd.DataFrame({"a": [1, None]}, index=[5, 9])).index.tolist()
    [0, 1]
    >>> read_frame("nowhere.csv")
    Traceback (most recent call last):
    augmask.errors.DataError: no such file: nowhere.csv
    """
    frame, called = _convert(source)
    if isinstance(frame.columns, pd.MultiIndex):
        raise DataError(
            f"column names must be one level deep, {called} has "
            f"{frame.columns.nlevels}; join them first"
        )
    _check_labels(frame.columns, called)
    if not len(frame):
        raise DataError(f"a table needs at least one row, {called} has none")
    return frame.reset_index(drop=True)
