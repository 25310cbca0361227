"""The cache of augmenters: the same draws as without it, and one fit for all runs."""

from __future__ import annotations

import numpy as np
import pytest
from tests.augmenters import AUGMENTER_PARAMS

from augmask.augmentation import AUGMENTERS
from augmask.augmentation.completions import CompletionPlan, complete
from augmask.errors import UsageError
from augmask_bench.augmentation_cache import CachedAugmenter, perturbed_augmenter


def completions(augmenter, table, setting="stack:3"):
    plan, rng = CompletionPlan.parse(setting), np.random.default_rng(5)
    completed = complete(augmenter, table, plan, rng)
    return completed.num_fill, completed.cat_fill


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", AUGMENTER_PARAMS)
def test_draws_are_the_same_with_and_without_the_cache(name, make_table, tmp_path):
    table = make_table(n=80)
    plain = completions(AUGMENTERS[name](), table)
    first = CachedAugmenter(AUGMENTERS[name](), tmp_path, min_seconds=0.0)
    second = CachedAugmenter(AUGMENTERS[name](), tmp_path, min_seconds=0.0)
    assert same(completions(first, table), plain)
    assert same(completions(second, table), plain)
    # one that needs fewer or more draws uses those that are cached
    assert same(
        completions(CachedAugmenter(AUGMENTERS[name](), tmp_path), table), plain
    )
    more = completions(AUGMENTERS[name](), table, "stack:5")
    third = CachedAugmenter(AUGMENTERS[name](), tmp_path, min_seconds=0.0)
    assert same(completions(third, table, "stack:5"), more)


class Counting:
    """An augmenter that counts its fits."""

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


def test_your_own_augmenter_is_fitted_once(make_table, tmp_path):
    table = make_table()
    Counting.fits = 0
    first = CachedAugmenter(Counting(), tmp_path, min_seconds=0.0)
    drawn = completions(first, table)
    second = CachedAugmenter(Counting(), tmp_path, min_seconds=0.0)
    assert same(completions(second, table), drawn)
    assert Counting.fits == 1
    other = make_table(seed=1)
    completions(CachedAugmenter(Counting(), tmp_path, min_seconds=0.0), other)
    assert Counting.fits == 2


class Tuned(Counting):
    """An augmenter with settings, not all of them scalars."""

    version = "1"

    def __init__(self, depths=(1, 2), n_jobs=None):
        self.depths, self.n_jobs = depths, n_jobs


def test_version_and_settings_are_part_of_the_key(make_table, tmp_path, monkeypatch):
    table = make_table()
    Counting.fits = Tuned.fits = 0

    def fits_after(augmenter) -> int:
        completions(CachedAugmenter(augmenter, tmp_path, min_seconds=0.0), table)
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
    plain = completions(Counting(), table)
    first = CachedAugmenter(Counting(), tmp_path, min_seconds=0.0)
    completions(first, table)
    files = sorted(tmp_path.glob("*.npz"))
    for deleted in ([0], [1], [2], [0, 2], [1, 2]):
        stored = {file: file.read_bytes() for file in files}
        for i in deleted:
            files[i].unlink()
        assert same(
            completions(CachedAugmenter(Counting(), tmp_path, min_seconds=9), table),
            plain,
        )
        for file, content in stored.items():
            file.write_bytes(content)


def test_seconds_are_those_of_the_fit_wherever_it_ran(make_table, tmp_path):
    table = make_table(n=300)
    first = CachedAugmenter(AUGMENTERS["lgbm-s"](), tmp_path, min_seconds=0.0)
    completions(first, table, "one")
    second = CachedAugmenter(AUGMENTERS["lgbm-s"](), tmp_path, min_seconds=0.0)
    completions(second, table, "one")
    assert second.spent < first.spent / 2
    assert second.seconds == pytest.approx(first.seconds, rel=0.3)


def test_perturbed_augmenters_share_one_fit(make_table, tmp_path):
    table = make_table(n=80)
    for eta, lam in [(0.0, 1.0), (0.5, 1.0), (1.0, 0.0)]:
        cached = CachedAugmenter(
            perturbed_augmenter("lgbm-s", eta, lam), tmp_path, min_seconds=0.0
        )
        assert same(
            completions(cached, table),
            completions(perturbed_augmenter("lgbm-s", eta, lam), table),
        )
    assert len(list(tmp_path.glob("*.npz"))) == 1
    with pytest.raises(UsageError, match="applies to LightGBM augmenters only"):
        perturbed_augmenter("mean", 0.5, None)


def cut(content: bytes) -> bytes:
    return content[:100]


def flipped(content: bytes) -> bytes:
    """Return a file with damaged data between intact ends."""
    middle = len(content) // 2
    return (
        content[:middle]
        + bytes(255 - b for b in content[middle : middle + 20])
        + (content[middle + 20 :])
    )


@pytest.mark.parametrize("damage", [cut, flipped])
def test_a_damaged_file_is_ignored(make_table, tmp_path, damage):
    table = make_table(n=80)
    first = CachedAugmenter(AUGMENTERS["lgbm-s"](), tmp_path, min_seconds=0.0)
    drawn = completions(first, table)
    for file in tmp_path.glob("*.npz"):
        file.write_bytes(damage(file.read_bytes()))
    again = CachedAugmenter(AUGMENTERS["lgbm-s"](), tmp_path, min_seconds=0.0)
    assert same(completions(again, table), drawn)
