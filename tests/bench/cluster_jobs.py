"""Jobs for the tests of clusters; tests and workers import them by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path


class Strange(Exception):
    """An exception that can be pickled, but not unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} is not {two}")


def start(folder: Path, job: object) -> int:
    """Record an attempt as a file; return the number of attempts so far."""
    (folder / f"{job}.{time.monotonic_ns()}.{os.getpid()}").touch()
    return len(list(folder.glob(f"{job}.*")))


def pid_of(folder: Path, job: object) -> int:
    """Wait until the job has started; return the process of its newest attempt."""
    for _ in range(600):
        if marks := sorted(folder.glob(f"{job}.*"), key=lambda p: p.stat().st_mtime_ns):
            return int(marks[-1].suffix[1:])
        time.sleep(0.05)
    raise TimeoutError(f"job {job} has not started")


def attempts(folder: Path, job: object) -> int:
    return len(list(folder.glob(f"{job}.*")))


def square(job: int) -> int:
    return job * job


def mixed(folder: Path, job: str) -> str:
    """Work, raise or die, according to the name of the job."""
    count = start(folder, job)
    if job.startswith("raises"):
        raise Strange(1, 2)
    if job.startswith("unpicklable"):
        return threading.Lock()  # type: ignore[return-value]
    if job.startswith("dies-once") and count == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if job.startswith("dies-always"):
        os.kill(os.getpid(), signal.SIGKILL)
    if job.startswith("exits"):
        os._exit(3)
    time.sleep(0.1)
    return job.upper()


def slow_once(folder: Path, job: int) -> int:
    """Hang at the first attempt of job 0; return at once otherwise."""
    count = start(folder, job)
    if job == 0 and count == 1:
        time.sleep(3600)
    time.sleep(0.1)
    return job


def start_child(folder: Path, job: int) -> int:
    """Start a child process and leave it running."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    (folder / f"child.{child.pid}").touch()
    return job


def hang_with_child(folder: Path, job: int) -> None:
    """Start a child process, then hang."""
    start_child(folder, job)
    start(folder, job)
    time.sleep(3600)


def threads(job: int) -> tuple[int, int, int]:
    """Return the number of threads that torch, OpenMP and joblib would use."""
    import joblib
    import torch

    return (
        torch.get_num_threads(),
        int(os.environ["OMP_NUM_THREADS"]),
        joblib.cpu_count(),
    )


def run_two_endless_jobs(folder: str) -> None:
    """Run until interrupted; a test starts this script to send it signals."""
    from augmask.cli.terminal import graceful_shutdown
    from augmask_bench.cluster import run_locally

    call = partial(hang_with_child, Path(folder))
    with graceful_shutdown():
        run_locally(call, [0, 1], n_jobs=2, done=print)


if __name__ == "__main__":
    run_two_endless_jobs(sys.argv[1])
