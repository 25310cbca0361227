"""Missing values that other columns determine."""

from __future__ import annotations

import json
import time

import numpy as np
import pandas as pd
import pytest

from augmask.errors import SchemaError
from augmask.missing.simulate import ampute
from augmask.table.codec import Codec
from augmask.table.infer import infer_schema
from augmask.table.notes import missingness_findings
from augmask.table.schema import Schema
from augmask.table.structural_missingness import find_structural_missingness

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


def test_missing_values_implied_by_a_level_become_a_level():
    frame = survey()
    smoker = frame["smokes"] == "yes"
    frame.loc[~smoker, ["a_day", "brand"]] = None
    schema = infer_schema(frame)
    assert schema["a_day"].missing_as == schema["brand"].missing_as == "level"
    assert schema["income"].missing_as == "unknown"
    (finding,) = missingness_findings(schema)
    assert finding["columns"] == ["a_day", "brand"]
    assert finding["applied"]
    assert finding["schema"]["brand"] == {"missing_as": "unknown"}
    assert '[columns."brand"]\nmissing_as = "unknown"' in finding["toml"]
    (note,) = [note for note in schema.notes() if "not applicable" in note]
    for word in (
        "'a_day', 'brand'",
        f"exactly the {(~smoker).sum()} rows",
        "smokes is",
    ):
        assert word in note
    assert "smokes is not 'yes'" in note


def test_declared_missing_as_wins():
    frame = survey()
    frame.loc[frame["smokes"] != "yes", ["a_day", "brand"]] = None
    schema = infer_schema(frame, {"brand": {"missing_as": "unknown"}})
    assert schema["brand"].missing_as == "unknown"
    assert schema["a_day"].missing_as == "level"
    (note,) = [note for note in schema.notes() if "not applicable" in note]
    assert "brand" not in note


def test_findings_survive_json_and_toml(tmp_path):
    frame = survey()
    frame.loc[frame["smokes"] != "yes", "brand"] = None
    frame.loc[frame["year"] < 2000, "income"] = None
    schema = infer_schema(frame)
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    schema.to_toml(tmp_path / "s.toml")
    declared = infer_schema(frame, tmp_path / "s.toml")
    assert declared.settings() == schema.settings()
    assert (
        declared["brand"].missing_where["where"]
        == schema["brand"].missing_where["where"]
    )
    # No note about what you have declared.
    assert not any("not applicable" in note for note in declared.notes())


@pytest.mark.parametrize("extra", [0, 8])
def test_a_bound_is_reported_but_not_applied(extra):
    frame = survey()
    frame.loc[frame["year"] <= 2003, "income"] = None
    late = frame.index[frame["year"] > 2003]
    frame.loc[late[:extra], "income"] = None
    schema = infer_schema(frame)
    assert schema["income"].missing_as == "unknown"
    (finding,) = missingness_findings(schema)
    assert "year <= 2003" in finding["text"]
    assert finding["schema"] == {"income": {"missing_as": "level"}}
    assert any("if this means 'not applicable'" in note for note in schema.notes())


def test_a_condition_with_exceptions_is_reported():
    frame = survey(2_000)
    frame.loc[frame["smokes"] != "yes", "a_day"] = None
    asked = frame.index[frame["smokes"] == "yes"]
    frame.loc[asked[::9], "a_day"] = None
    schema = infer_schema(frame)
    assert schema["a_day"].missing_as == "unknown"
    (finding,) = missingness_findings(schema)
    assert "smokes is not 'yes'" in finding["text"]
    assert "of the others" in finding["text"]


@pytest.mark.parametrize("join", ["and", "or"])
def test_a_condition_on_two_columns_is_reported(join):
    frame = survey(2_000)
    one, two = frame["smokes"] == "no", frame["works"]
    frame.loc[one & two if join == "and" else one | two, "brand"] = None
    schema = infer_schema(frame)
    assert schema["brand"].missing_as == "unknown"
    (finding,) = missingness_findings(schema)
    assert finding["text"].startswith("missing in exactly")
    assert f" {join} " in finding["text"]
    assert "smokes" in finding["text"]
    assert "works" in finding["text"]


@pytest.mark.parametrize("mechanism", ["mcar", "mar", "mnar"])
@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.8])
def test_no_finding_in_amputed_tables(mechanism, ratio):
    for n, seed in ((150, 0), (150, 1), (1_000, 2)):
        incomplete = ampute(
            survey(n, seed), mechanism=mechanism, ratio=ratio, seed=seed
        )
        assert missingness_findings(infer_schema(incomplete)) == []


def test_no_finding_for_columns_that_are_missing_together():
    frame = survey()
    missing = np.random.default_rng(1).random(ROWS) < 0.3
    frame.loc[missing, ["a_day", "brand", "income"]] = None
    assert missingness_findings(infer_schema(frame)) == []


def test_no_finding_in_a_handful_of_rows():
    frame = survey(60)
    frame.loc[frame["smokes"] == "former", "brand"] = None
    assert (frame["brand"].isna()).sum() < 20
    assert missingness_findings(infer_schema(frame)) == []


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
    start = time.process_time()
    findings = find_structural_missingness(frame, schema)
    assert time.process_time() - start < 20
    assert list(findings) == ["c3"]


def test_generated_rows_are_missing_exactly_where_implied():
    frame = survey()
    frame.loc[frame["smokes"] != "yes", ["a_day", "brand"]] = None
    codec = Codec.fit(frame, infer_schema(frame), dequantize=0)
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
    # Where smokes is missing, nothing is implied.
    frame.loc[frame.index[frame["smokes"] == "yes"][:3], "smokes"] = None
    codec = Codec.fit(frame, infer_schema(frame), dequantize=0)
    table = codec.encode(frame, 0)
    assert codec.schema["brand"].missing_is_level
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
    stored["missing_where"].update(changes)
    with pytest.raises(SchemaError, match="missing_where"):
        Schema.from_dict(data)
