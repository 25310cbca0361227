from __future__ import annotations

import numpy as np
import pandas as pd

from augmask.sample.constraints import read_constraints
from augmask.sample.suggest import suggest_orders
from augmask.table.infer import infer_schema

ROWS = 1_000


def stays(seed=0):
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2020-01-01") + pd.to_timedelta(
        rng.integers(0, 900, ROWS), unit="D"
    )
    return pd.DataFrame(
        {
            "in": start,
            "out day": start + pd.to_timedelta(rng.integers(0, 30, ROWS), unit="D"),
            "age": rng.integers(0, 100, ROWS),
            "weight": rng.normal(5_000, 200, ROWS).round(),
            "low": (low := rng.normal(80, 20, ROWS).round(1)),
            "high": low + rng.exponential(10, ROWS).round(1),
        }
    )


def test_orders_that_always_hold_are_suggested_as_rules_are_written():
    frame = stays()
    schema = infer_schema(frame)
    found = suggest_orders(frame, schema)
    assert set(found) == {"`in` <= `out day`", "low <= high"}
    assert all(
        constraint.holds(frame).all() for constraint in read_constraints(found, schema)
    )


def test_one_broken_row_and_holes():
    frame = stays()
    frame.loc[5, "high"] = frame.loc[5, "low"] - 1
    holed = frame.mask(np.random.default_rng(1).random(frame.shape) < 0.3)
    assert not any("low" in text for text in suggest_orders(frame, infer_schema(frame)))
    assert any("out day" in text for text in suggest_orders(holed, infer_schema(holed)))
