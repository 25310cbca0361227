"""Columns that are (nearly) functions of others."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import augmask as am
from augmask.errors import SchemaError
from augmask.presets import PRESETS
from augmask.table.codec import Codec
from augmask.table.functional_dependencies import (
    find_dependencies,
    with_dependencies,
)
from augmask.table.infer import infer_schema
from augmask.table.schema import Schema
from augmask.table.seen_combinations import without_links

ROWS = 3_000


def schools(n=ROWS, seed=0, stay=0.95):
    """Return pupils whose school is mostly that of the year before."""
    rng = np.random.default_rng(seed)
    first = rng.integers(1, 60, n)

    def next_year(last):
        moved = rng.random(n) > stay
        return np.where(moved, rng.integers(1, 60, n), last)

    second = next_year(first)
    third = next_year(second)
    frame = pd.DataFrame(
        {
            "id1": first,
            "town": [f"town {c // 3}" for c in first],
            "id2": second,
            "id3": third,
            "score": rng.normal(size=n).round(2),
            "fee": rng.integers(100, 900, n) / 10,
            "tax": rng.integers(100, 900, n) / 10,
        }
    )
    frame["paid"] = (frame["fee"] + frame["tax"]).round(1)
    return frame


def with_missing(frame, share=0.3, seed=1):
    rng = np.random.default_rng(seed)
    return frame.mask(rng.random(frame.shape) < share)


def stored_schema(frame, overrides=None):
    schema = with_dependencies(frame, infer_schema(frame, overrides))
    # As JSON, like in a model file.
    return Schema.from_dict(json.loads(json.dumps(schema.to_dict())))


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_equal_mapped_and_summed_columns_are_found(share):
    frame = with_missing(schools(), share)
    dependencies = find_dependencies(frame, infer_schema(frame))
    assert {
        name: (each["how"], each["columns"]) for name, each in dependencies.items()
    } == {
        "town": ("map", ["id1"]),
        "id2": ("same", ["id1"]),
        "id3": ("same", ["id2"]),
        "paid": ("sum", ["fee", "tax"]),
    }
    assert dependencies["town"]["share"] == dependencies["paid"]["share"] == 1
    assert dependencies["id2"]["share"] == pytest.approx(0.95, abs=0.02)


def test_two_names_of_one_binary_fact_stay_together():
    rng = np.random.default_rng(4)
    fact = rng.random(500) < 0.4
    rare = rng.random(500) < 0.01
    frame = pd.DataFrame(
        {
            "survived": fact.astype(int),
            "alive": np.where(fact, "yes", "no"),
            "adult": np.where(rng.random(500) < 0.1, ~fact, fact),
            # equal in so few rows that it may be a coincidence
            "flag": rare,
            "other flag": rare,
        }
    )
    found = find_dependencies(frame, infer_schema(frame))
    assert {name: d["columns"] for name, d in found.items()} == {"alive": ["survived"]}
    assert found["alive"]["share"] == 1


def test_columns_that_only_share_their_zeros_are_independent():
    rng = np.random.default_rng(0)
    gain, loss = (
        np.where(rng.random(ROWS) < 0.95, 0, rng.integers(1, 5_000, ROWS))
        for _ in range(2)
    )
    assert (gain == loss).mean() > 0.9
    frame = pd.DataFrame(
        {
            "gain": gain,
            "loss": loss,
            "rare": rng.random(ROWS) < 0.005,
            "age": rng.integers(18, 90, ROWS),
            "code": rng.integers(0, 800, ROWS),
            "sex": rng.choice(["f", "m"], ROWS),
        }
    )
    assert find_dependencies(frame, infer_schema(frame)) == {}


def test_the_feature_is_observed_where_both_cells_are():
    frame = with_missing(schools())
    codec = Codec.fit(frame, stored_schema(frame))
    table = codec.encode(frame)
    at = codec.layout.cat_names.index("id2 follows id1")
    both = frame[["id1", "id2"]].notna().all(axis=1)
    known = table.observed[:, codec.layout.n_num + at]
    np.testing.assert_array_equal(known, both)
    same = (frame["id1"] == frame["id2"])[both]
    np.testing.assert_array_equal(table.cat[both, at], same)
    # A dependency without exceptions needs no feature.
    assert not any("town follows" in name for name in codec.layout.cat_names)


def test_the_columns_themselves_are_encoded_as_without_links():
    frame = with_missing(schools())
    schema = stored_schema(frame)
    plain = Codec.fit(frame, without_links(schema)).encode(frame)
    table = Codec.fit(frame, schema).encode(frame)
    own = [table.layout.names.index(name) for name in plain.layout.names]
    np.testing.assert_array_equal(table.observed[:, own], plain.observed)
    np.testing.assert_array_equal(table.num, plain.num)


def test_decoding_the_encoded_frame_with_dependencies_returns_it():
    frame = schools()
    codec = Codec.fit(frame, stored_schema(frame))
    table = codec.encode(frame)
    rows = codec.decode(table.num, table.cat, np.random.default_rng(0))
    pd.testing.assert_frame_equal(rows, frame)


@pytest.mark.parametrize("dequantize", [None, 0])
def test_observed_cells_come_back(dequantize):
    frame = with_missing(schools())
    codec = Codec.fit(frame, stored_schema(frame), dequantize)
    table = codec.encode(frame, dequantize)
    # Beneath a missing value, codes imply nothing.
    rng = np.random.default_rng(0)
    rows = codec.decode(table.num, table.cat, rng, derive=False)
    for name in frame:
        observed = frame[name].notna()
        assert (rows.loc[observed, name] == frame.loc[observed, name]).all(), name


def test_generated_rows_keep_the_relation_at_its_rate():
    frame = with_missing(schools())
    codec = Codec.fit(frame, stored_schema(frame), 0)
    codec = Codec.from_arrays(codec.schema, codec.arrays())
    rng = np.random.default_rng(0)
    n = 5_000
    cat = np.stack([rng.integers(0, k, n) for k in codec.layout.cards], axis=1)
    for j, name in enumerate(codec.layout.cat_names):
        if "follows" in name:
            cat[:, j] = rng.random(n) < 0.95
    rows = codec.decode(rng.normal(size=(n, codec.layout.n_num)), cat, rng)
    for one, two in (("id1", "id2"), ("id2", "id3")):
        assert (rows[one] == rows[two]).mean() == pytest.approx(0.955, abs=0.015)
    assert (rows["town"] == [f"town {c // 3}" for c in rows["id1"]]).all()
    total = rows["fee"] + rows["tax"]
    inside = total.between(frame["paid"].min(), frame["paid"].max())
    assert np.allclose(rows["paid"][inside], total[inside])
    assert inside.mean() > 0.9
    pd.testing.assert_series_equal(rows.dtypes, schools().dtypes)


def test_a_part_of_a_round_total_is_the_difference():
    rng = np.random.default_rng(0)
    loan = rng.integers(40, 1_600, ROWS) * 25
    paid = (loan * rng.beta(1, 4, ROWS)).round(2)
    frame = pd.DataFrame({"loan": loan, "paid": paid, "left": (loan - paid).round(2)})
    (name, dependency) = find_dependencies(frame, infer_schema(frame)).popitem()
    assert name == "left"
    assert dependency["how"] == "difference"
    assert dependency["share"] == 1
    codec = Codec.fit(frame, stored_schema(frame), 0)
    table = codec.encode(frame, 0)
    rows = codec.decode(table.num, table.cat, rng)
    np.testing.assert_allclose(rows["paid"] + rows["left"], rows["loan"])
    assert (rows["loan"] % 25 == 0).all()


def test_text_and_categories_are_determined_too():
    rng = np.random.default_rng(0)
    names = np.array([f"k{i:02d}" for i in range(30)], object)
    one = rng.choice(names, ROWS)
    two = np.where(rng.random(ROWS) < 0.97, one, rng.choice(names, ROWS))
    frame = pd.DataFrame(
        {"one": one, "two": pd.Categorical(two), "flag": pd.Series(one) < "k10"}
    )
    frame["rank"] = pd.Series(one).str[1:].astype(int)
    codec = Codec.fit(frame, stored_schema(frame))
    dependencies = {
        c.name: c.determined_by["columns"] for c in codec.schema if c.determined_by
    }
    assert dependencies == {"two": ["one"], "flag": ["one"], "rank": ["one"]}
    table = codec.encode(frame)
    cat = table.cat.copy()
    cat[:, codec.layout.cat_names.index("one")] = rng.integers(0, 30, ROWS)
    rows = codec.decode(table.num, cat, rng)
    assert (rows["flag"] == (rows["one"] < "k10")).all()
    assert (rows["rank"] == rows["one"].str[1:].astype(int)).all()
    assert (rows["two"].astype(object) == rows["one"]).mean() > 0.95
    assert isinstance(rows["two"].dtype, pd.CategoricalDtype)


def test_declared_dependencies_win():
    frame = schools()
    schema = stored_schema(
        frame, {"id2": {"determined_by": "nothing"}, "id3": {"determined_by": "id1"}}
    )
    assert schema["id2"].determined_by is None
    assert schema["id3"].determined_by["columns"] == ["id1"]
    assert schema["town"].determined_by["columns"] == ["id1"]
    with pytest.raises(SchemaError, match=r"'idd1'.*did you mean 'id1'"):
        stored_schema(frame, {"id2": {"determined_by": "idd1"}})
    with pytest.raises(SchemaError, match="name of another column"):
        infer_schema(frame, {"id2": {"determined_by": "id2"}})


def test_one_note_lists_the_dependencies():
    relations = "generated rows keep these relations"
    (note,) = [n for n in stored_schema(schools()).notes() if n.startswith(relations)]
    assert "'town' is a function of id1 in all 3,000 rows" in note
    assert "{'town': {'determined_by': 'nothing'}}" in note
    assert not any(relations in n for n in infer_schema(schools()).notes())


def test_the_paper_preset_ignores_dependencies():
    assert PRESETS["paper"].links == "ignore"
    assert PRESETS["fast"].links == PRESETS["balanced"].links == "keep"


def test_a_saved_model_keeps_dependencies(tmp_path, caplog):
    frame = with_missing(schools(600), 0.1)
    small = {"steps": 60, "batch_size": 128, "width": 32, "completions": "one"}
    model = am.AugMask(augmenter="ecdf", preset="fast", options=small)
    # Logged, not warned: there is nothing to act on.
    with caplog.at_level("INFO", logger="augmask"):
        model.fit(frame)
    assert "generated rows keep these relations" in caplog.text
    model.save(tmp_path / "m.augmask")
    rows = am.load(tmp_path / "m.augmask").sample(400, seed=1)
    pd.testing.assert_frame_equal(rows, model.sample(400, seed=1))
    assert not rows.isna().any().any()
    assert (rows["town"] == [f"town {c // 3}" for c in rows["id1"]]).all()
    assert (rows["id2"] == rows["id1"]).mean() > 0.8
    conditional = model.sample(50, where={"id2": 7}, seed=1)
    assert (conditional["id2"] == 7).all()
    filled = model.impute(frame.head(50), seed=1)
    observed = frame.head(50).notna()
    assert (filled[observed] == frame.head(50)[observed]).to_numpy()[observed].all()


@pytest.mark.parametrize(
    "changes",
    [
        {"how": "magic"},
        {"share": 2.0},
        {"columns": []},
        {"columns": "id1"},
        {"pairs": []},
        {"pairs": [[1]]},
        {"colour": 1},
    ],
)
def test_damaged_dependencies_are_refused(changes):
    data = json.loads(json.dumps(stored_schema(schools()).to_dict()))
    stored = next(c for c in data["columns"] if c["label"] == "town")
    stored["determined_by"].update(changes)
    with pytest.raises(SchemaError, match="determined_by"):
        Schema.from_dict(data)
