"""Draws from moments, and the corners of the (η, λ) square of the paper."""

import numpy as np
import pytest

from augmask.augmentation.boosted import LgbmS
from augmask.augmentation.marginal import Mean
from augmask.augmentation.misspecification import perturb, temper
from augmask.augmentation.moments import (
    CHUNK,
    CatMoments,
    Moments,
    NumMoments,
    codes_from_uniform,
    write_missing,
)
from augmask.errors import UsageError
from augmask.table.table import Layout, Table


def test_codes_of_probability_zero_are_never_drawn():
    # Sums to less than one in float32, and both ends have probability zero.
    p = np.array([[0.0, 0.1, 0.2, 0.3, 0.3999, 0.0]] * 2, dtype=np.float32)
    ends = np.array([0.0, np.nextafter(1.0, 0.0)])
    assert codes_from_uniform(p, ends).tolist() == [1, 4]


def test_codes_have_the_given_probabilities():
    p = np.array([0.2, 0.0, 0.5, 0.3], dtype=np.float32)
    u = (np.arange(1000) + 0.5) / 1000
    codes = codes_from_uniform(np.broadcast_to(p, (1000, 4)), u)
    assert np.bincount(codes, minlength=4).tolist() == [200, 0, 500, 300]


def test_each_value_is_written_to_its_missing_cell():
    observed = np.array([[False, True, False], [True, True, False], [False] * 3])
    table = Table(
        np.full((3, 2), 7.0),
        np.full((3, 1), 1),
        observed,
        Layout(("a", "b"), ("c",), (9,)),
    )
    filled = write_missing(
        table, [np.array([0.1, 0.2]), np.array([0.3])], [np.array([3, 4, 5])]
    )
    a, b = filled.num.T
    assert a.tolist() == [np.float32(0.1), 7.0, np.float32(0.2)]
    assert b.tolist() == [7.0, 7.0, np.float32(0.3)]
    assert filled.cat.ravel().tolist() == [3, 4, 5]


def test_shared_probabilities_give_the_codes_of_repeated_rows():
    rng = np.random.default_rng(0)
    for card in (1, 2, 7):
        p = rng.dirichlet(np.full(card, 0.3)).astype(np.float32)
        p[0] = 0 if card > 1 else 1
        u = np.concatenate([rng.random(CHUNK + 5), [0.0, np.nextafter(1.0, 0.0)]])
        rows = np.broadcast_to(p, (len(u), card))
        np.testing.assert_array_equal(
            codes_from_uniform(p, u), codes_from_uniform(rows, u)
        )


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


def draw_perturbed(fitted, eta, lam, seed=1):
    """Draw from the fitted augmenter with other η and λ; no model is refitted."""
    fitted.eta, fitted.lam = eta, lam
    filled = fitted.draw(np.random.default_rng(seed))
    fitted.eta, fitted.lam = 0.0, 1.0
    return filled


def same(left, right):
    return left.num.tobytes() == right.num.tobytes() and np.array_equal(
        left.cat, right.cat
    )


def test_zero_one_is_lgbm_s(fitted):
    assert same(draw_perturbed(fitted, 0.0, 1.0), fitted.draw(np.random.default_rng(1)))


def test_zero_zero_is_the_point_prediction(table, fitted):
    filled = draw_perturbed(fitted, 0.0, 0.0)
    assert same(filled, draw_perturbed(fitted, 0.0, 0.0, seed=2))
    for j, factor in enumerate(fitted.moments_.num):
        missing = ~table.num_observed[:, j]
        np.testing.assert_array_equal(filled.num[missing, j], factor.mu)
    missing = ~table.cat_observed[:, 0]
    best = fitted.moments_.cat[0].p.argmax(axis=1)
    np.testing.assert_array_equal(filled.cat[missing, 0], best)


def test_one_zero_is_mean_and_mode(table, fitted):
    rng = np.random.default_rng(0)
    mean = Mean().fit(table, rng).draw(rng)
    assert same(draw_perturbed(fitted, 1.0, 0.0), mean)


def test_between_the_corners_the_formulas_of_the_paper_hold(table):
    p = np.array([[0.7, 0.2, 0.1]], dtype=np.float32)
    moments = Moments(
        (
            NumMoments(np.float32([4.0]), np.float32([0.5])),
            NumMoments(np.float32([0.0]), np.float32([0.1])),
        ),
        (CatMoments(p),),
    )
    perturbed = perturb(table, moments, eta=0.25, lam=1.5)
    mean = table.num[table.observed[:, 0], 0].mean()
    assert perturbed.num[0].mu[0] == pytest.approx(0.75 * 4.0 + 0.25 * mean, rel=1e-5)
    assert perturbed.num[0].sigma[0] == pytest.approx(0.75)
    codes = table.cat[table.observed[:, 2], 0]
    q = 0.75 * p[0] + 0.25 * np.bincount(codes, minlength=3) / len(codes)
    expected = q ** (1 / 1.5) / (q ** (1 / 1.5)).sum()
    np.testing.assert_allclose(perturbed.cat[0].p[0], expected, rtol=1e-5)


def test_extreme_lambda_still_gives_probabilities():
    q = np.array([[0.5, 0.3, 0.2, 0.0]], dtype=np.float32)
    np.testing.assert_allclose(temper(q, 1e-3), [[1, 0, 0, 0]], atol=1e-6)
    # Towards uniform over the codes with positive probability.
    np.testing.assert_allclose(temper(q, 1e6), [[1 / 3, 1 / 3, 1 / 3, 0]], atol=1e-5)


@pytest.mark.parametrize(
    ("eta", "lam"), [(-0.1, 1), (1.1, 1), (0, -1), (0, np.inf), (np.nan, 1)]
)
def test_values_outside_the_square_are_refused(table, fitted, eta, lam):
    with pytest.raises(UsageError, match=r"eta|lam"):
        perturb(table, fitted.moments_, eta, lam)
