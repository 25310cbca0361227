"""Results: whole files, one table, and what is still to do."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from augmask_bench.plan import read_plan
from augmask_bench.results import (
    COLUMNS,
    collect,
    facts_of,
    failed,
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
    found = {"shape": 0.5, "mle": float("inf"), "facts": {"losses": [float("nan")]}}
    return {**facts_of(run), "status": "done", **found}


def test_files_that_a_killed_run_left_are_passed_over(runs, tmp_path):
    path = write(tmp_path, done(runs[0]))
    whole = path.read_text()
    (path.parent / f".{path.name}.abc.json").write_text(whole[:20])
    (path.parent / f".{path.name}.def.json").write_text(whole)
    (path.parent / "0a1b.json").write_text(whole[:20])
    assert collect(tmp_path, runs)["run"].tolist() == [runs[0].name]
    assert stale(tmp_path, []) == [runs[0].name]
    assert stale(tmp_path, runs) == []
    json.loads(whole, parse_constant=pytest.fail)  # no NaN, no Infinity


def test_the_table_has_the_same_columns_whatever_is_in_it(runs, tmp_path):
    empty = collect(tmp_path, runs)
    assert list(empty.columns) == list(COLUMNS)
    for run in runs[:3]:
        write(tmp_path, done(run))
    write(tmp_path, failed(runs[3], "it broke"))
    frame = collect(tmp_path, runs)
    assert list(frame.columns) == list(COLUMNS)
    assert frame["ratio"].dtype == frame["eta"].dtype == "float64"
    assert frame["aware"].tolist() == [False, True, False, True]
    assert frame["reason"].tolist() == ["", "", "", "it broke"]
    assert frame["mle"].isna().all()
    stored = pd.read_parquet(save_table(tmp_path, frame))
    pd.testing.assert_frame_equal(stored, frame, check_dtype=False)


def test_a_plan_gives_its_own_names_to_old_results(runs, tmp_path, write_plan):
    write(tmp_path, done(runs[0]))
    text = PLAN.replace('"cheap"', '"cheap"\nlabel = "Independent"')
    renamed = read_plan(write_plan(text)).runs
    assert collect(tmp_path, renamed)["method"].tolist() == ["Independent"]
    # and sees nothing of what it does not ask for
    other = read_plan(write_plan(PLAN.replace("100", "90"))).runs
    assert collect(tmp_path, other).empty


def test_what_is_over_is_not_pending(runs, tmp_path):
    assert pending(tmp_path, runs) == list(runs)
    for run, status in zip(runs, ["done", "failed", "unable", "done"], strict=True):
        write(tmp_path, {**done(run), "status": status})
    sample_file(tmp_path, runs[0]).parent.mkdir()
    sample_file(tmp_path, runs[0]).touch()
    # 2 may run on another machine, the rows of 3 are wanted and were not kept
    assert pending(tmp_path, runs) == [runs[2], runs[3]]
    assert pending(tmp_path, runs, retry_failed=True) == list(runs[1:])


def test_what_is_done_is_not_replaced_by_what_broke(runs, tmp_path):
    write(tmp_path, done(runs[0]))
    write(tmp_path, failed(runs[0], "it broke"))
    write(tmp_path, {**facts_of(runs[0]), "status": "unable", "reason": "no GPU"})
    frame = collect(tmp_path, runs)
    assert frame["status"].tolist() == ["done"]
    assert frame["shape"].tolist() == [0.5]
