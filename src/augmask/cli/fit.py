"""`augmask fit`: from a table to a model file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from augmask.cli.shared_options import (
    Data,
    Device,
    Json,
    OpenTable,
    Scheduler,
    SchemaFile,
    Seed,
    reads_tables,
)
from augmask.cli.terminal import (
    check_suffix,
    collect_warnings,
    print_error,
    print_json,
    progress_reporter,
)
from augmask.errors import UsageError
from augmask.train import parallel

if TYPE_CHECKING:
    from augmask.model import AugMask


def _parse_settings(pairs: list[str], backbone: str) -> dict[str, Any]:
    """Parse `NAME=VALUE` into settings of the right types."""
    from augmask.config import read_settings
    from augmask.diffusion import keywords_of

    texts = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f"--set needs NAME=VALUE, got {pair!r}")
        texts[name.strip()] = text.strip()
    return read_settings(texts, keywords_of(backbone))


@contextmanager
def _say_what_was_saved() -> Iterator[None]:
    """Print what an interrupted training has saved, and how to resume it."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        notes = getattr(stop, "__notes__", None)
        nothing = "stopped before the training began; nothing was saved"
        print_error(f"augmask: {notes[0] if notes else nothing}")
        if isinstance(stop, KeyboardInterrupt):
            raise typer.Exit(130) from stop
        raise


def _parse_holdout(text: str) -> Any:
    """Return a number if it is one; what else is not "auto" is refused by `fit`."""
    try:
        return float(text)
    except ValueError:
        return text


@reads_tables
def fit(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="model file, *.augmask")],
    backbone: Annotated[
        str, typer.Option(help="diffusion model: cdtd, tabdiff or tabddpm")
    ] = "cdtd",
    augmenter: Annotated[
        str,
        typer.Option(
            help="what fills missing values: auto (lgbm-s), zero, mean, noise, ecdf, "
            "mice, lgbm-d, lgbm-s, lgbm-s-calibrated or lgbm-chain",
        ),
    ] = "auto",
    supervise: Annotated[
        str, typer.Option(help="cells that the loss counts: observed or all")
    ] = "observed",
    preset: Annotated[
        str, typer.Option(help="auto, fast, balanced, best or paper")
    ] = "auto",
    steps: Annotated[int | None, typer.Option(help="training steps")] = None,
    max_minutes: Annotated[
        float | None, typer.Option(help="time limit of the whole command")
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    schema: SchemaFile = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="save the training here, also on Ctrl-C, and resume from here"
        ),
    ] = None,
    ensemble: Annotated[
        int | None,
        typer.Option(help="number of models to train; rows come from each in turn"),
    ] = None,
    constraints: Annotated[
        list[str] | None,
        typer.Option(
            "--constraint",
            help="holds in every row: 'start <= end', or 'city, zip' for combinations "
            "that occur; names that are not plain words in `backticks`",
        ),
    ] = None,
    private_extremes: Annotated[
        bool,
        typer.Option("--private-extremes", help="drop rare levels, trim extremes"),
    ] = False,
    holdout: Annotated[
        str,
        typer.Option(help="share of rows to hold out for the report, e.g. 0.05"),
    ] = "auto",
    work_dir: Annotated[
        Path | None,
        typer.Option(
            help="of a folder of Parquet files: where encoded and completed rows are "
            "kept, to resume a killed fit and for further fits",
        ),
    ] = None,
    scheduler: Scheduler = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="any other setting, e.g. --set completions=stack:8"),
    ] = None,
    *,
    open_table: OpenTable,
    as_json: Json = False,
) -> None:
    """Train on an incomplete table and write a model file."""
    from augmask.files import check_apart, check_writable, same_file
    from augmask.model import AugMask

    # under torchrun: join the process group, and report an error once
    with parallel.process_group(), parallel.report_error_once():
        check_writable(check_suffix(out, "--out", ".augmask"))
        check_apart("--out", out, data, schema)
        if checkpoint is not None:
            check_apart("--checkpoint", checkpoint, schema)
            if same_file(checkpoint, out):
                raise UsageError(
                    f"--checkpoint and --out must be two files, both are {out}"
                )
        source = open_table(data)
        options = _parse_settings(settings or [], backbone)
        if steps is not None:
            options["steps"] = steps
        started = time.monotonic()
        model = AugMask(
            backbone=backbone,
            augmenter=augmenter,
            supervise=supervise,  # type: ignore[arg-type]
            preset=preset,
            options=options,
            seed=seed,
            device=device,
            ensemble="auto" if ensemble is None else ensemble,
        )
        with (
            _say_what_was_saved(),
            collect_warnings(as_json) as notes,
            progress_reporter(as_json) as progress,
        ):
            model.fit(
                source,
                schema=schema,
                max_minutes=max_minutes,
                checkpoint=checkpoint,
                progress=progress,
                constraints=constraints,
                private_extremes=private_extremes,
                holdout=_parse_holdout(holdout),
                work_dir=work_dir,
                scheduler=scheduler,
            )
        if not parallel.is_main_process():
            return
        model.save(out)
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
    seconds = round(time.monotonic() - started, 1)
    _print_summary(model, out, holdout, seconds, notes, as_json)


def _print_summary(
    model: AugMask,
    out: Path,
    holdout: str,
    seconds: float,
    notes: list[str],
    as_json: bool,
) -> None:
    history, training = model.history_, model.training_
    held_out = history["held_out"].min()
    facts = {
        "model": str(out),
        "preset": model.preset_,
        "chosen": training["chosen"],
        "augmenter": model.augmenter_,
        "steps": int(history["step"].iloc[-1]),
        "best_step": training["best_step"],
        "stopped": training["stopped"],
        "restarts": training["restarts"],
        "loss": float(history["loss"].iloc[-1]),
        "holdout": training["holdout"],
        "held_out": None if held_out != held_out else float(held_out),
        "seconds": seconds,
        "notes": notes,
    }
    if as_json:
        print_json(facts)
        return
    validation = "" if facts["held_out"] is None else f", held-out {held_out:.4f}"
    restarts = f", {facts['restarts']} restarts" if facts["restarts"] else ""
    if facts["chosen"]:
        typer.echo(f"settings for {facts['chosen']}")
    rows = facts["holdout"]
    if rows:
        typer.echo(
            f"held out {rows['held_out']:,} of {rows['rows']:,} rows, so that `augmask "
            "report` can measure privacy and utility (--holdout 0 learns from all)"
        )
    elif holdout == "auto":
        reason = "as in the paper"
        if facts["preset"] != "paper":
            reason = "because every row of so small a table counts"
        typer.echo(
            f"held out no rows, {reason}; for `augmask report` to measure privacy and "
            "utility, add --holdout 0.1"
        )
    typer.echo(
        f"{out}: preset {facts['preset']}, missing values filled by "
        f"{facts['augmenter']}, {facts['steps']:,} steps, "
        f"loss {facts['loss']:.4f}{validation}{restarts}, {seconds} s"
    )
