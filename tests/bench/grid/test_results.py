"""Results: files, the collected table, and pending runs."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from augmask_bench.plan import read_plan
from augmask_bench.results import (
    COLUMNS,
    collect,
    facts_of,
    failed_result,
    pending,
    sample_file,
    save_table,
    stale,
    write,
)

PLAN = """
seeds = [0, 1]
keep = true
datasets = [{ name = "clinic", rows = 100 }]
[[methods]]
generator = "cheap"
[[methods]]
generator = "absent"
"""


@pytest.fixture
def runs(write_plan):
    return read_plan(write_plan(PLAN)).runs


def done(run):
    scores = {"shape": 0.5, "mle": float("inf"), "facts": {"losses": [float("nan")]}}
    return {**facts_of(run), "status": "done", **scores}


def test_partly_written_files_are_ignored(runs, tmp_path):
    path = write(tmp_path, done(runs[0]))
    text = path.read_text()
    (path.parent / f".{path.name}.abc.json").write_text(text[:20])
    (path.parent / f".{path.name}.def.json").write_text(text)
    (path.parent / "0a1b.json").write_text(text[:20])
    assert collect(tmp_path, runs)["run"].tolist() == [runs[0].name]
    assert stale(tmp_path, []) == [runs[0].name]
    assert stale(tmp_path, runs) == []
    json.loads(text, parse_constant=pytest.fail)  # no NaN, no Infinity


def test_the_table_always_has_the_same_columns(runs, tmp_path):
    empty = collect(tmp_path, runs)
    assert list(empty.columns) == list(COLUMNS)
    for run in runs[:3]:
        write(tmp_path, done(run))
    write(tmp_path, failed_result(runs[3], "it broke"))
    frame = collect(tmp_path, runs)
    assert list(frame.columns) == list(COLUMNS)
    assert frame["ratio"].dtype == frame["eta"].dtype == "float64"
    assert frame["aware"].tolist() == [False, True, False, True]
    assert frame["reason"].tolist() == ["", "", "", "it broke"]
    assert frame["mle"].isna().all()
    stored = pd.read_parquet(save_table(tmp_path, frame))
    pd.testing.assert_frame_equal(stored, frame, check_dtype=False)


def test_results_have_the_labels_of_the_plan(runs, tmp_path, write_plan):
    write(tmp_path, done(runs[0]))
    text = PLAN.replace('"cheap"', '"cheap"\nlabel = "Independent"')
    renamed = read_plan(write_plan(text)).runs
    assert collect(tmp_path, renamed)["method"].tolist() == ["Independent"]
    # results of other runs are not collected
    other = read_plan(write_plan(PLAN.replace("100", "90"))).runs
    assert collect(tmp_path, other).empty


def test_completed_and_failed_runs_are_not_pending(runs, tmp_path):
    assert pending(tmp_path, runs) == list(runs)
    for run, status in zip(runs, ["done", "failed", "unable", "done"], strict=True):
        write(tmp_path, {**done(run), "status": status})
    sample_file(tmp_path, runs[0]).parent.mkdir()
    sample_file(tmp_path, runs[0]).touch()
    # run 2 may be available elsewhere; the plan keeps rows, and run 3 has none
    assert pending(tmp_path, runs) == [runs[2], runs[3]]
    assert pending(tmp_path, runs, retry_failed=True) == list(runs[1:])


def test_a_failure_does_not_replace_a_completed_run(runs, tmp_path):
    write(tmp_path, done(runs[0]))
    write(tmp_path, failed_result(runs[0], "it broke"))
    write(tmp_path, {**facts_of(runs[0]), "status": "unable", "reason": "no GPU"})
    frame = collect(tmp_path, runs)
    assert frame["status"].tolist() == ["done"]
    assert frame["shape"].tolist() == [0.5]
