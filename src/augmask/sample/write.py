"""Write frames to one file in batches, with constant memory.

The file appears when the last batch is written, or not at all. The calling thread
generates batches and a second thread converts and writes them, one batch behind, so the
total time is that of the slower one.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from gzip import GzipFile
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from augmask.errors import DataError, UsageError
from augmask.files import as_path, atomic_write, check_writable
from augmask.table.schema import Schema

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".feather")

# First characters that some spreadsheet program takes for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def check_output(path: str | Path) -> Path:
    """Return `path` if rows can be written there; call it before generating any."""
    path = as_path(path)
    if not path.name.lower().endswith(SUFFIXES):
        raise UsageError(
            f"the output file must end in one of {', '.join(SUFFIXES)}, got {path.name}"
        )
    return check_writable(path)


def _is_formula(text: Any) -> bool:
    return isinstance(text, str) and text.startswith(FORMULA)


def _without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame without text or names that a spreadsheet takes for formulas."""
    safe = {}
    taken = set(frame.columns)
    for label in frame.columns:
        column = frame[label]
        if column.dtype.kind not in "biufmM":
            column = column.astype(object)
            column = column.mask(column.map(_is_formula), "'" + column.astype(str))
        name = label
        if _is_formula(label):
            while name in taken:
                name = f"'{name}"
            taken.add(name)
        safe[name] = column
    return pd.DataFrame(safe)


def _has_carriage_return(frame: pd.DataFrame) -> bool:
    """Return whether text has a carriage return, which pandas leaves unquoted."""
    texts = [frame[c] for c in frame.columns if frame[c].dtype.kind not in "biufmM"]
    return any("\r" in str(v) for text in texts for v in text.unique()) or any(
        "\r" in str(label) for label in frame.columns
    )


class _CsvFile:
    """Appends frames to a CSV file."""

    def __init__(self, part: Path, compress: bool) -> None:
        self._raw = self._file = part.open("wb")
        if compress:
            # No time stamp in the gzip header: same rows, same bytes.
            self._file = cast(Any, GzipFile("", "wb", fileobj=self._raw, mtime=0))
        self._header = True

    def write(self, frame: pd.DataFrame) -> None:
        text = frame.to_csv(
            index=False,
            header=self._header,
            lineterminator="\n",
            quoting=csv.QUOTE_NONNUMERIC
            if _has_carriage_return(frame)
            else csv.QUOTE_MINIMAL,
        )
        self._file.write(text.encode())
        self._header = False

    def close(self) -> None:
        with self._raw:
            self._file.close()


def arrow_types(schema: Schema) -> dict[str, pa.DataType]:
    """Return the types of columns whose frames hold objects, by name.

    Rows in which such a column is all missing do not tell its type.
    """
    booleans = {c.name: pa.bool_() for c in schema if c.kind == "boolean"}
    texts = {
        column.name: pa.string()
        for column in schema
        if column.format is not None or column.has_text_levels
    }
    return booleans | texts


class _ArrowFile:
    """Appends frames to a Parquet or Feather file with the schema of the first one.

    Columns that are all missing there have the type in `types`, if it is known.
    """

    def __init__(self, part: Path, name: str, types: Mapping[str, pa.DataType]) -> None:
        self._types, self._name = types, name
        parquet = name.endswith(".parquet")
        self._open = pa.parquet.ParquetWriter if parquet else pa.ipc.new_file
        self._part = str(part)
        self._writer: Any = None
        self._schema: Any = None

    def write(self, frame: pd.DataFrame) -> None:
        try:
            table = pa.Table.from_pandas(frame, self._schema, preserve_index=False)
        except pa.ArrowException as error:
            reason = " ".join(map(str, error.args)).rstrip(".")
            raise DataError(
                f"cannot write {self._name}: {reason}; write a .csv file"
            ) from error
        if self._writer is None:
            table = self._table_with_known_types(frame, table)
            self._schema = table.schema
            self._writer = self._open(self._part, table.schema)
        self._writer.write_table(table)

    def _table_with_known_types(self, frame: pd.DataFrame, table: pa.Table) -> pa.Table:
        schema = table.schema
        for i, field in enumerate(schema):
            if pa.types.is_null(field.type) and field.name in self._types:
                schema = schema.set(i, field.with_type(self._types[field.name]))
        return pa.Table.from_pandas(frame, schema, preserve_index=False)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write an Arrow table to a Parquet file, with its types as they are."""
    with atomic_write(path) as part:
        pa.parquet.write_table(table, part)


def _open_file(
    part: Path, name: str, types: Mapping[str, pa.DataType]
) -> _CsvFile | _ArrowFile:
    if name.endswith((".parquet", ".feather")):
        return _ArrowFile(part, name, types)
    return _CsvFile(part, compress=name.endswith(".gz"))


def write_frames(
    batches: Iterable[Any],
    path: str | Path,
    to_frame: Callable[[Any], pd.DataFrame] | None = None,
    csv_safe: bool = False,
    types: Mapping[str, pa.DataType] | None = None,
) -> int:
    """Write frames of one schema to a file; return the number of rows.

    Parameters
    ----------
    batches : iterable of DataFrame
        At least one; or of anything that `to_frame` converts.
    path : str or Path
        Ends in .csv, .csv.gz, .parquet or .feather.
    to_frame : callable, optional
        Converts a batch to a frame while the next one is generated.
    csv_safe : bool
        Put an apostrophe before text that a spreadsheet would run as a formula.
    types : mapping of str to pyarrow.DataType, optional
        Of columns that may be all missing in the first frame, see `arrow_types`.
    """
    path = check_output(path)
    name = path.name.lower()
    if csv_safe and not name.endswith((".csv", ".csv.gz")):
        raise UsageError(
            f"csv_safe applies to CSV files only, got {path.name}; leave it out"
        )
    convert: Callable[[Any], pd.DataFrame] = to_frame or (lambda frame: frame)

    def append(batch: Any) -> int:
        frame = convert(batch).rename(columns=str)
        file.write(_without_formulas(frame) if csv_safe else frame)
        return len(frame)

    rows, pending = 0, None
    with (
        atomic_write(path) as part,
        closing(_open_file(part, name, types or {})) as file,
        ThreadPoolExecutor(1, "augmask-writes") as thread,
    ):
        for batch in batches:
            rows += pending.result() if pending else 0
            pending = thread.submit(append, batch)
        return rows + (pending.result() if pending else 0)
