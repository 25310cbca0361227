"""HyperImpute through its package: it imputes, and does not fill in means."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from tests.bench.baselines.noticed import all_states

from augmask.augmentation import resolve_augmenter
from augmask.errors import UsageError
from augmask.table.table import Layout, Table
from augmask_bench.hyperimpute import HyperImpute
from augmask_bench.peers import why_unusable

here = pytest.mark.skipif(
    why_unusable("hyperimpute") != "", reason=why_unusable("hyperimpute")
)


def tied(n=120, seed=0):
    """Return a table whose second number and seven classes follow from the first."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    num = np.stack([x, -2 * x + 0.05 * rng.normal(size=n)], axis=1)
    cat = np.stack([np.clip(x * 2 + 3, 0, 6), x > 0], axis=1).astype(np.int32)
    observed = np.ones((n, 4), bool)
    # one cell a row at most, so that the others give it away
    hit = rng.random(n) < 0.4
    observed[hit, rng.integers(1, 4, n)[hit]] = False
    return Table(num, cat, observed, Layout(("a", "b"), ("seven", "two"), (7, 2)))


def test_the_rule_has_a_name_and_wants_to_be_fitted():
    augmenter = resolve_augmenter("hyperimpute")
    assert isinstance(augmenter, HyperImpute)
    assert not augmenter.stochastic
    with pytest.raises(NotFittedError):
        augmenter.draw(np.random.default_rng(0))


def test_libraries_with_which_it_imputes_means_are_refused(monkeypatch):
    monkeypatch.setattr("augmask_bench.peers.find_spec", lambda package: package)
    monkeypatch.setattr("augmask_bench.peers._version", {"pandas": "3.0.1"}.get)
    with pytest.raises(UsageError, match="imputes means"):
        HyperImpute().fit(tied(), np.random.default_rng(0))


@here
def test_it_finds_what_the_other_columns_give_away(capsys):
    table = tied()
    seen = []
    before = all_states()
    augmenter = HyperImpute(seconds=1.0)
    augmenter.fit(
        table, np.random.default_rng(0), lambda *report: seen.append(report[:3])
    )
    filled = augmenter.draw(np.random.default_rng(1))
    assert all_states() == before
    assert capsys.readouterr() == ("", "")
    missing = ~table.observed
    error = (filled.num - table.num)[missing[:, 1], 1]
    assert np.sqrt((error**2).mean()) < 0.5 < table.num[missing[:, 1], 1].std()
    apart = np.abs(filled.cat - table.cat)
    assert apart[missing[:, 2], 0].mean() < 0.5
    assert apart[missing[:, 3], 1].mean() < 0.15
    np.testing.assert_array_equal(
        filled.num[table.num_observed], table.num[table.num_observed]
    )
    assert (apart[table.cat_observed] == 0).all()
    assert ((filled.cat >= 0) & (filled.cat < [7, 2])).all()
    assert augmenter.rounds_ >= 1
    assert seen[0] == ("augment", 0, 40)
    assert seen[-1] == ("augment", 40, 40)


@here
def test_same_seed_same_fill_whatever_lies_beneath():
    table = tied(n=40)
    rubbish = np.where(table.num_observed, table.num, 1e4)
    other = Table(rubbish, table.cat, table.observed, table.layout)
    fills = [
        HyperImpute(seconds=0.0).fit(t, np.random.default_rng(0)).draw(None)
        for t in (table, other)
    ]
    np.testing.assert_array_equal(fills[0].num, fills[1].num)
    np.testing.assert_array_equal(fills[0].cat, fills[1].cat)


@here
def test_a_complete_table_is_left_alone():
    table = tied(n=30)
    whole = Table(table.num, table.cat, np.ones_like(table.observed), table.layout)
    assert HyperImpute().fit(whole, np.random.default_rng(0)).draw(None) is whole
