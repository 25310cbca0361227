"""What must hold for every augmenter and every table."""

import numpy as np
import pytest
from tests.augmenters import AUGMENTER_PARAMS

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
    # Values of missing cells are meaningless; make them large, so that an augmenter
    # that reads them is caught.
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


def empty_column(observed, cat):
    observed[:, [0, 2]] = False


def empty_row(observed, cat):
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
    "an empty column": make_table(edit=empty_column),
    "an empty row": make_table(edit=empty_row),
    "one row": make_table(n=1, rate=0.6, seed=5),
    "nothing observed": make_table(rate=1.1),
}
EACH_AUGMENTER = pytest.mark.parametrize("name", AUGMENTER_PARAMS)
EACH_TABLE = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


def bytes_of(table):
    return table.num.tobytes(), table.cat.tobytes()


def fill(name, table, seed=1):
    augmenter = resolve_augmenter(name).fit(table, np.random.default_rng(0))
    return augmenter.draw(np.random.default_rng(seed))


@EACH_AUGMENTER
@EACH_TABLE
def test_a_draw_fills_missing_cells_and_nothing_else(name, table):
    before = bytes_of(table), table.observed.tobytes()
    filled = fill(name, table)
    num_known, cat_known = table.num_observed, table.cat_observed
    assert filled.num[num_known].tobytes() == table.num[num_known].tobytes()
    assert filled.cat[cat_known].tobytes() == table.cat[cat_known].tobytes()
    assert filled.observed.tobytes() == table.observed.tobytes()
    assert filled.num.dtype == table.num.dtype
    assert filled.layout.names == table.layout.names
    assert (bytes_of(table), table.observed.tobytes()) == before, "the input changed"
    # Finite and as large as observed numbers: values of missing cells are not read.
    assert (np.abs(filled.num) < 1e3).all()
    assert ((filled.cat >= 0) & (filled.cat < filled.layout.cards)).all()
    if name != "zero":
        assert filled.layout == table.layout


@EACH_AUGMENTER
@EACH_TABLE
def test_the_same_seed_gives_the_same_draw(name, table):
    assert bytes_of(fill(name, table)) == bytes_of(fill(name, table))


@EACH_AUGMENTER
def test_draws_differ_only_if_the_augmenter_is_stochastic(name):
    table = TABLES["mixed"]
    augmenter = resolve_augmenter(name).fit(table, np.random.default_rng(0))
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
    assert augmenter.stochastic == (name in stochastic)


@EACH_AUGMENTER
def test_a_complete_table_is_returned_without_fitting(name, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("something was fitted or a worker was started")

    monkeypatch.setattr("joblib.Parallel", refuse)
    monkeypatch.setattr("lightgbm.train", refuse)
    monkeypatch.setattr("sklearn.impute.SimpleImputer.fit", refuse)
    table = make_table(n=10_000, rate=0.0)
    filled = fill(name, table)
    assert filled.num is table.num
    assert filled.cat is table.cat
    assert filled.layout == table.layout


@EACH_AUGMENTER
def test_a_column_without_observed_values_gets_its_scaled_mean(name):
    filled = fill(name, TABLES["an empty column"])
    assert (filled.num[:, 0] == 0.0).all()
    codes = np.unique(filled.cat[:, 0])
    if name == "zero":
        assert codes.tolist() == [3]
    elif resolve_augmenter(name).stochastic:
        assert codes.tolist() == [0, 1, 2]
    else:
        assert codes.tolist() == [0]


@EACH_AUGMENTER
def test_progress_counts_up_to_the_total(name):
    calls = []
    table = TABLES["mixed"]
    resolve_augmenter(name).fit(
        table, np.random.default_rng(0), lambda *call: calls.append(call)
    )
    totals = {total for _, _, total, _ in calls}
    assert {phase for phase, *_ in calls} == {"augment"}
    assert len(totals) == 1
    done = [count for _, count, _, _ in calls]
    assert done == sorted(done)
    assert done[-1] == totals.pop()
