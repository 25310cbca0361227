"""The worst pairs of columns: what the mean over all pairs does not show.

In a wide table most pairs hardly depend on each other, and a generator that loses the
few that do loses next to nothing in the mean. The mean of the lowest tenth is where
lost dependence stands.
"""

from __future__ import annotations

import math

import pandas as pd

SHARE = 0.1
# A correlation or contingency table of fewer rows is mostly chance.
SEEN_TOGETHER = 50


def score_name(table: pd.DataFrame) -> str:
    """Return which column of a table of columns or pairs is the score."""
    return "remasked" if "remasked" in table else "score"


def _seen_often(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return pairs that enough real rows show together; all, if none is."""
    if "rows" not in pairs:
        return pairs
    often = pairs[pairs["rows"] >= SEEN_TOGETHER]
    return pairs if often.empty else often


def worst_tenth(pairs: pd.DataFrame, like: pd.DataFrame | None = None) -> float:
    """Return the mean score of the lowest tenth of pairs, at least one.

    Parameters
    ----------
    pairs : pandas.DataFrame
        As `fidelity.trend` or `incomplete.remasked` give it. Pairs that were not
        scored are left out, and so are those that few rows show together.
    like : pandas.DataFrame, optional
        Pairs of the same columns on more rows, which say what is often shown together.

    Examples
    --------
    >>> names = [f"c{i}" for i in range(20)]
    >>> scores = [1 - i / 100 for i in range(20)]
    >>> pairs = pd.DataFrame({"first": names, "second": "x", "score": scores})
    >>> round(worst_tenth(pairs), 3)
    0.815
    """
    often = _seen_often(pairs if like is None else like)
    keys = ["first", "second"]
    kept = pairs.merge(often[keys], on=keys)[score_name(pairs)].dropna()
    return float(kept.nsmallest(math.ceil(SHARE * len(kept))).mean())


def worst_pairs(pairs: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return the pairs that are farthest below what real rows score, worst first.

    A pair of columns with many levels scores low among real rows too, and is no fault.

    Parameters
    ----------
    pairs : pandas.DataFrame
        With a column `reference`; where it is not known, 1 takes its place.
    most : int
        So many lines at most.

    Examples
    --------
    >>> pairs = pd.DataFrame({"first": ["a", "b"], "second": ["x", "y"]})
    >>> pairs = pairs.assign(score=[0.60, 0.70], reference=[0.61, 0.99])
    >>> worst_pairs(pairs, 1)["first"].tolist()
    ['b']
    """
    known = _seen_often(pairs).dropna(subset=[score_name(pairs)])
    short = known["reference"].fillna(1.0) - known[score_name(pairs)]
    return known.loc[short.sort_values(ascending=False, kind="stable").index[:most]]


def pair_names(pairs: pd.DataFrame) -> pd.Series:
    """Return what pairs are called.

    Examples
    --------
    >>> pair_names(pd.DataFrame({"first": ["age"], "second": ["pay"]})).tolist()
    ['age with pay']
    """
    return pairs["first"].astype(str) + " with " + pairs["second"].astype(str)
