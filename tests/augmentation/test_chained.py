"""A chain restores the dependence of co-missing cells; MICE is scikit-learn's."""

import numpy as np
import pytest

from augmask.augmentation.boosted import CatModel, LgbmS, NumModel
from augmask.augmentation.chained import LgbmChain, Mice, run_chain
from augmask.table.table import Layout, Table


@pytest.fixture(scope="module")
def twins():
    """Two columns of correlation .86 and a category, missing in the same rows."""
    rng = np.random.default_rng(0)
    n = 1500
    z = rng.normal(size=n)
    num = z[:, None] + 0.4 * rng.normal(size=(n, 2))
    weak = 0.3 * z + rng.normal(size=n)
    sign = (z + 0.3 * rng.normal(size=n) > 0).astype(int)
    observed = np.ones((n, 4), dtype=bool)
    together = rng.random(n) < 0.4
    observed[np.ix_(together, [0, 1, 3])] = False
    layout = Layout(("a", "b", "weak"), ("sign",), (2,))
    table = Table(np.column_stack([num, weak]), sign[:, None], observed, layout)
    return table, together


def agreement(table, rows):
    a, b, sign = table.num[rows, 0], table.num[rows, 1], table.cat[rows, 0]
    return np.corrcoef(a, b)[0, 1], np.corrcoef(a, sign)[0, 1]


def test_a_chain_restores_the_dependence_of_co_missing_cells(twins):
    table, together = twins
    truth = np.array(agreement(table, together))
    rng = np.random.default_rng(1)
    independent = LgbmS().fit(table, rng).draw(rng)
    chain = LgbmChain().fit(table, rng)
    # Far below the truth, because factors know each other only through `weak`.
    assert (np.array(agreement(independent, together)) < 0.5 * truth).all()
    first, second = chain.draw(rng), chain.draw(rng)
    for filled in (first, second):
        assert np.abs(np.array(agreement(filled, together)) - truth).max() < 0.15
    # Two draws are two chains, not one state read twice.
    one, two = first.num[together, 0], second.num[together, 0]
    assert np.corrcoef(one, two)[0, 1] < 0.6


def test_a_sweep_uses_the_newest_values_of_the_other_columns():
    x = np.array([[1.0, 2.0]], dtype=np.float32)
    observed_nowhere = np.zeros((1, 2), dtype=bool)

    class Echo(NumModel):
        """Predicts the other column exactly."""

        def predict(self, u):
            fixed = NumModel(0.0, -np.inf).predict(u)
            fixed.mu[:] = u[:, 0]
            return fixed

    models = {0: Echo(0.0, 0.0), 1: Echo(0.0, 0.0)}
    # A parallel update would swap the two values.
    assert run_chain(x, observed_nowhere, models, 1, seed=0).tolist() == [[2.0, 2.0]]
    assert x.tolist() == [[1.0, 2.0]]


def test_a_sweep_leaves_observed_cells_unchanged():
    x = np.array([[5.0, 1.0], [6.0, 0.0]], dtype=np.float32)
    observed = np.array([[True, False], [False, True]])
    certain = CatModel(np.float32([0.0, 0.0, 1.0]), np.array([2]), 3)
    models = {0: NumModel(9.0, -np.inf), 1: certain}
    result = run_chain(x, observed, models, 1, seed=0)
    assert result[0, 0] == 5.0
    assert result[1].tolist() == [9.0, 0.0]


def test_mice_recovers_a_linear_relation_and_rounds_codes():
    rng = np.random.default_rng(0)
    n = 500
    a = rng.normal(size=n)
    num = np.stack([a, 2 * a + 0.01 * rng.normal(size=n)], axis=1)
    code = np.clip(np.rint(1.5 + a), 0, 3).astype(int)
    observed = np.ones((n, 3), dtype=bool)
    observed[:100, 1] = False
    observed[100:200, 2] = False
    table = Table(num, code[:, None], observed, Layout(("a", "b"), ("c",), (4,)))
    filled = Mice().fit(table, rng).draw(rng)
    np.testing.assert_allclose(filled.num[:100, 1], num[:100, 1], atol=0.1)
    off = np.abs(filled.cat[100:200, 0] - code[100:200])
    assert off.max() <= 1
    assert (off == 0).mean() > 0.6
