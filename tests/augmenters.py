"""All augmenters as test parameters; one without its package is skipped."""

from __future__ import annotations

import pytest

from augmask.augmentation import available_augmenters
from augmask_bench.augmentation_cache import why_augmenter_unavailable


def _parameter(name: str):
    reason = why_augmenter_unavailable(name)
    return pytest.param(name, marks=pytest.mark.skipif(reason != "", reason=reason))


AUGMENTER_PARAMS = [_parameter(name) for name in sorted(available_augmenters())]
