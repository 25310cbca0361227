"""Jobs on this machine survive the death of any worker, and leave no process behind."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import joblib
import psutil
import pytest

from augmask.errors import UsageError
from augmask_bench import cluster
from augmask_bench.cluster import run_locally
from augmask_bench.jobs import MAX_NAMED, Failure, JobsFailed

HERE = Path(__file__).parent


@pytest.fixture
def jobs(monkeypatch):
    """Give the module of jobs under a name that workers can import too."""
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module("cluster_jobs")


def has_ended(pid: int) -> bool:
    """Wait for a process to end."""
    for _ in range(200):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_another_grid_may_run_on_this_machine(jobs, tmp_path):
    done = []
    # the port that Dask takes unless it is told otherwise
    with socket.socket() as other:
        with suppress(OSError):
            other.bind(("127.0.0.1", 8787))
            other.listen()
        run_locally(
            partial(jobs.mixed, tmp_path),
            ["good-1", "good-2"],
            n_jobs=2,
            done=lambda job, _: done.append(job),
        )
    assert sorted(done) == ["good-1", "good-2"]


def test_jobs_that_die_or_raise_leave_the_others_alone(jobs, tmp_path, capfd):
    good = [f"good-{i}" for i in range(6)]
    dying = ["dies-always", "exits"]
    bad = [*dying, "raises", "unpicklable"]
    submitted = ["dies-once", *bad, *good]
    results = []
    with pytest.raises(JobsFailed) as caught:
        run_locally(
            partial(jobs.mixed, tmp_path),
            submitted,
            n_jobs=2,
            done=lambda job, result: results.append((job, result)),
        )
    # one result each, the job that died once included
    assert sorted(results) == sorted((job, job.upper()) for job in ["dies-once", *good])
    reasons = {failed.job: failed.reason for failed in caught.value.failures}
    assert sorted(reasons) == bad
    for job in dying:
        assert reasons[job] == "its worker process died, also when it ran alone"
    assert reasons["raises"] == "Strange: 1 is not 2"
    assert "pickle" in reasons["unpicklable"]
    assert "4 of 11 jobs failed" in str(caught.value)
    assert all(job in str(caught.value) for job in bad)
    # the traceback is a note, not part of the message
    assert any("raise Strange" in note for note in caught.value.__notes__)
    # a death is repeated once, an exception never
    attempts = {job: jobs.attempts(tmp_path, job) for job in submitted}
    assert attempts == dict.fromkeys(submitted, 1) | dict.fromkeys(
        ["dies-once", *dying], 2
    )
    # Dask reports deaths and restarts in logs, which users of a grid need not see
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_job_killed_from_outside_is_repeated_after_the_others(jobs, tmp_path, n_jobs):
    order = []

    def kill():
        os.kill(jobs.pid_of(tmp_path, 0), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    run_locally(
        partial(jobs.slow_once, tmp_path),
        range(5),
        n_jobs=n_jobs,
        done=lambda job, _: order.append(job),
    )
    killer.join()
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert order[-1] == 0


def test_workers_share_the_cores_and_the_environment_is_restored(jobs, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    threads = {}
    run_locally(jobs.threads, [0, 1], n_jobs=2, done=threads.__setitem__)
    share = max(1, joblib.cpu_count() // 2)
    assert threads == {0: (share, share, share), 1: (share, share, share)}
    assert dict(os.environ) == before


def test_jobs_may_start_processes_which_end_with_the_cluster(jobs, tmp_path):
    def stop(job, result):
        raise OSError("no space left")

    call = partial(jobs.start_child, tmp_path)
    with pytest.raises(OSError, match="no space left"):
        run_locally(call, [0], n_jobs=1, done=stop)
    (child,) = tmp_path.glob("child.*")
    assert has_ended(int(child.suffix[1:]))


def test_an_error_of_the_receiver_ends_the_work(jobs, tmp_path):
    def full(job, result):
        raise OSError("no space left")

    start = time.monotonic()
    with pytest.raises(OSError, match="no space left"):
        run_locally(partial(jobs.slow_once, tmp_path), [0, 1, 2], n_jobs=2, done=full)
    assert time.monotonic() - start < 20
    assert has_ended(jobs.pid_of(tmp_path, 0))


@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_no_process_outlives_the_parent(jobs, tmp_path, end):
    parent = subprocess.Popen(
        [sys.executable, str(HERE / "cluster_jobs.py"), str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    workers = [jobs.pid_of(tmp_path, job) for job in (0, 1)]
    children = [int(file.suffix[1:]) for file in tmp_path.glob("child.*")]
    assert len({*workers, *children}) == 4
    for pid in workers + children:
        assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    number = getattr(signal, end)
    parent.send_signal(number)
    # a killed parent cannot end what its workers started, and these hold the pipe
    if end == "SIGKILL":
        parent.wait(30)
        assert all(has_ended(pid) for pid in workers)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
    _, stderr = parent.communicate(timeout=30)
    assert parent.returncode == (128 + number if end == "SIGTERM" else -number)
    assert all(has_ended(pid) for pid in workers + children)
    # Python's own traceback after Ctrl-C, and no word of Dask
    assert stderr.count("Traceback") == (end == "SIGINT")
    assert " - distributed." not in stderr


def test_ctrl_c_in_a_terminal_reaches_the_client_only(jobs, tmp_path):
    parent = subprocess.Popen(
        [sys.executable, str(HERE / "cluster_jobs.py"), str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for job in (0, 1):
        jobs.pid_of(tmp_path, job)
    os.killpg(parent.pid, signal.SIGINT)
    _, stderr = parent.communicate(timeout=30)
    assert stderr.count("Traceback") == 1
    assert stderr.rstrip().endswith("KeyboardInterrupt")


def test_without_jobs_no_cluster_is_started(monkeypatch):
    monkeypatch.setattr(cluster, "local_client", None)
    run_locally(abs, [], n_jobs=3, done=print)
    with pytest.raises(UsageError, match="must be at least 1, got 0"):
        run_locally(abs, [1], n_jobs=0, done=print)


def test_the_message_names_some_jobs_and_the_error_holds_all():
    failures = [Failure(f"job-{i}", "broke") for i in range(MAX_NAMED + 3)]
    error = JobsFailed(failures, 20)
    assert str(error).endswith(f"job-{MAX_NAMED - 1} (broke); and 3 more")
    assert error.failures == tuple(failures)
