"""Aggregates of real and synthetic tables from which no real row can be read.

The report may be shared, so it shows aggregates only:

* a bin or category with fewer than `MIN_COUNT` real rows is merged with others;
* bins end at round numbers and the outer bins are open, so that no axis shows the
  minimum or maximum of a column;
* a category is named only if at least `MIN_COUNT` real rows have it;
* joint counts and densities are blank where there are fewer than `MIN_COUNT` rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.ndimage import gaussian_filter
from scipy.spatial.distance import squareform

from augmask.evaluation.alpha_beta import as_points
from augmask.evaluation.references import mean_mode_fill
from augmask.evaluation.tables import Codes, Floats, Frames, level_codes, numbers
from augmask.missing.describe import Missingness, describe
from augmask.missing.gap import Gap, factorization_gap

MIN_COUNT = 5
# Marginals: bins of a number, bars of a category, letters of a label.
BINS = 36
BARS = 9
LABEL = 22
# Share of rows in each of the outer bins, unless that is fewer than MIN_COUNT.
TAIL = 0.005
# Integers get a bin each up to this range.
INTEGER_BINS = 40
DAY = 86_400.0
# The map of missing values has at most this many bands of rows.
BANDS = 120
# Dependence: bins and categories of Cramér's V, rows that a pair needs.
QUANTILE_BINS = 8
LEVELS = 12
MIN_PAIR_ROWS = 30
JOINT_BINS = 12
JOINT_LEVELS = 8
MIN_NAMED = 3
# Projection: cells of the grid, bandwidth, share of rows cut off at each end.
GRID = 64
BANDWIDTH = 2.0
CUT_OFF = 0.005


def short(text: Any, most: int = LABEL) -> str:
    """Return a text cut to at most `most` characters.

    Examples
    --------
    >>> short("not elsewhere classified", 14)
    'not elsewhere…'
    """
    plain = " ".join(str(text).split())
    return plain if len(plain) <= most else plain[: most - 1].rstrip() + "…"


def safe_share(share: float, rows: int) -> tuple[float, bool]:
    """Return a share of rows, and whether it was raised to hide a count under 5.

    Examples
    --------
    >>> safe_share(0.01, 100), safe_share(0.2, 100), safe_share(0.0, 100)
    ((0.05, True), (0.2, False), (0.0, False))
    """
    if 0 < round(share * rows) < MIN_COUNT:
        return min(1.0, MIN_COUNT / rows), True
    return share, False


@dataclass(frozen=True, eq=False)
class Histogram:
    """Shares of rows of several tables in common bins.

    `edges` are days since 1970 if `dates`; `integer` if the first table has integers.
    """

    edges: Floats
    shares: Mapping[str, Floats]
    dates: bool = False
    integer: bool = False


@dataclass(frozen=True, eq=False)
class Bars:
    """Shares of rows of several tables by category, the most frequent first."""

    labels: tuple[str, ...]
    shares: Mapping[str, Floats]


def _round_step(width: float, integer: bool) -> float:
    """Return the next round number of at least `width`."""
    power = 10.0 ** math.floor(math.log10(width))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= width * 0.999)
    return max(1.0, math.ceil(step)) if integer else step


def _is_integer(values: Floats) -> bool:
    finite = values[np.isfinite(values)]
    return bool((finite == np.round(finite)).all())


def round_edges(values: Floats, bins: int = BINS) -> Floats | None:
    """Return about `bins` + 1 round edges around the bulk of the values.

    None if there are too few values to show.

    Examples
    --------
    >>> round_edges(np.append(np.linspace(0.3, 9.8, 1000), 1e6), bins=5)
    array([ 0.,  2.,  4.,  6.,  8., 10.])
    """
    values = np.sort(values[np.isfinite(values)])
    n = len(values)
    if n < 2 * MIN_COUNT:
        return None
    k = max(MIN_COUNT, math.ceil(TAIL * n))
    low, high = float(values[k - 1]), float(values[n - k])
    integer = _is_integer(values)
    if low == high:
        # Nearly all values are equal: one bin for them, and one on either side.
        half = 0.5 if integer else 0.5 * _round_step(abs(low) or 1.0, False)
        return np.array([low - 3 * half, low - half, low + half, low + 3 * half])
    one_each = integer and high - low < INTEGER_BINS and bins == BINS
    step = _round_step((high - low) / (INTEGER_BINS if one_each else bins), integer)
    first, last = math.floor(low / step), math.ceil(high / step)
    # Half a unit lower, so that integers lie inside a bin and not on its edge.
    shift = 0.5 if integer else 0.0
    last += int(integer or last == first)
    return np.asarray(np.arange(first, last + 1) * step - shift, dtype=np.float64)


def merge_small(counts: Codes) -> list[int]:
    """Return starts of merged bins, none with 1 to 4 rows, and the end.

    Examples
    --------
    >>> merge_small(np.array([9, 2, 0, 4, 0, 0, 3]))
    [0, 1, 7]
    """
    starts, pending = [0], 0
    for i, count in enumerate(counts):
        pending += int(count)
        if pending == 0 or pending >= MIN_COUNT:
            starts.append(i + 1)
            pending = 0
    if pending:
        # The remainder joins bins to its left until there is enough of it.
        while len(starts) > 1 and pending < MIN_COUNT:
            pending += int(counts[starts[-2] : starts[-1]].sum())
            starts.pop()
        starts.append(len(counts))
    return starts


def bin_codes(values: Floats, edges: Floats) -> Codes:
    """Return the bin of every value, outer bins open; -1 for missing values."""
    codes = np.clip(np.digitize(values, edges) - 1, 0, len(edges) - 2)
    return np.asarray(np.where(np.isnan(values), -1, codes), dtype=np.int64)


def _count(codes: Codes, n: int) -> Codes:
    return np.bincount(codes[codes >= 0], minlength=n)


def _shares(counts: Codes) -> Floats:
    return np.asarray(counts / max(int(counts.sum()), 1), dtype=np.float64)


def floats(tables: Frames, column: str) -> tuple[list[Floats], bool]:
    """Return a numeric column of each table, NaN if missing, and whether it is a date.

    Dates are in days since 1970.
    """
    dtype = next(iter(tables.values()))[column].dtype
    dates = isinstance(dtype, pd.DatetimeTZDtype) or dtype.kind == "M"
    values = numbers(tables, column, allow_missing=True)
    return [v / DAY for v in values] if dates else values, dates


def histogram(tables: Frames, column: str) -> Histogram | None:
    """Return a numeric column of several tables in bins chosen for the first.

    Missing values are ignored. None if the first table has too few values.

    Examples
    --------
    >>> real = pd.DataFrame({"x": [1.0] * 50 + [2.0] * 50 + [977.0]})
    >>> bins = histogram({"real": real}, "x")
    >>> bool(bins.edges.max() < 10), bins.shares["real"].round(2).tolist()
    (True, [0.5, 0.5])
    """
    values, dates = floats(tables, column)
    edges = round_edges(values[0])
    if edges is None:
        return None
    counts = [_count(bin_codes(v, edges), len(edges) - 1) for v in values]
    starts = merge_small(counts[0])
    sums = [np.add.reduceat(c, starts[:-1]) for c in counts]
    shares = {name: _shares(c) for name, c in zip(tables, sums, strict=True)}
    return Histogram(edges[starts], shares, dates, _is_integer(values[0]))


def frequent_levels(
    tables: Frames, column: str, most: int
) -> tuple[list[Codes], list[str], int]:
    """Return category codes with rare levels merged, names, and how many are named.

    Levels that the first table lacks come last, merged into one. -1 if missing.
    """
    codes, levels, n_first = level_codes(tables, column, allow_missing=True)
    counts = _count(codes[0], len(levels))
    order = np.argsort(-counts[:n_first], kind="stable")
    named = [int(k) for k in order if counts[k] >= MIN_COUNT][:most]
    if len(named) == most < n_first:
        named = named[:-1]
    rest = [k for k in range(n_first) if k not in set(named)]
    # The rest together must not be 1 to 4 rows either.
    while named and 0 < counts[rest].sum() < MIN_COUNT:
        rest.append(named.pop())
    translate = np.full(len(levels) + 1, -1, dtype=np.int64)
    translate[named] = np.arange(len(named))
    names = [short(levels[k]) for k in named]
    if rest:
        translate[rest] = len(names)
        names.append(f"{len(rest)} other level{'s' if len(rest) > 1 else ''}")
    unseen = np.arange(n_first, len(levels))
    if len(unseen):
        translate[unseen] = len(names)
        names.append("not in the real table")
    return [translate[c] for c in codes], names, len(named)


def bars(tables: Frames, column: str) -> Bars | None:
    """Return a categorical column of several tables, rare levels merged.

    None if the first table has too few values.

    Examples
    --------
    >>> real = pd.DataFrame({"x": ["a"] * 12 + ["b"] * 6 + ["Zaphod", "Zenobia"]})
    >>> bars({"real": real}, "x").labels
    ('a', '3 other levels')
    """
    codes, names, _ = frequent_levels(tables, column, BARS)
    counts = [_count(c, len(names)) for c in codes]
    if counts[0].sum() < MIN_COUNT:
        return None
    shares = {name: _shares(c) for name, c in zip(tables, counts, strict=True)}
    return Bars(tuple(names), shares)


@dataclass(frozen=True, eq=False)
class MissingPatterns:
    """Missing values of the real table.

    `bands` [bands, columns] are shares of missing values in bands of at least 5 rows
    with similar patterns, for the columns `names`, the most incomplete first.
    `patterns` are columns missing together with the number of rows; rare ones are left
    out and counted in `other_rows`.
    """

    summary: Missingness
    gap: Gap
    bands: Floats
    names: tuple[str, ...]
    patterns: list[tuple[tuple[str, ...], int]]
    other_rows: int


def _bands(missing: npt.NDArray[np.bool_]) -> Floats:
    """Return shares of missing values in bands of rows with similar patterns."""
    n = len(missing)
    ordered = missing[np.lexsort([*missing.T[::-1], missing.sum(axis=1)])]
    count = max(1, min(BANDS, n // MIN_COUNT))
    starts = np.linspace(0, n, count + 1).astype(np.int64)
    sums = np.add.reduceat(ordered, starts[:-1], axis=0, dtype=np.float64)
    return np.asarray(sums / np.diff(starts)[:, None], dtype=np.float64)


def missing_patterns(real: pd.DataFrame) -> MissingPatterns:
    """Return where the values of a table are missing."""
    summary = describe(real)
    names = summary.column_rates.sort_values(ascending=False, kind="stable").index
    patterns = [
        (tuple(map(str, columns)), count)
        for columns, count in summary.patterns
        if count >= MIN_COUNT
    ]
    return MissingPatterns(
        summary,
        factorization_gap(real),
        _bands(real[names].isna().to_numpy()),
        tuple(map(str, names)),
        patterns,
        len(real) - sum(count for _, count in patterns),
    )


@dataclass(frozen=True, eq=False)
class Dependence:
    """Dependence between all columns in both tables, similar columns side by side."""

    names: tuple[str, ...]
    real: Floats
    synthetic: Floats

    @property
    def largest_difference(self) -> float:
        """Largest absolute difference over pairs."""
        return float(np.nanmax(np.abs(self.synthetic - self.real)))


def _cramers_v(a: Codes, b: Codes, n_a: int, n_b: int) -> float:
    """Return bias-corrected Cramér's V (Bergsma, 2013)."""
    both = (a >= 0) & (b >= 0)
    n = int(both.sum())
    if n < MIN_PAIR_ROWS:
        return np.nan
    table = np.bincount(a[both] * n_b + b[both], minlength=n_a * n_b)
    table = table.reshape(n_a, n_b).astype(np.float64)
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    r, k = int((rows > 0).sum()), int((columns > 0).sum())
    if min(r, k) < 2:
        return 0.0
    expected = np.outer(rows, columns) / n
    chi2 = float(((table - expected) ** 2 / np.where(expected > 0, expected, 1)).sum())
    excess = max(0.0, chi2 / n - (r - 1) * (k - 1) / (n - 1))
    r_corrected = r - (r - 1) ** 2 / (n - 1)
    k_corrected = k - (k - 1) ** 2 / (n - 1)
    return float(np.sqrt(excess / max(min(r_corrected, k_corrected) - 1, 1e-9)))


def _cluster_order(real: Floats) -> Codes:
    """Return an order that puts dependent columns side by side."""
    n = len(real)
    if n < 3:
        return np.arange(n)
    distance = 1 - np.clip(np.abs(np.nan_to_num(real)), 0, 1)
    np.fill_diagonal(distance, 0.0)
    condensed = squareform(distance, checks=False)
    tree = linkage(condensed, "average", optimal_ordering=n < 80)
    return np.asarray(leaves_list(tree), dtype=np.int64)


def dependence(
    tables: Frames, numeric: Sequence[str], categorical: Sequence[str]
) -> Dependence:
    """Return the dependence of all pairs in a real and a synthetic table.

    Pearson's correlation for two numbers, Cramér's V of binned columns for any other
    pair, both on the rows where both values are observed.
    """
    names = [*numeric, *categorical]
    codes: list[list[Codes]] = []
    sizes: list[int] = []
    columns: dict[str, list[Floats]] = {}
    for name in numeric:
        columns[name], _ = floats(tables, name)
        observed = columns[name][0][~np.isnan(columns[name][0])]
        cuts = np.quantile(observed, np.arange(1, QUANTILE_BINS) / QUANTILE_BINS)
        edges = np.concatenate([[-np.inf], np.unique(cuts), [np.inf]])
        codes.append([bin_codes(v, edges) for v in columns[name]])
        sizes.append(len(edges) - 1)
    for name in categorical:
        level, labels, _ = frequent_levels(tables, name, LEVELS)
        codes.append(level)
        sizes.append(len(labels))
    matrices = []
    for t in range(2):
        matrix = np.eye(len(names))
        if numeric:
            # A constant column has no correlation; 0, as in Trend.
            frame = pd.DataFrame({name: columns[name][t] for name in numeric})
            known = frame.notna().to_numpy(dtype=np.float64)
            rho = frame.corr(min_periods=2).fillna(0.0).to_numpy()
            rho = np.where(known.T @ known < MIN_PAIR_ROWS, np.nan, rho)
            matrix[: len(numeric), : len(numeric)] = rho
        for i, j in combinations(range(len(names)), 2):
            if j >= len(numeric):
                v = _cramers_v(codes[i][t], codes[j][t], sizes[i], sizes[j])
                matrix[i, j] = matrix[j, i] = v
        np.fill_diagonal(matrix, 1.0)
        matrices.append(matrix)
    order = _cluster_order(matrices[0])
    real, synthetic = (m[np.ix_(order, order)] for m in matrices)
    return Dependence(tuple(names[k] for k in order), real, synthetic)


@dataclass(frozen=True)
class Axis:
    """One side of a joint count: bins of a number, or levels of a category."""

    name: str
    edges: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    dates: bool = False

    @property
    def size(self) -> int:
        """Number of bins or levels."""
        return len(self.labels) or len(self.edges) - 1


@dataclass(frozen=True, eq=False)
class Joint:
    """Joint shares of two columns in both tables; NaN where they are hidden."""

    first: Axis
    second: Axis
    score: float
    real: Floats
    synthetic: Floats


def _axis(
    tables: Frames, name: str, numeric: Sequence[str]
) -> tuple[Axis, list[Codes]] | None:
    if name not in numeric:
        codes, labels, n_named = frequent_levels(tables, name, JOINT_LEVELS)
        if n_named >= MIN_NAMED:
            # The merged levels would dominate the colour scale.
            codes = [np.where(c < n_named, c, -1) for c in codes]
            labels = labels[:n_named]
        return Axis(name, labels=tuple(labels)), codes
    values, dates = floats(tables, name)
    edges = round_edges(values[0], JOINT_BINS)
    if edges is None:
        return None
    codes = [bin_codes(v, edges) for v in values]
    return Axis(name, edges=tuple(edges), dates=dates), codes


def joint(
    tables: Frames, first: str, second: str, score: float, numeric: Sequence[str]
) -> Joint | None:
    """Return the joint shares of a pair; None if too few rows have both values."""
    axes = [_axis(tables, name, numeric) for name in (first, second)]
    if axes[0] is None or axes[1] is None:
        return None
    (a, a_codes), (b, b_codes) = axes[0], axes[1]
    shares = []
    for x, y in zip(a_codes, b_codes, strict=True):
        both = (x >= 0) & (y >= 0)
        if both.sum() < MIN_PAIR_ROWS:
            return None
        counts = np.bincount(x[both] * b.size + y[both], minlength=a.size * b.size)
        visible = np.where(counts < MIN_COUNT, np.nan, counts / both.sum())
        shares.append(visible.reshape(a.size, b.size))
    return Joint(a, b, score, shares[0], shares[1])


@dataclass(frozen=True, eq=False)
class Projection:
    """Smoothed densities [GRID, GRID] of all rows on two principal axes.

    `iou` is the overlap of synthetic and real rows, `reference` that of real and other
    real rows, `explained` the share of variance, `filled` whether values were missing.
    """

    real: Floats
    synthetic: Floats
    iou: float
    reference: float
    explained: float
    filled: bool


def _principal_axes(x: Floats) -> tuple[Floats, Floats, float]:
    """Return centre, two principal axes and the share of variance they explain."""
    centre = x.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(x, rowvar=False).reshape(2 * (x.shape[1],)))
    axes = vectors[:, ::-1][:, :2]
    # The sign of an axis is arbitrary; fix it so that figures are reproducible.
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1, 1)
    total = values.sum()
    return centre, axes, float(values[-2:].sum() / total) if total > 0 else 1.0


def smooth_counts(points: Floats, low: Floats, high: Floats) -> Floats:
    """Return smoothed counts per cell of the grid."""
    bounds = [(a, b) for a, b in zip(low, high, strict=True)]
    counts, _, _ = np.histogram2d(points[:, 1], points[:, 0], GRID, bounds[::-1])
    return np.asarray(gaussian_filter(counts, BANDWIDTH, mode="constant"))


def overlap(a: Floats, b: Floats) -> float:
    """Return the intersection over union (IoU) of two densities, each normalised.

    Examples
    --------
    >>> overlap(np.array([2.0, 2.0, 0.0]), np.array([0.0, 1.0, 1.0]))
    0.3333333333333333
    """
    p, q = a / max(a.sum(), 1e-12), b / max(b.sum(), 1e-12)
    return float(np.minimum(p, q).sum() / np.maximum(p, q).sum())


def hide_sparse(density: Floats) -> Floats:
    """Return the normalised density, 0 where fewer than MIN_COUNT rows are near."""
    # A single row leaves this much in the cell that it falls into.
    single = 1 / (2 * np.pi * BANDWIDTH**2)
    shares = density / max(density.sum(), 1e-12)
    return np.where(density < MIN_COUNT * single, 0.0, shares)


def _fill_both(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    numeric: Sequence[str],
    categorical: Sequence[str],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Fill missing values of both tables with means and modes of the real one."""
    names = [*numeric, *categorical]
    both = pd.concat([real[names], synthetic[names]], ignore_index=True)
    complete = mean_mode_fill(real, numeric, categorical)
    missing = real[names].isna()
    for name in names:
        if missing[name].any():
            value = complete[name][missing[name].to_numpy()].iloc[0]
            column = both[name]
            if name in numeric and column.dtype.kind not in "mM":
                column = column.astype(np.float64)
            both[name] = column.fillna(value)
    return both.iloc[: len(real)], both.iloc[len(real) :]


def project(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    numeric: Sequence[str],
    categorical: Sequence[str],
    rng: np.random.Generator,
) -> Projection | None:
    """Project rows, encoded as for α-precision, on the real table's principal axes.

    Two random halves of the real table give the reference overlap. The synthetic table
    is compared with one of these halves on as many rows, so that both overlaps have the
    same sampling noise. None if there are not two dimensions or too few rows.
    """
    filled = bool(real[[*numeric, *categorical]].isna().any(axis=None))
    if filled:
        real, synthetic = _fill_both(real, synthetic, numeric, categorical)
    frames = {"real": real, "synthetic": synthetic}
    x, s = as_points(frames, numeric, categorical)
    half = min(len(x) // 2, len(s))
    if x.shape[1] < 2 or half < 2 * MIN_COUNT or np.ptp(x, axis=0).max() == 0:
        return None
    centre, axes, explained = _principal_axes(x)
    x, s = (x - centre) @ axes, (s - centre) @ axes
    ends = [np.quantile(np.vstack([x, s]), q, axis=0) for q in (CUT_OFF, 1 - CUT_OFF)]
    margin = 0.06 * (ends[1] - ends[0]) + 1e-9
    low, high = ends[0] - margin, ends[1] + margin
    order = rng.permutation(len(x))
    a, b = x[order[:half]], x[order[half : 2 * half]]
    c = s[rng.choice(len(s), half, replace=False)]
    first, other, sampled = (smooth_counts(points, low, high) for points in (a, b, c))
    return Projection(
        real=hide_sparse(smooth_counts(x, low, high)),
        synthetic=hide_sparse(smooth_counts(s, low, high)),
        iou=overlap(first, sampled),
        reference=overlap(first, other),
        explained=explained,
        filled=filled,
    )
