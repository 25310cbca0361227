"""Rows in many files: the same bytes whoever draws them, each partition once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.dask_cluster import dask, scheduler_in

import augmask as am
from augmask.errors import AugMaskWarning, ConditionError, DataError, UsageError
from augmask.job_folder import MANIFEST
from augmask.table import partitions

TINY = {
    "steps": 5,
    "batch_size": 32,
    "width": 16,
    "depth": 1,
    "time_width": 8,
    "sampling_steps": 4,
    "sampling_batch": 64,
}
PARTS = 6


def people(n: int = 300, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n).astype("float64"),
            "weight": rng.normal(70, 12, n).round(1),
            "job": rng.choice(["cook", "smith", "clerk"], n),
            "smokes": rng.random(n) < 0.3,
        }
    )
    frame = frame.mask(rng.random(frame.shape) < 0.2)
    return frame.assign(
        height=rng.normal(170, 9, n), key=[f"K{i:06}" for i in range(n)]
    )


def fit(**options) -> am.AugMask:
    with warnings.catch_warnings():
        # the key is an identifier
        warnings.simplefilter("ignore", AugMaskWarning)
        model = am.AugMask(augmenter="ecdf", options=TINY, device="cpu")
        return model.fit(people(), progress=False, **options)


@pytest.fixture(scope="module")
def model() -> am.AugMask:
    return fit()


@pytest.fixture
def lake(tmp_path, monkeypatch) -> Path:
    """Make a folder of three files, which are six parts."""
    monkeypatch.setattr(partitions, "PART_ROWS", 100)
    folder = tmp_path / "lake"
    folder.mkdir()
    frame = people(420, seed=5).assign(note=[f"n{i}" for i in range(420)])
    for i, rows in enumerate([(0, 180), (180, 200), (200, 420)]):
        frame[slice(*rows)].to_parquet(
            folder / f"{i}.parquet", index=False, row_group_size=90
        )
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def read(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder)


# -- drawing ---------------------------------------------------------------------------


def test_partitions_are_the_same_in_one_process_and_in_two(model, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    threads = torch.get_num_threads()
    for folder, jobs in ((one, 1), (two, 2)):
        n = model.sample_to(folder, 500, partitions=3, n_jobs=jobs, seed=4)
        assert n == 500
    assert files(one) == files(two)
    assert list(files(one)) == [MANIFEST, *(f"part-0000{i}.parquet" for i in range(3))]
    assert torch.get_num_threads() == threads
    rows = read(one)
    assert len(rows) == 500
    assert not rows.isna().any().any()
    # identifiers count on, and every partition has a seed of its own
    assert rows["key"].is_unique
    assert rows["key"].tolist() == model.sample(500, seed=4)["key"].tolist()
    assert rows["height"].nunique() > 490


def test_an_incomplete_folder_is_completed_and_another_job_refused(model, tmp_path):
    out = tmp_path / "out"
    model.sample_to(out, 200, partitions=4, n_jobs=1, seed=1)
    before = files(out)
    (out / "part-00002.parquet").unlink()
    done = []
    model.save(tmp_path / "m.augmask")
    again = am.load(tmp_path / "m.augmask", device="cpu")
    report = lambda phase, n, total, _: done.append((phase, n, total))  # noqa: E731
    again.sample_to(out, 200, partitions=4, n_jobs=1, seed=1, progress=report)
    assert files(out) == before
    assert done == [("sample", 150, 200), ("sample", 200, 200)]
    for change in ({"seed": 2}, {"n": 201}, {"partitions": 5}, {"missing": "learned"}):
        options = {"n": 200, "partitions": 4, "seed": 1, **change}
        with pytest.raises(UsageError, match="holds another sample job"):
            model.sample_to(out, **options)
    with pytest.raises(UsageError, match="holds another sample job"):
        fit(constraints="weight < height").sample_to(out, 200, partitions=4, seed=1)
    assert files(out) == before


def short(frame):
    return frame["height"] < 190


def test_an_interrupted_job_leaves_no_calls_to_the_garbage_collector(
    model, tmp_path, monkeypatch
):
    """The pool of processes is shared: late ends of calls would hit those of others."""
    ended = []

    def two_parts(*_, **__):
        try:
            yield 0, None
            yield 1, None
        finally:
            ended.append(True)

    def stop(*_) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("augmask.partitioned_rows.run_parts", two_parts)
    with pytest.raises(KeyboardInterrupt) as held:
        model.sample_to(tmp_path / "rows", 40, partitions=2, progress=stop)
    assert ended, "while the traceback is still there"
    assert held.tb is not None


def test_conditions_constraints_and_missing_values(tmp_path):
    own = fit(constraints=["weight < height", short])
    out, other = tmp_path / "out", tmp_path / "other"
    options = {"partitions": 3, "where": {"job": {"cook", "smith"}}, "seed": 2}
    own.sample_to(out, 90, missing="learned", n_jobs=1, **options)
    own.sample_to(other, 90, missing="learned", n_jobs=2, **options)
    assert files(out) == files(other)
    rows = read(out)
    assert len(rows) == 90
    assert set(rows["job"].dropna()) == {"cook", "smith"}
    assert (rows["height"] < 190).all()
    assert not (rows["weight"] >= rows["height"]).any()
    assert rows["key"].is_unique
    rates = rows[["age", "weight", "smokes"]].isna().mean()
    assert rates.between(0.05, 0.4).all()
    # what a first call of `sample` leaves in the model changes nothing
    own.sample(10, missing="learned")
    (out / "part-00001.parquet").unlink()
    own.sample_to(out, 90, missing="learned", n_jobs=1, **options)
    assert files(out) == files(other)


def test_a_call_without_a_seed_gives_the_next_rows(tmp_path):
    own = fit()
    for name in ("first", "second"):
        own.sample_to(tmp_path / name, 30, partitions=2, n_jobs=1)
    own.sample_to(tmp_path / "zero", 30, partitions=2, n_jobs=1, seed=0)
    assert files(tmp_path / "first") == files(tmp_path / "zero")
    assert not read(tmp_path / "first").equals(read(tmp_path / "second"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"partitions": 0}, "partitions must be .* at least 1, got 0"),
        ({"partitions": 31}, "at most the number of rows, 30, got 31"),
        ({"n": None}, "n must be"),
        ({"csv_safe": True}, "csv_safe applies to CSV files"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"n_jobs": 2, "scheduler": "tcp://x:1"}, "leave out one of the two"),
        ({"scheduler": 8786}, "scheduler must be the address of a Dask scheduler"),
        ({"scheduler": "cluster"}, "must be an address .* got 'cluster'"),
        ({"missing": "some"}, "missing must be None"),
        ({"where": people(9)[["job"]]}, "partial rows are completed in one file"),
        ({"where": {"job": "baker"}}, "no level 'baker'"),
        ({"path": "rows.parquet"}, "got rows.parquet; name a folder"),
        ({"path": "taken"}, "is a file; name a folder"),
        ({"path": "full"}, "is not empty, and no job of augmask began it"),
        ({"partitions": None, "n_jobs": 2}, "n_jobs is for rows .* pass partitions"),
        ({"partitions": None, "scheduler": "x"}, "scheduler is for rows"),
        ({"path": "nowhere/out"}, "cannot make"),
    ],
)
def test_calls_that_are_refused_leave_nothing(
    model, tmp_path, monkeypatch, change, says
):
    monkeypatch.chdir(tmp_path)
    Path("taken").touch()
    Path("full").mkdir()
    Path("full", "mine.txt").touch()
    options = {"path": "out", "n": 30, "partitions": 2} | change
    with pytest.raises((UsageError, ConditionError, DataError), match=says):
        model.sample_to(options.pop("path"), **options)
    assert sorted(str(path) for path in Path().rglob("*")) == [
        "full",
        str(Path("full", "mine.txt")),
        "taken",
    ]


# -- imputing --------------------------------------------------------------------------


def test_parts_are_imputed_in_order_and_the_rest_stays(model, lake, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    source = read(lake)
    for folder, jobs in ((one, 1), (two, 2)):
        written = model.impute_to(lake, folder, n_jobs=jobs, seed=3)
        assert written == (420, int(source.isna().sum().sum()))
    assert files(one) == files(two)
    assert len(files(one)) == 1 + PARTS
    full = read(one)
    assert list(full) == list(source)
    assert not full.isna().any().any()
    for name in source:
        seen = source[name].notna()
        assert full[name][seen].tolist() == source[name][seen].tolist()
    schemas = [pq.read_schema(path).remove_metadata() for path in one.glob("part-*")]
    assert len({str(schema) for schema in schemas}) == 1


def test_draws_and_columns_of_folders(model, lake, tmp_path):
    for month in (1, 2):
        folder = lake / f"month={month}"
        folder.mkdir()
        (lake / f"{month}.parquet").rename(folder / "rows.parquet")
    (lake / "0.parquet").unlink()
    rows, filled = model.impute_to(lake, tmp_path / "out", n_draws=2, n_jobs=1)
    source = partitions.partitioned_table(lake).read()
    assert (rows, filled) == (2 * len(source), int(source.isna().sum().sum()))
    full = read(tmp_path / "out")
    assert full["draw"].value_counts().to_dict() == {1: len(source), 2: len(source)}
    first = full[full["draw"] == 1]
    assert first["month"].tolist() == source["month"].tolist()


def test_levels_that_were_not_learned_are_told_once(model, lake, tmp_path):
    for path in lake.iterdir():
        frame = pd.read_parquet(path)
        frame.loc[frame.index[:3], "job"] = ["baker", "baker", path.stem]
        frame.to_parquet(path, index=False)
    with pytest.warns(AugMaskWarning, match="'job': 'baker', '0', '1', '2'") as told:
        model.impute_to(lake, tmp_path / "out", n_jobs=1)
    assert len(told) == 1


def test_a_bad_part_is_named_and_finished_ones_are_kept(model, lake, tmp_path):
    out = tmp_path / "out"
    table = pq.read_table(lake / "2.parquet")
    broken = table.set_column(1, "weight", pa.array(["heavy"] * len(table)))
    good = tmp_path / "good.parquet"
    pq.write_table(broken.slice(0, 20), lake / "2.parquet")
    with pytest.raises(DataError, match="column 'weight' is double in"):
        model.impute_to(lake, out, n_jobs=1)
    assert not out.exists()
    pq.write_table(table.drop_columns("weight"), good)
    with pytest.raises(DataError, match=r"good.parquet: .*'weight' is absent"):
        model.impute_to([good], out, n_jobs=1)
    assert not out.exists()


@pytest.mark.parametrize(
    ("source", "out", "says"),
    [
        ("lake", "lake", "must not be the folder of the input"),
        ("lake/*.parquet", "lake", "must not be the folder of the input"),
        ("lake", "lake/full", "must not lie in the folder of the input"),
        ("lake", "out.csv", "name a folder"),
        ("rows.csv", "out", "reads a folder, a pattern or a list of Parquet files"),
        (people(9), "out", "reads a folder, a pattern or a list of Parquet files"),
        ("lake/*.txt", "out", "no Parquet file"),
    ],
)
def test_tables_and_folders_that_are_refused(
    model, lake, tmp_path, monkeypatch, source, out, says
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UsageError, DataError), match=says):
        model.impute_to(source, out)
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]
    assert len(files(lake)) == 3


# -- workers that come and go ----------------------------------------------------------


def kill_a_busy_worker(address: str):
    """Return a progress function that kills a worker after the first partition."""
    from distributed import Client

    calls, killed = [], []

    def report(phase: str, done: int, total: int, _: object) -> None:
        calls.append((done, total))
        if killed:
            return
        with Client(address, set_as_default=False) as client:
            busy = [name for name, tasks in client.processing().items() if tasks]
            pids = client.run(os.getpid)
        killed.append(pids[busy[0]])
        os.kill(pids[busy[0]], signal.SIGKILL)

    return report, calls, killed


def test_any_number_of_workers_and_a_killed_one_give_the_same_bytes(
    model, lake, tmp_path
):
    from distributed import Client

    model.sample_to(tmp_path / "rows", 600, partitions=PARTS, n_jobs=1, seed=1)
    model.impute_to(lake, tmp_path / "full", n_jobs=1, seed=1)
    rows, full = files(tmp_path / "rows"), files(tmp_path / "full")
    with ExitStack() as stack:
        address, _ = stack.enter_context(scheduler_in(tmp_path))
        client = stack.enter_context(Client(address, set_as_default=False))
        for workers in (1, 2, 3):
            options = ["--nthreads", "1", "--local-directory", str(tmp_path)]
            stack.enter_context(dask(tmp_path, "worker", address, *options))
            client.wait_for_workers(workers, timeout=60)
            out, filled = tmp_path / f"rows{workers}", tmp_path / f"full{workers}"
            model.sample_to(out, 600, partitions=PARTS, seed=1, scheduler=address)
            assert files(out) == rows
            model.impute_to(lake, filled, seed=1, scheduler=address)
            assert files(filled) == full

        report, calls, killed = kill_a_busy_worker(address)
        model.sample_to(
            tmp_path / "killed",
            600,
            partitions=PARTS,
            seed=1,
            scheduler=address,
            progress=report,
        )
        assert killed
        assert files(tmp_path / "killed") == rows
        # each partition once
        assert calls == [(100 * i, 600) for i in range(1, PARTS + 1)]

        client.wait_for_workers(3, timeout=60)
        report, calls, killed = kill_a_busy_worker(address)
        model.impute_to(
            lake, tmp_path / "again", seed=1, scheduler=address, progress=report
        )
        assert killed
        assert files(tmp_path / "again") == full
        assert len(calls) == PARTS
        assert calls[-1] == (420, 420)


ENDLESS = """
import sys
import augmask as am
model = am.load(sys.argv[1], device="cpu")
model.sample_to(sys.argv[2], 1200, partitions=24, n_jobs=1, seed=1, progress=False)
"""


def test_a_killed_program_is_resumed(model, tmp_path):
    path, out = tmp_path / "m.augmask", tmp_path / "out"
    model.save(path)
    process = subprocess.Popen([sys.executable, "-c", ENDLESS, str(path), str(out)])
    while process.poll() is None and len(list(out.glob("part-*"))) < 2:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    begun = len(list(out.glob("part-*")))
    assert 2 <= begun < 24
    assert (out / "_model.augmask").exists()
    model.sample_to(out, 1200, partitions=24, n_jobs=1, seed=1)
    unbroken = tmp_path / "unbroken"
    model.sample_to(unbroken, 1200, partitions=24, n_jobs=1, seed=1)
    assert files(out) == files(unbroken)
