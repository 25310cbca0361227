"""ARF through arfpy: known truth, streams and edges."""

import numpy as np
import pytest
from tests.bench.baselines import known
from tests.bench.baselines.noticed import all_states

from augmask.errors import DataError
from augmask_bench.baselines.arf import ArfSettings, fit
from augmask_bench.peers import why_unusable

pytestmark = pytest.mark.skipif(
    why_unusable("arfpy") != "", reason=why_unusable("arfpy")
)
TINY = ArfSettings(num_trees=3, max_iters=2)


def test_arf_finds_the_known_law():
    table = known.made(missing=0.0)
    forest = fit(table, ArfSettings(num_trees=10, max_iters=3), 0)
    num, cat = forest.sample(3000, 1)
    np.testing.assert_allclose(num.mean(axis=0), table.num.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(num.std(axis=0), 1, atol=0.1)
    assert abs(known.correlation(num) - known.correlation(table.num)) < 0.05
    assert np.abs(known.shares(cat) - known.shares(table.cat)).max() < 0.05
    assert forest.facts["last_accuracy"] < forest.facts["first_accuracy"]


def test_same_seed_same_rows_and_nobody_notices(capsys):
    table = known.made(n=200, missing=0.0)
    before = all_states()
    a, b, c = fit(table, TINY, 0), fit(table, TINY, 0, threads=2), fit(table, TINY, 1)
    rows = [a.sample(70, 5), b.sample(70, 5), a.sample(70, 5)]
    others = [c.sample(70, 5), a.sample(70, 6)]
    assert all_states() == before
    assert capsys.readouterr() == ("", "")
    for num, cat in rows[1:]:
        np.testing.assert_array_equal(num, rows[0][0])
        np.testing.assert_array_equal(cat, rows[0][1])
    for num, _ in others:
        assert (num != rows[0][0]).any()


@pytest.mark.parametrize("columns", [([0, 1], []), ([], [0]), ([1], [])])
def test_tables_of_one_kind(columns):
    table = known.only(known.made(n=60, missing=0.0), *columns)
    num, cat = fit(table, TINY, 0).sample(23, 0)
    assert num.shape == (23, table.layout.n_num)
    assert cat.shape == (23, table.layout.n_cat)
    assert np.isfinite(num).all()
    assert ((cat >= 0) & (cat < 3)).all()


def test_missing_values_are_refused():
    with pytest.raises(DataError, match="ARF needs a complete table"):
        fit(known.made(n=50), TINY, 0)
