from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.report.map2d import map_rows, smoothed, visible


def rows(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return pd.DataFrame(
        {"x": x, "y": x + rng.normal(size=n), "z": rng.choice(list("ab"), n)}
    )


def found(real, synthetic, seed=0):
    return map_rows(real, synthetic, ["x", "y"], ["z"], np.random.default_rng(seed))


def test_fresh_rows_overlap_as_much_as_real_ones_and_broken_ones_less():
    real = rows(3000, 0)
    fresh = found(real, rows(3000, 1))
    assert abs(fresh.iou - fresh.reference) < 0.05
    one_sided = rows(3000, 1)
    broken = found(real, one_sided[one_sided["x"] > 0])
    assert broken.iou < broken.reference - 0.2
    assert broken.reference > 0.6


@pytest.mark.parametrize(("n", "shown"), [(1, False), (4, False), (8, True)])
def test_a_few_rows_on_their_own_leave_no_trace(n, shown):
    crowd = np.random.default_rng(0).normal(0, 0.05, size=(500, 2))
    points = np.vstack([crowd, np.full((n, 2), 0.8)])
    density = smoothed(points, np.array([-1.0, -1.0]), np.array([1.0, 1.0]))
    corner = visible(density)[45:, 45:]
    assert bool(corner.any()) == shown
    assert visible(density).any()


def test_holes_are_filled_alike_in_both_tables():
    real, synthetic = rows(2000, 0), rows(2000, 1)
    hole = np.random.default_rng(2).random((2000, 3)) < 0.3
    holed = found(real.mask(hole), synthetic.mask(hole[::-1]))
    assert holed.filled
    assert abs(holed.iou - holed.reference) < 0.08
    assert not found(real, synthetic).filled


def test_one_dimension_has_no_map():
    one = rows(100, 0)[["x"]]
    assert map_rows(one, one, ["x"], [], np.random.default_rng(0)) is None
