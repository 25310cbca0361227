"""The stages of a grid, each over all runs that need it: fill, train, score.

A stage sends jobs to an engine (see `cluster`), and takes its results as they arrive.
It resumes, because what is stored is not made again, and ends between jobs when its
time is over. Only this process writes records.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from augmask.errors import UsageError
from augmask_bench.jobs import Engine, JobsFailed
from augmask_bench.plan import Run, fill_name, together_key
from augmask_bench.results import (
    RunResult,
    failed_result,
    pending,
    read,
    sample_file,
    unscored,
    untrained,
    write,
)
from augmask_bench.run import Group, make_fill, score, train
from augmask_bench.speed import expected_seconds, speeds

STAGES = ("fill", "train", "score")
# What a job returns that did not start, because the time of its stage was over.
LATER = "later"


@dataclass(frozen=True)
class FillJob:
    """A fill to make, and one of the runs that train on it."""

    run: Run

    def __str__(self) -> str:
        dataset, mechanism, ratio, seed = self.run.block
        return (
            f"fill by {self.run.method.augmenter} of {dataset}, {mechanism} "
            f"{ratio:g}, seed {seed}"
        )


# -- jobs: they run in workers ------------------------------------------------------


def _is_late(deadline: float, seconds: float = 0.0) -> bool:
    return time.time() + seconds > deadline


def _fill(job: FillJob, out: Path, deadline: float) -> str:
    return LATER if _is_late(deadline) else make_fill(job.run, out)


def _train(group: Group, out: Path, deadline: float) -> list[RunResult] | str:
    if deadline < math.inf:
        seconds = expected_seconds(speeds(out), group.runs)
        if _is_late(deadline, seconds):
            return LATER
    return train(group, out)


def _score(run: Run, out: Path, deadline: float) -> RunResult | str:
    return LATER if _is_late(deadline) else score(run, out)


# -- what is to do ------------------------------------------------------------------


def fill_jobs(
    out: Path, runs: Sequence[Run], retry_failed: bool = False
) -> list[FillJob]:
    """Return the fills that untrained runs need and that are not stored, each once."""
    jobs: dict[str, FillJob] = {}
    for run in untrained(out, runs, retry_failed):
        name = fill_name(run)
        if name and not (out / "fills" / f"{name}.npz").exists():
            jobs.setdefault(name, FillJob(run))
    return list(jobs.values())


def train_groups(runs: Sequence[Run], together: int) -> list[Group]:
    """Return the runs in groups of at most `together` that can train together.

    Groups keep the order of their first runs. Sizes are as equal as possible, because
    the largest decides how well a slice of time is used.
    """
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(together_key(run), []).append(run)
    groups = []
    for same in found.values():
        n = math.ceil(len(same) / together)
        starts = [round(i * len(same) / n) for i in range(n + 1)]
        groups += [Group(tuple(same[a:b])) for a, b in itertools.pairwise(starts)]
    return groups


# -- running them -------------------------------------------------------------------


@dataclass
class Work:
    """A part of a grid that is being worked on.

    Parameters
    ----------
    out : Path
        The folder of the grid.
    runs : sequence of Run
    engine : Engine
    together : int
        Runs that train together.
    minutes : float, optional
        When to end the stages; no job starts after that.
    retry_failed : bool
    progress : callable
        As everywhere: `progress(phase, done, total, numbers)`.
    say : callable
        Called with a line of text about each finished job.
    """

    out: Path
    runs: Sequence[Run]
    engine: Engine
    together: int = 1
    minutes: float | None = None
    retry_failed: bool = False
    progress: Callable[..., None] = lambda *_: None
    say: Callable[[str], None] = lambda _: None
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.deadline = (
            math.inf if self.minutes is None else time.time() + 60 * self.minutes
        )

    def do(self, stage: str) -> None:
        """Do a stage."""
        {"fill": self.fill, "train": self.train, "score": self.score}[stage]()

    def fill(self) -> None:
        """Make the fills that pending runs need."""
        jobs = fill_jobs(self.out, self.runs, self.retry_failed)
        counter = _Counter(self, "fill", len(jobs))

        def done(job: FillJob, reason: str) -> None:
            if reason == LATER:
                self.counts["postponed"] += 1
                return
            self.counts["unfilled" if reason else "filled"] += 1
            counter.tell(job, 1, f"failed ({reason})" if reason else "done")

        failures = self._run(_fill, jobs, done)
        for failure in failures:
            self.counts["unfilled"] += 1
            counter.tell(failure.job, 1, f"failed ({failure.reason})")

    def train(self) -> None:
        """Train the pending runs without rows."""
        left = untrained(self.out, self.runs, self.retry_failed)
        counter = _Counter(self, "train", len(left))
        groups = train_groups(left, self.together)
        while groups:
            failures = self._run(_train, groups, partial(self._trained, counter))
            # a group that killed its worker, for example by its memory: one by one
            groups = [
                Group((run,))
                for failure in failures
                if len(failure.job.runs) > 1
                for run in failure.job.runs
            ]
            for failure in failures:
                if len(failure.job.runs) == 1:
                    result = failed_result(failure.job.runs[0], failure.reason)
                    self._trained(counter, failure.job, [result])

    def _trained(
        self, counter: _Counter, group: Group, results: list[RunResult] | str
    ) -> None:
        if isinstance(results, str):
            self.counts["postponed"] += len(group.runs)
            return
        for run, result in zip(group.runs, results, strict=True):
            if result["status"] == "trained":
                self._check_shared(run)
            else:
                write(self.out, result)
            self.counts[result["status"]] += 1
            reason = f" ({result['reason']})" if result.get("reason") else ""
            counter.tell(run, 1, result["status"] + reason)

    def _check_shared(self, run: Run) -> None:
        if not sample_file(self.out, run).exists():
            raise UsageError(
                f"the rows of {run} are not in {self.out}; with --scheduler, --out "
                "must be a folder that all workers share"
            )

    def score(self) -> None:
        """Score the runs that have rows and no scores."""
        runs = unscored(self.out, self.runs)
        counter = _Counter(self, "score", len(runs))

        def done(run: Run, result: RunResult | str) -> None:
            if isinstance(result, str):
                self.counts["postponed"] += 1
                return
            write(self.out, result)
            if not run.keep or result["status"] != "done":
                sample_file(self.out, run).unlink(missing_ok=True)
            self.counts["trained"] -= 1
            self.counts[result["status"]] += 1
            reason = f" ({result['reason']})" if result.get("reason") else ""
            counter.tell(run, 1, result["status"] + reason)

        for failure in self._run(_score, runs, done):
            done(failure.job, failed_result(failure.job, failure.reason))

    def _run(self, call: Any, jobs: Sequence[Any], done: Any) -> list[Any]:
        """Run jobs; return those that killed their workers.

        A job that raised is a problem of the grid, such as a table that changed.
        """
        call = partial(call, out=self.out, deadline=self.deadline)
        try:
            self.engine(call, jobs, done)
        except JobsFailed as error:
            killed = [failure for failure in error.failures if not failure.trace]
            if len(killed) < len(error.failures):
                for failure in killed:
                    if isinstance(failure.job, Run):
                        done(failure.job, failed_result(failure.job, failure.reason))
                raise
            return killed
        return []


class _Counter:
    """Counts finished runs of a stage, and says how long the rest will take."""

    def __init__(self, work: Work, stage: str, total: int) -> None:
        self.work, self.stage, self.total = work, stage, total
        self.done, self.start = 0, time.monotonic()

    def tell(self, what: object, n: int, outcome: str) -> None:
        self.done += n
        seconds = time.monotonic() - self.start
        left = seconds / self.done * (self.total - self.done)
        self.work.progress(self.stage, self.done, self.total, {})
        rest = f", {in_words(left)} left" if self.done < self.total else ""
        self.work.say(f"{self.stage} {self.done}/{self.total}{rest}: {what}: {outcome}")


def in_words(seconds: float) -> str:
    """Return a duration in words.

    Examples
    --------
    >>> in_words(20), in_words(600), in_words(90_000)
    ('20 s', '10 min', '25 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def trained_or_over(out: Path, runs: Sequence[Run]) -> list[str]:
    """Return the names of the runs that have rows here, or that are over."""
    over = {run.name for run in runs} - {run.name for run in pending(out, runs)}
    return [
        run.name for run in runs if run.name in over or sample_file(out, run).exists()
    ]


def state_of(out: Path, run: Run) -> str:
    """Return what a run is: its status, `trained` or `pending`."""
    result = read(out, run.name)
    if result is not None and result["status"] in ("done", "failed"):
        return str(result["status"])
    if sample_file(out, run).exists():
        return "trained"
    return str(result["status"]) if result is not None else "pending"
