from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError
from augmask.evaluation.references import independent, mean_mode_fill, real_pair


def people(n=4000):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    return pd.DataFrame({"x": x, "y": x + 0.1 * rng.normal(size=n), "k": np.sign(x)})


def test_independent_columns_keep_marginals_and_lose_dependence():
    real = people()
    floor = independent(real, np.random.default_rng(1))
    for name in real:
        assert sorted(floor[name]) == sorted(real[name])
    assert np.abs(np.corrcoef(floor, rowvar=False) - np.eye(3)).max() < 0.06


def test_independent_columns_of_an_incomplete_table_are_complete():
    real = people()
    real.loc[real["x"] > 0, "y"] = np.nan
    floor = independent(real, np.random.default_rng(1))
    assert floor.shape == real.shape
    assert floor.notna().to_numpy().all()
    assert set(floor["y"]) == set(real["y"].dropna())
    with pytest.raises(DataError, match="'y'"):
        independent(real.assign(y=np.nan), np.random.default_rng(1))


def test_mean_and_mode_replace_only_missing_values():
    frame = pd.DataFrame(
        {
            "integer": pd.array([1, None, 2], dtype="Int64"),
            "day": pd.to_datetime(["2024-01-01", None, "2024-01-03"]),
            "flag": [True, True, None],
            "level": pd.Categorical(["b", None, "a"], categories=["a", "b", "c"]),
            "full": [1, 2, 3],
        }
    )
    names = ["flag", "level"]
    before = frame.copy()
    filled = mean_mode_fill(frame, ["integer", "day", "full"], names)
    assert filled["integer"].tolist() == [1.0, 1.5, 2.0]
    assert filled["day"][1] == pd.Timestamp("2024-01-02")
    assert filled["flag"].tolist() == [True, True, True]
    assert filled["level"].tolist() == ["b", "b", "a"]
    assert filled["full"].dtype == frame["full"].dtype
    assert frame.equals(before)


def test_halves_are_disjoint_random_and_equal():
    real = people(101)
    pair = real_pair(real, None, np.random.default_rng(0))
    a, b = pair.real, pair.other
    assert pair.source == "halves"
    assert len(a) == len(b) == 50
    assert not set(a["x"]) & set(b["x"])
    assert set(a["x"]) != set(real["x"][:50])
    with pytest.raises(DataError, match="1 real rows and no holdout are too few"):
        real_pair(real[:1], None, np.random.default_rng(0))


def test_a_holdout_sets_the_length_of_the_pair():
    real = people(100)
    rng = np.random.default_rng(0)
    held = people(130)[100:]
    pair = real_pair(real, held, rng)
    assert (pair.source, len(pair.real), len(pair.other)) == ("holdout", 30, 30)
    assert set(pair.other["x"]) == set(held["x"])
    assert "30 rows" in pair.description
    with pytest.raises(DataError, match="0 holdout rows are too few"):
        real_pair(real, held[:0], rng)
