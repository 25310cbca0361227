"""Jobs on a real Dask cluster: a scheduler and three workers, each its own process."""

from __future__ import annotations

import importlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.dask_cluster import dask, scheduler_in

from augmask import engine
from augmask.augmentation.boosted import LgbmS
from augmask.engine import run_each
from augmask.errors import AugMaskWarning, UsageError
from augmask_bench import cli
from augmask_bench.cluster import ClusterLost, JobsFailed, on_cluster, run_on_cluster

HERE = Path(__file__).parent
WORKERS = 3
GPU = {"GPU": 1}


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory) -> Iterator[str]:
    """Give the address of a scheduler that has three workers with a "GPU" each."""
    folder = tmp_path_factory.mktemp("dask")
    options = ["--nthreads", "1", "--nworkers", str(WORKERS), "--resources", "GPU=1"]
    options += ["--local-directory", str(folder), "--host", "127.0.0.1"]
    with (
        scheduler_in(folder, HERE) as (address, _),
        dask(folder, "worker", address, *options, path=HERE),
    ):
        yield address


@pytest.fixture
def client(scheduler):
    """Give a client of that scheduler once all workers are running (again)."""
    from distributed import Client

    with Client(scheduler, set_as_default=False) as client:
        client.wait_for_workers(WORKERS, timeout=60)
        yield client


@pytest.fixture
def address(client):
    return client.scheduler.address


@pytest.fixture
def jobs(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module("cluster_jobs")


def test_a_worker_killed_in_mid_grid_loses_and_doubles_nothing(address, jobs, tmp_path):
    results = []
    busy = []

    def done(job, result):
        results.append(result)
        if len(results) == 4:
            # job 0 hangs on its first worker, so that worker is busy
            busy.append(jobs.pid_of(tmp_path, 0))
            os.kill(busy[0], signal.SIGKILL)

    submitted = list(range(16))
    run_on_cluster(
        partial(jobs.slow_once, tmp_path),
        submitted,
        scheduler=address,
        resources=GPU,
        retries=0,
        done=done,
    )
    assert busy
    assert sorted(results) == submitted
    assert jobs.attempts(tmp_path, 0) == 2
    pids = {int(mark.suffix[1:]) for mark in tmp_path.iterdir()}
    assert len(pids) > 1, "one worker did everything"
    assert os.getpid() not in pids


STUCK = '''
"""Rows of independent columns; the first run of seed 0 hangs. The others are noted."""
import os
import time
from pathlib import Path
import numpy as np
import pandas as pd
from augmask_bench.generators import Generator, Generated
from augmask_bench.methods import register

MARK = Path(__file__).with_name("pid")
LOG = Path(__file__).with_name("log")


def make(request):
    if request.seed == 0 and not MARK.exists():
        part = MARK.with_name("pid-part")
        part.write_text(str(os.getpid()))
        part.rename(MARK)
        time.sleep(3600)
    rng = np.random.default_rng(request.seed)
    table = request.table
    rows = {c: rng.choice(table[c].dropna().to_numpy(), request.rows) for c in table}
    with LOG.open("a") as file:
        file.write(f"{request.seed}\\n")
    return Generated(pd.DataFrame(rows))


register(Generator("stuck", "Stuck", make))
'''
GRID = """
modules = ["stuck.py"]
device = "cpu"
seeds = [0, 1, 2, 3]
datasets = [{ name = "clinic-stay", rows = 80 }]
[[methods]]
generator = "stuck"
[[methods]]
generator = "fill"
augmenter = "mean"
"""


def test_a_grid_on_a_cluster_survives_a_killed_worker(address, tmp_path):
    (tmp_path / "stuck.py").write_text(STUCK)
    plan, out = tmp_path / "grid.toml", tmp_path / "out"
    plan.write_text(GRID)

    def kill_the_stuck_worker() -> None:
        mark = tmp_path / "pid"
        while not mark.exists():
            time.sleep(0.05)
        # results of its earlier jobs have left the worker by then
        time.sleep(1)
        os.kill(int(mark.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill_the_stuck_worker, daemon=True)
    killer.start()
    cli.app(
        ["run", str(plan), "--out", str(out), "--scheduler", address, "--json"],
        standalone_mode=False,
    )
    assert not killer.is_alive()
    table = pd.read_parquet(out / "results.parquet")
    assert table["status"].tolist() == ["done"] * 8
    assert table["run"].is_unique
    assert len(list((out / "runs").glob("*.json"))) == 8
    # each run was trained once, the stuck one on another worker
    assert sorted((tmp_path / "log").read_text().split()) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("resources", [GPU, None], ids=["gpu", "plain"])
def test_jobs_that_die_or_raise_leave_the_others_alone(
    address, jobs, tmp_path, resources
):
    good = [f"good-{i}" for i in range(9)]
    bad = ["dies-always", "raises"]
    submitted = ["dies-once", *bad, *good]
    results = []
    with pytest.raises(JobsFailed) as caught:
        run_on_cluster(
            partial(jobs.mixed, tmp_path),
            submitted,
            scheduler=address,
            resources=resources,
            retries=1,
            done=lambda job, result: results.append((job, result)),
        )
    assert sorted(results) == sorted((job, job.upper()) for job in ["dies-once", *good])
    reasons = {failed.job: failed.reason for failed in caught.value.failures}
    assert sorted(reasons) == bad
    assert (
        reasons["dies-always"]
        == "2 workers died while running it, also when it ran alone"
    )
    assert "1 is not 2" in reasons["raises"]
    assert "2 of 12 jobs failed" in str(caught.value)
    # Two deaths alone; one or two among the others, because it may be blamed for the
    # death of a worker on which it had not started.
    assert jobs.attempts(tmp_path, "dies-always") in (3, 4)
    assert jobs.attempts(tmp_path, "raises") == 2


def test_equal_jobs_are_run_once_and_delivered_each(address, jobs, tmp_path):
    results = []
    run_on_cluster(
        partial(jobs.mixed, tmp_path),
        ["a", "a", "b"],
        scheduler=address,
        done=lambda job, result: results.append((job, result)),
    )
    assert sorted(results) == [("a", "A"), ("a", "A"), ("b", "B")]
    assert jobs.attempts(tmp_path, "a") == 1


def test_resources_that_no_worker_has_are_refused(address):
    with pytest.raises(UsageError, match=r'no worker at .* --resources "GPU=2"'):
        run_on_cluster(
            abs, [1], scheduler=address, resources={"GPU": 2}, retries=0, done=print
        )


def test_column_fits_on_the_cluster_are_those_of_this_machine(
    client, make_table, monkeypatch
):
    table = make_table(n=300, n_num=1, cards=(3,))
    here = LgbmS(n_jobs=1).fit(table, np.random.default_rng(0))
    monkeypatch.setattr("augmask.engine.TINY_CELLS", 0)
    with on_cluster(client.scheduler.address):
        there = LgbmS(n_jobs=2).fit(table, np.random.default_rng(0))
        used = {pid for _, pid in run_each(os.getpid, [()] * 6, cells=1, n_jobs=2)}
    assert used <= set(client.run(os.getpid).values())
    first, second = (lgbm.draw(np.random.default_rng(1)) for lgbm in (here, there))
    assert first.num.tobytes() == second.num.tobytes()
    assert first.cat.tobytes() == second.cat.tobytes()


def test_a_lost_scheduler_is_reported_at_once(tmp_path, jobs):
    with scheduler_in(tmp_path, HERE) as (address, process):
        ending = threading.Timer(1.0, process.kill)
        ending.start()
        with (
            pytest.warns(AugMaskWarning, match="no workers yet"),
            pytest.raises(ClusterLost, match=f"lost the scheduler at {address}"),
        ):
            run_on_cluster(jobs.square, [1, 2], scheduler=address, done=print)
        ending.join()


def test_a_wrong_address_is_refused_soon_in_one_sentence(monkeypatch):
    monkeypatch.setattr(engine, "CONNECT_TIMEOUT", 0.5)
    began = time.monotonic()
    with pytest.raises(UsageError, match="no Dask scheduler answered at tcp://127"):
        run_on_cluster(abs, [1], scheduler="tcp://127.0.0.1:1", done=print)
    with pytest.raises(UsageError, match=r"must be an address .* got 'cluster'"):
        run_on_cluster(abs, [1], scheduler="cluster", done=print)
    assert time.monotonic() - began < 10
