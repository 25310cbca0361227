"""Jobs for the engines' tests; imported by name, here and in the workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path


class Strange(Exception):
    """An exception that can be pickled, but not unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} is not {two}")


def begin(folder: Path, job: object) -> int:
    """Leave a mark for this attempt; return how many there are."""
    (folder / f"{job}.{time.monotonic_ns()}.{os.getpid()}").touch()
    return len(list(folder.glob(f"{job}.*")))


def pid_of(folder: Path, job: object) -> int:
    """Wait until the job has begun; return the process of its newest attempt."""
    for _ in range(600):
        if marks := sorted(folder.glob(f"{job}.*"), key=lambda p: p.stat().st_mtime_ns):
            return int(marks[-1].suffix[1:])
        time.sleep(0.05)
    raise TimeoutError(f"job {job} has not begun")


def attempts(folder: Path, job: object) -> int:
    return len(list(folder.glob(f"{job}.*")))


def square(job: int) -> int:
    return job * job


def mixed(folder: Path, job: str) -> str:
    """Work, raise or die, as the name of the job says."""
    count = begin(folder, job)
    if job.startswith("raises"):
        raise Strange(1, 2)
    if job.startswith("unpicklable"):
        return lambda: None  # type: ignore[return-value]
    if job.startswith("dies-once") and count == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if job.startswith("dies-always"):
        os.kill(os.getpid(), signal.SIGKILL)
    if job.startswith("exits"):
        os._exit(3)
    time.sleep(0.1)
    return job.upper()


def slow_once(folder: Path, job: int) -> int:
    """Take an hour at the first attempt of job 0, and no time otherwise."""
    count = begin(folder, job)
    if job == 0 and count == 1:
        time.sleep(3600)
    time.sleep(0.1)
    return job


def hang_with_child(folder: Path, job: int) -> None:
    """Start a process, then wait for ever."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    (folder / f"child.{child.pid}").touch()
    begin(folder, job)
    time.sleep(3600)


def threads(job: int) -> tuple[int, int, int]:
    """Return the threads that torch, OpenMP and joblib would take."""
    import joblib
    import torch

    return (
        torch.get_num_threads(),
        int(os.environ["OMP_NUM_THREADS"]),
        joblib.cpu_count(),
    )


def run_for_ever(folder: str) -> None:
    """Run two endless jobs; what a test starts in order to interrupt it."""
    from augmask_bench.engine import run_locally

    call = partial(hang_with_child, Path(folder))
    run_locally(call, [0, 1], at_once=2, done=print)


if __name__ == "__main__":
    run_for_ever(sys.argv[1])
