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
    suggest_constraints,
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


def fit(*constraints, frame=FRAME):
    return learn_constraints(
        read_constraints(list(constraints), SCHEMA), frame, known(frame)
    )


def test_an_order_of_dates_and_of_numbers():
    dates, numbers = fit("start <= end", "low < high")
    assert dates.holds(FRAME).all()
    turned = FRAME.assign(start=FRAME["end"], end=FRAME["start"])
    assert (dates.holds(turned) == (FRAME["start"] == FRAME["end"])).all()
    assert numbers.columns == ("low", "high")
    assert not numbers.holds(FRAME.assign(low=99.0)).any()


def test_a_chain_names_all_its_columns():
    (constraint,) = read_constraints("low < high and low <= zip", SCHEMA)
    assert constraint.columns == ("low", "high", "zip")


def test_only_observed_combinations_are_allowed():
    (constraint,) = fit(["town", "zip", "sea"])
    assert constraint.holds(FRAME).all()
    other = FRAME.assign(town="Pau")
    assert (constraint.holds(other) == (FRAME["town"] == "Pau")).all()
    never = FRAME.assign(zip=1)
    assert not constraint.holds(never).any()


def test_a_constraint_allows_rows_with_missing_cells():
    incomplete = FRAME.assign(low=99.0, high=np.nan, town="Pau", zip=np.nan)
    for constraint in fit("low < high", ["town", "zip"]):
        assert constraint.holds(incomplete).all()


def test_a_function_gets_a_copy_of_the_frame():
    def modifies(frame):
        frame["low"] = 0.0
        return frame["high"] > 0

    (constraint,) = fit(modifies)
    before = FRAME.copy()
    assert constraint.holds(FRAME).all()
    pd.testing.assert_frame_equal(FRAME, before)
    assert constraint.text == "modifies"


def test_few_violations_are_a_warning_and_many_an_error():
    few = FRAME.copy()
    few.loc[:7, "low"] = 99.0
    with pytest.warns(
        AugMaskWarning, match="8 of 400 rows violate the constraint low < high"
    ):
        fit("low < high", frame=few)
    many = FRAME.copy()
    many.loc[:39, "low"] = 99.0
    with pytest.raises(DataError, match=r"40 of 400 .*10.0%.*at most 5%"):
        fit("low < high", frame=many)
    hidden = many.assign(low=many["low"].mask(many["low"] == 99.0))
    assert fit("low < high", frame=hidden)


def test_a_constraint_without_complete_rows_is_a_warning():
    with pytest.warns(AugMaskWarning, match="could not be checked"):
        fit("low < high", frame=FRAME.assign(low=np.nan))


def test_nearly_unique_combinations_are_refused():
    rng = np.random.default_rng(0)
    frame = FRAME.assign(zip=rng.permutation(400))
    with pytest.raises(DataError, match="nothing but copies"):
        fit(["town", "zip"], frame=frame)


@pytest.mark.parametrize(
    ("constraints", "error", "message"),
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
        ([5], UsageError, "a constraint must be a string.*got int"),
        ({"a": "b"}, UsageError, "constraints must be a list, got dict"),
        (5, UsageError, "constraints must be a list, got int"),
    ],
)
def test_invalid_constraints_are_refused(constraints, error, message):
    with pytest.raises(error, match=message):
        read_constraints(constraints, SCHEMA)


@pytest.mark.parametrize("result", [[True], "yes", np.ones((400, 2)), np.ones(400)])
def test_a_function_must_return_one_boolean_per_row(result):
    (constraint,) = read_constraints([lambda _: result], SCHEMA)
    with pytest.raises(UsageError, match="one boolean for each of the 400 rows"):
        constraint.holds(FRAME)


def test_constraints_survive_storing():
    def own(frame):
        return frame["low"] < 9

    constraints = fit("start <= end", ["town", "zip", "sea"], own)
    facts, arrays = stored_constraints(constraints)
    facts = json.loads(json.dumps(facts))
    restored = restored_constraints(facts, arrays, SCHEMA, [own])
    invalid = FRAME.assign(town="Pau", low=10.0, start=FRAME["end"], end=FRAME["start"])
    for old, new in zip(constraints, restored, strict=True):
        assert (old.holds(invalid) == new.holds(invalid)).all()
        assert not new.holds(invalid).all()
    with pytest.raises(ValueError, match="does not match its levels"):
        restored_constraints(facts, {"1": arrays["1"] + 99}, SCHEMA, [own])


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


def test_orders_that_always_hold_are_suggested_in_the_syntax_of_constraints():
    frame = stays()
    schema = infer_schema(frame)
    suggested = suggest_constraints(frame, schema)
    assert set(suggested) == {"`in` <= `out day`", "low <= high"}
    assert all(
        constraint.holds(frame).all()
        for constraint in read_constraints(suggested, schema)
    )


def test_an_order_is_found_in_text_that_mixes_days_and_times():
    rng = np.random.default_rng(0)
    half_days = rng.integers(0, 400, 200)
    start = pd.Timestamp("2024-01-01") + pd.to_timedelta(half_days * 12, unit="h")
    end = start + pd.to_timedelta(rng.integers(1, 60, 200) * 12, unit="h")
    text = {
        name: [str(t.date()) if t.hour == 0 else f"{t:%Y-%m-%d %H:%M}" for t in times]
        for name, times in {"start": start, "end": end}.items()
    }
    frame = pd.DataFrame(text)
    assert suggest_constraints(frame, infer_schema(frame)) == ["start <= end"]


def test_one_violation_prevents_a_suggestion_and_missing_values_do_not():
    frame = stays()
    frame.loc[5, "high"] = frame.loc[5, "low"] - 1
    incomplete = frame.mask(np.random.default_rng(1).random(frame.shape) < 0.3)
    assert not any(
        "low" in text for text in suggest_constraints(frame, infer_schema(frame))
    )
    assert any(
        "out day" in text
        for text in suggest_constraints(incomplete, infer_schema(incomplete))
    )


def test_any_name_may_be_quoted():
    names = {"start": "start date", "end": "end-date", "low": "a <= b", "high": "c, `d"}
    frame = FRAME.rename(columns=names)
    schema = infer_schema(frame, {"zip": "integer"})
    parsed = read_constraints(
        [
            "`start date` <= `end-date`",
            "\"start date\" <= 'end-date'",
            "`a <= b` < 'c, `d'",
            "`zip`, town",
            "'town', \"zip\", sea",
        ],
        schema,
    )
    columns = [constraint.columns for constraint in parsed]
    assert columns[:2] == [("start date", "end-date")] * 2
    assert columns[2:] == [
        ("a <= b", "c, `d"),
        ("zip", "town"),
        ("town", "zip", "sea"),
    ]
    stored, arrays = stored_constraints(parsed)
    again = restored_constraints(json.loads(json.dumps(stored)), arrays, schema, ())
    assert [constraint.columns for constraint in again] == columns


@pytest.mark.parametrize(
    "text", ["low < high or low < zip", "low is missing", "low in [high]", "low != 3"]
)
def test_a_constraint_is_no_condition(text):
    with pytest.raises(UsageError, match=r"columns with columns|none of them"):
        read_constraints(text, SCHEMA)
