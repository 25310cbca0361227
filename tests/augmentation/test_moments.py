"""Uniform numbers become codes, and values reach their own holes."""

import numpy as np

from augmask.augmentation.moments import (
    PIECE,
    pick_alike,
    pick_codes,
    write_missing,
)
from augmask.table.table import Layout, Table


def test_impossible_codes_are_never_picked_at_the_ends_of_the_interval():
    # Sums to less than one in float32, and both ends have probability zero.
    p = np.array([[0.0, 0.1, 0.2, 0.3, 0.3999, 0.0]] * 2, dtype=np.float32)
    ends = np.array([0.0, np.nextafter(1.0, 0.0)])
    assert pick_codes(p, ends).tolist() == [1, 4]


def test_codes_have_their_probabilities():
    p = np.array([0.2, 0.0, 0.5, 0.3], dtype=np.float32)
    u = (np.arange(1000) + 0.5) / 1000
    codes = pick_codes(np.broadcast_to(p, (1000, 4)), u)
    assert np.bincount(codes, minlength=4).tolist() == [200, 0, 500, 300]


def test_each_value_lands_in_its_hole():
    observed = np.array([[False, True, False], [True, True, False], [False] * 3])
    table = Table(
        np.full((3, 2), 7.0),
        np.full((3, 1), 1),
        observed,
        Layout(("a", "b"), ("c",), (9,)),
    )
    filled = write_missing(
        table, [np.array([0.1, 0.2]), np.array([0.3])], [np.array([3, 4, 5])]
    )
    a, b = filled.num.T
    assert a.tolist() == [np.float32(0.1), 7.0, np.float32(0.2)]
    assert b.tolist() == [7.0, 7.0, np.float32(0.3)]
    assert filled.cat.ravel().tolist() == [3, 4, 5]


def test_rows_that_are_alike_get_the_codes_that_rows_of_their_own_would_get():
    rng = np.random.default_rng(0)
    for card in (1, 2, 7):
        p = rng.dirichlet(np.full(card, 0.3)).astype(np.float32)
        p[0] = 0 if card > 1 else 1
        u = np.concatenate([rng.random(PIECE + 5), [0.0, np.nextafter(1.0, 0.0)]])
        rows = np.broadcast_to(p, (len(u), card))
        np.testing.assert_array_equal(pick_alike(p, u), pick_codes(rows, u))
