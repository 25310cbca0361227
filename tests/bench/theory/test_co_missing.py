"""P_diag, Δ and the bounds between them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import augmask as am
from augmask.augmentation.boosted import LgbmS
from augmask.augmentation.moments import Moments, NumMoments
from augmask.errors import UsageError
from augmask.table.table import Layout, Table
from augmask_bench.theory.co_missing import co_missing, root, split
from augmask_bench.theory.reconstruct import Denoiser, inspect_model
from augmask_bench.theory.sensitivity import sensitivity


def random_row(rng, column):
    """M and C of a row: any Jacobian, any covariance with white diagonal blocks."""
    size = len(column)
    leaning = rng.normal(size=(rng.integers(1, 6), size)) * rng.exponential(size=size)
    factor = rng.normal(size=(size, rng.integers(1, 2 * size)))
    covariance = factor @ factor.T + 1e-3 * np.eye(size)
    white = np.zeros_like(covariance)
    for j in np.unique(column):
        own = np.ix_(column == j, column == j)
        white[own] = root(covariance[own], inverse=True)
    return leaning.T @ leaning, white @ covariance @ white


def test_no_row_exceeds_its_bound():
    rng = np.random.default_rng(0)
    closest = 0.0
    for _ in range(400):
        column = np.repeat(np.arange(4), rng.integers(1, 4, size=4))
        m, c = random_row(rng, column)
        found = split(m, c, column)
        # With white diagonal blocks of C, tr(ΓΣ) is Σ M ∘ C over all blocks.
        assert found.p_diag + found.delta == pytest.approx((m * c).sum())
        assert found.p_diag + found.delta >= 0
        ratio = abs(found.delta) / found.p_diag
        bound = found.parts.max()
        assert ratio <= bound * (1 + 1e-9)
        assert found.coupling.max() <= 1
        assert found.rho.max() <= 1
        closest = max(closest, ratio / bound)
    assert closest > 0.5


def test_scalars_follow_the_formulas_of_the_paper():
    rng = np.random.default_rng(1)
    jacobian = rng.normal(size=(5, 3))
    gamma = jacobian.T @ jacobian
    factor = rng.normal(size=(3, 3))
    sigma = factor @ factor.T
    sd = np.sqrt(np.diag(sigma))
    found = split(gamma * np.outer(sd, sd), sigma / np.outer(sd, sd), np.arange(3))
    assert found.p_diag == pytest.approx((np.diag(gamma) * sd**2).sum())
    upper = np.triu_indices(3, 1)
    assert found.delta == pytest.approx(2 * (gamma * sigma)[upper].sum())
    size = np.sqrt(np.outer(np.diag(gamma), np.diag(gamma)))
    np.testing.assert_allclose(found.coupling[upper], (np.abs(gamma) / size)[upper])
    rho = np.abs(sigma) / np.outer(sd, sd)
    np.testing.assert_allclose(found.rho[upper], rho[upper])


def test_two_copies_read_alike_reach_the_bound():
    found = split(np.ones((2, 2)), np.ones((2, 2)), np.arange(2))
    assert abs(found.delta) / found.p_diag == found.parts.max() == 1


def test_the_papers_average_is_no_bound_for_the_mean_of_the_ratios():
    """n pairs of copies; pattern i misses pair i, and one cell of every other pair.

    q is 2 / (n + 1). In pattern i the pair weighs much and the others nearly nothing,
    so |Δ| / P_diag is near 1 in every row. The mean of the rows' bounds is not fooled.
    """
    n = 5
    ratios, bounds, parts, missing = [], [], np.zeros(2 * n), np.zeros(2 * n)
    for i in range(n):
        for side in (0, 1):
            together = [2 * k + side for k in range(n) if k != i] + [2 * i, 2 * i + 1]
            weight = np.where(np.array(together) // 2 == i, 1.0, 0.1)
            same = np.equal.outer(np.array(together) // 2, np.array(together) // 2)
            m = np.where(same, np.outer(weight, weight), 0.0)
            found = split(m, same.astype(float), np.arange(len(together)))
            ratios.append(abs(found.delta) / found.p_diag)
            bounds.append(found.parts.max())
            parts[together] += found.parts
            missing[together] += 1
    averaged = parts / missing
    np.testing.assert_allclose(averaged, 2 / (n + 1))
    assert np.mean(ratios) > 0.9 > 2 * averaged.max()
    assert np.mean(ratios) <= np.mean(bounds)


# -- on tables -------------------------------------------------------------------


def gaussian_table(covariance, n, together, rng):
    """Rows, half of which miss the columns `together`, and the true moments."""
    d = len(covariance)
    x = rng.multivariate_normal(np.zeros(d), covariance, n)
    observed = np.ones((n, d), dtype=bool)
    observed[np.ix_(rng.random(n) < 0.5, together)] = False
    layout = Layout(tuple("abcdef"[:d]), (), ())
    table = Table(x, np.zeros((n, 0), dtype=int), observed, layout)
    rest = [j for j in range(d) if j not in together]
    covariance = np.asarray(covariance)
    slope = np.linalg.solve(
        covariance[np.ix_(rest, rest)], covariance[np.ix_(rest, together)]
    )
    given = (
        covariance[np.ix_(together, together)]
        - slope.T @ covariance[np.ix_(rest, together)]
    )
    missing = ~observed[:, together[0]]
    mu = (x[missing][:, rest] @ slope).astype(np.float32)
    empty = NumMoments(np.zeros(0, np.float32), np.zeros(0, np.float32))
    factors = [empty] * d
    for i, j in enumerate(together):
        sigma = np.full(len(mu), np.sqrt(given[i, i]), np.float32)
        factors[j] = NumMoments(mu[:, i], sigma)
    return table, Moments(tuple(factors), ()), given


def linear(matrix):
    weight = torch.tensor(matrix, dtype=torch.float32)
    return Denoiser(lambda *_: lambda x: x @ weight.T)


def test_of_gaussians_and_a_linear_denoiser_all_is_known():
    covariance = [
        [1, 0.8, 0.3, 0],
        [0.8, 1, 0.3, 0],
        [0.3, 0.3, 1, 0.4],
        [0, 0, 0.4, 1],
    ]
    rng = np.random.default_rng(0)
    table, moments, given = gaussian_table(covariance, 20_000, [0, 1], rng)
    matrix = rng.normal(size=(4, 4))
    gamma = matrix[2:, :2].T @ matrix[2:, :2]
    found = co_missing(linear(matrix), table, moments, rng=rng, rows=50, draws=1)
    assert found.p_diag == pytest.approx((np.diag(gamma) * np.diag(given)).sum(), 1e-3)
    assert found.delta == pytest.approx(2 * gamma[0, 1] * given[0, 1], rel=0.03)
    rho = given[0, 1] / np.sqrt(given[0, 0] * given[1, 1])
    coupling = abs(gamma[0, 1]) / np.sqrt(gamma[0, 0] * gamma[1, 1])
    assert found.worst_case == pytest.approx(rho, rel=0.03)
    assert found.bound == pytest.approx(rho * coupling, rel=0.03)
    assert found.columns["partner"].tolist() in (["a", "b"], ["b", "a"])
    alone = sensitivity(linear(matrix), table, moments, rng=rng, rows=50, draws=1)
    assert alone.penalty == pytest.approx(found.p_diag, rel=1e-5)


def test_a_joint_augmenter_is_advised_only_if_the_denoiser_combines_columns():
    covariance = [[1, 0.9, 0.2], [0.9, 1, 0.2], [0.2, 0.2, 1]]
    rng = np.random.default_rng(0)
    table, moments, _ = gaussian_table(covariance, 4000, [0, 1], rng)
    options = {"rng": rng, "rows": 40, "draws": 1}
    both, one = np.zeros((2, 3, 3))
    both[2], one[2] = (0.5, 0.5, 0.1), (0.5, 0.0, 0.1)
    found = co_missing(linear(both), table, moments, **options)
    assert found.augmenter == "lgbm-chain"
    assert "lgbm-chain" in found.advice
    found = co_missing(linear(one), table, moments, **options)
    assert found.augmenter is None
    assert found.worst_case > 0.8
    assert found.bound == found.ratio == 0
    assert "almost nothing" in found.advice


def test_columns_never_seen_together_count_as_one():
    rng = np.random.default_rng(0)
    table, _, _ = gaussian_table(np.eye(3), 300, [0, 1], rng)
    observed = table.observed.copy()
    kept = observed.all(axis=1)
    observed[kept, 0] = np.arange(kept.sum()) % 2 == 0
    observed[kept, 1] = ~observed[kept, 0]
    apart = Table(table.num, table.cat, observed, table.layout)
    factors = tuple(
        NumMoments(np.zeros(k, np.float32), np.ones(k, np.float32))
        for k in (~observed).sum(axis=0)
    )
    reader = linear(np.ones((3, 3)))
    found = co_missing(reader, apart, Moments(factors, ()), rng=rng, draws=1, rows=300)
    # Half of the rows miss both.
    share = (~observed[:, :2]).all(axis=1).mean()
    assert found.bound == pytest.approx(share)
    assert found.ratio < 0.1 * found.bound


def test_mixed_columns_of_a_fitted_model(make_frame):
    frame = make_frame(missing=0.4)
    options = {"steps": 60, "width": 32, "depth": 2}
    model = am.AugMask(augmenter="ecdf", preset="fast", options=options).fit(frame)
    rng = np.random.default_rng(0)
    parts = inspect_model(model, frame, LgbmS(n_jobs=1), rng=rng)
    found = co_missing(*parts, rng=rng, rows=60, draws=4)
    assert 0 < found.ratio <= found.bound <= found.worst_case
    assert found.p_diag > 0
    assert set(found.columns["column"]) == set("abcd")
    partners = found.columns.set_index("column")["partner"]
    assert (partners["a"], partners["b"]) == ("b", "a")
    with pytest.raises(UsageError, match="draws must be at least 1"):
        co_missing(*parts, rng=rng, draws=0)
