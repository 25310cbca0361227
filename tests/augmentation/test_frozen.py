"""A frozen augmenter fills other tables with what it learned from the first."""

import pickle

import numpy as np
import pytest

from augmask.augmentation import AUGMENTERS, freeze, resolve_augmenter
from augmask.augmentation.completions import check_completion
from augmask.errors import UsageError
from augmask.table.table import Table


def rows_of(table, rows):
    return Table(table.num[rows], table.cat[rows], table.observed[rows], table.layout)


@pytest.fixture
def table(make_table):
    return make_table(n=600, n_num=2, cards=(3, 2))


@pytest.mark.parametrize("name", AUGMENTERS)
def test_another_table_is_filled_with_what_was_learned(name, table):
    augmenter = resolve_augmenter(name)
    sample, other = rows_of(table, slice(0, 400)), rows_of(table, slice(400, None))
    frozen = freeze(augmenter, sample, np.random.default_rng(0))
    # workers get a copy
    there = pickle.loads(pickle.dumps(frozen))
    drawn = [
        each.fit(other, np.random.default_rng(1)).draw(np.random.default_rng(2))
        for each in (frozen, there)
    ]
    check_completion(other, drawn[0])
    assert drawn[0].num.tobytes() == drawn[1].num.tobytes()
    assert drawn[0].cat.tobytes() == drawn[1].cat.tobytes()


@pytest.mark.parametrize("name", ["mean", "mice", "lgbm-d"])
def test_the_sample_itself_is_filled_as_by_the_augmenter(name, table):
    """Deterministic augmenters: learning from a table and filling it is `fit`."""
    augmenter = resolve_augmenter(name)
    plain = augmenter.fit(table, np.random.default_rng(0)).draw(
        np.random.default_rng(1)
    )
    frozen = freeze(resolve_augmenter(name), table, np.random.default_rng(0))
    again = frozen.fit(table, np.random.default_rng(5)).draw(np.random.default_rng(6))
    np.testing.assert_allclose(again.num, plain.num, atol=1e-6)
    np.testing.assert_array_equal(again.cat, plain.cat)


@pytest.mark.parametrize("name", AUGMENTERS)
def test_a_column_that_was_complete_is_filled_too(name, table):
    complete = table.observed.copy()
    complete[:, [0, 2]] = True
    sample = Table(table.num, table.cat, complete, table.layout)
    frozen = freeze(resolve_augmenter(name), sample, np.random.default_rng(0))
    filled = frozen.fit(table, np.random.default_rng(1)).draw(np.random.default_rng(2))
    check_completion(table, filled)


def test_zero_gives_every_part_the_same_layout(table):
    frozen = freeze(resolve_augmenter("zero"), table, np.random.default_rng(0))
    whole = Table(table.num, table.cat, np.ones_like(table.observed), table.layout)
    rng = np.random.default_rng(0)
    layouts = {frozen.fit(each, rng).draw(rng).layout for each in (table, whole)}
    assert len(layouts) == 1


def test_an_augmenter_of_ones_own_needs_the_method():
    class Own:
        def fit(self, table, rng, progress=None): ...
        def draw(self, rng): ...

    with pytest.raises(UsageError, match="Own cannot fill a table in parts"):
        freeze(Own(), None, np.random.default_rng(0))
