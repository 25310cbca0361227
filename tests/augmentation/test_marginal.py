"""The univariate baselines against their definitions."""

import numpy as np
import pytest

from augmask.augmentation.marginal import Ecdf, Mean, Noise, Zero
from augmask.table.table import Layout, Table

KNOWN = 3000
HOLES = 6000


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = KNOWN + HOLES
    num = rng.gamma(2.0, size=(n, 1))
    cat = rng.choice(4, size=(n, 2), p=[0.1, 0.6, 0.0, 0.3])
    observed = np.ones((n, 3), dtype=bool)
    observed[KNOWN:] = False
    return Table(num, cat, observed, Layout(("x",), ("c", "d"), (4, 4)))


def drawn(rule, table):
    rng = np.random.default_rng(1)
    return rule.fit(table, rng).draw(rng)


def test_zero_reserves_a_code_only_where_categories_are_missing(table):
    filled = drawn(Zero(), table)
    assert (filled.num[KNOWN:] == 0).all()
    assert (filled.cat[KNOWN:] == 4).all()
    assert filled.layout == Layout(("x",), ("c", "d"), (5, 5), reserved=True)
    numbers_missing = table.observed.copy()
    numbers_missing[:, 1:] = True
    other = Table(table.num, table.cat, numbers_missing, table.layout)
    assert drawn(Zero(), other).layout == table.layout


def test_mean_is_mean_and_mode_of_the_observed_cells(table):
    filled = drawn(Mean(), table)
    np.testing.assert_allclose(filled.num[KNOWN:], table.num[:KNOWN].mean(), rtol=1e-6)
    assert (filled.cat[KNOWN:] == 1).all()


def test_noise_has_the_observed_mean_and_deviation(table):
    values = drawn(Noise(), table).num[KNOWN:, 0]
    pool = table.num[:KNOWN, 0]
    # Five standard errors.
    assert abs(values.mean() - pool.mean()) < 5 * pool.std() / np.sqrt(HOLES)
    assert abs(values.std() / pool.std() - 1) < 5 / np.sqrt(2 * HOLES)
    # A Gaussian reaches where a gamma variable cannot.
    assert values.min() < 0


def test_ecdf_repeats_observed_values_at_their_rate(table):
    values = drawn(Ecdf(), table).num[KNOWN:, 0]
    pool = table.num[:KNOWN, 0].astype(np.float32)
    assert np.isin(values.astype(np.float32), pool).all()
    grid = np.quantile(pool, [0.1, 0.5, 0.9])
    below = (values[:, None] <= grid).mean(axis=0)
    np.testing.assert_allclose(below, [0.1, 0.5, 0.9], atol=5 * 0.5 / np.sqrt(HOLES))


@pytest.mark.parametrize("rule", [Noise(), Ecdf()])
def test_categories_follow_the_observed_frequencies(rule, table):
    codes = drawn(rule, table).cat[KNOWN:, 0]
    frequencies = np.bincount(codes, minlength=4) / HOLES
    observed = np.bincount(table.cat[:KNOWN, 0], minlength=4) / KNOWN
    assert frequencies[2] == 0
    np.testing.assert_allclose(frequencies, observed, atol=5 * 0.5 / np.sqrt(HOLES))
