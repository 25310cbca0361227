"""A grid outlives the death of any of its processes, and leaves none behind."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import joblib
import psutil
import pytest

from augmask.errors import UsageError
from augmask_bench.engine import NAMED, Failure, JobsFailed, run_locally

HERE = Path(__file__).parent


@pytest.fixture
def jobs(monkeypatch):
    """Give the module of jobs under a name that child processes can import too."""
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module("engine_jobs")


def gone(pid: int) -> bool:
    """Wait for a process to end."""
    for _ in range(200):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_jobs_that_die_or_raise_leave_the_others_alone(jobs, tmp_path):
    good = [f"good-{i}" for i in range(6)]
    bad = ["dies-always", "exits", "raises", "unpicklable"]
    asked = ["dies-once", *bad, *good]
    found = []
    with pytest.raises(JobsFailed) as caught:
        run_locally(
            partial(jobs.mixed, tmp_path),
            asked,
            at_once=2,
            done=lambda job, result: found.append((job, result)),
        )
    # each once, the one that died among them
    assert sorted(found) == sorted((job, job.upper()) for job in ["dies-once", *good])
    reasons = {failed.job: failed.reason for failed in caught.value.failures}
    assert sorted(reasons) == bad
    assert "signal 9" in reasons["dies-always"]
    assert "exit code 3" in reasons["exits"]
    assert reasons["raises"] == "Strange: 1 is not 2"
    assert "pickle" in reasons["unpicklable"]
    assert "4 of 11 jobs failed" in str(caught.value)
    assert all(job in str(caught.value) for job in bad)
    # where it was raised shows in a traceback, not in the message
    assert any("raise Strange" in note for note in caught.value.__notes__)
    # a death is given one more chance, an exception none
    made = {job: jobs.attempts(tmp_path, job) for job in asked}
    assert made == dict.fromkeys(asked, 1) | dict.fromkeys(
        ["dies-once", "dies-always", "exits"], 2
    )


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_job_killed_from_outside_is_run_again_after_the_others(
    jobs, tmp_path, at_once
):
    found = []

    def kill():
        os.kill(jobs.pid_of(tmp_path, 0), signal.SIGKILL)

    killer = threading.Timer(0.0, kill)
    killer.start()
    run_locally(
        partial(jobs.slow_once, tmp_path),
        range(5),
        at_once=at_once,
        done=lambda *pair: found.append(pair[0]),
    )
    killer.join()
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert found[-1] == 0


def test_cores_are_shared_out_and_the_environment_is_given_back(jobs, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    found = {}
    run_locally(jobs.threads, [0, 1], at_once=2, done=found.__setitem__)
    share = max(1, joblib.cpu_count() // 2)
    assert found == {0: (share, share, share), 1: (share, share, share)}
    assert dict(os.environ) == before


def test_what_done_raises_ends_the_work(jobs, tmp_path):
    def full(job, result):
        raise OSError("no space left")

    began = time.monotonic()
    with pytest.raises(OSError, match="no space left"):
        run_locally(partial(jobs.slow_once, tmp_path), [0, 1, 2], at_once=2, done=full)
    assert time.monotonic() - began < 20
    assert gone(jobs.pid_of(tmp_path, 0))


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_nothing_outlives_the_parent(jobs, tmp_path, end):
    parent = subprocess.Popen(
        [sys.executable, str(HERE / "engine_jobs.py"), str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    pids = [jobs.pid_of(tmp_path, job) for job in (0, 1)]
    pids += [int(mark.suffix[1:]) for mark in tmp_path.glob("child.*")]
    assert len(set(pids)) == 4
    assert not any(psutil.Process(pid).status() == "zombie" for pid in pids)
    parent.send_signal(end)
    _, said = parent.communicate(timeout=30)
    assert parent.returncode == -end
    assert all(gone(pid) for pid in pids)
    if end == signal.SIGINT:
        # one traceback, the parent's own
        assert said.count("Traceback") == 1


def test_no_jobs_start_nothing_and_no_process_does_nothing(monkeypatch):
    monkeypatch.setattr("augmask_bench.engine._Worker", None)
    run_locally(abs, [], at_once=3, done=print)
    with pytest.raises(UsageError, match="at least 1 job"):
        run_locally(abs, [1], at_once=0, done=print)


def test_the_message_names_some_jobs_and_the_error_holds_all():
    failures = [Failure(f"job-{i}", "broke") for i in range(NAMED + 3)]
    error = JobsFailed(failures, 20)
    assert str(error).endswith(f"job-{NAMED - 1} (broke); and 3 more")
    assert error.failures == tuple(failures)
