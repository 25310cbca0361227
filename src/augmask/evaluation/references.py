"""Tables to compare a score with: ones that are certainly bad, or certainly good.

A number alone says little. A perfect sampler has a β-recall of about 0.5, and
independent columns can reach an α-precision above 0.95. So each metric is also computed
for

* floors: `independent` columns, which keep every marginal and no dependence, and
  `mean_mode_fill`, one constant for all missing values of a column;
* the ceiling: real rows against other real rows, see `real_pair`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from augmask.errors import DataError


@dataclass(frozen=True, eq=False)
class RealPair:
    """Two disjoint sets of real rows, to score as if one were synthetic.

    Parameters
    ----------
    real, other : pandas.DataFrame
        Equally many rows of the same table.
    source : {"holdout", "halves"}
        Where `other` comes from.
    description : str
        The same in words, for a report.
    """

    real: pd.DataFrame
    other: pd.DataFrame
    source: str
    description: str


def _observed_values(series: pd.Series) -> pd.Series:
    values = series.dropna()
    if values.empty:
        raise DataError(
            f"column {series.name!r} has no observed values to make a reference from; "
            "leave it out"
        )
    return values


def independent(real: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return complete rows with independent columns.

    Every observed value occurs once, in a random row; missing values are replaced by
    observed values drawn with replacement.

    Examples
    --------
    >>> real = pd.DataFrame({"a": [1.0, 2.0, None], "b": ["x", "y", "z"]})
    >>> floor = independent(real, np.random.default_rng(0))
    >>> sorted(floor["b"]), floor["a"].notna().all()
    (['x', 'y', 'z'], np.True_)
    """
    shuffled = {}
    for name in real.columns:
        values = _observed_values(real[name])
        n = len(values)
        chosen = np.append(np.arange(n), rng.integers(n, size=len(real) - n))
        shuffled[name] = values.iloc[rng.permutation(chosen)].reset_index(drop=True)
    return pd.DataFrame(shuffled)


def mean_mode_fill(
    incomplete: pd.DataFrame, numeric: Sequence[str], categorical: Sequence[str]
) -> pd.DataFrame:
    """Return the named columns with the mean, or most frequent level, imputed.

    The paper's NoAug baseline learns from this table. Of equally frequent levels, the
    one that comes first in the table is used.

    Examples
    --------
    >>> frame = pd.DataFrame({"a": [1, None, 2], "b": ["x", "x", None]})
    >>> mean_mode_fill(frame, ["a"], ["b"])
         a  b
    0  1.0  x
    1  1.5  x
    2  2.0  x
    """
    filled = {}
    for name in [*numeric, *categorical]:
        series = incomplete[name]
        values = _observed_values(series)
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


def real_pair(
    real: pd.DataFrame,
    holdout: pd.DataFrame | None,
    rng: np.random.Generator,
) -> RealPair:
    """Return the pair to score for the ceiling: real rows and other real rows.

    Without a holdout, `real` is split at random into halves; an odd row is left out.
    Both sides have equally many rows. Fewer rows agree less, so a small holdout makes a
    low ceiling.

    Examples
    --------
    >>> real = pd.DataFrame({"x": range(100)})
    >>> real_pair(real, None, np.random.default_rng(0)).description
    'two random halves of the real table, 50 rows each'
    """
    n = len(real) // 2 if holdout is None else min(len(real), len(holdout))
    if not n:
        others = "no holdout" if holdout is None else f"{len(holdout)} holdout rows"
        raise DataError(
            f"{len(real)} real rows and {others} are too few to compare; pass more rows"
        )
    if holdout is None:
        order = rng.permutation(len(real))
        rows = [(real, order[:n]), (real, order[n : 2 * n])]
        description = f"two random halves of the real table, {n} rows each"
    else:
        rows = [(f, rng.permutation(len(f))[:n]) for f in (real, holdout)]
        description = f"real rows against a real holdout, {n} rows each"
    a, b = (frame.iloc[np.sort(index)].reset_index(drop=True) for frame, index in rows)
    return RealPair(a, b, "halves" if holdout is None else "holdout", description)
