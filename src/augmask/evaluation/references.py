"""What a score is to be read against: tables that are surely bad, or surely good.

A number without its references says little. β-recall of a perfect sampler is about
0.5, and independent columns can reach an α-precision above 0.95. So each metric is also
computed for

* floors: `independent` columns, which keep every marginal and no dependence, and
  `mean_mode_fill`, one constant in all holes of a column;
* the ceiling: real rows against other real rows, see `real_pair`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from augmask.errors import DataError, UsageError


@dataclass(frozen=True, eq=False)
class RealPair:
    """Two disjoint sets of real rows, to be scored as if one were synthetic.

    Parameters
    ----------
    real, other : pandas.DataFrame
        Equally many rows of the same table.
    source : {"holdout", "halves"}
        Where `other` comes from.
    says : str
        The same in a sentence, for a report.
    """

    real: pd.DataFrame
    other: pd.DataFrame
    source: str
    says: str


def _observed(series: pd.Series) -> pd.Series:
    values = series.dropna()
    if values.empty:
        raise DataError(
            f"A reference is drawn from observed values, but column {series.name!r} "
            "has none; leave it out."
        )
    return values


def independent(real: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return complete rows whose columns know nothing of each other.

    Every observed value is used once, in another row; holes are filled with observed
    values drawn with replacement.

    Examples
    --------
    >>> real = pd.DataFrame({"a": [1.0, 2.0, None], "b": ["x", "y", "z"]})
    >>> floor = independent(real, np.random.default_rng(0))
    >>> sorted(floor["b"]), floor["a"].notna().all()
    (['x', 'y', 'z'], np.True_)
    """
    shuffled = {}
    for name in real.columns:
        values = _observed(real[name])
        n = len(values)
        chosen = np.append(np.arange(n), rng.integers(n, size=len(real) - n))
        shuffled[name] = values.iloc[rng.permutation(chosen)].reset_index(drop=True)
    return pd.DataFrame(shuffled)


def mean_mode_fill(
    incomplete: pd.DataFrame, numeric: Sequence[str], categorical: Sequence[str]
) -> pd.DataFrame:
    """Return the named columns with their mean, or most frequent level, in all holes.

    This is the table that the paper's NoAug baseline learns from. Of equally frequent
    levels the one that comes first in the table is taken.

    Examples
    --------
    >>> holed = pd.DataFrame({"a": [1, None, 2], "b": ["x", "x", None]})
    >>> mean_mode_fill(holed, ["a"], ["b"])
         a  b
    0  1.0  x
    1  1.5  x
    2  2.0  x
    """
    filled = {}
    for name in [*numeric, *categorical]:
        series = incomplete[name]
        values = _observed(series)
        if name in categorical:
            codes, levels = pd.factorize(values)
            fill = levels[np.bincount(codes).argmax()]
        else:
            fill = values.mean()
            if series.dtype.kind not in "mM" and len(values) < len(series):
                # A nullable integer column could not hold its own mean.
                series = series.astype(np.float64)
        filled[name] = series.copy()
        filled[name][series.isna()] = fill
    return pd.DataFrame(filled)


def half_split(
    frame: pd.DataFrame, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two disjoint random halves; of an odd number of rows one is left out.

    Examples
    --------
    >>> a, b = half_split(pd.DataFrame({"x": range(9)}), np.random.default_rng(0))
    >>> len(a), len(b), set(a["x"]) & set(b["x"])
    (4, 4, set())
    """
    half = len(frame) // 2
    if not half:
        raise DataError(
            f"Two halves need at least 2 rows, but the table has {len(frame)}; pass "
            "more rows."
        )
    order = rng.permutation(len(frame))
    return tuple(
        frame.iloc[np.sort(rows)].reset_index(drop=True)
        for rows in (order[:half], order[half : 2 * half])
    )


def real_pair(
    real: pd.DataFrame,
    holdout: pd.DataFrame | None,
    rng: np.random.Generator,
) -> RealPair:
    """Return what to score for the ceiling: real rows against other real rows.

    Both sides have equally many rows, as a comparison of rows needs it; distances
    between fewer rows are larger, so a small holdout makes a low ceiling.

    Parameters
    ----------
    real : pandas.DataFrame
    holdout : pandas.DataFrame, optional
        Real rows that the generator has not seen. Without it, `real` is split.
    rng : numpy.random.Generator

    Returns
    -------
    RealPair

    Examples
    --------
    >>> real = pd.DataFrame({"x": range(100)})
    >>> real_pair(real, None, np.random.default_rng(0)).says
    'two random halves of the real table, 50 rows each'
    """
    if holdout is None:
        a, b = half_split(real, rng)
        says = f"two random halves of the real table, {len(a)} rows each"
        return RealPair(a, b, "halves", says)
    n = min(len(real), len(holdout))
    if not n:
        raise UsageError(
            f"A holdout has rows, but there are {len(real)} real and {len(holdout)} "
            "held-out ones; pass None to split the real table."
        )
    a, b = (
        frame.iloc[np.sort(rng.permutation(len(frame))[:n])].reset_index(drop=True)
        for frame in (real, holdout)
    )
    says = f"real rows against a real holdout, {n} rows each"
    return RealPair(a, b, "holdout", says)
