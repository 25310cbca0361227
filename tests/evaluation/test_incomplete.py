from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from augmask.augmentation.augment import augment
from augmask.errors import DataError
from augmask.evaluation.detection import detection
from augmask.evaluation.fidelity import shape, trend
from augmask.evaluation.incomplete import compare_remasked, match_missing
from augmask.evaluation.references import independent
from augmask.missing.model import MissingModel, with_missing

NUMERIC, CATEGORICAL = ["age", "income"], ["job"]


def people(n, rng):
    age = rng.normal(size=n)
    income = age + 0.6 * rng.normal(size=n)
    rank = np.digitize(income + 0.5 * rng.normal(size=n), [-0.5, 0.8])
    job = np.array(["low", "middle", "high"])[rank]
    return pd.DataFrame({"age": age, "income": income, "job": job})


def without_the_old(frame, rng, slope=2.0):
    """Strong MAR: the older, the less is reported."""
    chance = expit(slope * frame["age"].to_numpy())[:, None]
    observed = rng.random(frame.shape) >= chance
    observed[:, 0] = True
    return with_missing(frame, observed)


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    real = without_the_old(people(6000, rng), rng)
    truth = people(6000, rng)
    filled, _ = augment(
        without_the_old(people(6000, rng), rng), augmenter="ecdf", seed=1
    )
    own, _ = augment(real, augmenter="ecdf", seed=1)
    return real, truth, filled, own


def test_under_mar_the_truth_wins_after_remasking_and_loses_the_plain_comparison(case):
    """Complete rows of the true distribution against imputation from marginals.

    `own` are the imputed real rows, which no sampling noise separates from the observed
    values; they lose all the same.
    """
    real, truth, *fills = case
    good = compare_remasked(
        real, truth, NUMERIC, CATEGORICAL, rng=np.random.default_rng(1)
    )
    assert good.shape > 0.97
    assert good.trend > 0.96
    for fill in fills:
        bad = compare_remasked(
            real, fill, NUMERIC, CATEGORICAL, rng=np.random.default_rng(1)
        )
        assert good.shape > bad.shape + 0.02
        assert good.trend > bad.trend + 0.05
        # Against the observed marginals as they are, the order is the opposite.
        assert bad.shape_complete > good.shape_complete + 0.05


def test_the_plain_comparison_differs_in_incomplete_columns_only(case):
    real, truth, *_ = case
    result = compare_remasked(
        real, truth, NUMERIC, CATEGORICAL, rng=np.random.default_rng(1)
    )
    lines = result.columns.set_index("column")
    correction = lines["remasked"] - lines["complete"]
    assert correction["age"] == 0
    assert correction["income"] > 0.15
    assert correction["job"] > 0.1
    assert result.rate_gap < 0.02
    assert np.allclose(lines["real_rate"], real.isna().mean())
    assert np.allclose(lines["remasked_rate"], result.frame.isna().mean())
    observed = result.frame.notna()
    assert result.frame[observed].equals(truth[observed])


def test_one_outlier_row_does_not_decide_the_correlations(case):
    real, truth, *_ = case
    wild = truth.copy()
    wild.loc[0, NUMERIC] = 10 * truth[NUMERIC].max()
    # The same generator hides the same cells, but for the wild row.
    before, after = (
        compare_remasked(real, rows, NUMERIC, CATEGORICAL, rng=np.random.default_rng(1))
        for rows in (truth, wild)
    )
    assert abs(before.trend_complete - after.trend_complete) < 0.001
    assert abs(before.trend - after.trend) < 0.001


def test_independent_columns_lose_trend(case):
    real, truth, *_ = case
    good = compare_remasked(
        real, truth, NUMERIC, CATEGORICAL, rng=np.random.default_rng(1)
    )
    floor = independent(real, np.random.default_rng(2))
    bad = compare_remasked(
        real, floor, NUMERIC, CATEGORICAL, rng=np.random.default_rng(1)
    )
    assert bad.trend < good.trend - 0.15


def test_for_complete_tables_it_equals_shape_and_trend():
    rng = np.random.default_rng(0)
    real, synthetic = people(400, rng), people(300, rng)
    result = compare_remasked(real, synthetic, NUMERIC, CATEGORICAL, rng=rng)
    plain = shape(real, synthetic, NUMERIC, CATEGORICAL)
    pairs = trend(real, synthetic, NUMERIC, CATEGORICAL)
    assert result.shape == result.shape_complete == pytest.approx(plain.value)
    assert result.trend == result.trend_complete == pytest.approx(pairs.value)
    assert result.columns["remasked"].tolist() == pytest.approx(
        plain.table["score"].tolist()
    )
    assert result.pairs["real"][0] == pytest.approx(pairs.table["real"][0])
    assert result.frame.equals(synthetic)


def test_a_fitted_model_can_be_passed_and_may_know_more_columns(case):
    real, truth, *_ = case
    model = MissingModel().fit(real, NUMERIC)
    rng = np.random.default_rng
    first = compare_remasked(real, truth, NUMERIC, CATEGORICAL, rng=rng(1), model=model)
    again = compare_remasked(real, truth, NUMERIC, CATEGORICAL, rng=rng(1))
    assert first.frame.equals(again.frame)
    part = compare_remasked(real, truth, ["income"], [], rng=rng(1), model=model)
    assert part.columns["remasked"][0] == first.columns["remasked"][1]
    assert np.isnan(part.trend)


def test_pairs_that_are_never_observed_together_have_no_score():
    rng = np.random.default_rng(0)
    real = people(900, rng)
    even = np.arange(900) % 2 == 0
    real["income"] = real["income"].where(even)
    real["job"] = real["job"].where(~even)
    result = compare_remasked(real, people(900, rng), NUMERIC, CATEGORICAL, rng=rng)
    scores = result.pairs.set_index(["first", "second"])
    assert np.isnan(scores.loc[("income", "job"), "remasked"])
    assert scores.loc[("income", "job"), "rows"] == 0
    assert result.trend == pytest.approx(scores["remasked"].dropna().mean())


def test_bad_inputs_are_refused(case):
    real, truth, *_ = case
    rng = np.random.default_rng(0)
    masked = truth.assign(income=truth["income"].where(truth.index != 3))
    with pytest.raises(DataError, match="synthetic table has 1 missing"):
        compare_remasked(real, masked, NUMERIC, CATEGORICAL, rng=rng)
    with pytest.raises(
        DataError, match="'income' of the real table has no observed values"
    ):
        compare_remasked(
            real.assign(income=np.nan), truth, NUMERIC, CATEGORICAL, rng=rng
        )
    with pytest.raises(DataError, match="synthetic table has 0 columns named 'job'"):
        compare_remasked(real, truth[NUMERIC], NUMERIC, CATEGORICAL, rng=rng)


MATCHED = list("abcdef")


def table(seed, n=600, rate=0.3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1)) + rng.normal(size=(n, 6))
    return pd.DataFrame(x, columns=MATCHED).mask(rng.random((n, 6)) < rate)


def auc(first, second):
    return detection(first, second, MATCHED, [], seed=0, allow_missing=True).value


def test_matched_patterns_do_not_tell_the_tables_apart():
    real, fresh = table(0, 1500), table(1, 1500, 0.5)
    assert auc(real, fresh) > 0.7  # by the missing values alone
    matched = match_missing(real, fresh, np.random.default_rng(0))
    assert auc(*matched) == pytest.approx(0.5, abs=0.05)
    assert matched[0].isna().equals(matched[1].isna())


def test_values_tell_matched_tables_apart():
    rng = np.random.default_rng(0)
    real = table(0, 1500)
    broken = table(1, 1500).apply(lambda column: rng.permutation(column))
    plain, matched = auc(real, broken), auc(*match_missing(real, broken, rng))
    assert plain > 0.65
    assert matched > plain - 0.04


def test_rows_of_equal_patterns_keep_all_cells():
    real = table(0)
    other = table(1).where(real.notna().to_numpy()).fillna(0.0).where(real.notna())
    left, right = match_missing(real, other, np.random.default_rng(0))
    assert left.notna().sum().sum() == real.notna().sum().sum()
    assert sorted(left["a"].dropna()) == sorted(real["a"].dropna())
    assert right.isna().equals(left.isna())


def test_matched_values_stay_in_their_rows_and_types():
    real = table(0).assign(word=["x", None, "z"] * 200)
    other = table(1, 500).assign(word="y")
    left, right = match_missing(real, other, np.random.default_rng(0))
    assert len(left) == len(right) == 500
    assert set(left["word"].dropna()) <= {"x", "z"}
    rows = real.dropna()
    complete = left.dropna()
    assert len(complete)
    assert len(complete.merge(rows, how="inner")) == len(complete)


def test_complete_tables_are_matched_already():
    first, second = table(0, rate=0), table(1, rate=0)
    left, right = match_missing(first, second, np.random.default_rng(0))
    assert left is first
    assert right is second
