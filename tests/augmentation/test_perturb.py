"""The corners of the (η, λ) square are the rules that the paper says they are."""

import numpy as np
import pytest

from augmask.augmentation.boosted import LgbmS
from augmask.augmentation.marginal import Mean
from augmask.augmentation.moments import CatMoments, Moments, NumMoments
from augmask.augmentation.perturb import perturb, temper
from augmask.errors import UsageError
from augmask.table.table import Layout, Table


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    a = rng.normal(size=400)
    num = np.stack([a, 0.7 * a + rng.normal(size=400) + 2], axis=1)
    cat = np.select([a < -1, a < 0.4], [0, 1], 2)[:, None]
    observed = rng.random((400, 3)) > 0.4
    return Table(num, cat, observed, Layout(("a", "b"), ("c",), (3,)))


@pytest.fixture(scope="module")
def fitted(table):
    return LgbmS().fit(table, np.random.default_rng(0))


def bent(fitted, eta, lam, seed=1):
    """A draw of the one fitted rule, bent; no model is fitted again."""
    fitted.eta, fitted.lam = eta, lam
    filled = fitted.draw(np.random.default_rng(seed))
    fitted.eta, fitted.lam = 0.0, 1.0
    return filled


def same(left, right):
    return left.num.tobytes() == right.num.tobytes() and np.array_equal(
        left.cat, right.cat
    )


def test_zero_one_is_lgbm_s(fitted):
    assert same(bent(fitted, 0.0, 1.0), fitted.draw(np.random.default_rng(1)))


def test_zero_zero_is_the_point_prediction(table, fitted):
    filled = bent(fitted, 0.0, 0.0)
    assert same(filled, bent(fitted, 0.0, 0.0, seed=2))
    for j, factor in enumerate(fitted.moments_.num):
        holes = ~table.num_observed[:, j]
        np.testing.assert_array_equal(filled.num[holes, j], factor.mu)
    holes = ~table.cat_observed[:, 0]
    best = fitted.moments_.cat[0].p.argmax(axis=1)
    np.testing.assert_array_equal(filled.cat[holes, 0], best)


def test_one_zero_is_mean_and_mode(table, fitted):
    rng = np.random.default_rng(0)
    mean = Mean().fit(table, rng).draw(rng)
    assert same(bent(fitted, 1.0, 0.0), mean)


def test_between_the_corners_the_formulas_hold(table):
    p = np.array([[0.7, 0.2, 0.1]], dtype=np.float32)
    moments = Moments(
        (
            NumMoments(np.float32([4.0]), np.float32([0.5])),
            NumMoments(np.float32([0.0]), np.float32([0.1])),
        ),
        (CatMoments(p),),
    )
    got = perturb(table, moments, eta=0.25, lam=1.5)
    mean = table.num[table.observed[:, 0], 0].mean()
    assert got.num[0].mu[0] == pytest.approx(0.75 * 4.0 + 0.25 * mean, rel=1e-5)
    assert got.num[0].sigma[0] == pytest.approx(0.75)
    known = table.cat[table.observed[:, 2], 0]
    q = 0.75 * p[0] + 0.25 * np.bincount(known, minlength=3) / len(known)
    expected = q ** (1 / 1.5) / (q ** (1 / 1.5)).sum()
    np.testing.assert_allclose(got.cat[0].p[0], expected, rtol=1e-5)


def test_small_and_large_spread_stay_probabilities():
    q = np.array([[0.5, 0.3, 0.2, 0.0]], dtype=np.float32)
    np.testing.assert_allclose(temper(q, 1e-3), [[1, 0, 0, 0]], atol=1e-6)
    # Towards uniform over what is possible at all.
    np.testing.assert_allclose(temper(q, 1e6), [[1 / 3, 1 / 3, 1 / 3, 0]], atol=1e-5)


@pytest.mark.parametrize(
    ("eta", "lam"), [(-0.1, 1), (1.1, 1), (0, -1), (0, np.inf), (np.nan, 1)]
)
def test_values_outside_the_square_are_refused(table, fitted, eta, lam):
    with pytest.raises(UsageError, match=r"eta|lam"):
        perturb(table, fitted.moments_, eta, lam)
