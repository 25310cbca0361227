"""Columns as bins and bars that no single real row can be read from.

A page is passed on, so it shows aggregates only. Three rules make them safe:

* a bin or level with fewer than `FEWEST` real rows is merged with its neighbours;
* bins end at round numbers, and the outer ones hold everything beyond, so that no axis
  shows the smallest or the largest value of the table;
* a level is named only if at least `FEWEST` real rows have it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from augmask.evaluation.columns import Codes, Floats, Frames, level_codes, numbers

FEWEST = 5
BINS = 36
BARS = 9
LABEL = 22
# What the outer bins gather, when it is more than FEWEST rows.
TAIL = 0.005
# Whole numbers get a bin each up to this many.
WHOLE = 40
DAY = 86_400.0


@dataclass(frozen=True, eq=False)
class Histogram:
    """Shares of several series in common bins.

    Parameters
    ----------
    edges : float array
        Ends of the bins; days since 1970 if `dates`.
    shares : mapping of series to float array
    dates : bool
    """

    edges: Floats
    shares: Mapping[str, Floats]
    dates: bool


@dataclass(frozen=True, eq=False)
class Bars:
    """Shares of several series in common levels, the most frequent first."""

    labels: tuple[str, ...]
    shares: Mapping[str, Floats]


def short(text: Any, most: int = LABEL) -> str:
    """Return a text that fits beside a bar.

    Examples
    --------
    >>> short("not elsewhere classified", 14)
    'not elsewhere…'
    """
    plain = " ".join(str(text).split())
    return plain if len(plain) <= most else plain[: most - 1].rstrip() + "…"


def least_share(share: float, rows: int) -> tuple[float, bool]:
    """Return a share of some rows, and whether it was raised to hide a small count.

    Examples
    --------
    >>> least_share(0.01, 100), least_share(0.2, 100), least_share(0.0, 100)
    ((0.05, True), (0.2, False), (0.0, False))
    """
    if 0 < round(share * rows) < FEWEST:
        return min(1.0, FEWEST / rows), True
    return share, False


def _round_step(width: float, whole: bool) -> float:
    """Return the next round number of at least `width`."""
    power = 10.0 ** math.floor(math.log10(width))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= width * 0.999)
    return max(1.0, math.ceil(step)) if whole else step


def round_edges(values: Floats, bins: int = BINS) -> Floats | None:
    """Return about `bins` + 1 round edges around the bulk of some values.

    None when there are too few values to show anything of them.

    Examples
    --------
    >>> round_edges(np.append(np.linspace(0.3, 9.8, 1000), 1e6), bins=5)
    array([ 0.,  2.,  4.,  6.,  8., 10.])
    """
    values = np.sort(values[np.isfinite(values)])
    n = len(values)
    if n < 2 * FEWEST:
        return None
    k = max(FEWEST, math.ceil(TAIL * n))
    low, high = float(values[k - 1]), float(values[n - k])
    whole = bool((values == np.round(values)).all())
    if low == high:
        # Nearly all rows agree; one bin for them, and room on either side.
        half = 0.5 if whole else 0.5 * _round_step(abs(low) or 1.0, False)
        return np.array([low - 3 * half, low - half, low + half, low + 3 * half])
    count = WHOLE if whole and high - low < WHOLE and bins == BINS else bins
    step = _round_step((high - low) / count, whole)
    first, last = math.floor(low / step), math.ceil(high / step)
    # Half a unit lower, so that whole numbers lie inside a bin and not on its edge.
    shift = 0.5 if whole else 0.0
    last += int(whole or last == first)
    return np.asarray(np.arange(first, last + 1) * step - shift, dtype=np.float64)


def merged(counts: Codes) -> list[int]:
    """Return where bins begin once none has 1 to FEWEST - 1 rows, and the end.

    Examples
    --------
    >>> merged(np.array([9, 2, 0, 4, 0, 0, 3]))
    [0, 1, 7]
    """
    starts, held = [0], 0
    for i, count in enumerate(counts):
        held += int(count)
        if held == 0 or held >= FEWEST:
            starts.append(i + 1)
            held = 0
    if held:
        # What is left joins bins to its left until there is enough of it.
        while len(starts) > 1 and held < FEWEST:
            held += int(counts[starts[-2] : starts[-1]].sum())
            starts.pop()
        starts.append(len(counts))
    return starts


def in_bins(values: Floats, edges: Floats) -> Codes:
    """Return the bin of every value, outer bins open; holes get -1."""
    codes = np.clip(np.digitize(values, edges) - 1, 0, len(edges) - 2)
    return np.asarray(np.where(np.isnan(values), -1, codes), dtype=np.int64)


def _count(codes: Codes, n: int) -> Codes:
    return np.bincount(codes[codes >= 0], minlength=n)


def _shares(counts: Codes) -> Floats:
    return np.asarray(counts / max(int(counts.sum()), 1), dtype=np.float64)


def is_date(series: pd.Series) -> bool:
    """Whether a column holds instants."""
    return isinstance(series.dtype, pd.DatetimeTZDtype) or series.dtype.kind == "M"


def histogram(tables: Frames, column: str) -> Histogram | None:
    """Return a numeric column of several tables in the bins of the first.

    Holes are passed over. None when the first table has too few values.

    Examples
    --------
    >>> real = pd.DataFrame({"x": [1.0] * 50 + [2.0] * 50 + [977.0]})
    >>> found = histogram({"real": real}, "x")
    >>> bool(found.edges.max() < 10), found.shares["real"].round(2).tolist()
    (True, [0.5, 0.5])
    """
    dates = is_date(next(iter(tables.values()))[column])
    found = numbers(tables, column, holes=True)
    values = [v / DAY for v in found] if dates else found
    edges = round_edges(values[0])
    if edges is None:
        return None
    n = len(edges) - 1
    counted = [_count(in_bins(v, edges), n) for v in values]
    starts = merged(counted[0])
    sums = [np.add.reduceat(c, starts[:-1]) for c in counted]
    shares = {name: _shares(c) for name, c in zip(tables, sums, strict=True)}
    return Histogram(edges[starts], shares, dates)


def frequent(
    tables: Frames, column: str, most: int
) -> tuple[list[Codes], list[str], int]:
    """Return level codes with rare levels as one, their names, and how many are named.

    Levels that the first table lacks come last, as one level without a name of its
    own. Holes get -1.
    """
    codes, levels, n_first = level_codes(tables, column, holes=True)
    counts = _count(codes[0], len(levels))
    order = np.argsort(-counts[:n_first], kind="stable")
    kept = [int(k) for k in order if counts[k] >= FEWEST][:most]
    if len(kept) == most < n_first:
        kept = kept[:-1]
    rest = [k for k in range(n_first) if k not in set(kept)]
    # The rest must not be a handful of rows either.
    while kept and 0 < counts[rest].sum() < FEWEST:
        rest.append(kept.pop())
    translate = np.full(len(levels) + 1, -1, dtype=np.int64)
    translate[kept] = np.arange(len(kept))
    names = [short(levels[k]) for k in kept]
    if rest:
        translate[rest] = len(names)
        names.append(f"{len(rest)} other level{'s' if len(rest) > 1 else ''}")
    unseen = np.arange(n_first, len(levels))
    if len(unseen):
        translate[unseen] = len(names)
        names.append("not in the real table")
    return [translate[c] for c in codes], names, len(kept)


def bars(tables: Frames, column: str) -> Bars | None:
    """Return the levels of a column of several tables, rare ones as one.

    None when the first table has too few values.

    Examples
    --------
    >>> real = pd.DataFrame({"x": ["a"] * 12 + ["b"] * 6 + ["Zaphod", "Zenobia"]})
    >>> bars({"real": real}, "x").labels
    ('a', '3 other levels')
    """
    codes, names, _ = frequent(tables, column, BARS)
    counted = [_count(c, len(names)) for c in codes]
    if counted[0].sum() < FEWEST:
        return None
    shares = {name: _shares(c) for name, c in zip(tables, counted, strict=True)}
    return Bars(tuple(names), shares)
