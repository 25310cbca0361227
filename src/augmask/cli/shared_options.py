"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from augmask.errors import UsageError

Data = Annotated[
    Path,
    typer.Argument(
        help="table: .csv, .tsv or .txt (also .gz or .zip), .xlsx, .parquet, .feather; "
        "or a folder of .parquet files, or a pattern in quotes"
    ),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="model, *.augmask")]
RowsFile = Annotated[
    Path,
    typer.Option(
        "--out",
        help=".csv, .csv.gz, .parquet or .feather; a new folder if several files are "
        "written",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Dask scheduler whose workers do the partitions: tcp://10.0.0.5:8786",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", help="processes of this machine that do the partitions"),
]
Real = Annotated[
    Path, typer.Argument(help="the table the model was trained on, or its folder")
]
Synthetic = Annotated[Path, typer.Argument(help="synthetic rows, or their folder")]
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
Seed = Annotated[int, typer.Option("--seed", help="same seed, same result")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps")]
Json = Annotated[
    bool, typer.Option("--json", help="print one JSON document to standard output")
]
CsvSafe = Annotated[
    bool,
    typer.Option("--csv-safe", help="escape text that a spreadsheet would execute"),
]


# -- how files are read, in all commands that read a table -------------------------

_PANEL = "How files are read"


def _read_option(kind: Any, *names: str, **facts: Any) -> Any:
    return Annotated[kind, typer.Option(*names, **facts, rich_help_panel=_PANEL)]


_READ_OPTIONS = {
    "na": _read_option(
        list[str] | None,
        "--na",
        metavar="CODE",
        help="means a missing value: '?' in all columns, income=-999 in one, auto for "
        "all that looks so; may be repeated",
    ),
    "sep": _read_option(str | None, help="separates columns: ';', '|', tab, space"),
    "header": _read_option(
        bool | None,
        "--header/--no-header",
        help="whether the first line names the columns",
    ),
    "encoding": _read_option(str | None, help="of text: utf-8, cp1252, utf-16, ..."),
    "sheet": _read_option(str | None, help="of an Excel file: name or number"),
}
# What `reads_tables` passes to a command: a path becomes a table file.
OpenTable = Callable[[Path], Any]


def _options_except_na(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "na"}


def replace_parameter(
    command: Callable[..., None],
    name: str,
    options: Mapping[str, Any],
    make: Callable[[dict[str, Any]], Any],
) -> Callable[..., None]:
    """Replace a parameter of a command by options that several commands share.

    Parameters
    ----------
    command : callable
    name : str
        The parameter.
    options : mapping
        Annotation of each option by its name; the default is None.
    make : callable
        Makes the argument from the values of the options.
    """

    @wraps(command)
    def with_options(**values: Any) -> None:
        given = {option: values.pop(option) for option in options}
        command(**values, **{name: make(given)})

    own = signature(command, eval_str=True)
    parameters = []
    for each in own.parameters.values():
        if each.name != name:
            parameters.append(each)
            continue
        parameters += [
            Parameter(option, each.kind, default=None, annotation=annotation)
            for option, annotation in options.items()
        ]
    with_options.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_options


def _table_opener(given: dict[str, Any]) -> OpenTable:
    """Return what opens a path as the options about files say."""
    from augmask.table.partitions import is_partitioned
    from augmask.table.read_options import TableFile, options_from_texts

    options = options_from_texts(given.get("na") or (), **_options_except_na(given))

    def open_table(path: Path) -> Any:
        if not is_partitioned(path):
            return TableFile(path, options)
        for name, value in given.items():
            if value not in (None, []):
                raise UsageError(
                    f"--{name} does not apply to {path}, a table of Parquet files; "
                    "leave it out"
                )
        return path

    return open_table


def reads_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `open_table` of a command by the options about files."""
    return replace_parameter(command, "open_table", _READ_OPTIONS, _table_opener)
