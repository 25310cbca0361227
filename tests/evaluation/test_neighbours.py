from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.evaluation import neighbours
from augmask.evaluation.neighbours import (
    Points,
    distances,
    gower,
    gower_points,
    nearest_gower,
    nearest_rows,
)

NAMES = ["x", "y"], ["g", "h"]
REAL = {"real"}


def table(rng, n, steps, levels="abc"):
    """Rows on a grid: a coarse one is full of ties and copies, a fine one is not."""
    return pd.DataFrame(
        {
            "x": rng.integers(0, steps + 1, n) / steps,
            "y": rng.integers(-3, 4, n) * 10.0,
            "g": rng.choice(list(levels), n),
            "h": rng.random(n) < 0.3,
        }
    )


def slow(queries, base, scale):
    """All Gower distances by the definition, one cell at a time."""
    numeric, categorical = NAMES
    every = np.empty((len(queries), len(base)))
    for i in range(len(queries)):
        for k in range(len(base)):
            gaps = []
            for name in [*numeric, *categorical]:
                q, b = queries[name].iloc[i], base[name].iloc[k]
                if pd.isna(b):
                    continue
                if name in numeric:
                    gaps.append(min(abs(q - b) / scale[name], 1.0))
                else:
                    gaps.append(float(q != b))
            every[i, k] = sum(gaps) / len(gaps)
    return every


def check(queries, base):
    tables = {"synthetic": queries, "real": base}
    scale = {c: (base[c].max() - base[c].min()) or 1.0 for c in NAMES[0]}
    q, b = gower_points(tables, *NAMES, REAL)
    want = slow(queries, base, scale)
    got = nearest_gower(q, b)
    in_order = np.sort(want, axis=1)
    for distance, expected in (
        (got.first, in_order[:, 0]),
        (got.second, in_order[:, 1]),
        (got.back, want.min(axis=0)),
    ):
        np.testing.assert_allclose(distance, expected, rtol=0, atol=1e-12)
    # Rows that are equally far by the definition are equally far for us.
    assert (got.first == got.second).tolist() == [
        abs(a - b) < 1e-12 for a, b in in_order[:, :2]
    ]


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(neighbours, "TILE_QUERIES", 7)
    monkeypatch.setattr(neighbours, "TILE_BASE", 11)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("missing_rate", [0.0, 0.4])
@pytest.mark.parametrize("steps", [1, 7, 1 << 20])
def test_gower_equals_a_double_loop(steps, missing_rate):
    rng = np.random.default_rng(steps)
    base, queries = table(rng, 70, steps), table(rng, 50, steps, levels="abz")
    # Beyond the real range on both sides, a little and far.
    queries.loc[:3, "x"] = [1.25, -0.5, 1e12, -3.0]
    hidden = rng.random(base.shape) < missing_rate
    hidden[hidden.all(axis=1), 0] = False
    base = base.astype({"h": object}).mask(hidden)
    check(queries, base)


def test_gower_with_one_kind_of_column():
    rng = np.random.default_rng(0)
    for n_num, n_cat in ((3, 0), (0, 3)):
        a, b = (
            Points(
                rng.random((n, n_num)),
                rng.integers(0, 9, (n, n_cat)),
                np.ones((n, 3), bool),
            )
            for n in (30, 40)
        )
        got = nearest_gower(a, b)
        every = np.array(
            [[gower(a.take([i]), b.take([k]))[0] for k in range(40)] for i in range(30)]
        )
        assert got.first.tolist() == every.min(axis=1).tolist()
        assert got.back.tolist() == every.min(axis=0).tolist()


def test_gower_resolves_differences_below_float32():
    # Neighbours differ in the ninth digit: the fast pass sees only noise there.
    rng = np.random.default_rng(1)
    values = 0.5 + rng.integers(0, 1000, 300) * 1e-10
    observed = np.ones((150, 1), bool)
    a, b = (
        Points(v[:, None], np.zeros((150, 0), int), observed)
        for v in (values[:150], values[150:])
    )
    every = np.sort(np.abs(a.num - b.num.T), axis=1)
    got = nearest_gower(a, b)
    np.testing.assert_allclose(got.first, every[:, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(got.second, every[:, 1], rtol=0, atol=1e-12)
    assert len(np.unique(got.first)) > 3


def test_gower_with_more_columns_than_a_byte_counts():
    rng = np.random.default_rng(2)
    a, b = (
        Points(np.zeros((n, 0)), rng.integers(0, 2, (n, 600)), np.ones((n, 600), bool))
        for n in (5, 6)
    )
    want = (a.cat[:, None] != b.cat[None]).mean(axis=2)
    np.testing.assert_allclose(
        nearest_gower(a, b).first, want.min(axis=1), rtol=0, atol=1e-12
    )


@pytest.mark.usefixtures("small_tiles")
def test_gower_does_not_depend_on_threads():
    rng = np.random.default_rng(3)
    frames = {"real": table(rng, 200, 64), "synthetic": table(rng, 150, 64)}
    b, q = gower_points(frames, *NAMES, REAL)
    one, four = (nearest_gower(q, b, n_jobs=jobs) for jobs in (1, 4))
    for name in ("first", "second", "back"):
        assert getattr(one, name).tolist() == getattr(four, name).tolist()


def test_gower_ignores_a_column_without_values():
    real = pd.DataFrame({"x": [0.0, 1.0], "y": [np.nan, np.nan], "g": "a", "h": None})
    new = pd.DataFrame({"x": [0.25], "y": [3.0], "g": ["a"], "h": [True]})
    b, q = gower_points({"real": real, "synthetic": new}, *NAMES, REAL)
    assert nearest_gower(q, b).first.tolist() == [0.125]


def brute(queries, base, skip_self):
    answer = []
    for i, query in enumerate(queries):
        squares = ((base - query) ** 2).sum(axis=1)
        if skip_self:
            squares[i] = np.inf
        answer.append(int(squares.argmin()))
    return answer


def grid(rng, n, p, steps):
    """Rows on a coarse dyadic grid: distances are exact and ties abound."""
    return rng.integers(0, steps + 1, (n, p)) / steps


@pytest.mark.parametrize("steps", [1, 2, 8, 64])
def test_ties_and_copies_have_the_lowest_index(steps, monkeypatch):
    # Small blocks, so that one row's ties are spread over several of them.
    monkeypatch.setattr(neighbours, "BLOCK_CELLS", 1000)
    monkeypatch.setattr(neighbours, "BLOCK_CANDIDATES", 7)
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


def test_differences_below_the_rounding_of_the_product_count():
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
