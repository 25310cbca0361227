"""Many jobs on this machine: a few processes, any of which may die.

A grid runs for hours, and one run that eats all memory must not take the others with
it. The pools of the standard library and of joblib give up as a whole when one of
their processes is killed, so this file keeps its own few, each on a pipe of its own.

Processes are spawned, never forked: a fork copies the locks of torch's threads without
the threads that would open them. Each is the first of a process group, so that what it
started goes with it, and each ends by itself when the parent is gone.

The engine knows nothing of grids: a job is anything that can be pickled.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from typing import Any, Generic, TypeVar

from augmask.errors import AugMaskError, UsageError

Job = TypeVar("Job")
Result = TypeVar("Result")

# what torch, LightGBM, XGBoost, numpy and joblib read when they are first loaded
THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
)
# a process that was asked to end gets so many seconds before it is made to
GRACE = 5.0
# the message of an error names so many jobs; its `failures` hold all
NAMED = 5


@dataclass(frozen=True)
class Failure(Generic[Job]):
    """A job without a result: what happened, in words, and where it was raised."""

    job: Job
    reason: str
    trace: str = ""


class JobsFailed(AugMaskError):
    """Some jobs have no result; all others were delivered before this was raised.

    Examples
    --------
    >>> print(JobsFailed([Failure("adult", "ValueError: no rows")], 3))
    1 of 3 jobs failed, the others are done: adult (ValueError: no rows)
    """

    exit_code = 4

    def __init__(self, failures: Sequence[Failure[Any]], total: int) -> None:
        self.failures = tuple(failures)
        named = [f"{failed.job} ({failed.reason})" for failed in failures[:NAMED]]
        if len(failures) > NAMED:
            named.append(f"and {len(failures) - NAMED} more")
        super().__init__(
            f"{len(failures)} of {total} jobs failed, the others are done: "
            + "; ".join(named)
        )
        for failed in failures[:NAMED]:
            if failed.trace:
                self.add_note(f"{failed.job}:\n{failed.trace}")


# -- in the child ---------------------------------------------------------------


def _follow_parent() -> None:
    """Wait for the end of the parent, then end this process and what it started."""
    parent = parent_process()
    if parent is not None:
        parent.join()
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGTERM)
    os._exit(1)


def _work(pipe: connection.Connection) -> None:
    """Do the jobs that come through the pipe, one by one, until it is closed."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    threading.Thread(target=_follow_parent, daemon=True).start()
    while True:
        try:
            call, job = pipe.recv()
            pipe.send((True, call(job), ""))
        except EOFError:
            return
        except Exception as error:
            # as text: an exception may hold what cannot be pickled
            reason = f"{type(error).__name__}: {error}"
            pipe.send((False, reason, traceback.format_exc()))


# -- in the parent --------------------------------------------------------------


@contextmanager
def _limited_to(threads: int) -> Iterator[None]:
    """Let processes that are started meanwhile use so many threads, or fewer."""
    before = {name: os.environ.get(name) for name in THREADS}
    for name, value in before.items():
        fewer = value is not None and value.isdecimal() and int(value) < threads
        if not fewer:
            os.environ[name] = str(threads)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Worker(Generic[Job]):
    """A process, the pipe to it and the job that it has."""

    job: Job

    def __init__(self, threads: int) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,))
        with _limited_to(threads):
            self.process.start()
        # the only open copy of that end is now the child's: if it dies, reading fails
        theirs.close()

    def take(self, call: Callable[[Job], Any], job: Job) -> None:
        self.job = job
        # a process that is dead already shows when its answer is read
        with suppress(OSError):
            self.pipe.send((call, job))

    def end(self, patience: float) -> str:
        """End the process and what it started, and say how it ended."""
        self.pipe.close()
        self.process.join(patience)
        group = self.process.pid
        if group is not None and hasattr(os, "killpg"):
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGTERM)
        self.process.terminate()
        self.process.join(GRACE)
        self.process.kill()
        self.process.join()
        code = self.process.exitcode or 0
        if code >= 0:
            return f"its process ended with exit code {code}"
        hint = ", as when memory runs out" if code == -9 else ""
        return f"its process was killed by signal {-code}{hint}"


def _once(
    call: Callable[[Job], Result],
    jobs: Sequence[Job],
    at_once: int,
    threads: int,
    done: Callable[[Job, Result], None],
) -> tuple[list[Failure[Job]], list[Failure[Job]]]:
    """Run each job once; return those that raised and those that lost their process."""
    raised: list[Failure[Job]] = []
    lost: list[Failure[Job]] = []
    waiting = deque(jobs)
    busy: list[_Worker[Job]] = []
    try:
        while waiting or busy:
            while waiting and len(busy) < at_once:
                busy.append(_Worker(threads))
                busy[-1].take(call, waiting.popleft())
            ready = connection.wait([worker.pipe for worker in busy])
            for worker in [worker for worker in busy if worker.pipe in ready]:
                try:
                    fine, answer, trace = worker.pipe.recv()
                except (EOFError, OSError):
                    busy.remove(worker)
                    lost.append(Failure(worker.job, worker.end(GRACE)))
                    continue
                if fine:
                    done(worker.job, answer)
                else:
                    raised.append(Failure(worker.job, answer, trace))
                if waiting:
                    worker.take(call, waiting.popleft())
                else:
                    busy.remove(worker)
                    worker.end(GRACE)
    finally:
        # only an error or Ctrl-C leaves work behind, and nobody waits for that work
        for worker in busy:
            worker.end(patience=0.0)
    return raised, lost


def run_locally(
    call: Callable[[Job], Result],
    jobs: Sequence[Job],
    *,
    at_once: int,
    done: Callable[[Job, Result], None],
) -> None:
    """Call `call(job)` for every job in processes of this machine.

    A job that loses its process (killed, out of memory, a crash below Python) is run
    again after all others, alone and in a fresh process: what it lacked beside its
    neighbours it may have then. If it dies again it has failed. A job whose call
    raises has failed at once.

    Parameters
    ----------
    call : callable
        A function of a module, or a `functools.partial` of one.
    jobs : sequence
        What can be pickled; `str(job)` names a job in messages.
    at_once : int
        Processes; each is used for many jobs and may use its share of the cores,
        `max(1, cores // at_once)` threads. The share does not depend on how many jobs
        are left, so an interrupted grid goes on with the same arithmetic.
    done : callable
        `done(job, result)` runs in this process, once for each job that has a result,
        as it comes.

    Raises
    ------
    JobsFailed
        After all other jobs were delivered.

    Examples
    --------
    >>> import math
    >>> roots = {}
    >>> run_locally(math.sqrt, [4.0, 9.0], at_once=1, done=roots.__setitem__)
    >>> roots
    {4.0: 2.0, 9.0: 3.0}
    """
    if at_once < 1:
        raise UsageError(f"at least 1 job must run at once, got {at_once}")
    import joblib

    threads = max(1, joblib.cpu_count() // at_once)
    failures, lost = _once(call, jobs, at_once, threads, done)
    for first in lost:
        raised, again = _once(call, [first.job], 1, threads, done)
        failures += raised
        failures += [Failure(first.job, f"{last.reason}, twice") for last in again]
    if failures:
        raise JobsFailed(failures, len(jobs))
