"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path, typer.Argument(help="table: .csv, .csv.gz, .parquet or .feather")
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
Seed = Annotated[int, typer.Option("--seed", help="same seed, same result")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps")]
Json = Annotated[
    bool, typer.Option("--json", help="print one JSON document to standard output")
]
CsvSafe = Annotated[
    bool,
    typer.Option("--csv-safe", help="escape text that a spreadsheet would execute"),
]
