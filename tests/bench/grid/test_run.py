"""One run: the protocol, its result, and its failures."""

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
from augmask_bench.figures.data import column_roles, kept_rows
from augmask_bench.generators import Generated, Generator
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
options = { steps = 5, batch_size = 32, width = 16, depth = 1, sampling_steps = 4 }
"""


@pytest.fixture
def add_generator():
    """Give a function that registers a generator for one test."""
    before = dict(GENERATORS)
    yield lambda name, function, **needs: register(
        Generator(name, name, function, **needs)
    )
    GENERATORS.clear()
    GENERATORS.update(before)


def runs_of(write_plan, text):
    return read_plan(write_plan(HEAD + text)).runs


@pytest.mark.parametrize("generator", ["cdtd", "tabdiff", "tabddpm"])
def test_a_backbone_completes_a_run(generator, write_plan, tmp_path):
    entry = f'[[methods]]\ngenerator = "{generator}"\nstrategy = "AugMask"\n'
    (run,) = runs_of(write_plan, entry + TINY)
    result = execute(run, tmp_path)
    assert result["status"] == "done", result
    assert set(result) <= COLUMNS.keys() | {"restarts"}
    assert all(isinstance(result[metric], float) for metric in METRICS)
    assert result["mle"] == pytest.approx(result["mle_real"] / result["mle_synthetic"])
    assert (result["rows"], result["columns"], result["steps"]) == (90, 16, 5)
    assert result["augment_seconds"] > 0
    assert json.loads(result["versions"])["augmask"] == am.__version__
    json.dumps(result)
    assert len(pd.read_parquet(sample_file(tmp_path, run))) == 90
    # the same run, now with the caches of the folder
    again = execute(run, tmp_path)
    assert [again[m] for m in METRICS] == [result[m] for m in METRICS]


def test_all_methods_of_a_block_get_the_same_incomplete_table(
    write_plan, tmp_path, add_generator
):
    tables = []

    def look(request):
        tables.append(request.table)
        return Generated(request.table.ffill().bfill())

    add_generator("looks", look)
    add_generator("looks too", look)
    text = '[[methods]]\ngenerator = ["looks", "looks too"]\n'
    for run in runs_of(write_plan, text):
        execute(run, tmp_path)
    pd.testing.assert_frame_equal(*tables)
    train, _ = split(Source("clinic-stay", rows=150).load().frame, None, 0)
    incomplete = am.ampute(train, mechanism="mcar", ratio=0.4, seed=0)
    pd.testing.assert_frame_equal(tables[0], incomplete)
    (file,) = (tmp_path / "real").iterdir()
    pd.testing.assert_frame_equal(
        pd.read_parquet(file), train, check_dtype=False, check_categorical=False
    )


def test_a_complete_table_is_augmented_by_the_strategy_s_augmenter(
    write_plan, tmp_path
):
    text = '[[methods]]\ngenerator = "filled"\n[[methods]]\ngenerator = "fill"\n'
    runs = runs_of(write_plan, text + 'augmenter = ["mean", "lgbm-s"]\n')
    results = [execute(run, tmp_path) for run in runs]
    assert [result["status"] for result in results] == ["done"] * 4
    assert [result["method"] for result in results] == [
        "Filled + NoAug",
        "Filled + AugFull",
        "fill: Mean",
        "fill: LGBM-S",
    ]
    # of an augmenter alone, the augmented training rows are scored
    train, _ = split(Source("clinic-stay", rows=150).load().frame, None, 0)
    incomplete = am.ampute(train, mechanism="mcar", ratio=0.4, seed=0)
    augmented = pd.read_parquet(sample_file(tmp_path, runs[3]))
    observed = incomplete["age"].notna()
    assert (augmented.loc[observed, "age"] == train.loc[observed, "age"]).all()
    assert results[3]["shape"] > results[2]["shape"]
    # the time of augmentation is reported for all of them
    assert all(results[k]["augment_seconds"] > 0 for k in (1, 3))


def test_a_method_that_raises_has_failed(write_plan, tmp_path):
    text = '[[methods]]\ngenerator = "cheap"\noptions = { break = 1 }\n'
    (run,) = runs_of(write_plan, text)
    result = execute(run, tmp_path)
    assert result["status"] == "failed"
    assert result["reason"] == "RuntimeError: it broke"
    assert not sample_file(tmp_path, run).exists()


def test_incomplete_rows_are_a_failure_of_the_method(
    write_plan, tmp_path, add_generator
):
    add_generator("incomplete", lambda request: Generated(request.table))
    (run,) = runs_of(write_plan, '[[methods]]\ngenerator = "incomplete"\n')
    result = execute(run, tmp_path)
    assert result["status"] == "failed"
    assert "of the synthetic table has" in result["reason"]
    assert "missing" in result["reason"]


def test_an_unavailable_method_reports_the_reason(write_plan, tmp_path):
    (run,) = runs_of(write_plan, '[[methods]]\ngenerator = "absent"\n')
    result = execute(run, tmp_path)
    assert result["status"] == "unable"
    assert "no_such_package" in result["reason"]


def test_a_generator_without_a_time_limit_is_stopped(
    write_plan, tmp_path, add_generator
):
    def sleep_forever(request):
        while True:
            time.sleep(0.01)

    add_generator("slow", sleep_forever)
    text = 'max_minutes = 0.005\n[[methods]]\ngenerator = "slow"\n'
    (run,) = read_plan(write_plan(text.replace("[[", HEAD + "[[", 1))).runs
    began = time.monotonic()
    result = execute(run, tmp_path)
    assert time.monotonic() - began < 20
    assert (result["status"], result["reason"]) == ("failed", "out of time")


def test_a_missing_table_is_not_a_failure_of_the_method(
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
    with pytest.raises(UsageError, match="has changed since the plan was read"):
        execute(run, tmp_path)


def test_a_broken_folder_is_not_a_failure_of_the_method(write_plan, tmp_path):
    out = tmp_path / "file"
    out.write_text("not a folder")
    text = '[[methods]]\ngenerator = "fill"\naugmenter = "lgbm-s"\n'
    (run,) = runs_of(write_plan, text)
    # fills and rows are stored before they are used
    for keep in (False, True):
        with pytest.raises((OSError, DataError)):
            execute(replace(run, keep=keep), out)


def test_figures_recover_the_roles_of_columns(write_plan, tmp_path):
    (run,) = runs_of(write_plan, '[[methods]]\ngenerator = "cheap"\n')
    result = execute(run, tmp_path)
    results.write(tmp_path, result)
    line = results.collect(tmp_path, [run]).iloc[0]
    real, rows = kept_rows(tmp_path, line)
    data = Source("clinic-stay", rows=150).load()
    numeric, categorical = column_roles(real)
    assert set(numeric) == set(data.numeric)
    assert set(categorical) == set(data.categorical)
    assert len(rows) == len(real)
