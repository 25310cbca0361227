from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augmask.report.counts import (
    FEWEST,
    bars,
    frequent,
    histogram,
    in_bins,
    merged,
    round_edges,
)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=30))
def test_merged_bins_are_empty_or_large_and_lose_nothing(counts):
    starts = merged(np.array(counts))
    assert starts[0] == 0
    assert starts[-1] == len(counts)
    assert starts == sorted(set(starts))
    sums = np.add.reduceat(np.array(counts), starts[:-1])
    if sum(counts) >= FEWEST:
        assert all(s == 0 or s >= FEWEST for s in sums)
    else:
        assert sum(counts) == 0 or len([s for s in sums if s]) == 1


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=40, max_size=80),
    st.floats(1e7, 1e12),
)
def test_no_edge_gives_an_outlier_away(values, outlier):
    edges = round_edges(np.array([*values, outlier]))
    assert edges is not None
    assert (np.diff(edges) > 0).all()
    assert edges[-1] < outlier
    codes = in_bins(np.array([*values, outlier, -outlier, np.nan]), edges)
    assert codes[-1] == -1
    assert codes[:-1].min() >= 0
    assert codes[:-1].max() < len(edges) - 1


def test_whole_numbers_get_a_bin_each():
    edges = round_edges(np.repeat(np.arange(1.0, 8.0), 20))
    assert edges.tolist() == (np.arange(1, 9) - 0.5).tolist()


def test_too_few_values_are_not_shown():
    assert round_edges(np.arange(9.0)) is None
    few = {"real": pd.DataFrame({"x": [1.5, 2.5, None], "y": ["a", "a", None]})}
    assert histogram(few, "x") is None
    assert bars(few, "y") is None


@pytest.mark.parametrize("holes", [0, 30])
def test_shares_add_up_over_what_each_series_shows(holes):
    rng = np.random.default_rng(0)
    real = pd.DataFrame({"x": rng.normal(size=200), "y": list("abcd") * 50})
    other = real.mask(np.repeat(np.arange(200)[:, None] < holes, 2, axis=1))
    tables = {"real": real, "remasked": other}
    for found in (histogram(tables, "x"), bars(tables, "y")):
        assert [round(s.sum(), 12) for s in found.shares.values()] == [1, 1]


def test_dates_are_counted_in_days():
    days = pd.date_range("2020-01-01", periods=400, freq="D")
    found = histogram({"real": pd.DataFrame({"x": days})}, "x")
    assert found.dates
    assert np.datetime64(int(found.edges[0]), "D").astype(str)[:4] in ("2019", "2020")


def test_rare_levels_and_new_ones_have_no_name():
    real = pd.DataFrame({"x": ["a"] * 20 + ["b"] * 9 + ["Zaphod"] * 4 + ["Zoe"] * 3})
    new = pd.DataFrame({"x": ["a", "Zaphod", "Ford"]})
    (codes, others), names, n_named = frequent({"real": real, "new": new}, "x", 8)
    assert names == ["a", "b", "2 other levels", "not in the real table"]
    assert n_named == 2
    assert np.bincount(codes).tolist() == [20, 9, 7]
    assert others.tolist() == [0, 2, 3]
