from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError, UsageError
from augmask.evaluation.columns import check_tables, level_codes, numbers


def _pair(real, synthetic, **options):
    return {
        "real": pd.DataFrame({"c": pd.Series(real, **options)}),
        "synthetic": pd.DataFrame({"c": pd.Series(synthetic)}),
    }


def test_dates_agree_across_units_and_zones():
    days = pd.Series(pd.to_datetime(["2021-03-01 12:00", "1890-01-01 00:00"]))
    tables = {
        "real": pd.DataFrame({"c": days.astype("datetime64[s]")}),
        "synthetic": pd.DataFrame({"c": days.astype("datetime64[ns]")}),
        "zoned": pd.DataFrame(
            {"c": days.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")}
        ),
    }
    first, *others = numbers(tables, "c")
    assert first[0] == 1614600000.0
    assert first[1] < 0
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_nullable_boolean_and_duration_columns_are_numbers():
    tables = {
        "a": pd.DataFrame({"c": pd.array([1, 2], dtype="Int64")}),
        "b": pd.DataFrame({"c": [True, False]}),
        "c": pd.DataFrame({"c": pd.to_timedelta([1, 90], unit="s")}),
    }
    assert [v.tolist() for v in numbers(tables, "c")] == [[1, 2], [1, 0], [1, 90]]


@pytest.mark.parametrize(
    "synthetic",
    [
        pd.Series([1.0, 0.0, 3.0]),
        pd.Series([1, 0, 3], dtype="Int64"),
        pd.Series([1, 0, 3], dtype="category"),
        pd.Series([True, False, 3], dtype=object),
    ],
)
def test_levels_are_compared_by_value(synthetic):
    codes, levels, n_real = level_codes(_pair([0, 1, 0], synthetic), "c")
    assert codes[0].tolist() == [0, 1, 0]
    assert codes[1].tolist() == [1, 0, 2]
    assert (len(levels), n_real) == (3, 2)


def test_category_columns_with_other_category_lists_agree():
    tables = {
        "real": pd.DataFrame({"c": pd.Categorical(["x", "y"], categories=["y", "x"])}),
        "synthetic": pd.DataFrame({"c": ["y", "x"]}),
    }
    codes, _, _ = level_codes(tables, "c")
    assert [c.tolist() for c in codes] == [[0, 1], [1, 0]]


def test_text_against_numbers_is_refused_rather_than_scored_zero():
    with pytest.raises(DataError, match="'c' is text in only one"):
        level_codes(_pair([1, 2], ["1", "2"]), "c")


@pytest.mark.parametrize("hole", [None, np.nan, pd.NA])
def test_holes_are_refused_by_name(hole):
    tables = _pair(["a", "b"], ["a", hole])
    with pytest.raises(DataError, match="'c' of the synthetic table has 1 missing"):
        level_codes(tables, "c")


@pytest.mark.parametrize(
    "values",
    [
        [1.0, np.nan],
        [1.0, np.inf],
        pd.array([1, None], dtype="Int64"),
        pd.to_datetime(["2020-01-01", None]),
    ],
)
def test_holes_and_infinities_in_numbers_are_refused(values):
    with pytest.raises(DataError, match="has 1 missing or infinite"):
        numbers({"real": pd.DataFrame({"c": values})}, "c")


def test_words_listed_as_numeric_are_refused():
    with pytest.raises(DataError, match="list it as categorical"):
        numbers({"real": pd.DataFrame({"c": ["a", "b"]})}, "c")


def test_tables_are_checked_before_work():
    frame = pd.DataFrame({"a": [1], "b": [2]})
    with pytest.raises(UsageError, match="both `numeric` and `categorical`"):
        check_tables({"real": frame}, [], [])
    with pytest.raises(UsageError, match="'a' is listed more often"):
        check_tables({"real": frame}, ["a"], ["a"])
    with pytest.raises(DataError, match="real table has none"):
        check_tables({"real": frame[:0]}, ["a"], [])
    with pytest.raises(DataError, match="'a' stands 2 times"):
        check_tables({"real": frame[["a", "a"]]}, ["a"], [])


def test_holes_are_kept_when_asked_for():
    tables = _pair(["a", None, "b"], ["b", "c", np.nan])
    codes, levels, n_first = level_codes(tables, "c", holes=True)
    assert [c.tolist() for c in codes] == [[0, -1, 1], [1, 2, -1]]
    assert (levels, n_first) == (["a", "b", "c"], 2)
    dates = pd.DataFrame({"c": pd.to_datetime(["1970-01-02", None])})
    np.testing.assert_equal(
        numbers({"real": dates}, "c", holes=True), [[86400, np.nan]]
    )
    with pytest.raises(DataError, match="has 1 missing or infinite"):
        numbers(_pair([1.0, np.inf, np.nan], [1.0]), "c", holes=True)


def test_a_column_of_holes_has_no_levels_and_no_type():
    codes, levels, n_first = level_codes(_pair([None, None], [3, 4]), "c", holes=True)
    assert [c.tolist() for c in codes] == [[-1, -1], [0, 1]]
    assert (levels, n_first) == ([3, 4], 0)
