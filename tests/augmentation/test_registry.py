"""Names lead to rules, without loading what is not asked for."""

import subprocess
import sys

import pytest

from augmask.augmentation import AUGMENTERS, resolve_augmenter
from augmask.augmentation.marginal import Mean
from augmask.errors import UsageError


def test_every_name_makes_a_new_object():
    for name in AUGMENTERS:
        first, second = resolve_augmenter(name), resolve_augmenter(name)
        assert first is not second
        assert callable(first.fit)
        assert callable(first.draw)


def test_objects_pass_and_strangers_do_not():
    rule = Mean()
    assert resolve_augmenter(rule) is rule
    with pytest.raises(UsageError, match="fit and draw"):
        resolve_augmenter(3)
    with pytest.raises(UsageError, match="did you mean 'lgbm-chain'"):
        resolve_augmenter("lgbm_chain")
    with pytest.raises(UsageError, match="known: zero, mean"):
        resolve_augmenter("qqq")


def test_looking_up_names_loads_nothing_heavy():
    code = (
        "import sys, augmask.augmentation;"
        "from augmask.augmentation import boosted, chained, draws;"
        "heavy = {'lightgbm', 'sklearn', 'torch', 'pandas'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
