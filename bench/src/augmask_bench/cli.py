"""`augmask bench plan | run | status | table | figures PLAN`, and `bench methods`.

A grid lives in one folder (`--out`): `runs` holds its results, one file each, and
everything else there can be made again from them or is only kept to save time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from augmask.cli.terminal import collect_warnings, print_json, progress_reporter, print_error
from augmask.errors import DataError, UsageError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from augmask_bench.plan import Plan, Run
    from augmask_bench.results import Record

app = typer.Typer(
    name="bench",
    help="Run the paper's protocol: plans of runs, their tables and figures.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="plan, *.toml")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="folder of the grid; by default PLAN-results here"),
]
Json = Annotated[
    bool, typer.Option("--json", help="print one JSON document on standard output")
]


def _opened(plan_file: Path, out: Path | None) -> tuple[Plan, Path]:
    from augmask_bench.plan import read_plan

    folder = (out or Path(f"{plan_file.stem}-results")).absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out must be a folder, and {folder} is a file")
    return read_plan(plan_file), folder


def _check_methods(runs: Sequence[Run]) -> None:
    """Raise now if a method has an option that does not exist."""
    from augmask_bench.methods import find_generator

    for method in dict.fromkeys(run.method for run in runs):
        find_generator(method.generator).check(method)


def _only(runs: Sequence[Run], names: Sequence[str]) -> list[Run]:
    """Return the runs of methods with these labels, or generators with these names."""
    from augmask_bench.methods import find_generator

    called = {
        run.method: {
            run.method.label,
            run.method.generator,
            find_generator(run.method.generator).label,
        }
        for run in runs
    }
    known = sorted(set().union(*called.values()))
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(f"the plan has no method {name!r}{hint}")
    return [run for run in runs if called[run.method] & set(names)]


@app.command()
def plan(plan_file: PlanFile, out: Out = None, as_json: Json = False) -> None:
    """Say which runs a plan asks for, and how many of them are done."""
    from augmask_bench.results import facts_of, pending

    grid, folder = _opened(plan_file, out)
    _check_methods(grid.runs)
    left = pending(folder, grid.runs)
    sizes = grid.sizes
    if as_json:
        runs = [facts_of(run) for run in grid.runs]
        print_json({"out": str(folder), **sizes, "pending": len(left), "runs": runs})
        return
    crossed = " x ".join(f"{n} {name}" for name, n in sizes.items())
    typer.echo(f"{plan_file}: {crossed} = {len(grid.runs):,} runs")
    typer.echo(f"{folder}: {len(grid.runs) - len(left):,} done, {len(left):,} to do\n")
    for method in grid.methods:
        reason = method.why_unavailable(grid.device)
        typer.echo(f"  {method.label}{f'  (cannot run here: {reason})' * bool(reason)}")


def _prepare(runs: Sequence[Run], as_json: bool) -> None:
    """Read every table once: what is wrong with one shows before hours of work."""
    with collect_warnings(as_json):
        for source in dict.fromkeys(run.source for run in runs):
            source.load()


def _default_at_once(device: str) -> int:
    """Return all cores on a CPU; on a GPU one trains while another one scores."""
    from augmask.device import resolve_device

    if device != "cpu" and resolve_device("auto").type != "cpu":
        return 2
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return cores or os.cpu_count() or 1


class _Desk:
    """Takes results in: writes them down, and says so."""

    def __init__(self, out: Path, total: int, progress: Any, quiet: bool) -> None:
        self.out, self.total, self.quiet = out, total, quiet
        self.progress = progress
        self.counts: Counter[str] = Counter()

    def take(self, run: Run, record: Record) -> None:
        from augmask_bench.results import write

        if run.keep and record["status"] == "done":
            self._check_kept(run)
        write(self.out, record)
        self.counts[record["status"]] += 1
        done = self.counts.total()
        self.progress("runs", done, self.total, {})
        if not self.quiet:
            reason = f" ({record['reason']})" if record.get("reason") else ""
            print_error(f"{done}/{self.total} {run}: {record['status']}{reason}")

    def _check_kept(self, run: Run) -> None:
        from augmask_bench.results import sample_file

        if not sample_file(self.out, run).exists():
            raise UsageError(
                f"the plan keeps rows, and those of {run} are not in {self.out}: on a "
                "cluster --out must be a folder that all workers share; or set "
                "keep = false"
            )


def _collect(grid: Plan, folder: Path) -> pd.DataFrame:
    """Return the table of results, and leave it in the folder as one file."""
    from augmask_bench.results import DERIVED, collect, forget, save_table

    frame = collect(folder, grid.runs)
    if len(frame):
        save_table(folder, frame)
    else:
        forget(folder, DERIVED)
    return frame


@app.command()
def run(
    plan_file: PlanFile,
    out: Out = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Dask scheduler to run on, tcp://HOST:PORT")
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(help="processes; by default all cores on a CPU, 2 on a GPU"),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="run failed ones again")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="a method or generator by name; all by default"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Do what is left of a plan; what is done is never done again."""
    from augmask_bench.results import failed, pending

    grid, folder = _opened(plan_file, out)
    asked = _only(grid.runs, only) if only else grid.runs
    left = pending(folder, asked, retry_failed)
    counts: Counter[str] = Counter()
    if left:
        from augmask_bench.engine import JobsFailed, run_locally
        from augmask_bench.run import execute

        _check_methods(left)
        _prepare(left, as_json)
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        call = partial(execute, out=folder)
        with progress_reporter(as_json) as progress:
            desk = _Desk(folder, len(left), progress, as_json)
            counts = desk.counts
            try:
                if scheduler is None:
                    many = _default_at_once(grid.device) if at_once is None else at_once
                    run_locally(call, left, at_once=many, done=desk.take)
                else:
                    from augmask_bench.cluster import run_on_cluster

                    run_on_cluster(
                        call,
                        left,
                        scheduler=scheduler,
                        resources={"GPU": 1} if grid.device == "cuda" else None,
                        done=desk.take,
                    )
            except JobsFailed as error:
                lost = [failure for failure in error.failures if not failure.trace]
                for failure in lost:
                    desk.take(failure.job, failed(failure.job, failure.reason))
                if len(lost) < len(error.failures):
                    raise
            finally:
                _collect(grid, folder)
    done = len(asked) - len(left)
    if as_json:
        print_json({"out": str(folder), "already": done, **counts})
        return
    made = ", ".join(f"{n:,} {status}" for status, n in counts.items()) or "nothing"
    typer.echo(f"{folder}: {done:,} were there, now {made}")


@app.command()
def status(plan_file: PlanFile, out: Out = None, as_json: Json = False) -> None:
    """Say how far a grid is, and what failed and why."""
    from augmask_bench.results import collect, stale

    grid, folder = _opened(plan_file, out)
    frame = collect(folder, grid.runs)
    counts = frame["status"].value_counts().to_dict()
    counts["left"] = len(grid.runs) - len(frame)
    old = len(stale(folder, grid.runs))
    wrong = frame[frame["status"] != "done"]
    if as_json:
        names = ["run", "method", "dataset", "mechanism", "ratio", "seed", "reason"]
        listed = wrong[["status", *names]].to_dict("records")
        print_json(
            {"out": str(folder), "runs": len(grid.runs), **counts, "stale": old}
            | {"unfinished": listed}
        )
        return
    typer.echo(f"{folder}: " + ", ".join(f"{n:,} {name}" for name, n in counts.items()))
    for line in wrong.itertuples():
        typer.echo(
            f"  {line.status}: {line.method} on {line.dataset}, {line.mechanism} "
            f"{line.ratio:g}, seed {line.seed}: {line.reason} (runs/{line.run}.json)"
        )
    if old:
        typer.echo(f"  {old:,} records are of no run of this plan, and not shown")


def _results(plan_file: Path, out: Path | None) -> tuple[pd.DataFrame, Path]:
    """Return what is there of a grid, and say what is not."""
    grid, folder = _opened(plan_file, out)
    frame = _collect(grid, folder)
    if not len(frame):
        raise DataError(
            f"{folder} holds no results of {plan_file}; run `augmask bench run` first"
        )
    missing = len(grid.runs) - len(frame)
    if missing:
        print_error(f"note: {missing:,} of {len(grid.runs):,} runs are still to do")
    unable = frame[frame["status"] == "unable"]
    for label, rows in unable.groupby("method", sort=False):
        print_error(f"note: {label} is not ranked: {rows['reason'].iloc[0]}")
    return frame, folder


@app.command()
def table(
    plan_file: PlanFile,
    out: Out = None,
    against: Annotated[
        str | None,
        typer.Option(help="method to test against; by default the best baseline"),
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(help="CSV file for the scores, one line a run")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the rank table; write it as Markdown, CSV and LaTeX beside the results."""
    from augmask.files import written_whole
    from augmask.rng import stream
    from augmask_bench import layout
    from augmask_bench.ranks import rank_table
    from augmask_bench.results import RANKS, forget, save_scores
    from augmask_bench.significance import gains

    if scores is not None and scores.suffix != ".csv":
        raise UsageError(f"--scores must be a .csv file, got {scores}")
    frame, folder = _results(plan_file, out)
    forget(folder, RANKS)
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
            with written_whole(path) as part:
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
        list[str] | None, typer.Option(help="a figure by name; all by default")
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw the figures that the results allow, as SVG and PNG."""
    from augmask_bench.figures import FIGURES
    from augmask_bench.results import forget

    for name in only or []:
        if name not in FIGURES:
            hint = did_you_mean(name, FIGURES)
            raise UsageError(f"there is no figure {name!r}{hint}")
    frame, folder = _results(plan_file, out)
    place = folder / "figures"
    place.mkdir(exist_ok=True)
    forget(place, [f"{name}.*" for name in only or FIGURES])
    drawn: list[str] = []
    left_out: dict[str, str] = {}
    for name in only or FIGURES:
        left_out[name] = FIGURES[name].needs(frame)
        if left_out[name]:
            continue
        try:
            picture = FIGURES[name].draw(frame, folder)
        except DataError as error:
            # what only the folder can tell, such as rows that were not kept
            left_out[name] = str(error)
            continue
        del left_out[name]
        for suffix in ("svg", "png"):
            path = place / f"{name}.{suffix}"
            picture.savefig(path, dpi=200, bbox_inches="tight")
            drawn.append(str(path))
        if not as_json:
            typer.echo(f"{place / name}.svg, .png")
    if as_json:
        print_json({"files": drawn, "left_out": left_out})
        return
    for name, reason in left_out.items():
        print_error(f"left out: {name}: {reason}")


@app.command()
def methods(
    plan_file: Annotated[
        Path | None,
        typer.Argument(metavar="[PLAN]", help="plan whose modules register more"),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the generators, what each needs, and whether it can run here."""
    from augmask_bench.methods import GENERATORS

    if plan_file is not None:
        _opened(plan_file, None)
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
        here = f"cannot run here: {reasons[g.name]}" if reasons[g.name] else "can run"
        typer.echo(f"{g.name:<10} {strategies:<26} needs {g.needs}; {here}")
