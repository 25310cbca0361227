"""Read tables from pandas, polars, Arrow or a file into a pandas frame.

The result has unique column names, at least one row and one column. Whole numbers and
booleans with missing values become nullable types, so that they never turn into floats.
"""

from __future__ import annotations

import csv
import math
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from augmask.errors import AugMaskWarning, DataError, UsageError, did_you_mean
from augmask.files import is_regular_file
from augmask.table import excel, text_files
from augmask.table.cells import read_cells
from augmask.table.dtype_recovery import suspected_numbers, suspected_texts
from augmask.table.frame_kinds import collected, kind_name
from augmask.table.read_options import Code, ReadOptions, TableFile, read_options

ARROW = (".parquet", ".feather", ".arrow")
SUFFIXES = (*text_files.SUFFIXES, *text_files.COMPRESSED, *excel.SUFFIXES, *ARROW)
# What a frame remembers of the codes that its file had for missing values.
CODES = "na_values"
# A frame whose nullable types were chosen in reading, not by its owner.
INFERRED = "inferred_types"

READ_ERRORS = (
    csv.Error,
    EOFError,
    OSError,
    ValueError,
    zipfile.BadZipFile,
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


def _nullable_dtype(kind: pa.DataType) -> Any:
    """Return the pandas type for an Arrow type that keeps it beside missing values."""
    if pa.types.is_boolean(kind):
        return pd.BooleanDtype()
    if pa.types.is_integer(kind):
        return pd.api.types.pandas_dtype(_nullable_name(str(kind)))
    return None


def _nullable_name(name: str) -> str:
    """Return the nullable type of a type of whole numbers, such as Int64 of int64."""
    return name if name[0].isupper() else name.replace("i", "I", 1).replace("uI", "UI")


def _as_storage_type(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of an Arrow extension type as its storage type."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    plain = [chunk.storage for chunk in column.chunks]
    return pa.chunked_array(plain, column.type.storage_type)


def _with_signed_codes(column: pa.ChunkedArray) -> pa.ChunkedArray:
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


def from_arrow(table: pa.Table, source: str, consume: bool = False) -> pd.DataFrame:
    """Return a frame; with `consume` the table's memory is freed on the way."""
    _check_labels(table.column_names, source)
    columns = [_with_signed_codes(_as_storage_type(column)) for column in table.columns]
    table = pa.table(columns, table.column_names)
    frame = table.to_pandas(
        types_mapper=_nullable_dtype,
        date_as_object=False,
        split_blocks=consume,
        self_destruct=consume,
    )
    if consume:
        # Arrow's pool would keep nearly the size of the file.
        pa.default_memory_pool().release_unused()
    return frame


# -- missing-value codes -----------------------------------------------------------


def _plain_code(code: Code, series: pd.Series) -> Code:
    """Return a code as a number where the column holds numbers."""
    if isinstance(code, str) and series.dtype.kind in "iuf":
        try:
            number = float(code)
        except ValueError:
            return code
        # A model file holds no infinity, and NaN is missing anyhow.
        if not math.isfinite(number):
            return code
        return int(number) if number.is_integer() else number
    return code


def _suspected_codes(series: pd.Series, name: str) -> tuple[Code, ...]:
    """Return the values of a column that look like codes."""
    kind = series.dtype.kind
    if kind in "iuf":
        return suspected_numbers(read_cells(series, name).observed_values)
    if kind == "O" and not series.map(pd.api.types.is_hashable).all():
        # Lists and the like, which are an error that names the column.
        read_cells(series, name)
    texts = {str(value) for value in series.dropna().unique() if isinstance(value, str)}
    return suspected_texts(sorted(texts))


def _column_without_codes(
    series: pd.Series, name: str, codes: tuple[Code, ...]
) -> tuple[pd.Series, tuple[Code, ...]]:
    """Return a column with missing values for codes, and the codes in its type."""
    codes = tuple(dict.fromkeys(_plain_code(code, series) for code in codes))
    return (_codes_masked(series, name, codes) if codes else series), codes


def _without_codes(
    frame: pd.DataFrame, options: ReadOptions, source: str
) -> pd.DataFrame:
    """Return the frame with missing values for codes, which it remembers."""
    names = [str(label) for label in frame.columns]
    for name, _ in options.na_by_column:
        if name not in names:
            raise UsageError(
                f"--na names the column {name!r}, which {source} does not have"
                + did_you_mean(name, names)
            )
    declared = bool(options.na or options.na_by_column)
    if not declared and not options.na_auto:
        return frame
    columns, all_codes = [], dict(codes_taken_in_reading(frame))
    taken = []
    for j, name in enumerate(names):
        series = frame.iloc[:, j]
        codes = tuple(c for c in options.codes_of(name) if c != "")
        cleaned, codes = _column_without_codes(series, name, codes)
        # Text codes may hide numbers, and among those there may be more codes.
        while options.na_auto and not options.keeps_words(name):
            more = [c for c in _suspected_codes(cleaned, name) if c not in codes]
            if not more:
                break
            taken += [f"{code!r} in {name!r}" for code in more]
            cleaned, codes = _column_without_codes(cleaned, name, (*codes, *more))
        if cleaned is not series or any(name == own for own, _ in options.na_by_column):
            all_codes[name] = list(dict.fromkeys([*all_codes.get(name, []), *codes]))
        columns.append(cleaned)
    if taken:
        shown = ", ".join(taken[:8]) + (", ..." if len(taken) > 8 else "")
        warnings.warn(
            f"taken for missing values in {source} (--na auto): {shown}",
            AugMaskWarning,
            stacklevel=2,
        )
    result = pd.concat(columns, axis=1)
    result.columns = frame.columns
    result.attrs = {
        **frame.attrs,
        CODES: {n: codes for n, codes in all_codes.items() if codes},
    }
    return result


def _codes_masked(series: pd.Series, name: str, codes: tuple[Code, ...]) -> pd.Series:
    """Return a column with missing values for the codes; itself if it has none."""
    cells = read_cells(series, name, codes)
    hit = series.notna().to_numpy() & ~cells.observed
    if not hit.any():
        return series
    if series.dtype.kind in "iu":
        series = series.astype(_nullable_name(str(series.dtype)))
    elif series.dtype.kind == "b":
        series = series.astype("boolean")
    masked = series.mask(hit)
    if masked.dtype.kind == "O":
        masked = masked.infer_objects()
        known = masked.dropna()
        if len(known) and all(type(value) is int for value in known):
            return masked.astype("Int64")
        if len(known) and all(type(value) in (int, float) for value in known):
            return masked.astype("float64")
    texts = masked.dropna()
    if len(texts) and all(isinstance(value, str) for value in texts.unique()):
        return text_files.retyped(masked)
    return masked


def codes_taken_in_reading(frame: pd.DataFrame) -> dict[str, list[Code]]:
    """Return the missing-value codes that `read_table` took from each column."""
    stored = frame.attrs.get(CODES)
    names = {str(label) for label in frame.columns}
    if not isinstance(stored, Mapping):
        return {}
    return {name: list(codes) for name, codes in stored.items() if name in names}


# -- files ------------------------------------------------------------------------


def _check_options(path: Path, options: ReadOptions, text: bool) -> None:
    """Raise if an option does not apply to this kind of file."""
    workbook = path.name.lower().endswith(excel.SUFFIXES)
    given = {"--sep": options.sep, "--encoding": options.encoding}
    wrong = [flag for flag, value in given.items() if value is not None and not text]
    if options.header is not None and not text and not workbook:
        wrong.append("--header" if options.header else "--no-header")
    if options.sheet is not None and not workbook:
        wrong.append("--sheet")
    if wrong:
        raise UsageError(f"{wrong[0]} does not apply to {path.name}; leave it out")


def _read_path(path: Path, options: ReadOptions) -> pd.DataFrame:
    name = path.name.lower()
    if not path.exists():
        raise DataError(f"no such file: {path}")
    if path.is_dir():
        raise DataError(f"a table must be a file, {path} is a directory")
    inner = name.removesuffix(".gz")
    text = inner.endswith(text_files.SUFFIXES) or name.endswith(".zip")
    if not text and not name.endswith((*excel.SUFFIXES, *ARROW)):
        hint = "; save it as .xlsx" if name.endswith((".xls", ".ods")) else ""
        raise DataError(
            f"a table's file name must end in {', '.join(SUFFIXES)}, got "
            f"{path.name}{hint}"
        )
    if not is_regular_file(path):
        raise DataError(f"a table must be a plain file, {path} is a pipe or a device")
    _check_options(path, options, text)

    def check(names: list[str]) -> None:
        _check_labels(names, str(path))

    try:
        if text:
            return text_files.read_text_file(path, options, check)
        if name.endswith(excel.SUFFIXES):
            return excel.read_excel_file(path, options, check)
        if name.endswith(".parquet"):
            from pyarrow import parquet

            return from_arrow(parquet.read_table(path), str(path), consume=True)
        from pyarrow import feather

        return from_arrow(feather.read_table(path), str(path), consume=True)
    except PermissionError as error:
        raise DataError(f"no permission to read {path}") from error
    except (DataError, UsageError):
        raise
    except UnicodeError as error:
        used = (options.encoding or "utf-8").removesuffix("-sig").upper()
        other = "cp1252" if options.encoding is None else "utf-8"
        raise DataError(
            f"{path} is not encoded in {used}: {_one_line(error)}; name its encoding, "
            f"e.g. --encoding {other}"
        ) from error
    except READ_ERRORS as error:
        kind = "CSV" if ".csv" in name else name.rsplit(".", 1)[-1].capitalize()
        raise DataError(
            f"{path} cannot be read as {kind}: {_one_line(error)}"
        ) from error


def _how_to_wrap(source: Any) -> str:
    """Return how to make a frame of something, as the end of a message."""
    if hasattr(source, "to_frame"):
        return "; a single column becomes one by .to_frame()"
    if isinstance(source, np.ndarray):
        return "; wrap it: pandas.DataFrame(array, columns=[...])"
    wrapped = isinstance(source, list | tuple | dict)
    return "; wrap it: pandas.DataFrame(...)" if wrapped else ""


def _convert(source: Any, options: ReadOptions) -> tuple[pd.DataFrame, str]:
    """Return a pandas frame, and its name in messages."""
    if isinstance(source, pd.DataFrame):
        return source, "the frame"
    if isinstance(source, (str, Path)):
        path = Path(source).expanduser()
        return _read_path(path, options), str(path)
    if kind_name(source) == "polars":
        return from_arrow(collected(source).to_arrow(), "the frame"), "the frame"
    if isinstance(source, (pa.Table, pa.RecordBatch)):
        table = pa.table(source) if isinstance(source, pa.RecordBatch) else source
        return from_arrow(table, "the table"), "the table"
    raise DataError(
        "a table must be a pandas or polars frame, an Arrow table or a path, got "
        f"{type(source).__name__}{_how_to_wrap(source)}"
    )


def read_frame(source: Any) -> pd.DataFrame:
    """Return a table as a pandas frame with a default index.

    Parameters
    ----------
    source : pandas or polars DataFrame, pyarrow.Table, str, Path or TableFile
        A path must end in .csv, .tsv, .txt (also .gz or .zip), .xlsx, .parquet,
        .feather or .arrow. The index of a frame is ignored.

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
    options = source.options if isinstance(source, TableFile) else ReadOptions()
    frame, name = _convert(
        source.path if isinstance(source, TableFile) else source, options
    )
    if isinstance(frame.columns, pd.MultiIndex):
        raise DataError(
            f"column names must be one level deep, {name} has "
            f"{frame.columns.nlevels}; join them first"
        )
    _check_labels(frame.columns, name)
    if not len(frame):
        raise DataError(f"a table needs at least one row, {name} has none")
    inferred = not isinstance(source, pd.DataFrame)
    frame = frame.reset_index(drop=True)
    if inferred:
        frame.attrs[INFERRED] = True
    return _without_codes(frame, options, name)


def read_table(
    source: Any,
    *,
    na: Any = None,
    sep: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    sheet: str | int | None = None,
) -> pd.DataFrame:
    """Read a table as it is: from a file or another library's frame, in exact types.

    Parameters
    ----------
    source : path, pandas or polars DataFrame, or pyarrow.Table
        A path ends in .csv, .tsv, .tab, .txt, .dat or .data (also with .gz, or in a
        .zip), .xlsx, .parquet, .feather or .arrow.
    na : str, number, list, mapping or "auto", optional
        What means a missing value besides empty cells and NA, NULL, None and the like:
        a code, a list of codes, codes by column (``{"income": -999}``), or "auto" for
        all that looks like one. An empty code (``{"country": ""}``) keeps those words.
        Models remember the codes of their table.
    sep : str, optional
        What separates columns; recognised if it is certain.
    header : bool, optional
        Whether the first line names the columns.
    encoding : str, optional
        Such as "cp1252"; UTF-8 if the file does not say.
    sheet : str or int, optional
        Of an Excel file, by name or number from 1.

    Returns
    -------
    pandas.DataFrame

    Examples
    --------
    >>> frame = pd.DataFrame({"age": ["30", "?", "41"], "pay": [100, -9, 120]})
    >>> read_table(frame, na={"age": "?", "pay": -9}).values.tolist()
    [[30, 100], [<NA>, <NA>], [41, 120]]
    """
    options = read_options(na, sep, header, encoding, sheet)
    if isinstance(source, (str, Path)):
        return read_frame(TableFile(Path(source), options))
    frame = read_frame(source)
    return _without_codes(frame, options, "the frame")
