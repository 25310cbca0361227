"""Shape and Trend: how similar single columns, and pairs of columns, are.

Shape averages over columns, the target included:

* numeric: 1 - sup |F_r - F_s|, the two-sample Kolmogorov-Smirnov distance;
* categorical: 1 - TVD, with TVD = 1/2 Σ_ω |R(ω) - S(ω)| over all levels.

Trend averages over all pairs of columns:

* numeric with numeric: 1 - |ρ_r - ρ_s| / 2, Pearson;
* categorical with categorical: 1 - TVD of the joint frequencies;
* numeric with categorical: the same, with the numeric column cut into ten bins.

The paper leaves the last case open, and the field computes it with sdmetrics, which
bins each table by its own range. One outlier then moves every bin, and a perfect
sampler can score below independent columns. `edges="real"` bins both tables by the
range of the real one, with open outer bins, and clips synthetic numbers to that range
before correlating them; use `edges="sdmetrics"` to compare with published numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import DataError, UsageError
from augmask.evaluation.results import Score
from augmask.evaluation.tables import (
    Codes,
    Floats,
    Frames,
    check_tables,
    level_codes,
    numbers,
)

BINS = 10
# Beyond this many cells per row a joint table is mostly empty and is counted sparsely.
DENSE_CELLS_PER_ROW = 4


def _without_float_noise(values: Floats) -> Floats:
    """Round to 14 decimals, so that 0.1 + 0.2 and 0.3 are one value."""
    # Above 100 a float64 has no 14th decimal, and scaling it to round could overflow.
    small = np.abs(values) < 100
    return np.where(small, np.round(np.where(small, values, 0.0), 14), values)


def ks_distance(real: Floats, synthetic: Floats) -> float:
    """Return sup |F_r - F_s|, the two-sample Kolmogorov-Smirnov distance."""
    parts = [np.sort(_without_float_noise(v)) for v in (real, synthetic)]
    both = np.concatenate(parts)
    # Two sorted runs: a stable sort only merges them.
    order = np.argsort(both, kind="stable")
    steps = both[order]
    last = np.flatnonzero(np.append(steps[1:] != steps[:-1], True))
    below_real = np.cumsum(order < len(real))[last]
    below_synthetic = last + 1 - below_real
    gaps = below_real / len(real) - below_synthetic / len(synthetic)
    return float(np.abs(gaps).max())


def tv_distance(real: Codes, synthetic: Codes, n_cells: int) -> float:
    """Return the total-variation distance between two samples of cell codes."""
    if n_cells > DENSE_CELLS_PER_ROW * (len(real) + len(synthetic)):
        cells, inverse = np.unique(
            np.concatenate([real, synthetic]), return_inverse=True
        )
        real, synthetic = inverse[: len(real)], inverse[len(real) :]
        n_cells = len(cells)
    r = np.bincount(real, minlength=n_cells) / len(real)
    s = np.bincount(synthetic, minlength=n_cells) / len(synthetic)
    return float(np.abs(r - s).sum() / 2)


def pearson(columns: Sequence[Floats]) -> Floats:
    """Return the matrix of Pearson correlations, 0 wherever a column is constant."""
    units = []
    for values in columns:
        if values.min() == values.max():
            units.append(np.zeros_like(values))
            continue
        # Divided by the largest value first: squares of huge numbers would overflow.
        scaled = values / np.abs(values).max()
        centred = scaled - scaled.mean()
        units.append(centred / np.linalg.norm(centred))
    stacked = np.stack(units) if units else np.zeros((0, 0))
    return np.asarray(stacked @ stacked.T, dtype=np.float64)


def _pearson_pairwise(columns: Sequence[Floats]) -> Floats:
    """Return Pearson correlations on the rows that show both columns, NaN if none."""
    observed = [~np.isnan(values) for values in columns]
    if all(column.all() for column in observed):
        return pearson(columns)
    # Columns tend to be missing together, so that many pairs share their rows.
    groups: dict[bytes, list[tuple[int, int]]] = {}
    for i, j in combinations(range(len(columns)), 2):
        groups.setdefault((observed[i] & observed[j]).tobytes(), []).append((i, j))
    rho = np.full((len(columns), len(columns)), np.nan)
    for key, pairs in groups.items():
        rows = np.frombuffer(key, dtype=bool)
        if rows.any():
            used = np.unique(pairs)
            i, j = np.searchsorted(used, np.transpose(pairs))
            shared = pearson([columns[k][rows] for k in used])
            rho[tuple(np.transpose(pairs))] = shared[i, j]
    return rho


def clipped(real: Floats, synthetic: Floats) -> Floats:
    """Return synthetic numbers clipped to the real range.

    Otherwise a single wild row would decide a correlation. The open outer bins treat
    such a value in the same way.
    """
    return np.clip(synthetic, real.min(), real.max())


def _edges(values: Floats) -> Floats:
    """Return the edges of equal-width bins; a constant is in the middle of them."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, BINS + 1)


def binned(real: Floats, synthetic: Floats, edges: str) -> tuple[Codes, Codes]:
    """Return the bin of each value in both columns; codes are below BINS + 2."""
    if edges == "real":
        # Leaving out the two outer edges is the same as setting them to -inf and inf.
        inner = _edges(real)[1:-1]
        return np.digitize(real, inner), np.digitize(synthetic, inner)
    # With the last edge, the maximum has a code of its own, as in sdmetrics. A missing
    # value gets the same code, because NaN sorts after every number.
    return np.digitize(real, _edges(real)), np.digitize(synthetic, _edges(synthetic))


def _check_observed(
    columns: Iterable[npt.NDArray[np.bool_]], tables: Frames, name: str
) -> None:
    for label, observed in zip(tables, columns, strict=True):
        if not observed.any():
            raise DataError(
                f"column {name!r} of the {label} table has no observed values; leave "
                "it out"
            )


def _numbers(tables: Frames, name: str, allow_missing: bool) -> list[Floats]:
    values = numbers(tables, name, allow_missing)
    _check_observed((~np.isnan(v) for v in values), tables, name)
    return values


def _codes(tables: Frames, name: str, allow_missing: bool) -> tuple[list[Codes], int]:
    codes, levels, _ = level_codes(tables, name, allow_missing)
    _check_observed((c >= 0 for c in codes), tables, name)
    return codes, len(levels)


def shape(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    numeric: Sequence[str],
    categorical: Sequence[str],
    *,
    allow_missing: bool = False,
) -> Score:
    """Compare the distribution of every column.

    Parameters
    ----------
    real, synthetic : pandas.DataFrame
        Complete tables; their row counts may differ.
    numeric, categorical : sequence of str
        The columns to compare. Dates may be listed as numeric, booleans as either.
    allow_missing : bool
        Leave missing values out, as sdmetrics does, instead of refusing them. Use it
        to reproduce sdmetrics only: under MAR the right complete rows differ from the
        observed values and lose. `incomplete.compare_remasked` scores such tables.

    Returns
    -------
    Score
        The table has one line per column: `column`, `kind`, `score`.

    Examples
    --------
    >>> real = pd.DataFrame({"age": [1, 2, 3, 4], "sex": ["f", "m", "f", "m"]})
    >>> synthetic = pd.DataFrame({"age": [1, 2, 3, 3], "sex": ["f", "f", "f", "m"]})
    >>> result = shape(real, synthetic, ["age"], ["sex"])
    >>> result.value
    0.75
    >>> result.table
      column         kind  score
    0    age      numeric   0.75
    1    sex  categorical   0.75
    """
    tables = {"real": real, "synthetic": synthetic}
    check_tables(tables, numeric, categorical)
    lines: list[tuple[str, str, float]] = []
    for name in numeric:
        r, s = (v[~np.isnan(v)] for v in _numbers(tables, name, allow_missing))
        lines.append((name, "numeric", 1 - ks_distance(r, s)))
    for name in categorical:
        codes, n_levels = _codes(tables, name, allow_missing)
        a, b = (c[c >= 0] for c in codes)
        lines.append((name, "categorical", 1 - tv_distance(a, b, n_levels)))
    table = pd.DataFrame(lines, columns=["column", "kind", "score"])
    return Score(float(table["score"].mean()), table)


def trend(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    numeric: Sequence[str],
    categorical: Sequence[str],
    edges: Literal["real", "sdmetrics"] = "real",
    *,
    allow_missing: bool = False,
) -> Score:
    """Compare the dependence within every pair of columns.

    A constant column has correlation 0 with every other. sdmetrics drops such pairs
    from the mean, which rewards a collapsed generator; this is the one difference that
    `edges="sdmetrics"` keeps.

    Parameters
    ----------
    real, synthetic, numeric, categorical
        As in `shape`.
    edges : {"real", "sdmetrics"}
        How to bin numeric columns that are paired with categorical ones: into ten
        equal-width bins of the real table with open ends, or of each table by itself.
        With "real", synthetic numbers beyond the real range are also clipped to it
        before they are correlated, so that no single row can decide the score.
    allow_missing : bool
        Only with `edges="sdmetrics"`: treat missing values as sdmetrics does.
        Correlations use the rows that show both columns; a missing category is one
        more level; a missing number, paired with a category, counts as the maximum.

    Returns
    -------
    Score
        The table has one line per pair: `first`, `second`, `kind`, `score`, and for
        two numeric columns their correlations `real` and `synthetic`. The value is NaN
        for a single column. Two numeric columns that are never observed together have
        score NaN, and the mean leaves them out.

    Examples
    --------
    >>> real = pd.DataFrame({"x": [0, 1, 2, 3], "y": [0, 1, 2, 3], "z": list("aabb")})
    >>> synthetic = real.assign(y=[3, 2, 1, 0])
    >>> trend(real, synthetic, ["x", "y"], ["z"]).table.round(2)
      first second     kind  score  real  synthetic
    0     x      y  numeric    0.0   1.0       -1.0
    1     x      z    mixed    1.0   NaN        NaN
    2     y      z    mixed    0.0   NaN        NaN
    """
    if edges not in ("real", "sdmetrics"):
        raise UsageError(f"edges must be 'real' or 'sdmetrics', got {edges!r}")
    if allow_missing and edges == "real":
        raise UsageError(
            "allow_missing=True needs edges='sdmetrics', got 'real'; use "
            "`incomplete.compare_remasked` to score an incomplete table"
        )
    tables = {"real": real, "synthetic": synthetic}
    check_tables(tables, numeric, categorical)
    values = {name: _numbers(tables, name, allow_missing) for name in numeric}
    coded: dict[str, tuple[Codes, Codes, int]] = {}
    for name, (r, s) in values.items():
        coded[name] = (*binned(r, s, edges), BINS + 2)
    for name in categorical:
        codes, n_levels = _codes(tables, name, allow_missing)
        a, b = (np.where(c < 0, n_levels, c) for c in codes)
        coded[name] = (a, b, n_levels + allow_missing)

    lines: list[tuple[str, str, str, float, float, float]] = []
    rho_real = _pearson_pairwise([r for r, _ in values.values()])
    rho_synthetic = _pearson_pairwise(
        [clipped(r, s) if edges == "real" else s for r, s in values.values()]
    )
    for i, j in combinations(range(len(numeric)), 2):
        rho = float(rho_real[i, j]), float(rho_synthetic[i, j])
        score = 1 - abs(rho[0] - rho[1]) / 2
        lines.append((numeric[i], numeric[j], "numeric", score, *rho))
    for first, second in combinations(coded, 2):
        if second in values:
            continue
        (r1, s1, n1), (r2, s2, n2) = coded[first], coded[second]
        score = 1 - tv_distance(r1 * n2 + r2, s1 * n2 + s2, n1 * n2)
        kind = "mixed" if first in values else "categorical"
        lines.append((first, second, kind, score, np.nan, np.nan))
    table = pd.DataFrame(
        lines, columns=["first", "second", "kind", "score", "real", "synthetic"]
    )
    # Without any pair, pandas would make a column of objects.
    table["score"] = table["score"].to_numpy(dtype=np.float64)
    return Score(float(table["score"].mean()), table)
