"""One run from the table to the record: load, split, hide, fit, sample, score."""

from __future__ import annotations

import hashlib
import json
import signal
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
from typing import Any

import pandas as pd

import augmask as am
from augmask.augmentation.frame import augmented
from augmask.errors import AugMaskError, AugMaskWarning, UsageError
from augmask.files import written_whole
from augmask.versions import library_versions
from augmask_bench.augmentation_cache import SharedFill, bent
from augmask_bench.data import Dataset, split
from augmask_bench.generator import Made, Request
from augmask_bench.methods import find_generator
from augmask_bench.plan import PROTOCOL, Run, load_modules, name_now
from augmask_bench.results import Record, facts_of, real_file, sample_file
from augmask_bench.score import Judge

LIBRARIES = ("augmask", "torch", "numpy", "pandas", "lightgbm", "scikit-learn")


class OutOfTime(Exception):
    """A generator went on past its time."""


@cache
def commit() -> str:
    """Return the commit of the checkout that runs; empty for an installed package."""
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
def _limited(minutes: float | None) -> Iterator[None]:
    """Raise `OutOfTime` when the time is up.

    By the clock's signal where that is possible (the main thread of a process on a
    Unix); elsewhere the time is looked at when the work is done.
    """
    if minutes is None:
        yield
        return

    def ring(*_: Any) -> None:
        raise OutOfTime

    began = time.monotonic()
    alarm = (
        hasattr(signal, "SIGALRM")
        and threading.current_thread() is threading.main_thread()
    )
    if not alarm:
        yield
        if time.monotonic() - began > 60 * minutes:
            raise OutOfTime
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _keep(frame: pd.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        frame.to_parquet(part, index=False)


def generate(
    run: Run, out: Path, data: Dataset, holed: pd.DataFrame
) -> tuple[Made, SharedFill | None]:
    """Return the rows of a run's method, and the augmenter that it used.

    Parameters
    ----------
    run : Run
    out : Path
        The grid's folder, for fills that runs share.
    data : Dataset
        For the roles of its columns.
    holed : pandas.DataFrame
        The incomplete table to learn from.
    """
    method, generator = run.method, find_generator(run.method.generator)
    fill = None
    if method.augmenter:
        fill = SharedFill(bent(method.augmenter, method.eta, method.lam), out / "fills")
    table, filled, minutes = holed, None, run.max_minutes
    if generator.complete and fill is not None:
        filled = augmented(holed, fill, run.seed, data.kinds)
        table = filled.frame
        if minutes is not None:
            minutes = max(minutes - fill.spent / 60, 0.0)
    request = Request(
        table,
        data.kinds,
        len(holed),
        data.target,
        method,
        run.seed,
        run.device,
        minutes,
        None if generator.complete else fill,
        filled,
    )
    return generator.make(request), fill


def _done(
    run: Run, out: Path, data: Dataset, holed: pd.DataFrame, judge: Judge
) -> tuple[Record, pd.DataFrame]:
    """Return what a finished run adds to its record, and its rows."""
    generator = find_generator(run.method.generator)
    with _limited(None if generator.keeps_time else run.max_minutes):
        made, fill = generate(run, out, data, holed)
    began = time.perf_counter()
    scores = judge.score(made.rows)
    seconds = time.perf_counter() - began
    found = {
        **scores,
        "fit_seconds": made.fit_seconds,
        "augment_seconds": fill.seconds if fill is not None else 0.0,
        "sample_seconds": made.sample_seconds,
        "score_seconds": seconds,
        **made.facts,
    }
    return found, made.rows


def _real_side(run: Run) -> str:
    """Return the name of what all runs on the same real rows share."""
    facts = [PROTOCOL, run.source.digest(), run.seed, run.metrics.rows]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:20]


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return (
        text if isinstance(error, AugMaskError) else f"{type(error).__name__}: {text}"
    )


def execute(run: Run, out: Path) -> Record:
    """Do a run and return its record.

    A method that breaks is recorded as failed, one that cannot run here as unable;
    neither raises. A table that cannot be had or has changed, and a folder that cannot
    keep rows, do raise: that is nobody's rank.

    Parameters
    ----------
    run : Run
    out : Path
        The grid's folder, for what runs share (`fills`, `real-side`) and for rows
        that are kept (`samples`, `real`). The record itself is returned, not written.
    """
    load_modules(run.modules)
    if name_now(run) != run.name:
        raise UsageError(
            f"{run}: the table, or what a preset means, is not what it was when the "
            "plan was read; start again, with the same on all machines"
        )
    real = _real_side(run)
    record: Record = {
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
        return {**record, "status": "unable", "reason": reason}
    if find_spec("xgboost") is None:
        raise UsageError(
            "the benchmark measures MLE with XGBoost, which is not installed; run "
            "`pip install 'augmask[bench]'`"
        )
    with warnings.catch_warnings():
        # notes on columns are for those who meet a table for the first time
        warnings.simplefilter("ignore", AugMaskWarning)
        data = run.source.load()
        classes = data.target if data.task == "classification" else None
        train, test = split(data.frame, classes, run.seed)
        holed = am.ampute(train, run.mechanism, run.ratio, run.seed, mar=run.mar)
        record |= {"rows": len(train), "columns": train.shape[1]}
        judge = Judge(
            *(data, train, test, run.metrics, run.seed),
            out / "real-side" / f"{real}.npz",
        )
        try:
            found, rows = _done(run, out, data, holed, judge)
        except OutOfTime:
            record |= {"status": "failed", "reason": "out of time"}
        except Exception as error:
            record |= {
                "status": "failed",
                "reason": _one_line(error),
                "trace": traceback.format_exc(limit=-4),
            }
        else:
            record |= found
            if run.keep:
                # levels as such, so that figures know the roles of columns
                roles = dict.fromkeys(data.categorical, "category")
                place = real_file(out, run.source.name, run.seed, real)
                _keep(train.astype(roles), place)
                _keep(rows, sample_file(out, run))
    return record
