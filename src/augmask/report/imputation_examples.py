"""What a model believes about the holes of a few rows: many draws of each.

A page shows no real row, so the rows are synthetic ones into which holes like those of
the table were put. Even of these a number is given as a range and a level only if
enough real rows have it: a generator may have copied a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from augmask.evaluation.columns import Floats, numbers
from augmask.report.counts import (
    BARS,
    DAY,
    Bars,
    Histogram,
    bars,
    frequent,
    histogram,
    in_bins,
    short,
)
from augmask.report.plots import plain_number

Impute = Callable[[pd.DataFrame, int], Sequence[pd.DataFrame]]

ROWS = 3
# Holes and known cells that are shown of a row, and draws of each hole.
HOLES, KNOWN, DRAWS = 4, 8, 100
QUANTILES = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
NAME = 30


@dataclass(frozen=True, eq=False)
class Fan:
    """The draws of one hole beside its column.

    Parameters
    ----------
    name : str
    picture : Histogram or Bars
        The column; bars also have the shares of the draws.
    quantiles : float array or None
        Of the draws of a number, for the ranges of 95, 80 and 50 % and the median;
        cut where the column's bins end.
    says : str
        The same in words.
    """

    name: str
    picture: Histogram | Bars
    quantiles: Floats | None
    says: str


@dataclass(frozen=True, eq=False)
class Example:
    """A row with holes.

    Parameters
    ----------
    known : list of (str, str)
        Columns and roughly what stands there.
    more_known : int
        Known cells that are not listed.
    fans : list of Fan
    more_holes : int
    """

    known: list[tuple[str, str]]
    more_known: int
    fans: list[Fan]
    more_holes: int


def _day(value: float) -> str:
    return str(pd.Timestamp(value, unit="D").date())


def _between(low: float, high: float, whole: bool) -> str:
    if whole:
        low, high = np.ceil(low), np.ceil(high) - 1
    texts = [plain_number(low), plain_number(high)]
    return texts[0] if texts[0] == texts[1] else f"{texts[0]} to {texts[1]}"


def range_of(value: float, found: Histogram, whole: bool) -> str:
    """Return the bin of a number in words; the outer bins are open.

    Examples
    --------
    >>> found = Histogram(np.array([-0.5, 4.5, 9.5, 14.5]), {}, False)
    >>> [range_of(value, found, whole=True) for value in (3, 7, 4000)]
    ['at most 4', '5 to 9', 'at least 10']
    """
    k = int(in_bins(np.array([value]), found.edges)[0])
    low, high = float(found.edges[k]), float(found.edges[k + 1])
    first, last = k == 0, k == len(found.edges) - 2
    if first and last:
        return "somewhere in its range"
    if found.dates:
        if first:
            return f"before {_day(high)}"
        return f"from {_day(low)}" if last else f"{_day(low)} to {_day(high)}"
    if first:
        return f"at most {plain_number(np.ceil(high) - 1 if whole else high)}"
    if last:
        return f"at least {plain_number(np.ceil(low) if whole else low)}"
    return _between(low, high, whole)


def _floats(frame: pd.DataFrame, name: str, dates: bool) -> Floats:
    (found,) = numbers({"rows": frame}, name, holes=True)
    return np.asarray(found / DAY if dates else found, dtype=np.float64)


def _is_whole(real: pd.DataFrame, name: str) -> bool:
    values = _floats(real, name, dates=False)
    seen = values[np.isfinite(values)]
    return bool((seen == np.round(seen)).all())


def _told(row: pd.DataFrame, real: pd.DataFrame, name: str, numeric: bool) -> str:
    """Return roughly what stands in a cell; nothing if it cannot be said safely."""
    if numeric:
        found = histogram({"real": real}, name)
        if found is None:
            return ""
        value = float(_floats(row, name, found.dates)[0])
        return range_of(value, found, not found.dates and _is_whole(real, name))
    codes, names, n_named = frequent({"real": real, "row": row}, name, BARS)
    code = int(codes[1][0])
    return names[code] if code < n_named else ""


def fan(
    drawn: pd.DataFrame, real: pd.DataFrame, name: str, numeric: bool
) -> Fan | None:
    """Return the draws of a hole beside its column; None if that has too few values.

    Parameters
    ----------
    drawn : DataFrame
        The row once for every draw.
    real : DataFrame
    name : str
    numeric : bool
    """
    if numeric:
        found = histogram({"real": real}, name)
        if found is None:
            return None
        values = _floats(drawn, name, found.dates)
        ends = np.quantile(values, QUANTILES)
        whole = not found.dates and _is_whole(real, name)
        middle = range_of(float(ends[3]), found, whole)
        kept = np.asarray(np.clip(ends, found.edges[0], found.edges[-1]))
        return Fan(name, found, kept, f"median {middle}")
    shares = bars({"real": real, "synthetic": drawn}, name)
    if shares is None:
        return None
    best = int(shares.shares["synthetic"].argmax())
    share = 100 * float(shares.shares["synthetic"][best])
    return Fan(name, shares, None, f"{shares.labels[best]} in {share:.0f} %")


def _chosen(
    holes: pd.DataFrame, rng: np.random.Generator
) -> list[tuple[int, list[int]]]:
    """Return rows and their holes to show: those that add columns not shown yet."""
    mask = holes.to_numpy(dtype=bool)
    count = mask.sum(axis=1)
    rows = rng.permutation(np.flatnonzero((count > 0) & (count < mask.shape[1])))
    found = {int(row): np.flatnonzero(mask[row]).tolist() for row in rows}
    shown: set[int] = set()
    chosen = []
    for _ in range(min(ROWS, len(found))):
        # Few enough holes to be shown all; then the most new columns.
        best = max(
            found,
            key=lambda row: (
                min(HOLES - len(found[row]), 0),
                len(set(found[row]) - shown),
            ),
        )
        columns = sorted(found.pop(best), key=lambda j: j in shown)[:HOLES]
        shown |= set(columns)
        chosen.append((best, sorted(columns)))
    return chosen


def examples(
    rows: pd.DataFrame,
    real: pd.DataFrame,
    holed: Sequence[str],
    numeric: Sequence[str],
    impute: Impute,
    rng: np.random.Generator,
) -> list[Example]:
    """Return a few rows with the draws of their holes.

    Parameters
    ----------
    rows : DataFrame
        Synthetic rows with holes.
    real : DataFrame
        The table they stand beside.
    holed : sequence of str
        Columns whose holes are to be filled.
    numeric : sequence of str
    impute : callable
        Gives so many completions of some rows.
    rng : numpy.random.Generator
    """
    chosen = _chosen(rows[list(holed)].isna(), rng)
    if not chosen:
        return []
    some = rows.iloc[[row for row, _ in chosen]].reset_index(drop=True)
    draws = list(impute(some, DRAWS))
    found = []
    for i, (_, columns) in enumerate(chosen):
        drawn = pd.concat([one.iloc[[i]] for one in draws], ignore_index=True)
        names = [holed[j] for j in columns]
        fans = [fan(drawn, real, name, name in numeric) for name in names]
        row = some.iloc[[i]]
        seen = [name for name in rows.columns if row[name].notna().all()]
        told = [(n, _told(row, real, n, n in numeric)) for n in seen]
        known = [(short(n, NAME), text) for n, text in told if text][:KNOWN]
        shown = [one for one in fans if one is not None]
        holes = int(row[list(holed)].isna().to_numpy().sum())
        if shown:
            found.append(
                Example(known, len(seen) - len(known), shown, holes - len(shown))
            )
    return found
