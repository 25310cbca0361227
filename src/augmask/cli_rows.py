"""`augmask sample` and `augmask impute`: rows from a model file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from augmask.console import noting, print_json, reporting

if TYPE_CHECKING:
    import pandas as pd

    from augmask.progress import Progress

Data = Annotated[
    Path, typer.Argument(help="table: .csv, .csv.gz, .parquet or .feather")
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="model, *.augmask")]
RowsFile = Annotated[
    Path, typer.Option("--out", help=".csv, .csv.gz, .parquet or .feather")
]
Seed = Annotated[int, typer.Option("--seed", help="same seed, same result")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps")]
Json = Annotated[
    bool, typer.Option("--json", help="print one JSON document on standard output")
]
CsvSafe = Annotated[
    bool,
    typer.Option("--csv-safe", help="let no text be a formula in a spreadsheet"),
]


class _Noted:
    """Passes reports on, and notes the share of rows that satisfy a condition."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.rate: float | None = None

    def __call__(
        self, phase: str, done: int, total: int, numbers: Mapping[str, float]
    ) -> None:
        self.rate = numbers.get("rate", self.rate)
        self.progress(phase, done, total, numbers)


def sample(
    model_file: ModelFile,
    n: Annotated[int, typer.Option("-n", "--rows", help="how many rows")],
    out: RowsFile,
    where: Annotated[
        str | None,
        typer.Option(help="which rows, e.g. 'sex == \"F\" and 30 <= age <= 40'"),
    ] = None,
    missing: Annotated[
        str | None, typer.Option(help="'learned': with holes like the learned table's")
    ] = None,
    csv_safe: CsvSafe = False,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Generate complete rows and write them to a file, any number of them."""
    from augmask.files import check_apart
    from augmask.model import load
    from augmask.sample.stream import check_output

    check_output(out)
    check_apart("--out", out, model_file)
    began = time.monotonic()
    with reporting(as_json) as progress:
        noted = _Noted(progress)
        rows = load(model_file, device).sample_to(
            out,
            n,
            seed,
            noted,
            where,
            missing,  # type: ignore[arg-type]
            csv_safe,
        )
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        facts = {"rows": rows, "file": str(out), "seconds": seconds}
        print_json(facts if noted.rate is None else facts | {"rate": noted.rate})
        return
    share = ""
    if noted.rate is not None:
        share = f" ({noted.rate:.1%} of all rows satisfy what was asked)"
    word = "complete rows" if missing is None else "rows"
    typer.echo(f"{out}: {rows:,} {word} in {seconds} s{share}")


def impute(
    model_file: ModelFile,
    data: Data,
    out: RowsFile,
    n_draws: Annotated[
        int, typer.Option(help="completions, below each other and numbered in `draw`")
    ] = 1,
    csv_safe: CsvSafe = False,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Fill the holes of a table by a model; observed cells stay as they are."""
    from augmask.files import check_apart
    from augmask.model import load
    from augmask.sample.multiple import Imputations
    from augmask.sample.stream import check_output, write_frames
    from augmask.table.frames import read_frame

    check_output(out)
    check_apart("--out", out, data, model_file)
    began = time.monotonic()
    frame = read_frame(data)
    with noting(as_json) as notes, reporting(as_json) as progress:
        found = load(model_file, device).impute(
            frame, n_draws=n_draws, seed=seed, progress=progress
        )
        full: pd.DataFrame = found.long() if isinstance(found, Imputations) else found
        rows = write_frames([full], out, csv_safe=csv_safe)
    facts = {
        "rows": rows,
        "file": str(out),
        "filled": full.attrs["filled"],
        "n_draws": n_draws,
        "seconds": round(time.monotonic() - began, 1),
        "notes": notes,
    }
    if as_json:
        print_json(facts)
    else:
        typer.echo(
            f"{out}: {facts['filled']:,} missing cells filled"
            + (f" {n_draws} times" if n_draws > 1 else "")
            + f", {rows:,} rows in {facts['seconds']} s"
        )
