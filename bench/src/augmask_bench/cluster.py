"""Run many jobs with Dask, on this machine or on a cluster.

Locally, `run_locally` starts a `LocalCluster` with one process per worker, so that a
run that exhausts the memory takes no other run with it. `run_on_cluster` uses a
scheduler that you started: `dask scheduler` on one machine, `dask worker tcp://...` on
the others (`--resources "GPU=1"` if one job at a time may use a GPU). Its workers need
augmask and its dependencies in the client's versions. By default such a worker may not
start processes and uses one thread for arithmetic; Dask's settings
`distributed.worker.daemon` and `distributed.nanny.pre-spawn-environ` change that.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
import distributed
import joblib
from dask.tokenize import tokenize
from distributed.utils import silence_logging_cmgr

from augmask.engine import ClusterLost, check_workers, connected
from augmask.errors import UsageError
from augmask_bench.jobs import RETRIES, Failure, Job, JobsFailed, Result

# Read by torch, LightGBM, XGBoost, numpy and joblib when they are first imported.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
)
LOCAL_CONFIG = {
    # augmenters fit columns in processes of their own
    "distributed.worker.daemon": False,
    # one job per worker, and no blame for jobs that had not started
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.work-stealing": False,
    # a job that loses its worker is repeated by `run_jobs`, after all others
    "distributed.scheduler.allowed-failures": 0,
    # native code may hold the interpreter lock for longer than any heartbeat
    "distributed.scheduler.worker-ttl": None,
}


# -- jobs on any cluster --------------------------------------------------------


def _submit(
    client: Any,
    call: Callable[[Job], Result],
    jobs: Sequence[Job],
    options: Mapping[str, Any],
    done: Callable[[Job, Result], None],
) -> tuple[list[Failure[Job]], list[Failure[Job]]]:
    """Run each job; return those that raised and those that lost their workers."""
    raised: list[Failure[Job]] = []
    lost: list[Failure[Job]] = []
    # Keys are hashes of the content: if an earlier client was killed and its job still
    # runs, this client gets that job's result and the cluster does not run it twice.
    equal_jobs: dict[str, list[Job]] = {}
    for job in jobs:
        equal_jobs.setdefault(f"augmask-{tokenize(call, job)}", []).append(job)
    futures = client.map(
        call, [same[0] for same in equal_jobs.values()], key=list(equal_jobs), **options
    )
    for future in distributed.as_completed(futures, loop=client.loop):  # type: ignore[no-untyped-call]
        same = equal_jobs[future.key]
        try:
            result = future.result()
        except distributed.CancelledError as error:
            raise ClusterLost(
                f"lost the scheduler at {client.scheduler.address} while jobs were "
                "running; start it and run again: delivered results are kept"
            ) from error
        except distributed.KilledWorker as error:
            deaths = error.allowed_failures + 1
            reason = (
                "its worker process died"
                if deaths == 1
                else f"{deaths} workers died while running it"
            )
            lost += [Failure(job, reason) for job in same]
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            trace = "".join(traceback.format_exception(error))
            raised += [Failure(job, reason, trace) for job in same]
        else:
            for job in same:
                done(job, result)
        # workers hold a result until its future is released
        future.release()
    return raised, lost


def run_jobs(
    client: Any,
    call: Callable[[Job], Result],
    jobs: Sequence[Job],
    options: Mapping[str, Any],
    done: Callable[[Job, Result], None],
) -> None:
    """Run all jobs; repeat those that lost their workers once, alone, at the end."""
    failures, lost = _submit(client, call, jobs, options, done)
    for first in lost:
        raised, again = _submit(client, call, [first.job], options, done)
        failures += raised
        failures += [
            Failure(last.job, f"{last.reason}, also when it ran alone")
            for last in again
        ]
    if failures:
        raise JobsFailed(failures, len(jobs))


# -- this machine ---------------------------------------------------------------


class _ProcessGroup(distributed.WorkerPlugin):
    """Make a worker the leader of a process group, and note the group in a folder.

    Ctrl-C in a terminal then reaches the client only, and the client can end what the
    jobs of a worker started, even if the worker itself is dead.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def setup(self, worker: Any) -> None:
        del worker
        if hasattr(os, "setpgid"):
            os.setpgid(0, 0)
            (self.folder / str(os.getpid())).touch()


@contextmanager
def _thread_limit(threads: int) -> Iterator[None]:
    """Limit the threads of processes started meanwhile, and restore the environment."""
    before = dict(os.environ)
    for name in THREAD_VARIABLES:
        value = before.get(name, "")
        if not (value.isdecimal() and int(value) < threads):
            os.environ[name] = str(threads)
    try:
        yield
    finally:
        # Dask too leaves variables behind
        os.environ.clear()
        os.environ.update(before)


def _stop(cluster: Any, groups: Path) -> None:
    """End the workers and whatever their jobs started, without waiting for jobs."""
    for nanny in cluster.workers.values():
        # or it would start another worker in place of the killed one
        nanny.close_gracefully()
    for group in groups.iterdir():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(int(group.name), signal.SIGKILL)
    cluster.close()


@contextmanager
def local_client(n_jobs: int) -> Iterator[Any]:
    """Give the client of a cluster of `n_jobs` processes on this machine."""
    threads = max(1, joblib.cpu_count() // n_jobs)
    with (
        silence_logging_cmgr(logging.CRITICAL + 1),
        tempfile.TemporaryDirectory(
            prefix="augmask-bench-", ignore_cleanup_errors=True
        ) as scratch,
        _thread_limit(threads),
        dask.config.set(LOCAL_CONFIG),
    ):
        groups = Path(scratch, "groups")
        groups.mkdir()
        cluster = distributed.LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=n_jobs,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            # without a dashboard there is still an HTTP server, on a port that another
            # grid may have
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            memory_limit=0,
            local_directory=scratch,
            silence_logs=logging.CRITICAL + 1,
            plugins=(_ProcessGroup(groups),),
        )
        try:
            with distributed.Client(cluster, set_as_default=False) as client:  # type: ignore[no-untyped-call]
                yield client
        finally:
            _stop(cluster, groups)


def run_locally(
    call: Callable[[Job], Result],
    jobs: Sequence[Job],
    *,
    n_jobs: int,
    done: Callable[[Job, Result], None],
) -> None:
    """Call `call(job)` for every job in processes of this machine.

    A job that loses its process (killed, out of memory, a crash in native code) is
    repeated once after all others, alone and in a new process; if the process dies
    again, the job has failed. A job whose call raises has failed at once.

    Parameters
    ----------
    call : callable
        A function of an importable module, or a `functools.partial` of one.
    jobs : sequence
        Picklable; `str(job)` names a job in messages.
    n_jobs : int
        Number of worker processes. Each may use its share of the cores,
        `max(1, cores // n_jobs)` threads. The share does not depend on the number of
        jobs, so an interrupted grid resumes with the same arithmetic.
    done : callable
        `done(job, result)` runs in this process, once for each job with a result, as
        soon as the result arrives.

    Raises
    ------
    JobsFailed
        After the results of all other jobs were delivered.

    Examples
    --------
    >>> import math
    >>> roots = {}
    >>> run_locally(math.sqrt, [4.0, 9.0], n_jobs=1, done=roots.__setitem__)
    >>> roots[4.0], roots[9.0]
    (2.0, 3.0)
    """
    if n_jobs < 1:
        raise UsageError(f"the number of jobs must be at least 1, got {n_jobs}")
    if not jobs:
        return
    with local_client(n_jobs) as client:
        run_jobs(client, call, jobs, {}, done)


# -- a cluster of the user's ----------------------------------------------------


def run_on_cluster(
    call: Callable[[Job], Result],
    jobs: Sequence[Job],
    *,
    scheduler: str,
    resources: Mapping[str, float] | None = None,
    retries: int = RETRIES,
    done: Callable[[Job, Result], None],
) -> None:
    """Call `call(job)` for every job on the workers of a Dask scheduler.

    Results come back to this process, so workers need not share a file system with
    it. Each worker must be able to read the data files that a job names, under the
    same path or through `AUGMASK_DATA` in its own environment.

    When a worker dies the scheduler gives its jobs to others, up to its setting
    `distributed.scheduler.allowed-failures`, 3. It blames all jobs assigned to the
    worker, even those that had not started; a job that it gives up is therefore
    repeated once after all others, alone, before it counts as failed.

    Parameters
    ----------
    call : callable
        A function of a module that workers can import, or a partial of one. If a
        worker dies with a result that was not fetched yet, the job runs again, so
        running it twice must do no harm; `done` still receives one result.
    jobs : sequence
        Picklable; `str(job)` names a job in messages.
    scheduler : str
        Address as `dask scheduler` prints it, such as `tcp://10.0.0.5:8786`.
    resources : mapping, optional
        Resources of a worker that a running job occupies, such as `{"GPU": 1}`.
    retries : int
        How often a job whose call raises is tried again.
    done : callable
        `done(job, result)` runs in this process, once for each job with a result, as
        soon as the result arrives.

    Raises
    ------
    JobsFailed
        After the results of all other jobs were delivered.
    ClusterLost
        If the scheduler disappears; results delivered before are kept. After this and
        after Ctrl-C, workers finish the jobs that they have started.
    UsageError
        If no scheduler answers, or no worker has the resources.
    """
    options = {"retries": retries, "resources": dict(resources or {})}
    with connected(scheduler) as client:
        check_workers(client, resources or {})
        run_jobs(client, call, jobs, options, done)


@contextmanager
def on_cluster(scheduler: str) -> Iterator[None]:
    """Context manager: run the per-column fits of augmenters on a Dask cluster.

    `with on_cluster("tcp://10.0.0.5:8786"): filled, observed = augment(df)` sends each
    fit of a column, with the table it needs, to a worker; on similar machines the
    augmented values are the same bit for bit. Tables too small to be worth starting
    processes are fitted here, as are fits with `n_jobs=1`.

    A fit whose worker dies is run again on another. If a fit kills several workers the
    scheduler gives it up, but joblib is not told and waits: give workers enough memory
    for the table.
    """
    with (
        connected(scheduler) as client,
        joblib.parallel_config(backend="dask", client=client),
        warnings.catch_warnings(),
    ):
        # The table is part of each fit on purpose: data that is sent once, as this
        # warning advises, is lost with the worker that holds it.
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield
