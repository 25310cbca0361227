"""Cells: the same values in the same form, whatever pandas type stores them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from augmask.errors import DataError
from augmask.table.cells import as_floats, read_cells

INTEGERS = [3, None, -1]
BOOLEANS = [True, None, False]
TEXTS = ["a", None, "ü"]
FLOATS = [0.5, None, 2.0]
DAYS = [dt.date(2020, 2, 29), None, dt.date(1969, 12, 31)]
STAMPS = pd.to_datetime(pd.Series(["2020-02-29", None, "1969-12-31"]))

STORED = {
    "nullable integers": (INTEGERS, "Int16", "integer"),
    "arrow integers": (INTEGERS, "int32[pyarrow]", "integer"),
    "integer objects": (INTEGERS, object, "integer"),
    "boolean objects": (BOOLEANS, object, "boolean"),
    "nullable booleans": (BOOLEANS, "boolean", "boolean"),
    "arrow booleans": (BOOLEANS, "bool[pyarrow]", "boolean"),
    "text objects": (TEXTS, object, "text"),
    "strings": (TEXTS, "string", "text"),
    "arrow strings": (TEXTS, pd.ArrowDtype(pa.string()), "text"),
    "text category": (TEXTS, "category", "text"),
    "floats": (FLOATS, "float64", "float"),
    "nullable floats": (FLOATS, "Float64", "float"),
    "arrow floats": (FLOATS, "double[pyarrow]", "float"),
    "sparse floats": (FLOATS, pd.SparseDtype(float), "float"),
    "float category": (FLOATS, "category", "float"),
    "decimals": ([Decimal("0.5"), None, Decimal(2)], object, "float"),
    "date objects": (DAYS, object, "datetime"),
    "arrow dates": (DAYS, "date32[pyarrow]", "datetime"),
    "stamps": (STAMPS, None, "datetime"),
    "stamp category": (STAMPS, "category", "datetime"),
}
EXPECTED = {
    "integer": [3, -1],
    "boolean": [True, False],
    "text": ["a", "ü"],
    "float": [0.5, 2.0],
    "datetime": [18321, -1],
}


@pytest.mark.parametrize("name", STORED)
def test_every_storage_type_gives_the_same_cells(name):
    values, dtype, form = STORED[name]
    cells = read_cells(pd.Series(values, dtype=dtype), "x")
    assert cells.form == form
    assert cells.observed.tolist() == [True, False, True]
    observed = cells.observed_values
    if form == "datetime":
        observed = observed.astype("datetime64[D]").astype(int)
    assert observed.tolist() == EXPECTED[form]
    codes, levels = cells.factorized
    assert (levels[codes] == cells.observed_values).all()


@pytest.mark.parametrize("dtype", [object, "float64", "Int64", "string", "category"])
def test_a_column_without_values_is_empty(dtype):
    cells = read_cells(pd.Series([None, None], dtype=dtype), "x")
    assert cells.form == "empty"
    assert not cells.observed.any()


@pytest.mark.parametrize(
    ("values", "na_values", "observed"),
    [
        ([1, -9, 3], [-9], [True, False, True]),
        ([1.5, -9.0, None], [-9], [True, False, False]),
        (["a", " ? ", "?"], ["?"], [True, False, False]),
        ([1, "?", 3], ["?"], [True, False, True]),
        ([1, 2, 3], ["?"], [True, True, True]),
        (["2020-01-01", "1900-01-01"], ["1900-01-01"], [True, False]),
        (pd.to_datetime(["2020-01-01", "1900-01-01"]), ["1900-01-01"], [True, False]),
        ([-9, -9], [-9], [False, False]),
    ],
)
def test_declared_codes_are_missing(values, na_values, observed):
    cells = read_cells(pd.Series(values), "x", na_values)
    assert cells.observed.tolist() == observed
    assert (cells.form == "empty") == (not any(observed))


def test_instants_are_utc_and_the_zone_is_kept():
    local = pd.Series(pd.to_datetime(["2024-07-01 12:00"])).dt.tz_localize("Asia/Tokyo")
    cells = read_cells(local, "x")
    assert cells.tz == "Asia/Tokyo"
    assert cells.values[0] == np.datetime64("2024-07-01T03:00")
    offset = dt.timezone(dt.timedelta(hours=2), "home")
    unnamed = pd.Series([dt.datetime(2024, 7, 1, 12, tzinfo=offset)])
    cells = read_cells(unnamed, "x")
    assert cells.values[0] == np.datetime64("2024-07-01T10:00")
    # The output dtype must be one that pandas can parse.
    assert str(pd.Series([], dtype=cells.dtype).dtype) == cells.dtype


def test_categories_keep_levels_that_do_not_occur():
    dtype = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    cells = read_cells(pd.Series(["high", None], dtype=dtype), "x")
    assert cells.categories == ("low", "mid", "high")
    assert cells.ordered
    assert cells.observed_values.tolist() == ["high"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "a"], r"one type, got number \(1\) and text \('a'\)"),
        ([[1], [2]], r"got list cells such as '\[1\]'"),
        ([1.0, np.inf], "1 of its cells are infinite"),
        ([1.0, -1e305], "must not exceed 1e[+]300, got 1e[+]305"),
        ([2**70, 1], "must fit in 64 bits, got 1180591620717411303424"),
        (pd.Series(["\ud800"], dtype=object), "valid Unicode"),
        (pd.to_timedelta([1], unit="s"), "convert it to a number, e.g. seconds"),
    ],
)
def test_unsupported_cells_are_refused_with_column_and_fix(values, message):
    with pytest.raises(DataError, match=message) as caught:
        read_cells(pd.Series(values), "odd")
    assert "'odd'" in str(caught.value)
    assert ";" in str(caught.value) or "convert it" in str(caught.value)


def test_dates_of_different_units_become_the_same_floats():
    days = pd.Series(pd.to_datetime(["1970-01-02", None]))
    for unit in ("s", "ms", "us", "ns"):
        floats = as_floats(days.dt.as_unit(unit))
        np.testing.assert_array_equal(floats, [86_400.0, np.nan])
    np.testing.assert_array_equal(
        as_floats(days.dt.tz_localize("Etc/GMT-1")), [82_800.0, np.nan]
    )
    np.testing.assert_array_equal(
        as_floats(pd.Series([1, None], dtype="Int64")), [1, np.nan]
    )
    assert as_floats(pd.Series(["a"])) is None
