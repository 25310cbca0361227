"""Shared fills: the same draws as without the folder, one fit for all who ask."""

from __future__ import annotations

import numpy as np
import pytest
from tests.augmenters import RULES

from augmask.augmentation import AUGMENTERS
from augmask.augmentation.completions import CompletionPlan, complete
from augmask.errors import UsageError
from augmask_bench.augmentation_cache import SharedFill, bent


def completions(rule, table, draws="stack:3"):
    made = complete(rule, table, CompletionPlan.parse(draws), np.random.default_rng(5))
    return made.num_fill, made.cat_fill


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", RULES)
def test_draws_are_the_same_with_and_without_the_folder(name, make_table, tmp_path):
    table = make_table(n=80)
    plain = completions(AUGMENTERS[name](), table)
    first = SharedFill(AUGMENTERS[name](), tmp_path, worth=0.0)
    second = SharedFill(AUGMENTERS[name](), tmp_path, worth=0.0)
    assert same(completions(first, table), plain)
    assert same(completions(second, table), plain)
    # one that wants fewer or more draws finds those that are there
    assert same(completions(SharedFill(AUGMENTERS[name](), tmp_path), table), plain)
    more = completions(AUGMENTERS[name](), table, "stack:5")
    third = SharedFill(AUGMENTERS[name](), tmp_path, worth=0.0)
    assert same(completions(third, table, "stack:5"), more)


class Slow:
    """A rule that can be fitted once, and tells what it cost."""

    fits = 0

    def fit(self, table, rng, _progress=None):
        type(self).fits += 1
        self._table = table
        self._shift = rng.normal()
        return self

    def draw(self, rng):
        num, cat = self._table.num.copy(), self._table.cat.copy()
        num[~self._table.num_observed] = self._shift + rng.normal()
        cat[~self._table.cat_observed] = 1
        return self._table.filled(num, cat)


def test_a_rule_of_ones_own_is_fitted_once(make_table, tmp_path):
    table = make_table()
    Slow.fits = 0
    first = SharedFill(Slow(), tmp_path, worth=0.0)
    drawn = completions(first, table)
    second = SharedFill(Slow(), tmp_path, worth=0.0)
    assert same(completions(second, table), drawn)
    assert Slow.fits == 1
    other = make_table(seed=1)
    completions(SharedFill(Slow(), tmp_path, worth=0.0), other)
    assert Slow.fits == 2


class Tuned(Slow):
    """One with settings, of which not all are plain values."""

    version = "1"

    def __init__(self, depths=(1, 2), n_jobs=None):
        self.depths, self.n_jobs = depths, n_jobs


def test_a_fill_is_that_of_its_version_and_its_settings(
    make_table, tmp_path, monkeypatch
):
    table = make_table()
    Slow.fits = Tuned.fits = 0

    def fits_after(rule) -> int:
        completions(SharedFill(rule, tmp_path, worth=0.0), table)
        return Tuned.fits

    assert fits_after(Tuned()) == 1
    assert fits_after(Tuned(n_jobs=2)) == 1
    assert fits_after(Tuned(depths=(1, 3))) == 2
    monkeypatch.setattr(Tuned, "version", "2")
    assert fits_after(Tuned()) == 3
    assert fits_after(Tuned()) == 3


def test_a_draw_that_another_process_stored_meanwhile_does_not_shift_ours(
    make_table, tmp_path
):
    table = make_table()
    plain = completions(Slow(), table)
    whole = SharedFill(Slow(), tmp_path, worth=0.0)
    completions(whole, table)
    files = sorted(tmp_path.glob("*.npz"))
    for gone in ([0], [1], [2], [0, 2], [1, 2]):
        stored = {file: file.read_bytes() for file in files}
        for i in gone:
            files[i].unlink()
        assert same(completions(SharedFill(Slow(), tmp_path, worth=9), table), plain)
        for file, content in stored.items():
            file.write_bytes(content)


def test_seconds_are_those_of_the_fit_wherever_it_was_done(make_table, tmp_path):
    table = make_table(n=300)
    first = SharedFill(AUGMENTERS["lgbm-s"](), tmp_path, worth=0.0)
    completions(first, table, "one")
    second = SharedFill(AUGMENTERS["lgbm-s"](), tmp_path, worth=0.0)
    completions(second, table, "one")
    assert second.spent < first.spent / 2
    assert second.seconds == pytest.approx(first.seconds, rel=0.3)


def test_bent_rules_share_one_fit(make_table, tmp_path):
    table = make_table(n=80)
    for eta, lam in [(0.0, 1.0), (0.5, 1.0), (1.0, 0.0)]:
        rule = SharedFill(bent("lgbm-s", eta, lam), tmp_path, worth=0.0)
        assert same(
            completions(rule, table), completions(bent("lgbm-s", eta, lam), table)
        )
    assert len(list(tmp_path.glob("*.npz"))) == 1
    with pytest.raises(UsageError, match="bends LightGBM rules only"):
        bent("mean", 0.5, None)


def cut(content: bytes) -> bytes:
    return content[:100]


def flipped(content: bytes) -> bytes:
    """Return a file whose data no longer reads, though its ends do."""
    middle = len(content) // 2
    return (
        content[:middle]
        + bytes(255 - b for b in content[middle : middle + 20])
        + (content[middle + 20 :])
    )


@pytest.mark.parametrize("damage", [cut, flipped])
def test_a_damaged_file_is_as_good_as_none(make_table, tmp_path, damage):
    table = make_table(n=80)
    rule = SharedFill(AUGMENTERS["lgbm-s"](), tmp_path, worth=0.0)
    drawn = completions(rule, table)
    for file in tmp_path.glob("*.npz"):
        file.write_bytes(damage(file.read_bytes()))
    again = SharedFill(AUGMENTERS["lgbm-s"](), tmp_path, worth=0.0)
    assert same(completions(again, table), drawn)
