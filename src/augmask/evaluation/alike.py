"""Rows of two incomplete tables with the same missing values, pair by pair.

Which cells of synthetic rows would be missing is drawn from a model that was learned
from the real table, and no model of that is right to the last pattern. A classifier
that sees the patterns would tell the tables apart by them, whatever the values are. So
every row of one table is paired with a row of the other, and in both is hidden what is
missing in either: within a pair the patterns are equal, and over all pairs missing
values say nothing about the table. Rows of like patterns are paired, so that little
more has to be hidden.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.missing.model import with_holes
from augmask.table.table import BoolArray

Rows = npt.NDArray[np.int64]


def _by_pattern(seen: BoolArray, rows: Rows) -> dict[bytes, list[int]]:
    """Return the rows of each pattern, in the order given."""
    groups: dict[bytes, list[int]] = {}
    for i in rows:
        groups.setdefault(seen[i].tobytes(), []).append(int(i))
    return groups


def _paired(first: BoolArray, second: BoolArray, rng: np.random.Generator) -> Rows:
    """Return pairs of rows [n, 2]: of equal patterns first, then of like ones."""
    n = min(len(first), len(second))
    a, b = (rng.permutation(len(seen))[:n] for seen in (first, second))
    groups, others = _by_pattern(first, a), _by_pattern(second, b)
    pairs: list[tuple[int, int]] = []
    left: tuple[list[int], list[int]] = ([], [])
    for pattern in {**groups, **others}:
        ours, theirs = groups.get(pattern, []), others.get(pattern, [])
        pairs += zip(ours, theirs, strict=False)
        both = min(len(ours), len(theirs))
        left[0].extend(ours[both:])
        left[1].extend(theirs[both:])
    if left[0]:
        # Sorted by the columns that miss most evenly, like stands beside like.
        rate = np.concatenate([first, second]).mean(axis=0)
        order = np.argsort(rate * (1 - rate), kind="stable")
        rows = [
            np.asarray(part)[np.lexsort(seen[part][:, order].T)]
            for part, seen in zip(left, (first, second), strict=True)
        ]
        pairs += zip(*rows, strict=True)
    return np.asarray(pairs, dtype=np.int64).reshape(-1, 2)


def missing_alike(
    first: pd.DataFrame, second: pd.DataFrame, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return as many rows of both tables, with the same missing values in each pair.

    Parameters
    ----------
    first, second : pandas.DataFrame
        With the same columns. Rows of the longer table are left out at random.
    rng : numpy.random.Generator

    Examples
    --------
    >>> first = pd.DataFrame({"a": [1.0, None, 3.0], "b": [1.0, 2.0, 3.0]})
    >>> second = pd.DataFrame({"a": [4.0, 5.0], "b": [None, 6.0]})
    >>> left, right = missing_alike(first, second, np.random.default_rng(0))
    >>> len(left), left.isna().equals(right.isna())
    (2, True)
    """
    names = list(first.columns)
    seen = [frame[names].notna().to_numpy() for frame in (first, second)]
    if all(table.all() for table in seen) and len(first) == len(second):
        return first, second
    pairs = _paired(seen[0], seen[1], rng)
    both = seen[0][pairs[:, 0]] & seen[1][pairs[:, 1]]
    parts = [
        with_holes(frame[names].iloc[pairs[:, k]].reset_index(drop=True), both)
        for k, frame in enumerate((first, second))
    ]
    return parts[0], parts[1]
