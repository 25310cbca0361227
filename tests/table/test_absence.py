"""Missing cells that other columns determine."""

from __future__ import annotations

import json
import time

import numpy as np
import pandas as pd
import pytest

from augmask.errors import SchemaError
from augmask.missing.simulate import ampute
from augmask.table.absence import find_absences
from augmask.table.encode import Codec
from augmask.table.infer import infer_schema
from augmask.table.notes import absence_findings
from augmask.table.schema import Schema

ROWS = 600


def survey(n=ROWS, seed=0):
    """Return people, some of whom smoke, work or were asked late."""
    rng = np.random.default_rng(seed)
    smokes = rng.choice(["no", "yes", "former"], n, p=[0.5, 0.3, 0.2])
    return pd.DataFrame(
        {
            "age": rng.integers(16, 90, n),
            "smokes": smokes,
            "works": rng.random(n) < 0.6,
            "sex": rng.choice(["f", "m"], n),
            "year": rng.integers(1990, 2020, n),
            "a_day": rng.integers(1, 40, n).astype(float),
            "brand": rng.choice(["A", "B", "C"], n).astype(object),
            "income": rng.lognormal(10, 0.5, n).round(-2),
        }
    )


def test_what_one_level_tells_is_kept_by_itself():
    frame = survey()
    smoker = frame["smokes"] == "yes"
    frame.loc[~smoker, ["a_day", "brand"]] = None
    schema = infer_schema(frame)
    assert schema["a_day"].missing_as == schema["brand"].hole == "level"
    assert schema["income"].missing_as == "unknown"
    (found,) = absence_findings(schema)
    assert found["columns"] == ["a_day", "brand"]
    assert found["applied"]
    assert found["schema"]["brand"] == {"missing_as": "unknown"}
    assert '[columns."brand"]\nhole = "unknown"' in found["toml"]
    (note,) = [note for note in schema.notes() if "not applicable" in note]
    for word in (
        "'a_day', 'brand'",
        f"exactly the {(~smoker).sum()} rows",
        "smokes is",
    ):
        assert word in note
    assert "smokes is not 'yes'" in note


def test_it_is_switched_off_by_the_schema():
    frame = survey()
    frame.loc[frame["smokes"] != "yes", ["a_day", "brand"]] = None
    schema = infer_schema(frame, {"brand": {"missing_as": "unknown"}})
    assert schema["brand"].missing_as == "unknown"
    assert schema["a_day"].missing_as == "level"
    (note,) = [note for note in schema.notes() if "not applicable" in note]
    assert "brand" not in note


def test_the_finding_is_stored(tmp_path):
    frame = survey()
    frame.loc[frame["smokes"] != "yes", "brand"] = None
    frame.loc[frame["year"] < 2000, "income"] = None
    schema = infer_schema(frame)
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    schema.to_toml(tmp_path / "s.toml")
    told = infer_schema(frame, tmp_path / "s.toml")
    assert told.settings() == schema.settings()
    assert told["brand"].absent["where"] == schema["brand"].absent["where"]
    # who has written it down need not be told
    assert not any("not applicable" in note for note in told.notes())


@pytest.mark.parametrize("extra", [0, 8])
def test_a_bound_is_told_but_not_acted_on(extra):
    frame = survey()
    frame.loc[frame["year"] <= 2003, "income"] = None
    late = frame.index[frame["year"] > 2003]
    frame.loc[late[:extra], "income"] = None
    schema = infer_schema(frame)
    assert schema["income"].missing_as == "unknown"
    (found,) = absence_findings(schema)
    assert "year <= 2003" in found["text"]
    assert found["schema"] == {"income": {"missing_as": "level"}}
    assert any("if this means 'not applicable'" in note for note in schema.notes())


def test_what_is_nearly_so_is_told():
    frame = survey(2_000)
    frame.loc[frame["smokes"] != "yes", "a_day"] = None
    asked = frame.index[frame["smokes"] == "yes"]
    frame.loc[asked[::9], "a_day"] = None
    schema = infer_schema(frame)
    assert schema["a_day"].missing_as == "unknown"
    (found,) = absence_findings(schema)
    assert "smokes is not 'yes'" in found["text"]
    assert "of the others" in found["text"]


@pytest.mark.parametrize("join", ["and", "or"])
def test_two_columns_together(join):
    frame = survey(2_000)
    one, two = frame["smokes"] == "no", frame["works"]
    frame.loc[one & two if join == "and" else one | two, "brand"] = None
    schema = infer_schema(frame)
    assert schema["brand"].missing_as == "unknown"
    (found,) = absence_findings(schema)
    assert found["text"].startswith("missing in exactly")
    assert f" {join} " in found["text"]
    assert "smokes" in found["text"]
    assert "works" in found["text"]


@pytest.mark.parametrize("mechanism", ["mcar", "mar", "mnar"])
@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.8])
def test_no_alarm_where_cells_were_taken_away(mechanism, ratio):
    for n, seed in ((150, 0), (150, 1), (1_000, 2)):
        holed = ampute(survey(n, seed), mechanism, ratio, seed=seed)
        assert absence_findings(infer_schema(holed)) == []


def test_columns_that_miss_together_say_nothing():
    frame = survey()
    gone = np.random.default_rng(1).random(ROWS) < 0.3
    frame.loc[gone, ["a_day", "brand", "income"]] = None
    assert absence_findings(infer_schema(frame)) == []


def test_a_handful_of_rows_is_no_evidence():
    frame = survey(60)
    frame.loc[frame["smokes"] == "former", "brand"] = None
    assert (frame["brand"].isna()).sum() < 20
    assert absence_findings(infer_schema(frame)) == []


@pytest.mark.parametrize("shape", [(100_000, 12), (400, 2_000)])
def test_large_and_wide_tables_take_seconds(shape):
    rng = np.random.default_rng(0)
    n, d = shape
    frame = pd.DataFrame(
        {f"c{j}": rng.integers(0, 3 + j % 40, n).astype(float) for j in range(d)}
    ).astype(object)
    frame = frame.mask(rng.random(shape) < 0.2).assign(sick=rng.random(n) < 0.3)
    frame.loc[~frame["sick"], "c3"] = None
    frame["c3"] = frame["c3"].where(~frame["sick"] | frame["c3"].notna(), 1.0)
    schema = infer_schema(frame)
    began = time.process_time()
    found = find_absences(frame, schema)
    assert time.process_time() - began < 20
    assert list(found) == ["c3"]


def test_generated_rows_miss_exactly_where_they_should():
    frame = survey()
    frame.loc[frame["smokes"] != "yes", ["a_day", "brand"]] = None
    codec = Codec.fit(frame, infer_schema(frame), spread=0)
    codec = Codec.from_arrays(codec.schema, codec.arrays())
    rng = np.random.default_rng(0)
    cat = np.stack([rng.integers(0, k, 5_000) for k in codec.layout.cards], axis=1)
    before = cat.copy()
    rows = codec.decode(rng.normal(size=(5_000, codec.layout.n_num)), cat, rng)
    np.testing.assert_array_equal(cat, before)
    for name in ("a_day", "brand"):
        assert (rows[name].isna() == (rows["smokes"] != "yes")).all()
    assert set(rows["brand"].dropna()) == {"A", "B", "C"}


def test_observed_cells_come_back():
    frame = survey()
    frame.loc[frame["smokes"] != "yes", ["a_day", "brand"]] = None
    # where nobody knows who smokes, nothing is implied
    frame.loc[frame.index[frame["smokes"] == "yes"][:3], "smokes"] = None
    codec = Codec.fit(frame, infer_schema(frame), spread=0)
    table = codec.encode(frame, 0)
    assert codec.schema["brand"].gated
    rng = np.random.default_rng(0)
    rows = codec.decode(table.num, table.cat, rng, derive=False)
    for name in frame:
        same = (rows[name] == frame[name]) | (rows[name].isna() & frame[name].isna())
        assert same[frame["smokes"].notna() | (name != "smokes")].all(), name


@pytest.mark.parametrize(
    "changes",
    [
        {"where": []},
        {"where": [["smokes", "near", ["no"]]]},
        {"join": "xor"},
        {"inside": 2.0},
        {"counts": [0, 0]},
        {"colour": 1},
    ],
)
def test_damaged_findings_are_refused(changes):
    frame = survey()
    frame.loc[frame["smokes"] != "yes", "brand"] = None
    data = json.loads(json.dumps(infer_schema(frame).to_dict()))
    stored = next(c for c in data["columns"] if c["label"] == "brand")
    stored["absent"].update(changes)
    with pytest.raises(SchemaError, match="impossible absent"):
        Schema.from_dict(data)
