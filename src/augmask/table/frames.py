"""Read tables from pandas, polars, Arrow or a file into a pandas frame.

The result has unique column names, at least one row and one column. Whole numbers and
booleans with missing values become nullable types, so that they never turn into floats.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np
import pandas as pd
import pyarrow as pa

from augmask.errors import DataError
from augmask.files import is_regular_file
from augmask.table.dtype_recovery import is_code_like

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".feather", ".arrow")
# Beyond this, neighbouring whole numbers may be the same float.
EXACT = 2.0**53

_WHOLE = re.compile(r"\s*[+-]?\d{1,30}\s*")
_CODE_CELL = re.compile(rb'(?:^|[,"\r\n])[ \t]*[+-]?0\d+[ \t]*(?=[,"\r\n]|$)')
_CHUNK = 1 << 24
_READ_ERRORS = (
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
    """Return the first line of an error's message, to be quoted in a sentence."""
    lines = str(error).strip().splitlines()
    line = lines[0].rstrip(".") if lines else type(error).__name__
    return line.removeprefix("Error tokenizing data. C error: ")


def _check_labels(labels: Iterable[Any], source: str) -> None:
    """Raise unless the labels are text or numbers that differ as text."""
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
    counts = Counter(str(label) for label in labels)
    duplicates = [name for name, n in counts.items() if n > 1]
    if duplicates:
        raise DataError(
            f"column names must be unique, {source} has {duplicates[0]!r} more than "
            "once; rename one of them"
        )


def _open_text(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open("r", encoding="utf-8-sig", newline="")


def _csv_header(path: Path) -> list[str]:
    """Return the header as written in the file; pandas would rename duplicates."""
    with _open_text(path) as lines:
        for row in csv.reader(lines):
            if row:
                return row
    raise DataError(f"a table needs a header line, {path} is empty")


def _check_widths(path: Path, width: int) -> None:
    """Raise unless every non-blank line has as many fields as the header."""
    with _open_text(path) as lines:
        reader = csv.reader(lines)
        for row in reader:
            if row and len(row) != width:
                raise DataError(
                    f"every line of a CSV file must have as many fields as the header "
                    f"({width}), line {reader.line_num} of {path} has {len(row)}"
                )


# pandas reads whole numbers with missing values as floats, which have 53 bits, and
# 00273 as 273. Columns in doubt are read again as text: whole numbers become nullable
# integers, and digits with leading zeros stay text.


def _has_codes(path: Path) -> bool:
    """Whether any cell of the file is digits with a leading zero."""
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    file: BinaryIO
    with opener(path, "rb") as file:
        # Whole lines at a time, so that no cell is cut.
        while chunk := file.read(_CHUNK) + file.readline():
            if _CODE_CELL.search(chunk):
                return True
    return False


def _largest_whole(series: pd.Series) -> float:
    """Return the largest absolute value of a float column; NaN if one is not whole."""
    values = series.dropna().to_numpy(dtype=np.float64)
    if not len(values) or not (np.rint(values) == values).all():
        return float("nan")
    return float(np.abs(values).max())


def _needs_text(series: pd.Series, codes: bool) -> bool:
    """Whether the text of a column is needed to read its values correctly."""
    kind = series.dtype.kind
    if kind == "f":
        largest = _largest_whole(series)
        return largest >= EXACT or (codes and not math.isnan(largest))
    if kind in "iu":
        return codes
    # pandas returns large unsigned numbers with missing values as text with "".
    return kind != "b" and bool((series == "").any())


def _from_text(texts: pd.Series) -> pd.Series | None:
    """Return codes as text and digits as whole numbers; None for anything else."""
    known = texts.dropna()
    levels = pd.unique(known)
    if is_code_like(levels):
        return texts
    if not len(levels) or not all(_WHOLE.fullmatch(level) for level in levels):
        return None
    number = {level: int(level) for level in levels}
    for dtype in ("Int64", "UInt64"):
        limits = np.iinfo(dtype.lower())
        if limits.min <= min(number.values()) and max(number.values()) <= limits.max:
            whole = pd.Series(0, index=texts.index, dtype=dtype)
            whole[texts.notna()] = pd.array([number[t] for t in known], dtype=dtype)
            return whole.mask(texts.isna())
    return None


def _restore_csv_cells(
    frame: pd.DataFrame, path: Path, read_text: Callable[[list[int]], pd.DataFrame]
) -> pd.DataFrame:
    """Return the frame that pandas read from `path` with its cells as written.

    `read_text` reads the columns at some positions again, as text.
    """
    codes = any(dtype.kind in "iuf" for dtype in frame.dtypes) and _has_codes(path)
    columns = [frame.iloc[:, j] for j in range(frame.shape[1])]
    doubtful = [j for j, column in enumerate(columns) if _needs_text(column, codes)]
    texts = read_text(doubtful) if doubtful else frame
    changed = False
    for position, j in enumerate(doubtful):
        column = _from_text(texts.iloc[:, position])
        # Whole numbers without missing values were read correctly.
        correct = columns[j].dtype.kind in "iu"
        if column is not None and not (correct and column.dtype.kind in "iu"):
            columns[j], changed = column, True
    for j, column in enumerate(columns):
        incomplete = column.dtype.kind == "f" and column.isna().any()
        if incomplete and _largest_whole(column) < EXACT:
            columns[j], changed = column.astype("Int64"), True
    if not changed:
        return frame
    restored = pd.concat(columns, axis=1)
    restored.columns = frame.columns
    return restored


def _read_csv(path: Path) -> pd.DataFrame:
    header = _csv_header(path)
    _check_labels((name for name in header if name.strip()), str(path))
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise DataError(
            f"a CSV file must be separated by commas, {path} starts with "
            f"{header[0][:40]!r}; save it with commas"
        )
    with warnings.catch_warnings():
        # pandas only warns about a line longer than the header, and drops its end.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        read = partial(
            pd.read_csv,
            path,
            encoding="utf-8-sig",
            low_memory=False,
            index_col=False,
            # In a file of one column a blank line is a missing value.
            skip_blank_lines=len(header) > 1,
        )
        try:
            frame = read()
        except (pd.errors.ParserError, pd.errors.ParserWarning):
            _check_widths(path, len(header))
            raise
    # pandas pads short lines with missing values, which reach the last column.
    if len(header) > 1 and len(frame) and frame.iloc[:, -1].isna().any():
        _check_widths(path, len(header))
    return _restore_csv_cells(frame, path, lambda at: read(usecols=at, dtype="str"))


def _nullable(kind: pa.DataType) -> Any:
    """Return the pandas type for an Arrow type that keeps it beside missing values."""
    if pa.types.is_boolean(kind):
        return pd.BooleanDtype()
    if pa.types.is_integer(kind):
        name = str(kind)
        return pd.api.types.pandas_dtype(name.replace("i", "I", 1).replace("uI", "UI"))
    return None


def _stored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of an Arrow extension type as its storage type."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    plain = [chunk.storage for chunk in column.chunks]
    return pa.chunked_array(plain, column.type.storage_type)


def _signed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column whose levels are counted by signed integers.

    polars counts them by unsigned ones, which pyarrow before 23 cannot convert.
    """
    kind = column.type
    if not pa.types.is_dictionary(kind) or str(kind.index_type)[0] != "u":
        return column
    chunks = [
        pa.DictionaryArray.from_arrays(
            chunk.indices.cast(pa.int64()), chunk.dictionary, ordered=kind.ordered
        )
        for chunk in column.chunks
    ]
    return pa.chunked_array(
        chunks, pa.dictionary(pa.int64(), kind.value_type, kind.ordered)
    )


def _from_arrow(table: pa.Table, source: str, consume: bool = False) -> pd.DataFrame:
    """Return a frame; with `consume` the table's memory is freed on the way."""
    _check_labels(table.column_names, source)
    columns = [_signed(_stored(column)) for column in table.columns]
    table = pa.table(columns, table.column_names)
    frame = table.to_pandas(
        types_mapper=_nullable,
        date_as_object=False,
        split_blocks=consume,
        self_destruct=consume,
    )
    if consume:
        # Arrow's pool would keep nearly the size of the file.
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
    if not is_regular_file(path):
        raise DataError(f"a table must be a plain file, {path} is a pipe or a device")
    try:
        if name.endswith((".csv", ".csv.gz")):
            return _read_csv(path)
        if name.endswith(".parquet"):
            from pyarrow import parquet

            return _from_arrow(parquet.read_table(path), str(path), consume=True)
        from pyarrow import feather

        return _from_arrow(feather.read_table(path), str(path), consume=True)
    except PermissionError as error:
        raise DataError(f"no permission to read {path}") from error
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(
            f"the text of a table must be encoded in UTF-8, {path} is not: "
            f"{_one_line(error)}; save it as UTF-8"
        ) from error
    except _READ_ERRORS as error:
        kind = "CSV" if ".csv" in name else name.rsplit(".", 1)[-1].capitalize()
        raise DataError(
            f"{path} cannot be read as {kind}: {_one_line(error)}"
        ) from error


def _convert(source: Any) -> tuple[pd.DataFrame, str]:
    """Return a pandas frame, and its name in messages."""
    if isinstance(source, pd.DataFrame):
        return source, "the frame"
    if isinstance(source, (str, Path)):
        path = Path(source).expanduser()
        return _read_path(path), str(path)
    # polars is no dependency: recognise its frames by their module.
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
    """Return a table as a pandas frame with a default index.

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
        If the table is empty, its names are ambiguous, or the file cannot be read.

    Examples
    --------
    >>> read_frame(pd.DataFrame({"a": [1, None]}, index=[5, 9])).index.tolist()
    [0, 1]
    >>> read_frame("nowhere.csv")
    Traceback (most recent call last):
    augmask.errors.DataError: no such file: nowhere.csv
    """
    frame, name = _convert(source)
    if isinstance(frame.columns, pd.MultiIndex):
        raise DataError(
            f"column names must be one level deep, {name} has "
            f"{frame.columns.nlevels}; join them first"
        )
    _check_labels(frame.columns, name)
    if not len(frame):
        raise DataError(f"a table needs at least one row, {name} has none")
    return frame.reset_index(drop=True)
