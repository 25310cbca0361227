from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from scipy.special import ndtri
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from augmask.table.scale import QuantileNormal, _between, n_quantiles


def columns():
    rng = np.random.default_rng(3)
    return {
        "normal": rng.normal(50, 9, 4000),
        "skewed": rng.lognormal(2, 1.5, 997),
        "zero-inflated": np.where(rng.random(3000) < 0.7, 0, rng.gamma(2, 900, 3000)),
        "ties": rng.integers(0, 12, 800).astype(float),
        "few": rng.normal(size=7),
    }


@pytest.mark.parametrize("name", columns())
def test_equals_sklearn(name):
    x = columns()[name]
    quantile = QuantileTransformer(
        output_distribution="normal", n_quantiles=n_quantiles(len(x)), subsample=None
    )
    standard = StandardScaler()
    expected = standard.fit_transform(quantile.fit_transform(x[:, None]))[:, 0]

    scaler = QuantileNormal.fit(x)
    np.testing.assert_allclose(scaler.transform(x), expected, atol=1e-10)
    z = np.concatenate([np.linspace(-1, 1, 101) * 4.9, [-30.0, 30.0]])
    z = (z - scaler.mean) / scaler.scale
    back = standard.inverse_transform(z[:, None])
    np.testing.assert_allclose(
        scaler.inverse(z),
        quantile.inverse_transform(back)[:, 0],
        rtol=1e-9,
        atol=1e-9 * np.ptp(x),
    )


def test_scores_are_standard_and_tails_stay_in_range():
    x = columns()["skewed"]
    scaler = QuantileNormal.fit(x)
    z = scaler.transform(x)
    assert abs(z.mean()) < 1e-12
    assert abs(z.std() - 1) < 1e-12
    extreme = scaler.inverse(np.array([-1e6, -6.0, 6.0, 1e6]))
    assert extreme.min() >= x.min()
    assert extreme.max() <= x.max()


def test_distinct_values_next_to_the_extremes_stay_distinct():
    # Clipping at 1e-7 would merge 0, 1 and 2.
    x = np.array([0.0, 1.0, 2.0, 10.0**9, 2.0**31 - 1, 2.0**31 - 2])
    scaler = QuantileNormal.fit(x)
    np.testing.assert_array_equal(np.rint(scaler.inverse(scaler.transform(x))), x)


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_the_unit_of_a_column_does_not_matter(size):
    x = columns()["normal"]
    expected = QuantileNormal.fit(x).transform(x)
    scaler = QuantileNormal.fit(x * size)
    np.testing.assert_allclose(scaler.transform(x * size), expected, atol=1e-6)


def test_arrays_round_trip_and_damaged_ones_are_refused():
    scaler = QuantileNormal.fit(columns()["ties"])
    again = QuantileNormal.from_arrays(scaler.arrays())
    x = np.linspace(-1, 13, 50)
    np.testing.assert_array_equal(again.transform(x), scaler.transform(x))
    damaged = scaler.arrays()
    damaged["quantiles"] = damaged["quantiles"][::-1]
    with pytest.raises(ValueError, match="ascend"):
        QuantileNormal.from_arrays(damaged)


def test_dequantized_ties_are_normal_and_decode_to_the_same_values():
    rng = np.random.default_rng(0)
    values = np.where(rng.random(5000) < 0.7, 0.0, rng.poisson(3.0, 5000))
    scaler = QuantileNormal.fit(values, np.random.default_rng(1))
    z = scaler.transform(values, np.random.default_rng(1))
    # Seven zeros in ten, and yet every quantile is that of a normal distribution.
    for p in (0.05, 0.3, 0.6, 0.9):
        assert np.quantile(z, p) == pytest.approx(NormalDist().inv_cdf(p), abs=0.06)
    np.testing.assert_array_equal(np.round(scaler.inverse(z)), values)
    again = scaler.transform(values, np.random.default_rng(1))
    np.testing.assert_array_equal(z, again)


@pytest.mark.parametrize("n", [1, 2, 10, 333, 1000])
def test_the_inverse_interpolates_as_numpy_does(n):
    rng = np.random.default_rng(n)
    q = np.sort(np.round(rng.normal(size=n) * 10.0 ** rng.integers(-5, 5), 2))
    points = np.linspace(0, 1, n)
    near = np.concatenate([points, np.nextafter(points, 0), np.nextafter(points, 1)])
    u = np.clip(np.concatenate([near, rng.random(10_000), [0.0, 1.0]]), 0, 1)
    np.testing.assert_array_equal(_between(u, q), np.interp(u, points, q))


@pytest.mark.parametrize("n", [2_000, 30_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_refined_tails_keep_mean_and_variance(n, sign):
    payments = sign * np.random.default_rng(0).lognormal(7, 1.8, n)
    normal = ndtri((np.arange(1_000_000) + 0.5) / 1_000_000)
    refined = QuantileNormal.fit(payments, np.random.default_rng(2)).inverse(normal)
    assert refined.mean() == pytest.approx(payments.mean(), rel=0.03)
    assert refined.std() == pytest.approx(payments.std(), rel=0.1)
    # As in the paper, without refined tails.
    published = QuantileNormal.fit(payments).inverse(normal)
    assert published.std() > 1.15 * payments.std()


def test_refined_tails_are_stored_and_inverted():
    values = np.random.default_rng(0).lognormal(7, 1.8, 3_000)
    scaler = QuantileNormal.fit(values, np.random.default_rng(1))
    z = scaler.transform(values, np.random.default_rng(1))
    np.testing.assert_allclose(scaler.inverse(z), values, rtol=1e-9)
    again = QuantileNormal.from_arrays(scaler.arrays())
    np.testing.assert_array_equal(again.inverse(z), scaler.inverse(z))
    damaged = scaler.arrays()
    damaged["tails"] = damaged["tails"][:, ::-1]
    with pytest.raises(ValueError, match="ascend"):
        QuantileNormal.from_arrays(damaged)
    damaged["tails"] = np.zeros(3)
    with pytest.raises(ValueError, match="cannot be a scaling"):
        QuantileNormal.from_arrays(damaged)


@pytest.mark.parametrize("unit", [5e-324, 1e-310, 2.3e-308])
@pytest.mark.parametrize("dequantize", [None, 0])
def test_denormal_numbers_have_scores_and_come_back(unit, dequantize):
    values = np.append(np.arange(50) * unit, [0.0] * 5)
    rng = None if dequantize is None else np.random.default_rng(dequantize)
    scaler = QuantileNormal.fit(values, rng)
    scores = scaler.transform(values, rng)
    assert np.isfinite(scores).all()
    assert len(np.unique(scores)) > 40
    mixed = QuantileNormal.fit(np.append(values, np.linspace(0, 1, 50)))
    assert np.isfinite(mixed.transform(values)).all()
    # The extremes are exact, as in any other column.
    assert scaler.inverse(scores).min() == 0
    assert scaler.inverse(scores).max() == values.max()


def test_expected_extremes_do_not_hide_a_correlation():
    """Of 200 pairs, scores of 5.2 at the four ends would make a large difference."""
    rng = np.random.default_rng(0)
    found = {True: [], False: []}
    for _ in range(20):
        pairs = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], 200)
        for expected, values in found.items():
            scores = [
                QuantileNormal.fit(x, rng, expected).transform(x, rng) for x in pairs.T
            ]
            values.append(np.corrcoef(scores)[0, 1])
    assert np.mean(found[True]) == pytest.approx(0.9, abs=0.015)
    assert np.mean(found[False]) < 0.88


def test_expected_extremes_lie_where_those_of_normal_numbers_do():
    values = np.arange(99.0)
    scaler = QuantileNormal.fit(values, np.random.default_rng(0), expected=True)
    scores = scaler.transform(values)
    raw = scores * scaler.scale + scaler.mean
    np.testing.assert_allclose(raw[[0, -1]], [-2.3263, 2.3263], atol=1e-3)
    np.testing.assert_allclose(scaler.inverse(scores), values, atol=1e-6)
    np.testing.assert_array_equal(scaler.inverse([-9.0, 9.0]), [0.0, 98.0])
    twin = QuantileNormal.from_arrays(scaler.arrays())
    np.testing.assert_array_equal(twin.inverse(scores), scaler.inverse(scores))
    damaged = scaler.arrays()
    damaged["moments"][2] = 0.5
    with pytest.raises(ValueError, match="below a half"):
        QuantileNormal.from_arrays(damaged)
