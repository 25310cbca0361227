"""Levels that occur beside certain levels of other columns only."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from augmask import AugMask
from augmask.prepare import prepare_fit
from augmask.table.codec import Codec
from augmask.table.infer import infer_schema
from augmask.table.schema import Schema
from augmask.table.seen_combinations import (
    keep_to_seen,
    with_links,
    with_seen_combinations,
)

ROWS = 6_000


def quick(**changes):
    """Return a model that learns in three steps."""
    options = {"width": 8, "depth": 1, "time_width": 8, "sampling_steps": 2, "steps": 3}
    return AugMask(device="cpu", augmenter="ecdf", options=options, **changes)


def surveys(n=ROWS, seed=0):
    """Return catches on two days a month; the days differ between years."""
    rng = np.random.default_rng(seed)
    year, month = rng.integers(1990, 2010, n), rng.integers(1, 13, n)
    first = np.random.default_rng(1).integers(1, 28, (2010, 13))
    day = first[year, month] + rng.integers(0, 2, n)
    return pd.DataFrame(
        {
            "year": year,
            "month": month,
            "day": day,
            "species": rng.choice(list("abcdef"), n),
            "weight": rng.gamma(4, 9, n).round(),
        }
    )


def stored_schema(frame, overrides=None):
    schema = with_links(frame, infer_schema(frame, overrides))
    # As JSON, like in a model file.
    return Schema.from_dict(json.loads(json.dumps(schema.to_dict())))


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_what_only_occurs_together_is_found(share):
    frame = surveys(20_000)
    frame = frame.mask(np.random.default_rng(1).random(frame.shape) < share)
    found = {c.name: c.seen_with for c in stored_schema(frame) if c.seen_with}
    assert set(found) == {"day"}
    assert set(found["day"]["columns"]) == {"year", "month"}
    assert found["day"]["rules_out"] > 0.9
    assert len(found["day"]["combinations"]) == 20 * 12 * 2


def test_independent_columns_are_free():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{i}": rng.integers(0, 30, ROWS) for i in range(6)})
    assert not any(c.seen_with for c in stored_schema(frame))


def test_a_few_rows_show_nothing():
    assert not any(c.seen_with for c in stored_schema(surveys(700)))


def test_combinations_that_hardly_repeat_are_not_all_there_are():
    rng = np.random.default_rng(0)
    person = rng.integers(0, 4_000, ROWS)
    frame = pd.DataFrame({"street": person % 97, "house": person // 97})
    assert not any(c.seen_with for c in stored_schema(frame))


def test_a_range_that_depends_on_a_column_is_learned():
    rng = np.random.default_rng(0)
    species = rng.integers(0, 8, ROWS)
    frame = pd.DataFrame(
        {
            "species": np.array(list("abcdefgh"))[species],
            "foot": 15 + 5 * species + rng.integers(0, 9, ROWS),
        }
    )
    assert stored_schema(frame)["foot"].seen_with is None


def test_a_number_becomes_the_nearest_one_seen():
    frame = surveys()
    column = stored_schema(frame)["day"]
    rng = np.random.default_rng(0)
    parents = [frame[name] for name in column.seen_with["columns"]]
    kept = keep_to_seen(column, frame["day"], parents, rng)
    seen = frame.groupby(["year", "month", "day"])["day"].transform("size") > 1
    assert (kept[seen] == frame["day"][seen]).all()
    far = pd.Series(np.full(len(frame), 31))
    moved = keep_to_seen(column, far, parents, rng)
    latest = frame[seen].groupby(["year", "month"])["day"].max()
    at = pd.MultiIndex.from_frame(frame[["year", "month"]])
    assert (moved.to_numpy() == latest.reindex(at).to_numpy()).mean() > 0.99


def test_a_level_is_drawn_from_those_seen_by_their_frequency():
    rng = np.random.default_rng(0)
    town = rng.integers(0, 40, 20_000)
    other = rng.random(20_000) > 0.8
    street = (7 * town + 11 * other) % 30
    frame = pd.DataFrame(
        {"street": [f"s{k}" for k in street], "town": [f"t{k}" for k in town]}
    )
    schema = with_seen_combinations(frame, infer_schema(frame))
    column = schema["street"]
    assert column.seen_with["columns"] == ["town"]
    elsewhere = pd.Series([f"s{k}" for k in (7 * town + 5) % 30])
    moved = keep_to_seen(column, elsewhere, [frame["town"]], rng)
    turn = (moved.str[1:].astype(int) - 7 * town) % 30
    assert set(turn) == {0, 11}
    assert (turn == 0).mean() == pytest.approx(0.8, abs=0.02)


def test_the_column_that_says_less_keeps_to_the_other():
    rng = np.random.default_rng(0)
    school = rng.integers(0, 60, 12_000)
    teacher = (school * 7 + rng.integers(0, 3, 12_000) * 11) % 30
    grade = rng.choice(list("abcd"), 12_000)
    frame = pd.DataFrame({"school": school, "years": teacher, "grade": grade})
    kinds = {"school": "category", "years": "category"}
    schema = with_seen_combinations(frame, infer_schema(frame, kinds))
    assert schema["years"].seen_with["columns"] == ["school"]
    assert schema["school"].seen_with is None


def test_missing_cells_and_unknown_parents_stay():
    frame = surveys()
    column = stored_schema(frame)["day"]
    decoded = pd.Series([31.0, None, 31.0])
    parents = {
        "year": pd.Series([3000, 1995, None]),
        "month": pd.Series([1.0, 2.0, 3.0]),
    }
    rows = [parents[name] for name in column.seen_with["columns"]]
    kept = keep_to_seen(column, decoded, rows, np.random.default_rng(0))
    pd.testing.assert_series_equal(kept, decoded)


def test_decoding_keeps_to_what_was_seen():
    frame = surveys(20_000)
    schema = stored_schema(frame)
    codec = Codec.fit(frame, schema, 0)
    table = codec.encode(frame, 0)
    rng = np.random.default_rng(0)
    num, cat = table.num.copy(), table.cat
    at = codec.layout.num_names.index("day")
    num[:, at] = rng.permutation(num[:, at])
    seen = set(frame[["year", "month", "day"]].itertuples(index=False, name=None))

    def share_seen(derive):
        rows = codec.decode(num, cat, np.random.default_rng(0), derive=derive)
        rows = rows[["year", "month", "day"]].itertuples(index=False, name=None)
        return np.mean([row in seen for row in rows])

    assert share_seen(derive=False) < 0.2
    assert share_seen(derive=True) == 1.0


def test_a_column_that_says_what_is_not_applicable_stays():
    frame = surveys()
    frame["trap"] = "t" + ((7 * frame["year"] + frame["species"].map(ord)) % 9).astype(
        str
    )
    frame["trap"] = frame["trap"].where(frame["year"] % 9 != 0, "none")
    numbers = dict.fromkeys(("year", "month", "day"), "integer")
    kinds = numbers | {"year": "category"}
    assert stored_schema(frame, kinds)["trap"].seen_with
    frame["bait"] = np.where(frame["trap"] == "none", None, "oats")
    frame.loc[::2, "bait"] = frame.loc[::2, "bait"].replace("oats", "seeds")
    schema = stored_schema(frame, kinds)
    assert schema["bait"].missing_where["structural"]
    assert schema["trap"].seen_with is None


def test_a_declaration_switches_it_off():
    frame = surveys()
    model_schema = stored_schema(frame, {"day": {"determined_by": "nothing"}})
    assert model_schema["day"].seen_with is None
    assert stored_schema(frame)["day"].seen_with


def test_fit_keeps_to_them_unless_it_is_the_paper():
    def seen(schema=None, **changes):
        model = quick(**changes)
        codec = prepare_fit(model, surveys(), schema=schema).state.codec
        return {column.name for column in codec.schema if column.seen_with}

    numbers = dict.fromkeys(("year", "month", "day"), "integer")
    assert seen(numbers) == {"day"}
    assert len(seen()) == 1
    assert not seen(preset="paper")
    assert "day" not in seen(numbers | {"day": {"determined_by": "nothing"}})


def test_known_cells_win():
    frame = surveys()
    kinds = dict.fromkeys(("year", "month", "day"), "integer")
    model = quick().fit(frame, schema=kinds)
    rows = model.sample(20, where={"day": 17}, seed=0)
    assert (rows["day"] == 17).all()


def test_the_notes_name_the_columns_and_how_to_free_them():
    (note,) = [n for n in stored_schema(surveys()).notes() if "combinations" in n]
    assert "'day' with" in note
    assert "{'day': {'determined_by': 'nothing'}}" in note
