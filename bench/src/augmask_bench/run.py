"""One run: load a table, split it, remove cells, fit, sample and score."""

from __future__ import annotations

import ctypes
import hashlib
import json
import subprocess
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

import augmask as am
from augmask.augmentation.augment import augmented
from augmask.errors import AugMaskError, AugMaskWarning, UsageError
from augmask.files import atomic_write
from augmask.packages import library_versions
from augmask_bench.augmentation_cache import CachedAugmenter, perturbed_augmenter
from augmask_bench.data import Dataset, split
from augmask_bench.generators import Generated, Request
from augmask_bench.methods import find_generator
from augmask_bench.plan import PROTOCOL, Run, load_modules, name_now
from augmask_bench.results import RunResult, facts_of, real_file, sample_file
from augmask_bench.score import Scorer

LIBRARIES = ("augmask", "torch", "numpy", "pandas", "lightgbm", "scikit-learn")


class OutOfTime(Exception):
    """A generator exceeded its time limit."""


@cache
def commit() -> str:
    """Return the commit of the checkout; an empty text for an installed package."""
    root = Path(am.__file__).parents[2]
    if not (root / ".git").exists():
        return ""
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


def generate(
    run: Run, out: Path, data: Dataset, incomplete: pd.DataFrame
) -> tuple[Generated, CachedAugmenter | None]:
    """Return the rows of a run's method, and the augmenter that it used.

    Parameters
    ----------
    run : Run
    out : Path
        The grid's folder, for augmentations that runs share.
    data : Dataset
        For the kinds of its columns.
    incomplete : pandas.DataFrame
        The table to train on.
    """
    method, generator = run.method, find_generator(run.method.generator)
    augmenter = None
    if method.augmenter:
        augmenter = CachedAugmenter(
            perturbed_augmenter(method.augmenter, method.eta, method.lam),
            out / "augmentations",
        )
    table, completed, minutes = incomplete, None, run.max_minutes
    if generator.complete and augmenter is not None:
        completed = augmented(incomplete, augmenter, run.seed, data.kinds)
        table = completed.frame
        if minutes is not None:
            minutes = max(minutes - augmenter.spent / 60, 0.0)
    request = Request(
        table,
        data.kinds,
        len(incomplete),
        data.target,
        method,
        run.seed,
        run.device,
        minutes,
        None if generator.complete else augmenter,
        completed,
    )
    return generator.generate(request), augmenter


def _generate_and_score(
    run: Run, out: Path, data: Dataset, incomplete: pd.DataFrame, scorer: Scorer
) -> tuple[RunResult, pd.DataFrame]:
    """Return what a completed run adds to its result, and its rows."""
    generator = find_generator(run.method.generator)
    with _time_limit(None if generator.keeps_time else run.max_minutes):
        generated, augmenter = generate(run, out, data, incomplete)
    start = time.perf_counter()
    scores = scorer.score(generated.rows)
    seconds = time.perf_counter() - start
    result = {
        **scores,
        "fit_seconds": generated.fit_seconds,
        "augment_seconds": augmenter.seconds if augmenter is not None else 0.0,
        "sample_seconds": generated.sample_seconds,
        "score_seconds": seconds,
        **generated.facts,
    }
    return result, generated.rows


def _real_side(run: Run) -> str:
    """Return the hash of what all runs on the same real rows share."""
    facts = [PROTOCOL, run.source.digest(), run.seed, run.metrics.rows]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:20]


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return (
        text if isinstance(error, AugMaskError) else f"{type(error).__name__}: {text}"
    )


def execute(run: Run, out: Path) -> RunResult:
    """Execute a run and return its result.

    A method that raises gets the status `failed`, one that is not available here
    `unable`. A table that cannot be read or has changed, and a folder that cannot be
    written, raise: these are not failures of the method.

    Parameters
    ----------
    run : Run
    out : Path
        The grid's folder, for caches that runs share (`augmentations`, `real-side`)
        and, with `keep`, for rows (`samples`, `real`). The result itself is returned,
        not written.
    """
    load_modules(run.modules)
    if name_now(run) != run.name:
        raise UsageError(
            f"{run}: the table or a preset has changed since the plan was read; start "
            "again, with the same versions and data on all machines"
        )
    real = _real_side(run)
    result: RunResult = {
        **facts_of(run),
        "status": "done",
        "reason": "",
        "real": real,
        "commit": commit(),
        "versions": json.dumps(library_versions(*LIBRARIES, "xgboost")),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    reason = run.method.why_unavailable(run.device)
    if reason:
        return {**result, "status": "unable", "reason": reason}
    if find_spec("xgboost") is None:
        raise UsageError(
            "the metric MLE needs XGBoost, which is not installed; run "
            "`pip install 'augmask[utility]'`"
        )
    with warnings.catch_warnings():
        # notes on columns were shown when the tables were checked
        warnings.simplefilter("ignore", AugMaskWarning)
        data = run.source.load()
        classes = data.target if data.task == "classification" else None
        train, test = split(data.frame, classes, run.seed)
        incomplete = am.ampute(
            train, mechanism=run.mechanism, ratio=run.ratio, seed=run.seed, mar=run.mar
        )
        result |= {"rows": len(train), "columns": train.shape[1]}
        scorer = Scorer(
            *(data, train, test, run.metrics, run.seed),
            out / "real-side" / f"{real}.npz",
        )
        try:
            outcome, rows = _generate_and_score(run, out, data, incomplete, scorer)
        except OutOfTime:
            result |= {"status": "failed", "reason": "out of time"}
        except Exception as error:
            result |= {
                "status": "failed",
                "reason": _one_line(error),
                "trace": traceback.format_exc(limit=-4),
            }
        else:
            result |= outcome
            if run.keep:
                # as categories, so that figures know the roles of columns
                roles = dict.fromkeys(data.categorical, "category")
                path = real_file(out, run.source.name, run.seed, real)
                _save(train.astype(roles), path)
                _save(rows, sample_file(out, run))
    return result
