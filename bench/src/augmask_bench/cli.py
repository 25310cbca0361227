"""`augmask bench plan | run | status | table | figures PLAN`, and `bench methods`.

`run` is `fill`, `train` and `score`; `export` and `import` move a grid to another
machine and back. A grid is stored in one folder (`--out`): `fills` and `samples` hold
what the next stage needs, `runs` its results, one file per run; everything else in it
is derived from them or is a cache.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from augmask.cli.shared_options import replace_parameter
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

# Runs that train together on a GPU; larger batches are no faster.
TOGETHER = 16

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


def _listed(texts: Sequence[str] | None, known: Collection[str] = ()) -> list[str]:
    """Return values that were repeated or separated by commas.

    A known value may have commas itself, as labels of methods do.
    """
    listed = []
    for text in texts or ():
        parts = text.split(",")
        while parts:
            joined = {n: ",".join(parts[:n]).strip() for n in range(len(parts), 0, -1)}
            n = next((n for n, value in joined.items() if value in known), 1)
            listed.append(joined[n])
            del parts[:n]
    return listed


def _numbers(texts: Sequence[str] | None, kind: type, option: str) -> list[Any]:
    numbers = []
    for text in _listed(texts):
        try:
            numbers.append(kind(text))
        except ValueError as error:
            raise UsageError(f"{option} must be numbers, got {text!r}") from error
    return numbers


def _selection_option(text: str) -> Any:
    return Annotated[list[str] | None, typer.Option(help=text)]


class _Selection:
    """What the options of a command choose of a plan."""

    def __init__(
        self,
        datasets: Sequence[str] | None = None,
        mechanisms: Sequence[str] | None = None,
        ratios: Sequence[str] | None = None,
        seeds: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        device: str | None = None,
    ) -> None:
        self.datasets, self.mechanisms = datasets, _listed(mechanisms)
        self.ratios = _numbers(ratios, float, "--ratios")
        self.seeds = _numbers(seeds, int, "--seeds")
        self.methods, self.device = methods, device

    def of(self, runs: Sequence[Run]) -> list[Run]:
        """Return the chosen runs."""
        from augmask_bench.plan import DEVICES, select, values_of
        from augmask_bench.validation import one_of

        def names(texts: Sequence[str] | None, dimension: str) -> list[str]:
            known: set[Any] = set().union(*(values_of(run, dimension) for run in runs))
            return _listed(texts, known)

        chosen = select(
            runs,
            datasets=names(self.datasets, "datasets"),
            mechanisms=self.mechanisms,
            ratios=self.ratios,
            seeds=self.seeds,
            methods=names(self.methods, "methods"),
        )
        if self.device is not None:
            device = one_of("--device", self.device, DEVICES)
            chosen = [replace(run, device=device) for run in chosen]
        return chosen


_SELECTION: dict[str, Any] = {
    "datasets": _selection_option("data sets of the plan; default: all"),
    "mechanisms": _selection_option("mechanisms of the plan; default: all"),
    "ratios": _selection_option("ratios of the plan; default: all"),
    "seeds": _selection_option("seeds of the plan; default: all"),
    "methods": _selection_option("methods by label or generator, separated by commas"),
}
_DEVICE = Annotated[
    str | None, typer.Option(help="auto, cpu, cuda or mps; default: the plan's")
]


def _selects_runs(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `selection` by the options that choose a part of a plan."""
    return replace_parameter(
        command, "selection", _SELECTION, lambda given: _Selection(**given)
    )


def _selects_runs_and_device(command: Callable[..., None]) -> Callable[..., None]:
    """Do as `_selects_runs`, with the option that changes the plan's device."""
    options = _SELECTION | {"device": _DEVICE}
    return replace_parameter(
        command, "selection", options, lambda given: _Selection(**given)
    )


Minutes = Annotated[
    float | None,
    typer.Option(help="start nothing new that would not end within this time"),
]
Scheduler = Annotated[
    str | None,
    typer.Option(help="Dask scheduler, tcp://HOST:PORT; default: this machine"),
]
Jobs = Annotated[
    int | None,
    typer.Option(help="worker processes; 0 for none; default: all cores, 2 with a GPU"),
]
Together = Annotated[
    int | None,
    typer.Option(help="runs that train together; default: 16 on a GPU, else 1"),
]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="repeat failed runs")]


@app.command()
@_selects_runs
def plan(
    plan_file: PlanFile,
    selection: _Selection,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """List the methods of a plan, and count its runs: completed and pending."""
    from augmask_bench.results import facts_of, pending

    whole, folder = _open_plan(plan_file, out)
    chosen = selection.of(whole.runs)
    grid = replace(whole, runs=tuple(chosen))
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


def _uses_gpu(device: str) -> bool:
    from augmask.device import resolve_device

    return device != "cpu" and resolve_device("auto").type != "cpu"


def _default_jobs(gpu: bool) -> int:
    """Return one job per core; on a GPU two, of which one prepares or decodes."""
    if find_spec("distributed") is None:
        return 0
    if gpu:
        return 2
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return cores or os.cpu_count() or 1


def _collect(grid: Plan, folder: Path) -> pd.DataFrame:
    """Return the table of results, and save it in the folder."""
    from augmask_bench.results import DERIVED, collect, remove_derived, save_table

    frame = collect(folder, grid.runs)
    if len(frame):
        save_table(folder, frame)
    else:
        remove_derived(folder, DERIVED)
    return frame


def _to_do(
    folder: Path, runs: Sequence[Run], stages: Sequence[str], retry_failed: bool
) -> bool:
    """Return whether any of the stages has something to do."""
    from augmask_bench.results import unscored, untrained

    if "score" in stages and unscored(folder, runs):
        return True
    left = untrained(folder, runs, retry_failed)
    # what is trained needs no fill
    if not left or "train" in stages:
        return bool(left)
    if "fill" not in stages:
        return False
    # slow to import, and a finished grid is skipped at once
    from augmask_bench.stages import fill_jobs

    return bool(fill_jobs(folder, runs, retry_failed))


def _do_stages(
    stages: Sequence[str],
    plan_file: Path,
    out: Path | None,
    selection: _Selection,
    *,
    minutes: float | None,
    scheduler: str | None,
    jobs: int | None,
    together: int | None,
    retry_failed: bool,
    as_json: bool,
) -> None:
    """Do stages of a plan, while holding the lock of its folder."""
    from augmask_bench.lock import folder_lock
    from augmask_bench.results import pending

    for name, value in (("--minutes", minutes), ("--together", together)):
        if value is not None and not value > 0:
            raise UsageError(f"{name} must be above 0, got {value:g}")
    grid, folder = _open_plan(plan_file, out)
    selected = selection.of(grid.runs)
    counts: Counter[str] = Counter()
    skipped = len(selected) - len(pending(folder, selected, retry_failed))

    def waiting() -> None:
        print_error(f"note: another command works on {folder}; waiting for it")

    if _to_do(folder, selected, stages, retry_failed):
        from augmask_bench.jobs import Engine
        from augmask_bench.run import check_can_score
        from augmask_bench.stages import Work

        left = pending(folder, selected, retry_failed)
        _check_methods(left)
        if "score" in stages:
            check_can_score()
        _check_tables(left, as_json)
        device = selected[0].device
        gpu = _uses_gpu(device)
        together = together or (TOGETHER if gpu else 1)
        n_jobs = _default_jobs(gpu and "train" in stages) if jobs is None else jobs
        resources = {"GPU": 1} if device == "cuda" and "train" in stages else None
        with (
            folder_lock(folder, waiting),
            progress_reporter(as_json) as progress,
            Engine(n_jobs, scheduler, resources) as engine,
        ):
            work = Work(
                *(folder, selected, engine, together, minutes, retry_failed),
                progress=progress,
                say=(lambda _: None) if as_json else print_error,
                counts=counts,
            )
            try:
                for stage in stages:
                    work.do(stage)
            finally:
                _collect(grid, folder)
    counts = +counts
    if len(stages) > 1:
        # what is filled is not yet a result
        del counts["filled"], counts["unfilled"]
    if as_json:
        print_json({"out": str(folder), "skipped": skipped, **counts})
        return
    new = ", ".join(f"{n:,} {status}" for status, n in counts.items()) or "nothing new"
    typer.echo(f"{folder}: {new}, {skipped:,} skipped (already completed)")


@app.command()
@_selects_runs_and_device
def run(
    plan_file: PlanFile,
    selection: _Selection,
    out: Out = None,
    minutes: Minutes = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
    together: Together = None,
    retry_failed: RetryFailed = False,
    as_json: Json = False,
) -> None:
    """Fill, train and score the pending runs of a plan; completed ones are skipped."""
    _do_stages(
        *(("fill", "train", "score"), plan_file, out),
        selection,
        minutes=minutes,
        scheduler=scheduler,
        jobs=jobs,
        together=together,
        retry_failed=retry_failed,
        as_json=as_json,
    )


@app.command()
@_selects_runs_and_device
def fill(
    plan_file: PlanFile,
    selection: _Selection,
    out: Out = None,
    minutes: Minutes = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Fill the incomplete tables of pending runs; needs no GPU."""
    _do_stages(
        *(("fill",), plan_file, out),
        selection,
        minutes=minutes,
        scheduler=scheduler,
        jobs=jobs,
        together=None,
        retry_failed=False,
        as_json=as_json,
    )


@app.command()
@_selects_runs_and_device
def train(
    plan_file: PlanFile,
    selection: _Selection,
    out: Out = None,
    minutes: Minutes = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
    together: Together = None,
    retry_failed: RetryFailed = False,
    as_json: Json = False,
) -> None:
    """Train pending runs and store their rows; needs no LightGBM if filled."""
    _do_stages(
        *(("train",), plan_file, out),
        selection,
        minutes=minutes,
        scheduler=scheduler,
        jobs=jobs,
        together=together,
        retry_failed=retry_failed,
        as_json=as_json,
    )


@app.command()
@_selects_runs_and_device
def score(
    plan_file: PlanFile,
    selection: _Selection,
    out: Out = None,
    minutes: Minutes = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Score the stored rows of a plan; needs XGBoost and no GPU."""
    _do_stages(
        *(("score",), plan_file, out),
        selection,
        minutes=minutes,
        scheduler=scheduler,
        jobs=jobs,
        together=None,
        retry_failed=False,
        as_json=as_json,
    )


@app.command("export")
@_selects_runs
def export_(
    plan_file: PlanFile,
    to: Annotated[Path, typer.Argument(metavar="TO", help="folder of the archives")],
    selection: _Selection,
    out: Out = None,
    what: Annotated[
        str,
        typer.Option(
            help="work: what another machine needs to train; results: what this one "
            "made; all"
        ),
    ] = "all",
    size: Annotated[float, typer.Option(help="largest archive, in MiB")] = 15.0,
    as_json: Json = False,
) -> None:
    """Write fills, rows and records into few, small archives for another machine."""
    from augmask_bench.exchange import export_grid

    grid, folder = _open_plan(plan_file, out)
    chosen = selection.of(grid.runs)
    # without the lock: files are complete, also while a stage works on the folder
    files = export_grid(*(folder, chosen, to), stem=plan_file.stem, what=what, mib=size)
    sizes = {str(path): path.stat().st_size for path in files}
    if as_json:
        print_json({"files": sizes})
        return
    for name, n_bytes in sizes.items():
        typer.echo(f"{name}: {n_bytes / 2**20:.1f} MiB")
    if not files:
        typer.echo("nothing to export")


@app.command("import")
def import_(
    plan_file: PlanFile,
    sources: Annotated[
        list[Path], typer.Argument(metavar="FROM", help="archives, or their folders")
    ],
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Read archives of `export` into the folder of a grid."""
    from augmask_bench.exchange import import_grid
    from augmask_bench.lock import folder_lock

    grid, folder = _open_plan(plan_file, out)
    with folder_lock(folder):
        counts = import_grid(folder, grid.runs, sources)
    if as_json:
        print_json({"out": str(folder), **counts})
        return
    titles = {"fills": "fills", "samples": "rows", "runs": "records"}
    new = ", ".join(f"{counts[kind]:,} {title}" for kind, title in titles.items())
    typer.echo(f"{folder}: {new} are new")
    if counts["ignored"]:
        print_error(
            f"note: {counts['ignored']:,} files belong to no run of this plan: they "
            "were made with other settings, versions or tables"
        )
    if counts["incomplete"]:
        print_error(
            f"note: {counts['incomplete']:,} files are incomplete; import all archives "
            "of an export together"
        )


@app.command()
@_selects_runs
def status(
    plan_file: PlanFile,
    selection: _Selection,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Count the runs of a grid by status, and list failed runs with the reasons."""
    from augmask_bench.results import collect, stale
    from augmask_bench.speed import use_of_devices
    from augmask_bench.stages import state_of

    grid, folder = _open_plan(plan_file, out)
    runs = selection.of(grid.runs)
    frame = collect(folder, runs)
    states = Counter(state_of(folder, run) for run in runs)
    order = [*frame["status"].unique(), "trained", "pending"]
    counts = {state: states[state] for state in dict.fromkeys(order) if states[state]}
    counts.setdefault("pending", 0)
    used = use_of_devices(folder, {run.name for run in runs})
    n_stale = len(stale(folder, grid.runs))
    incomplete = frame[frame["status"] != "done"]
    if as_json:
        names = ["run", "method", "dataset", "mechanism", "ratio", "seed", "reason"]
        listed = incomplete[["status", *names]].to_dict("records")
        print_json(
            {"out": str(folder), "runs": len(runs), **counts, "stale": n_stale}
            | {"devices": used, "unfinished": listed}
        )
        return
    typer.echo(f"{folder}: " + ", ".join(f"{n:,} {name}" for name, n in counts.items()))
    for device, total in used.items():
        typer.echo(
            f"  {device}: {total['runs']:,.0f} runs trained in "
            f"{total['seconds']:,.0f} s, {total['steps_per_second']:,.0f} steps of "
            "models per second of training"
        )
    for line in incomplete.itertuples():
        typer.echo(
            f"  {line.status}: {line.method} on {line.dataset}, {line.mechanism} "
            f"{line.ratio:g}, seed {line.seed}: {line.reason} (runs/{line.run}.json)"
        )
    if n_stale:
        typer.echo(f"  {n_stale:,} results belong to no run of this plan; not shown")


def _results(
    plan_file: Path, out: Path | None, selection: _Selection
) -> tuple[pd.DataFrame, Path]:
    """Return the results of a grid; report runs that are pending or unavailable."""
    grid, folder = _open_plan(plan_file, out)
    frame = _collect(grid, folder)
    runs = selection.of(grid.runs)
    frame = frame[frame["run"].isin({run.name for run in runs})]
    if not len(frame):
        raise DataError(
            f"no results of {plan_file} in {folder}; run `augmask bench run` first"
        )
    missing = len(runs) - len(frame)
    if missing:
        print_error(f"note: {missing:,} of {len(runs):,} runs are pending")
    unavailable = frame[frame["status"] == "unable"]
    for label, rows in unavailable.groupby("method", sort=False):
        print_error(f"note: {label} is not ranked: {rows['reason'].iloc[0]}")
    return frame, folder


@app.command()
@_selects_runs
def table(
    plan_file: PlanFile,
    selection: _Selection,
    out: Out = None,
    against: Annotated[
        str | None,
        typer.Option(help="method to test against; default: the best baseline"),
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(help="CSV file for the scores, one line per run")
    ] = None,
    by_dataset: Annotated[
        bool,
        typer.Option("--by-dataset", help="print every metric by data set instead"),
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the rank table; save it and every metric by data set.

    Ranked are the blocks that the chosen methods share. Tables are saved as Markdown,
    CSV and LaTeX.
    """
    from augmask.files import atomic_write
    from augmask.rng import stream
    from augmask_bench import dataset_tables, layout
    from augmask_bench.ranks import rank_table
    from augmask_bench.results import RANKS, remove_derived, save_scores
    from augmask_bench.significance import gains

    if scores is not None and scores.suffix != ".csv":
        raise UsageError(f"--scores must be a .csv file, got {scores}")
    frame, folder = _results(plan_file, out, selection)
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
        metrics = dataset_tables.dataset_tables(ranked, against)
        texts = {
            f"ranks-{mechanism}.md": layout.markdown(ranked, tested),
            f"ranks-{mechanism}.csv": layout.csv(ranked, tested),
            f"ranks-{mechanism}.tex": layout.latex(ranked, tested),
            f"datasets-{mechanism}.md": "\n".join(
                map(dataset_tables.markdown, metrics)
            ),
            f"datasets-{mechanism}.csv": dataset_tables.csv(metrics),
            f"datasets-{mechanism}.tex": "\n".join(map(dataset_tables.latex, metrics)),
        }
        for name, text in texts.items():
            with atomic_write(folder / name) as part:
                part.write_text(text, encoding="utf-8")
            written.append(str(folder / name))
        ranks[mechanism] = ranked.mean.T.to_dict()
        if as_json:
            continue
        if by_dataset:
            typer.echo("\n".join(map(dataset_tables.terminal, metrics)))
        else:
            typer.echo(layout.terminal(ranked, tested))
    if as_json:
        print_json({"files": written, "ranks": ranks})
    else:
        print_error("\n".join(written))


@app.command()
@_selects_runs
def figures(
    plan_file: PlanFile,
    selection: _Selection,
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
    frame, folder = _results(plan_file, out, selection)
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
