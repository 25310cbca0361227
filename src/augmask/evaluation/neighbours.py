"""Exact nearest rows, by Euclidean and by Gower distance.

Both searches try all pairs of rows in two steps. A fast pass with a known rounding
error picks candidates, every row within that error of the smallest value; those few are
measured again in float64, so that ties, which are common in tables, are exact.

* Euclidean: a float64 matrix product gives |y|² - 2 x·y, the squared distance up to a
  constant of the query.
* Gower: the mean over columns of min(|x - y|, 1) for numbers in units of the real range
  and of 0 or 1 for equal or different categories. A row of the base table may have
  missing values: its mean covers the cells that it has. |x - y| = 2 max(x, y) - x - y
  makes it one float32 pass per column and a small matrix product, in tiles that fit the
  cache.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from augmask.evaluation.tables import Codes, Floats, Frames, level_codes, numbers

Float32s = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

# Products of 16 MiB: large enough for the matrix library, small enough for the cache.
BLOCK_CELLS = 1 << 21
# Candidates measured again at a time; bounds the memory that many ties can take.
BLOCK_CANDIDATES = 1 << 16
UNIT_ROUNDOFF = 2.0**-53
# Tiles of half a MiB in float32: two of them fit a core's own cache.
TILE_QUERIES, TILE_BASE = 128, 1024
UNIT_ROUNDOFF32 = 2.0**-24
# Equal distances are ties even when their parts were added in another order.
DECIMALS = 13


def distances(a: Floats, b: Floats) -> Floats:
    """Return the Euclidean distance between each row of `a` and the same row of `b`.

    `coverage` computes every distance with it, so that equal differences give equal
    floats and `<=` is exact.
    """
    return np.asarray(np.sqrt(np.square(a - b).sum(axis=1)), dtype=np.float64)


def _distinct_rows(rows: Floats) -> tuple[Codes, Codes]:
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
    """Return the second index of each distinct row, -1 if it occurs once."""
    by_place = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[by_place], np.arange(n_distinct))
    repeated = np.bincount(place, minlength=n_distinct) > 1
    second = np.full(n_distinct, -1)
    second[repeated] = by_place[starts[repeated] + 1]
    return second


def _exact_nearest(queries: Floats, base: Floats, rows: Codes, columns: Codes) -> Codes:
    """Return the exactly nearest column of every row among (row, column) candidates."""
    answer = np.zeros(len(queries), dtype=np.int64)
    best = np.full(len(queries), np.inf)
    alone = np.bincount(rows, minlength=len(queries))[rows] == 1
    answer[rows[alone]] = columns[alone]
    rows, columns = rows[~alone], columns[~alone]
    for start in range(0, len(rows), BLOCK_CANDIDATES):
        part = slice(start, start + BLOCK_CANDIDATES)
        r, c = rows[part], columns[part]
        exact = distances(queries[r], base[c])
        # Candidates come in index order: the first of a tie is the lowest.
        nearest = np.lexsort((c, exact, r))
        leading = nearest[np.unique(r[nearest], return_index=True)[1]]
        better = leading[exact[leading] < best[r[leading]]]
        best[r[better]], answer[r[better]] = exact[better], c[better]
    return answer


def _search(queries: Floats, base: Floats, same: bool, n_jobs: int) -> Codes:
    """Return the nearest row of `base` for each query; both hold distinct rows.

    With `same`, `queries` is `base` and no row is its own neighbour.
    """
    # Centring makes the norms small, and rounding error grows with them.
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
    # Bounds the rounding of a sum of p + 1 products, of its terms, and of the exact
    # distance.
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
        return _exact_nearest(queries[part], base, rows, keep[columns])

    # One thread per block rather than threads inside the product: the passes over its
    # result, which take as long, then run in parallel too.
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
        Set when `queries` is `base`: row i is then not its own neighbour, but another
        row equal to it may be.
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
    first, place = _distinct_rows(base)
    if not skip_self:
        q_first, q_place = _distinct_rows(queries)
        nearest = _search(queries[q_first], base[first], same=False, n_jobs=jobs)
        return np.asarray(first[nearest][q_place])
    second = _second_index(place, len(first))
    # A row with a copy has distance 0 to it and needs no search.
    answer = np.where(first[place] == np.arange(len(base)), second[place], first[place])
    unique = answer < 0
    if unique.any() and len(first) > 1:
        nearest = _search(base[first], base[first], same=True, n_jobs=jobs)
        answer[unique] = first[nearest][place[unique]]
    return np.asarray(answer)


@dataclass(frozen=True, eq=False)
class Points:
    """Rows to compute Gower distances between.

    Parameters
    ----------
    num : float array [n, a]
        Numbers in units of the real range, real rows within 0..1; 0 where missing.
    cat : int array [n, b]
        Level codes that agree between tables; -1 where missing.
    observed : bool array [n, a + b]
        Which cells a row has.
    """

    num: Floats
    cat: Codes
    observed: Bools

    def __len__(self) -> int:
        return len(self.num)

    def take(self, rows: Codes | slice) -> Points:
        """Return a selection of rows."""
        return Points(self.num[rows], self.cat[rows], self.observed[rows])

    def hide(self, observed: Bools) -> Points:
        """Return the rows with all cells missing where `observed` is False."""
        both = self.observed & observed
        a = self.num.shape[1]
        num = np.where(both[:, :a], self.num, 0.0)
        return Points(num, np.where(both[:, a:], self.cat, -1), both)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Distances to the nearest rows, in both directions.

    Parameters
    ----------
    first, second : float array [n queries]
        Distance of each query to the nearest and second nearest base row.
    index : int array [n queries]
        A nearest base row.
    back : float array [n base]
        Distance of each base row to the nearest query.
    """

    first: Floats
    second: Floats
    index: Codes
    back: Floats


def gower_points(
    tables: Frames, numeric: Sequence[str], categorical: Sequence[str], real: set[str]
) -> list[Points]:
    """Return each table as points; the tables named in `real` set the ranges.

    Examples
    --------
    >>> import pandas as pd
    >>> tables = {"a": pd.DataFrame({"x": [10, 30]}), "b": pd.DataFrame({"x": [40]})}
    >>> [points.num.tolist() for points in gower_points(tables, ["x"], [], {"a"})]
    [[[0.0], [1.0]], [[1.5]]]
    """
    num: list[list[Floats]] = []
    cat: list[list[Codes]] = []
    for name in numeric:
        columns = numbers(tables, name, allow_missing=True)
        ranged = [v for label, v in zip(tables, columns, strict=True) if label in real]
        values = np.concatenate(ranged)
        values = values[~np.isnan(values)]
        low = values.min() if values.size else 0.0
        width = (float(np.ptp(values)) if values.size else 0.0) or 1.0
        num.append([(v - low) / width for v in columns])
    for name in categorical:
        cat.append(level_codes(tables, name, allow_missing=True)[0])
    points = []
    for i, frame in enumerate(tables.values()):
        shape = len(frame), 0
        x = np.stack([c[i] for c in num], axis=1) if num else np.zeros(shape)
        k = np.stack([c[i] for c in cat], axis=1) if cat else np.zeros(shape, np.int64)
        observed = np.hstack([~np.isnan(x), k >= 0])
        points.append(Points(np.nan_to_num(x, nan=0.0), k, observed))
    return points


def gower(a: Points, b: Points) -> Floats:
    """Return the distance between each row of `a` and the same row of `b`.

    Rows of `a` are complete; only the observed cells of `b` count.

    Examples
    --------
    >>> observed = np.ones((1, 2), bool)
    >>> a = Points(np.array([[0.25]]), np.array([[0]]), observed)
    >>> b = Points(np.array([[0.75]]), np.array([[1]]), observed)
    >>> gower(a, b).tolist()
    [0.75]
    >>> gower(a, b.hide(np.array([[True, False]]))).tolist()
    [0.5]
    """
    gaps = np.hstack([np.minimum(np.abs(a.num - b.num), 1.0), a.cat != b.cat])
    total = np.where(b.observed, gaps, 0.0).sum(axis=1)
    return np.asarray(np.round(total / b.observed.sum(axis=1), DECIMALS))


def _distinct_points(points: Points) -> tuple[Codes, Codes, Codes]:
    """Return an index of each distinct row, every row's place among them, and counts.

    Copies tie with each other, and every tie would have to be measured again.
    """
    cells = np.hstack([points.num, points.cat, points.observed])
    _, first, place, counts = np.unique(
        cells, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    return first, place.ravel(), counts


class _Tile:
    """A block of base rows, prepared for the fast pass against chunks of queries."""

    def __init__(self, queries: Points, base: Points, clipped: Bools) -> None:
        a = queries.num.shape[1]
        half = (0.5 * base.num).astype(np.float32)
        self.observed = base.observed[:, :a].astype(np.float32)
        self.clipped = np.flatnonzero(clipped)
        self.plain = np.flatnonzero(~clipped)
        self.half = np.ascontiguousarray(half.T)
        self.full = 2 * self.half
        # -½ x for the cells that a base row lacks, where max(x, 0) let x in, and the
        # terms that are constant in a row of the query and of the base.
        n_cat = base.observed[:, a:].sum(axis=1)
        own = 0.5 * n_cat - half[:, self.plain].sum(axis=1)
        lacking = 1 - self.observed[:, self.plain]
        self.right = np.ascontiguousarray(
            np.column_stack([lacking, np.ones(len(base)), own]).T, dtype=np.float32
        )
        self.scale = (2 / base.observed.sum(axis=1)).astype(np.float32)
        # Row k: which base rows have level k. A missing value never matches.
        self.matches = [
            (np.arange(queried.max() + 1)[:, None] == codes).view(np.uint8)
            for queried, codes in zip(queries.cat.T, base.cat.T, strict=True)
        ]
        shape = TILE_QUERIES, len(base)
        self.total, self.part = np.empty((2, *shape), dtype=np.float32)
        # A byte would overflow beyond 255 columns.
        small = np.uint8 if len(self.matches) < 256 else np.uint16
        self.equal = np.empty(shape, dtype=small)

    def left(self, queries: Points) -> Float32s:
        """Return the factor of `right` for these queries."""
        half = 0.5 * queries.num[:, self.plain]
        columns = [-half, -half.sum(axis=1), np.ones(len(queries))]
        return np.column_stack(columns).astype(np.float32)

    def distances(self, left: Float32s, x: Float32s, codes: Codes) -> Float32s:
        """Return the distances of some queries to all base rows, in float32.

        The next call overwrites the array: allocating one per tile would take longer
        than the sums in it.
        """
        total, part = self.total[: len(x)], self.part[: len(x)]
        np.matmul(left, self.right, out=total)
        for j in self.plain:
            np.maximum(x[:, j, None], self.full[j], out=part)
            total += part
        for j in self.clipped:
            np.subtract(0.5 * x[:, j, None], self.half[j], out=part)
            np.abs(part, out=part)
            np.minimum(part, 0.5, out=part)
            part *= self.observed[:, j]
            total += part
        if self.matches:
            equal = self.equal[: len(x)]
            equal[:] = 0
            for table, column in zip(self.matches, codes.T, strict=True):
                equal += table[column]
            np.multiply(equal, np.float32(0.5), out=part)
            total -= part
        total *= self.scale
        return total


def _two_nearest(
    rows: Codes, columns: Codes, exact: Floats, copies: Codes, n: int
) -> tuple[Floats, Codes]:
    """Return the two smallest distances of rows 0..n - 1, and the column of the first.

    Copies count twice. Infinite where a row has no candidate, or no second one.
    """
    each = np.repeat(np.arange(len(rows)), np.minimum(copies[columns], 2))
    each = each[np.lexsort((exact[each], rows[each]))]
    rank = np.arange(len(each)) - np.searchsorted(rows[each], rows[each])
    nearest, where = np.full((2, n), np.inf), np.zeros(n, dtype=np.int64)
    for k in range(2):
        leading = each[rank == k]
        nearest[k, rows[leading]] = exact[leading]
    leading = each[rank == 0]
    where[rows[leading]] = columns[leading]
    return nearest, where


def _search_tile(
    queries: Points, base: Points, copies: Codes, clipped: Bools, bound: Floats
) -> tuple[Floats, Codes, Floats]:
    """Return the fields of `Neighbours` for the base rows of one tile.

    Distances beyond `bound` of a query may come out as infinite.
    """
    tile = _Tile(queries, base, clipped)
    nearest, index = np.empty((2, len(queries))), np.empty(len(queries), dtype=np.int64)
    back = np.full(len(base), np.inf)
    p = queries.observed.shape[1]
    # Sums of at most p + 8 terms that stay below 2 p, then one product.
    error = np.float32(4 * (p + 8) * p * UNIT_ROUNDOFF32 * tile.scale.max())
    left, x = tile.left(queries), queries.num.astype(np.float32)
    for start in range(0, len(queries), TILE_QUERIES):
        part = slice(start, start + TILE_QUERIES)
        rough = tile.distances(left[part], x[part], queries.cat[part])
        inside = np.arange(len(rough))
        lowest = rough.argmin(axis=1)
        smallest = rough[inside, lowest]
        rough[inside, lowest] = np.inf
        by_query = np.minimum(rough.min(axis=1), bound[part]).astype(np.float32)
        rough[inside, lowest] = smallest
        by_base = np.minimum(rough.min(axis=0), back).astype(np.float32)
        hits = rough <= by_query[:, None] + 2 * error
        hits |= rough <= by_base + 2 * error
        # Ten times faster than np.nonzero of the two-dimensional array.
        rows, columns = np.divmod(np.flatnonzero(hits), len(base))
        exact = gower(queries.take(start + rows), base.take(columns))
        nearest[:, part], index[part] = _two_nearest(
            rows, columns, exact, copies, len(rough)
        )
        np.minimum.at(back, columns, exact)
    return nearest, index, back


def nearest_gower(
    queries: Points, base: Points, n_jobs: int | None = None
) -> Neighbours:
    """Return the Gower distances of nearest rows between two tables.

    Parameters
    ----------
    queries : Points
        Complete rows.
    base : Points
        At least two rows, each with an observed cell; numbers within 0..1.
    n_jobs : int, optional
        Threads; all cores by default. The answer does not depend on it.

    Examples
    --------
    >>> def points(*x):
    ...     n = len(x)
    ...     return Points(
    ...         np.array(x)[:, None], np.zeros((n, 0), int), np.ones((n, 1), bool)
    ...     )
    >>> near = nearest_gower(points(0.5), points(0.0, 0.75, 1.0))
    >>> near.first.tolist(), near.second.tolist(), near.back.tolist()
    ([0.25], [0.5], [0.5, 0.25, 0.5])
    """
    q_first, q_place, _ = _distinct_points(queries)
    b_first, b_place, copies = _distinct_points(base)
    q, b = queries.take(q_first), base.take(b_first)
    # Beyond one range the distance is 1; clip, so that float32 can hold wild values.
    q = Points(np.clip(q.num, -1.0, 2.0), q.cat, q.observed)
    clipped = np.any((q.num < 0) | (q.num > 1), axis=0)

    first, second = np.full((2, len(q)), np.inf)
    index = np.zeros(len(q), dtype=np.int64)
    back = []
    starts = range(0, len(b), TILE_BASE)

    def search(start: int) -> tuple[Floats, Codes, Floats]:
        part = slice(start, start + TILE_BASE)
        # The second nearest so far bounds the candidates of later tiles; a stale value
        # only bounds them less.
        return _search_tile(q, b.take(part), copies[part], clipped, second)

    jobs = n_jobs or os.cpu_count() or 1
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(jobs) as pool:
        for start, ((one, two), where, behind) in zip(
            starts, pool.map(search, starts), strict=True
        ):
            index = np.where(one < first, b_first[start + where], index)
            np.minimum(np.minimum(second, two), np.maximum(first, one), out=second)
            np.minimum(first, one, out=first)
            back.append(behind)
    return Neighbours(
        first[q_place], second[q_place], index[q_place], np.concatenate(back)[b_place]
    )
