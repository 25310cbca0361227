"""The lattice of a numeric column: multiples of 5, whole or half, 58 different rates.

A column of numbers seldom holds any number. Wind speeds are multiples of 5, incomes
mostly multiples of 1,000, interest rates one of a few dozen. What nearly all values
share is learned here and kept by decoding. A few odd cells change nothing.

Either the column has a *support*, few values that are repeated, and decoding takes the
nearest; or it has *steps*, nested grids from coarse to fine, each with a reach that
gives it its share of the values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from augmask.table.scale import n_quantiles

Floats = npt.NDArray[np.float64]

# So large a share of odd cells is ignored.
ODD = 0.01
# A value with more than this share of the cells says nothing about the others.
HEAP = 0.1
# Chance of a value that was never seen (Good and Turing: the share of values seen once)
# below which the values that were seen are taken for all there are.
UNSEEN = 0.005
MOST_VALUES = 1_000
# Beyond this a float no longer holds every whole number.
WHOLE = 2.0**53
# Evidence for a grid, in nats: that all values lie on it must be no accident.
EVIDENCE = 12.0
# A coarser grid is kept if this share more of the values lies on it than by chance.
EXCESS = 0.05
FEWEST = 100
# Half of the distance between nodes, measured in it, that counts as rounding noise.
NOISE = 1e-6
# Values that are drawn to see what quantiles alone would give.
SIMULATED = 10_000

# What people round to, in steps of the finest grid.
_HEAPS = (2, *(n * 10**k for k in range(12) for n in (5, 10)))
_MULTIPLES = (2, 3, 4, 5, 6, 7, 8, 12, 15, 24, 30, 60)


def plain_evidence(
    levels: Floats, counts: npt.NDArray[np.int64]
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the values that tell a lattice: heaps such as zeros are left out."""
    heap = counts > HEAP * counts.sum()
    rest = counts[~heap].sum()
    if not heap.any() or rest < max(20, counts.sum() // 1000):
        return levels, counts
    return levels[~heap], counts[~heap]


def _off(levels: Floats, step: float, anchor: float = 0.0) -> npt.NDArray[np.bool_]:
    """Say which values are not on a grid."""
    at = (levels - anchor) / step
    off: npt.NDArray[np.bool_] = np.abs(at - np.rint(at)) > NOISE
    return off


def _round_numbers(largest: float) -> list[int]:
    """Return 2, 5, 10, 20, 25, 50, ... up to a largest one."""
    found = set(_MULTIPLES)
    tens = 10
    while tens <= largest:
        found |= {tens, 2 * tens, tens * 5 // 2, 5 * tens}
        tens *= 10
    return sorted(number for number in found if number <= largest)


def _finest(
    whole: Floats, counts: npt.NDArray[np.int64], n_nodes: float
) -> tuple[int, int]:
    """Return the largest step and an anchor that nearly all whole numbers share."""
    gaps, often = np.unique(np.diff(whole), return_counts=True)
    likely = gaps[np.argsort(-often, kind="stable")[:3]].astype(np.int64).tolist()
    candidates = {*_round_numbers(n_nodes / 3), *(int(gap) for gap in likely)}
    allowed = ODD * counts.sum()
    mode = int(whole[np.argmax(counts)])
    for step in sorted(candidates, reverse=True):
        if not 1 < step <= n_nodes / 3 or len(whole) * math.log(step) < EVIDENCE:
            continue
        for anchor in dict.fromkeys((0, mode % step)):
            if counts[(whole - anchor) % step != 0].sum() <= allowed:
                return step, anchor
    return 1, 0


def _coarser(
    whole: Floats, counts: npt.NDArray[np.int64], step: int, anchor: int, n_nodes: float
) -> list[int]:
    """Return nested grids, from fine to coarse.

    From the coarsest down, a grid is kept if more of the values that are on no coarser
    one lie on it than a finer grid explains.
    """
    chain: list[int] = []
    left = float(counts.sum())
    most = max(n_nodes / step / 10, 1)
    grids = [step, *(step * n for n in _HEAPS if n <= most)]
    on = {grid: (whole - anchor) % grid == 0 for grid in grids}
    free = np.ones(len(whole), np.bool_)
    for grid in sorted(grids, reverse=True)[:-1]:
        if left < FEWEST:
            break
        if chain and chain[0] % grid:
            continue
        share = counts[free & on[grid]].sum() / left
        by_chance = max(
            counts[free & on[fine]].sum() / left * fine / grid
            for fine in grids
            if fine < grid and grid % fine == 0
        )
        doubt = 3 * math.sqrt(by_chance * (1 - by_chance) / left)
        if share > by_chance + EXCESS + doubt:
            free &= ~on[grid]
            left = float(counts[free].sum())
            chain.insert(0, grid)
    return [step, *chain]


def _reaches(
    grids: list[int], at: Floats, counts: npt.NDArray[np.int64], anchor: int
) -> list[tuple[int, float]]:
    """Return the grids, from coarse to fine, with the reach of their nodes.

    A common value is drawn by its own share, because quantiles are flat there. Of the
    rest, the numbers within a node's reach (1: half way to the next) are put on it:
    so many that the grid gets the share of values that it had.
    """
    n = int(counts.sum())
    knots = np.quantile(np.repeat(at, counts), np.linspace(0, 1, n_quantiles(n)))
    drawn = np.interp(
        np.linspace(0, 1, SIMULATED), np.linspace(0, 1, len(knots)), knots
    )
    free = _off(drawn, grids[0], anchor)
    found: list[tuple[int, float]] = [(grids[0], 1.0)]
    for grid in grids[:0:-1]:
        wanted = counts[~_off(at, grid, anchor)].sum() / n
        there = (~free & ~_off(drawn, grid, anchor)).mean()
        away = np.abs((drawn - anchor) / grid - np.rint((drawn - anchor) / grid))
        share = (wanted - there) / max(free.mean(), 1e-9)
        if share > 0:
            reach = float(2 * np.quantile(away[free], min(share, 1.0)))
            found.insert(-1, (grid, min(reach, 1.0)))
            near = free & (2 * away <= reach)
            drawn[near] = anchor + np.rint((drawn[near] - anchor) / grid) * grid
            free &= ~near
    return found


def learn_lattice(values: npt.NDArray[Any], decimals: int | None) -> Any:
    """Return what nearly all values of a column share, None if it is nothing.

    Parameters
    ----------
    values : array [n]
        Observed values.
    decimals : int or None
        Decimals that the column is rounded to, None at full precision.

    Returns
    -------
    dict or None
        JSON-safe: `support`, the only values; or `steps`, pairs of step and reach from
        coarse to fine, with nodes at `anchor` plus multiples.

    Examples
    --------
    >>> learn_lattice(np.arange(900) * 5, 0)
    {'steps': [[5, 1.0]], 'anchor': 0}
    >>> learn_lattice(np.tile([0.1, 1 / 3, 4.0], 99), None)["support"][::2]
    [0.1, 4.0]
    """
    levels, counts = np.unique(values, return_counts=True)
    if np.abs(levels[[0, -1]].astype(np.float64)).max() >= WHOLE:
        return None
    integers = levels.dtype.kind in "iu"
    levels = levels.astype(np.float64)
    unit = None if decimals is None else 10.0**-decimals
    support = _support(levels, counts, unit)
    steps, anchor = [(1, 1.0)], 0
    if unit is not None and len(levels) > 1:
        at = np.rint(levels / unit)
        # what is odd would only blur the differences
        good = np.abs(levels / unit - at) <= 1e-3
        whole, weight = plain_evidence(at[good], counts[good])
        n_nodes = float(whole[-1] - whole[0]) if len(whole) else 0.0
        if len(whole) > 2 and np.abs(whole[[0, -1]]).max() < WHOLE:
            step, anchor = _finest(whole, weight, n_nodes)
            n = int(counts.sum())
            rare = weight <= 2 * n / n_quantiles(n)
            grids = [step]
            if weight[rare].sum() > max(FEWEST, HEAP * n):
                grids = _coarser(whole[rare], weight[rare], step, anchor, n_nodes)
            steps = _reaches(grids, levels / unit, counts, anchor)
    if support is not None:
        nodes = math.inf
        if unit is not None:
            nodes = (support[-1] - support[0]) / unit / steps[-1][0] + 1
        if len(support) <= nodes / 2:
            return {"support": [int(v) if integers else float(v) for v in support]}
    if steps == [(1, 1.0)]:
        return None

    def plain(number: float) -> int | float:
        exact = round(number * (unit or 1.0), decimals or 0)
        return int(exact) if exact == int(exact) else exact

    return {
        "steps": [[plain(step), round(reach, 4)] for step, reach in steps],
        "anchor": plain(anchor),
    }


def _support(
    levels: Floats, counts: npt.NDArray[np.int64], unit: float | None
) -> Floats | None:
    """Return the values that are repeated, if they are nearly all there are."""
    once = counts == 1
    if once.sum() > UNSEEN * counts.sum() or (~once).sum() < 2:
        return None
    kept = ~once
    if unit is not None:
        # the range is kept, unless its end is an odd cell
        kept[[0, -1]] |= ~_off(levels[[0, -1]], unit)
    return levels[kept] if kept.sum() <= MOST_VALUES else None


def lattice_text(lattice: Mapping[str, Any]) -> str:
    """Say what a lattice is, for a column's reason.

    Examples
    --------
    >>> lattice_text({"steps": [[1, 0.8], [0.5, 1.0]], "anchor": 0})
    'multiples of 0.5, often of 1'
    """
    if "support" in lattice:
        return f"only {len(lattice['support'])} different values"
    *coarse, (step, _) = lattice["steps"]
    often = " and ".join(str(c) for c, _ in coarse[::-1])
    away = f"{lattice['anchor']} plus " if lattice["anchor"] else ""
    return f"{away}multiples of {step}" + (f", often of {often}" if often else "")


def on_lattice(
    x: Floats, lattice: Mapping[str, Any], low: float, high: float
) -> Floats:
    """Return the values of the lattice that numbers stand for.

    A number is put on the coarsest grid of which a node has it within reach.

    Examples
    --------
    >>> whole_or_half = {"steps": [[1, 0.8], [0.5, 1.0]], "anchor": 0}
    >>> on_lattice(np.array([3.1, 3.39, 3.42, 3.5]), whole_or_half, 0, 9).tolist()
    [3.0, 3.0, 3.5, 3.5]
    """
    if "support" in lattice:
        support = np.array(lattice["support"], np.float64)
        right = np.clip(np.searchsorted(support, x), 1, len(support) - 1)
        nearer = x - support[right - 1] <= support[right] - x
        return np.asarray(support[right - nearer])
    x = np.clip(x, low, high)
    steps, anchor = lattice["steps"], lattice["anchor"]
    finest = steps[-1][0]
    values = anchor + np.rint((x - anchor) / finest) * finest
    # a number that is a node already is a value that was seen
    free = _off(x, finest, anchor)
    for step, reach in steps[:-1]:
        node = anchor + np.rint((x - anchor) / step) * step
        near = free & (np.abs(x - node) <= reach * step / 2)
        values[near] = node[near]
        free &= ~near
    # the ends of the range may lie between two nodes
    inside = np.where(values > high, values - finest, values)
    inside = np.where(inside < low, inside + finest, inside)
    return np.asarray(np.clip(inside, low, high))


def check_lattice(stored: Mapping[str, Any]) -> bool:
    """Say whether a stored lattice is one.

    Examples
    --------
    >>> check_lattice({"support": [1, 2.5]}), check_lattice({"support": [2, 1]})
    (True, False)
    """

    def numbers(given: object) -> bool:
        return isinstance(given, list) and all(
            type(v) in (int, float) and math.isfinite(v) for v in given
        )

    if stored.keys() == {"support"}:
        support = stored["support"]
        return (
            numbers(support) and len(support) > 1 and list(support) == sorted(support)
        )
    if stored.keys() != {"steps", "anchor"} or not numbers([stored["anchor"]]):
        return False
    steps = stored["steps"]
    return (
        isinstance(steps, list)
        and bool(steps)
        and all(numbers(pair) and len(pair) == 2 for pair in steps)
        and all(step > 0 and 0 <= reach <= 1 for step, reach in steps)
    )
