from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError
from augmask.evaluation.tables import MISSING_LEVEL, read_tables


def real(n=40):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.permutation(n),
            "kg": rng.normal(size=n),
            "job": ["cook", "smith"] * (n // 2),
            "grade": rng.permutation(np.arange(n) % 4),
            "smokes": rng.permutation(np.arange(n) % 2 == 0),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(range(n), "D"),
        }
    )


def test_columns_agree_however_they_were_stored():
    synthetic = real().astype(
        {"age": "float64", "grade": "str", "smokes": "object", "seen": "str"}
    )
    synthetic["job"] = synthetic["job"].astype("category")
    tables = read_tables(real(), synthetic)
    assert tables.numeric == ["age", "kg", "seen"]
    assert tables.categorical == ["job", "grade", "smokes"]
    assert tables.complete
    for name in tables.real:
        assert (tables.real[name] == tables.synthetic[name]).all(), name


def test_columns_are_found_by_the_text_of_their_labels():
    numbered = real().set_axis(range(6), axis=1)
    tables = read_tables(numbered, numbered.rename(columns=str), numbered)
    assert tables.numeric == ["0", "1", "5"]
    assert tables.shown_schema["2"].label == "2"


def test_a_level_that_happens_to_read_as_a_number_is_still_a_level():
    table = real().assign(job=["3", "boss"] * 20)
    tables = read_tables(table, real().assign(job=3))
    assert set(tables.synthetic["job"]) == {"3"}


def test_unseen_levels_stay_what_they_are():
    synthetic = real().assign(job="pirate", grade=9)
    tables = read_tables(real(), synthetic)
    assert set(tables.synthetic["job"]) == {"pirate"}
    assert set(tables.synthetic["grade"]) == {9}


def test_a_kept_hole_is_a_level_or_a_column_of_its_own():
    table = real()
    table.loc[:9, ["job", "kg", "seen"]] = None
    schema = {name: {"missing_as": "level"} for name in ("job", "kg", "seen")}
    tables = read_tables(table, table, schema=schema)
    assert tables.complete
    assert (tables.real["job"] == MISSING_LEVEL).sum() == 10
    for name in ("kg", "seen"):
        assert (tables.real[f"{name} is missing"] == "yes").sum() == 10
        assert tables.real[name][:10].nunique() == 1
        assert tables.shown(tables.real)[name].isna().sum() == 10
    with pytest.raises(DataError, match="'kg' of the synthetic table has 10 holes"):
        read_tables(real(), table[["kg"]].join(real().drop(columns="kg")))


def holes(frame):
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
        lambda f: f.assign(seen=range(len(f))),
        "'seen' is datetime in the real table, but .* integer",
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
    "holes": (
        holes,
        "'kg' of the synthetic table has 7 holes; .*sample.* gives complete rows",
    ),
    "infinite": (
        lambda f: f.assign(kg=np.inf),
        "synthetic table: column 'kg' must hold finite numbers",
    ),
    "empty": (lambda f: f[:0], "the synthetic table: .*at least one row"),
    "few rows": (lambda f: f[:9], "the synthetic table has 9; pass more rows"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables_are_refused_in_one_sentence(name):
    change, says = BAD[name]
    with pytest.raises(DataError, match=says) as caught:
        read_tables(real(), change(real()))
    assert "\n" not in str(caught.value)


def test_a_real_table_without_anything_to_score_is_refused():
    with pytest.raises(DataError, match="all 2 are set aside, 'a' because it is const"):
        read_tables(pd.DataFrame({"a": [1] * 20, "b": None}), real())


@pytest.mark.parametrize(
    ("target", "says"),
    [("jobb", "did you mean 'job'"), ("same", "set aside as constant")],
)
def test_a_target_is_a_column_that_varies(target, says):
    table = real().assign(same=1)
    with pytest.raises(DataError, match=says):
        read_tables(table, table, target=target)


def test_test_rows_may_have_holes_and_lack_nothing_else():
    tables = read_tables(real(), real(), holes(real()))
    assert tables.complete_test is None
    assert tables.test is not None
    empty = read_tables(real(), real(), real().assign(kg=None, job=None, seen=None))
    assert empty.test is not None
    assert empty.test.isna().sum().sum() == 120
    with pytest.raises(DataError, match="'kg' is absent from the test table"):
        read_tables(real(), real(), real().drop(columns="kg"))
