"""The lattice of a numeric column: the grid or the few values that its numbers lie on.

Wind speeds are multiples of 5, incomes mostly multiples of 1,000, interest rates one of
a few dozen. `learn_lattice` finds such a pattern, ignoring a few outliers, and decoding
rounds to it. Either the column has a *support*, few repeated values, and decoding takes
the nearest; or it has *steps*, nested grids from coarse to fine, each with a reach that
gives it its share of the values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from augmask.table.scale import n_quantiles
from augmask.validation import ListSpec, RecordSpec, Refined, ValueSpec

Floats = npt.NDArray[np.float64]

# Share of outliers that is ignored.
ODD = 0.01
# A value with more than this share of the cells says nothing about the others.
HEAP = 0.1
# The observed values are taken for the whole support if the probability of a new one
# (Good-Turing: the share of values that occur once) is below this.
UNSEEN = 0.005
MOST_VALUES = 1_000
# Floats represent all whole numbers up to here.
WHOLE = 2.0**53
# Evidence for a grid, in nats, that it is not an accident.
EVIDENCE = 12.0
# A coarser grid needs this share of the values beyond what chance puts on it.
EXCESS = 0.05
FEWEST = 100
# Distance from a node, in steps, that counts as rounding noise.
NOISE = 1e-6
# Values simulated to see what the quantiles alone would generate.
SIMULATED = 10_000

# Steps that people round to, in units of the finest grid.
_HEAPS = (2, *(n * 10**k for k in range(12) for n in (5, 10)))
_MULTIPLES = (2, 3, 4, 5, 6, 7, 8, 12, 15, 24, 30, 60)


def without_heaps(
    levels: Floats, counts: npt.NDArray[np.int64]
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return values and counts without very frequent values such as zeros."""
    heap = counts > HEAP * counts.sum()
    rest = counts[~heap].sum()
    if not heap.any() or rest < max(20, counts.sum() // 1000):
        return levels, counts
    return levels[~heap], counts[~heap]


def _off_grid(
    levels: Floats, step: float, anchor: float = 0.0
) -> npt.NDArray[np.bool_]:
    """Return which values do not lie on a grid."""
    at = (levels - anchor) / step
    off: npt.NDArray[np.bool_] = np.abs(at - np.rint(at)) > NOISE
    return off


def _round_numbers(largest: float) -> list[int]:
    """Return 2, 5, 10, 20, 25, 50, ... up to `largest`."""
    numbers = set(_MULTIPLES)
    tens = 10
    while tens <= largest:
        numbers |= {tens, 2 * tens, tens * 5 // 2, 5 * tens}
        tens *= 10
    return sorted(number for number in numbers if number <= largest)


def _largest_shared_step(
    whole: Floats, counts: npt.NDArray[np.int64], n_nodes: float
) -> tuple[int, int]:
    """Return the largest step, and its anchor, that nearly all values share."""
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


def _nested_grids(
    whole: Floats, counts: npt.NDArray[np.int64], step: int, anchor: int, n_nodes: float
) -> list[int]:
    """Return nested grids, from fine to coarse.

    From the coarsest down, a grid is kept if it holds more of the values that lie on no
    coarser one than a finer grid explains.
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

    Frequent values are generated at their own share, because the quantiles are flat
    there. Of the rest, numbers within a node's reach (1: half way to the next) are
    rounded to it; the reach is chosen so that the grid keeps its share of the values.
    """
    n = int(counts.sum())
    knots = np.quantile(np.repeat(at, counts), np.linspace(0, 1, n_quantiles(n)))
    x = np.interp(np.linspace(0, 1, SIMULATED), np.linspace(0, 1, len(knots)), knots)
    free = _off_grid(x, grids[0], anchor)
    result: list[tuple[int, float]] = [(grids[0], 1.0)]
    for grid in grids[:0:-1]:
        wanted = counts[~_off_grid(at, grid, anchor)].sum() / n
        there = (~free & ~_off_grid(x, grid, anchor)).mean()
        away = np.abs((x - anchor) / grid - np.rint((x - anchor) / grid))
        share = (wanted - there) / max(free.mean(), 1e-9)
        if share > 0:
            reach = float(2 * np.quantile(away[free], min(share, 1.0)))
            result.insert(-1, (grid, min(reach, 1.0)))
            near = free & (2 * away <= reach)
            x[near] = anchor + np.rint((x[near] - anchor) / grid) * grid
            free &= ~near
    return result


def learn_lattice(values: npt.NDArray[Any], decimals: int | None) -> Any:
    """Return the lattice of a column, None if it has none.

    Parameters
    ----------
    values : array [n]
        Observed values.
    decimals : int or None
        Decimals of the column, None at full precision.

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
        # Outliers would only blur the differences.
        good = np.abs(levels / unit - at) <= 1e-3
        whole, weight = without_heaps(at[good], counts[good])
        n_nodes = float(whole[-1] - whole[0]) if len(whole) else 0.0
        if len(whole) > 2 and np.abs(whole[[0, -1]]).max() < WHOLE:
            step, anchor = _largest_shared_step(whole, weight, n_nodes)
            n = int(counts.sum())
            rare = weight <= 2 * n / n_quantiles(n)
            grids = [step]
            if weight[rare].sum() > max(FEWEST, HEAP * n):
                grids = _nested_grids(whole[rare], weight[rare], step, anchor, n_nodes)
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
    """Return the repeated values if they are nearly all values."""
    once = counts == 1
    if once.sum() > UNSEEN * counts.sum() or (~once).sum() < 2:
        return None
    kept = ~once
    if unit is not None:
        # Keep the ends of the range unless they are outliers.
        kept[[0, -1]] |= ~_off_grid(levels[[0, -1]], unit)
    return levels[kept] if kept.sum() <= MOST_VALUES else None


def lattice_text(lattice: Mapping[str, Any]) -> str:
    """Return a lattice in words.

    Examples
    --------
    >>> lattice_text({"steps": [[1, 0.8], [0.5, 1.0]], "anchor": 0})
    'multiples of 0.5, often of 1'
    """
    if "support" in lattice:
        return f"only {len(lattice['support'])} distinct values"
    *coarse, (step, _) = lattice["steps"]
    often = " and ".join(str(c) for c, _ in coarse[::-1])
    away = f"{lattice['anchor']} plus " if lattice["anchor"] else ""
    return f"{away}multiples of {step}" + (f", often of {often}" if often else "")


def round_to_lattice(
    x: Floats, lattice: Mapping[str, Any], low: float, high: float
) -> Floats:
    """Round numbers to the lattice: to the coarsest grid with a node within reach.

    Examples
    --------
    >>> whole_or_half = {"steps": [[1, 0.8], [0.5, 1.0]], "anchor": 0}
    >>> round_to_lattice(np.array([3.1, 3.39, 3.42, 3.5]), whole_or_half, 0, 9).tolist()
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
    # A number that is a node already is an observed value.
    free = _off_grid(x, finest, anchor)
    for step, reach in steps[:-1]:
        node = anchor + np.rint((x - anchor) / step) * step
        near = free & (np.abs(x - node) <= reach * step / 2)
        values[near] = node[near]
        free &= ~near
    # The ends of the range may lie between two nodes; rounding puts none outside.
    noise = NOISE * finest
    inside = np.where(values > high + noise, values - finest, values)
    inside = np.where(inside < low - noise, inside + finest, inside)
    return np.asarray(np.clip(inside, low, high))


def _is_lattice(stored: Mapping[str, Any]) -> bool:
    support = stored.get("support", [])
    keys = {"support"} if "support" in stored else {"steps", "anchor"}
    return stored.keys() == keys and list(support) == sorted(support)


_NUMBER = ValueSpec(Real)
_STEP = ListSpec((ValueSpec(Real, above=0), ValueSpec(Real, lowest=0, highest=1)))
LATTICE_SPEC = Refined(
    RecordSpec(
        {
            "support": ListSpec(_NUMBER, shortest=2),
            "steps": ListSpec(_STEP, shortest=1),
            "anchor": _NUMBER,
        },
        required=(),
        optional=True,
    ),
    _is_lattice,
    "an ascending support, or steps with an anchor",
)
