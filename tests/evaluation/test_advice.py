from __future__ import annotations

import ast
import shlex
import tomllib

import numpy as np
import pandas as pd
import pytest

from augmask.evaluation.advice import advice, advise
from augmask.evaluation.results import Entry, Scores

MODEL = {"backbone": "cdtd", "preset": "fast", "steps": 4000}
FILES = {"real": "my data/real.csv", "synthetic": "s.csv"}


def entry(value, group="fidelity", better="higher", reference=0.98, floor=0.6):
    return Entry(value, reference, floor, group, better, "Title", "")


def scores(key, found, tables=(), parts=None, **facts):
    return Scores({key: found}, dict(tables), facts, parts or {})


CASES = [
    ("trend", entry(0.7), "preset", "balanced"),
    ("dependence", entry(0.1, reference=1.0, floor=0.0), "preset", "balanced"),
    ("trend_worst_remasked", entry(0.7), "preset", "balanced"),
    ("alpha_precision", entry(0.7, "coverage"), "preset", "balanced"),
    ("mle", entry(0.7, "utility"), "backbone", "tabdiff"),
    ("c2st_auc", entry(0.9, "detection", "reference", 0.5, 1.0), "backbone", "tabdiff"),
    ("c2st_auc", entry(0.1, "detection", "reference", 0.5, 1.0), "steps", "2000"),
    ("beta_recall", entry(0.9, "coverage", "reference", 0.5, 0.1), "steps", "2000"),
    ("dcr_share", entry(0.9, "privacy", "lower", 0.5, None), "steps", "2000"),
    (
        "held_out_coverage_80",
        entry(0.4, "held-out", "reference", 0.8, None),
        "augmenter",
        "lgbm-s-calibrated",
    ),
]


@pytest.mark.parametrize(("key", "found", "flag", "value"), CASES)
def test_every_failing_score_has_a_command_to_paste(key, found, flag, value):
    facts = {"files": FILES, "model": MODEL, "flagged": [key]}
    words = shlex.split(advise(scores(key, found, **facts), key).line)
    assert words[:3] == ["augmask", "fit", FILES["real"]]
    assert words[words.index(f"--{flag}") + 1] == value
    # What is known of the model is repeated once.
    for known in ("backbone", "preset"):
        assert words.count(f"--{known}") == 1


@pytest.mark.parametrize(("key", "found", "flag", "value"), CASES)
def test_frames_get_a_line_of_python(key, found, flag, value):
    line = advise(scores(key, found, flagged=[key]), key).line
    (statement,) = ast.parse(line).body
    text = ast.unparse(statement)
    assert ".fit(df" in text
    assert value in text


@pytest.mark.parametrize("key", ["trend", "shape", "c2st_auc"])
def test_a_command_reads_the_file_as_it_was_read(key):
    reading = ["--na", "?", "--sep", ";"]
    found = entry(0.9, "detection", "reference", 0.5, 1.0)
    found = found if key == "c2st_auc" else entry(0.7)
    features = pd.DataFrame({"column": ["a"], "importance": [1.0]})
    columns = pd.DataFrame({"column": ["a"], "score": [0.1]})
    tables = {"features": features, "columns": columns}
    parts = {"real": pd.DataFrame({"a": [1.0, None]})}
    result = scores(key, found, tables, parts, files=FILES, reading=reading)
    line = advise(result, key).line.split("&& ")[-1]
    words = shlex.split(line)
    assert words[2] == FILES["real"]
    assert words[words.index("--na") :][:4] == reading


def test_a_good_score_has_no_advice():
    assert advice(scores("trend", entry(0.98))) == {}
    assert advise(scores("trend", entry(0.5, reference=None)), "trend") is None


def test_the_largest_preset_is_trained_for_longer():
    facts = {"files": FILES, "model": MODEL | {"preset": "best", "steps": 30_000}}
    line = advise(scores("trend", entry(0.7), **facts), "trend").line
    assert line.endswith("--steps 60000")


def test_the_worst_column_is_inspected():
    columns = pd.DataFrame({"column": ["age", "pay"], "score": [0.9, 0.4]})
    found = scores("shape", entry(0.5, floor=None), {"columns": columns})
    assert advise(found, "shape").line == "print(am.infer_schema(df)['pay'])"
    assert "'pay' is farthest off" in advise(found, "shape").text


def test_a_pair_of_categories_becomes_a_constraint():
    pairs = pd.DataFrame(
        {"first": ["city"], "second": ["zip"], "score": [0.3], "reference": [0.9]}
    )
    facts = {"columns": {"categorical": ["city", "zip"]}}
    found = scores("trend_worst", entry(0.7), {"pairs": pairs}, **facts)
    line = advise(found, "trend_worst").line
    assert line == "model = am.AugMask().fit(df, constraints=[['city', 'zip']])"
    found = scores("trend_worst", entry(0.7), {"pairs": pairs}, files=FILES, **facts)
    words = shlex.split(advise(found, "trend_worst").line)
    assert words[-2:] == ["--constraint", "city, zip"]


def test_a_column_that_gives_rows_away_may_mean_something_where_it_is_missing():
    name = 'a "quoted" name'
    real = pd.DataFrame({name: [1.0, np.nan]})
    features = pd.DataFrame({"column": [name], "importance": [1.0]})
    auc = entry(0.95, "detection", "reference", 0.5, 1.0)
    found = scores("c2st_auc", auc, {"features": features}, {"real": real}, files=FILES)
    words = shlex.split(advise(found, "c2st_auc").line)
    declared = tomllib.loads(words[1])
    assert declared == {"columns": {name: {"missing_as": "level"}}}
    assert words[-2:] == ["--schema", "schema.toml"]
