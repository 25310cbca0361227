"""Run calls in worker processes of this machine, or on a Dask cluster.

`run_each` fits columns: one process per column with one LightGBM thread each.
LightGBM's own threads win slightly on an idle machine and collapse on a shared one,
where every split waits for the slowest thread. On macOS LightGBM and torch crash in one
process, so there fits always run in worker processes.

`run_parts` works on the parts of a table, on this machine (joblib) or on the workers
of a Dask scheduler. Parts are files on a disk that all workers see, so only small
results travel, and a part whose worker died is simply run again.

Both are generators that share one pool of processes: a caller that may leave the loop
early closes them (`contextlib.closing`). A forgotten one would end the calls of whoever
uses the pool when it is garbage-collected.
"""

from __future__ import annotations

import logging
import sys
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import joblib

from augmask.errors import AugMaskError, AugMaskWarning, UsageError

Result = TypeVar("Result")

# Seconds that a scheduler has to answer.
CONNECT_TIMEOUT = 10.0

# Starting workers and importing LightGBM takes about three seconds; a table of this
# many cells is fitted in less.
TINY_CELLS = 20_000

# Arrays larger than this are shared with the workers as one memory-mapped file.
MAP_BYTES = "64K"


def _numbered_result(
    i: int, function: Callable[..., Result], arguments: tuple[Any, ...]
) -> tuple[int, Result]:
    return i, function(*arguments)


def run_each(
    function: Callable[..., Result],
    calls: Sequence[tuple[Any, ...]],
    *,
    cells: int,
    n_jobs: int | None = None,
) -> Generator[tuple[int, Result]]:
    """Yield `(i, function(*calls[i]))` for every call, as each one finishes.

    Parameters
    ----------
    function : callable
        A module-level function.
    calls : sequence of tuples
        Arguments, longest call first: a long call at the end leaves other workers idle.
    cells : int
        Size of the table; below `TINY_CELLS` no worker is started.
    n_jobs : int, optional
        Worker processes, reused between calls; all usable cores by default.

    Examples
    --------
    >>> sorted(run_each(divmod, [(7, 2), (9, 4)], cells=2, n_jobs=1))
    [(0, (3, 1)), (1, (2, 1))]
    """
    if not calls:
        return
    jobs = joblib.cpu_count() if n_jobs is None else n_jobs
    crashes_here = sys.platform == "darwin"
    if not crashes_here and (cells < TINY_CELLS or jobs == 1 or len(calls) == 1):
        for i, arguments in enumerate(calls):
            yield i, function(*arguments)
        return
    parallel = joblib.Parallel(
        # joblib runs a single job in the calling process, which would crash here.
        n_jobs=max(jobs, 2) if crashes_here else jobs,
        prefer="processes",
        return_as="generator_unordered",
        batch_size=1,
        max_nbytes=MAP_BYTES,
    )
    yield from parallel(
        joblib.delayed(_numbered_result)(i, function, arguments)
        for i, arguments in enumerate(calls)
    )


# -- a Dask cluster ----------------------------------------------------------------


class ClusterLost(AugMaskError):
    """The scheduler or too many workers disappeared while jobs were running."""

    exit_code = 4


def _import_distributed() -> Any:
    """Return `distributed`, or say how to install it."""
    try:
        import distributed
    except ImportError as error:
        raise UsageError(
            "a scheduler needs Dask; pip install 'augmask[cluster]'"
        ) from error
    return distributed


@contextmanager
def connected(scheduler: str) -> Iterator[Any]:
    """Give a client of the scheduler, or say in one sentence why there is none."""
    distributed = _import_distributed()
    from distributed.utils import silence_logging_cmgr

    with silence_logging_cmgr(logging.CRITICAL + 1):
        try:
            # a client that was half made of a wrong address would be in the way later
            distributed.comm.get_address_host_port(scheduler)
            client = distributed.Client(
                scheduler, timeout=CONNECT_TIMEOUT, set_as_default=False, name="augmask"
            )
        except ValueError as error:
            raise UsageError(
                "scheduler must be an address as `dask scheduler` prints it, such as "
                f"tcp://10.0.0.5:8786, got {scheduler!r}: {error}"
            ) from error
        except (OSError, AssertionError) as error:
            # Dask asserts that a port is valid
            raise UsageError(
                f"no Dask scheduler answered at {scheduler} within "
                f"{CONNECT_TIMEOUT:g} seconds; start one with `dask scheduler` and "
                "pass the address that it prints"
            ) from error
        with client:
            yield client


def check_workers(client: Any, resources: Mapping[str, float]) -> None:
    """Refuse resources that no worker has: Dask would wait for them silently."""
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


# -- the parts of a table ------------------------------------------------------------


def run_parts(
    function: Callable[..., Result],
    parts: Sequence[Any],
    *,
    shared: Any = None,
    scheduler: str | None = None,
    n_jobs: int | None = None,
) -> Generator[tuple[int, Result]]:
    """Yield `(i, function(parts[i], shared))` for every part, as each one finishes.

    Parameters
    ----------
    function : callable
        A module-level function. It may run twice for a part whose worker died, so a
        file that it writes must appear as a whole.
    parts : sequence
    shared : object
        What all parts need, sent to every process.
    scheduler : str, optional
        Address of a Dask scheduler; its workers must see the same files under the same
        paths. Without one, the parts run in processes of this machine.
    n_jobs : int, optional
        Processes of this machine; as many as there are cores by default.

    Examples
    --------
    >>> sorted(run_parts(pow, [2, 3], shared=2, n_jobs=1))
    [(0, 4), (1, 9)]
    """
    if not parts:
        return
    if scheduler is not None:
        yield from _run_on_cluster(function, parts, shared, scheduler)
        return
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    calls = [(part, shared) for part in parts]
    try:
        yield from run_each(function, calls, cells=TINY_CELLS, n_jobs=n_jobs)
    except TerminatedWorkerError as error:
        raise ClusterLost(
            "a process that worked on a part of the table died, perhaps for lack of "
            "memory; start again with fewer processes: finished parts are kept"
        ) from error


def _run_on_cluster(
    function: Callable[..., Result], parts: Sequence[Any], shared: Any, scheduler: str
) -> Iterator[tuple[int, Result]]:
    with connected(scheduler) as client, warnings.catch_warnings():
        # What is shared is part of the graph on purpose: data that is sent once, as
        # this warning advises, is lost with the worker that holds it.
        warnings.filterwarnings("ignore", message="Sending large graph")
        check_workers(client, {})
        distributed = _import_distributed()
        name = f"augmask-{function.__name__.strip('_')}-{uuid.uuid4().hex[:8]}"
        keys = [f"{name}-{i}" for i in range(len(parts))]
        index = {key: i for i, key in enumerate(keys)}
        options = {"key": keys, "pure": False}
        futures = client.map(function, list(parts), [shared] * len(parts), **options)
        try:
            done = distributed.as_completed(futures, loop=client.loop)
            for future in done:
                yield index[future.key], future.result()
                # workers hold a result until its future is released
                future.release()
        except distributed.KilledWorker as error:
            raise ClusterLost(
                f"{error.allowed_failures + 1} workers died on the same part of the "
                "table; give them more memory, and start again: finished parts are "
                "kept"
            ) from error
        except distributed.CancelledError as error:
            raise ClusterLost(
                f"lost the scheduler at {scheduler}; start it, and start again: "
                "finished parts are kept"
            ) from error
        finally:
            client.cancel(futures)
