"""The command line: `augmask inspect|fit|sample|impute|evaluate|report|demo|bench`.

Results go to standard output, everything else to standard error. Heavy libraries are
imported inside the commands, so `augmask --help` answers at once.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from augmask.cli_rows import Data, Device, Json, Seed, impute, sample
from augmask.console import ending_in_order, named, noting, print_json, reporting, say
from augmask.errors import AugMaskError, UsageError
from augmask.plugins import entry_points_of
from augmask.train import parallel

app = typer.Typer(
    name="augmask",
    help="Train diffusion models on incomplete tables; generate complete ones.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _name, _point in entry_points_of("augmask.commands").items():
    app.add_typer(_point.load(), name=_name)

SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="TOML file with settings per column")
]
Real = Annotated[Path, typer.Argument(help="table that was learned from")]
Synthetic = Annotated[Path, typer.Argument(help="complete synthetic rows")]
Test = Annotated[
    Path | None, typer.Option(help="real rows that the generator never saw")
]
Target = Annotated[str | None, typer.Option(help="column to predict, with --test")]


@contextmanager
def _together() -> Iterator[None]:
    """Train with the other processes that torchrun started, if it did."""
    with parallel.joined(), parallel.one_voice():
        yield


@contextmanager
def _muted() -> Iterator[None]:
    """Show nothing of what this process says, if torchrun started it as a follower."""
    if not parallel.follows():
        yield
        return
    with (
        Path(os.devnull).open("w") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        yield


def _parse_settings(pairs: list[str], backbone: str) -> dict[str, Any]:
    """Turn `name=value` texts into settings, each as what it may be."""
    from augmask.config import read_settings
    from augmask.diffusion import keywords_of

    texts = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f"--set needs NAME=VALUE, got {pair!r}")
        texts[name.strip()] = text.strip()
    return read_settings(texts, keywords_of(backbone))


def _parse_constraints(texts: list[str] | None) -> list[str | list[str]]:
    """Return orders as they are, and "city, zip" as the combination of both."""
    return [
        [name.strip() for name in text.split(",")]
        if "," in text and not set("<>=") & set(text)
        else text
        for text in texts or []
    ]


@app.callback()
def _common(
    context: typer.Context,
    _debug: Annotated[
        bool, typer.Option("--debug", help="show the traceback of an error")
    ] = False,
) -> None:
    """Train diffusion models on incomplete tables; generate complete ones."""
    command = context.invoked_subcommand
    if command != "fit" and parallel.follows():
        raise typer.Exit
    if command == "demo" and parallel.launched():
        raise UsageError("the demo runs in one process; start it without torchrun")


@app.command()
def inspect(
    data: Data,
    schema: SchemaFile = None,
    save_schema: Annotated[
        Path | None,
        typer.Option(help="write what was inferred to this TOML file, to be edited"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what each column is taken for, where the holes are, and what stands out."""
    from augmask.files import check_apart, check_writable
    from augmask.missing.describe import describe
    from augmask.sample.suggest import orders_note, suggest_orders
    from augmask.table.frames import read_frame
    from augmask.table.infer import infer_schema, missing_mask
    from augmask.table.link_search import with_links
    from augmask.table.notes import absence_findings

    if save_schema is not None:
        check_writable(named(save_schema, "--save-schema", ".toml"))
        check_apart("--save-schema", save_schema, data)
    frame = read_frame(data)
    found = with_links(frame, infer_schema(frame, schema))
    facts = describe(frame, missing_mask(frame, found))
    if save_schema is not None:
        found.to_toml(save_schema)
    orders = suggest_orders(frame, found)
    if as_json:
        print_json(
            {
                "columns": [column.to_dict() for column in found],
                "missing": facts.to_dict(),
                "not_applicable": absence_findings(found),
                "constraints": orders,
                "notes": found.notes(),
            }
        )
        return
    typer.echo(f"{data}: {len(frame):,} rows, {len(found)} columns")
    kept = sum(column.missing for column in found if column.gated) / max(len(found), 1)
    apart = f" ({kept:.1%} not applicable and kept)" if kept else ""
    typer.echo(
        f"holes: {facts.rate:.1%} of all cells{apart}, "
        f"{facts.complete_rows:,} complete rows, {facts.n_patterns:,} patterns\n"
    )
    typer.echo(str(found))
    if facts.rate:
        typer.echo("\nmost frequent patterns (rows: columns missing together)")
        for names, count in facts.patterns[:5]:
            typer.echo(f"{count:>9,}: {', '.join(map(str, names)) or '(none)'}")
    for note in (*found.notes(), *orders_note(orders)):
        say(f"note: {note}")


@app.command()
@_together()
def fit(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="model file, *.augmask")],
    backbone: Annotated[str, typer.Option(help="diffusion model")] = "cdtd",
    augmenter: Annotated[
        str, typer.Option(help="rule that fills holes; auto goes by the preset")
    ] = "auto",
    supervise: Annotated[
        str, typer.Option(help="cells that the loss counts: observed or all")
    ] = "observed",
    preset: Annotated[
        str, typer.Option(help="auto, fast, balanced, best or paper")
    ] = "auto",
    steps: Annotated[int | None, typer.Option(help="training steps")] = None,
    max_minutes: Annotated[
        float | None, typer.Option(help="wall-clock budget of the whole fit")
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    schema: SchemaFile = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="save the training here and go on from here if killed"),
    ] = None,
    ensemble: Annotated[
        int | None,
        typer.Option(help="models to train; rows come from each in turn"),
    ] = None,
    constraints: Annotated[
        list[str] | None,
        typer.Option(
            "--constraint",
            help="what every row keeps, e.g. --constraint 'start <= end'",
        ),
    ] = None,
    private: Annotated[
        bool,
        typer.Option("--private-extremes", help="learn no rare level, cut extremes"),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="any other setting, e.g. --set completions=stack:8"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn from an incomplete table and write a model file."""
    from augmask.files import check_apart, check_writable, same_file
    from augmask.model import AugMask

    check_writable(named(out, "--out", ".augmask"))
    check_apart("--out", out, data, schema)
    if checkpoint is not None:
        check_apart("--checkpoint", checkpoint, schema)
        if same_file(checkpoint, out):
            raise UsageError(
                f"--checkpoint and --out must be two files, both are {out}"
            )
    options = _parse_settings(settings or [], backbone)
    if steps is not None:
        options["steps"] = steps
    began = time.monotonic()
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
    with noting(as_json) as notes, reporting(as_json) as progress:
        given = (
            data,
            schema,
            max_minutes,
            checkpoint,
            progress,
            _parse_constraints(constraints),
        )
        model.fit(*given, private)
    if parallel.follows():
        return
    model.save(out)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    held_out = model.history_["held_out"].min()
    facts = {
        "model": str(out),
        "preset": model.preset_,
        "chosen": model.training_["chosen"],
        "augmenter": model.augmenter_,
        "steps": int(model.history_["step"].iloc[-1]),
        "best_step": model.training_["best_step"],
        "stopped": model.training_["stopped"],
        "restarts": model.training_["restarts"],
        "loss": float(model.history_["loss"].iloc[-1]),
        "held_out": None if held_out != held_out else float(held_out),
        "seconds": round(time.monotonic() - began, 1),
        "notes": notes,
    }
    if as_json:
        print_json(facts)
        return
    watched = "" if facts["held_out"] is None else f", held-out {held_out:.4f}"
    restarts = f", {facts['restarts']} restarts" if facts["restarts"] else ""
    if facts["chosen"]:
        typer.echo(f"chosen for {facts['chosen']}")
    typer.echo(
        f"{out}: preset {facts['preset']}, holes filled by {facts['augmenter']}, "
        f"{facts['steps']:,} steps, "
        f"loss {facts['loss']:.4f}{watched}{restarts}, {facts['seconds']} s"
    )


app.command()(sample)
app.command()(impute)


@app.command()
def evaluate(
    real: Real,
    synthetic: Synthetic,
    test: Test = None,
    target: Target = None,
    schema: SchemaFile = None,
    subsample: Annotated[
        int | None, typer.Option(help="score at most so many rows of each table")
    ] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="write all scores to this file, *.json")
    ] = None,
    as_json: Json = False,
) -> None:
    """Score synthetic rows, each number beside what real rows score."""
    from augmask.evaluation.evaluate import evaluate
    from augmask.files import check_apart, check_writable

    if out is not None:
        check_writable(named(out, "--out", ".json"))
        check_apart("--out", out, real, synthetic, test, schema)
    with reporting(as_json) as progress:
        scores = evaluate(
            *(real, synthetic, test, target),
            schema=schema,
            seed=seed,
            subsample=subsample,
            progress=progress,
        )
    text = scores.to_json(out)
    typer.echo(text if as_json else str(scores))
    if not as_json:
        for note in scores.facts["notes"]:
            say(f"note: {note}")


@app.command()
def report(
    real: Real,
    synthetic: Synthetic,
    out: Annotated[Path, typer.Option("--out", help="page to write, *.html")],
    model: Annotated[
        Path | None,
        typer.Option(help="model file: schema, training curves, how it fills holes"),
    ] = None,
    test: Test = None,
    target: Target = None,
    schema: SchemaFile = None,
    seed: Seed = 0,
    show: Annotated[bool, typer.Option("--open", help="show it in a browser")] = False,
    as_json: Json = False,
) -> None:
    """Write one offline HTML page that shows how good synthetic rows are."""
    from augmask.evaluation.evaluate import evaluate
    from augmask.files import check_apart, check_writable
    from augmask.report.page import write_report

    check_writable(named(out, "--out", ".html"))
    check_apart("--out", out, real, synthetic, model, test, schema)
    fitted: Any = None
    known: Any = schema
    fill = "lgbm-s"
    if model is not None:
        from augmask.augmentation import AUGMENTERS
        from augmask.model import load

        fitted = load(model)
        known = fitted.schema_ if schema is None else schema
        # A rule of one's own is not in the file, and a placeholder is no draw to score.
        if fitted.augmenter_ in AUGMENTERS and fitted.augmenter_ != "zero":
            fill = fitted.augmenter_
    with reporting(as_json) as progress:
        scores = evaluate(
            *(real, synthetic, test, target),
            schema=known,
            seed=seed,
            fill=fill,
            progress=progress,
        )
        write_report(out, scores, fitted, show, progress)
    if as_json:
        print_json({"page": str(out), **scores.to_dict()})
    else:
        typer.echo(f"{out}: {out.stat().st_size / 1e3:,.0f} kB")


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="folder for the results")] = Path(
        "augmask-demo"
    ),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare three strategies on an embedded clinic table whose truth is known."""
    from augmask.demo.compare import FILES, compare_strategies

    if not as_json:
        say(
            "A clinic table with about 40 % holes, whose complete truth is known.\n"
            "Each strategy learns from the holes; its synthetic rows meet the truth.\n"
        )
    with noting(as_json), reporting(as_json) as progress:
        results = list(compare_strategies(out, seed=seed, progress=progress))
    if as_json:
        print_json({"folder": str(out), "strategies": [vars(r) for r in results]})
        return
    heads = ("Shape", "Trend", "worst", "alpha", "beta", "MLE", "C2ST")
    typer.echo(f"\n{'strategy':10}{''.join(f'{h:>7}' for h in heads)}   what it is")
    for r in results:
        rows = (r.alpha_precision, r.beta_recall, r.mle, r.c2st_auc)
        numbers = (r.shape, r.trend, r.trend_worst, *rows)
        cells = (f"{'-' if v is None else format(v, '.3f'):>7}" for v in numbers)
        typer.echo(f"{r.strategy:10}{''.join(cells)}   {r.meaning}")
    typer.echo(
        "\nHow alike the synthetic rows are to the complete truth: Shape by columns, "
        "Trend by pairs of\ncolumns and in their worst tenth, alpha and beta by rows, "
        "MLE by what a model learns from them,\nC2ST by how well trees tell them from "
        "the truth (0.5: not at all). Near the last line is best.\n"
    )
    for name, meaning in FILES.items():
        typer.echo(f"  {out / name}: {meaning}")


def _out_of_memory(error: Exception) -> bool:
    """Whether Python, torch on a GPU or torch on the CPU ran out of memory."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "can't allocate memory" in str(error)
    )


def _unforeseen(error: Exception) -> str:
    """Return a sentence about an error that is ours to mend."""
    text = " ".join(str(error).split())[:200]
    return (
        f"{type(error).__name__}: {text}; this is a defect of augmask, please report "
        "it with what --debug shows"
    )


def main() -> None:
    """Run the command line; an error is one sentence and an exit code."""
    arguments = sys.argv[1:]
    # wherever it stands: people add it to the end of the command that failed
    debug = "--debug" in arguments
    try:
        with _muted(), ending_in_order():
            app(args=[a for a in arguments if a != "--debug"], prog_name="augmask")
    except parallel.Told:
        sys.exit(0)
    except SystemExit as end:
        # a wrong command line: the first process says so, and its code counts
        sys.exit(0 if parallel.follows() else end.code)
    except Exception as error:
        if isinstance(error, AugMaskError):
            sentence, code = " ".join(str(error).splitlines()), error.exit_code
        elif _out_of_memory(error):
            sentence, code = "out of memory; use fewer rows or columns", 3
        elif isinstance(error, OSError):
            sentence, code = f"the system refused: {error}", 3
        else:
            sentence, code = _unforeseen(error), 1
        if debug:
            traceback.print_exc()
        say(f"augmask: {sentence}")
        sys.exit(code)
