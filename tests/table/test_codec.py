from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError, SchemaError
from augmask.table.codec import Codec
from augmask.table.infer import infer_schema
from augmask.table.schema import Schema

N = 300


def rng():
    return np.random.default_rng(5)


@pytest.fixture
def frame():
    draw = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "city": draw.choice(["Rome", "Oslo", "Bern"], N),
            "height": draw.normal(170, 9, N).round(1),
            "count": draw.poisson(30, N).astype(float),
            "member": draw.choice([True, False], N).astype(object),
            "seen": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(draw.integers(0, 900, N), unit="D"),
        }
    )
    return table.mask(draw.random(table.shape) < 0.3)


def test_layout_and_arrays(frame):
    codec = Codec.fit(frame, infer_schema(frame))
    assert codec.layout.num_names == ("height", "count", "seen")
    assert codec.layout.cat_names == ("city", "member")
    assert codec.layout.cards == (3, 2)
    table = codec.encode(frame)
    order = list(codec.layout.names)
    np.testing.assert_array_equal(table.observed, frame[order].notna())
    assert table.num.dtype == np.float64
    assert table.cat.dtype == np.int32
    assert not table.num[~table.num_observed].any()
    assert not table.cat[~table.cat_observed].any()
    scored = [table.num[mask, i] for i, mask in enumerate(table.num_observed.T)]
    assert all(abs(z.mean()) < 1e-9 and abs(z.std() - 1) < 1e-9 for z in scored)


def test_extreme_samples_stay_in_range_and_keep_their_form(frame):
    codec = Codec.fit(frame, infer_schema(frame))
    draw = np.random.default_rng(1)
    num = draw.normal(0, 4, (2000, 3)).astype(np.float32)
    cat = np.stack([draw.integers(0, k, 2000) for k in codec.layout.cards], axis=1)
    out = codec.decode(num, cat, rng())
    assert out.columns.tolist() == frame.columns.tolist()
    assert out.notna().all().all()
    for name in ("height", "count", "seen"):
        assert out[name].between(frame[name].min(), frame[name].max()).all()
    assert (out["height"].round(1) == out["height"]).all()
    assert out["count"].dtype == np.int64
    assert (out["seen"].dt.normalize() == out["seen"]).all()


def test_new_levels_count_as_missing(frame):
    codec = Codec.fit(frame, infer_schema(frame))
    other = frame.assign(city="Paris")
    table = codec.encode(other)
    at = codec.layout.names.index("city")
    assert not table.observed[:, at].any()
    assert not table.cat[:, 0].any()


def test_another_frame_may_come_in_other_types(frame):
    codec = Codec.fit(frame, infer_schema(frame))
    expected = codec.encode(frame)
    other = frame.convert_dtypes()
    other["seen"] = frame["seen"].dt.strftime("%Y-%m-%d")
    other["city"] = frame["city"].astype("category")
    other["more"] = 1
    table = codec.encode(other[other.columns[::-1]])
    np.testing.assert_array_equal(table.num, expected.num)
    np.testing.assert_array_equal(table.cat, expected.cat)
    np.testing.assert_array_equal(table.observed, expected.observed)
    empty = codec.encode(frame.assign(count=None, city=None))
    assert not empty.observed[:, [1, 3]].any()


def test_frames_that_do_not_fit_are_refused(frame):
    codec = Codec.fit(frame, infer_schema(frame))
    with pytest.raises(DataError, match="must have the column 'city'"):
        codec.encode(frame.drop(columns="city"))
    with pytest.raises(DataError, match="'height' was learned as float, but now holds"):
        codec.encode(frame.assign(height="tall"))


def test_codes_beyond_the_levels_are_refused(frame):
    codec = Codec.fit(frame, infer_schema(frame))
    cat = np.zeros((2, 2), int)
    cat[0, 0] = 3
    with pytest.raises(ValueError, match=r"'city' must lie in 0 \.\. 2, got 0 \.\. 3"):
        codec.decode(np.zeros((2, 3)), cat, rng())


def test_missing_as_a_level_is_learned_and_comes_back(frame):
    frame = frame.assign(always=1.5)
    overrides = {name: {"missing_as": "level"} for name in frame.columns}
    codec = Codec.fit(frame, infer_schema(frame, overrides))
    assert codec.layout.cards == (4, 2, 2, 2, 2, 2)
    assert "height is missing" in codec.layout.cat_names
    table = codec.encode(frame)
    indicators = [name.endswith("is missing") for name in codec.layout.names]
    assert table.observed[:, indicators].all()
    assert table.observed[:, codec.layout.names.index("city")].all()
    assert not table.observed[:, codec.layout.names.index("height")].all()
    out = codec.decode(table.num, table.cat, rng())
    assert (out.isna() == frame.isna()).all().all()
    dtypes = [out[name].dtype for name in ("height", "count", "member", "seen")]
    assert [d.kind for d in dtypes] == ["f", "f", "O", "M"]
    for name in frame.columns:
        observed = frame[name].notna()
        assert (out[name][observed] == frame[name][observed]).all()


def test_missing_as_a_level_beside_a_single_value_is_learned():
    frame = pd.DataFrame(
        {
            "dead": ["yes", None] * 20,
            "bonus": [7.5, None] * 20,
            "flag": [True, None] * 20,
            "day": ["2020-01-01", None] * 20,
        }
    )
    overrides = {name: {"missing_as": "level"} for name in frame.columns}
    codec = Codec.fit(frame, infer_schema(frame, overrides))
    table = codec.encode(frame)
    out = codec.decode(table.num, table.cat, rng())
    assert (out.isna() == frame.isna()).all().all()
    assert out["bonus"][0] == 7.5
    assert out["dead"][0] == "yes"


def test_rare_levels_are_sampled_by_frequency():
    counts = {f"c{i:03d}": 60 for i in range(100)} | {"rare": 9, "rarer": 1}
    frame = pd.DataFrame({"c": [k for k, n in counts.items() for _ in range(n)]})
    codec = Codec.fit(frame, infer_schema(frame))
    assert codec.layout.cards == (101,)
    table = codec.encode(frame)
    assert (table.cat[-10:, 0] == 100).all()
    out = codec.decode(np.zeros((5000, 0)), np.full((5000, 1), 100), rng())["c"]
    assert set(out) == {"rare", "rarer"}
    assert (out == "rare").mean() == pytest.approx(0.9, abs=0.02)


def test_category_dtype_keeps_order_and_unseen_levels():
    dtype = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    frame = pd.DataFrame({"c": pd.Series(["high", None, "low"], dtype=dtype)})
    codec = Codec.fit(frame, infer_schema(frame))
    assert codec.layout.cards == (2,)
    out = codec.decode(np.zeros((2, 0)), np.array([[0], [1]]), rng())["c"]
    assert out.dtype == dtype
    assert out.tolist() == ["low", "high"]


def test_local_days_survive_the_change_of_clocks():
    # Brazil's clocks skipped midnight each spring: those days do not begin at 0:00.
    days = pd.Series(pd.date_range("2016-01-01", "2018-12-31"))
    local = days.dt.tz_localize("America/Sao_Paulo", nonexistent="NaT")
    assert local.isna().sum() == 3
    frame = pd.DataFrame({"t": local})
    codec = Codec.fit(frame, infer_schema(frame))
    table = codec.encode(frame)
    out = codec.decode(table.num, table.cat, rng())["t"]
    known = local.notna()
    pd.testing.assert_series_equal(out[known], local[known], check_names=False)
    every = codec.decode(
        np.linspace(-3, 3, 50_000)[:, None], np.zeros((50_000, 0), int), rng()
    )["t"]
    assert every.notna().all()
    assert {1} == set(every[every.dt.hour != 0].dt.hour)


def test_a_frame_without_learned_columns_has_an_empty_layout():
    frame = pd.DataFrame({"a": [1] * 30, "b": [None] * 30, "id": range(30)})
    codec = Codec.fit(frame, infer_schema(frame))
    assert codec.layout.n_features == 0
    out = codec.decode(np.zeros((4, 0)), np.zeros((4, 0), int), rng(), start=10)
    assert out["a"].tolist() == [1] * 4
    assert out["b"].isna().all()
    assert out["id"].tolist() == [40, 41, 42, 43]


def test_save_and_load_give_the_same(frame):
    codec = Codec.fit(frame, infer_schema(frame))
    stored = json.loads(json.dumps(codec.schema.to_dict()))
    again = Codec.from_arrays(Schema.from_dict(stored), codec.arrays())
    table = codec.encode(frame)
    np.testing.assert_array_equal(again.encode(frame).num, table.num)
    pd.testing.assert_frame_equal(
        again.decode(table.num, table.cat, rng()),
        codec.decode(table.num, table.cat, rng()),
    )
    damaged = codec.arrays()
    damaged.pop("1.quantiles")
    with pytest.raises(SchemaError, match="'count' is damaged"):
        Codec.from_arrays(codec.schema, damaged)


def test_a_column_with_the_name_of_an_indicator_is_refused(frame):
    frame = frame.rename(columns={"city": "height is missing"})
    schema = infer_schema(frame, {"height": {"missing_as": "level"}})
    with pytest.raises(SchemaError, match="rename it"):
        Codec.fit(frame, schema)


def test_neighbouring_levels_beyond_float_precision_keep_their_codes():
    levels = [2**53, 2**53 + 1, 2**53 + 2]
    frame = pd.DataFrame({"a": pd.array([*levels * 4, None], dtype="Int64")})
    codec = Codec.fit(frame, infer_schema(frame))
    table = codec.encode(frame)
    assert table.cat[:-1, 0].tolist() == [0, 1, 2] * 4
    rows = codec.decode(table.num, table.cat, np.random.default_rng(0))
    assert rows["a"].tolist()[:-1] == levels * 4


def test_digits_learned_as_text_match_numbers_read_from_a_file():
    frame = pd.DataFrame(
        {"zip": ["10115", "80331", None] * 20, "t": ["True", "x"] * 30}
    )
    codec = Codec.fit(frame, infer_schema(frame, {"zip": "category"}))
    numbers = frame.assign(zip=frame["zip"].astype("float64"))
    assert (codec.encode(numbers).cat == codec.encode(frame).cat).all()
    assert (codec.encode(numbers).observed == codec.encode(frame).observed).all()
    truths = codec.encode(frame.assign(t=True))
    assert truths.observed[:, 1].all()


def test_cells_of_another_type_without_any_match_are_refused():
    frame = pd.DataFrame({"zip": ["00115", "00331"] * 30, "n": range(60)})
    codec = Codec.fit(frame, infer_schema(frame, {"zip": "category"}))
    with pytest.raises(DataError, match="learned as category, but now holds integer"):
        codec.encode(frame.assign(zip=115))
