"""Summaries of parts merge to what the whole table would have said."""

import numpy as np
import pandas as pd
import pytest

from augmask.table import summary as module
from augmask.table.cells import read_cells
from augmask.table.codec import Codec
from augmask.table.infer import infer_schema
from augmask.table.scale import QuantileNormal
from augmask.table.summary import (
    ColumnSummary,
    TableSummary,
    complete_column,
    fit_scalers,
    merge,
    summarize,
    weighted_quantiles,
)


def make_frame(n=4_000, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.lognormal(size=n),
            "cents": rng.normal(20, 5, n).round(2),
            "n": pd.array(rng.integers(0, 500, n), "Int64"),
            "few": pd.array(rng.integers(0, 4, n), "Int64"),
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "city": rng.choice(["a", "b", "c"], n, p=[0.7, 0.29, 0.01]),
            "yes": pd.array(rng.random(n) < 0.4, "boolean"),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.2)


def whole(frame, parts=5, sample=400):
    """Return the merged summary of the parts of a frame, and a sample of it."""
    merged = {}
    for rows in np.array_split(np.arange(len(frame)), parts):
        own = summarize(frame.iloc[rows], {})
        merged = merge(merged, own) if merged else own
    rows = np.sort(np.random.default_rng(1).choice(len(frame), sample, replace=False))
    return TableSummary(merged, frame.iloc[rows].reset_index(drop=True))


def schema_of(frame, summary):
    sample = summary.sample
    return [
        complete_column(c, sample[c.label], summary.columns[c.name], {})
        for c in infer_schema(sample)
    ]


def test_weighted_quantiles_are_numpys():
    rng = np.random.default_rng(0)
    values, counts = rng.normal(size=50), rng.integers(1, 9, 50)
    points = np.linspace(0, 1, 101)
    ours = weighted_quantiles(values, counts, points)
    numpys = np.percentile(np.repeat(values, counts), points * 100)
    np.testing.assert_array_equal(ours, numpys)


def test_the_schema_is_that_of_the_whole_table():
    """The sample has neither all levels nor the extremes nor the decimals."""
    frame = make_frame()
    frame.loc[17, "city"] = "rare"
    frame.loc[18, "n"] = 9_999
    frame.loc[19, "x"] = 1e6
    summary = whole(frame)
    assert not summary.sample["city"].eq("rare").any()
    expected = infer_schema(frame)
    for ours, column in zip(schema_of(frame, summary), expected, strict=True):
        assert ours.kind == column.kind
        assert ours.dtype == column.dtype
        assert ours.all_levels == column.all_levels
        assert (ours.low, ours.high) == (column.low, column.high)
        assert ours.missing_rate == pytest.approx(column.missing_rate)
        assert (ours.decimals, ours.lattice) == (column.decimals, column.lattice)


def test_columns_that_the_sample_misjudges_are_judged_anew():
    n = 2_000
    frame = pd.DataFrame(
        {
            "mostly": [0.5] * n,
            "codes": pd.array([1, 2] * (n // 2), "Int64"),
            "empty": np.full(n, np.nan),
        }
    )
    frame.loc[n - 40 :, "mostly"] = np.arange(40) + 0.25
    frame.loc[n - 40 :, "codes"] = np.arange(100, 140)
    frame.loc[n - 3 :, "empty"] = [1.5, 2.5, 3.5]
    summary = whole(frame)
    summary = TableSummary(summary.columns, frame.head(300))
    assert [c.kind for c in infer_schema(summary.sample)] == [
        "constant",
        "category",
        "all-missing",
    ]
    assert [c.kind for c in schema_of(frame, summary)] == ["float", "integer", "float"]


def test_rare_levels_are_chosen_by_the_counts_of_the_whole():
    rng = np.random.default_rng(0)
    levels = np.array([f"level {i:03d}" for i in range(150)])
    weights = np.r_[np.full(100, 1.0), np.full(50, 0.05)]
    frame = pd.DataFrame({"c": rng.choice(levels, 60_000, p=weights / weights.sum())})
    (ours,) = schema_of(frame, whole(frame, sample=20_000))
    (expected,) = infer_schema(frame)
    assert ours.levels == expected.levels
    assert ours.rare_levels == expected.rare_levels


@pytest.mark.parametrize("seed", [None, 0])
def test_scalings_of_counted_values_are_those_of_the_whole(seed):
    frame = make_frame()
    expected = Codec.fit(frame, infer_schema(frame), seed)
    ours = fit_scalers(expected.schema, whole(frame), seed)
    for name, scaler in ours.items():
        arrays = scaler.arrays()
        whole_arrays = expected._scalers[name].arrays()
        np.testing.assert_array_equal(arrays["quantiles"], whole_arrays["quantiles"])
        np.testing.assert_array_equal(arrays["tails"], whole_arrays["tails"])
        # from 400 rows
        assert arrays["moments"] == pytest.approx(whole_arrays["moments"], abs=0.2)


@pytest.mark.parametrize("name", ["x", "n", "day"])
def test_a_digest_is_close_in_rank_and_exact_at_the_ends(name, monkeypatch):
    monkeypatch.setattr(module, "MAX_DISTINCT", 50)
    frame = make_frame(40_000)
    summary = whole(frame, parts=7)
    assert summary.columns[name].digest is not None
    codec = Codec.fit(frame, infer_schema(frame))
    ours = fit_scalers(codec.schema, summary, None)[name]
    exact: QuantileNormal = codec._scalers[name]
    observed = frame[name].dropna()
    plain = np.sort(observed.astype("int64" if name != "x" else "float64").to_numpy())
    if name == "day":
        plain = (plain - plain[0]) / (plain[-1] - plain[0]) * exact.quantiles[-1]
    elif name == "n":
        plain = plain - plain[0]
    points = np.linspace(0, 1, len(ours.quantiles))
    low = np.searchsorted(plain, ours.quantiles - 1e-9, "left") / len(plain)
    high = np.searchsorted(plain, ours.quantiles + 1e-9, "right") / len(plain)
    # between values the digest interpolates: a step of whole numbers is .002 wide
    assert (np.maximum(low - points, points - high) < 0.0025).all()
    assert ours.quantiles[[0, -1]].tolist() == exact.quantiles[[0, -1]].tolist()


def test_the_order_of_merging_decides_nothing_when_values_are_counted():
    frame = make_frame(600)
    one, two, three = (summarize(frame.iloc[i::3], {}) for i in range(3))
    left = merge(merge(one, two), three)
    right = merge(one, merge(two, three))
    for name in frame:
        a, b = left[name], right[name]
        assert dict(zip(a.cells.values.tolist(), a.counts.tolist(), strict=True)) == (
            dict(zip(b.cells.values.tolist(), b.counts.tolist(), strict=True))
        )


def test_a_part_without_values_adds_rows_only():
    full = ColumnSummary.of(read_cells(pd.Series([1.5, 2.5, None]), "a"))
    empty = ColumnSummary.of(read_cells(pd.Series([None, None], dtype=float), "a"))
    for merged in (full.merged(empty), empty.merged(full)):
        assert (merged.rows, merged.observed) == (5, 2)
        assert sorted(merged.cells.values.tolist()) == [1.5, 2.5]


def test_digests_are_deterministic(monkeypatch):
    monkeypatch.setattr(module, "MAX_DISTINCT", 50)
    frame = make_frame(5_000)
    one, two = (whole(frame).columns["x"].digest for _ in range(2))
    assert one == two
