"""ForestDiff through ForestDiffusion: its encoding, known truth, streams and edges."""

import numpy as np
import pytest
from tests.bench.baselines import known
from tests.bench.baselines.noticed import all_states

from augmask.errors import DataError
from augmask.table.table import Layout, Table
from augmask_bench.baselines.forest import ForestSettings, decoded, encoded, fit
from augmask_bench.peers import why_unusable

here = pytest.mark.skipif(
    why_unusable("ForestDiffusion") != "", reason=why_unusable("ForestDiffusion")
)
TINY = ForestSettings(n_t=3, duplicate_K=1, n_estimators=3)


def small():
    layout = Layout(("x",), ("two", "four"), (2, 4))
    num = np.array([[1.5], [-2.0], [7.0]])
    cat = np.array([[0, 3], [1, 0], [1, 2]], np.int32)
    observed = np.array([[True, True, True], [True, False, False], [False, True, True]])
    return Table(num, cat, observed, layout)


def test_a_hole_blanks_its_whole_block():
    nan = np.nan
    expected = [
        [1.5, 0, 0, 0, 0, 1],
        [-2.0, nan, nan, nan, nan, nan],
        [nan, 1, 0, 0, 1, 0],
    ]
    np.testing.assert_array_equal(encoded(small()), expected)


def test_the_largest_of_a_block_wins_wherever_it_lies():
    table = small()
    x = np.array([[3.0, 0.49, -5.0, -4.0, -6.0, -7.0], [4.0, 0.51, 1.2, 1.1, 1.4, 1.3]])
    num, cat = decoded(x, table.layout)
    assert num.tolist() == [[3.0], [4.0]]
    assert cat.tolist() == [[0, 1], [1, 2]]


@here
def test_forest_finds_the_known_law_beneath_many_missing_values():
    # the package's own encoding turns every missing value into the first class
    table = known.made(missing=0.5)
    settings = ForestSettings(n_t=12, duplicate_K=5, n_estimators=30, max_depth=4)
    num, cat = fit(table, settings, 0).sample(3000, 1)
    truth = known.made(missing=0.0)
    np.testing.assert_allclose(num.std(axis=0), 1, atol=0.2)
    assert abs(known.correlation(num) - known.correlation(truth.num)) < 0.1
    assert np.abs(known.shares(cat) - known.shares(truth.cat)).max() < 0.08


@here
def test_classes_beyond_their_range_are_not_tied():
    # with a clipped block a class of large values would lose to any before it
    table = known.only(known.made(n=300, missing=0.0), [], [0])
    made = fit(table, ForestSettings(n_t=10, duplicate_K=5, n_estimators=20), 0)
    raw = made._model.generate(batch_size=500)
    assert raw.max() > 1
    assert raw.min() < 0
    assert (raw.argmax(axis=1) > 0).any()


@here
def test_same_seed_same_rows_and_nobody_notices(capsys):
    table = known.made(n=100)
    before = all_states()
    a, b, c = fit(table, TINY, 0), fit(table, TINY, 0), fit(table, TINY, 1)
    hidden = fit(known.with_other_rubbish(table), TINY, 0)
    rows = [a.sample(70, 5), b.sample(70, 5), a.sample(70, 5), hidden.sample(70, 5)]
    others = [c.sample(70, 5), a.sample(70, 6)]
    assert all_states() == before
    assert capsys.readouterr() == ("", "")
    for num, cat in rows[1:]:
        np.testing.assert_array_equal(num, rows[0][0])
        np.testing.assert_array_equal(cat, rows[0][1])
    for num, _ in others:
        assert (num != rows[0][0]).any()


@here
@pytest.mark.parametrize("columns", [([0, 1], []), ([], [0]), ([1], [])])
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_tables_of_one_kind(columns, missing):
    table = known.only(known.made(n=60, missing=missing), *columns)
    num, cat = fit(table, TINY, 0).sample(23, 0)
    assert num.shape == (23, table.layout.n_num)
    assert cat.shape == (23, table.layout.n_cat)
    assert np.isfinite(num).all()
    assert ((cat >= 0) & (cat < 3)).all()


@here
def test_a_part_of_the_rows_is_enough_unless_it_is_empty():
    table = known.made(n=400, missing=0.2)
    made = fit(
        table, ForestSettings(n_t=2, duplicate_K=1, n_estimators=2, max_rows=50), 0
    )
    assert made.facts["learned_rows"] <= 50
    assert made.facts["models"] == 2 * 5
    table.observed[1:, 0] = False
    with pytest.raises(DataError, match="raise max_rows"):
        fit(table, ForestSettings(n_t=2, max_rows=2), 0)
