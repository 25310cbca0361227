from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import rankdata, wilcoxon

from augmask.errors import UsageError
from augmask_bench.ranks import rank_table
from augmask_bench.significance import (
    MAX_EXACT,
    cluster_interval,
    gains,
    holm,
    signed_rank,
)

from .synthetic_results import break_runs, make_results


def test_the_exact_test_enumerates_all_signs_with_ties_and_zeros():
    d = np.array([0.0, 0.2, -0.2, 0.2, 0.5, 0.0, -0.1])
    ranks = rankdata(np.abs(d))[d != 0]
    found = ranks[d[d != 0] > 0].sum()
    sums = [np.dot(signs, ranks) for signs in product([0, 1], repeat=len(ranks))]
    greater, less = signed_rank(d)
    assert greater == pytest.approx(np.mean([s >= found for s in sums]))
    assert less == pytest.approx(np.mean([s <= found for s in sums]))


@pytest.mark.parametrize("n", [12, MAX_EXACT, MAX_EXACT + 1])
def test_it_agrees_with_scipy_without_ties(n, rng):
    d = rng.normal(0.05, 1, n)
    for p, side in zip(signed_rank(d), ("greater", "less"), strict=True):
        exact = wilcoxon(d.round(6), alternative=side, method="exact").pvalue
        assert p == pytest.approx(exact, abs=2e-3 if n > MAX_EXACT else 1e-9)


def test_it_agrees_with_the_normal_limit_on_many_ties(rng):
    d = rng.normal(0.1, 1, 180).round(1)
    assert (d == 0).sum() > 3
    limit = wilcoxon(d, zero_method="pratt", alternative="greater").pvalue
    assert signed_rank(d)[0] == pytest.approx(limit, rel=0.03)


def test_noise_below_the_sixth_decimal_is_no_difference():
    assert signed_rank(np.zeros(9)) == (1.0, 1.0)
    assert signed_rank(np.full(9, 1e-9)) == (1.0, 1.0)


def test_holm_on_a_known_example():
    # sorted: 0.005*4, 0.01*3, 0.03*2, 0.04*1, and no later one below an earlier one
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]).tolist() == [1.0, 1.0]


def test_the_bootstrap_resamples_datasets(rng):
    means = np.array([1.0, 2.0, 3.0, 4.0])
    low, high = cluster_interval(means, rng)
    # every mean of four draws of these: 4 or more of 256 lie on each side of these
    assert 1.0 < low < 1.75
    assert 3.25 < high < 4.0
    assert np.isnan(cluster_interval([1.0], rng)).all()


@pytest.fixture
def rng():
    return np.random.default_rng(5)


LIFTS = {
    "MIWAE": 0.0,
    "ForestDiff": 0.05,
    "Better + AugMask": 0.10,
    "Equal + AugMask": 0.05,
    "Worse + AugMask": 0.02,
}


def test_known_effects_get_the_right_marks(rng):
    results = make_results(
        LIFTS, noise=0.01, datasets=6, ratios=(0.1, 0.3, 0.5, 0.7, 0.9), seeds=3
    )
    table = rank_table(results)
    found = gains(table, rng)
    assert found.rival == "the best of ForestDiff, MIWAE in each block"
    marks = found.tests["mark"].unstack("metric")
    assert (marks.loc["Better + AugMask"] == "gain").all()
    assert (marks.loc["Equal + AugMask"] == "match").sum() >= 5
    assert (marks.loc["Worse + AugMask"] == "").all()
    assert set(marks.index) == {name for name in LIFTS if "+" in name}
    assert found.mark("Better + AugMask", "shape") == "**"
    assert found.mark("Worse + AugMask", "shape") == found.mark("MIWAE", "shape") == ""
    better = found.tests.loc["Better + AugMask", "shape"]
    assert better["low"] < 0.05 < better["high"] + 0.003
    # six datasets of six: no test on their means can say more
    assert better["p_datasets"] == 1 / 64
    assert better["p_holm"] > better["p"]
    assert any(
        "not independent" in note and "6 datasets" in note for note in found.notes
    )


def test_a_named_rival_and_no_rival(rng):
    results = make_results({"A + NoAug": 0.0, "A + AugMask": 0.1}, noise=0.01, seeds=4)
    table = rank_table(results)
    assert table.blocks == 16
    nobody = gains(table, rng)
    assert nobody.tests.empty
    assert nobody.mark("A + AugMask", "shape") == ""
    assert "No missing-aware baseline" in nobody.notes[0]
    found = gains(table, rng, against="A + NoAug")
    assert found.tests["mark"].tolist() == ["gain"] * 6
    with pytest.raises(UsageError, match="did you mean 'A \\+ NoAug'"):
        gains(table, rng, against="A + NoAgu")


def test_equal_methods_match(rng):
    results = make_results({"A + NoAug": 0.0, "A + AugMask": 0.0})
    found = gains(rank_table(results), rng, against="A + NoAug")
    assert (found.tests["p"] == 1).all()
    assert (found.tests["mark"] == "match").all()


def test_too_few_blocks_for_any_gain_are_noted(rng):
    lifts = {"MIWAE": 0.0, "A + AugMask": 0.1}
    few = gains(rank_table(make_results(lifts, seeds=1)), rng)
    # four blocks: the smallest p is 1/16, times six tests
    assert not (few.tests["mark"] == "gain").any()
    assert any("no Gain is possible" in note for note in few.notes)
    many = gains(rank_table(make_results(lifts, seeds=2)), rng)
    assert (many.tests["mark"] == "gain").all()
    assert not any("no Gain is possible" in note for note in many.notes)


def test_a_failed_run_counts_against_the_method(rng):
    results = make_results({"MIWAE": 0.0, "A + AugMask": 0.1}, datasets=4, seeds=3)
    whole = gains(rank_table(results), rng).tests.loc["A + AugMask", "shape"]
    part = break_runs(results, "A + AugMask", dataset="table_0")
    found = gains(rank_table(part), rng)
    broken = found.tests.loc["A + AugMask", "shape"]
    assert whole["mark"] == "gain"
    assert broken["mark"] == "match"
    # three datasets gained 0.1, one lost all of the rival's 0.64 on average
    assert broken["difference"] == pytest.approx((3 * 0.1 - 0.64) / 4)
    assert any("score 0" in note for note in found.notes)


def test_blocks_overstate_the_evidence_and_datasets_do_not():
    # No method is better, but each has a taste for some datasets.
    blocks, datasets = [], []
    for seed in range(60):
        results = make_results(
            {"MIWAE": 0.0, "A + AugMask": 0.0},
            noise=0.03,
            dataset_noise=0.03,
            datasets=6,
            ratios=(0.1, 0.5, 0.9),
            seeds=3,
            seed=seed,
        )
        table = rank_table(results)
        wide = table.scores["shape"]
        d = wide["A + AugMask"] - wide["MIWAE"]
        blocks.append(signed_rank(d)[0] < 0.05)
        datasets.append(signed_rank(d.groupby(level="dataset").mean())[0] < 0.05)
    assert np.mean(blocks) > 0.15
    assert np.mean(datasets) < 0.1
