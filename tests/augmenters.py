"""All rules that fill holes, as parameters; one that lacks its package is skipped."""

from __future__ import annotations

import pytest

from augmask.augmentation import every_augmenter
from augmask_bench.augmentation_cache import rule_lacks


def _parameter(name: str):
    reason = rule_lacks(name)
    return pytest.param(name, marks=pytest.mark.skipif(reason != "", reason=reason))


RULES = [_parameter(name) for name in sorted(every_augmenter())]
