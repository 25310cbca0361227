"""Jobs: what fails of them, and the engine that runs them.

Dask is imported when an engine starts a cluster, so that a machine without it can run
jobs one after another in one process.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from augmask.errors import AugMaskError, UsageError

Job = TypeVar("Job")
Result = TypeVar("Result")

# How often a job whose call raises is tried again on a cluster.
RETRIES = 2
# Jobs that the message of `JobsFailed` names; its `failures` hold all of them.
MAX_NAMED = 5


@dataclass(frozen=True)
class Failure(Generic[Job]):
    """A job without a result: the reason, and the traceback if the call raised."""

    job: Job
    reason: str
    trace: str = ""


class JobsFailed(AugMaskError):
    """Some jobs have no result; the results of all others were delivered.

    Examples
    --------
    >>> print(JobsFailed([Failure("adult", "ValueError: no rows")], 3))
    1 of 3 jobs failed, the others are done: adult (ValueError: no rows)
    """

    exit_code = 4

    def __init__(self, failures: Sequence[Failure[Any]], total: int) -> None:
        self.failures = tuple(failures)
        named = [f"{failed.job} ({failed.reason})" for failed in failures[:MAX_NAMED]]
        if len(failures) > MAX_NAMED:
            named.append(f"and {len(failures) - MAX_NAMED} more")
        super().__init__(
            f"{len(failures)} of {total} jobs failed, the others are done: "
            + "; ".join(named)
        )
        for failed in failures[:MAX_NAMED]:
            if failed.trace:
                self.add_note(f"{failed.job}:\n{failed.trace}")


class Engine:
    """Runs jobs here or on a cluster, which starts with the first job and stays.

    Use it as a context manager.

    Parameters
    ----------
    n_jobs : int
        Worker processes on this machine; 0 runs jobs in this process, without Dask's
        workers.
    scheduler : str, optional
        Address of your own cluster instead.
    resources : mapping, optional
        Resources of its workers that a job occupies.
    """

    def __init__(
        self,
        n_jobs: int = 1,
        scheduler: str | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        if n_jobs < 0:
            raise UsageError(f"the number of jobs must be at least 0, got {n_jobs}")
        self.n_jobs, self.scheduler = n_jobs, scheduler
        self.resources = dict(resources or {})
        self._stack = ExitStack()
        self._client: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _connect(self) -> Any:
        from augmask.engine import check_workers, connected
        from augmask_bench.cluster import local_client

        if self._client is None:
            if self.scheduler is None:
                opened = local_client(self.n_jobs)
            else:
                opened = connected(self.scheduler)
            self._client = self._stack.enter_context(opened)
            if self.scheduler is not None:
                check_workers(self._client, self.resources)
        return self._client

    def __call__(
        self,
        call: Callable[[Job], Result],
        jobs: Sequence[Job],
        done: Callable[[Job, Result], None],
    ) -> None:
        """Call `call(job)` for every job, as `run_locally` or `run_on_cluster` do."""
        if not jobs:
            return
        if self.scheduler is None and self.n_jobs == 0:
            _run_here(call, jobs, done)
            return
        from augmask_bench.cluster import run_jobs

        options: dict[str, Any] = {}
        if self.scheduler is not None:
            options = {"retries": RETRIES, "resources": self.resources}
        run_jobs(self._connect(), call, jobs, options, done)


def _run_here(
    call: Callable[[Job], Result],
    jobs: Sequence[Job],
    done: Callable[[Job, Result], None],
) -> None:
    """Run all jobs in this process."""
    failures = []
    for job in jobs:
        try:
            result = call(job)
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            failures.append(Failure(job, f"{type(error).__name__}: {error}", trace))
        else:
            done(job, result)
    if failures:
        raise JobsFailed(failures, len(jobs))
