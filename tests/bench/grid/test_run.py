"""One run: the protocol, what it records, and how it breaks."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pandas as pd
import pytest

import augmask as am
from augmask.errors import DataError, UsageError
from augmask_bench import results
from augmask_bench.data import Source, split
from augmask_bench.figures.kept import kept_rows, kinds
from augmask_bench.generator import Generator, Made
from augmask_bench.methods import GENERATORS, register
from augmask_bench.plan import read_plan
from augmask_bench.ranks import METRICS
from augmask_bench.results import COLUMNS, sample_file
from augmask_bench.run import execute

HEAD = """
ratios = [0.4]
keep = true
datasets = [{ name = "clinic-stay", rows = 150 }]
"""
TINY = """
preset = "fast"
options = { steps = 5, batch = 32, width = 16, depth = 1, sampling_steps = 4 }
"""


@pytest.fixture
def brought():
    """Register generators for one test."""
    before = dict(GENERATORS)
    yield lambda name, make, **needs: register(Generator(name, name, make, **needs))
    GENERATORS.clear()
    GENERATORS.update(before)


def runs_of(write_plan, text):
    return read_plan(write_plan(HEAD + text)).runs


@pytest.mark.parametrize("generator", ["cdtd", "tabdiff", "tabddpm"])
def test_a_backbone_goes_all_the_way(generator, write_plan, tmp_path):
    entry = f'[[methods]]\ngenerator = "{generator}"\nstrategy = "AugMask"\n'
    (run,) = runs_of(write_plan, entry + TINY)
    record = execute(run, tmp_path)
    assert record["status"] == "done", record
    assert set(record) <= COLUMNS.keys() | {"restarts"}
    assert all(isinstance(record[metric], float) for metric in METRICS)
    assert record["mle"] == pytest.approx(record["mle_real"] / record["mle_synthetic"])
    assert (record["rows"], record["columns"], record["steps"]) == (90, 16, 5)
    assert record["augment_seconds"] > 0
    assert json.loads(record["versions"])["augmask"] == am.__version__
    json.dumps(record)
    assert len(pd.read_parquet(sample_file(tmp_path, run))) == 90
    # the same run, its fill and its real side now from the folder
    again = execute(run, tmp_path)
    assert [again[m] for m in METRICS] == [record[m] for m in METRICS]


def test_all_methods_of_a_block_meet_the_same_holes(write_plan, tmp_path, brought):
    seen = []

    def look(request):
        seen.append(request.table)
        return Made(request.table.ffill().bfill())

    brought("looks", look)
    brought("looks too", look)
    text = '[[methods]]\ngenerator = ["looks", "looks too"]\n'
    for run in runs_of(write_plan, text):
        execute(run, tmp_path)
    pd.testing.assert_frame_equal(*seen)
    train, _ = split(Source("clinic-stay", rows=150).load().frame, None, 0)
    holed = am.ampute(train, "mcar", 0.4, 0)
    pd.testing.assert_frame_equal(seen[0], holed)
    (kept,) = (tmp_path / "real").iterdir()
    pd.testing.assert_frame_equal(
        pd.read_parquet(kept), train, check_dtype=False, check_categorical=False
    )


def test_one_that_needs_a_complete_table_gets_the_strategy_s(write_plan, tmp_path):
    text = '[[methods]]\ngenerator = "filled"\n[[methods]]\ngenerator = "fill"\n'
    runs = runs_of(write_plan, text + 'augmenter = ["mean", "lgbm-s"]\n')
    records = [execute(run, tmp_path) for run in runs]
    assert [record["status"] for record in records] == ["done"] * 4
    assert [record["method"] for record in records] == [
        "Filled + NoAug",
        "Filled + AugFull",
        "fill: Mean",
        "fill: LGBM-S",
    ]
    # of the rules alone the filled training rows are what is scored
    train, _ = split(Source("clinic-stay", rows=150).load().frame, None, 0)
    holed = am.ampute(train, "mcar", 0.4, 0)
    filled = pd.read_parquet(sample_file(tmp_path, runs[3]))
    seen = holed["age"].notna()
    assert (filled.loc[seen, "age"] == train.loc[seen, "age"]).all()
    assert records[3]["shape"] > records[2]["shape"]
    # what the rule cost is told, whoever wanted the table filled
    assert all(records[k]["augment_seconds"] > 0 for k in (1, 3))


def test_a_method_that_breaks_is_recorded(write_plan, tmp_path):
    text = '[[methods]]\ngenerator = "cheap"\noptions = { break = 1 }\n'
    (run,) = runs_of(write_plan, text)
    record = execute(run, tmp_path)
    assert record["status"] == "failed"
    assert record["reason"] == "RuntimeError: it broke"
    assert not sample_file(tmp_path, run).exists()


def test_rows_that_cannot_be_scored_are_a_failure_of_the_method(
    write_plan, tmp_path, brought
):
    brought("holes", lambda request: Made(request.table))
    (run,) = runs_of(write_plan, '[[methods]]\ngenerator = "holes"\n')
    record = execute(run, tmp_path)
    assert record["status"] == "failed"
    assert "complete" in record["reason"]


def test_one_that_cannot_run_here_says_why(write_plan, tmp_path):
    (run,) = runs_of(write_plan, '[[methods]]\ngenerator = "absent"\n')
    record = execute(run, tmp_path)
    assert record["status"] == "unable"
    assert "no_such_package" in record["reason"]


def test_one_that_cannot_keep_time_is_stopped(write_plan, tmp_path, brought):
    def dawdle(request):
        while True:
            time.sleep(0.01)

    brought("slow", dawdle)
    text = 'max_minutes = 0.005\n[[methods]]\ngenerator = "slow"\n'
    (run,) = read_plan(write_plan(text.replace("[[", HEAD + "[[", 1))).runs
    began = time.monotonic()
    record = execute(run, tmp_path)
    assert time.monotonic() - began < 20
    assert (record["status"], record["reason"]) == ("failed", "out of time")


def test_a_table_that_cannot_be_had_is_nobody_s_failure(
    write_plan, own_table, tmp_path
):
    text = '[[datasets]]\npath = "mine.csv"\ntarget = "grade"\n'
    (run,) = read_plan(write_plan(text + '[[methods]]\ngenerator = "cheap"\n')).runs
    own_table.unlink()
    with pytest.raises(DataError, match="no such file"):
        execute(run, tmp_path)


def test_a_table_that_changed_since_the_plan_was_read_is_not_run(
    write_plan, own_table, tmp_path
):
    text = '[[datasets]]\npath = "mine.csv"\ntarget = "grade"\n'
    (run,) = read_plan(write_plan(text + '[[methods]]\ngenerator = "cheap"\n')).runs
    pd.read_csv(own_table)[:90].to_csv(own_table, index=False)
    with pytest.raises(UsageError, match="not what it was when the plan was read"):
        execute(run, tmp_path)


def test_trouble_with_the_folder_is_nobody_s_failure(write_plan, tmp_path):
    out = tmp_path / "file"
    out.write_text("no folder")
    text = '[[methods]]\ngenerator = "fill"\naugmenter = "lgbm-s"\n'
    (run,) = runs_of(write_plan, text)
    # what is shared between runs can be done without, rows that are wanted cannot
    record = execute(replace(run, keep=False), out)
    assert record["status"] == "done", record
    with pytest.raises((OSError, DataError)):
        execute(run, out)


def test_figures_know_the_roles_of_kept_columns(write_plan, tmp_path):
    (run,) = runs_of(write_plan, '[[methods]]\ngenerator = "cheap"\n')
    record = execute(run, tmp_path)
    results.write(tmp_path, record)
    line = results.collect(tmp_path, [run]).iloc[0]
    real, rows = kept_rows(tmp_path, line)
    data = Source("clinic-stay", rows=150).load()
    numeric, categorical = kinds(real)
    assert set(numeric) == set(data.numeric)
    assert set(categorical) == set(data.categorical)
    assert len(rows) == len(real)
