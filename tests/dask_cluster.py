"""A Dask scheduler and workers, each in a process of its own, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATH = os.environ.get("PYTHONPATH")


@contextmanager
def dask(
    folder: Path, *command: str, path: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a Dask command as a user would, and end it with all its processes.

    `path` is where workers find modules besides those that are installed.
    """
    settings = {
        # two deaths of a job are enough for these tests
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
        "PYTHONPATH": os.pathsep.join(map(str, filter(None, [path, PATH]))),
        "OMP_NUM_THREADS": "1",
    }
    with (folder / f"{command[0]}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *command, "--no-dashboard"],
            env=os.environ | settings,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # the whole session at once: a nanny would start a new worker for a dead one
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def scheduler_in(
    folder: Path, path: Path | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a scheduler; give its address and its process."""
    file = folder / "scheduler.json"
    local = ["--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file)]
    with dask(folder, "scheduler", *local, path=path) as process:
        for _ in range(600):
            # the file appears before it is written
            if file.exists() and file.read_text().endswith("}"):
                break
            time.sleep(0.05)
        yield json.loads(file.read_text())["address"], process
