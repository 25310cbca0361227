from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError, UsageError
from augmask.evaluation.tables import (
    MISSING_LEVEL,
    check_tables,
    level_codes,
    numbers,
    read_tables,
)


def real(n=40):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.permutation(n),
            "kg": rng.normal(size=n),
            "job": ["cook", "smith"] * (n // 2),
            "grade": rng.permutation(np.arange(n) % 4),
            "smokes": rng.permutation(np.arange(n) % 2 == 0),
            "visit": pd.Timestamp("2024-01-01") + pd.to_timedelta(range(n), "D"),
        }
    )


def test_columns_agree_however_they_were_stored():
    synthetic = real().astype(
        {"age": "float64", "grade": "str", "smokes": "object", "visit": "str"}
    )
    synthetic["job"] = synthetic["job"].astype("category")
    tables = read_tables(real(), synthetic)
    assert tables.numeric == ["age", "kg", "visit"]
    assert tables.categorical == ["job", "grade", "smokes"]
    assert tables.complete
    for name in tables.real:
        assert (tables.real[name] == tables.synthetic[name]).all(), name


def test_columns_are_matched_by_the_text_of_their_labels():
    numbered = real().set_axis(range(6), axis=1)
    tables = read_tables(numbered, numbered.rename(columns=str), numbered)
    assert tables.numeric == ["0", "1", "5"]
    assert tables.display_schema["2"].label == "2"


def test_a_level_that_reads_as_a_number_is_a_level():
    table = real().assign(job=["3", "boss"] * 20)
    tables = read_tables(table, real().assign(job=3))
    assert set(tables.synthetic["job"]) == {"3"}


def test_unseen_levels_are_kept():
    synthetic = real().assign(job="pirate", grade=9)
    tables = read_tables(real(), synthetic)
    assert set(tables.synthetic["job"]) == {"pirate"}
    assert set(tables.synthetic["grade"]) == {9}


def test_missing_as_level_adds_a_level_or_a_column():
    table = real()
    table.loc[:9, ["job", "kg", "visit"]] = None
    schema = {name: {"missing_as": "level"} for name in ("job", "kg", "visit")}
    tables = read_tables(table, table, schema=schema)
    assert tables.complete
    assert (tables.real["job"] == MISSING_LEVEL).sum() == 10
    for name in ("kg", "visit"):
        assert (tables.real[f"{name} is missing"] == "yes").sum() == 10
        assert tables.real[name][:10].nunique() == 1
        assert tables.for_display(tables.real)[name].isna().sum() == 10
    with pytest.raises(
        DataError, match="'kg' of the synthetic table has 10 missing values"
    ):
        read_tables(real(), table[["kg"]].join(real().drop(columns="kg")))


def some_missing(frame):
    frame.loc[:6, "kg"] = np.nan
    return frame


BAD = {
    "no common column": (
        lambda f: f.add_prefix("x_"),
        "no scored column in common: 'age', .* against 'x_age'",
    ),
    "a column is absent": (
        lambda f: f.rename(columns={"job": "jobs"}),
        "'job' is absent from the synthetic table; did you mean 'jobs'",
    ),
    "text for numbers": (
        lambda f: f.assign(kg=["1.5", "heavy"] * 20),
        "'kg' is float in the real table.*synthetic table.*'heavy'; convert it",
    ),
    "numbers for dates": (
        lambda f: f.assign(visit=range(len(f))),
        "'visit' is datetime in the real table, but .* integer",
    ),
    "numbers for text": (
        lambda f: f.assign(job=range(len(f))),
        "'job' is a category of text .* integer",
    ),
    "text for levels that are numbers": (
        lambda f: f.assign(grade="a"),
        "'grade' is a category of numbers .*'a'",
    ),
    "text for booleans": (
        lambda f: f.assign(smokes="maybe"),
        "'smokes' is boolean .*'maybe'",
    ),
    "missing values": (
        some_missing,
        "'kg' of the synthetic table has 7 missing values; .*sample.* gives",
    ),
    "infinite": (
        lambda f: f.assign(kg=np.inf),
        "synthetic table: column 'kg' must hold finite numbers",
    ),
    "empty": (lambda f: f[:0], "the synthetic table: .*at least one row"),
    "few rows": (lambda f: f[:9], "the synthetic table has 9 rows, too few"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables_are_refused_in_one_sentence(name):
    change, message = BAD[name]
    with pytest.raises(DataError, match=message) as caught:
        read_tables(real(), change(real()))
    assert "\n" not in str(caught.value)


def test_a_real_table_without_a_column_to_score_is_refused():
    with pytest.raises(DataError, match="all 2 are set aside, 'a' because it is const"):
        read_tables(pd.DataFrame({"a": [1] * 20, "b": None}), real())


@pytest.mark.parametrize(
    ("target", "message"),
    [("jobb", "did you mean 'job'"), ("same", "set aside as constant")],
)
def test_a_target_is_a_column_that_varies(target, message):
    table = real().assign(same=1)
    with pytest.raises(DataError, match=message):
        read_tables(table, table, target=target)


def test_test_rows_may_be_incomplete_but_have_all_columns():
    tables = read_tables(real(), real(), some_missing(real()))
    assert tables.complete_test is None
    assert tables.test is not None
    empty = read_tables(real(), real(), real().assign(kg=None, job=None, visit=None))
    assert empty.test is not None
    assert empty.test.isna().sum().sum() == 120
    with pytest.raises(DataError, match="'kg' is absent from the test table"):
        read_tables(real(), real(), real().drop(columns="kg"))


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


@pytest.mark.parametrize("value", [None, np.nan, pd.NA])
def test_missing_values_are_refused_by_name(value):
    tables = _pair(["a", "b"], ["a", value])
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
def test_missing_and_infinite_numbers_are_refused(values):
    with pytest.raises(DataError, match="has 1 missing or infinite"):
        numbers({"real": pd.DataFrame({"c": values})}, "c")


def test_words_listed_as_numeric_are_refused():
    with pytest.raises(DataError, match="list it as categorical"):
        numbers({"real": pd.DataFrame({"c": ["a", "b"]})}, "c")


def test_tables_are_checked_before_work():
    frame = pd.DataFrame({"a": [1], "b": [2]})
    with pytest.raises(UsageError, match="`numeric` and `categorical` are both empty"):
        check_tables({"real": frame}, [], [])
    with pytest.raises(UsageError, match="'a' is listed more than once"):
        check_tables({"real": frame}, ["a"], ["a"])
    with pytest.raises(DataError, match="real table has no rows"):
        check_tables({"real": frame[:0]}, ["a"], [])
    with pytest.raises(DataError, match="real table has 2 columns named 'a'"):
        check_tables({"real": frame[["a", "a"]]}, ["a"], [])


def test_missing_values_are_nan_or_minus_one_if_allowed():
    tables = _pair(["a", None, "b"], ["b", "c", np.nan])
    codes, levels, n_first = level_codes(tables, "c", allow_missing=True)
    assert [c.tolist() for c in codes] == [[0, -1, 1], [1, 2, -1]]
    assert (levels, n_first) == (["a", "b", "c"], 2)
    dates = pd.DataFrame({"c": pd.to_datetime(["1970-01-02", None])})
    np.testing.assert_equal(
        numbers({"real": dates}, "c", allow_missing=True), [[86400, np.nan]]
    )
    with pytest.raises(DataError, match="has 1 missing or infinite"):
        numbers(_pair([1.0, np.inf, np.nan], [1.0]), "c", allow_missing=True)


@pytest.mark.parametrize(
    ("levels", "read"),
    [
        (["1.50", "2.25", "x"], [1.5, 2.25]),
        (["1", "2", "x"], [1.0, 2.0]),
        (["true", "false", "x"], [True, False]),
    ],
)
def test_text_levels_that_came_back_as_numbers_are_the_same_levels(levels, read):
    """A reader makes numbers of a column that lost its level of letters."""
    tables = read_tables(
        pd.DataFrame({"c": levels * 20}), pd.DataFrame({"c": read * 30})
    )
    assert set(tables.synthetic["c"]) == set(levels[:2])


def test_a_column_without_values_has_no_levels_and_no_type():
    codes, levels, n_first = level_codes(
        _pair([None, None], [3, 4]), "c", allow_missing=True
    )
    assert [c.tolist() for c in codes] == [[-1, -1], [0, 1]]
    assert (levels, n_first) == ([3, 4], 0)


@pytest.mark.parametrize("target", [5, 10**400, {"a": 1}, ["job"], pd.NA, np.ones(2)])
def test_a_target_that_is_no_name_is_a_data_error(target):
    with pytest.raises(DataError, match="the real table has no column"):
        read_tables(real(), real(), target=target)


@pytest.mark.parametrize("subsample", [5, 1.5, "x", True, np.ones(2), [100]])
def test_what_subsample_must_be(subsample):
    with pytest.raises(UsageError, match="subsample must be a whole number of at"):
        read_tables(real(), real(), subsample=subsample)
