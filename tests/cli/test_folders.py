"""Commands that read and write folders of Parquet files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from .conftest import make_frame


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("lake").mkdir()
    for i, rows in enumerate(np.array_split(np.arange(600), 3)):
        make_frame(600).iloc[rows].to_parquet(f"lake/{i}.parquet", index=False)
    return tmp_path


def test_sample_into_a_folder_and_its_status(desk, run_cli, good_model):
    command = ["sample", good_model, "-n", 90, "--out", "out", "--partitions", 3]
    result = run_cli(*command, "--jobs", 1, "--json")
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    assert (facts["rows"], facts["partitions"], facts["file"]) == (90, 3, "out")
    reports = [json.loads(line) for line in result.err.splitlines()]
    assert [line["done"] for line in reports][-1] == 90
    assert len(pd.read_parquet("out")) == 90

    result = run_cli("status", "out")
    assert result.code == 0, result.err
    assert result.out == "out: sample, finished\n  rows  3 of 3 parts\n"
    Path("out/part-00001.parquet").unlink()
    status = json.loads(run_cli("status", "out", "--json").out)
    assert (status["job"], status["finished"]) == ("sample", False)
    (stage,) = status["stages"]
    assert (stage["name"], stage["done"], stage["total"]) == ("rows", 2, 3)
    assert "last change" in run_cli("status", "out").out
    assert run_cli(*command).code == 0
    assert json.loads(run_cli("status", "out", "--json").out)["finished"]
    result = run_cli(*command, "--seed", 5)
    assert result.code == 2
    assert "out holds another sample job" in result.err


def test_a_rate_is_told_for_a_condition(desk, run_cli, good_model):
    result = run_cli(
        *("sample", good_model, "-n", 40, "--out", "out", "--partitions", 2),
        *("--where", "age > 30", "--jobs", 1),
    )
    assert result.code == 0, result.err
    assert "of unconditional rows satisfy the condition" in result.out


@pytest.mark.parametrize("source", ["lake", "lake/*.parquet"])
def test_impute_into_a_folder(desk, run_cli, good_model, source):
    lake = pd.read_parquet("lake")
    result = run_cli("impute", good_model, source, "--out", "full", "--jobs", 1)
    assert result.code == 0, result.err
    assert f"{int(lake.isna().sum().sum())} missing values imputed" in result.out
    full = pd.read_parquet("full")
    assert len(full) == 600
    assert not full.isna().any().any()
    assert run_cli("status", "full").out.startswith("full: impute, finished")


def test_inspect_evaluate_and_report_on_folders(desk, run_cli, good_model):
    result = run_cli("inspect", "lake")
    assert result.code == 0, result.err
    assert "lake: a sample of 600 of 600 rows, 4 columns" in result.out
    make_frame(600).dropna().to_parquet("synthetic.parquet", index=False)
    result = run_cli("evaluate", "lake", "synthetic.parquet", "--json")
    assert result.code == 0, result.err
    scores = json.loads(result.out)
    assert scores["facts"]["sampled"] == {"real": 600}
    assert "stratified sample" in " ".join(scores["facts"]["notes"])
    Path("rows").mkdir()
    Path("synthetic.parquet").rename("rows/synthetic.parquet")
    result = run_cli("report", "lake", "rows", "--out", "page.html")
    assert result.code == 0, result.err
    assert "sampled from 600" in Path("page.html").read_text()
