from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError, UsageError
from augmask.job_folder import MANIFEST, NEWEST, JobFolder, digest_of, job_folder

STAGES = {"read": ("read-*.json", 2), "rows": ("part-*.parquet", 40)}


def finish(folder: Path, i: int, at: float, rows: int = 10) -> None:
    path = folder / f"part-{i:02}.parquet"
    pd.DataFrame({"x": range(rows)}).to_parquet(path)
    os.utime(path, (at, at))


def test_a_folder_belongs_to_one_job(tmp_path):
    folder = tmp_path / "job"
    first = JobFolder.open(folder, "fit", "5f", STAGES)
    assert [(each.name, each.done, each.total) for each in first.stages()] == [
        ("read", 0, 2),
        ("rows", 0, 40),
    ]
    again = JobFolder.open(folder, "fit", "5f", STAGES)
    assert again.manifest == job_folder(folder).manifest
    for job, fingerprint in (("fit", "60"), ("sample", "5f")):
        with pytest.raises(UsageError, match="holds another fit job"):
            JobFolder.open(folder, job, fingerprint, STAGES)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"job": 1}', '{"job": "", "fingerprint": "", "stages": 1}'],
)
def test_a_damaged_manifest_is_told(tmp_path, text):
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(DataError, match=r"_augmask.json is damaged; remove the folder"):
        job_folder(tmp_path)


def test_other_folders_are_told(tmp_path):
    with pytest.raises(DataError, match="is not the folder of a job of augmask"):
        job_folder(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        job_folder(tmp_path / "nowhere")


def test_the_newest_parts_tell_the_rate(tmp_path):
    JobFolder.open(tmp_path / "job", "sample", "5f", STAGES)
    folder = job_folder(tmp_path / "job")
    now = time.time()
    (folder.path / "read-0.json").write_text("{}")
    # an hour ago the job was interrupted
    for i in range(5):
        finish(folder.path, i, now - 3600 - i)
    for i in range(5, 5 + NEWEST):
        finish(folder.path, i, now - 4 * (5 + NEWEST - i))
    read, rows = folder.stages()
    assert (read.done, read.total, read.parts_per_second) == (1, 2, None)
    assert read.seconds_left is None
    assert (rows.done, rows.total) == (25, 40)
    assert rows.parts_per_second == pytest.approx(0.25)
    assert rows.rows_per_second == pytest.approx(2.5)
    assert rows.seconds_left == pytest.approx(60)
    (folder.path / "read-1.json").write_text("{}")
    assert folder.stages()[0].seconds_left == 0


def test_the_manifest_is_plain(tmp_path):
    JobFolder.open(tmp_path / "job", "sample", "5f", STAGES)
    facts = json.loads((tmp_path / "job" / MANIFEST).read_text())
    assert set(facts) == {"job", "fingerprint", "stages"}


def test_a_fingerprint_stays_that_of_earlier_versions():
    # folders and checkpoints that they wrote are resumed
    facts = ["fit", 1, {"a": (1, None)}]
    assert digest_of(facts).startswith("dd581ea0c01c")
    array = np.arange(6.0).reshape(2, 3).T
    assert digest_of(facts, (array, array > 2)).startswith("2aac02e841f4")
