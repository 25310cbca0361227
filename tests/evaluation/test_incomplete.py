from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from augmask.augmentation.frame import augment
from augmask.errors import DataError
from augmask.evaluation.fidelity import shape, trend
from augmask.evaluation.incomplete import MEANING, remasked
from augmask.evaluation.references import independent
from augmask.missing.model import MissingModel, with_holes

NUMERIC, CATEGORICAL = ["age", "income"], ["job"]


def people(n, rng):
    age = rng.normal(size=n)
    income = age + 0.6 * rng.normal(size=n)
    rank = np.digitize(income + 0.5 * rng.normal(size=n), [-0.5, 0.8])
    job = np.array(["low", "middle", "high"])[rank]
    return pd.DataFrame({"age": age, "income": income, "job": job})


def without_the_old(frame, rng, slope=2.0):
    """Strong MAR: the older, the less is told."""
    chance = expit(slope * frame["age"].to_numpy())[:, None]
    observed = rng.random(frame.shape) >= chance
    observed[:, 0] = True
    return with_holes(frame, observed)


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    real = without_the_old(people(6000, rng), rng)
    truth = people(6000, rng)
    filled, _ = augment(without_the_old(people(6000, rng), rng), "ecdf", seed=1)
    own, _ = augment(real, "ecdf", seed=1)
    return real, truth, filled, own


def test_under_mar_the_truth_wins_here_and_loses_the_plain_comparison(case):
    """The bar: complete rows of the true law against holes filled from marginals.

    `own` are the real rows themselves, filled, which no sampling noise separates from
    the observed values; they lose all the same.
    """
    real, truth, *fills = case
    good = remasked(real, truth, NUMERIC, CATEGORICAL, rng=np.random.default_rng(1))
    assert good.shape > 0.97
    assert good.trend > 0.96
    for fill in fills:
        bad = remasked(real, fill, NUMERIC, CATEGORICAL, rng=np.random.default_rng(1))
        assert good.shape > bad.shape + 0.02
        assert good.trend > bad.trend + 0.05
        # Against the observed marginals as they are, the order is the opposite.
        assert bad.shape_complete > good.shape_complete + 0.05


def test_the_difference_to_the_plain_comparison_is_where_the_holes_are(case):
    real, truth, *_ = case
    result = remasked(real, truth, NUMERIC, CATEGORICAL, rng=np.random.default_rng(1))
    lines = result.columns.set_index("column")
    correction = lines["remasked"] - lines["complete"]
    assert correction["age"] == 0
    assert correction["income"] > 0.15
    assert correction["job"] > 0.1
    assert result.rate_gap < 0.02
    assert np.allclose(lines["real_rate"], real.isna().mean())
    assert np.allclose(lines["remasked_rate"], result.frame.isna().mean())
    kept = result.frame.notna()
    assert result.frame[kept].equals(truth[kept])


def test_one_outlier_row_does_not_decide_the_correlations(case):
    real, truth, *_ = case
    wild = truth.copy()
    wild.loc[0, NUMERIC] = 10 * truth[NUMERIC].max()
    # The same generator hides the same cells, but for the wild row.
    before, after = (
        remasked(real, rows, NUMERIC, CATEGORICAL, rng=np.random.default_rng(1))
        for rows in (truth, wild)
    )
    assert abs(before.trend_complete - after.trend_complete) < 0.001
    assert abs(before.trend - after.trend) < 0.001


def test_independent_columns_are_caught_by_trend(case):
    real, truth, *_ = case
    good = remasked(real, truth, NUMERIC, CATEGORICAL, rng=np.random.default_rng(1))
    floor = independent(real, np.random.default_rng(2))
    bad = remasked(real, floor, NUMERIC, CATEGORICAL, rng=np.random.default_rng(1))
    assert bad.trend < good.trend - 0.15


def test_without_holes_it_is_shape_and_trend():
    rng = np.random.default_rng(0)
    real, synthetic = people(400, rng), people(300, rng)
    result = remasked(real, synthetic, NUMERIC, CATEGORICAL, rng=rng)
    plain = shape(real, synthetic, NUMERIC, CATEGORICAL)
    pairs = trend(real, synthetic, NUMERIC, CATEGORICAL)
    assert result.shape == result.shape_complete == pytest.approx(plain.value)
    assert result.trend == result.trend_complete == pytest.approx(pairs.value)
    assert result.columns["remasked"].tolist() == pytest.approx(
        plain.table["score"].tolist()
    )
    assert result.pairs["real"][0] == pytest.approx(pairs.table["real"][0])
    assert result.frame.equals(synthetic)


def test_every_number_says_what_it_can_tell(case):
    real, truth, *_ = case
    result = remasked(real, truth, NUMERIC, CATEGORICAL, rng=np.random.default_rng(1))
    lines = result.to_frame().set_index("name")
    assert list(lines.index) == list(MEANING)
    assert lines.loc["shape", "value"] == result.shape
    assert "Not a score" in lines.loc["shape_complete", "meaning"]


def test_a_fitted_model_can_be_passed_and_may_know_more_columns(case):
    real, truth, *_ = case
    model = MissingModel().fit(real, NUMERIC)
    rng = np.random.default_rng
    first = remasked(real, truth, NUMERIC, CATEGORICAL, rng=rng(1), model=model)
    again = remasked(real, truth, NUMERIC, CATEGORICAL, rng=rng(1))
    assert first.frame.equals(again.frame)
    part = remasked(real, truth, ["income"], [], rng=rng(1), model=model)
    assert part.columns["remasked"][0] == first.columns["remasked"][1]
    assert np.isnan(part.trend)


def test_pairs_that_are_never_seen_together_have_no_score():
    rng = np.random.default_rng(0)
    real = people(900, rng)
    even = np.arange(900) % 2 == 0
    real["income"] = real["income"].where(even)
    real["job"] = real["job"].where(~even)
    result = remasked(real, people(900, rng), NUMERIC, CATEGORICAL, rng=rng)
    scores = result.pairs.set_index(["first", "second"])
    assert np.isnan(scores.loc[("income", "job"), "remasked"])
    assert scores.loc[("income", "job"), "rows"] == 0
    assert result.trend == pytest.approx(scores["remasked"].dropna().mean())


def test_what_is_refused(case):
    real, truth, *_ = case
    rng = np.random.default_rng(0)
    holed = truth.assign(income=truth["income"].where(truth.index != 3))
    with pytest.raises(DataError, match="synthetic table has 1 missing"):
        remasked(real, holed, NUMERIC, CATEGORICAL, rng=rng)
    with pytest.raises(DataError, match="'income' of the real table has none"):
        remasked(real.assign(income=np.nan), truth, NUMERIC, CATEGORICAL, rng=rng)
    with pytest.raises(DataError, match="'job' stands 0 times in the synthetic"):
        remasked(real, truth[NUMERIC], NUMERIC, CATEGORICAL, rng=rng)
