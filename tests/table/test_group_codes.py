"""Whole numbers that name groups."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask import AugMask
from augmask.prepare import prepare_fit
from augmask.table.group_codes import find_group_codes
from augmask.table.infer import infer_schema
from augmask.table.notes import is_group_code

ROWS = 3_000


def quick(**changes):
    """Return a model that learns in three steps."""
    options = {"width": 8, "depth": 1, "time_width": 8, "sampling_steps": 2, "steps": 3}
    return AugMask(device="cpu", augmenter="ecdf", options=options, **changes)


def pupils(n=ROWS, seed=0):
    """Return pupils of 40 schools with numbers that mean nothing."""
    rng = np.random.default_rng(seed)
    school = rng.integers(1, 41, n)
    level, rural = rng.normal(size=41), rng.random(41) < 0.4
    age = rng.integers(20, 60, n)
    return pd.DataFrame(
        {
            "school": school,
            "rural": np.where(rural[school], "yes", "no"),
            "score": (level[school] + rng.normal(size=n)).round(2),
            "age": age,
            "wage": (1_000 + 50 * age + rng.normal(0, 200, n)).round(1),
            "children": rng.poisson(age / 3),
        }
    )


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_codes_are_found_and_numbers_with_an_order_are_not(share):
    frame = pupils()
    frame = frame.mask(np.random.default_rng(1).random(frame.shape) < share)
    assert set(find_group_codes(frame, infer_schema(frame))) == {"school"}


def test_a_code_that_another_determines_stays_a_number():
    frame = pupils()
    frame["district"] = (frame["school"] * 7 % 41) // 3
    assert set(find_group_codes(frame, infer_schema(frame))) == {"school"}


def test_codes_say_why():
    (reason,) = find_group_codes(pupils(), infer_schema(pupils())).values()
    assert reason == "codes of 40 groups: 'rural' does not follow their order"


def test_codes_that_mean_an_order_stay_numbers():
    frame = pupils()
    # sorted by what they tell, the same numbers are a scale
    for column in ("rural", "score"):
        frame = frame.sort_values(column, kind="stable", ignore_index=True)
        frame["school"] = np.arange(len(frame)) * 40 // len(frame)
        frame = frame.drop(columns={"rural", "score"} - {column})
        assert not find_group_codes(frame, infer_schema(frame))
        frame = pupils()


@pytest.mark.parametrize("seed", range(5))
def test_independent_numbers_are_no_codes(seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {f"x{i}": rng.integers(0, 60, 1_500) for i in range(10)}
        | {f"y{i}": rng.choice(list("abc"), 1_500) for i in range(10)}
    )
    assert not find_group_codes(frame, infer_schema(frame))


def test_money_in_round_sums_is_no_code():
    rng = np.random.default_rng(0)
    limit = rng.choice([20, 50, 80, 100, 150, 200, 300, 500], 4_000) * 1_000
    limit = limit + rng.integers(0, 4, 4_000) * 10_000
    bill = limit * rng.beta(2, 3, 4_000)
    frame = pd.DataFrame({"limit": limit, "bill": bill.round(2)})
    assert not find_group_codes(frame, infer_schema(frame))


def test_a_schema_asks_for_codes_and_may_overrule_them():
    frame = pupils()
    assert infer_schema(frame)["school"].kind == "integer"
    school = infer_schema(frame, group_codes=True)["school"]
    assert (school.kind, school.dtype, len(school.levels)) == ("category", "int64", 40)
    assert is_group_code(school)
    declared = infer_schema(frame, {"school": "integer"}, group_codes=True)
    assert declared["school"].kind == "integer"


def test_codes_with_missing_as_a_level_stay_codes():
    frame = pupils()
    frame.loc[frame["rural"] == "yes", "school"] = None
    frame["score"] += frame["school"].isin([3, 7, 20, 31]) * 9
    column = infer_schema(frame, group_codes=True)["school"]
    assert column.kind == "category"
    assert column.missing_is_level


def test_fit_learns_codes_as_levels_unless_it_is_the_paper():
    def kind(**changes):
        model = quick(**changes)
        return prepare_fit(model, pupils()).state.codec.schema["school"].kind

    assert kind() == "category"
    assert kind(preset="paper") == "integer"


def test_generated_codes_are_observed_ones():
    frame = pupils()
    rows = quick().fit(frame).sample(200, seed=0)
    assert rows["school"].dtype == frame["school"].dtype
    assert set(rows["school"]) <= set(frame["school"])


def test_the_notes_name_codes_and_how_to_overrule_them():
    notes = infer_schema(pupils(), group_codes=True).notes()
    assert any("'school'" in note and "{'school': 'integer'}" in note for note in notes)
