"""Policies of draws, and completions that remember only missing cells."""

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
    [("one", 1), ("cycle:10", 10), ("anchor:30:0.8", 31), ("stack:4", 4)],
)
def test_a_policy_survives_its_name(text, n_draws):
    policy = CompletionPlan.parse(text)
    assert str(policy) == text
    assert policy.n_draws == n_draws


@pytest.mark.parametrize(
    "text",
    [
        *("", "two", "one:1", "Stack:4", "stack:4:0.5"),
        *("cycle", "cycle:0", "cycle:-3", "cycle:x", "cycle:1.5"),
        *("anchor:30", "anchor:30:1.1", "anchor:3:nan"),
    ],
)
def test_nonsense_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="stack:4"):
        CompletionPlan.parse(text)


def test_a_direct_policy_is_checked_too():
    with pytest.raises(UsageError):
        CompletionPlan("one", k=3)


def test_which_draw_an_epoch_sees():
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


def test_completions_are_the_draws(table):
    drawn = complete(
        Noise(), table, CompletionPlan.parse("stack:3"), np.random.default_rng(1)
    )
    rng = np.random.default_rng(1)
    rule = Noise().fit(table, rng)
    for i in range(3):
        expected = rule.draw(rng)
        np.testing.assert_array_equal(drawn.completion(i).num, expected.num)
        np.testing.assert_array_equal(drawn.completion(i).cat, expected.cat)
    np.testing.assert_array_equal(drawn.table.num, drawn.completion(0).num)
    np.testing.assert_array_equal(drawn.table.cat, drawn.completion(0).cat)
    # Memory for holes only, in row-major order of each block.
    rows, columns = np.nonzero(~table.num_observed)
    assert drawn.num_fill.shape == (3, len(rows))
    assert drawn.num_fill.dtype == np.float32
    assert drawn.cat_fill.dtype == np.int32
    second = drawn.completion(1)
    np.testing.assert_array_equal(drawn.num_fill[1], second.num[rows, columns])


def test_the_anchor_comes_on_top_of_the_cache(table):
    drawn = complete(
        Ecdf(), table, CompletionPlan("anchor", 2, 0.5), np.random.default_rng(0)
    )
    assert drawn.n_draws == 3
    assert drawn.draw_of_epoch(0, np.random.default_rng(0)) in {0, 1}


def test_equal_draws_are_kept_once(table):
    rng = np.random.default_rng(0)
    policy = CompletionPlan.parse("stack:4")
    fixed = complete(Mean(), table, policy, rng)
    assert (fixed.n_draws, str(fixed.policy)) == (1, "one")
    full = Table(table.num, table.cat, np.ones_like(table.observed), table.layout)
    whole = complete(Noise(), full, policy, rng)
    assert (whole.n_draws, str(whole.policy)) == (1, "one")
    np.testing.assert_array_equal(whole.table.num, full.num)


def test_a_reserved_layout_reaches_the_completions(table):
    rng = np.random.default_rng(0)
    drawn = complete(Zero(), table, CompletionPlan("one"), rng)
    assert drawn.table.layout.reserved
    assert drawn.completion(0).layout.cards == (4, 4)


class Broken:
    """A user's rule; `spoil(num, cat)` decides which promise it breaks."""

    def __init__(self, spoil):
        self.spoil = spoil

    def fit(self, table, *_):
        self.table = table
        return self

    def draw(self, _):
        num, cat = self.table.num.copy(), self.table.cat.copy()
        self.spoil(self.table, num, cat)
        return self.table.filled(num, cat)


def hole(table, num, cat):
    num[tuple(np.argwhere(~table.num_observed)[0])] = np.nan


def touched(table, num, cat):
    num[tuple(np.argwhere(table.num_observed)[0])] += 1


def recoded(table, num, cat):
    cat[tuple(np.argwhere(table.cat_observed)[0])] += 1


def illegal(table, num, cat):
    cat[tuple(np.argwhere(~table.cat_observed)[0])] = 3


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (hole, "finite number"),
        (touched, "observed cells"),
        (recoded, "observed cells"),
        (illegal, "code of the layout"),
    ],
)
def test_a_rule_that_breaks_a_promise_is_named(table, spoil, rule):
    with pytest.raises(UsageError, match=rule):
        complete(Broken(spoil), table, CompletionPlan("one"), np.random.default_rng(0))


def test_a_users_rule_is_welcome(table):
    drawn = complete(
        Broken(lambda *_: None),
        table,
        CompletionPlan("cycle", 2),
        np.random.default_rng(0),
    )
    assert drawn.n_draws == 2
