"""The closed forms of the toy against rows that were drawn from it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from augmask.errors import UsageError
from augmask_bench.theory.toy import (
    Toy,
    full_is_better,
    mismatch,
    mse_full,
    mse_mask,
    simulate,
    tolerance,
)

GRID = [
    Toy(rho, d, p, b, tau, sigma_o, sigma_m)
    for rho, d, p, b, tau, (sigma_o, sigma_m) in product(
        (-2.0, 0.3, 1.0),
        (2, 4, 20),
        (0.1, 0.5, 0.9),
        (0.0, 2.0),
        (0.0, 1.5),
        ((1.0, 1.0), (0.6, 1.4)),
    )
]
N = 20_000
# About 650 comparisons are made; a standard normal exceeds 4.5 once in 150,000.
Z = 4.5


def z_scores(toy, seed):
    """How many standard errors simulation lies above each formula, and the errors."""
    errors = simulate(toy, N, np.random.default_rng(seed))
    gap = errors.full - errors.mask
    expected = (mse_mask(toy), mse_full(toy), mse_full(toy) - mse_mask(toy))
    found = (errors.mask, errors.full, gap)
    return [
        (values.mean() - value) / (values.std(ddof=1) / np.sqrt(N))
        for values, value in zip(found, expected, strict=True)
    ], gap


def test_closed_forms_and_crossover_match_simulation_over_the_grid():
    scores, decided = [], {True: 0, False: 0}
    for seed, toy in enumerate(GRID):
        found, gap = z_scores(toy, seed)
        scores.append(found)
        error = gap.std(ddof=1) / np.sqrt(N)
        if abs(mse_full(toy) - mse_mask(toy)) > Z * error:
            assert (gap.mean() < 0) == full_is_better(toy), toy
            decided[full_is_better(toy)] += 1
    scores = np.array(scores)
    assert np.abs(scores).max() < Z
    # The scores are standard normal, so the errors are neither missed nor inflated.
    assert scores.std() == pytest.approx(1.0, abs=0.12)
    assert min(decided.values()) > 40
    assert sum(decided.values()) > 0.8 * len(GRID)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda toy: mse_full(replace(toy, p=1.0)),
        lambda toy: mse_full(replace(toy, tau=0.0)),
        lambda toy: mse_full(toy) * (toy.d - 1 + toy.rho**2) / toy.d,
        lambda toy: 1.03 * mse_full(toy),
    ],
    ids=["no-p", "no-tau", "wrong-K", "three-percent"],
)
def test_the_bound_would_notice_a_wrong_formula(wrong):
    toy = Toy(rho=2.0, d=4, p=0.5, b=1.0, tau=1.5)
    errors = simulate(toy, 100_000, np.random.default_rng(0)).full
    error = errors.std(ddof=1) / np.sqrt(len(errors))
    assert abs(errors.mean() - mse_full(toy)) < Z * error
    assert abs(errors.mean() - wrong(toy)) > Z * error


@pytest.mark.parametrize(
    ("rho", "d", "sigma_m"), [(1.0, 5, 1.0), (-2.0, 3, 0.7), (0.2, 30, 1.2)]
)
def test_the_crossover_is_where_the_errors_are_equal(rho, d, sigma_m):
    toy = Toy(rho, d, p=0.4, sigma_m=sigma_m)
    toy = replace(toy, b=np.sqrt(tolerance(toy) / toy.p))
    assert mismatch(toy) == pytest.approx(tolerance(toy))
    assert mse_full(toy) == pytest.approx(mse_mask(toy))
    assert full_is_better(replace(toy, b=0.99 * toy.b))
    assert not full_is_better(replace(toy, b=1.01 * toy.b))


def test_a_negative_tolerance_leaves_augfull_no_chance():
    toy = Toy(rho=1.0, d=5, p=0.0, sigma_o=0.5, sigma_m=1.0)
    assert tolerance(toy) < 0
    assert not full_is_better(toy)
    assert mse_full(toy) > mse_mask(toy)


def test_at_tolerance_zero_perfect_filling_draws_level():
    """The paper says AugMask is strictly better there; it is not."""
    toy = Toy(rho=1.0, d=2, p=0.5, sigma_o=1.0, sigma_m=np.sqrt(3.0))
    assert tolerance(toy) == pytest.approx(0.0, abs=1e-12)
    assert mse_full(toy) == pytest.approx(mse_mask(toy), rel=1e-12)


def test_without_coupling_both_are_the_same_estimate():
    toy = Toy(rho=0.0, d=3, p=0.5, b=5.0)
    errors = simulate(toy, 100, np.random.default_rng(0))
    np.testing.assert_allclose(errors.full, errors.mask)
    assert not full_is_better(toy)


@pytest.mark.parametrize(
    "change", [{"d": 1}, {"p": 1.5}, {"tau": -1.0}, {"rho": np.nan}, {"p": np.nan}]
)
def test_invalid_settings_are_refused(change):
    with pytest.raises(UsageError, match="d must be at least 2"):
        replace(Toy(rho=1.0, d=3, p=0.5), **change)
