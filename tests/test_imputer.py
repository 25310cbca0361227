from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from augmask import AugMask, AugMaskImputer

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
