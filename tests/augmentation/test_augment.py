from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import augmask as am
from augmask.errors import UsageError


def make_frame(n: int = 80, missing: float = 0.3) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            # full precision: a trip through the scaling would change the last bits
            "kg": rng.normal(70, 12, n) / 3,
            "narrow": rng.normal(size=n).astype("float32"),
            "when": pd.Timestamp("2021-03-01", tz="Europe/Berlin")
            + pd.to_timedelta(rng.integers(0, 10**9, n), "ms"),
            "job": rng.choice(["cook", "smith", "clerk"], n),
            "grade": pd.Categorical(
                rng.choice(["low", "high"], n), ["low", "mid", "high"], ordered=True
            ),
            "smokes": rng.random(n) < 0.3,
        }
    )
    return frame.mask(rng.random(frame.shape) < missing)


@pytest.mark.parametrize("augmenter", ["mean", "ecdf", "lgbm-s"])
def test_observed_cells_are_unchanged(augmenter):
    frame = make_frame()
    before = frame.copy()
    filled, observed = am.augment(frame, augmenter=augmenter, seed=1)
    pd.testing.assert_frame_equal(frame, before)
    pd.testing.assert_frame_equal(observed, frame.notna())
    assert filled.columns.tolist() == frame.columns.tolist()
    assert not filled.isna().any().any()
    for name in frame:
        known = observed[name]
        assert filled[name][known].tolist() == frame[name][known].tolist()


def test_dtypes_are_those_of_a_complete_table():
    filled, _ = am.augment(make_frame(), augmenter="ecdf")
    complete = make_frame(missing=0)
    assert filled.dtypes.astype(str).to_dict() == complete.dtypes.astype(str).to_dict()
    assert filled["grade"].cat.ordered
    assert filled["grade"].cat.categories.tolist() == ["low", "mid", "high"]


def test_filled_values_lie_in_the_observed_range():
    frame = make_frame()
    filled, observed = am.augment(frame, augmenter="lgbm-s")
    for name in ("age", "kg", "narrow", "when"):
        values = filled[name][~observed[name]]
        assert values.between(frame[name].min(), frame[name].max()).all()
    assert set(filled["job"]) == {"cook", "smith", "clerk"}
    assert set(filled["grade"]) == {"low", "high"}


def test_the_seed_changes_filled_cells_only():
    frame = make_frame()
    one, observed = am.augment(frame, augmenter="ecdf", seed=1)
    same, _ = am.augment(frame, augmenter="ecdf", seed=1)
    other, _ = am.augment(frame, augmenter="ecdf", seed=2)
    pd.testing.assert_frame_equal(one, same)
    assert not one["kg"].equals(other["kg"])
    assert one["kg"][observed["kg"]].equals(other["kg"][observed["kg"]])


def test_identifiers_constants_and_empty_columns():
    n = 80
    key = pd.Series([f"P{i:03d}" for i in range(n)]).mask(np.arange(n) % 4 == 0)
    frame = make_frame()[["kg"]].assign(
        key=key,
        number=pd.Series(range(1000, 1000 + n)).mask(np.arange(n) % 5 == 0),
        country=pd.Series(["DE"] * n).mask(np.arange(n) % 3 == 0),
        nothing=None,
    )
    filled, observed = am.augment(frame, augmenter="ecdf")
    assert filled["nothing"].isna().all()
    assert not observed["nothing"].any()
    assert (filled["country"] == "DE").all()
    assert observed["country"].tolist() == frame["country"].notna().tolist()
    for name in ("key", "number"):
        known = frame[name].notna()
        assert filled[name][known].tolist() == frame[name][known].tolist()
        # a repeated identifier would join two people
        assert filled[name].is_unique
    assert filled["number"].dtype == "int64"


def test_declared_codes_are_missing():
    frame = make_frame()[["kg", "job"]].fillna({"kg": -999.0, "job": "?"})
    schema = {"kg": {"na_values": -999}, "job": {"na_values": "?"}}
    filled, observed = am.augment(frame, augmenter="ecdf", schema=schema)
    assert observed["kg"].tolist() == (frame["kg"] != -999).tolist()
    assert (filled["kg"] > 0).all()
    assert set(filled["job"]) == {"cook", "smith", "clerk"}


def test_missing_values_modelled_as_a_level_stay_missing():
    frame = make_frame()[["kg", "job"]]
    filled, observed = am.augment(
        frame,
        augmenter="ecdf",
        schema={"kg": {"missing_as": "level"}, "job": {"missing_as": "level"}},
    )
    pd.testing.assert_frame_equal(filled.isna(), frame.isna())
    assert observed["kg"].tolist() == frame["kg"].notna().tolist()


def test_polars_frames_and_complete_tables():
    frame = make_frame()[["kg", "job"]]
    filled, observed = am.augment(frame, augmenter="ecdf")
    same, mask = am.augment(pl.from_pandas(frame), augmenter="ecdf")
    assert isinstance(same, pl.DataFrame)
    pd.testing.assert_frame_equal(filled, same.to_pandas(), check_dtype=False)
    pd.testing.assert_frame_equal(observed, mask.to_pandas())
    again, everything = am.augment(filled, augmenter="ecdf")
    pd.testing.assert_frame_equal(again, filled)
    assert everything.all().all()


def test_the_default_is_lgbm_s_and_zero_is_refused():
    frame = make_frame()
    default, _ = am.augment(frame)
    pd.testing.assert_frame_equal(default, am.augment(frame, augmenter="lgbm-s")[0])
    with pytest.raises(UsageError, match=r"cannot use 'zero', .* placeholder"):
        am.augment(make_frame(), augmenter="zero")
    with pytest.raises(UsageError, match="did you mean 'lgbm-s'"):
        am.augment(make_frame(), augmenter="lgbms")
