from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from augmask.errors import DataError, SchemaError
from augmask.table.codec import Codec
from augmask.table.infer import infer_schema, missing_mask
from augmask.table.schema import Column, Schema

N = 40
TEXT = str(pd.Series(["text"]).dtype)
DATE = str(pd.to_datetime(pd.Series(["2020-01-01"])).dtype)
NUMBERS = [(7 * i) % 31 for i in range(N)]


def some_missing(values):
    return [None if i % 5 == 3 else value for i, value in enumerate(values)]


def series(values, dtype=None):
    return pd.Series(list(values), dtype=dtype)


days = [f"2021-03-{1 + i % 28:02d}" for i in range(N)]
floats = [i / 7 for i in range(N)]
letters = [f"level {i % 4}" for i in range(N)]
stamps = pd.to_datetime(pd.Series(days)).dt.as_unit("ns")

# (input, kind, dtype of the complete output)
RECOVERED = {
    "int64": (series(NUMBERS), "integer", "int64"),
    "int64 with missing": (series(some_missing(NUMBERS)), "integer", "int64"),
    "whole floats": (series(map(float, NUMBERS)), "integer", "float64"),
    "int8": (series(NUMBERS, "int8"), "integer", "int8"),
    "uint16": (series(NUMBERS, "uint16"), "integer", "uint16"),
    "Int64": (series(some_missing(NUMBERS), "Int64"), "integer", "Int64"),
    "Int16": (series(some_missing(NUMBERS), "Int16"), "integer", "Int16"),
    "Float64": (series(some_missing(floats), "Float64"), "float", "float64"),
    "int objects": (series(some_missing(NUMBERS), object), "integer", "int64"),
    "float32": (series(some_missing(floats), "float32"), "float", "float32"),
    "floats": (series(some_missing(floats)), "float", "float64"),
    "int and float": (series([1, 2.5, *range(N)], object), "float", "float64"),
    "Decimal": (series([Decimal(i) / 4 for i in range(N)]), "float", "float64"),
    "bool": (series([True, False] * 20), "boolean", "bool"),
    "bool with missing": (series(some_missing([True, False] * 20)), "boolean", "bool"),
    "boolean": (series([True, None, False], "boolean"), "boolean", "boolean"),
    "bool as text": (series(["True", None, "False"]), "boolean", "bool"),
    "few integers": (series(some_missing([0, 1, 2, 3] * 10)), "category", "int64"),
    "few whole floats": (series([0.0, 1.0] * 20), "category", "float64"),
    "few floats": (series([0.5, 1.5] * 20), "float", "float64"),
    "text": (series(some_missing(letters)), "category", TEXT),
    "text objects": (series(some_missing(letters), object), "category", "object"),
    "string": (series(some_missing(letters), "string"), "category", "string"),
    "category": (series(some_missing(letters), "category"), "category", "category"),
    "number category": (series(NUMBERS, "category"), "category", "category"),
    "datetime": (stamps, "datetime", "datetime64[ns]"),
    "time zone": (
        stamps.dt.tz_localize("Europe/Berlin"),
        "datetime",
        "datetime64[ns, Europe/Berlin]",
    ),
    "seconds": (stamps.dt.as_unit("s"), "datetime", "datetime64[s]"),
    "ISO text": (series(some_missing(days)), "datetime", DATE),
    "ISO text in UTC": (
        series(f"{day}T10:00:00Z" for day in days),
        "datetime",
        DATE.replace("]", ", UTC]"),
    ),
    "dates": (
        series([dt.date(2020, 1, 1 + i % 9) for i in range(N)]),
        "datetime",
        None,
    ),
    "date category": (stamps.astype("category"), "datetime", "datetime64[ns]"),
    "arrow int": (series(some_missing(NUMBERS), "int64[pyarrow]"), "integer", "int64"),
    "arrow double": (
        series(some_missing(floats), "double[pyarrow]"),
        "float",
        "float64",
    ),
    "arrow bool": (series([True, None, False], "bool[pyarrow]"), "boolean", "bool"),
    "arrow text": (
        series(some_missing(letters), pd.ArrowDtype(pa.string())),
        "category",
        TEXT,
    ),
    "arrow date": (
        series([dt.date(2020, 1, 1 + i % 9) for i in range(N)], "date32[pyarrow]"),
        "datetime",
        None,
    ),
    "constant": (series([5, None, 5]), "constant", "int64"),
    "constant bool": (series([True, None]), "constant", "bool"),
    "constant date": (series(["2020-01-01"] * 3), "constant", DATE),
    "constant category": (series(["a", None], "category"), "constant", "category"),
    "all missing": (series([None] * 5), "all-missing", "object"),
    "all NaN": (series([np.nan] * 5), "all-missing", "float64"),
    "all NA": (series([None] * 5, "Int64"), "all-missing", "Int64"),
    "all NaT": (series([pd.NaT] * 5), "all-missing", None),
    "empty category": (series([None] * 5, "category"), "all-missing", None),
    "row numbers": (series(range(10, 10 + N)), "identifier", "int64"),
    "uuid": (series(str(uuid.UUID(int=i**9)) for i in range(N)), "identifier", TEXT),
    "one row": (series([3.5]), "constant", "float64"),
}


@pytest.mark.parametrize("name", RECOVERED)
def test_kind_and_output_dtype(name):
    column, kind, dtype = RECOVERED[name]
    frame = pd.DataFrame({"x": column})
    schema = infer_schema(frame)
    assert schema["x"].kind == kind, schema["x"].reason
    assert dtype is None or schema["x"].dtype == dtype
    codec = Codec.fit(frame, schema)
    table = codec.encode(frame)
    output = codec.decode(table.num, table.cat, np.random.default_rng(0))["x"]
    assert dtype is None or str(output.dtype) == dtype
    assert output.isna().all() if kind == "all-missing" else output.notna().all()


FOREIGN = {
    "integer": (some_missing(NUMBERS), "integer", "int64"),
    "float": (some_missing(floats), "float", "float64"),
    "boolean": (some_missing([True, False] * 20), "boolean", "bool"),
    "text": (some_missing(letters), "category", TEXT),
    "date": (
        some_missing([dt.date(2020, 1, 1 + i % 9) for i in range(N)]),
        "datetime",
        None,
    ),
    "stamp": (
        some_missing([dt.datetime(2020, 1, 1, i % 9) for i in range(N)]),
        "datetime",
        "datetime64[us]",
    ),
    "empty": ([None] * N, "all-missing", None),
}


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table], ids=["polars", "arrow"])
@pytest.mark.parametrize("name", FOREIGN)
def test_polars_and_arrow_recover_the_same(make, name):
    values, kind, dtype = FOREIGN[name]
    column = infer_schema(make({"x": values}))["x"]
    assert column.kind == kind
    assert dtype is None or column.dtype == dtype


def test_polars_categories_keep_their_order():
    column = pl.Series(["low", None, "high"] * 9, dtype=pl.Enum(["low", "mid", "high"]))
    schema_column = infer_schema(pl.DataFrame({"x": column}))["x"]
    assert schema_column.kind == "category"
    assert schema_column.categories == ("low", "mid", "high")
    assert schema_column.levels == ("low", "high")


def test_identifiers_are_distinguished_from_measurements():
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame(
        {
            "id": rng.permutation(10 * n)[:n],
            "case.id": rng.integers(0, 5000, n).astype(float),
            "userKey": rng.integers(0, 300, n),
            "weight_of_sample": rng.permutation(10 * n)[:n],
            "paid": rng.integers(0, 5000, n),
            "site_id": rng.integers(0, 12, n),
            "index": rng.permutation(n),
            "row": np.arange(n) * -3,
            "code": [f"{a}{b}-{i:04d}" for i, (a, b) in enumerate(["AB", "XY"] * 300)],
            "zip": [f"{i:05d}" for i in rng.permutation(90000)[:n]],
            "comment": [
                f"the patient said on day {i % 290} that it hurts" for i in range(n)
            ],
            "town": [f"town {min(i, 120)}" for i in rng.geometric(0.05, n)],
        }
    )
    frame.loc[::7, "case.id"] = None
    kinds = {column.name: column.kind for column in infer_schema(frame)}
    assert kinds == {
        "id": "identifier",
        "case.id": "identifier",
        "userKey": "identifier",
        "weight_of_sample": "integer",
        "paid": "integer",
        "site_id": "integer",
        "index": "identifier",
        "row": "identifier",
        "code": "identifier",
        "zip": "identifier",
        "comment": "identifier",
        "town": "category",
    }


def test_rare_levels_share_a_code_and_are_listed():
    counts = {f"c{i:03d}": 60 if i < 100 else 3 for i in range(130)}
    frame = pd.DataFrame(
        {"c": [level for level, n in counts.items() for _ in range(n)]}
    )
    column = infer_schema(frame)["c"]
    assert column.kind == "category"
    assert column.levels == tuple(f"c{i:03d}" for i in range(100))
    assert column.rare_levels == tuple((f"c{i:03d}", 3) for i in range(100, 130))
    (note,) = infer_schema(frame).notes()
    assert "30 rarest (90 cells)" in note
    assert "'c100'" in note


def test_sentinels_are_suspected_but_only_declared_ones_are_missing():
    ages = [*range(59, 19, -2), *range(20, 60, 2), -999, -999]
    frame = pd.DataFrame(
        {"age": ages, "job": ["?", "a", "b"] * 14, "temp": range(-20, 22)}
    )
    schema = infer_schema(frame)
    assert schema["age"].suspected_na_values == (-999,)
    assert schema["job"].suspected_na_values == ("?",)
    assert schema["temp"].suspected_na_values == ()
    assert schema["age"].missing_rate == 0
    assert schema["age"].low == -999
    assert any("-999" in note and "'age'" in note for note in schema.notes())
    assert "may encode a missing value: '?'" in str(schema)

    declared = infer_schema(
        frame, {"age": {"na_values": [-999]}, "job": {"na_values": "?"}}
    )
    assert declared["age"].low == 20
    assert declared["age"].missing_rate == pytest.approx(2 / 42)
    assert declared["age"].suspected_na_values == ()
    assert declared["job"].levels == ("a", "b")


def test_text_numbers_become_numbers_once_the_code_is_declared():
    texts = [str(i / 4) for i in range(300)]
    frame = pd.DataFrame({"x": [*texts, "?", "abc", "?"]})
    with pytest.raises(DataError, match=r"3 of its 303 values are not, such as '\?'"):
        infer_schema(frame)
    column = infer_schema(frame, {"x": {"na_values": ["?", "abc"]}})["x"]
    assert (column.kind, column.dtype, column.decimals) == ("float", "float64", 2)
    assert infer_schema(frame, {"x": "category"})["x"].kind == "category"
    few = infer_schema(pd.DataFrame({"x": ["1", "2", "?"] * 9}))["x"]
    assert few.kind == "category"
    assert "all numbers except" in few.reason


def test_ticket_numbers_are_text():
    mixed = [f"{i}" if i % 3 else f"PC {i}" for i in range(400)]
    assert infer_schema(pd.DataFrame({"ticket": mixed}))["ticket"].kind == "identifier"


BAD = {
    "int and text": ([1, "a"], r"number \(1\) and text \('a'\)"),
    "bool and int": ([True, 7], r"boolean \(True\) and number \(7\)"),
    "infinite": ([1.5, np.inf, -np.inf], "2 of its cells are infinite"),
    "infinite objects": (pd.Series([1.5, np.inf], dtype=object), "1 of its cells"),
    "complex": ([1j, 2j], "split it into two"),
    "lists": ([[1], [2]], "list"),
    "dicts": ([{"a": 1}, {}], "dict"),
    "bytes": ([b"a", b"b"], "bytes"),
    "timedelta": (pd.to_timedelta([1, 2], unit="s"), "convert it to a number"),
    "period": (pd.period_range("2020", periods=2, freq="D"), "Period"),
    "huge": ([2**70, 1], "64 bits"),
    "huge unsigned": (np.array([2**63 + 1, 1], np.uint64), "64 bits"),
}


@pytest.mark.parametrize("name", BAD)
def test_unsupported_columns_raise_one_sentence(name):
    values, message = BAD[name]
    with pytest.raises(DataError, match=message) as caught:
        infer_schema(pd.DataFrame({"x": values}))
    assert "'x'" in str(caught.value)
    assert "\n" not in str(caught.value)


FRAME = pd.DataFrame(
    {"age": NUMBERS, "sex": ["f", "m"] * 20, "x": floats, "when": days, "k": [1] * N}
)
BAD_OVERRIDES = {
    "unknown column": ({"agee": "float"}, "'agee'; did you mean 'age'"),
    "unknown kind": ({"age": "flaot"}, "'flaot'; did you mean 'float'"),
    "unknown setting": ({"age": {"knd": "float"}}, "'knd'; did you mean 'kind'"),
    "no settings": ({"age": 3}, "must be a table with the settings kind"),
    "missing_as": (
        {"age": {"missing_as": "maybe"}},
        "one of 'unknown', 'level', got 'maybe'",
    ),
    "na_values": (
        {"age": {"na_values": {"a": 1}}},
        "na_values must be a list",
    ),
    "na_values item": (
        {"age": {"na_values": [1, [2]]}},
        r"na_values\[1\] must be",
    ),
    "infinite": ({"age": {"na_values": [float("inf")]}}, r"na_values\[0\] must be"),
    "huge": ({"age": {"na_values": 10**400}}, r"got a number of 1329 bits"),
    "decimals": ({"x": {"decimals": -1}}, "at least 0 and at most 6, got -1"),
    "decimals of text": ({"sex": {"decimals": 1}}, "only a float has decimals"),
    "levels missing": ({"sex": {"levels": ["f"]}}, "'m' is not among them"),
    "levels twice": (
        {"sex": {"levels": ["f", "f"]}},
        "at least 1 different items",
    ),
    "levels of a number": ({"x": {"levels": ["f"]}}, "only a category has levels"),
    "not whole": ({"x": "integer"}, "is not a whole number"),
    "not a number": ({"sex": "float"}, "'f' is not a number"),
    "not a date": ({"sex": "datetime"}, "'f' is not an ISO date"),
    "not boolean": ({"age": "boolean"}, "is not true, false"),
    "not constant": ({"age": "constant"}, "31 distinct values"),
    "not missing": ({"age": "all-missing"}, "it has 40 values"),
}


@pytest.mark.parametrize("name", BAD_OVERRIDES)
def test_invalid_overrides_raise_one_sentence(name):
    overrides, message = BAD_OVERRIDES[name]
    with pytest.raises(SchemaError, match=message):
        infer_schema(FRAME, overrides)


def test_overrides_change_what_they_name_and_nothing_else():
    schema = infer_schema(FRAME)
    declared = infer_schema(
        FRAME,
        {
            "age": "category",
            "sex": {"levels": ["m", "f"], "ordered": True},
            "x": {"decimals": 1},
            "when": "category",
        },
    )
    assert declared["age"].levels == tuple(range(31))
    assert declared["age"].dtype == "int64"
    assert declared["sex"].levels == ("m", "f")
    assert declared["sex"].dtype == "category"
    assert declared["x"].decimals == 1
    assert declared["when"].levels[0] == "2021-03-01"
    assert declared["k"] == schema["k"]
    assert infer_schema(FRAME, schema) == schema
    assert infer_schema(FRAME, {"k": "float"})["k"].kind == "constant"


def test_local_midnights_are_days():
    local = stamps.dt.tz_localize("Europe/Berlin")
    assert infer_schema(pd.DataFrame({"t": local}))["t"].unit == "D"
    quarter = local + pd.Timedelta(minutes=15)
    assert infer_schema(pd.DataFrame({"t": quarter}))["t"].unit == "min"


def test_declared_levels_that_no_row_has_are_learned_on_request():
    levels = ["a", "b", "c", "d"]
    frame = pd.DataFrame({"job": ["d", "b", "b", None] * 5, "one": ["x"] * 20})
    plain = infer_schema(frame, {"job": {"levels": levels}})
    assert plain["job"].levels == ("b", "d")
    settings = {"levels": levels, "unseen_levels": True}
    ones = {"kind": "category", "levels": ["x", "y"], "unseen_levels": True}
    schema = infer_schema(frame, {"job": settings, "one": ones})
    assert schema["job"].levels == tuple(levels)
    # a level of all rows is not constant if there are others
    assert (schema["one"].kind, schema["one"].levels) == ("category", ("x", "y"))
    assert Schema.from_dict(schema.to_dict()) == schema
    codec = Codec.fit(frame, schema)
    assert codec.layout.cards == (4, 2)
    table = codec.encode(frame)
    assert table.cat[:3, 0].tolist() == [3, 1, 1]
    rows = codec.decode(
        np.zeros((4, 0)), np.array([[0, 0], [1, 1], [2, 0], [3, 1]]),
        np.random.default_rng(0),
    )  # fmt: skip
    assert rows["job"].tolist() == levels


def test_many_declared_levels_give_the_same_number_of_codes_whatever_is_seen():
    levels = [f"c{i:03d}" for i in range(130)]
    settings = {"c": {"kind": "category", "levels": levels, "unseen_levels": True}}
    for n in (5, 60, 130):
        frame = pd.DataFrame({"c": levels[:n] * 3})
        column = infer_schema(frame, settings)["c"]
        assert (len(column.levels), len(column.rare_levels)) == (100, 30)
        assert Column.from_dict(column.to_dict()) == column
    with pytest.raises(SchemaError, match="only a category has unseen_levels"):
        infer_schema(
            pd.DataFrame({"x": [0.5, 1.5] * 20}), {"x": {"unseen_levels": True}}
        )


def test_categories_keep_unseen_levels_and_order():
    dtype = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    column = infer_schema(pd.DataFrame({"c": pd.Series(["high", "low"], dtype=dtype)}))[
        "c"
    ]
    assert column.categories == ("low", "mid", "high")
    assert column.levels == ("low", "high")
    assert column.ordered


def test_a_declared_code_among_cells_of_another_type():
    frame = pd.DataFrame({"x": pd.Series([*NUMBERS, "?", " ?"], dtype=object)})
    with pytest.raises(DataError, match="declare missing-value codes as na_values"):
        infer_schema(frame)
    column = infer_schema(frame, {"x": {"na_values": ["?"]}})["x"]
    assert (column.kind, column.dtype) == ("integer", "int64")


def test_numbers_at_the_edge_of_64_bits():
    values = [-(2**63), 2**63 - 1, *range(20)]
    frame = pd.DataFrame({"x": values})
    codec = Codec.fit(frame, infer_schema(frame))
    table = codec.encode(frame)
    out = codec.decode(table.num, table.cat, np.random.default_rng(0))["x"]
    assert out[0] == -(2**63)
    assert float(out[1]) == pytest.approx(2.0**63)
    with pytest.raises(DataError, match="must not exceed"):
        infer_schema(pd.DataFrame({"x": [1e308, -1e308, 0.5]}))


def test_invalid_unicode_is_refused():
    frame = pd.DataFrame({"x": pd.Series(["a\ud800", "b"], dtype=object)})
    with pytest.raises(DataError, match="valid Unicode"):
        infer_schema(frame)


def test_the_missing_mask_includes_declared_codes():
    frame = pd.DataFrame({"a": [1, -9, None], "b": ["x", "?", None]})
    schema = infer_schema(frame, {"a": {"na_values": [-9]}})
    expected = pd.DataFrame({"a": [False, True, True], "b": [False, False, True]})
    pd.testing.assert_frame_equal(missing_mask(frame, schema), expected)
