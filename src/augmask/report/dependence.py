"""How columns hang together: one matrix per table, and joint counts of a pair.

Two numbers: Pearson's correlation. Any other pair: Cramér's V of the binned columns,
corrected for chance. Every pair is measured on the rows that show both cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from augmask.evaluation.columns import Codes, Floats, Frames, numbers
from augmask.report.counts import (
    DAY,
    FEWEST,
    frequent,
    in_bins,
    is_date,
    round_edges,
)

QUANTILE_BINS = 8
LEVELS = 12
# Fewer rows than this that show both cells say nothing about a pair.
FEWEST_ROWS = 30
JOINT_BINS = 12
JOINT_LEVELS = 8
NAMED_ENOUGH = 3


@dataclass(frozen=True, eq=False)
class Dependence:
    """Dependence between all columns in both tables, like columns side by side."""

    names: tuple[str, ...]
    real: Floats
    synthetic: Floats


@dataclass(frozen=True)
class Axis:
    """One side of a joint count: round edges of a number, or names of levels."""

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
    """Shares of rows of both tables in the cells of a pair; NaN where it is hidden."""

    first: Axis
    second: Axis
    score: float
    real: Floats
    synthetic: Floats


def _cramer(a: Codes, b: Codes, n_a: int, n_b: int) -> float:
    """Return Cramér's V, less what independent columns would show by chance."""
    both = (a >= 0) & (b >= 0)
    n = int(both.sum())
    if n < FEWEST_ROWS:
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
    r_fair = r - (r - 1) ** 2 / (n - 1)
    k_fair = k - (k - 1) ** 2 / (n - 1)
    return float(np.sqrt(excess / max(min(r_fair, k_fair) - 1, 1e-9)))


def _order(real: Floats) -> Codes:
    """Return an order that puts columns that hang together side by side."""
    n = len(real)
    if n < 3:
        return np.arange(n)
    apart = 1 - np.clip(np.abs(np.nan_to_num(real)), 0, 1)
    np.fill_diagonal(apart, 0.0)
    tree = linkage(squareform(apart, checks=False), "average", optimal_ordering=n < 80)
    return np.asarray(leaves_list(tree), dtype=np.int64)


def dependence(
    tables: Frames, numeric: Sequence[str], categorical: Sequence[str]
) -> Dependence:
    """Return the dependence of all pairs in a real and a synthetic table.

    Examples
    --------
    >>> x = np.arange(100.0)
    >>> real = pd.DataFrame({"x": x, "y": -x, "z": np.where(x > 49, "a", "b")})
    >>> found = dependence({"real": real, "synthetic": real}, ["x", "y"], ["z"])
    >>> i, j, k = (found.names.index(name) for name in "xyz")
    >>> round(float(found.real[i, j]), 2), round(float(found.real[i, k]), 1)
    (-1.0, 1.0)
    """
    names = [*numeric, *categorical]
    codes: list[list[Codes]] = []
    sizes: list[int] = []
    columns: dict[str, list[Floats]] = {}
    for name in numeric:
        columns[name] = numbers(tables, name, holes=True)
        known = columns[name][0][~np.isnan(columns[name][0])]
        cuts = np.unique(
            np.quantile(known, np.arange(1, QUANTILE_BINS) / QUANTILE_BINS)
        )
        edges = np.concatenate([[-np.inf], cuts, [np.inf]])
        codes.append([in_bins(v, edges) for v in columns[name]])
        sizes.append(len(edges) - 1)
    for name in categorical:
        coded, labels, _ = frequent(tables, name, LEVELS)
        codes.append(coded)
        sizes.append(len(labels))
    matrices = []
    for t in range(2):
        matrix = np.eye(len(names))
        if numeric:
            # A constant column has no correlation; 0, as in Trend.
            frame = pd.DataFrame({name: columns[name][t] for name in numeric})
            known = frame.notna().to_numpy(dtype=np.float64)
            rho = frame.corr(min_periods=2).fillna(0.0).to_numpy()
            rho = np.where(known.T @ known < FEWEST_ROWS, np.nan, rho)
            matrix[: len(numeric), : len(numeric)] = rho
        for i, j in combinations(range(len(names)), 2):
            if j >= len(numeric):
                v = _cramer(codes[i][t], codes[j][t], sizes[i], sizes[j])
                matrix[i, j] = matrix[j, i] = v
        np.fill_diagonal(matrix, 1.0)
        matrices.append(matrix)
    order = _order(matrices[0])
    real, synthetic = (m[np.ix_(order, order)] for m in matrices)
    return Dependence(tuple(names[k] for k in order), real, synthetic)


def _axis(
    tables: Frames, name: str, numeric: Sequence[str]
) -> tuple[Axis, list[Codes]] | None:
    if name not in numeric:
        codes, labels, n_named = frequent(tables, name, JOINT_LEVELS)
        if n_named >= NAMED_ENOUGH:
            # All other levels together would outshine the ones that can be named.
            codes = [np.where(c < n_named, c, -1) for c in codes]
            labels = labels[:n_named]
        return Axis(name, labels=tuple(labels)), codes
    values = numbers(tables, name, holes=True)
    dates = is_date(tables["real"][name])
    values = [v / DAY for v in values] if dates else values
    edges = round_edges(values[0], JOINT_BINS)
    if edges is None:
        return None
    return Axis(name, edges=tuple(edges), dates=dates), [
        in_bins(v, edges) for v in values
    ]


def joint(
    tables: Frames, first: str, second: str, score: float, numeric: Sequence[str]
) -> Joint | None:
    """Return the joint shares of a pair; cells under FEWEST rows are hidden.

    None when too few rows show both.
    """
    found = [_axis(tables, name, numeric) for name in (first, second)]
    if found[0] is None or found[1] is None:
        return None
    (a, a_codes), (b, b_codes) = found[0], found[1]
    shares = []
    for x, y in zip(a_codes, b_codes, strict=True):
        both = (x >= 0) & (y >= 0)
        if both.sum() < FEWEST_ROWS:
            return None
        counts = np.bincount(x[both] * b.size + y[both], minlength=a.size * b.size)
        shown = np.where(counts < FEWEST, np.nan, counts / both.sum())
        shares.append(shown.reshape(a.size, b.size))
    return Joint(a, b, score, shares[0], shares[1])
