"""The nearest row, exactly: float64 distances, ties to the lowest index.

A matrix product gives all squared distances at once, |y|² - 2 x·y up to a constant of
the row, but with rounding error, and tables full of repeated values make exact ties the
rule rather than the exception. So the product only picks candidates: everything within
the proven error of the smallest value. Those few are measured again by plain
differences.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from augmask.evaluation.columns import Codes, Floats

# Products of 16 MiB: large enough for the matrix library, small enough for the cache.
BLOCK_CELLS = 1 << 21
# Candidates measured again at a time; bounds the memory that many ties can take.
BLOCK_CANDIDATES = 1 << 16
UNIT_ROUNDOFF = 2.0**-53


def distances(a: Floats, b: Floats) -> Floats:
    """Return the Euclidean distance between each row of `a` and the same row of `b`.

    Every distance in `coverage` comes from here: equal differences then give equal
    floats, and `<=` means what it says.

    Examples
    --------
    >>> distances(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([3.0, 4.0])).round(3)
    array([5.   , 3.606])
    """
    gap = a - b
    return np.asarray(np.sqrt(np.square(gap).sum(axis=1)), dtype=np.float64)


def best_of(queries: Floats, base: Floats, candidates: Codes) -> Codes:
    """Return for each query the nearest of its row of `candidates`.

    Examples
    --------
    >>> base = np.array([[0.0], [2.0], [1.0]])
    >>> best_of(np.array([[1.0]]), base, np.array([[1, 0]])).tolist()
    [0]
    """
    ordered = np.sort(candidates, axis=1)
    measured = np.stack(
        [distances(queries, base[column]) for column in ordered.T], axis=1
    )
    chosen = measured.argmin(axis=1)
    return np.asarray(np.take_along_axis(ordered, chosen[:, None], axis=1)[:, 0])


def _distinct(rows: Floats) -> tuple[Codes, Codes]:
    """Return the first index of each distinct row, and each row's place among them."""
    # Adding zero turns -0.0 into 0.0, so that equal rows have equal bytes.
    packed = np.ascontiguousarray(rows + 0.0)
    as_bytes = packed.view(np.dtype((np.void, packed.dtype.itemsize * packed.shape[1])))
    _, first, place = np.unique(
        as_bytes.ravel(), return_index=True, return_inverse=True
    )
    # Places in order of first appearance, so that a lower place is a lower index.
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[place.ravel()]


def _second_index(place: Codes, n_distinct: int) -> Codes:
    """Return where each distinct row stands for the second time, -1 if it does not."""
    by_place = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[by_place], np.arange(n_distinct))
    repeated = np.bincount(place, minlength=n_distinct) > 1
    second = np.full(n_distinct, -1)
    second[repeated] = by_place[starts[repeated] + 1]
    return second


def _settle(queries: Floats, base: Floats, rows: Codes, columns: Codes) -> Codes:
    """Return the exactly nearest column of every row among (row, column) candidates."""
    answer = np.zeros(len(queries), dtype=np.int64)
    best = np.full(len(queries), np.inf)
    alone = np.bincount(rows, minlength=len(queries))[rows] == 1
    answer[rows[alone]] = columns[alone]
    rows, columns = rows[~alone], columns[~alone]
    for start in range(0, len(rows), BLOCK_CANDIDATES):
        part = slice(start, start + BLOCK_CANDIDATES)
        r, c = rows[part], columns[part]
        found = distances(queries[r], base[c])
        # Candidates come in index order: the first of a tie is the lowest.
        nearest = np.lexsort((c, found, r))
        leading = nearest[np.unique(r[nearest], return_index=True)[1]]
        better = leading[found[leading] < best[r[leading]]]
        best[r[better]], answer[r[better]] = found[better], c[better]
    return answer


def _search(queries: Floats, base: Floats, same: bool, n_jobs: int) -> Codes:
    """Return the nearest row of `base` for each query; both hold distinct rows.

    With `same`, `queries` is `base` and no row is its own neighbour.
    """
    # Rounding error grows with the norms, and the middle of the queries makes them
    # small.
    centre = queries.mean(axis=0)
    x, y = queries - centre, base - centre
    x_norm, y_norm = np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1)
    # Some base row is within R + r of every query, R and r being the largest query norm
    # and the smallest base norm. A row of norm beyond 2 R + r is farther than that from
    # every query, so a wild synthetic row cannot widen the error bound.
    keep = np.arange(len(base))
    if not same:
        keep = np.flatnonzero(y_norm <= (2 * x_norm.max() + y_norm.min()) * (1 + 1e-9))
    y, y_norm = y[keep], y_norm[keep]
    left = np.hstack([-2 * x, np.ones((len(x), 1))])
    right = np.ascontiguousarray(np.hstack([y, np.square(y_norm)[:, None]]).T)
    reach = y_norm.max()
    # What rounding can do to a sum of p + 1 products, to its terms, and to the distance
    # that is measured afterwards.
    error = 2 * (x.shape[1] + 8) * UNIT_ROUNDOFF * np.square(x_norm + reach)
    step = max(1, BLOCK_CELLS // len(y))

    def block(start: int) -> Codes:
        part = slice(start, start + step)
        squares = left[part] @ right
        if same:
            inside = np.arange(len(squares))
            squares[inside, start + inside] = np.inf
        bound = squares.min(axis=1) + 2 * error[part]
        rows, columns = np.nonzero(squares <= bound[:, None])
        return _settle(queries[part], base, rows, keep[columns])

    # One thread per block rather than threads inside the product: the passes over its
    # result, which take as long, then run side by side too.
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n_jobs) as pool:
        return np.concatenate(list(pool.map(block, range(0, len(x), step))))


def nearest_rows(
    queries: Floats, base: Floats, skip_self: bool = False, n_jobs: int | None = None
) -> npt.NDArray[np.int64]:
    """Return for each query the index of the nearest row of `base`.

    Parameters
    ----------
    queries, base : float array [n, p] and [m, p]
        Finite numbers.
    skip_self : bool
        Set when `queries` is `base`: row i may then not be its own neighbour (another
        row equal to it may).
    n_jobs : int, optional
        Threads; all cores by default. The answer does not depend on it.

    Returns
    -------
    int array [n]
        Of equally near rows, the one with the lowest index.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [1.0], [5.0]])
    >>> nearest_rows(rows, rows, skip_self=True).tolist()
    [1, 2, 1, 1]
    >>> nearest_rows(np.array([[0.5]]), rows).tolist()
    [0]
    """
    jobs = n_jobs or os.cpu_count() or 1
    first, place = _distinct(base)
    if not skip_self:
        q_first, q_place = _distinct(queries)
        found = _search(queries[q_first], base[first], same=False, n_jobs=jobs)
        return np.asarray(first[found][q_place])
    second = _second_index(place, len(first))
    # A row that has a copy is zero away from it, and needs no search.
    answer = np.where(first[place] == np.arange(len(base)), second[place], first[place])
    lonely = answer < 0
    if lonely.any() and len(first) > 1:
        found = _search(base[first], base[first], same=True, n_jobs=jobs)
        answer[lonely] = first[found][place[lonely]]
    return np.asarray(answer)
