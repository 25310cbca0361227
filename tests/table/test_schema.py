from __future__ import annotations

import json

import pandas as pd
import pytest

from augmask.errors import SchemaError
from augmask.table.infer import infer_schema
from augmask.table.schema import Column, Schema, read_overrides

ROWS = 30
FRAME = pd.DataFrame(
    {
        "weight": [None, *(60 + i / 8 for i in range(1, ROWS))],
        'odd "name"\n\x7f': ["a\\b", 'q"', "ü\t"] * 10,
        "flag": [True, None, False] * 10,
        "grade": [1, 2, 3, None, 5] * 6,
        "when": pd.date_range("2020-01-01", periods=ROWS, tz="Asia/Tokyo")[::-1],
        "code": [f"K{i:04d}" for i in range(ROWS)],
        "same": "x",
        "none": None,
        5: pd.Series(["lo", "hi"] * 15, dtype="category"),
    }
)


@pytest.fixture
def schema():
    return infer_schema(
        FRAME, {"flag": {"missing_as": "level"}, "grade": {"na_values": [5]}}
    )


def test_json_round_trip_is_exact(schema):
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    assert [type(level) for level in again["grade"].levels] == [int, int, int]
    assert again[5].label == 5


def test_toml_round_trip(schema, tmp_path):
    path = tmp_path / "schema.toml"
    schema.to_toml(path)
    assert infer_schema(FRAME, path) == schema
    assert read_overrides(path)["flag"]["missing_as"] == "level"
    assert f"# {schema['weight'].reason}\n" in path.read_text(encoding="utf-8")


def test_print_is_an_aligned_table_with_reasons(schema):
    lines = str(infer_schema(FRAME.rename(columns=lambda c: str(c)[:3]))).splitlines()
    assert len(lines) == 1 + len(FRAME.columns)
    at = lines[0].index("kind")
    assert {line[at - 1] for line in lines} == {" "}
    assert all(line[at] != " " for line in lines)
    assert schema["same"].reason in str(schema)


def test_notes_name_what_is_not_learned(schema):
    notes = schema.notes()
    assert sum("identifiers" in note and "'code'" in note for note in notes) == 1
    assert any("constant" in note and "'same'" in note for note in notes)
    assert any("nothing was observed" in note and "'none'" in note for note in notes)


def test_unknown_column_is_named(schema):
    with pytest.raises(SchemaError, match="did you mean 'weight'"):
        schema["wieght"]


def damaged(data, column, **changes):
    data = json.loads(json.dumps(data))
    stored = next(c for c in data["columns"] if c["label"] == column)
    stored.update(changes)
    return data


DAMAGE = {
    "kind": ("weight", {"kind": "magic"}, "kind must be one of"),
    "field": ("weight", {"colour": 1}, "unknown field 'colour'"),
    "range": ("weight", {"low": 99.0, "high": 1.0}, "of kind 'float'"),
    "no range": ("weight", {"low": None}, "of kind 'float'"),
    "infinite": ("weight", {"high": float("inf")}, "high must be a finite number"),
    "dtype": ("weight", {"dtype": "no such type"}, "dtype must be a pandas dtype"),
    "reason": ("weight", {"reason": 3}, "reason must be text, got 3"),
    "levels": ("grade", {"levels": []}, "of kind 'category'"),
    "levels twice": ("grade", {"levels": [1, 1]}, "levels must be .* different items"),
    "level type": ("grade", {"levels": [[1]]}, r"levels\[0\] must be text"),
    "foreign level": (5, {"levels": ["lo", "new"]}, "of kind 'category'"),
    "rare levels": (5, {"rare_levels": [["x", 0]]}, r"rare_levels\[0\]\[1\] must be"),
    "boolean": ("flag", {"levels": ["yes"]}, "of kind 'boolean'"),
    "ordered": ("grade", {"ordered": 1}, "ordered must be true or false"),
    "unit": ("when", {"unit": "fortnight"}, "unit must be one of"),
    "form": ("code", {"form": {"make": "magic"}}, "form must be a known form"),
    "missing rate": ("flag", {"missing_rate": 3.0}, "missing_rate must be"),
    "twice": ("flag", {"label": "weight"}, "must not name a column twice"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_schemas_are_refused(schema, name):
    column, changes, message = DAMAGE[name]
    with pytest.raises(SchemaError, match=message) as caught:
        Schema.from_dict(damaged(schema.to_dict(), column, **changes))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("data", [None, {}, {"columns": []}, {"columns": [3]}])
def test_anything_else_than_a_schema_is_refused(data):
    with pytest.raises(SchemaError):
        Schema.from_dict(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[columns.a", "not valid TOML"),
        ("[colums.a]\nkind = 'float'", "must hold tables named"),
        ("columns = 3", "must hold tables named"),
        ("[columns.a]\nkind = 'flot'", "did you mean 'float'"),
    ],
)
def test_invalid_schema_files_raise_one_sentence(text, message, tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(SchemaError, match=message):
        read_overrides(path)
    with pytest.raises(SchemaError, match="cannot be read"):
        read_overrides(tmp_path / "absent.toml")


def test_a_note_names_columns_beyond_float_precision():
    times = pd.to_datetime(
        ["2020-01-01T00:00:00.000000001", "2020-08-01", None], format="ISO8601"
    )
    frame = pd.DataFrame(
        {
            "wide": [i * 2**50 for i in range(12)],
            "narrow": [2**60 + i for i in range(11)] + [2**60 + 40],
            "time": pd.Series(times).repeat(4).to_numpy(),
            "day": pd.date_range("2020", periods=12),
        }
    )
    (note,) = [note for note in infer_schema(frame).notes() if "2**53" in note]
    assert "columns 'wide', 'time';" in note


def test_deeply_nested_schema_files_are_refused(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(f'[columns."a"]\nlevels = {"[" * 5000}{"]" * 5000}\n')
    with pytest.raises(SchemaError, match="nested too deeply"):
        read_overrides(path)
    path.write_text("x = " + "9" * 9000)
    with pytest.raises(SchemaError, match="not valid TOML"):
        read_overrides(path)


@pytest.mark.parametrize(
    ("kind", "pattern"), [("datetime", "#,##0"), ("integer", "%d/%m/%Y")]
)
def test_a_stored_format_of_another_kind_is_refused(kind, pattern):
    """Found by the attack on model files: sampling would meet dates as numbers."""
    dates = ["16/08/2021", "17/08/2021", "18/09/2021"] * 5
    numbers = [f"{i:,}" for i in range(1000, 1015)]
    frame = pd.DataFrame({"x": dates if kind == "datetime" else numbers})
    column = infer_schema(frame)["x"]
    assert column.kind == kind
    assert Column.from_dict(column.to_dict()) == column
    with pytest.raises(SchemaError, match="'x' do not describe a column of kind"):
        Column.from_dict(column.to_dict() | {"format": pattern})
