"""Every metric by data set: means, gains, marks, and four layouts of them."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from tests.bench.synthetic_results import make_results

from augmask_bench.dataset_tables import csv, dataset_tables, latex, markdown, terminal
from augmask_bench.ranks import METRICS, rank_table

LIFTS = {
    "MIWAE": 0.0,
    "DiffPuter": -0.02,
    "CDTD + NoAug": -0.1,
    "CDTD + AugMask": 0.1,
    "50%_odd|* + NoAug": 0.0,
}


@pytest.fixture
def results() -> pd.DataFrame:
    return make_results(LIFTS, noise=0.01, ratios=(0.1, 0.3, 0.5, 0.7, 0.9), seeds=3)


@pytest.fixture
def tables(results):
    return dataset_tables(rank_table(results, "mcar"))


def test_there_is_a_table_per_metric_of_all_methods_and_data_sets(tables):
    assert [table.metric for table in tables] == list(METRICS)
    for table in tables:
        assert table.datasets == ["table_0", "table_1"]
        assert len(table.cells) == 2 * len(LIFTS)
        assert set(table.cells["blocks"]) == {15}


def test_means_deviations_and_gains_are_those_of_the_scores(tables, results):
    table = next(table for table in tables if table.metric == "shape")
    mine = results[results["dataset"] == "table_1"].set_index("method")["shape"]
    line = table.cells.loc[("CDTD + AugMask", "table_1")]
    scores = mine["CDTD + AugMask"]
    assert line["mean"] == pytest.approx(scores.mean(), abs=1e-6)
    assert line["sd"] == pytest.approx(scores.std(ddof=1), abs=1e-6)
    gain = 100 * (scores.mean() / mine["CDTD + NoAug"].mean() - 1)
    assert line["gain"] == pytest.approx(gain, abs=1e-3)
    assert np.isnan(table.cells.loc[("MIWAE", "table_1"), "gain"])
    shown = f"{100 * scores.mean():.1f} ± {100 * scores.std(ddof=1):.1f}"
    assert f"**{shown}**" in markdown(table)
    assert f"({gain:+.1f}%)" in markdown(table)
    assert shown.replace(" ± ", "±") in terminal(table)


def test_marks_are_those_of_the_data_set(tables):
    for table in tables:
        for dataset in table.datasets:
            assert table.mark("CDTD + AugMask", dataset) == "**"
            assert table.mark("CDTD + NoAug", dataset) == ""
            # a baseline that is part of the rival is not tested
            assert table.mark("MIWAE", dataset) == ""
    assert "the best of DiffPuter, MIWAE in each block" in " ".join(
        terminal(tables[0]).split()
    )


def test_five_blocks_gain_without_holm_only():
    few = make_results(LIFTS, ratios=(0.1, 0.3, 0.5, 0.7, 0.9), seeds=1)
    table = dataset_tables(rank_table(few, "mcar"))[0]
    # p is at least 1/32, and there are six tests
    assert table.mark("CDTD + AugMask", "table_0") == "*†"
    assert r"$^{*\dagger}$" in latex(table)
    assert "**" not in markdown(table).split("\n\n")[1]
    none = make_results(LIFTS, ratios=(0.1, 0.3), seeds=1)
    assert "With 2 blocks of a data set no Gain is possible." in terminal(
        dataset_tables(rank_table(none, "mcar"))[0]
    )


def test_failed_runs_are_not_part_of_a_mean(results):
    failed = (results["method"] == "CDTD + AugMask") & (results["dataset"] == "table_0")
    first = failed & (results["seed"] == 0)
    broken = results.assign(status=results["status"].mask(first, "failed"))
    table = dataset_tables(rank_table(broken, "mcar"))[0]
    line = table.cells.loc[("CDTD + AugMask", "table_0")]
    assert (line["blocks"], line["failed"]) == (10, 5)
    assert line["mean"] > 0.5
    assert "Failed runs are not part of a mean" in terminal(table)
    all_failed = results.assign(status=results["status"].mask(failed, "failed"))
    text = markdown(dataset_tables(rank_table(all_failed, "mcar"))[0])
    assert "| –" in text


def test_without_a_missing_aware_baseline_there_are_no_marks(results):
    ours = results[~results["aware"]]
    table = dataset_tables(rank_table(ours, "mcar"))[0]
    assert table.mark("CDTD + AugMask", "table_0") == ""
    assert "Wilcoxon" not in terminal(table)
    against = dataset_tables(rank_table(ours, "mcar"), "CDTD + NoAug")[0]
    assert against.mark("CDTD + AugMask", "table_0") == "**"


def test_csv_has_all_digits_of_all_metrics(tables):
    frame = pd.read_csv(io.StringIO(csv(tables)))
    assert len(frame) == len(METRICS) * 2 * len(LIFTS)
    line = frame.set_index(["metric", "method", "dataset"]).loc[
        ("mle", "CDTD + AugMask", "table_0")
    ]
    mean = tables[-1].cells.loc[("CDTD + AugMask", "table_0"), "mean"]
    assert line["mean"] == mean
    assert line["mark"] == "gain"


def test_latex_is_balanced_and_escaped(tables):
    for table in tables:
        text = latex(table)
        assert text.count("{") == text.count("}")
        assert r"50\%\_odd" in text
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        methods = [row for row in rows if "multicolumn" not in row]
        assert {row.count("&") - row.count(r"\&") for row in methods} == {4}
        assert r"\rowcolor{blue!7}" in text


def test_markdown_has_a_cell_for_every_data_set(tables):
    for line in markdown(tables[0]).splitlines():
        if line.startswith("|"):
            assert line.replace(r"\|", "").count("|") == 4
