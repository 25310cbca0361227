"""What people try in their first hour: it works, or one sentence says what to type.

Each case of `MISTAKES` is an attempt and what its message must say; each of `WISHES` is
an attempt and what must come of it. They share one table and one model of a few steps.
"""

from __future__ import annotations

import copy
import datetime as dt
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_checks

import augmask as am

TINY = {
    "steps": 3,
    "width": 8,
    "depth": 1,
    "time_width": 8,
    "batch_size": 16,
    "sampling_steps": 2,
    "warmup": 1,
}
N = 60


def new_model(**changes: Any) -> am.AugMask:
    settings = {"augmenter": "ecdf", "preset": "fast", "options": TINY, "device": "cpu"}
    return am.AugMask(**{**settings, **changes})


def make_frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, N),
            "kg": rng.normal(70, 9, N).round(1),
            "job": rng.choice(["cook", "smith"], N),
            "smokes": rng.random(N) < 0.4,
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.2)


FRAME = make_frame()
HALVES = N // 2


@pytest.fixture(scope="module")
def model() -> am.AugMask:
    return new_model().fit(FRAME)


def fit(data: Any, **options: Any) -> Any:
    """Return rows like those of a table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", am.AugMaskWarning)
        return new_model().fit(data, **options).sample(4)


Attempt = Callable[[am.AugMask], object]
Says = tuple[type[Exception], str]
DATA, USAGE, SCHEMA = am.DataError, am.UsageError, am.SchemaError
WHERE = am.ConditionError

MISTAKES: dict[str, tuple[Attempt, Says]] = {
    # the table
    "a column instead of a table": (
        lambda _: fit(FRAME["age"]),
        (DATA, r"got Series; a single column becomes one by \.to_frame\(\)"),
    ),
    "a polars column": (
        lambda _: fit(pl.Series([1, 2])),
        (DATA, r"got Series; a single column becomes one by \.to_frame\(\)"),
    ),
    "a numpy array": (
        lambda _: fit(FRAME[["age", "kg"]].to_numpy(float)),
        (DATA, r"got ndarray; wrap it: pandas\.DataFrame\(array, columns"),
    ),
    "a list of lists": (
        lambda _: fit([[1, 2], [3, 4]] * 10),
        (DATA, r"got list; wrap it: pandas\.DataFrame"),
    ),
    "a mapping of lists": (
        lambda _: fit({"a": [1, 2] * 10}),
        (DATA, r"got dict; wrap it: pandas\.DataFrame"),
    ),
    "an array to impute": (
        lambda model: model.impute(FRAME.to_numpy()),
        (DATA, r"got ndarray; wrap it: pandas\.DataFrame\(array, columns"),
    ),
    "a header of two levels": (
        lambda _: fit(
            FRAME.set_axis(pd.MultiIndex.from_product([["x"], list(FRAME)]), axis=1)
        ),
        (DATA, "one level deep, the frame has 2; join them"),
    ),
    "duplicate columns": (
        lambda _: fit(FRAME.set_axis(["a", "b", "a", "c"], axis=1)),
        (DATA, "must be unique, the frame has 'a' more than once; rename"),
    ),
    "dates as column names": (
        lambda _: fit(FRAME.set_axis(pd.date_range("2020", periods=4), axis=1)),
        (DATA, "column names must be text or numbers.*rename"),
    ),
    "one row": (lambda _: fit(FRAME.head(1)), (DATA, "at least 10 rows.*got 1")),
    "no rows": (lambda _: fit(FRAME.head(0)), (DATA, "at least one row")),
    "a table of nothing but missing values": (
        lambda _: fit(pd.DataFrame({"a": [None] * 20})),
        (DATA, "no column can be learned"),
    ),
    "durations": (
        lambda _: fit(FRAME.assign(t=pd.to_timedelta(range(N), "h"))),
        (DATA, "'t' has the type timedelta.*convert it to a number, e.g. seconds"),
    ),
    "nested lists": (
        lambda _: fit(FRAME.assign(t=[[1, 2]] * N)),
        (DATA, "'t' must hold numbers, text, .* got list cells .*convert or drop"),
    ),
    "numbers and text in one column": (
        lambda _: fit(FRAME.assign(t=[1, "a"] * HALVES)),
        (DATA, r"'t' must hold cells of one type.*astype\(str\).*na_values"),
    ),
    "infinite numbers": (
        lambda _: fit(FRAME.assign(t=[np.inf, 1.5] * HALVES)),
        (DATA, "'t' must hold finite numbers, 30 of its cells are infinite"),
    ),
    "a file that is not there": (
        lambda _: fit(Path("patients.csv")),
        (DATA, "no such file: patients.csv"),
    ),
    # the schema
    "a typo in a kind": (
        lambda _: fit(FRAME, schema={"age": "integr"}),
        (SCHEMA, "'age': kind must be one of .*; did you mean 'integer'"),
    ),
    "a kind as pandas names it": (
        lambda _: fit(FRAME, schema={"job": "categorical"}),
        (SCHEMA, "did you mean 'category'"),
    ),
    "a typo in a column of the schema": (
        lambda _: fit(FRAME, schema={"agee": "integer"}),
        (SCHEMA, "unknown column 'agee'; did you mean 'age'"),
    ),
    # parameters
    "an unknown backbone": (
        lambda _: new_model(backbone="cdt").fit(FRAME),
        (USAGE, "'cdt'; did you mean 'cdtd'. known: cdtd, tabdiff, tabddpm"),
    ),
    "an unknown augmenter": (
        lambda _: new_model(augmenter="knn").fit(FRAME),
        (USAGE, "'knn'; known: auto, zero, mean, noise, ecdf, mice"),
    ),
    "an unknown preset": (
        lambda _: new_model(preset="quick").fit(FRAME),
        (USAGE, "'quick'; known: auto, paper, best, balanced, fast"),
    ),
    "an unknown setting": (
        lambda _: new_model(options={"stepps": 3}).fit(FRAME),
        (USAGE, "no setting 'stepps'; did you mean 'steps'"),
    ),
    "progress as a word": (
        lambda _: fit(FRAME, progress="yes"),
        (USAGE, "progress must be None, True, False or a function"),
    ),
    # before fit
    "sample before fit": (
        lambda _: new_model().sample(3),
        (NotFittedError, "this AugMask is not fitted yet; call fit first"),
    ),
    "impute before fit": (
        lambda _: new_model().impute(FRAME),
        (NotFittedError, "call fit first"),
    ),
    # the number of rows and the seed
    "half a row": (
        lambda model: model.sample(4.5),
        (USAGE, "n must be a whole number of at least 1 .*got 4.5"),
    ),
    "a number as a word": (
        lambda model: model.sample(n="ten"),
        (USAGE, "n must be a whole number .*got 'ten'"),
    ),
    "no number": (
        lambda model: model.sample(),
        (USAGE, "n, the number of rows, must be given unless `where` is a frame"),
    ),
    "a table as the number": (
        lambda model: model.sample(FRAME),
        (USAGE, "n must be a whole number .*got age kg job"),
    ),
    "a generator as the seed": (
        lambda model: model.sample(3, seed=np.random.default_rng(0)),
        (USAGE, "seed must be a whole number of at least 0"),
    ),
    # conditions
    "an unknown column": (
        lambda model: model.sample(3, where="agee > 30"),
        (WHERE, "'agee', which the model does not have; did you mean 'age'"),
    ),
    "one equals sign": (
        lambda model: model.sample(3, where="age = 30"),
        (WHERE, "'age = 30' cannot be read as a condition; write == for equal"),
    ),
    "and as in pandas": (
        lambda model: model.sample(3, where="(age > 30) & (kg > 60)"),
        (WHERE, "is none of them; write `and`"),
    ),
    "and as in SQL": (
        lambda model: model.sample(3, where="age > 30 AND kg > 60"),
        (WHERE, "cannot be read as a condition; write `and`"),
    ),
    "unequal as in SQL": (
        lambda model: model.sample(3, where="age <> 30"),
        (WHERE, "write != for unequal"),
    ),
    "between as in SQL": (
        lambda model: model.sample(3, where="age between 30 and 40"),
        (WHERE, "write e.g. '30 <= age <= 40'"),
    ),
    "null as in SQL": (
        lambda model: model.sample(3, where="age is null"),
        (WHERE, "write e.g. 'age is missing'"),
    ),
    "not in front": (
        lambda model: model.sample(3, where="not age > 30"),
        (WHERE, "turn the comparison around"),
    ),
    "a level without quotes": (
        lambda model: model.sample(3, where="job == cook"),
        (WHERE, "there is no column 'cook'; put a value in quotes, job == 'cook'"),
    ),
    "true in small letters": (
        lambda model: model.sample(3, where="smokes == true"),
        (WHERE, "no column 'true'; write True"),
    ),
    "a level that does not occur": (
        lambda model: model.sample(3, where={"job": "cooke"}),
        (WHERE, "'job' has no level 'cooke'; did you mean 'cook'"),
    ),
    "a boolean mask": (
        lambda model: model.sample(3, where=FRAME["age"] > 30),
        (WHERE, "a mapping of column to value, a text such as 'age > 30'.*got Series"),
    ),
    "a function as a condition": (
        lambda model: model.sample(3, where=lambda f: f["age"] > 30),
        (WHERE, "a mapping of column to value, a text .*got function"),
    ),
    "missing rows without missing values": (
        lambda model: model.sample(3, where="age is missing"),
        (WHERE, "'age' cannot be missing in complete rows; pass missing='learned'"),
    ),
    "missing as a yes": (
        lambda model: model.sample(3, missing=True),
        (USAGE, r"missing must be None \(complete rows\) or 'learned', got True"),
    ),
    # constraints
    "a constraint with a value": (
        lambda _: fit(FRAME, constraints=["age >= 18"]),
        (USAGE, "compares columns with columns.*conditions on one column.*where"),
    ),
    "a constraint with an arrow": (
        lambda _: fit(FRAME, constraints=["age => kg"]),
        (WHERE, "write >= or <="),
    ),
    "a name with a space in a constraint": (
        lambda _: fit(
            FRAME.rename(columns={"age": "the age"}), constraints="the age <= kg"
        ),
        (WHERE, "with `backticks` around names"),
    ),
    # evaluate, ampute, impute, files
    "a target that is not there": (
        lambda model: am.evaluate(
            FRAME, model.sample(N), target="salary", augmenter=None
        ),
        (DATA, "no column 'salary' to predict; known: age, kg, job"),
    ),
    "the model in place of its rows": (
        lambda model: am.evaluate(FRAME, model),
        (DATA, "the synthetic table: a table must be .* got AugMask"),
    ),
    "too few synthetic rows": (
        lambda model: am.evaluate(FRAME, model.sample(5)),
        (DATA, "the synthetic table has 5 rows, too few to score; pass at least 10"),
    ),
    "a ratio in percent": (
        lambda _: am.ampute(FRAME, ratio=30),
        (USAGE, "ratio, .* below 1, got 30"),
    ),
    "a mechanism in capitals": (
        lambda _: am.ampute(FRAME, mechanism="MCAR"),
        (USAGE, "did you mean 'mcar'"),
    ),
    "rows to impute without a column": (
        lambda model: model.impute(FRAME.rename(columns={"age": "Age"})),
        (DATA, "'age' is absent; .*; did you mean 'Age'"),
    ),
    "a table in place of a model": (
        lambda _: am.load(__file__),
        (am.ArtifactError, "invalid model file"),
    ),
    "a folder to save to": (
        lambda model: model.save(Path(__file__).parent),
        (DATA, "it is a directory; name a file"),
    ),
    "a spreadsheet to write": (
        lambda model: model.sample_to("rows.ods", 3),
        (USAGE, r"must end in one of \.csv, .* got rows.ods"),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_with_what_to_type(name, model):
    attempt, (error, says) = MISTAKES[name]
    with pytest.raises(error, match=says) as caught:
        attempt(model)
    assert "\n" not in str(caught.value)


def nullable(_: am.AugMask) -> None:
    rows = fit(FRAME.convert_dtypes())
    assert rows["age"].between(18, 90).all()
    assert rows["smokes"].isin([True, False]).all()


def unused_levels(_: am.AugMask) -> None:
    levels = pd.CategoricalDtype(["cook", "smith", "clerk"])
    rows = fit(FRAME.assign(job=FRAME["job"].astype(levels)))
    assert rows["job"].dtype == levels
    assert set(rows["job"]) <= {"cook", "smith"}


def an_empty_column(_: am.AugMask) -> None:
    rows = fit(FRAME.assign(empty=None))
    assert list(rows) == [*FRAME, "empty"]
    assert rows["empty"].isna().all()


def names_that_are_numbers(_: am.AugMask) -> None:
    assert list(fit(FRAME.set_axis(range(4), axis=1))) == [0, 1, 2, 3]


def days(_: am.AugMask) -> None:
    first = dt.date(2020, 1, 1)
    rows = fit(FRAME.assign(day=[first + dt.timedelta(i) for i in range(N)]))
    assert (rows["day"] >= pd.Timestamp(first)).all()


def a_path(_: am.AugMask, folder: Path) -> None:
    FRAME.to_csv(folder / "t.csv", index=False)
    model = new_model().fit(folder / "t.csv")
    model.save(folder / "m.augmask")
    assert am.load(folder / "m.augmask").sample_to(folder / "rows.csv", 3) == 3


def other_libraries(_: am.AugMask) -> None:
    frame = pl.from_pandas(FRAME)
    assert isinstance(fit(frame), pl.DataFrame)
    assert isinstance(fit(frame.lazy()), pl.DataFrame)
    assert isinstance(fit(frame.to_arrow()), type(frame.to_arrow()))
    assert isinstance(fit(FRAME), pd.DataFrame)


def two_calls(model: am.AugMask) -> None:
    assert not model.sample(9).equals(model.sample(9))
    assert model.sample(9, seed=np.int32(3)).equals(model.sample(9, seed=3))
    assert len(model.sample(np.int64(4))) == 4


def partial_rows(model: am.AugMask) -> None:
    rows = model.sample(where=pd.DataFrame({"age": [40, 50]}))
    assert rows["age"].tolist() == [40, 50]


def a_copy(model: am.AugMask) -> None:
    expected = model.sample(5, seed=1)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        pd.testing.assert_frame_equal(twin.sample(5, seed=1), expected)


def rows_without_missing_values(model: am.AugMask) -> None:
    complete = FRAME.dropna()
    imputed = model.impute(complete)
    assert (imputed == complete).all().all()
    assert imputed.index.equals(complete.index)


def more_columns(model: am.AugMask) -> None:
    wide = FRAME.assign(note="x")[["note", *FRAME]]
    imputed = model.impute(wide)
    assert list(imputed) == list(wide)
    assert not imputed.isna().any().any()


def conditions(model: am.AugMask) -> None:
    where = "job == 'cook' and (age < 40 or age > 60) and kg != 70"
    rows = model.sample(9, where=where)
    assert (rows["job"] == "cook").all()
    assert not rows["age"].between(40, 60).any()
    rows = model.sample(9, where="age is missing", missing="learned")
    assert rows["age"].isna().all()


def odd_names(_: am.AugMask) -> None:
    frame = FRAME.rename(columns={"age": "a <= b, %", "kg": "kg and more"})
    constraint = "`a <= b, %` != 'kg and more'"
    assert len(fit(frame, constraints=constraint)) == 4
    rows = new_model().fit(frame).sample(4, where="`a <= b, %` > 30")
    assert (rows["a <= b, %"] > 30).all()


def inspection(_: am.AugMask) -> None:
    found = am.inspect(FRAME)
    assert found.schema["age"].kind == "integer"
    assert "complete rows" in repr(found)


WISHES: dict[str, Callable[..., None]] = {
    "nullable dtypes": nullable,
    "levels that do not occur": unused_levels,
    "a column without a value": an_empty_column,
    "column names that are numbers": names_that_are_numbers,
    "dates of Python": days,
    "paths": a_path,
    "tables of other libraries": other_libraries,
    "two calls differ, numbers of numpy count": two_calls,
    "partial rows without a number": partial_rows,
    "a copy of a model": a_copy,
    "rows without missing values": rows_without_missing_values,
    "columns that were not learned": more_columns,
    "or, unequal, missing": conditions,
    "names with operators": odd_names,
    "a look at the table": inspection,
    "one column": lambda _: fit(FRAME[["kg"]])["kg"].between(30, 110).all(),
    "rows with an index of two levels": lambda _: fit(
        FRAME.set_index(pd.MultiIndex.from_product([range(6), range(10)]))
    ),
}


@pytest.mark.parametrize("name", WISHES)
def test_a_wish_comes_true(name, model, tmp_path):
    wish = WISHES[name]
    needs_folder = wish is a_path
    result = wish(model, tmp_path) if needs_folder else wish(model)
    assert result is None or np.all(result is not False)


def test_there_are_enough_of_both():
    assert len(MISTAKES) >= 50
    assert len(WISHES) >= 15


# scikit-learn's checks that need no X and y of numbers
CHECKS = (
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_mixin_order",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
)


@pytest.mark.parametrize("name", CHECKS)
def test_augmask_is_an_estimator_of_scikit_learn(name):
    getattr(estimator_checks, name)("AugMask", am.AugMask())


def test_fit_does_not_change_what_it_is_given():
    model, options = new_model(), copy.deepcopy(TINY)
    before, frame = model.get_params(), FRAME.copy()
    assert model.fit(FRAME) is model
    pd.testing.assert_frame_equal(FRAME, frame)
    assert model.get_params() == before
    assert options == TINY
    # fitted attributes end in an underscore; the others are private
    own = set(vars(model)) - set(before)
    assert all(name.endswith("_") or name.startswith("_") for name in own)
    assert new_model().fit(FRAME).sample(5).equals(model.sample(5))
