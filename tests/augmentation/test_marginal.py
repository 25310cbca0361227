"""The univariate baselines against their definitions."""

import numpy as np
import pytest

from augmask.augmentation.marginal import Ecdf, Mean, Noise, Zero
from augmask.table.table import Layout, Table

KNOWN = 3000
MISSING = 6000


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = KNOWN + MISSING
    num = rng.gamma(2.0, size=(n, 1))
    cat = rng.choice(4, size=(n, 2), p=[0.1, 0.6, 0.0, 0.3])
    observed = np.ones((n, 3), dtype=bool)
    observed[KNOWN:] = False
    return Table(num, cat, observed, Layout(("x",), ("c", "d"), (4, 4)))


def fill(augmenter, table):
    rng = np.random.default_rng(1)
    return augmenter.fit(table, rng).draw(rng)


def test_zero_reserves_a_code_only_where_categories_are_missing(table):
    filled = fill(Zero(), table)
    assert (filled.num[KNOWN:] == 0).all()
    assert (filled.cat[KNOWN:] == 4).all()
    assert filled.layout == Layout(("x",), ("c", "d"), (5, 5), reserved=True)
    numbers_missing = table.observed.copy()
    numbers_missing[:, 1:] = True
    other = Table(table.num, table.cat, numbers_missing, table.layout)
    assert fill(Zero(), other).layout == table.layout


def test_mean_is_mean_and_mode_of_the_observed_cells(table):
    filled = fill(Mean(), table)
    np.testing.assert_allclose(filled.num[KNOWN:], table.num[:KNOWN].mean(), rtol=1e-6)
    assert (filled.cat[KNOWN:] == 1).all()


def test_noise_has_the_observed_mean_and_deviation(table):
    values = fill(Noise(), table).num[KNOWN:, 0]
    observed = table.num[:KNOWN, 0]
    # Five standard errors.
    assert abs(values.mean() - observed.mean()) < 5 * observed.std() / np.sqrt(MISSING)
    assert abs(values.std() / observed.std() - 1) < 5 / np.sqrt(2 * MISSING)
    # A Gaussian reaches where a gamma variable cannot.
    assert values.min() < 0


def test_ecdf_repeats_observed_values_at_their_rate(table):
    values = fill(Ecdf(), table).num[KNOWN:, 0]
    observed = table.num[:KNOWN, 0].astype(np.float32)
    assert np.isin(values.astype(np.float32), observed).all()
    grid = np.quantile(observed, [0.1, 0.5, 0.9])
    below = (values[:, None] <= grid).mean(axis=0)
    np.testing.assert_allclose(below, [0.1, 0.5, 0.9], atol=5 * 0.5 / np.sqrt(MISSING))


@pytest.mark.parametrize("augmenter", [Noise(), Ecdf()])
def test_categories_follow_the_observed_frequencies(augmenter, table):
    codes = fill(augmenter, table).cat[KNOWN:, 0]
    frequencies = np.bincount(codes, minlength=4) / MISSING
    observed = np.bincount(table.cat[:KNOWN, 0], minlength=4) / KNOWN
    assert frequencies[2] == 0
    np.testing.assert_allclose(frequencies, observed, atol=5 * 0.5 / np.sqrt(MISSING))
