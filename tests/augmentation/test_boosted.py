"""LGBM-S is the paper's Algorithm 1, and its moments mean what they should."""

import lightgbm as lgb
import numpy as np
import pytest
from scipy.special import digamma

from augmask.augmentation.boosted import LgbmD, LgbmS, LgbmSCalibrated
from augmask.augmentation.conditional import LOG_CHI2_BIAS
from augmask.errors import NotFittedError, UsageError
from augmask.table.table import Layout, Table


def mixed(n=600, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    num = np.stack([a, a**2 + 0.3 * rng.normal(size=n)], axis=1).astype(np.float32)
    # Code 1 of four is never observed, code 3 is rare.
    three = np.select([a < -0.5, a < 1.5], [0, 2], 3)
    two = (a + rng.normal(size=n) > 0).astype(int)
    observed = rng.random((n, 4)) > 0.3
    layout = Layout(("a", "b"), ("three", "two"), (4, 2))
    return Table(num, np.stack([three, two], axis=1), observed, layout)


def algorithm_1(table):
    """The printed algorithm, line by line, with LightGBM's scikit-learn classes."""
    settings = {
        "boosting_type": "gbdt",
        "num_leaves": 31,
        "max_depth": -1,
        "learning_rate": 0.1,
        "n_estimators": 50,
        "subsample_for_bin": 200_000,
        "min_split_gain": 0.0,
        "min_child_weight": 1e-3,
        "min_child_samples": 20,
        "subsample": 1.0,
        "subsample_freq": 0,
        "colsample_bytree": 1.0,
        "reg_alpha": 0.0,
        "reg_lambda": 0.0,
        "random_state": 42,
        "importance_type": "split",
        "verbose": -1,
        "n_jobs": 1,
    }
    x = np.concatenate([table.num, table.cat], axis=1).astype(np.float64)
    x[~table.observed] = np.nan
    for j in range(x.shape[1]):
        u = np.delete(np.concatenate([x, table.observed], axis=1), [j, j + 4], axis=1)
        known = table.observed[:, j]
        # codes stand behind the two numbers, one of which may be the target
        codes = {"categorical_feature": [1, 2] if j < 2 else [2]}
        if j < 2:
            mean = lgb.LGBMRegressor(**settings).fit(u[known], x[known, j], **codes)
            r = x[known, j] - mean.predict(u[known])
            v = np.log(r**2 + 1e-6)
            variance = lgb.LGBMRegressor(**settings).fit(u[known], v, **codes)
            yield mean.predict(u[~known]), np.exp(0.5 * variance.predict(u[~known]))
        else:
            model = lgb.LGBMClassifier(**settings).fit(u[known], x[known, j], **codes)
            p = np.zeros(((~known).sum(), table.layout.cards[j - 2]))
            p[:, model.classes_.astype(int)] = model.predict_proba(u[~known])
            yield (1 - 0.05) * p + 0.05 / p.shape[1]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_moments_are_those_of_the_printed_algorithm():
    table = mixed()
    moments = LgbmS().fit(table, np.random.default_rng(0)).moments_
    (mu_a, sd_a), (mu_b, sd_b), p_three, p_two = algorithm_1(table)
    np.testing.assert_allclose(moments.num[0].mu, mu_a, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moments.num[0].sigma, sd_a, rtol=1e-3)
    np.testing.assert_allclose(moments.num[1].mu, mu_b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moments.num[1].sigma, sd_b, rtol=1e-3)
    np.testing.assert_allclose(moments.cat[0].p, p_three, atol=1e-5)
    np.testing.assert_allclose(moments.cat[1].p, p_two, atol=1e-5)
    # Smoothing reaches the code that was never observed, and nothing else does.
    np.testing.assert_allclose(moments.cat[0].p[:, 1], 0.05 / 4, rtol=1e-5)


def gaussian_pair(n=6000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = 0.8 * x + 0.6 * rng.normal(size=n)
    observed = np.ones((n, 2), dtype=bool)
    observed[:, 1] = rng.random(n) > 0.3
    layout = Layout(("x", "y"), (), ())
    return Table(np.stack([x, y], axis=1), np.zeros((n, 0), int), observed, layout)


def test_the_printed_spread_is_half_and_the_calibrated_one_whole():
    """y | x is N(0.8 x, 0.6²), so μ̂ and σ̂ can be judged.

    exp(-1.2704 / 2) = 0.53 is the printed rule's factor when residuals are honest; 50
    trees of 31 leaves on 4,200 rows also fit some noise, which takes up to a tenth off
    the in-sample residuals. Out of fold they are a few per cent too large instead.
    """
    table = gaussian_pair()
    rng = np.random.default_rng(1)
    paper = LgbmS().fit(table, rng).moments_.num[1]
    calibrated = LgbmSCalibrated().fit(table, rng).moments_.num[1]
    truth = 0.8 * table.num[~table.observed[:, 1], 0]
    # The error of μ̂ is a small part of the 0.6 that no model can explain.
    assert np.sqrt(np.mean((paper.mu - truth) ** 2)) < 0.2
    np.testing.assert_array_equal(calibrated.mu, paper.mu)
    # The median, because a few leaves of f^(σ) are wide by chance.
    assert 0.53 * 0.88 < np.median(paper.sigma) / 0.6 < 0.53 * 1.02
    assert 0.95 < np.median(calibrated.sigma) / 0.6 < 1.12


def test_spread_widens_numbers_and_leaves_categories_alone():
    table = mixed()
    paper = LgbmS().fit(table, np.random.default_rng(0)).moments_
    wide = LgbmS(spread=1.4).fit(table, np.random.default_rng(0)).moments_
    for factor, printed in zip(wide.num, paper.num, strict=True):
        np.testing.assert_array_equal(factor.mu, printed.mu)
        np.testing.assert_allclose(factor.sigma, 1.4 * printed.sigma, rtol=1e-6)
    for classes, printed_classes in zip(wide.cat, paper.cat, strict=True):
        np.testing.assert_array_equal(classes.p, printed_classes.p)
    with pytest.raises(UsageError, match="spread must be finite and at least 0"):
        LgbmS(spread=-1.0)


def test_the_bias_is_that_of_the_logarithm_of_a_chi_square():
    assert pytest.approx(-(digamma(0.5) + np.log(2)), abs=1e-4) == LOG_CHI2_BIAS


def test_draws_follow_the_moments():
    table = mixed()
    rule = LgbmS().fit(table, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    draws = [rule.draw(rng) for _ in range(400)]
    hole = np.flatnonzero(~table.num_observed[:, 1])[0]
    row = np.flatnonzero(~table.cat_observed[:, 0])[0]
    numbers = np.array([d.num[hole, 1] for d in draws])
    codes = np.array([d.cat[row, 0] for d in draws])
    mu, sigma = rule.moments_.num[1].mu[0], rule.moments_.num[1].sigma[0]
    # Five standard errors of a mean, a deviation and a frequency of 400 draws.
    assert abs(numbers.mean() - mu) < 5 * sigma / 20
    assert abs(numbers.std() / sigma - 1) < 5 / np.sqrt(800)
    frequencies = np.bincount(codes, minlength=4) / 400
    assert np.abs(frequencies - rule.moments_.cat[0].p[0]).max() < 5 * 0.5 / 20


def test_lgbm_d_fills_with_the_point_predictions_of_lgbm_s():
    table = mixed()
    moments = LgbmS().fit(table, np.random.default_rng(0)).moments_
    rule = LgbmD().fit(table, np.random.default_rng(0))
    filled = rule.draw(np.random.default_rng(1))
    for j, factor in enumerate(moments.num):
        np.testing.assert_array_equal(
            filled.num[~table.num_observed[:, j], j], factor.mu
        )
    for j, classes in enumerate(moments.cat):
        np.testing.assert_array_equal(
            filled.cat[~table.cat_observed[:, j], j], classes.p.argmax(axis=1)
        )


def test_draw_before_fit_says_so():
    with pytest.raises(NotFittedError, match="fit before draw"):
        LgbmS().draw(np.random.default_rng(0))


def test_the_number_of_learned_rows_matters_only_beyond_it():
    table = mixed()
    first, second = np.random.default_rng(0), np.random.default_rng(0)
    whole = LgbmS().fit(table, first).draw(first)
    same = LgbmS(learn_rows=len(table)).fit(table, second).draw(second)
    np.testing.assert_array_equal(whole.num, same.num)
    np.testing.assert_array_equal(whole.cat, same.cat)
    rng = np.random.default_rng(0)
    part = LgbmS(learn_rows=300).fit(table, rng)
    assert (part.draw(rng).num != whole.num).any()
    # Half of the rows know nearly as much: b is a² and noise of 0.3.
    hole = ~table.num_observed[:, 1] & table.num_observed[:, 0]
    among = hole[~table.num_observed[:, 1]]
    error = part.moments_.num[1].mu[among] - table.num[hole, 0] ** 2
    assert np.median(np.abs(error)) < 0.3
