"""A fit in parts: like one table, same bytes for any workers, resumed after kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from augmask import prepare_parts
from augmask.augmentation import AUGMENTERS
from augmask.augmentation.shards import HELD_OUT, OBSERVED, open_shard
from augmask.errors import AugMaskWarning, DataError, UsageError
from augmask.evaluation.fidelity import shape
from augmask.job_folder import job_folder
from augmask.model import AugMask, load
from augmask.table import partitions
from augmask.table.holdout import Holdout
from augmask.table.infer import infer_schema

TINY = {"steps": 20, "width": 16, "depth": 1, "time_width": 8, "batch_size": 64}
ROWS, PARTS = 2_400, 6


def make_frame(n: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, n)
    frame = pd.DataFrame(
        {
            "age": pd.array(age, "Int64"),
            "pay": np.exp(rng.normal(7, 0.5, n) + age / 100).round(2),
            "job": rng.choice(["cook", "smith", "clerk"], n, p=[0.6, 0.3, 0.1]),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(age, "D"),
        }
    )
    frame["seen"] = frame["seen"].astype("datetime64[us]")
    return frame.mask(rng.random(frame.shape) < 0.25)


def write_lake(folder: Path, frame: pd.DataFrame, parts: int = PARTS) -> Path:
    folder.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(len(frame)), parts)):
        frame.iloc[rows].reset_index(drop=True).to_parquet(folder / f"{i}.parquet")
    return folder


@pytest.fixture
def frame() -> pd.DataFrame:
    return make_frame()


@pytest.fixture
def lake(tmp_path, frame, monkeypatch) -> Path:
    monkeypatch.setattr(partitions, "PART_ROWS", ROWS // PARTS)
    return write_lake(tmp_path / "lake", frame)


def model(augmenter="ecdf", **changes) -> AugMask:
    return AugMask(augmenter=augmenter, preset="fast", options=TINY | changes)


def parts_done(job: Path) -> dict[str, tuple[int, int]]:
    return {each.name: (each.done, each.total) for each in job_folder(job).stages()}


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix != ".json"}


def test_shards_hold_the_observed_cells_of_all_rows(lake, frame, tmp_path):
    fitted = model().fit(lake, work_dir=tmp_path / "job", holdout=0)
    codec = fitted.codec_
    start = 0
    for path in sorted((tmp_path / "job").glob("shard-*")):
        shard = open_shard(path)
        arrays = shard.read([(0, shard.rows)])
        rows = frame.iloc[start : start + shard.rows].reset_index(drop=True)
        start += shard.rows
        table = codec.encode(rows)
        assert ((arrays["flags"] & OBSERVED != 0) == table.observed).all()
        decoded = codec.decode(
            arrays["num"].astype(float), arrays["cat"], np.random.default_rng(0)
        )
        for column in rows:
            known = rows[column].notna().to_numpy()
            kept = decoded[column][known].reset_index(drop=True)
            own = rows[column][known].reset_index(drop=True)
            if column == "pay":
                np.testing.assert_allclose(kept, own, rtol=1e-3)
            else:
                assert (kept == own).all()
    assert start == len(frame)


def test_the_schema_is_that_of_one_table(lake, frame, tmp_path):
    whole = tmp_path / "whole.parquet"
    frame.to_parquet(whole)
    fitted = model().fit(lake, work_dir=tmp_path / "job", holdout=0)
    assert fitted.schema_ == infer_schema(whole)


def test_a_small_table_in_parts_is_fitted_as_one(lake, frame, tmp_path):
    whole = tmp_path / "whole.parquet"
    frame.to_parquet(whole)
    one, parts = (model().fit(source) for source in (whole, lake))
    one.save(tmp_path / "one")
    parts.save(tmp_path / "parts")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "parts").read_bytes()


@pytest.mark.parametrize("augmenter", sorted(set(AUGMENTERS) - {"lgbm-chain"}))
def test_every_augmenter_fills_a_table_in_parts(lake, tmp_path, augmenter):
    fitted = model(augmenter).fit(lake, work_dir=tmp_path / "job")
    rows = fitted.sample(200, seed=0)
    assert not rows.isna().to_numpy().any()
    fitted.save(tmp_path / "model")
    assert load(tmp_path / "model").sample(200, seed=0).equals(rows)


def test_the_number_of_processes_changes_no_byte(lake, tmp_path, monkeypatch):
    results = []
    original = prepare_parts.run_parts
    for n_jobs in (1, 2, 3):
        monkeypatch.setattr(
            prepare_parts,
            "run_parts",
            lambda *a, n_jobs=n_jobs, **k: original(*a, n_jobs=n_jobs, **k),
        )
        folder = tmp_path / f"job-{n_jobs}"
        model("lgbm-s").fit(lake, work_dir=folder).save(tmp_path / "model")
        results.append((contents(folder), (tmp_path / "model").read_bytes()))
    assert results[0] == results[1] == results[2]


def test_held_out_rows_leave_no_trace(lake, frame, tmp_path):
    """The largest value is in a held-out row; no schema and no shard may have it."""
    share = 0.1
    probe = model().fit(lake, work_dir=tmp_path / "probe", holdout=share)
    facts = probe.training_["holdout"]
    assert facts["held_out"] == 240
    chosen = Holdout.from_dict(facts).chosen(0)
    frame.loc[chosen[100], "pay"] = 1e9
    frame.loc[chosen[7], "job"] = "spy"
    for path in lake.iterdir():
        path.unlink()
    lake.rmdir()
    write_lake(lake, frame)
    fitted = model().fit(lake, work_dir=tmp_path / "job", holdout=share)
    assert fitted.schema_["pay"].high < 1e9
    assert "spy" not in fitted.schema_["job"].levels
    shards = map(open_shard, (tmp_path / "job").glob("shard-*"))
    assert sum(shard.rows for shard in shards) == len(frame) - 240


def test_shards_are_reused_by_another_network(lake, tmp_path):
    job = tmp_path / "job"
    model().fit(lake, work_dir=job)
    before = {p: p.stat().st_mtime_ns for p in job.glob("*.safetensors")}
    AugMask("tabddpm", augmenter="ecdf", preset="fast", options={"steps": 5}).fit(
        lake, work_dir=job
    )
    assert {p: p.stat().st_mtime_ns for p in job.glob("*.safetensors")} == before


@pytest.mark.parametrize(
    "changes",
    [{"augmenter": "mean"}, {"completions": "stack:2"}, {"validation_fraction": 0.2}],
)
def test_shards_of_other_settings_are_refused(lake, tmp_path, changes):
    model().fit(lake, work_dir=tmp_path / "job")
    with pytest.raises(UsageError, match="holds another fit job; name another folder"):
        model(**changes).fit(lake, work_dir=tmp_path / "job")


def test_a_lost_shard_is_made_again_and_nothing_else(lake, tmp_path):
    job = tmp_path / "job"
    model("lgbm-s").fit(lake, work_dir=job)
    before = contents(job)
    lost = job / "shard-000003.safetensors"
    lost.unlink()
    (job / "validation.safetensors").unlink()
    times = {p: p.stat().st_mtime_ns for p in job.glob("shard-*")}
    model("lgbm-s").fit(lake, work_dir=job)
    assert contents(job) == before
    assert {p: p.stat().st_mtime_ns for p in times} == times


def test_strategies_differ_in_fill_and_loss_only(lake, tmp_path):
    everything = AugMask(
        augmenter="ecdf", supervise="all", preset="fast", options=TINY
    ).fit(lake, work_dir=tmp_path / "job")
    observed = model().fit(lake, work_dir=tmp_path / "job")
    assert everything.history_["loss"].iloc[-1] != observed.history_["loss"].iloc[-1]


@pytest.mark.parametrize("named", [False, True])
def test_training_in_parts_resumes_from_a_checkpoint(lake, tmp_path, named):
    whole = model().fit(lake, work_dir=tmp_path / "job")

    def stop(phase, done, total, numbers):
        if phase == "train" and done > 150:
            os.kill(os.getpid(), signal.SIGINT)

    unbroken = model(steps=400).fit(lake, work_dir=tmp_path / "job")
    options = {"work_dir": tmp_path / "job"}
    if named:
        options["checkpoint"] = tmp_path / "fit.checkpoint"
    with pytest.raises(KeyboardInterrupt) as stopped:
        model(steps=400).fit(lake, progress=stop, **options)
    place = options.get("checkpoint", tmp_path / "job" / "training-")
    assert f"is in {place}" in stopped.value.__notes__[0]
    assert parts_done(tmp_path / "job")["training"] == (0, 1)
    resumed = model(steps=400).fit(lake, **options)
    assert not list((tmp_path / "job").glob("*.checkpoint"))
    assert resumed.sample(50, seed=0).equals(unbroken.sample(50, seed=0))
    assert not whole.sample(50, seed=0).equals(unbroken.sample(50, seed=0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"private_extremes": True}, "private_extremes needs a table in one file"),
        ({"schema": {"agee": "category"}}, "unknown column 'agee'; did you mean 'age'"),
        ({"schema": {"job": {"fake": "name"}}}, "'job': fakes need a table in one"),
        ({"holdout": 2}, "holdout must be 'auto' or a share"),
        ({"constraints": ["pay <= age"]}, "pay <= age"),
    ],
)
def test_wrong_options_end_in_one_sentence(lake, tmp_path, options, message):
    with pytest.raises((UsageError, DataError), match=message):
        model().fit(lake, work_dir=tmp_path / "job", **options)


def test_folders_and_schedulers_are_for_tables_in_parts(frame, tmp_path):
    for options in ({"work_dir": tmp_path / "job"}, {"scheduler": "tcp://a:1"}):
        with pytest.raises(UsageError, match="is for a table in parts"):
            model().fit(frame, **options)


def test_names_of_persons_get_placeholders(tmp_path, lake, frame):
    for i, path in enumerate(sorted(lake.iterdir())):
        rows = pd.read_parquet(path)
        rows["email"] = [f"ann{i}.{j}@lee.org" for j in range(len(rows))]
        rows.to_parquet(path)
    with pytest.warns(AugMaskWarning, match="not learned, because taken for identi"):
        fitted = model().fit(lake, work_dir=tmp_path / "job")
    emails = fitted.sample(50)["email"]
    assert not emails.str.contains("lee.org").any()


def test_a_folder_with_other_files_is_left_alone(lake, tmp_path):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "thesis.tex").touch()
    with pytest.raises(UsageError, match="is not empty, and no job of augmask"):
        model().fit(lake, work_dir=tmp_path / "job")


def test_without_a_name_the_folder_goes(lake, monkeypatch, tmp_path):
    monkeypatch.setattr(prepare_parts, "IN_MEMORY_CELLS", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert len(model().fit(lake).sample(10)) == 10
    assert not list((tmp_path / "temporary").iterdir())


def test_a_column_of_other_values_in_a_late_file_is_named(lake, tmp_path, frame):
    late = frame.tail(400).reset_index(drop=True).assign(job=[["a", "b"]] * 400)
    late.to_parquet(lake / "5.parquet")
    with pytest.raises(DataError, match="column 'job'"):
        model().fit(lake, work_dir=tmp_path / "job")


def test_rows_are_as_good_as_from_one_table(lake, frame, tmp_path):
    scores = []
    for options in ({}, {"work_dir": tmp_path / "job"}):
        fitted = model(steps=400, width=64, sampling_steps=20)
        fitted.fit(lake, holdout=0, **options)
        rows = fitted.sample(1_000, seed=0)
        score = shape(frame, rows, ["age", "pay", "seen"], ["job"], allow_missing=True)
        scores.append(score.value)
    assert scores[1] > scores[0] - 0.02


# -- kills ---------------------------------------------------------------------------

FIT = """
import sys
import augmask as am
from augmask.table import partitions
partitions.PART_ROWS = {part_rows}
am.AugMask(augmenter="lgbm-s", preset="fast", options={options}).fit(
    sys.argv[1], work_dir=sys.argv[2], progress=False
).save(sys.argv[3])
"""


def fit_command(lake: Path, job: Path, out: Path) -> list[str]:
    code = FIT.format(part_rows=ROWS // PARTS, options=TINY)
    return [sys.executable, "-c", code, str(lake), str(job), str(out)]


def test_a_killed_fit_ends_with_the_same_bytes(lake, tmp_path):
    subprocess.run(fit_command(lake, tmp_path / "whole", tmp_path / "a"), check=True)
    broken, out = tmp_path / "broken", tmp_path / "b"
    for shards in (0, 1, 4):
        with subprocess.Popen(
            fit_command(lake, broken, out), start_new_session=True
        ) as process:
            while process.poll() is None and (
                len(list(broken.glob("shard-*"))) <= shards if broken.exists() else True
            ):
                time.sleep(0.01)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    subprocess.run(fit_command(lake, broken, out), check=True)
    assert contents(broken) == contents(tmp_path / "whole")
    assert out.read_bytes() == (tmp_path / "a").read_bytes()
    assert parts_done(broken) == {
        "summary": (1, 1),
        "shards": (6, 6),
        "training": (1, 1),
    }


# -- a cluster -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=3,
            threads_per_worker=1,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        yield client


def kill_one(client, when: Path, pattern: str, files: int) -> threading.Thread:
    """Kill a busy worker once so many files are there."""

    def kill() -> None:
        while len(list(when.glob(pattern))) < files:
            time.sleep(0.005)
        busy = [who for who, tasks in client.processing().items() if tasks]
        pids = client.run(os.getpid)
        os.kill(pids[busy[0] if busy else next(iter(pids))], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@pytest.mark.parametrize("step", ["read", "fill"])
def test_a_killed_worker_changes_no_byte(cluster, lake, tmp_path, step):
    here, there = tmp_path / "here", tmp_path / "there"
    model("lgbm-s").fit(lake, work_dir=here)
    cluster.wait_for_workers(3, timeout=60)
    pattern, files = (("_augmask.json", 1), ("shard-*", 2))[step == "fill"]
    there.mkdir()
    killing = kill_one(cluster, there, pattern, files)
    model("lgbm-s").fit(lake, work_dir=there, scheduler=cluster.scheduler.address)
    killing.join()
    assert contents(there) == contents(here)


def test_a_dask_frame_is_a_table_in_parts(cluster, lake, tmp_path):
    dataframe = pytest.importorskip("dask.dataframe")
    table = dataframe.read_parquet(lake)
    fitted = model().fit(
        table, work_dir=tmp_path / "job", scheduler=cluster.scheduler.address
    )
    plain = model().fit(lake, work_dir=tmp_path / "plain")
    assert fitted.schema_ == plain.schema_
    again = model().fit(
        table, work_dir=tmp_path / "job", scheduler=cluster.scheduler.address
    )
    assert again.sample(20, seed=0).equals(fitted.sample(20, seed=0))


def test_flags_of_held_out_cells_are_a_share_of_the_observed_ones(lake, tmp_path):
    model(validation_fraction=0.2).fit(lake, work_dir=tmp_path / "job")
    flags = np.concatenate(
        [
            shard.read([(0, shard.rows)])["flags"]
            for shard in map(open_shard, sorted((tmp_path / "job").glob("shard-*")))
        ]
    )
    observed = flags & OBSERVED != 0
    assert not (flags >= HELD_OUT)[~observed].any()
    assert (flags >= HELD_OUT)[observed].mean() == pytest.approx(0.2, abs=0.02)
