from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from augmask.errors import AugMaskWarning, ConditionError, DataError, UsageError
from augmask.sample.constraints import (
    learn_constraints,
    read_constraints,
    restored_constraints,
    stored_constraints,
)
from augmask.table.infer import infer_schema


def make_frame(n=400):
    rng = np.random.default_rng(0)
    start = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    town = rng.integers(0, 4, n)
    return pd.DataFrame(
        {
            "start": start,
            "end": start + pd.to_timedelta(rng.integers(0, 60, n), "D"),
            "low": rng.normal(size=n),
            "high": rng.normal(5, 1, n),
            "town": np.array(["Pau", "Metz", "Brest", "Nice"])[town],
            "zip": np.array([64000, 57000, 29200, 6000])[town] + rng.integers(0, 2, n),
            "sea": town >= 2,
            "key": [f"K{i}" for i in range(n)],
        }
    )


FRAME = make_frame()
SCHEMA = infer_schema(FRAME, {"zip": "integer"})


def known(frame=FRAME):
    return frame.notna().to_numpy()


def learned(*constraints, frame=FRAME):
    return learn_constraints(
        read_constraints(list(constraints), SCHEMA), frame, known(frame)
    )


def test_an_order_of_dates_and_of_numbers():
    dates, numbers = learned("start <= end", "low < high")
    assert dates.holds(FRAME).all()
    turned = FRAME.assign(start=FRAME["end"], end=FRAME["start"])
    assert (dates.holds(turned) == (FRAME["start"] == FRAME["end"])).all()
    assert numbers.columns == ("low", "high")
    assert not numbers.holds(FRAME.assign(low=99.0)).any()


def test_a_chain_names_all_its_columns():
    (constraint,) = read_constraints("low < high and low <= zip", SCHEMA)
    assert constraint.columns == ("low", "high", "zip")


def test_only_combinations_that_were_seen_are_allowed():
    (constraint,) = learned(["town", "zip", "sea"])
    assert constraint.holds(FRAME).all()
    other = FRAME.assign(town="Pau")
    assert (constraint.holds(other) == (FRAME["town"] == "Pau")).all()
    never = FRAME.assign(zip=1)
    assert not constraint.holds(never).any()


def test_a_rule_is_silent_where_a_cell_is_missing():
    holed = FRAME.assign(low=99.0, high=np.nan, town="Pau", zip=np.nan)
    for constraint in learned("low < high", ["town", "zip"]):
        assert constraint.holds(holed).all()


def test_a_function_sees_the_frame_and_cannot_change_it():
    def spoils(frame):
        frame["low"] = 0.0
        return frame["high"] > 0

    (constraint,) = learned(spoils)
    before = FRAME.copy()
    assert constraint.holds(FRAME).all()
    pd.testing.assert_frame_equal(FRAME, before)
    assert constraint.text == "spoils"


def test_few_broken_rows_are_told_and_many_are_an_error():
    few = FRAME.copy()
    few.loc[:7, "low"] = 99.0
    with pytest.warns(AugMaskWarning, match=r"8 of 400 rows break the rule low < high"):
        learned("low < high", frame=few)
    many = FRAME.copy()
    many.loc[:39, "low"] = 99.0
    with pytest.raises(DataError, match=r"40 of 400 .*10.0%.*at most 5%"):
        learned("low < high", frame=many)
    hidden = many.assign(low=many["low"].mask(many["low"] == 99.0))
    assert learned("low < high", frame=hidden)


def test_a_rule_that_no_row_speaks_about_is_told():
    with pytest.warns(AugMaskWarning, match="could not be checked"):
        learned("low < high", frame=FRAME.assign(low=np.nan))


def test_combinations_that_are_all_different_are_refused():
    rng = np.random.default_rng(0)
    frame = FRAME.assign(zip=rng.permutation(400))
    with pytest.raises(DataError, match="nothing but copies"):
        learned(["town", "zip"], frame=frame)


@pytest.mark.parametrize(
    ("rules", "error", "says"),
    [
        ("start <= ende", ConditionError, "'ende'.*did you mean 'end'"),
        ("low <= key", ConditionError, "'key'.*not learned.*identifier"),
        ("low <= start", UsageError, r"'low' \(float\) and 'start' \(datetime\)"),
        ("low <= town", UsageError, "numbers or of dates"),
        ("low <= 3", UsageError, "columns with columns.*where"),
        ("low in [1]", UsageError, "columns with columns"),
        ("exec('x') < low", ConditionError, "none of them"),
        ([["town"]], UsageError, "two or more"),
        ([["town", "town"]], UsageError, "two or more"),
        ([["town", "low"]], UsageError, "'low'.*float"),
        ([["town", "zap"]], ConditionError, "'zap'.*did you mean 'zip'"),
        ([5], UsageError, "a rule is a text.*got int"),
        ({"a": "b"}, UsageError, "list, got dict"),
        (5, UsageError, "list, got int"),
    ],
)
def test_what_is_no_rule(constraints, error, says):
    with pytest.raises(error, match=says):
        read_constraints(constraints, SCHEMA)


@pytest.mark.parametrize("answer", [[True], "yes", np.ones((400, 2)), np.ones(400)])
def test_a_function_must_answer_for_each_row(answer):
    (constraint,) = read_constraints([lambda _: answer], SCHEMA)
    with pytest.raises(UsageError, match=r"one True or False for each of the 400 rows"):
        constraint.holds(FRAME)


def test_a_file_keeps_rules():
    def own(frame):
        return frame["low"] < 9

    constraints = learned("start <= end", ["town", "zip", "sea"], own)
    facts, arrays = stored_constraints(constraints)
    facts = json.loads(json.dumps(facts))
    again = restored_constraints(facts, arrays, SCHEMA, [own])
    spoilt = FRAME.assign(town="Pau", low=10.0, start=FRAME["end"], end=FRAME["start"])
    for old, new in zip(constraints, again, strict=True):
        assert (old.holds(spoilt) == new.holds(spoilt)).all()
        assert not new.holds(spoilt).all()
    with pytest.raises(ValueError, match="does not fit its levels"):
        restored_constraints(facts, {"1": arrays["1"] + 99}, SCHEMA, [own])
