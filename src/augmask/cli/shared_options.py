"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from augmask.table.read_options import TableFile

Data = Annotated[
    Path,
    typer.Argument(
        help="table: .csv, .tsv or .txt (also .gz or .zip), .xlsx, .parquet, .feather"
    ),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="model, *.augmask")]
RowsFile = Annotated[
    Path, typer.Option("--out", help=".csv, .csv.gz, .parquet or .feather")
]
Real = Annotated[Path, typer.Argument(help="the table the model was trained on")]
Synthetic = Annotated[Path, typer.Argument(help="synthetic rows")]
Test = Annotated[Path | None, typer.Option(help="real rows held out from training")]
Target = Annotated[str | None, typer.Option(help="column to predict on test rows")]
Learner = Annotated[
    str, typer.Option(help="what predicts the target: lightgbm or xgboost")
]
FittedModel = Annotated[
    Path | None,
    typer.Option(
        "--model", help="model file: adds schema, held-out rows, training, imputations"
    ),
]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="TOML file with settings per column")
]
_FILES = "How files are read"
Na = Annotated[
    list[str] | None,
    typer.Option(
        "--na",
        metavar="CODE",
        help="means a missing value: '?' in all columns, income=-999 in one, auto for "
        "all that looks so; may be repeated",
        rich_help_panel=_FILES,
    ),
]
Sep = Annotated[
    str | None,
    typer.Option(
        help="separates columns: ';', '|', tab, space", rich_help_panel=_FILES
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="whether the first line names the columns",
        rich_help_panel=_FILES,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(help="of text: utf-8, cp1252, utf-16, ...", rich_help_panel=_FILES),
]
Sheet = Annotated[
    str | None,
    typer.Option(help="of an Excel file: name or number", rich_help_panel=_FILES),
]
Seed = Annotated[int, typer.Option("--seed", help="same seed, same result")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps")]
Json = Annotated[
    bool, typer.Option("--json", help="print one JSON document to standard output")
]
CsvSafe = Annotated[
    bool,
    typer.Option("--csv-safe", help="escape text that a spreadsheet would execute"),
]


def table_file(
    path: Path,
    na: list[str] | None,
    sep: str | None,
    header: bool | None,
    encoding: str | None,
    sheet: str | None,
) -> TableFile:
    """Return a file and the options about it, in place of its path."""
    from dataclasses import replace

    from augmask.table.read_options import TableFile, read_na_texts, read_options

    plain = read_options(sep=sep, header=header, encoding=encoding, sheet=sheet)
    codes = read_na_texts(na or ())
    options = replace(
        plain, na=codes.na, na_by_column=codes.na_by_column, na_auto=codes.na_auto
    )
    return TableFile(path, options)
