"""`augmask sample` and `augmask impute`: rows from a model file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from augmask.cli.shared_options import (
    CsvSafe,
    Data,
    Device,
    Jobs,
    Json,
    ModelFile,
    OpenTable,
    RowsFile,
    Scheduler,
    Seed,
    reads_tables,
)
from augmask.cli.terminal import collect_warnings, print_json, progress_reporter
from augmask.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from augmask.model import AugMask
    from augmask.progress import Progress


class _AcceptanceRate:
    """Forwards progress and remembers the share of rows that satisfy a condition."""

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
    n: Annotated[int, typer.Option("-n", "--rows", help="number of rows")],
    out: RowsFile,
    where: Annotated[
        str | None,
        typer.Option(
            help="condition, e.g. 'sex == \"F\" and (age < 30 or job is missing)'"
        ),
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(help="'learned': leave values missing as in the real table"),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(help="write so many Parquet files to the folder --out, resumably"),
    ] = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
    csv_safe: CsvSafe = False,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Generate synthetic rows and write them to a file, or to a folder."""
    from augmask.files import check_apart
    from augmask.model import load
    from augmask.partitioned_rows import check_folder
    from augmask.sample.write import check_output

    if partitions is None:
        check_output(out)
    else:
        check_folder(out)
    check_apart("--out", out, model_file)
    started = time.monotonic()
    with progress_reporter(as_json) as progress:
        accepted = _AcceptanceRate(progress)
        rows = load(model_file, device=device).sample_to(
            out,
            n,
            partitions=partitions,
            scheduler=scheduler,
            n_jobs=jobs,
            seed=seed,
            progress=accepted,
            where=where,
            missing=missing,  # type: ignore[arg-type]
            csv_safe=csv_safe,
        )
    seconds = round(time.monotonic() - started, 1)
    if as_json:
        facts = {"rows": rows, "file": str(out), "seconds": seconds}
        if partitions is not None:
            facts["partitions"] = partitions
        print_json(facts if accepted.rate is None else facts | {"rate": accepted.rate})
        return
    share = ""
    if accepted.rate is not None:
        share = f" ({accepted.rate:.1%} of unconditional rows satisfy the condition)"
    kind = "complete rows" if missing is None else "rows"
    typer.echo(f"{out}: {rows:,} {kind} in {seconds} s{share}")


def _impute_file(
    model: AugMask,
    source: Any,
    out: Path,
    n_draws: int,
    csv_safe: bool,
    seed: int,
    progress: Progress,
) -> tuple[int, int]:
    """Complete one table; return the rows written and the cells imputed in each."""
    from augmask.sample.imputations import Imputations
    from augmask.sample.write import write_frames
    from augmask.table.frames import read_frame
    from augmask.table.spelling import as_in_file, written_cells

    frame = read_frame(source)
    imputed = model.impute(frame, n_draws=n_draws, seed=seed, progress=progress)
    table: pd.DataFrame = (
        imputed.long() if isinstance(imputed, Imputations) else imputed
    )
    n_filled = table.attrs["filled"]
    # Numbers as text would be escaped, too.
    texts = None if csv_safe else written_cells(source, out)
    if texts is not None:
        table = as_in_file(table, frame, texts, model.schema_)
    return write_frames([table], out, csv_safe=csv_safe), n_filled


@reads_tables
def impute(
    model_file: ModelFile,
    data: Data,
    out: RowsFile,
    n_draws: Annotated[
        int,
        typer.Option(help="completed tables, stacked and numbered in column `draw`"),
    ] = 1,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
    csv_safe: CsvSafe = False,
    seed: Seed = 0,
    device: Device = "auto",
    *,
    open_table: OpenTable,
    as_json: Json = False,
) -> None:
    """Impute the missing values of a table; all other cells stay unchanged.

    A folder of Parquet files is written to another folder, part by part.
    """
    from augmask.files import check_apart
    from augmask.model import load
    from augmask.partitioned_rows import check_folder
    from augmask.sample.write import check_output
    from augmask.table.partitions import is_partitioned

    in_parts = is_partitioned(data) or scheduler is not None or jobs is not None
    if in_parts:
        check_folder(out)
        if csv_safe:
            raise UsageError(
                "--csv-safe applies to CSV files, and parts are Parquet files; leave "
                "it out"
            )
    else:
        check_output(out)
    check_apart("--out", out, data, model_file)
    started = time.monotonic()
    source = open_table(data)
    with collect_warnings(as_json) as notes, progress_reporter(as_json) as progress:
        model = load(model_file, device=device)
        if in_parts:
            rows, filled = model.impute_to(
                data,
                out,
                n_draws=n_draws,
                scheduler=scheduler,
                n_jobs=jobs,
                seed=seed,
                progress=progress,
            )
        else:
            rows, filled = _impute_file(
                model, source, out, n_draws, csv_safe, seed, progress
            )
    facts = {
        "rows": rows,
        "file": str(out),
        "imputed": filled,
        "n_draws": n_draws,
        "seconds": round(time.monotonic() - started, 1),
        "notes": notes,
    }
    if as_json:
        print_json(facts)
    else:
        times = f" {n_draws} times" if n_draws > 1 else ""
        typer.echo(
            f"{out}: {facts['imputed']:,} missing values imputed{times}, "
            f"{rows:,} rows in {facts['seconds']} s"
        )
