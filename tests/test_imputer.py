from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from augmask.imputer import AugMaskImputer

TINY = {"steps": 2, "width": 4, "depth": 1, "batch": 8}


def tiny(**changes) -> AugMaskImputer:
    settings = {"augmenter": "ecdf", "preset": "fast", "options": TINY, "device": "cpu"}
    return AugMaskImputer(**settings | changes)


@parametrize_with_checks([tiny()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def holed(n: int = 40) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    x[rng.random(x.shape) < 0.2] = np.nan
    return x


@pytest.mark.parametrize("draws", [1, 3])
def test_an_array_keeps_what_it_has_and_has_no_hole(draws):
    x = holed()
    found = tiny(n_draws=draws).fit(x).transform(x)
    seen = ~np.isnan(x)
    np.testing.assert_array_equal(found[seen], x[seen])
    assert np.isfinite(found).all()


def test_means_spread_less_than_draws():
    x = holed(200)
    hole = np.isnan(x)
    longer = {"steps": 300, "batch": 128, "width": 32, "depth": 2}
    one, many = (
        tiny(n_draws=m, options=longer).fit(x).transform(x)[hole] for m in (1, 20)
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
    found = tiny().fit(frame).transform(frame)
    assert not found.isna().any().any()
    assert found.index.equals(frame.index)
    assert set(found["land"]) == {"DE"}
    assert list(found) == list(frame)


def test_it_works_in_a_pipeline_with_named_output():
    frame = pd.DataFrame(holed(), columns=["a", "b", "c"])
    steps = make_pipeline(tiny(), StandardScaler()).set_output(transform="pandas")
    found = steps.fit_transform(frame)
    assert list(found) == ["a", "b", "c"]
    assert steps[0].get_feature_names_out().tolist() == ["a", "b", "c"]
    assert np.isfinite(found.to_numpy()).all()


def test_nothing_to_learn_is_no_error():
    x = np.array([[1.0, np.nan], [np.nan, np.nan], [1.0, np.nan]])
    found = tiny().fit(x).transform(x)
    assert found[:, 0].tolist() == [1, 1, 1]
    assert np.isnan(found[:, 1]).all()
