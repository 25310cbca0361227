from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from augmask import AugMask, AugMaskImputer
from augmask.errors import AugMaskWarning, DataError, UsageError

TINY = {"steps": 2, "width": 4, "depth": 1, "batch_size": 8}


def tiny(**changes) -> AugMaskImputer:
    settings = {"augmenter": "ecdf", "preset": "fast", "options": TINY, "device": "cpu"}
    return AugMaskImputer(**settings | changes)


@parametrize_with_checks([tiny()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def incomplete(n: int = 40) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    x[rng.random(x.shape) < 0.2] = np.nan
    return x


@pytest.mark.parametrize("n_draws", [1, 3])
def test_an_array_keeps_its_values_and_has_no_missing_ones(n_draws):
    x = incomplete()
    imputed = tiny(n_draws=n_draws).fit(x).transform(x)
    observed = ~np.isnan(x)
    np.testing.assert_array_equal(imputed[observed], x[observed])
    assert np.isfinite(imputed).all()


def test_means_vary_less_than_single_draws():
    x = incomplete(200)
    missing = np.isnan(x)
    longer = {"steps": 300, "batch_size": 128, "width": 32, "depth": 2}
    one, many = (
        tiny(n_draws=m, options=longer).fit(x).transform(x)[missing] for m in (1, 20)
    )
    assert many.std() < 0.6 * one.std()


def test_a_frame_of_any_kinds_comes_back_as_a_frame():
    frame = pd.DataFrame(
        {
            "kg": [60.5, np.nan, 80.0, 75.5] * 5,
            "job": ["cook", "smith", None, "cook"] * 5,
            "land": ["DE", None, "DE", "DE"] * 5,
        },
        index=range(100, 120),
    )
    imputed = tiny().fit(frame).transform(frame)
    assert not imputed.isna().any().any()
    assert imputed.index.equals(frame.index)
    assert set(imputed["land"]) == {"DE"}
    assert list(imputed) == list(frame)


def test_it_works_in_a_pipeline_with_named_output():
    frame = pd.DataFrame(incomplete(), columns=["a", "b", "c"])
    steps = make_pipeline(tiny(), StandardScaler()).set_output(transform="pandas")
    scaled = steps.fit_transform(frame)
    assert list(scaled) == ["a", "b", "c"]
    assert steps[0].get_feature_names_out().tolist() == ["a", "b", "c"]
    assert np.isfinite(scaled.to_numpy()).all()


def test_a_table_without_anything_to_learn_is_no_error():
    x = np.array([[1.0, np.nan], [np.nan, np.nan], [1.0, np.nan]])
    with pytest.warns(AugMaskWarning, match=r"stay in 'x1' \(no value at all\)"):
        imputed = tiny().fit(x).transform(x)
    assert imputed[:, 0].tolist() == [1, 1, 1]
    assert np.isnan(imputed[:, 1]).all()


def test_the_tags_say_what_the_imputer_accepts():
    tags = get_tags(AugMaskImputer())
    assert tags.input_tags.allow_nan
    assert tags.input_tags.categorical
    assert not tags.input_tags.sparse
    assert not tags.target_tags.required
    assert not tags.non_deterministic


def test_the_augmenter_has_the_same_default_everywhere():
    defaults = {each().augmenter for each in (AugMask, AugMaskImputer)}
    assert defaults == {"auto"}


def people(n: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "kg": rng.normal(70, 9, n),
            "age": rng.integers(20, 60, n),
            "job": rng.choice(["cook", "smith", "clerk"], n),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.2)


def test_a_polars_frame_with_text_comes_back_as_one():
    frame = pl.from_pandas(people()).with_columns(pl.col("age").cast(pl.Int16))
    imputed = tiny().fit(frame).transform(frame)
    assert imputed.schema == frame.schema
    assert sum(imputed.null_count().row(0)) == 0
    seen = frame["job"].is_not_null()
    assert imputed["job"].filter(seen).equals(frame["job"].filter(seen))


@pytest.mark.parametrize("output", ["pandas", "polars"])
@pytest.mark.parametrize("source", ["pandas", "polars", "numpy"])
def test_set_output_gives_what_is_asked_for(source, output):
    frame = people()
    given = {
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "numpy": frame[["kg", "age"]].to_numpy(float),
    }[source]
    imputed = tiny(random_state=0).set_output(transform=output).fit_transform(given)
    assert isinstance(imputed, pd.DataFrame if output == "pandas" else pl.DataFrame)
    names = ["x0", "x1"] if source == "numpy" else list(frame)
    assert list(imputed.columns) == names
    plain = tiny(random_state=0).fit_transform(given)
    assert imputed.to_numpy().tolist() == np.asarray(plain).tolist()


def test_without_a_state_each_call_draws_anew_and_an_integer_repeats():
    x = incomplete()
    missing = np.isnan(x)
    anew = tiny().fit(x)
    assert (anew.transform(x)[missing] != anew.transform(x)[missing]).any()
    assert (tiny().fit_transform(x)[missing] != tiny().fit_transform(x)[missing]).any()
    one, two = (tiny(random_state=3).fit(x) for _ in range(2))
    np.testing.assert_array_equal(one.transform(x), one.transform(x))
    np.testing.assert_array_equal(one.transform(x), two.transform(x))
    for make in (np.random.RandomState, np.random.default_rng):
        states = [tiny(random_state=make(5)).fit_transform(x) for _ in range(2)]
        np.testing.assert_array_equal(*states)
    with pytest.raises(UsageError, match="random_state must be a whole number"):
        tiny(random_state="seven").fit(x)


def test_schema_and_constraints_reach_the_model():
    frame = people().assign(later=lambda f: f["age"] + 5)
    imputer = tiny(schema={"age": "float"}, constraints=["age <= later"]).fit(frame)
    assert imputer.model_.schema_["age"].kind == "float"
    assert len(imputer.model_.constraints_) == 1
    with pytest.raises(DataError, match="rows violate the constraint"):
        tiny(constraints=["later <= age"]).fit(frame)
    x = incomplete().round()
    assert tiny(schema={"x1": "integer"}).fit(x).model_.schema_["x1"].kind == "integer"
    assert tiny(schema={"x1": "integer"}).fit(x).model_.schema_["x0"].kind == "float"


def test_columns_that_are_left_are_named_once():
    frame = people(200).assign(
        key=[f"K{i:04d}" for i in range(200)], empty=None, land="DE"
    )
    frame.loc[5, "key"] = None
    with pytest.warns(AugMaskWarning, match="stay in") as caught:
        imputer = tiny().fit(frame)
    (message,) = [str(each.message) for each in caught]
    assert "'key' (an identifier), 'empty' (no value at all);" in message
    assert "schema" in message
    assert list(imputer.left_) == ["key", "empty"]
    imputed = imputer.transform(frame)
    assert imputed["key"].isna().sum() == 1
    whole = frame.assign(key=frame["key"].fillna("K0005"), empty=None)
    with pytest.warns(AugMaskWarning, match="'empty'"):
        imputer.fit(whole)
    with pytest.warns(AugMaskWarning, match=r"stay in 'key' \(an identifier\);"):
        imputer.transform(frame)


def test_not_applicable_is_left_and_said():
    rng = np.random.default_rng(0)
    joint = rng.random(300) < 0.5
    frame = pd.DataFrame({"joint": np.where(joint, "yes", "no")})
    frame["income"] = np.where(joint, rng.normal(50, 9, 300), np.nan)
    with pytest.warns(AugMaskWarning, match=r"'income' \(missing means not applicable"):
        imputed = tiny().fit_transform(frame)
    assert imputed["income"].isna().equals(frame["income"].isna())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schema = {"income": {"missing_as": "unknown"}}
        assert not tiny(schema=schema).fit_transform(frame)["income"].isna().any()
