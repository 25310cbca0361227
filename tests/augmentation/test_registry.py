"""Names resolve to augmenters, without heavy imports."""

import subprocess
import sys

import pytest

from augmask import augmentation
from augmask.augmentation import (
    AUGMENTERS,
    available_augmenters,
    resolve_augmenter,
)
from augmask.augmentation.boosted import LgbmS
from augmask.augmentation.marginal import Mean
from augmask.errors import UsageError


def test_auto_is_lgbm_s():
    assert isinstance(resolve_augmenter("auto"), LgbmS)


def test_plug_ins_come_after_the_built_in_augmenters_and_cannot_replace_one(
    monkeypatch,
):
    extra = {"mean": object, "another": Mean}
    monkeypatch.setattr(augmentation, "plugins", lambda _: extra)
    assert list(available_augmenters()) == [*AUGMENTERS, "another"]
    assert isinstance(resolve_augmenter("mean"), Mean)
    assert isinstance(resolve_augmenter("another"), Mean)


def test_every_name_makes_a_new_object():
    for name in AUGMENTERS:
        first, second = resolve_augmenter(name), resolve_augmenter(name)
        assert first is not second
        assert callable(first.fit)
        assert callable(first.draw)


def test_objects_are_returned_and_anything_else_is_refused():
    augmenter = Mean()
    assert resolve_augmenter(augmenter) is augmenter
    with pytest.raises(UsageError, match="fit and draw"):
        resolve_augmenter(3)
    with pytest.raises(UsageError, match="did you mean 'lgbm-chain'"):
        resolve_augmenter("lgbm_chain")
    with pytest.raises(UsageError, match="'qqq'; known: auto, zero, mean"):
        resolve_augmenter("qqq")


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, augmask.augmentation;"
        "from augmask.augmentation import boosted, chained, completions;"
        "heavy = {'lightgbm', 'sklearn', 'torch', 'pandas'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
