from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augmask.errors import DataError, UsageError
from augmask_bench.ranks import METRICS, rank_table

from .synthetic_results import break_runs, make_results

THREE = ("G + NoAug", "G + AugFull", "G + AugMask")


def results_of(scores, status=None, names=THREE):
    """Return results of one metric from an array of blocks by methods."""
    rows = [
        {
            "dataset": f"d{b // 2}",
            "mechanism": "mcar",
            "ratio": 0.5,
            "seed": b % 2,
            "method": name,
            "generator": name.split(" + ")[0],
            "strategy": name.split(" + ")[1],
            "aware": False,
            "status": "done" if status is None else status[b][i],
            **dict.fromkeys(METRICS, np.nan),
            "shape": scores[b][i],
        }
        for b in range(len(scores))
        for i, name in enumerate(names)
    ]
    return pd.DataFrame(rows)


def test_ranks_with_ties_and_failures():
    scores = [
        [0.5, 0.9, 0.7],  # ranks 3 1 2
        [0.8, 0.8, 0.9],  # ranks 2.5 2.5 1
        [np.nan, 0.1, np.nan],  # two failures share places 2 and 3
        [0.3, 0.3 + 1e-9, 0.3],  # float noise is no difference: 2 2 2
    ]
    status = [["done"] * 3] * 2 + [["failed", "done", "failed"], ["done"] * 3]
    table = rank_table(results_of(scores, status))
    assert table.ranks["shape"].to_numpy().tolist() == [
        [3.0, 1.0, 2.0],
        [2.5, 2.5, 1.0],
        [2.5, 1.0, 2.5],
        [2.0, 2.0, 2.0],
    ]
    assert table.mean["shape"].tolist() == [2.5, 1.625, 1.875]
    # by hand: (0.5^2 + 0 + 0 + 0.5^2) / 3 under the root, for ranks 3, 2.5, 2.5, 2
    assert table.sd.loc["G + NoAug", "shape"] == pytest.approx(np.sqrt(0.5 / 3))
    assert table.delta["shape"].tolist()[1:] == [0.875, 0.625]
    assert np.isnan(table.delta.loc["G + NoAug", "shape"])
    assert table.methods["failed"].tolist() == [1, 0, 1]
    assert table.blocks == 4
    # the only metric measured is the summary too
    assert table.metrics == ("shape", "summary")
    assert table.mean["summary"].tolist() == [2.5, 1.625, 1.875]
    assert sum("was not measured" in note for note in table.notes) == 4


def test_the_summary_is_the_mean_over_metrics_within_a_block():
    results = results_of([[0.1, 0.2, 0.3]])
    results["trend"] = [0.9, 0.8, 0.7]
    results["mle"] = [0.9, 0.7, 0.8]
    table = rank_table(results)
    # ranks: shape 3 2 1, trend 1 2 3, mle 1 3 2
    assert table.mean["summary"].tolist() == pytest.approx([5 / 3, 7 / 3, 2.0])


@given(
    st.integers(1, 5).flatmap(
        lambda k: st.lists(
            st.lists(
                # few values and failures, so that ties are the rule
                st.sampled_from([0.0, 0.25, 0.5, 1.0, None]),
                min_size=k + 1,
                max_size=k + 1,
            ),
            min_size=1,
            max_size=6,
        )
    )
)
@settings(max_examples=40, deadline=None)
def test_ranks_of_every_block_add_up(scores):
    k = len(scores[0])
    if all(score is None for block in scores for score in block):
        return
    status = [["failed" if s is None else "done" for s in block] for block in scores]
    names = [f"G{i} + NoAug" for i in range(k)]
    table = rank_table(results_of(scores, status, names))
    for metric in table.metrics:
        assert (table.ranks[metric].sum(axis=1) == k * (k + 1) / 2).all()
    assert table.mean["shape"].mean() == pytest.approx((k + 1) / 2)


def test_ranks_are_invariant_to_row_order_and_monotone_scales():
    lifts = {"A + NoAug": 0.0, "A + AugMask": 0.05, "MIWAE": 0.03, "B + NoAug": 0.01}
    results = make_results(lifts, noise=0.03)
    table = rank_table(results)
    bent = results.sample(frac=1, random_state=3)
    # log of a positive score keeps order; its differences do not
    bent["trend"] = np.log(bent["trend"]) * 50
    again = rank_table(bent)
    pd.testing.assert_frame_equal(table.ranks, again.ranks)
    pd.testing.assert_frame_equal(table.methods, again.methods)
    assert list(table.methods.index) == [
        "MIWAE",
        "A + NoAug",
        "A + AugMask",
        "B + NoAug",
    ]


def test_only_common_blocks_are_ranked():
    lifts = {"A + NoAug": 0.0, "A + AugMask": 0.1, "B + NoAug": -0.1}
    results = make_results(lifts)
    gone = (results["method"] == "B + NoAug") & (results["dataset"] == "table_1")
    table = rank_table(results[~gone])
    assert table.blocks == 4
    assert table.ranks.index.unique("dataset").tolist() == ["table_0"]
    assert any("4 of 8 blocks" in note and "B + NoAug" in note for note in table.notes)
    # unable is not failed: the others are compared everywhere, and it is said aloud
    unable = break_runs(results, "B + NoAug", "unable", "needs a GPU")
    table = rank_table(unable)
    assert table.blocks == 8
    assert list(table.methods.index) == ["A + NoAug", "A + AugMask"]
    assert any("B + NoAug" in note and "needs a GPU" in note for note in table.notes)
    failed = rank_table(break_runs(results, "A + AugMask"))
    assert failed.mean.loc["A + AugMask", "summary"] == 3.0
    assert failed.methods.loc["A + AugMask", "failed"] == 8


def test_mechanisms_are_ranked_separately_or_together():
    lifts = {"A + NoAug": 0.0, "A + AugMask": 0.1}
    results = make_results(lifts, mechanisms=("mcar", "mar"))
    # under MAR the order is the other way round
    mar = results["mechanism"] == "mar"
    results.loc[mar, list(METRICS)] *= -1
    for mechanism, delta in (("mcar", 1.0), ("mar", -1.0), (None, 0.0)):
        table = rank_table(results, mechanism)
        assert table.delta.loc["A + AugMask", "summary"] == delta
        assert table.mechanism == (mechanism or "all")


def test_augmented_tables_are_not_ranked_unless_named():
    results = make_results({"A + NoAug": 0.0, "A + AugMask": 0.1, "fill: mean": 0.2})
    results.loc[results["method"] == "fill: mean", "generator"] = "fill"
    assert "fill: mean" not in rank_table(results).methods.index
    named = rank_table(results, methods=["A + NoAug", "fill: mean"])
    assert named.mean.loc["fill: mean", "summary"] == 1.0


def test_two_noaug_of_one_generator_give_no_delta():
    results = make_results(
        {"A + NoAug": 0.0, "A + NoAug (zero)": 0.1, "A + AugMask": 0.2}
    )
    table = rank_table(results)
    assert table.delta.isna().all(axis=None)
    assert any("2 NoAug" in note for note in table.notes)


def test_tables_that_cannot_be_ranked_raise():
    results = make_results({"A + NoAug": 0.0, "A + AugMask": 0.1})
    with pytest.raises(DataError, match="column 'trend'"):
        rank_table(results.drop(columns="trend"))
    with pytest.raises(DataError, match="two methods"):
        rank_table(results[results["method"] == "A + NoAug"])
    with pytest.raises(DataError, match="has several in"):
        rank_table(pd.concat([results, results]))
    with pytest.raises(DataError, match="none of the 16 runs"):
        rank_table(break_runs(break_runs(results, "A + NoAug"), "A + AugMask"))
    first, base = results["dataset"] == "table_0", results["method"] == "A + NoAug"
    with pytest.raises(DataError, match="got none"):
        rank_table(results[first == base])
    with pytest.raises(UsageError, match="did you mean 'mcar'"):
        rank_table(results, "mcarr")
    with pytest.raises(UsageError, match="no method 'A'"):
        rank_table(results, methods=["A", "A + NoAug"])
