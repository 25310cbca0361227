from __future__ import annotations

import numpy as np
import pytest

from augmask.evaluation import nearest
from augmask.evaluation.nearest import best_of, distances, nearest_rows


def brute(queries, base, skip_self):
    answer = []
    for i, query in enumerate(queries):
        found = ((base - query) ** 2).sum(axis=1)
        if skip_self:
            found[i] = np.inf
        answer.append(int(found.argmin()))
    return answer


def grid(rng, n, p, steps):
    """Rows on a coarse dyadic grid: distances are exact and ties abound."""
    return rng.integers(0, steps + 1, (n, p)) / steps


@pytest.mark.parametrize("steps", [1, 2, 8, 64])
def test_ties_and_copies_go_to_the_lowest_index(steps, monkeypatch):
    # Small blocks, so that one row's ties are spread over several of them.
    monkeypatch.setattr(nearest, "BLOCK_CELLS", 1000)
    monkeypatch.setattr(nearest, "BLOCK_CANDIDATES", 7)
    rng = np.random.default_rng(steps)
    base, queries = grid(rng, 150, 3, steps), grid(rng, 90, 3, steps)
    assert nearest_rows(queries, base).tolist() == brute(queries, base, False)
    got = nearest_rows(base, base, skip_self=True, n_jobs=1).tolist()
    assert got == brute(base, base, True)


def test_continuous_rows():
    rng = np.random.default_rng(0)
    base, queries = rng.normal(size=(400, 6)), rng.normal(size=(300, 6))
    assert nearest_rows(queries, base).tolist() == brute(queries, base, False)
    assert nearest_rows(base, base, True).tolist() == brute(base, base, True)


def test_differences_below_the_rounding_of_the_product_are_seen():
    # Squared distances of 1e-20 beside norms of 1: the matrix product sees only noise.
    rng = np.random.default_rng(1)
    base = 1 + rng.integers(0, 1000, (200, 2)) * 2.0**-40
    base[0] = -1
    queries = 1 + rng.integers(0, 1000, (100, 2)) * 2.0**-40
    assert nearest_rows(queries, base).tolist() == brute(queries, base, False)


@pytest.mark.parametrize("far", [1e3, 1e9])
def test_wild_rows_change_nothing(far):
    rng = np.random.default_rng(2)
    queries = grid(rng, 100, 3, 64)
    base = grid(rng, 100, 3, 64)
    base[::3] *= far
    assert nearest_rows(queries, base).tolist() == brute(queries, base, False)
    # Also when every row is far away.
    base = np.round(far * (1 + grid(rng, 50, 3, 64)))
    got = nearest_rows(queries, base)
    best = distances(queries, base[brute(queries, base, False)])
    np.testing.assert_allclose(distances(queries, base[got]), best, rtol=1e-12)


def test_copies_and_negative_zero():
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0], [5.0, 5.0]])
    assert nearest_rows(rows, rows, skip_self=True).tolist() == [1, 0, 0, 0]
    same = np.ones((3, 2))
    assert nearest_rows(same, same, skip_self=True).tolist() == [1, 0, 0]


def test_best_of_candidates_in_any_order():
    base = np.array([[0.0], [2.0], [1.0], [0.0]])
    queries = np.array([[1.0], [0.1], [1.0]])
    candidates = np.array([[3, 1, 0], [2, 3, 0], [1, 2, 0]])
    assert best_of(queries, base, candidates).tolist() == [0, 0, 2]
