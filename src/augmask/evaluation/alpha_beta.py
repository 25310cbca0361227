"""α-precision and β-recall: whether synthetic rows are typical and cover real ones.

This is the variant that the field reports (synthcity's "naive" one) on all columns:
numbers are scaled to 0..1 by the real table's range, categories become 0/1 indicators
of the real table's levels, and distances are Euclidean in float64. With c and c' the
means of the real rows x and the synthetic rows s, and a_k = k/29, k = 0..29:

* r_k is the a_k quantile of ‖x_i - c‖, P_k the share of synthetic rows within r_k of c;
  α-precision = 1 - Σ|a_k - P_k| / Σ a_k;
* x_i is covered if its nearest synthetic row is no farther than its nearest other real
  row; t_i is the distance of that synthetic row from c', q_k the a_k quantile of t, B_k
  the share of real rows that are covered and have t_i <= q_k;
  β-recall = 1 - Σ|a_k - B_k| / Σ a_k.

Two cautions. α-precision depends only on distances from the centre: independent columns
can score above 0.95. A perfect sampler has a β-recall of about 0.5, because a synthetic
and another real row are equally likely to be the nearer one; more means copying.
"""

from __future__ import annotations

import hashlib
from collections.abc import MutableMapping, Sequence

import numpy as np
import pandas as pd

from augmask.errors import DataError, UsageError
from augmask.evaluation.neighbours import distances, nearest_rows
from augmask.evaluation.results import Score
from augmask.evaluation.tables import (
    Floats,
    Frames,
    check_tables,
    level_codes,
    numbers,
    one_hot,
    some_rows,
)

QUANTILES = np.linspace(0.0, 1.0, 30)


def as_points(
    tables: Frames, numeric: Sequence[str], categorical: Sequence[str]
) -> tuple[Floats, Floats]:
    """Return a real and another table as points with Euclidean distances.

    Numbers are scaled by the range of the first table, levels become 0/1 indicators; a
    level that the first table lacks becomes zeros.

    Examples
    --------
    >>> real = pd.DataFrame({"x": [1.0, 5.0], "c": ["a", "b"]})
    >>> new = pd.DataFrame({"x": [9.0], "c": ["b"]})
    >>> as_points({"real": real, "new": new}, ["x"], ["c"])[1].tolist()
    [[2.0, 0.0, 1.0]]
    """
    parts: list[list[Floats]] = []
    for name in numeric:
        real, synthetic = numbers(tables, name)
        low = real.min()
        width = float(np.ptp(real)) or 1.0
        parts.append([((v - low) / width)[:, None] for v in (real, synthetic)])
    for name in categorical:
        codes, _, n_real = level_codes(tables, name)
        parts.append([one_hot(c, n_real) for c in codes])
    x, s = (np.hstack(blocks) for blocks in zip(*parts, strict=True))
    return x, s


def _subsample(
    tables: Frames, rows: int | None, rng: np.random.Generator | None
) -> Frames:
    if rows is None:
        return tables
    if rng is None or rows < 2:
        raise UsageError(
            f"a subsample needs at least 2 rows and a generator, got {rows=} and "
            f"{rng=}; pass both"
        )
    return {label: some_rows(frame, rows, rng) for label, frame in tables.items()}


def _real_gaps(
    x: Floats, cache: MutableMapping[str, Floats] | None, n_jobs: int | None
) -> Floats:
    """Return the distance of every real row to the nearest other real row."""
    digest = hashlib.sha256(np.ascontiguousarray(x).data).hexdigest()
    key = f"nearest-other/{x.shape[0]}x{x.shape[1]}/{digest}"
    if cache is not None and key in cache:
        return cache[key]
    gaps = distances(x, x[nearest_rows(x, x, skip_self=True, n_jobs=n_jobs)])
    if cache is not None:
        cache[key] = gaps
    return gaps


def _agreement(shares: Floats, column: str) -> Score:
    value = 1 - float(np.abs(QUANTILES - shares).sum() / QUANTILES.sum())
    return Score(value, pd.DataFrame({"quantile": QUANTILES, column: shares}))


def alpha_beta(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    numeric: Sequence[str],
    categorical: Sequence[str],
    *,
    cache: MutableMapping[str, Floats] | None = None,
    rows: int | None = None,
    rng: np.random.Generator | None = None,
    n_jobs: int | None = None,
) -> tuple[Score, Score]:
    """Return α-precision and β-recall.

    Parameters
    ----------
    real, synthetic : pandas.DataFrame
        Complete tables. Row counts may differ, but β-recall favours the longer table.
    numeric, categorical : sequence of str
        The columns to compare.
    cache : mutable mapping, optional
        Keeps the distances within the real table, half of the work, under a hash of
        its contents; pass the same dict to score several tables against it.
    rows, rng : int and numpy.random.Generator, optional
        Score at most `rows` random rows of each table. All rows by default.
    n_jobs : int, optional
        Threads; all cores by default. The answer does not depend on it.

    Returns
    -------
    alpha, beta : Score
        Their tables hold the curves: `quantile` a_k and the share of rows, `precision`
        P_k or `recall` B_k.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> real, other = (pd.DataFrame({"x": rng.normal(size=500)}) for _ in range(2))
    >>> alpha, beta = alpha_beta(real, other, ["x"], [])
    >>> alpha.value > 0.9, 0.4 < beta.value < 0.6
    (True, True)
    >>> alpha, beta = alpha_beta(real, real, ["x"], [])
    >>> round(alpha.value, 2), round(beta.value, 2)
    (1.0, 1.0)
    """
    tables: Frames = {"real": real, "synthetic": synthetic}
    check_tables(tables, numeric, categorical)
    if len(real) < 2:
        raise DataError(
            f"β-recall needs a second real row, but the real table has {len(real)}; "
            "pass at least 2"
        )
    x, s = as_points(_subsample(tables, rows, rng), numeric, categorical)

    centre = x.mean(axis=0)
    radii = np.quantile(distances(x, centre), QUANTILES)
    inside = np.sort(distances(s, centre))
    precision = np.searchsorted(inside, radii, side="right") / len(s)

    gaps = _real_gaps(x, cache, n_jobs)
    neighbours = s[nearest_rows(x, s, n_jobs=n_jobs)]
    covered = distances(x, neighbours) <= gaps
    radius = distances(neighbours, s.mean(axis=0))
    within = np.sort(radius[covered])
    radii = np.quantile(radius, QUANTILES)
    recall = np.searchsorted(within, radii, side="right") / len(x)
    return _agreement(precision, "precision"), _agreement(recall, "recall")
