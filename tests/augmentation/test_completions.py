"""Completion plans, and completions that store missing cells only."""

import numpy as np
import pytest

from augmask.augmentation.completions import CompletionPlan, complete
from augmask.augmentation.marginal import Ecdf, Mean, Noise, Zero
from augmask.errors import UsageError
from augmask.table.table import Layout, Table


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    num, cat = rng.normal(size=(50, 2)), rng.integers(3, size=(50, 2))
    observed = rng.random((50, 4)) > 0.4
    return Table(num, cat, observed, Layout(("a", "b"), ("c", "d"), (3, 3)))


@pytest.mark.parametrize(
    ("text", "n_draws"),
    [
        ("one", 1),
        ("cycle:10", 10),
        ("anchor:30:0.8", 31),
        ("stack:4", 4),
        ("stack:1000", 1000),
    ],
)
def test_a_plan_is_parsed_and_printed(text, n_draws):
    plan = CompletionPlan.parse(text)
    assert str(plan) == text
    assert plan.n_draws == n_draws


@pytest.mark.parametrize(
    "text",
    [
        *("", "two", "one:1", "Stack:4", "stack:4:0.5"),
        *("stack:1001", "stack:99999999", "cycle:1001", "anchor:1001:0.5"),
        *("cycle", "cycle:0", "cycle:-3", "cycle:x", "cycle:1.5"),
        *("anchor:30", "anchor:30:1.1", "anchor:3:nan"),
    ],
)
def test_an_invalid_plan_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="stack:4"):
        CompletionPlan.parse(text)


def test_the_constructor_checks_too():
    with pytest.raises(UsageError):
        CompletionPlan("one", k=3)


def test_draw_of_epoch():
    rng = np.random.default_rng(0)

    def schedule(text, n):
        return [
            CompletionPlan.parse(text).draw_of_epoch(epoch, rng) for epoch in range(n)
        ]

    assert schedule("one", 3) == [0, 0, 0]
    assert schedule("cycle:3", 5) == [0, 1, 2, 0, 1]
    assert schedule("stack:3", 2) == [None, None]
    assert schedule("anchor:3:1", 4) == [0, 0, 0, 0]
    assert schedule("anchor:3:0", 4) == [1, 2, 3, 1]
    chosen = np.array(schedule("anchor:4:0.8", 4000))
    # Five standard errors of a share of 4000 epochs.
    assert abs((chosen == 0).mean() - 0.8) < 5 * 0.4 / np.sqrt(4000)
    assert set(chosen) == {0, 1, 2, 3, 4}


def test_completions_are_the_draws_of_the_augmenter(table):
    completions = complete(
        Noise(), table, CompletionPlan.parse("stack:3"), np.random.default_rng(1)
    )
    rng = np.random.default_rng(1)
    augmenter = Noise().fit(table, rng)
    for i in range(3):
        expected = augmenter.draw(rng)
        np.testing.assert_array_equal(completions.completion(i).num, expected.num)
        np.testing.assert_array_equal(completions.completion(i).cat, expected.cat)
    np.testing.assert_array_equal(completions.table.num, completions.completion(0).num)
    np.testing.assert_array_equal(completions.table.cat, completions.completion(0).cat)
    # Only missing cells are stored, in row-major order of each block.
    rows, columns = np.nonzero(~table.num_observed)
    assert completions.num_fill.shape == (3, len(rows))
    assert completions.num_fill.dtype == np.float32
    assert completions.cat_fill.dtype == np.int32
    second = completions.completion(1)
    np.testing.assert_array_equal(completions.num_fill[1], second.num[rows, columns])


def test_the_anchor_is_drawn_in_addition_to_the_cache(table):
    completions = complete(
        Ecdf(), table, CompletionPlan("anchor", 2, 0.5), np.random.default_rng(0)
    )
    assert completions.n_draws == 3
    assert completions.draw_of_epoch(0, np.random.default_rng(0)) in {0, 1}


def test_equal_draws_are_stored_once(table):
    rng = np.random.default_rng(0)
    plan = CompletionPlan.parse("stack:4")
    fixed = complete(Mean(), table, plan, rng)
    assert (fixed.n_draws, str(fixed.plan)) == (1, "one")
    full = Table(table.num, table.cat, np.ones_like(table.observed), table.layout)
    unchanged = complete(Noise(), full, plan, rng)
    assert (unchanged.n_draws, str(unchanged.plan)) == (1, "one")
    np.testing.assert_array_equal(unchanged.table.num, full.num)


def test_a_reserved_code_is_part_of_the_layout(table):
    rng = np.random.default_rng(0)
    completions = complete(Zero(), table, CompletionPlan("one"), rng)
    assert completions.table.layout.reserved
    assert completions.completion(0).layout.cards == (4, 4)


class Custom:
    """A user's augmenter; `spoil(table, num, cat)` makes its draw invalid."""

    def __init__(self, spoil):
        self.spoil = spoil

    def fit(self, table, *_):
        self.table = table
        return self

    def draw(self, _):
        num, cat = self.table.num.copy(), self.table.cat.copy()
        self.spoil(self.table, num, cat)
        return self.table.filled(num, cat)


def not_finite(table, num, cat):
    num[tuple(np.argwhere(~table.num_observed)[0])] = np.nan


def touched(table, num, cat):
    num[tuple(np.argwhere(table.num_observed)[0])] += 1


def recoded(table, num, cat):
    cat[tuple(np.argwhere(table.cat_observed)[0])] += 1


def illegal(table, num, cat):
    cat[tuple(np.argwhere(~table.cat_observed)[0])] = 3


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (not_finite, "finite number"),
        (touched, "observed cells"),
        (recoded, "observed cells"),
        (illegal, "code of the layout"),
    ],
)
def test_an_invalid_draw_is_refused(table, spoil, message):
    with pytest.raises(UsageError, match=message):
        complete(Custom(spoil), table, CompletionPlan("one"), np.random.default_rng(0))


def test_a_users_augmenter_is_accepted(table):
    completions = complete(
        Custom(lambda *_: None),
        table,
        CompletionPlan("cycle", 2),
        np.random.default_rng(0),
    )
    assert completions.n_draws == 2
