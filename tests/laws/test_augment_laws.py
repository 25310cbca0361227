"""What every augmentation rule must keep, whatever the table."""

import numpy as np
import pytest
from tests.augmenters import RULES

from augmask.augmentation import resolve_augmenter
from augmask.table.table import Layout, Table


def make_table(n=120, n_num=2, cards=(3, 2), rate=0.4, seed=0, edit=None):
    """A table of dependent columns; `edit(observed, cat)` may spoil it."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 1))
    num = z + rng.normal(size=(n, n_num))
    cat = np.zeros((n, len(cards)), dtype=int)
    for j, card in enumerate(cards):
        score = (z[:, 0] + rng.normal(size=n) + 1) * card / 2
        cat[:, j] = np.clip(score, 0, card - 1)
    observed = rng.random((n, n_num + len(cards))) >= rate
    if edit is not None:
        edit(observed, cat)
    # What lies beneath a hole has no meaning; make it loud, so that a rule that
    # reads it is caught.
    num[~observed[:, :n_num]] = 1e6
    cat[~observed[:, n_num:]] = 0
    names = tuple(f"x{j}" for j in range(n_num))
    kinds = tuple(f"c{j}" for j in range(len(cards)))
    return Table(num, cat, observed, Layout(names, kinds, tuple(cards)))


def one_class(observed, cat):
    cat[:, 0] = 2


def few_rows(observed, cat):
    observed[7:, [0, 2]] = False


def one_row(observed, cat):
    observed[:, [0, 2]] = False
    observed[0, [0, 2]] = True


def column_nowhere(observed, cat):
    observed[:, [0, 2]] = False


def row_nowhere(observed, cat):
    observed[3] = False


TABLES = {
    "mixed": make_table(),
    "numeric only": make_table(cards=()),
    "categorical only": make_table(n_num=0),
    "one numeric column": make_table(n_num=1, cards=()),
    "one categorical column": make_table(n_num=0, cards=(4,)),
    "a single level": make_table(cards=(1, 3)),
    "a single observed class": make_table(edit=one_class),
    "seven observed rows": make_table(edit=few_rows),
    "one observed row": make_table(edit=one_row),
    "a column observed nowhere": make_table(edit=column_nowhere),
    "a row observed nowhere": make_table(edit=row_nowhere),
    "one row": make_table(n=1, rate=0.6, seed=5),
    "nothing observed": make_table(rate=1.1),
}
RULE = pytest.mark.parametrize("rule", RULES)
TABLE = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


def bytes_of(table):
    return table.num.tobytes(), table.cat.tobytes()


def drawn(rule, table, seed=1):
    augmenter = resolve_augmenter(rule).fit(table, np.random.default_rng(0))
    return augmenter.draw(np.random.default_rng(seed))


@RULE
@TABLE
def test_a_draw_fills_the_holes_and_nothing_else(rule, table):
    before = bytes_of(table), table.observed.tobytes()
    filled = drawn(rule, table)
    num_known, cat_known = table.num_observed, table.cat_observed
    assert filled.num[num_known].tobytes() == table.num[num_known].tobytes()
    assert filled.cat[cat_known].tobytes() == table.cat[cat_known].tobytes()
    assert filled.observed.tobytes() == table.observed.tobytes()
    assert filled.num.dtype == table.num.dtype
    assert filled.layout.names == table.layout.names
    assert (bytes_of(table), table.observed.tobytes()) == before, "the input changed"
    # Finite, and of the size of the observed numbers: what lay beneath is unread.
    assert (np.abs(filled.num) < 1e3).all()
    assert ((filled.cat >= 0) & (filled.cat < filled.layout.cards)).all()
    if rule != "zero":
        assert filled.layout == table.layout


@RULE
@TABLE
def test_the_same_seed_gives_the_same_draw(rule, table):
    assert bytes_of(drawn(rule, table)) == bytes_of(drawn(rule, table))


@RULE
def test_draws_differ_only_if_the_rule_is_stochastic(rule):
    table = TABLES["mixed"]
    augmenter = resolve_augmenter(rule).fit(table, np.random.default_rng(0))
    first = augmenter.draw(np.random.default_rng(1))
    second = augmenter.draw(np.random.default_rng(2))
    assert (first.num.tobytes() != second.num.tobytes()) == augmenter.stochastic
    assert (first.cat.tobytes() != second.cat.tobytes()) == augmenter.stochastic
    stochastic = {
        "noise",
        "ecdf",
        "lgbm-s",
        "lgbm-s-calibrated",
        "lgbm-chain",
    }
    assert augmenter.stochastic == (rule in stochastic)


@RULE
def test_without_holes_nothing_is_fitted_and_nothing_changes(rule, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("something was fitted or a worker was started")

    monkeypatch.setattr("joblib.Parallel", refuse)
    monkeypatch.setattr("lightgbm.train", refuse)
    monkeypatch.setattr("sklearn.impute.SimpleImputer.fit", refuse)
    table = make_table(n=10_000, rate=0.0)
    filled = drawn(rule, table)
    assert filled.num is table.num
    assert filled.cat is table.cat
    assert filled.layout == table.layout


@RULE
def test_a_column_observed_nowhere_gets_its_scaled_mean(rule):
    filled = drawn(rule, TABLES["a column observed nowhere"])
    assert (filled.num[:, 0] == 0.0).all()
    codes = np.unique(filled.cat[:, 0])
    if rule == "zero":
        assert codes.tolist() == [3]
    elif resolve_augmenter(rule).stochastic:
        assert codes.tolist() == [0, 1, 2]
    else:
        assert codes.tolist() == [0]


@RULE
def test_progress_counts_up_to_the_total(rule):
    seen = []
    table = TABLES["mixed"]
    resolve_augmenter(rule).fit(
        table, np.random.default_rng(0), lambda *call: seen.append(call)
    )
    totals = {total for _, _, total, _ in seen}
    assert {phase for phase, *_ in seen} == {"augment"}
    assert len(totals) == 1
    done = [count for _, count, _, _ in seen]
    assert done == sorted(done)
    assert done[-1] == totals.pop()
