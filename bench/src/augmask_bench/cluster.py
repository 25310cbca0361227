"""Many jobs on a Dask cluster, and the fits of an augmenter there too.

The scheduler and its workers are the user's: `dask scheduler` on one machine, `dask
worker tcp://...` on the others (`--resources "GPU=1"` where one job at a time may use a
GPU). Workers need augmask and its packages in the versions of the client. A worker is
by default a process that may start no others, with one thread for arithmetic; Dask's
settings `distributed.worker.daemon` and `distributed.nanny.pre-spawn-environ` say so.
"""

from __future__ import annotations

import importlib
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from augmask.errors import AugMaskError, AugMaskWarning, UsageError
from augmask_bench.engine import Failure, Job, JobsFailed, Result

# a scheduler must answer within so many seconds
PATIENCE = 10.0
# what Dask's client logs, with tracebacks, when the cluster changes under it
CHATTER = ("distributed.batched", "distributed.client", "distributed.core")


class ClusterLost(AugMaskError):
    """The scheduler went away, or dropped the jobs, while they were under way."""

    exit_code = 4


def _load(module: str) -> Any:
    """Import a part of Dask, which not everyone has."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UsageError(
            "a scheduler needs Dask, which is not installed here; "
            "run: pip install 'augmask[bench]'"
        ) from None


@contextmanager
def _connected(scheduler: str) -> Iterator[Any]:
    """Give a client of the scheduler, or say in one sentence why there is none."""
    distributed = _load("distributed")
    loggers = [logging.getLogger(name) for name in CHATTER]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        try:
            client = distributed.Client(
                scheduler, timeout=PATIENCE, set_as_default=False, name="augmask"
            )
        except ValueError as error:
            raise UsageError(
                "scheduler must be an address as `dask scheduler` prints it, such as "
                f"tcp://10.0.0.5:8786, got {scheduler!r}: {error}"
            ) from error
        except (OSError, AssertionError) as error:
            # the assertion is Dask's, about ports that cannot be
            raise UsageError(
                f"no Dask scheduler answered at {scheduler} within {PATIENCE:g} "
                "seconds; start one with `dask scheduler` and give the address that "
                "it prints"
            ) from error
        with client:
            yield client
    finally:
        for logger, value in zip(loggers, before, strict=True):
            logger.disabled = value


def _check_workers(client: Any, resources: Mapping[str, float]) -> None:
    """Refuse resources that no worker has: Dask would wait for them without a word."""
    address = client.scheduler.address
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    wanted = " ".join(f"{name}={amount:g}" for name, amount in resources.items())
    if not workers:
        warnings.warn(
            f"the scheduler at {address} has no workers yet; jobs start when one "
            f"joins: dask worker {address}"
            + (f' --resources "{wanted}"' if wanted else ""),
            AugMaskWarning,
            stacklevel=3,
        )
    elif not any(
        all(has["resources"].get(name, 0) >= n for name, n in resources.items())
        for has in workers
    ):
        raise UsageError(
            f"no worker at {address} offers {wanted}; start workers with: "
            f'dask worker {address} --resources "{wanted}"'
        )


def _once(
    client: Any,
    call: Callable[[Job], Result],
    jobs: Sequence[Job],
    options: Mapping[str, Any],
    done: Callable[[Job, Result], None],
) -> tuple[list[Failure[Job]], list[Failure[Job]]]:
    """Run each job; return those that raised and those that lost their workers."""
    tokenize = _load("dask.tokenize").tokenize
    distributed = _load("distributed")
    raised: list[Failure[Job]] = []
    lost: list[Failure[Job]] = []
    # Named by content: if an earlier client was killed and its job still runs, this
    # client gets that job's result and the cluster does not run it twice.
    named: dict[str, list[Job]] = {}
    for job in jobs:
        named.setdefault(f"augmask-{tokenize(call, job)}", []).append(job)
    futures = client.map(
        call, [same[0] for same in named.values()], key=list(named), **options
    )
    for future in distributed.as_completed(futures, loop=client.loop):
        same = named[future.key]
        try:
            result = future.result()
        except distributed.CancelledError as error:
            raise ClusterLost(
                f"the scheduler at {client.scheduler.address} went away in the middle "
                "of the jobs; start it again, then run again: what was delivered is "
                "kept"
            ) from error
        except distributed.KilledWorker as error:
            reason = f"{error.allowed_failures + 1} workers died while running it"
            lost += [Failure(job, reason) for job in same]
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            trace = "".join(traceback.format_exception(error))
            raised += [Failure(job, reason, trace) for job in same]
        else:
            for job in same:
                done(job, result)
        # a result is kept on its worker for as long as somebody asks for it
        future.release()
    return raised, lost


def run_on_cluster(
    call: Callable[[Job], Result],
    jobs: Sequence[Job],
    *,
    scheduler: str,
    resources: Mapping[str, float] | None = None,
    retries: int = 2,
    done: Callable[[Job, Result], None],
) -> None:
    """Call `call(job)` for every job on the workers of a Dask scheduler.

    Results come back to this process, so workers need no file system in common with
    it. What a job names, such as a data file, each worker must be able to reach
    itself, under the same path or through `AUGMASK_DATA` in its own environment.

    When a worker dies the scheduler gives its jobs to others, up to its setting
    `distributed.scheduler.allowed-failures`, 3. It blames all jobs that the worker
    held, also those that had not begun; so a job that is given up there runs once
    more after all others, alone, and only then has it failed.

    Parameters
    ----------
    call : callable
        A function of a module that workers can import, or a partial of one. If a
        worker dies with a result that was not yet fetched, the job is run again, so
        the call must bear that; `done` still sees one result.
    jobs : sequence
        What can be pickled; `str(job)` names a job in messages.
    scheduler : str
        Address as `dask scheduler` prints it, such as `tcp://10.0.0.5:8786`.
    resources : mapping, optional
        What a job takes of a worker while it runs, such as `{"GPU": 1}`.
    retries : int
        How often a job whose call raises is tried again.
    done : callable
        `done(job, result)` runs in this process, once for each job that has a result,
        as it comes.

    Raises
    ------
    JobsFailed
        After all other jobs were delivered.
    ClusterLost
        If the scheduler goes away; what was delivered is delivered. Ctrl-C too leaves
        only the jobs running that workers had begun.
    UsageError
        If no scheduler answers, or no worker has the resources.
    """
    options = {"retries": retries, "resources": dict(resources or {})}
    with _connected(scheduler) as client:
        _check_workers(client, resources or {})
        failures, lost = _once(client, call, jobs, options, done)
        for first in lost:
            raised, again = _once(client, call, [first.job], options, done)
            failures += raised
            failures += [Failure(x.job, f"{x.reason}, also alone") for x in again]
    if failures:
        raise JobsFailed(failures, len(jobs))


@contextmanager
def on_cluster(scheduler: str) -> Iterator[None]:
    """Let the per-column fits of augmenters run on a Dask cluster meanwhile.

    `with on_cluster("tcp://10.0.0.5:8786"): filled, observed = augment(df)` sends each
    fit of a column, with the table it needs, to a worker; draws are the same bit for
    bit on like machines. Tables that are fitted in less time than it takes to start
    processes stay here, as do fits with `n_jobs=1`.

    A fit whose worker dies is run again on another. joblib, which carries the fits,
    does not hear of one that is given up because it killed several workers, and
    waits: give workers memory for a table of the size at hand.
    """
    import joblib

    with (
        _connected(scheduler) as client,
        joblib.parallel_config(backend="dask", client=client),
        warnings.catch_warnings(),
    ):
        # The table travels inside each fit on purpose: data that is sent once, as this
        # warning advises, is lost with the worker that holds it.
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield
