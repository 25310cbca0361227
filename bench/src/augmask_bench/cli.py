"""`augmask bench plan | run | status | table | figures PLAN`, and `bench methods`.

A grid is stored in one folder (`--out`): `runs` holds its results, one file per run;
everything else in it is derived from them or is a cache.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from augmask.cli.terminal import (
    collect_warnings,
    print_error,
    print_json,
    progress_reporter,
)
from augmask.errors import DataError, UsageError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from augmask_bench.plan import Plan, Run
    from augmask_bench.results import RunResult

app = typer.Typer(
    name="bench",
    help="Run the paper's benchmark: plans of runs, their tables and figures.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="plan, *.toml")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="folder of the grid; default: ./PLAN-results"),
]
Json = Annotated[
    bool, typer.Option("--json", help="print one JSON document on standard output")
]


def _open_plan(plan_file: Path, out: Path | None) -> tuple[Plan, Path]:
    from augmask_bench.plan import read_plan

    folder = (out or Path(f"{plan_file.stem}-results")).absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out must be a folder, got the file {folder}")
    return read_plan(plan_file), folder


def _check_methods(runs: Sequence[Run]) -> None:
    """Raise if a method has an option that does not exist."""
    from augmask_bench.methods import find_generator

    for method in dict.fromkeys(run.method for run in runs):
        find_generator(method.generator).check(method)


def _only(runs: Sequence[Run], names: Sequence[str]) -> list[Run]:
    """Return the runs of the methods with these labels or generators."""
    from augmask_bench.methods import find_generator

    names_of = {
        run.method: {
            run.method.label,
            run.method.generator,
            find_generator(run.method.generator).label,
        }
        for run in runs
    }
    known = sorted(set().union(*names_of.values()))
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(f"the plan has no method {name!r}{hint}")
    return [run for run in runs if names_of[run.method] & set(names)]


@app.command()
def plan(plan_file: PlanFile, out: Out = None, as_json: Json = False) -> None:
    """List the methods of a plan, and count its runs: completed and pending."""
    from augmask_bench.results import facts_of, pending

    grid, folder = _open_plan(plan_file, out)
    _check_methods(grid.runs)
    left = pending(folder, grid.runs)
    sizes = grid.sizes
    if as_json:
        runs = [facts_of(run) for run in grid.runs]
        print_json({"out": str(folder), **sizes, "pending": len(left), "runs": runs})
        return
    crossed = " x ".join(f"{n} {name}" for name, n in sizes.items())
    typer.echo(f"{plan_file}: {crossed} = {len(grid.runs):,} runs")
    typer.echo(
        f"{folder}: {len(grid.runs) - len(left):,} completed, {len(left):,} pending\n"
    )
    for method in grid.methods:
        reason = method.why_unavailable(grid.device)
        typer.echo(
            f"  {method.label}" + (f"  (unavailable: {reason})" if reason else "")
        )


def _check_tables(runs: Sequence[Run], as_json: bool) -> None:
    """Read every table once, to report a broken one before hours of work."""
    with collect_warnings(as_json):
        for source in dict.fromkeys(run.source for run in runs):
            source.load()


def _default_jobs(device: str) -> int:
    """Return one job per core; on a GPU two, one that trains and one that scores."""
    from augmask.device import resolve_device

    if device != "cpu" and resolve_device("auto").type != "cpu":
        return 2
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return cores or os.cpu_count() or 1


class _Recorder:
    """Writes results as they arrive, and reports progress."""

    def __init__(self, out: Path, total: int, progress: Any, quiet: bool) -> None:
        self.out, self.total, self.quiet = out, total, quiet
        self.progress = progress
        self.counts: Counter[str] = Counter()

    def record(self, run: Run, result: RunResult) -> None:
        from augmask_bench.results import write

        if run.keep and result["status"] == "done":
            self._check_samples(run)
        write(self.out, result)
        self.counts[result["status"]] += 1
        done = self.counts.total()
        self.progress("runs", done, self.total, {})
        if not self.quiet:
            reason = f" ({result['reason']})" if result.get("reason") else ""
            print_error(f"{done}/{self.total} {run}: {result['status']}{reason}")

    def _check_samples(self, run: Run) -> None:
        from augmask_bench.results import sample_file

        if not sample_file(self.out, run).exists():
            raise UsageError(
                f"the rows of {run} are not in {self.out}, but the plan sets keep = "
                "true; with --scheduler, --out must be a folder that all workers share"
            )


def _collect(grid: Plan, folder: Path) -> pd.DataFrame:
    """Return the table of results, and save it in the folder."""
    from augmask_bench.results import DERIVED, collect, remove_derived, save_table

    frame = collect(folder, grid.runs)
    if len(frame):
        save_table(folder, frame)
    else:
        remove_derived(folder, DERIVED)
    return frame


@app.command()
def run(
    plan_file: PlanFile,
    out: Out = None,
    scheduler: Annotated[
        str | None,
        typer.Option(help="Dask scheduler, tcp://HOST:PORT; default: this machine"),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="worker processes; default: all cores, 2 with a GPU"),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="repeat failed runs")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="name of a method or generator; default: all"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the pending runs of a plan; completed runs are skipped."""
    from augmask_bench.results import failed_result, pending

    grid, folder = _open_plan(plan_file, out)
    selected = _only(grid.runs, only) if only else grid.runs
    left = pending(folder, selected, retry_failed)
    counts: Counter[str] = Counter()
    if left:
        from augmask_bench.cluster import JobsFailed, run_locally, run_on_cluster
        from augmask_bench.run import execute

        _check_methods(left)
        _check_tables(left, as_json)
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        call = partial(execute, out=folder)
        with progress_reporter(as_json) as progress:
            recorder = _Recorder(folder, len(left), progress, as_json)
            counts = recorder.counts
            try:
                if scheduler is None:
                    n_jobs = _default_jobs(grid.device) if jobs is None else jobs
                    run_locally(call, left, n_jobs=n_jobs, done=recorder.record)
                else:
                    run_on_cluster(
                        call,
                        left,
                        scheduler=scheduler,
                        resources={"GPU": 1} if grid.device == "cuda" else None,
                        done=recorder.record,
                    )
            except JobsFailed as error:
                # a run that killed its worker has failed; one that raised is a problem
                # of the grid, such as a table that changed
                killed = [failure for failure in error.failures if not failure.trace]
                for failure in killed:
                    result = failed_result(failure.job, failure.reason)
                    recorder.record(failure.job, result)
                if len(killed) < len(error.failures):
                    raise
            finally:
                _collect(grid, folder)
    skipped = len(selected) - len(left)
    if as_json:
        print_json({"out": str(folder), "skipped": skipped, **counts})
        return
    new = ", ".join(f"{n:,} {status}" for status, n in counts.items()) or "nothing new"
    typer.echo(f"{folder}: {new}, {skipped:,} skipped (already completed)")


@app.command()
def status(plan_file: PlanFile, out: Out = None, as_json: Json = False) -> None:
    """Count the runs of a grid by status, and list failed runs with the reasons."""
    from augmask_bench.results import collect, stale

    grid, folder = _open_plan(plan_file, out)
    frame = collect(folder, grid.runs)
    counts = frame["status"].value_counts().to_dict()
    counts["pending"] = len(grid.runs) - len(frame)
    n_stale = len(stale(folder, grid.runs))
    incomplete = frame[frame["status"] != "done"]
    if as_json:
        names = ["run", "method", "dataset", "mechanism", "ratio", "seed", "reason"]
        listed = incomplete[["status", *names]].to_dict("records")
        print_json(
            {"out": str(folder), "runs": len(grid.runs), **counts, "stale": n_stale}
            | {"unfinished": listed}
        )
        return
    typer.echo(f"{folder}: " + ", ".join(f"{n:,} {name}" for name, n in counts.items()))
    for line in incomplete.itertuples():
        typer.echo(
            f"  {line.status}: {line.method} on {line.dataset}, {line.mechanism} "
            f"{line.ratio:g}, seed {line.seed}: {line.reason} (runs/{line.run}.json)"
        )
    if n_stale:
        typer.echo(f"  {n_stale:,} results belong to no run of this plan; not shown")


def _results(plan_file: Path, out: Path | None) -> tuple[pd.DataFrame, Path]:
    """Return the results of a grid; report runs that are pending or unavailable."""
    grid, folder = _open_plan(plan_file, out)
    frame = _collect(grid, folder)
    if not len(frame):
        raise DataError(
            f"no results of {plan_file} in {folder}; run `augmask bench run` first"
        )
    missing = len(grid.runs) - len(frame)
    if missing:
        print_error(f"note: {missing:,} of {len(grid.runs):,} runs are pending")
    unavailable = frame[frame["status"] == "unable"]
    for label, rows in unavailable.groupby("method", sort=False):
        print_error(f"note: {label} is not ranked: {rows['reason'].iloc[0]}")
    return frame, folder


@app.command()
def table(
    plan_file: PlanFile,
    out: Out = None,
    against: Annotated[
        str | None,
        typer.Option(help="method to test against; default: the best baseline"),
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(help="CSV file for the scores, one line per run")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the rank table, and save it as Markdown, CSV and LaTeX."""
    from augmask.files import atomic_write
    from augmask.rng import stream
    from augmask_bench import layout
    from augmask_bench.ranks import rank_table
    from augmask_bench.results import RANKS, remove_derived, save_scores
    from augmask_bench.significance import gains

    if scores is not None and scores.suffix != ".csv":
        raise UsageError(f"--scores must be a .csv file, got {scores}")
    frame, folder = _results(plan_file, out)
    remove_derived(folder, RANKS)
    written: list[str] = []
    if scores is not None:
        save_scores(scores, frame)
        written.append(str(scores))
    ranks: dict[str, Any] = {}
    for mechanism in frame["mechanism"].unique():
        try:
            ranked = rank_table(frame, mechanism)
        except DataError as error:
            print_error(f"note: {mechanism} is not ranked: {error}")
            continue
        tested = gains(ranked, stream(0, "gains"), against)
        texts = {
            "md": layout.markdown(ranked, tested),
            "csv": layout.csv(ranked, tested),
            "tex": layout.latex(ranked, tested),
        }
        for suffix, text in texts.items():
            path = folder / f"ranks-{mechanism}.{suffix}"
            with atomic_write(path) as part:
                part.write_text(text, encoding="utf-8")
            written.append(str(path))
        ranks[mechanism] = ranked.mean.T.to_dict()
        if not as_json:
            typer.echo(layout.terminal(ranked, tested))
    if as_json:
        print_json({"files": written, "ranks": ranks})
    else:
        print_error("\n".join(written))


@app.command()
def figures(
    plan_file: PlanFile,
    out: Out = None,
    only: Annotated[
        list[str] | None, typer.Option(help="name of a figure; default: all")
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw the figures for which there are results, as SVG and PNG."""
    from augmask_bench.figures import FIGURES
    from augmask_bench.results import remove_derived

    for name in only or []:
        if name not in FIGURES:
            hint = did_you_mean(name, FIGURES)
            raise UsageError(f"there is no figure {name!r}{hint}")
    frame, folder = _results(plan_file, out)
    place = folder / "figures"
    place.mkdir(exist_ok=True)
    remove_derived(place, [f"{name}.*" for name in only or FIGURES])
    files: list[str] = []
    skipped: dict[str, str] = {}
    for name in only or FIGURES:
        skipped[name] = FIGURES[name].needs(frame)
        if skipped[name]:
            continue
        try:
            picture = FIGURES[name].draw(frame, folder)
        except DataError as error:
            # only the folder shows it, for example that no rows were kept
            skipped[name] = str(error)
            continue
        del skipped[name]
        for suffix in ("svg", "png"):
            path = place / f"{name}.{suffix}"
            picture.savefig(path, dpi=200, bbox_inches="tight")
            files.append(str(path))
        if not as_json:
            typer.echo(f"{place / name}.svg, .png")
    if as_json:
        print_json({"files": files, "skipped": skipped})
        return
    for name, reason in skipped.items():
        print_error(f"skipped {name}: {reason}")


@app.command()
def methods(
    plan_file: Annotated[
        Path | None,
        typer.Argument(metavar="[PLAN]", help="plan whose modules register generators"),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the generators, their requirements, and whether they can run here."""
    from augmask_bench.methods import GENERATORS

    if plan_file is not None:
        _open_plan(plan_file, None)
    known = list(GENERATORS.values())
    reasons = {generator.name: generator.why_unavailable() for generator in known}
    if as_json:
        listed = [
            {
                "generator": g.name,
                "label": g.label,
                "version": g.version,
                "strategies": list(g.strategies),
                "missing_aware": g.aware,
                "needs": g.needs,
                "reason": reasons[g.name],
            }
            for g in known
        ]
        print_json({"methods": listed})
        return
    for g in known:
        strategies = ", ".join(g.strategies) or "no strategy"
        reason = reasons[g.name]
        status = f"unavailable: {reason}" if reason else "available"
        typer.echo(f"{g.name:<10} {strategies:<26} needs {g.needs}; {status}")
