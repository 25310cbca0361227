"""`augmask evaluate`, `augmask report` and `augmask demo`: how good rows are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from augmask.cli.shared_options import (
    FittedModel,
    Json,
    Learner,
    OpenTable,
    Real,
    SchemaFile,
    Seed,
    Synthetic,
    Target,
    Test,
    reads_tables,
)
from augmask.cli.terminal import (
    check_suffix,
    collect_warnings,
    print_error,
    print_json,
    progress_reporter,
)

if TYPE_CHECKING:
    from augmask.evaluation.results import Scores
    from augmask.model import AugMask
    from augmask.progress import Progress


@contextmanager
def _scored(
    as_json: bool,
    open_table: OpenTable,
    real: Path,
    synthetic: Path,
    test: Path | None,
    model: Path | None,
    schema: Path | None,
    **options: Any,
) -> Iterator[tuple[Scores, AugMask | None, Progress]]:
    """Context manager: the scores, the model if there is one, and the progress."""
    from augmask.evaluation.evaluate import evaluate
    from augmask.model import load

    fitted = None if model is None else load(model)
    held_out = None if test is None else open_table(test)
    with collect_warnings(as_json), progress_reporter(as_json) as progress:
        scores = evaluate(
            open_table(real),
            synthetic,
            test=held_out,
            model=fitted,
            schema=schema,
            progress=progress,
            **options,
        )
        yield scores, fitted, progress


def _check_out(out: Path, suffix: str, *inputs: Path | None) -> None:
    from augmask.files import check_apart, check_writable

    check_writable(check_suffix(out, "--out", suffix))
    check_apart("--out", out, *inputs)


@reads_tables
def evaluate(
    real: Real,
    synthetic: Synthetic,
    model: FittedModel = None,
    test: Test = None,
    target: Target = None,
    learner: Learner = "lightgbm",
    schema: SchemaFile = None,
    subsample: Annotated[
        int | None, typer.Option(help="score at most this many rows of each table")
    ] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="write all scores to this file, *.json")
    ] = None,
    *,
    open_table: OpenTable,
    as_json: Json = False,
) -> None:
    """Score synthetic rows; every score comes with a reference from real rows."""
    from augmask.evaluation.verdict import cards

    if out is not None:
        _check_out(out, ".json", real, synthetic, model, test, schema)
    options: dict[str, Any] = {"target": target, "learner": learner, "seed": seed}
    inputs = (open_table, real, synthetic, test, model, schema)
    with _scored(as_json, *inputs, **options, subsample=subsample) as (scores, *_):
        text = scores.to_json(out)
    typer.echo(text if as_json else str(scores))
    if not as_json:
        shown = {card.key for card in cards(scores)}
        for key, advice in scores.facts["advice"].items():
            if key in shown:
                title = scores.entries[key].title
                typer.echo(f"\n{title}: {advice['text']}\n  {advice['line']}")
        for note in scores.facts["notes"]:
            print_error(f"note: {note}")


@reads_tables
def report(
    real: Real,
    synthetic: Synthetic,
    out: Annotated[Path, typer.Option("--out", help="page to write, *.html")],
    model: FittedModel = None,
    test: Test = None,
    target: Target = None,
    learner: Learner = "lightgbm",
    schema: SchemaFile = None,
    seed: Seed = 0,
    open_page: Annotated[
        bool, typer.Option("--open", help="open the page in a browser")
    ] = False,
    *,
    open_table: OpenTable,
    as_json: Json = False,
) -> None:
    """Write one self-contained HTML page that shows how good synthetic rows are."""
    from augmask.report.page import write_report

    _check_out(out, ".html", real, synthetic, model, test, schema)
    options: dict[str, Any] = {"target": target, "learner": learner, "seed": seed}
    inputs = (open_table, real, synthetic, test, model, schema)
    with _scored(as_json, *inputs, **options) as (scores, fitted, progress):
        today = date.today().isoformat()
        write_report(out, scores, fitted, open_page, progress, date=today)
    if as_json:
        print_json({"page": str(out), **scores.to_dict()})
    else:
        typer.echo(f"{out}: {out.stat().st_size / 1e3:,.0f} kB")


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
        print_error(
            "A clinic table with about 40 % of its values missing, whose complete "
            "truth is known.\nEach strategy trains on the incomplete table; its "
            "synthetic rows are scored against the truth.\n"
        )
    with collect_warnings(as_json), progress_reporter(as_json) as progress:
        results = list(compare_strategies(out, seed=seed, progress=progress))
    if as_json:
        print_json({"folder": str(out), "strategies": [vars(r) for r in results]})
        return
    heads = ("Shape", "Trend", "worst", "alpha", "beta", "MLE", "C2ST")
    typer.echo(f"\n{'strategy':10}{''.join(f'{h:>7}' for h in heads)}   what it is")
    for r in results:
        rows = (r.alpha_precision, r.beta_recall, r.mle, r.c2st_auc)
        numbers = (r.shape, r.trend, r.trend_worst, *rows)
        cells = (f"{v:7.3f}" for v in numbers)
        typer.echo(f"{r.strategy:10}{''.join(cells)}   {r.meaning}")
    typer.echo(
        "\nShape compares columns with the truth, Trend pairs of columns (worst: the "
        "worst tenth of\nthem), alpha and beta rows, MLE what a model learns from "
        "them; C2ST is how well a classifier\ntells synthetic from true rows (0.5: "
        "not at all). The closer to the last line, the better.\n"
    )
    for r in results:
        if r.verdict:
            typer.echo(f"The report on {r.strategy}: {r.verdict}\n")
    for name, meaning in FILES.items():
        typer.echo(f"  {out / name}: {meaning}")
