"""The three stages of a run: fill the incomplete table, train, score.

Every stage leaves a file in the folder of the grid, which the next one reads: a fill
(`fills`), generated rows (`samples`), a record (`runs`, which the caller writes). So
the stages may run at different times and on different machines.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import subprocess
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pyarrow as pa

import augmask as am
from augmask.augmentation.augment import augmented
from augmask.augmentation.completions import CompletionPlan
from augmask.errors import AugMaskError, AugMaskWarning, UsageError
from augmask.files import atomic_write
from augmask.packages import library_versions
from augmask.table.codec import Codec
from augmask.table.infer import infer_schema
from augmask.table.table import Table
from augmask_bench.augmentation_cache import (
    TRUTH,
    CachedAugmenter,
    Truth,
    perturbed_augmenter,
    why_augmenter_unavailable,
)
from augmask_bench.data import Dataset, split
from augmask_bench.fills import CannotFill, StoredFill
from augmask_bench.generators import Generated, Request
from augmask_bench.methods import find_generator
from augmask_bench.plan import PROTOCOL, Run, fill_name, load_modules, name_now
from augmask_bench.results import (
    RunResult,
    facts_of,
    read_rows,
    real_file,
    sample_file,
    store_rows,
)
from augmask_bench.score import Scorer
from augmask_bench.speed import note_speed

LIBRARIES = ("augmask", "torch", "numpy", "pandas", "lightgbm", "scikit-learn")


class OutOfTime(Exception):
    """A generator exceeded its time limit."""


@cache
def commit() -> str:
    """Return the commit of the checkout; an empty text for an installed package.

    A copy on another machine, whose repository is absent or older than its files, says
    its commit in `AUGMASK_COMMIT`.
    """
    told = os.environ.get("AUGMASK_COMMIT", "")
    root = Path(am.__file__).parents[2]
    if told or not (root / ".git").exists():
        return told
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


@contextmanager
def _time_limit(minutes: float | None) -> Iterator[None]:
    """Raise `OutOfTime` in this thread when the time is over.

    Python raises it between two instructions: a call of native code that takes long is
    interrupted when it returns.
    """
    if minutes is None:
        yield
        return
    thread = ctypes.c_ulong(threading.get_ident())
    lock, active = threading.Lock(), True

    def interrupt() -> None:
        with lock:
            if active:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    thread, ctypes.py_object(OutOfTime)
                )

    timer = threading.Timer(60 * minutes, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            active = False


def _save(frame: pd.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        frame.to_parquet(part, index=False)


# -- what a run works on --------------------------------------------------------


class Block:
    """The tables of a run, all made from its source.

    Parameters
    ----------
    run : Run
    data : Dataset, optional
        The loaded source, if another run of the same source has it.
    """

    def __init__(self, run: Run, data: Dataset | None = None) -> None:
        self.run = run
        self.data = run.source.load() if data is None else data
        classes = self.data.target if self.data.task == "classification" else None
        self.train, self.test = split(self.data.frame, classes, run.seed)

    @cached_property
    def incomplete(self) -> pd.DataFrame:
        """The training rows without the hidden cells."""
        run = self.run
        return am.ampute(
            self.train,
            mechanism=run.mechanism,
            ratio=run.ratio,
            seed=run.seed,
            mar=run.mar,
        )


def _check_name(run: Run) -> None:
    if name_now(run) != run.name:
        raise UsageError(
            f"{run}: the table or a preset has changed since the plan was read; start "
            "again, with the same versions and data on all machines"
        )


def _true_table(block: Block) -> Table:
    """Return the complete training rows, encoded like the incomplete ones."""
    run = block.run
    encoding = find_generator(run.method.generator).encoding(run.method)
    seed = run.seed if encoding["ties"] == "dequantize" else None
    if encoding["links"] != "ignore":
        raise UsageError(
            f"the augmenter {TRUTH!r} needs links = 'ignore'; set the option"
        )
    schema = infer_schema(block.incomplete, block.data.schema)
    return Codec.fit(block.incomplete, schema, seed).encode(block.train, seed)


def stored_fill(run: Run, out: Path, block: Block | None = None) -> StoredFill | None:
    """Return the augmenter of a run, which reads a stored fill; None if it has none.

    The oracle `truth` can make its fill if `block` is given.
    """
    method = run.method
    if not method.augmenter:
        return None
    augmenter = perturbed_augmenter(method.augmenter, method.eta, method.lam)
    if isinstance(augmenter, Truth) and block is not None:
        augmenter = Truth(partial(_true_table, block))
    complete = find_generator(method.generator).complete
    plan = CompletionPlan.parse("one" if complete else method.completions)
    # fits are cached apart, because several fills may draw from one
    return StoredFill(
        CachedAugmenter(augmenter, out / "augmentations"),
        out / "fills" / f"{fill_name(run)}.npz",
        plan.n_draws,
    )


def request_of(
    run: Run,
    out: Path,
    data: Dataset,
    incomplete: pd.DataFrame,
    block: Block | None = None,
) -> Request:
    """Return what the generator of a run is asked to do."""
    generator = find_generator(run.method.generator)
    fill = stored_fill(run, out, block)
    table, completed = incomplete, None
    if generator.complete and fill is not None:
        completed = augmented(incomplete, fill, run.seed, data.schema)
        table = completed.frame
    return Request(
        table,
        data.kinds,
        len(incomplete),
        data.target,
        run.method,
        run.seed,
        run.device,
        run.max_minutes,
        None if generator.complete else fill,
        completed,
        data.schema,
    )


# -- stage 1: fill --------------------------------------------------------------


def make_fill(run: Run, out: Path) -> str:
    """Make and store the fill of a run; return why it cannot be made, or nothing."""
    load_modules(run.modules)
    _check_name(run)
    fill = stored_fill(run, out)
    if fill is None or fill.stored:
        return ""
    reason = why_augmenter_unavailable(run.method.augmenter)
    if reason:
        return reason
    generator = find_generator(run.method.generator)
    try:
        with _quiet():
            block = Block(run)
            request = request_of(run, out, block.data, block.incomplete, block)
            if generator.fill is not None:
                generator.fill(request)
    except OSError:
        raise
    except Exception as error:
        return _one_line(error)
    return ""


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore notes on columns: they were shown when the tables were checked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AugMaskWarning)
        yield


# -- stage 2: train -------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Runs that train together, all of one generator and source."""

    runs: tuple[Run, ...]

    def __str__(self) -> str:
        first = self.runs[0]
        if len(self.runs) == 1:
            return str(first)
        label = find_generator(first.method.generator).label
        return f"{len(self.runs)} runs of {label} on {first.source.name}"


def generate(run: Run, out: Path, data: Dataset, incomplete: pd.DataFrame) -> Generated:
    """Return the rows of a run's method, trained alone.

    Parameters
    ----------
    run : Run
    out : Path
        The grid's folder, for fills that runs share.
    data : Dataset
        For the kinds and levels of its columns.
    incomplete : pandas.DataFrame
        The table to train on.
    """
    generator = find_generator(run.method.generator)
    return generator.generate(request_of(run, out, data, incomplete))


def _started(run: Run) -> RunResult:
    """Return what is known about a training before it starts."""
    return {
        **facts_of(run),
        "status": "trained",
        "reason": "",
        "commit": commit(),
        "versions": json.dumps(library_versions(*LIBRARIES)),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _why_unavailable(run: Run, out: Path) -> str:
    """Return why a run cannot train here; an empty text if it can."""
    reason = find_generator(run.method.generator).why_unavailable(run.device)
    fill = stored_fill(run, out)
    if reason or fill is None or fill.stored:
        return reason
    return why_augmenter_unavailable(run.method.augmenter)


def _failed(run: Run, error: Exception) -> RunResult:
    """Return the result of a run whose training raised."""
    result = _started(run)
    if isinstance(error, CannotFill):
        return result | {"status": "unable", "reason": str(error)}
    if isinstance(error, OutOfTime):
        return result | {"status": "failed", "reason": "out of time"}
    lines = traceback.format_exception(
        type(error), error, error.__traceback__, limit=-4
    )
    return result | {
        "status": "failed",
        "reason": _one_line(error),
        "trace": "".join(lines),
    }


def _outcomes(
    runs: Sequence[Run], requests: Sequence[Request]
) -> Iterator[tuple[Run, Generated | Exception]]:
    """Yield rows or an error for every run, as soon as they exist."""
    generator = find_generator(runs[0].method.generator)
    left = list(runs)
    try:
        if generator.generate_many is not None:
            for outcome in generator.generate_many(requests):
                yield left.pop(0), outcome
            return
        for request in requests:
            with _time_limit(None if generator.keeps_time else request.max_minutes):
                generated = generator.generate(request)
            yield left.pop(0), generated
    except Exception as error:
        for run in left:
            yield run, error


def _store(
    run: Run, out: Path, request: Request, generated: Generated, together: int
) -> RunResult:
    """Store the rows of a run; return what its training adds to its result."""
    fill = stored_fill(run, out)
    seconds = 0.0
    if fill is not None:
        used = request.augmenter
        seconds = used.seconds if used is not None else fill.stored_seconds()
    facts = {
        **_started(run),
        "rows": len(generated.rows),
        "columns": generated.rows.shape[1],
        "fit_seconds": generated.fit_seconds,
        "augment_seconds": seconds,
        "sample_seconds": generated.sample_seconds,
        "together": together,
        **generated.facts,
    }
    store_rows(sample_file(out, run), generated.rows, facts)
    return facts


def _fill_apart(request: Request) -> None:
    """Make a missing fill before the training, whose time is limited and measured."""
    make, fill = find_generator(request.method.generator).fill, request.augmenter
    if make is not None and fill is not None and not fill.stored:
        make(request)


def train(group: Group, out: Path) -> list[RunResult]:
    """Train the runs of a group together, and store the rows of each.

    A method that raises gets the status `failed`, one that is not available here
    `unable`, one whose rows are stored `trained`. A table that cannot be read or has
    changed, and a folder that cannot be written, raise: these are not failures of the
    method.

    Parameters
    ----------
    group : Group
    out : Path
        The grid's folder. Rows and fills are written there; results are returned.
    """
    results: dict[str, RunResult] = {}
    runs: list[Run] = []
    requests: list[Request] = []
    data: Dataset | None = None
    load_modules(group.runs[0].modules)
    start = time.perf_counter()
    for run in group.runs:
        _check_name(run)
        reason = _why_unavailable(run, out)
        if reason:
            results[run.name] = _started(run) | {"status": "unable", "reason": reason}
            continue
        with _quiet():
            block = Block(run, data)
            data = block.data
            try:
                request = request_of(run, out, data, block.incomplete, block)
                _fill_apart(request)
            except OSError:
                raise
            except Exception as error:
                results[run.name] = _failed(run, error)
                continue
        runs.append(run)
        requests.append(request)
    if runs:
        by_name = {
            run.name: request for run, request in zip(runs, requests, strict=True)
        }
        with _quiet():
            for run, outcome in _outcomes(runs, requests):
                if isinstance(outcome, Exception):
                    results[run.name] = _failed(run, outcome)
                    continue
                try:
                    results[run.name] = _store(
                        run, out, by_name[run.name], outcome, len(runs)
                    )
                except (pa.ArrowException, TypeError) as error:
                    results[run.name] = _failed(run, error)
        note_speed(out, runs, list(results.values()), time.perf_counter() - start)
    return [results[run.name] for run in group.runs]


# -- stage 3: score -------------------------------------------------------------


def _real_side(run: Run) -> str:
    """Return the hash of what all runs on the same real rows share."""
    facts = [PROTOCOL, run.source.digest(), run.seed, run.metrics.rows]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:20]


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (
        text if isinstance(error, AugMaskError) else f"{type(error).__name__}: {text}"
    )


def check_can_score() -> None:
    """Raise if the package that MLE needs is missing."""
    if find_spec("xgboost") is None:
        raise UsageError(
            "the metric MLE needs XGBoost, which is not installed; run "
            "`pip install 'augmask[utility]'`, or score on another machine"
        )


def score(run: Run, out: Path) -> RunResult:
    """Score the stored rows of a run, and return its result.

    Rows that cannot be scored are a failure of the method.
    """
    load_modules(run.modules)
    _check_name(run)
    check_can_score()
    rows, facts = read_rows(sample_file(out, run))
    versions = json.loads(facts["versions"]) | library_versions("xgboost")
    real = _real_side(run)
    result: RunResult = {
        **facts,
        **facts_of(run),
        "real": real,
        "versions": json.dumps(versions),
    }
    with _quiet():
        block = Block(run)
        result |= {"rows": len(block.train), "columns": block.train.shape[1]}
        scorer = Scorer(
            *(block.data, block.train, block.test, run.metrics, run.seed),
            out / "real-side" / f"{real}.npz",
        )
        start = time.perf_counter()
        try:
            scores = scorer.score(rows)
        except Exception as error:
            return result | {"status": "failed", "reason": _one_line(error)}
        seconds = time.perf_counter() - start
    if run.keep:
        # as categories, so that figures know the roles of columns
        roles = dict.fromkeys(block.data.categorical, "category")
        path = real_file(out, run.source.name, run.seed, real)
        if not path.exists():
            _save(block.train.astype(roles), path)
    return result | {"status": "done", **scores, "score_seconds": seconds}


def execute(run: Run, out: Path) -> RunResult:
    """Execute all stages of a run here, and return its result.

    The result is returned, not written; rows stay only if the run keeps them.
    """
    make_fill(run, out)
    (result,) = train(Group((run,)), out)
    if result["status"] == "trained":
        result = score(run, out)
    if not run.keep or result["status"] != "done":
        sample_file(out, run).unlink(missing_ok=True)
    return result
