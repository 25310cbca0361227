"""Gower distances between tables, and the exact nearest rows under them.

The distance of two rows is the mean over columns of min(|x - y|, 1) for numbers, given
in units of the real range, and of 0 or 1 for equal or different categories. A row of
the base table may have holes: its mean then runs over the cells that it has.

All pairs are tried, in tiles that stay in the cache. |x - y| = 2 max(x, y) - x - y
turns the numbers into one pass per column and a small matrix product, in float32. That
only picks candidates, everything within the proven error of the smallest value; those
few are measured again in float64.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from augmask.evaluation.columns import (
    Codes,
    Floats,
    Frames,
    level_codes,
    numbers,
)

Float32s = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

# Tiles of half a MiB in float32: two of them fit a core's own cache.
TILE_QUERIES, TILE_BASE = 128, 1024
UNIT_ROUNDOFF32 = 2.0**-24
# Equal distances are ties even when their parts were added in another order.
DECIMALS = 13


@dataclass(frozen=True, eq=False)
class Points:
    """Rows that can be measured against each other.

    Parameters
    ----------
    num : float array [n, a]
        Numbers in units of the real range, real rows within 0..1; 0 in a hole.
    cat : int array [n, b]
        Level codes that agree between tables; -1 in a hole.
    observed : bool array [n, a + b]
        Which cells the row has.
    """

    num: Floats
    cat: Codes
    observed: Bools

    def __len__(self) -> int:
        return len(self.num)

    def take(self, rows: Codes | slice) -> Points:
        """Return some rows."""
        return Points(self.num[rows], self.cat[rows], self.observed[rows])

    def hide(self, observed: Bools) -> Points:
        """Return the rows with only those of their cells that `observed` allows.

        Examples
        --------
        >>> one = Points(np.ones((1, 1)), np.ones((1, 1), int), np.ones((1, 2), bool))
        >>> one.hide(np.array([[True, False]])).cat.tolist()
        [[-1]]
        """
        left = self.observed & observed
        a = self.num.shape[1]
        return Points(
            np.where(left[:, :a], self.num, 0.0),
            np.where(left[:, a:], self.cat, -1),
            left,
        )


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Distances to the nearest rows, both ways.

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


def line_up(
    tables: Frames, numeric: Sequence[str], categorical: Sequence[str], real: set[str]
) -> list[Points]:
    """Return each table as points; the tables named in `real` set the ranges.

    Examples
    --------
    >>> import pandas as pd
    >>> tables = {"a": pd.DataFrame({"x": [10, 30]}), "b": pd.DataFrame({"x": [40]})}
    >>> [points.num.tolist() for points in line_up(tables, ["x"], [], {"a"})]
    [[[0.0], [1.0]], [[1.5]]]
    """
    num: list[list[Floats]] = []
    cat: list[list[Codes]] = []
    for name in numeric:
        columns = numbers(tables, name, holes=True)
        seen = [v for label, v in zip(tables, columns, strict=True) if label in real]
        values = np.concatenate(seen)
        values = values[~np.isnan(values)]
        low = values.min() if values.size else 0.0
        width = (float(np.ptp(values)) if values.size else 0.0) or 1.0
        num.append([(v - low) / width for v in columns])
    for name in categorical:
        cat.append(level_codes(tables, name, holes=True)[0])
    found = []
    for i, frame in enumerate(tables.values()):
        shape = len(frame), 0
        x = np.stack([c[i] for c in num], axis=1) if num else np.zeros(shape)
        k = np.stack([c[i] for c in cat], axis=1) if cat else np.zeros(shape, np.int64)
        observed = np.hstack([~np.isnan(x), k >= 0])
        found.append(Points(np.nan_to_num(x, nan=0.0), k, observed))
    return found


def gower(a: Points, b: Points) -> Floats:
    """Return the distance between each row of `a` and the same row of `b`.

    Only cells that the row of `b` has count; rows of `a` are complete.

    Examples
    --------
    >>> whole = np.ones((1, 2), bool)
    >>> a = Points(np.array([[0.25]]), np.array([[0]]), whole)
    >>> b = Points(np.array([[0.75]]), np.array([[1]]), whole)
    >>> gower(a, b).tolist()
    [0.75]
    >>> gower(a, b.hide(np.array([[True, False]]))).tolist()
    [0.5]
    """
    gaps = np.hstack([np.minimum(np.abs(a.num - b.num), 1.0), a.cat != b.cat])
    total = np.where(b.observed, gaps, 0.0).sum(axis=1)
    return np.asarray(np.round(total / b.observed.sum(axis=1), DECIMALS))


def _distinct(points: Points) -> tuple[Codes, Codes, Codes]:
    """Return an index of each distinct row, every row's place among them, and counts.

    Copies tie with each other, and every tie would have to be measured again.
    """
    cells = np.hstack([points.num, points.cat, points.observed])
    _, first, place, counts = np.unique(
        cells, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    return first, place.ravel(), counts


class _Tile:
    """Some base rows, ready for the fast pass against chunks of queries."""

    def __init__(self, queries: Points, base: Points, clipped: Bools) -> None:
        a = queries.num.shape[1]
        half = (0.5 * base.num).astype(np.float32)
        self.seen = base.observed[:, :a].astype(np.float32)
        self.clipped = np.flatnonzero(clipped)
        self.plain = np.flatnonzero(~clipped)
        self.half = np.ascontiguousarray(half.T)
        self.full = 2 * self.half
        # -½ x on the cells that a base row lacks, where max(x, 0) has let x in, and the
        # terms of a whole row: 1 for the query's, the base row's own.
        n_cat = base.observed[:, a:].sum(axis=1)
        own = 0.5 * n_cat - half[:, self.plain].sum(axis=1)
        unseen = 1 - self.seen[:, self.plain]
        self.right = np.ascontiguousarray(
            np.column_stack([unseen, np.ones(len(base)), own]).T, dtype=np.float32
        )
        self.scale = (2 / base.observed.sum(axis=1)).astype(np.float32)
        # Row k: which base rows have level k. A hole has none, so it never matches.
        self.matches = [
            (np.arange(asked.max() + 1)[:, None] == codes).view(np.uint8)
            for asked, codes in zip(queries.cat.T, base.cat.T, strict=True)
        ]
        shape = TILE_QUERIES, len(base)
        self.total, self.part = np.empty((2, *shape), dtype=np.float32)
        # A byte would overflow beyond 255 columns.
        small = np.uint8 if len(self.matches) < 256 else np.uint16
        self.equal = np.empty(shape, dtype=small)

    def left(self, queries: Points) -> Float32s:
        """Return what `right` is multiplied with."""
        half = 0.5 * queries.num[:, self.plain]
        columns = [-half, -half.sum(axis=1), np.ones(len(queries))]
        return np.column_stack(columns).astype(np.float32)

    def distances(self, left: Float32s, x: Float32s, codes: Codes) -> Float32s:
        """Return the distances of some queries to all base rows, in float32.

        The array is overwritten by the next call: fresh memory for every tile would
        take longer than the sums in it.
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
            part *= self.seen[:, j]
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
    rows: Codes, columns: Codes, found: Floats, copies: Codes, n: int
) -> tuple[Floats, Codes]:
    """Return the two smallest of `found` for rows 0..n - 1, and where the first stands.

    Copies count twice. Infinite where a row has no candidate, or no second one.
    """
    each = np.repeat(np.arange(len(rows)), np.minimum(copies[columns], 2))
    each = each[np.lexsort((found[each], rows[each]))]
    rank = np.arange(len(each)) - np.searchsorted(rows[each], rows[each])
    nearest, where = np.full((2, n), np.inf), np.zeros(n, dtype=np.int64)
    for k in range(2):
        leading = each[rank == k]
        nearest[k, rows[leading]] = found[leading]
    leading = each[rank == 0]
    where[rows[leading]] = columns[leading]
    return nearest, where


def _search_tile(
    queries: Points, base: Points, copies: Codes, clipped: Bools, bound: Floats
) -> tuple[Floats, Codes, Floats]:
    """Return first and second, index, and back for the base rows of one tile.

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
        found = gower(queries.take(start + rows), base.take(columns))
        nearest[:, part], index[part] = _two_nearest(
            rows, columns, found, copies, len(rough)
        )
        np.minimum.at(back, columns, found)
    return nearest, index, back


def nearest_gower(
    queries: Points, base: Points, n_jobs: int | None = None
) -> Neighbours:
    """Return the distances of nearest rows between two tables.

    Parameters
    ----------
    queries : Points
        Complete rows.
    base : Points
        At least two rows, each with at least one cell; numbers within 0..1.
    n_jobs : int, optional
        Threads; all cores by default. The answer does not depend on it.

    Examples
    --------
    >>> def points(*x):
    ...     n = len(x)
    ...     return Points(
    ...         np.array(x)[:, None], np.zeros((n, 0), int), np.ones((n, 1), bool)
    ...     )
    >>> found = nearest_gower(points(0.5), points(0.0, 0.75, 1.0))
    >>> found.first.tolist(), found.second.tolist(), found.back.tolist()
    ([0.25], [0.5], [0.5, 0.25, 0.5])
    """
    q_first, q_place, _ = _distinct(queries)
    b_first, b_place, copies = _distinct(base)
    q, b = queries.take(q_first), base.take(b_first)
    # Two ranges away or ten, the distance is 1; float32 need not hold wild values.
    q = Points(np.clip(q.num, -1.0, 2.0), q.cat, q.observed)
    clipped = np.any((q.num < 0) | (q.num > 1), axis=0)

    first, second = np.full((2, len(q)), np.inf)
    index = np.zeros(len(q), dtype=np.int64)
    back = []
    starts = range(0, len(b), TILE_BASE)

    def search(start: int) -> tuple[Floats, Codes, Floats]:
        part = slice(start, start + TILE_BASE)
        # What earlier tiles found spares candidates in later ones. A stale value is
        # only less of a help.
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
