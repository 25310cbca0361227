"""Frames go to the peers as plain numbers, and come back as what they were."""

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError
from augmask_bench.baselines.plain import (
    code_names,
    complete_frame,
    plain_codec,
    plain_frame,
    plain_rows,
)


def frame(n=40):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "city": rng.choice(["Bonn", "Ulm", "Köln"], n),
            "visits": rng.integers(3, 90, n),
            "key": 9_007_199_254_740_993 + 1000 * rng.integers(0, 90, n),
            "kg": rng.normal(70, 9, n).round(1),
            "day": pd.Timestamp("2024-02-01")
            + pd.to_timedelta(rng.integers(0, 50, n), "D"),
            "smokes": rng.random(n) < 0.4,
            "same": "x",
        }
    )


KINDS = {"key": "integer"}


def test_a_table_goes_there_and_back():
    frame_in = frame()
    codec = plain_codec(frame_in, KINDS)
    table = codec.encode(frame_in)
    assert (table.num[:, 0] + frame_in["visits"].min() == frame_in["visits"]).all()
    back = codec.decode(table.num, table.cat, np.random.default_rng(0))
    pd.testing.assert_frame_equal(back, frame_in)


def test_what_peers_make_up_keeps_the_promises_of_the_columns():
    frame_in = frame()
    codec = plain_codec(frame_in, KINDS)
    num = np.full((2, codec.layout.n_num), 1e17)
    num[1] = 0.4
    back = codec.decode(
        num, np.zeros((2, codec.layout.n_cat), int), np.random.default_rng(0)
    )
    assert (back.dtypes == frame_in.dtypes).all()
    for name in ("visits", "key", "kg", "day"):
        assert back[name][0] == frame_in[name].max()
    assert back["visits"][1] == frame_in["visits"].min()
    assert back["same"].tolist() == ["x", "x"]


def test_missing_values_are_nan():
    frame_in = frame().drop(columns="day")
    frame_in["visits"] = frame_in["visits"].astype(float)
    frame_in.loc[3, ["visits", "city"]] = np.nan
    table = plain_codec(frame_in, KINDS).encode(frame_in)
    plain = plain_frame(table)
    assert plain.dtypes.eq("float64").all()
    assert np.argwhere(plain.isna().to_numpy()).tolist() == [[3, 0], [3, 3]]
    with pytest.raises(
        DataError, match=r"TVAE needs a complete.* 2 missing cells.*'visits'"
    ):
        complete_frame(table, "TVAE")


def test_complete_frames_have_integer_codes():
    frame_in = frame()
    table = plain_codec(frame_in, KINDS).encode(frame_in)
    plain = complete_frame(table, "ARF")
    assert code_names(table.layout) == ["4", "5"]
    assert plain["4"].dtype == np.int64
    num, cat = plain_rows(plain, table.layout, "ARF")
    np.testing.assert_array_equal(num, table.num)
    np.testing.assert_array_equal(cat, table.cat)
    plain.loc[0, "1"] = np.inf
    with pytest.raises(DataError, match=r"ARF generated .* not finite: column 'key'"):
        plain_rows(plain, table.layout, "ARF")
