from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.evaluation.fidelity import trend
from augmask.evaluation.results import worst_pairs, worst_tenth


def wide(seed, n=800, columns=12):
    """Return columns of which only the first three depend on each other."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, columns))
    x[:, 1:3] = x[:, :1] + 0.3 * x[:, 1:3]
    return pd.DataFrame(x, columns=[f"x{j}" for j in range(columns)])


def test_the_worst_tenth_shows_the_few_pairs_that_the_mean_hides():
    real, fresh = wide(0), wide(1)
    rng = np.random.default_rng(2)
    broken = fresh.apply(lambda column: rng.permutation(column))
    names = list(real)
    good, bad = (trend(real, rows, names, []) for rows in (fresh, broken))
    assert bad.value > 0.95  # the mean over all 66 pairs
    assert worst_tenth(good.table) > 0.93
    assert worst_tenth(bad.table) < 0.8
    # 66 pairs: the lowest seven
    assert worst_tenth(bad.table) == pytest.approx(
        bad.table["score"].sort_values()[:7].mean()
    )


def test_the_worst_pairs_are_farthest_below_real_rows():
    pairs = pd.DataFrame(
        {
            "first": ["many", "lost", "unknown"],
            "second": ["levels", "link", "reference"],
            "score": [0.40, 0.80, 0.95],
            "reference": [0.41, 0.99, np.nan],
        }
    )
    assert worst_pairs(pairs, 2)["first"].tolist() == ["lost", "unknown"]


def test_pairs_that_few_rows_show_together_do_not_count():
    pairs = pd.DataFrame(
        {
            "first": ["a", "a", "b"],
            "second": ["b", "c", "c"],
            "rows": [900, 3, 800],
            "remasked": [0.9, 0.1, 0.8],
            "reference": [0.95, 0.95, 0.95],
        }
    )
    assert worst_tenth(pairs) == 0.8
    assert worst_pairs(pairs, 3)["remasked"].tolist() == [0.8, 0.9]
    # Half of the rows, the same pairs.
    assert worst_tenth(pairs.assign(rows=[45, 1, 40]), select=pairs) == 0.8
    assert worst_tenth(pairs.assign(rows=1)) == 0.1


def test_no_pairs_have_no_worst_tenth():
    only = pd.DataFrame({"x": [1.0, 2.0]})
    assert np.isnan(worst_tenth(trend(only, only, ["x"], []).table))
