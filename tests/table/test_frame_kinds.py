from __future__ import annotations

import datetime as dt

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from augmask.errors import UsageError
from augmask.table.frame_kinds import (
    FrameKind,
    check_output,
    collected,
    give_back,
    kind_name,
)
from augmask.table.frames import read_frame

FRAME = pl.DataFrame(
    {
        "i": pl.Series([1, None, 3], dtype=pl.Int16),
        "b": [True, None, False],
        "d": [dt.date(2020, 1, 1), None, dt.date(2020, 1, 3)],
        "t": [dt.datetime(2020, 1, 1, 3), None, dt.datetime(2021, 1, 1)],
        "c": pl.Series(["a", None, "b"], dtype=pl.Categorical),
        "e": pl.Series(["a", None, "b"], dtype=pl.Enum(["a", "b", "z"])),
        "s": ["x", None, "y"],
        "f": pl.Series([1.5, None, 2], dtype=pl.Float32),
        "list": [[1], [2, 3], None],
    }
)
PLAIN = [name for name in FRAME.columns if name != "list"]


def test_kinds():
    assert kind_name(FRAME) == kind_name(FRAME.lazy()) == "polars"
    assert kind_name(FRAME.to_arrow()) == "arrow"
    assert kind_name(FRAME.to_arrow().to_batches()[0]) == "arrow"
    assert kind_name(pd.DataFrame()) == kind_name("rows.csv") == "pandas"
    assert collected(FRAME.lazy()).equals(FRAME)
    assert collected(FRAME) is FRAME


@pytest.mark.parametrize("lazy", [False, True])
def test_new_rows_of_polars_have_the_types_of_the_table(lazy):
    source = FRAME.select(PLAIN)
    kind = FrameKind.of(source.lazy() if lazy else source)
    rows = kind.build(read_frame(source))
    assert rows.schema == source.schema
    assert rows.equals(source)
    # a model file holds as much
    again = FrameKind.from_dict(kind.to_dict())
    assert again.build(read_frame(source)).schema == source.schema


def test_decimals_of_a_fixed_number_stay_so():
    exact = pl.Series("m", ["1.10", None, "2.35"]).cast(pl.Decimal(10, 2))
    source = exact.to_frame()
    kind = FrameKind.from_dict(FrameKind.of(source).to_dict())
    rows = pd.DataFrame({"m": [1.1, 0.07, 2.35]})
    assert kind.build(rows).schema == source.schema
    assert kind.build(rows)["m"].cast(pl.String).to_list() == ["1.10", "0.07", "2.35"]
    assert give_back(source, rows, ["m"]).schema == source.schema
    # more digits than the type has are kept as they are
    fine = kind.build(pd.DataFrame({"m": [1.125]}))
    assert fine["m"].to_list() == [1.125]


def test_new_rows_of_arrow_have_the_types_of_the_table():
    table = FRAME.select("i", "b", "d", "t", "s", "f").to_arrow()
    assert FrameKind.of(table).build(read_frame(table)).equals(table)


def test_a_value_that_a_type_cannot_hold_keeps_its_own():
    kind = FrameKind("arrow", {"i": "int16", "d": "date32[day]", "z": "int64"})
    frame = pd.DataFrame(
        {"i": [1.5, 2], "d": pd.to_datetime(["2020-01-01T03", None]), "z": ["01", "2"]}
    )
    rows = kind.build(frame)
    assert rows.column("i").to_pylist() == [1.5, 2]
    assert rows.column("d").to_pylist()[0] == pd.Timestamp("2020-01-01T03")
    # never parsed
    assert rows.column("z").to_pylist() == ["01", "2"]


def test_an_own_table_comes_back_with_its_other_columns_untouched():
    frame = read_frame(FRAME)
    frame["i"] = frame["i"].fillna(7)
    frame["e"] = frame["e"].fillna("z")
    frame["c"] = frame["c"].fillna("a")
    polars = give_back(FRAME, frame, ["i", "e", "c"])
    assert polars.schema == FRAME.schema
    assert polars["i"].to_list() == [1, 7, 3]
    assert polars["e"].to_list() == ["a", "z", "b"]
    assert polars.drop("i", "e", "c").equals(FRAME.drop("i", "e", "c"))
    table = FRAME.to_arrow()
    arrow = give_back(table, frame, ["i"])
    assert arrow.column("i").to_pylist() == [1, 7, 3]
    assert arrow.schema.equals(table.schema)
    assert give_back(FRAME, frame, []) is FRAME
    assert give_back(frame, frame, ["i"]) is frame


def test_another_output_can_be_asked_for(monkeypatch):
    frame = pd.DataFrame({"a": [1, 2]})
    kind = FrameKind()
    assert kind.build(frame) is frame
    assert isinstance(kind.build(frame, "polars"), pl.DataFrame)
    assert isinstance(kind.build(frame, "arrow"), pa.Table)
    with pytest.raises(UsageError, match="got 'polar'; did you mean 'polars'"):
        kind.build(frame, "polar")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"polars is not installed.*'pandas'"):
        check_output("polars")


@pytest.mark.parametrize(
    "stored",
    [None, {}, {"kind": "excel", "types": {}}, {"kind": "arrow", "types": {"a": 3}},
     {"kind": "arrow", "types": {"a": "no such"}}, {"kind": "polars", "types": []}],
)  # fmt: skip
def test_what_a_file_claims_is_checked(stored):
    with pytest.raises(ValueError, match=r"it was fitted|types that do not exist"):
        FrameKind.from_dict(stored)
