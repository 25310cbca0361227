from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augmask.report.aggregates import (
    MIN_COUNT,
    bars,
    bin_codes,
    dependence,
    frequent_levels,
    hide_sparse,
    histogram,
    joint,
    merge_small,
    missing_patterns,
    project,
    round_edges,
    smooth_counts,
)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=30))
def test_merged_bins_are_empty_or_large_and_lose_no_row(counts):
    starts = merge_small(np.array(counts))
    assert starts[0] == 0
    assert starts[-1] == len(counts)
    assert starts == sorted(set(starts))
    sums = np.add.reduceat(np.array(counts), starts[:-1])
    if sum(counts) >= MIN_COUNT:
        assert all(s == 0 or s >= MIN_COUNT for s in sums)
    else:
        assert sum(counts) == 0 or len([s for s in sums if s]) == 1


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=40, max_size=80),
    st.floats(1e7, 1e12),
)
def test_no_edge_reveals_an_outlier(values, outlier):
    edges = round_edges(np.array([*values, outlier]))
    assert edges is not None
    assert (np.diff(edges) > 0).all()
    assert edges[-1] < outlier
    codes = bin_codes(np.array([*values, outlier, -outlier, np.nan]), edges)
    assert codes[-1] == -1
    assert codes[:-1].min() >= 0
    assert codes[:-1].max() < len(edges) - 1


def test_integers_get_a_bin_each():
    edges = round_edges(np.repeat(np.arange(1.0, 8.0), 20))
    assert edges.tolist() == (np.arange(1, 9) - 0.5).tolist()


def test_too_few_values_are_not_shown():
    assert round_edges(np.arange(9.0)) is None
    few = {"real": pd.DataFrame({"x": [1.5, 2.5, None], "y": ["a", "a", None]})}
    assert histogram(few, "x") is None
    assert bars(few, "y") is None


@pytest.mark.parametrize("missing", [0, 30])
def test_shares_of_observed_values_sum_to_one(missing):
    rng = np.random.default_rng(0)
    real = pd.DataFrame({"x": rng.normal(size=200), "y": list("abcd") * 50})
    other = real.mask(np.repeat(np.arange(200)[:, None] < missing, 2, axis=1))
    tables = {"real": real, "remasked": other}
    for column in (histogram(tables, "x"), bars(tables, "y")):
        assert [round(s.sum(), 12) for s in column.shares.values()] == [1, 1]


def test_dates_are_counted_in_days():
    days = pd.date_range("2020-01-01", periods=400, freq="D")
    column = histogram({"real": pd.DataFrame({"x": days})}, "x")
    assert column.dates
    assert np.datetime64(int(column.edges[0]), "D").astype(str)[:4] in ("2019", "2020")


def test_rare_and_unseen_levels_are_not_named():
    real = pd.DataFrame({"x": ["a"] * 20 + ["b"] * 9 + ["Zaphod"] * 4 + ["Zoe"] * 3})
    new = pd.DataFrame({"x": ["a", "Zaphod", "Ford"]})
    (codes, others), names, n_named = frequent_levels(
        {"real": real, "new": new}, "x", 8
    )
    assert names == ["a", "b", "2 other levels", "not in the real table"]
    assert n_named == 2
    assert np.bincount(codes).tolist() == [20, 9, 7]
    assert others.tolist() == [0, 2, 3]


def people(n: int, seed: int, strength: float) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return pd.DataFrame(
        {
            "x": x,
            "y": -strength * x + rng.normal(size=n),
            "z": np.where(strength * x + rng.normal(size=n) > 0, "up", "down"),
            "w": rng.choice(list("pqr"), n),
        }
    )


def test_matrices_show_dependence_and_no_chance_dependence():
    tables = {"real": people(4000, 0, 2.0), "synthetic": people(4000, 1, 0.0)}
    pairs = dependence(tables, ["x", "y"], ["z", "w"])
    at = {name: i for i, name in enumerate(pairs.names)}
    assert pairs.real[at["x"], at["y"]] == pytest.approx(-0.894, abs=0.02)
    assert pairs.real[at["x"], at["z"]] > 0.6
    assert pairs.real[at["w"]].max() == 1
    assert np.abs(np.delete(pairs.real[at["w"]], at["w"])).max() < 0.06
    assert np.abs(pairs.synthetic - np.eye(4)).max() < 0.06
    assert (pairs.real == pairs.real.T).all()


def test_pairs_that_are_never_observed_together_stay_blank():
    real = people(400, 0, 1.0)
    real.loc[:199, "x"] = None
    real.loc[200:, "y"] = None
    real.loc[200:, "z"] = None
    pairs = dependence({"real": real, "synthetic": real}, ["x", "y"], ["z", "w"])
    at = {name: i for i, name in enumerate(pairs.names)}
    assert np.isnan(pairs.real[at["x"], at["y"]])
    assert np.isnan(pairs.real[at["x"], at["z"]])
    assert pairs.real[at["y"], at["z"]] > 0.2
    assert joint({"real": real, "synthetic": real}, "x", "y", 0.5, ["x", "y"]) is None


def test_joint_cells_with_few_rows_are_hidden():
    real = people(300, 0, 1.0)
    counts = joint(
        {"real": real, "synthetic": people(900, 1, 1.0)}, "x", "z", 0.5, ["x"]
    )
    visible = counts.real[~np.isnan(counts.real)]
    assert counts.real.shape == (counts.first.size, 2)
    assert visible.min() * 300 >= MIN_COUNT - 1e-9
    assert np.isnan(counts.real).any()
    assert visible.sum() <= 1


def rows(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return pd.DataFrame(
        {"x": x, "y": x + rng.normal(size=n), "z": rng.choice(list("ab"), n)}
    )


def projected(real, synthetic, seed=0):
    return project(real, synthetic, ["x", "y"], ["z"], np.random.default_rng(seed))


def test_fresh_rows_overlap_as_much_as_real_ones_and_one_sided_rows_less():
    real = rows(3000, 0)
    fresh = projected(real, rows(3000, 1))
    assert abs(fresh.iou - fresh.reference) < 0.05
    one_sided = rows(3000, 1)
    broken = projected(real, one_sided[one_sided["x"] > 0])
    assert broken.iou < broken.reference - 0.2
    assert broken.reference > 0.6


@pytest.mark.parametrize(("n", "visible"), [(1, False), (4, False), (8, True)])
def test_a_few_rows_on_their_own_leave_no_trace(n, visible):
    crowd = np.random.default_rng(0).normal(0, 0.05, size=(500, 2))
    points = np.vstack([crowd, np.full((n, 2), 0.8)])
    density = smooth_counts(points, np.array([-1.0, -1.0]), np.array([1.0, 1.0]))
    corner = hide_sparse(density)[45:, 45:]
    assert bool(corner.any()) == visible
    assert hide_sparse(density).any()


def test_missing_values_are_filled_alike_in_both_tables():
    real, synthetic = rows(2000, 0), rows(2000, 1)
    missing = np.random.default_rng(2).random((2000, 3)) < 0.3
    filled = projected(real.mask(missing), synthetic.mask(missing[::-1]))
    assert filled.filled
    assert abs(filled.iou - filled.reference) < 0.08
    assert not projected(real, synthetic).filled


def test_one_dimension_has_no_projection():
    one = rows(100, 0)[["x"]]
    assert project(one, one, ["x"], [], np.random.default_rng(0)) is None


def test_rare_patterns_are_counted_but_not_listed():
    real = pd.DataFrame({"a": [1.0] * 100, "b": [2.0] * 100, "c": [3.0] * 100})
    real.loc[:29, "b"] = np.nan
    real.loc[27:29, "a"] = np.nan
    patterns = missing_patterns(real)
    assert patterns.names == ("b", "a", "c")
    assert patterns.patterns == [((), 70), (("b",), 27)]
    assert patterns.other_rows == 3
    # Bands of at least MIN_COUNT rows keep the rates of the columns.
    assert len(patterns.bands) == 100 // MIN_COUNT
    np.testing.assert_allclose(patterns.bands.mean(axis=0), [0.3, 0.03, 0.0])
