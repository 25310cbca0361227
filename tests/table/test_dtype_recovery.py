from __future__ import annotations

import numpy as np
import pytest

from augmask.table.dtype_recovery import decimals_of, suspected_numbers, suspected_texts

REST = np.arange(20.0, 60.0)


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([*REST, -1, -1], (-1,)),
        ([*REST, -1], ()),
        ([*REST, -9], (-9,)),
        ([*REST, -999, -99], (-999, -99)),
        ([*REST, 999], (999,)),
        ([*REST, 80, 99], ()),
        ([*REST, -999, 9999], (-999, 9999)),
        ([*(REST - 40), -9], ()),
        ([*(REST - 40), -999], (-999,)),
        ([*REST, 1000], ()),
        ([1, 2, -999], ()),
    ],
)
def test_number_codes_need_evidence(values, codes):
    assert suspected_numbers(np.array(values)) == codes


def test_text_codes_are_found_in_any_dress():
    levels = ["", " ", "?", "NA", "n/a", "Unknown", "NULL", "Nan", "nancy", "no"]
    assert suspected_texts(levels) == tuple(levels[:8])


def test_decimals():
    rng = np.random.default_rng(0)
    for decimals in range(7):
        values = rng.normal(0, 1000, 500).round(decimals)
        assert decimals_of(values) == decimals
        if 0 < decimals < 4:
            narrow = rng.normal(size=500).round(decimals).astype(np.float32)
            assert decimals_of(narrow.astype(float), "float32") == decimals
    assert decimals_of(rng.normal(size=500)) is None
