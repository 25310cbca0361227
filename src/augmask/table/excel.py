"""Read a sheet of an Excel file, cell by cell and without guessing."""

from __future__ import annotations

import datetime as dt
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from augmask.errors import AugMaskWarning, DataError, UsageError, did_you_mean
from augmask.table.dtype_recovery import any_leading_zero, are_numbers
from augmask.table.read_options import ReadOptions
from augmask.table.text_files import NA_WORDS, column_names, header_doubt, retyped

SUFFIXES = (".xlsx", ".xlsm")


def _sheet(workbook: Any, wanted: str | int | None, path: Path) -> Any:
    names = workbook.sheetnames
    listed = ", ".join(map(repr, names))
    if wanted is None:
        if len(names) > 1:
            warnings.warn(
                f"{path} has the sheets {listed}, and {names[0]!r} is read; for "
                "another one add --sheet",
                AugMaskWarning,
                stacklevel=2,
            )
        return workbook[names[0]]
    if isinstance(wanted, str) and wanted not in names and wanted.isdecimal():
        wanted = int(wanted)
    if isinstance(wanted, int):
        if not 1 <= wanted <= len(names):
            raise DataError(
                f"{path} has no sheet number {wanted}; --sheet takes one of {listed}"
            )
        return workbook[names[wanted - 1]]
    if wanted not in names:
        raise DataError(
            f"{path} has no sheet {wanted!r}{did_you_mean(wanted, names)}; --sheet "
            f"takes one of {listed}"
        )
    return workbook[wanted]


def _trimmed_rows(rows: list[list[Any]]) -> list[list[Any]]:
    """Return the rows without empty rows and columns at the ends."""
    rows = [row for row in rows if any(cell is not None for cell in row)]
    width = max(
        (i + 1 for row in rows for i, c in enumerate(row) if c is not None), default=0
    )
    return [[*row[:width], *[None] * (width - len(row))] for row in rows]


def _column(cells: Sequence[Any], words: bool) -> pd.Series:
    """Return the cells of a column in one type; mixtures stay objects."""
    missing = {"", *NA_WORDS} if words else {""}
    known: list[Any] = [
        None if isinstance(c, str) and c in missing else c for c in cells
    ]
    kinds = {type(cell) for cell in known if cell is not None}
    if kinds == {dt.time}:
        seconds = any(cell.second for cell in known if cell is not None)
        form = "%H:%M:%S" if seconds else "%H:%M"
        times = [None if cell is None else cell.strftime(form) for cell in known]
        return pd.Series(times, dtype="str")
    if kinds in ({int, str}, {float, str}, {int, float, str}):
        texts = [cell for cell in known if isinstance(cell, str)]
        if any_leading_zero(texts) and all(t.strip().isdecimal() for t in texts):
            # 007 beside 12: digits that are text in some cells are text in all.
            return pd.Series(
                [None if c is None else str(c) for c in known], dtype="str"
            )
        if are_numbers(texts).all():
            return retyped(pd.Series([None if c is None else str(c) for c in known]))
    series = pd.Series(list(known), dtype=object)
    if kinds == {str}:
        return series.astype("str")
    if kinds == {bool}:
        return series.astype("boolean" if series.isna().any() else "bool")
    if kinds == {int} and all(-(2**63) <= c < 2**63 for c in known if c is not None):
        return series.astype("Int64" if series.isna().any() else "int64")
    if kinds and kinds <= {int, float}:
        return series.astype("float64")
    if kinds and kinds <= {dt.datetime, dt.date}:
        return pd.to_datetime(series)
    return series


def _load(path: Path, data_only: bool) -> Any:
    """Return a workbook; with `data_only` it has the results of formulas."""
    try:
        import openpyxl
    except ImportError as error:
        raise UsageError(
            f"reading {path.name} needs openpyxl, which is not installed; run pip "
            "install 'augmask[excel]', or save the sheet as CSV"
        ) from error
    with warnings.catch_warnings():
        # openpyxl warns about styles and drawings that it does not read.
        warnings.simplefilter("ignore", UserWarning)
        try:
            return openpyxl.load_workbook(path, read_only=True, data_only=data_only)
        except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
            raise DataError(
                f"{path} cannot be read as Excel: {str(error).strip().splitlines()[0]}"
            ) from error


def _check_results(path: Path, title: str, position: int, name: str) -> None:
    """Raise if the empty cells of a column are formulas that were never computed."""
    workbook = _load(path, data_only=False)
    try:
        for row in workbook[title].iter_rows(values_only=True):
            cell = row[position] if position < len(row) else None
            if isinstance(cell, str) and cell.startswith("="):
                raise DataError(
                    f"column {name!r} of sheet {title!r} of {path} has formulas "
                    "without results; open the file in a spreadsheet and save it"
                )
    finally:
        workbook.close()


def read_excel_file(
    path: Path, options: ReadOptions, check_labels: Callable[[list[str]], None]
) -> pd.DataFrame:
    """Return the table in a sheet of an Excel file."""
    workbook = _load(path, data_only=True)
    try:
        sheet = _sheet(workbook, options.sheet, path)
        rows = _trimmed_rows([list(row) for row in sheet.iter_rows(values_only=True)])
    finally:
        workbook.close()
    source = f"sheet {sheet.title!r} of {path}"
    if not rows:
        raise DataError(f"a table needs at least one row, {source} is empty")
    if options.header is False:
        names, body = column_names(len(rows[0])), rows
    else:
        named = ["" if cell is None else str(cell) for cell in rows[0]]
        if sum(not name.strip() for name in named) > len(named) / 2:
            raise DataError(
                f"the first row of {source} names {sum(map(bool, named))} of "
                f"{len(named)} columns; delete the rows above the names, or add "
                "--no-header if there are none"
            )
        shown = [["" if c is None else str(c) for c in row] for row in rows[:1_000]]
        doubt = None if options.header else header_doubt(shown, source)
        if doubt:
            raise DataError(doubt)
        check_labels([name for name in named if name.strip()])
        names = [
            name if name.strip() else f"Unnamed: {i}" for i, name in enumerate(named)
        ]
        body = rows[1:]
    for i, name in enumerate(names):
        if all(row[i] is None for row in body):
            _check_results(path, sheet.title, i, name)
    columns = {
        name: _column([row[i] for row in body], not options.keeps_words(name))
        for i, name in enumerate(names)
    }
    return pd.DataFrame(columns, index=np.arange(len(body)))
