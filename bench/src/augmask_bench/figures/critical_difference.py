"""Critical-difference diagram: which summary ranks differ significantly.

Nemenyi's test: two of k methods differ over N blocks if their average ranks differ by
more than ``q sqrt(k (k + 1) / (6 N))``. This holds for plain ranks; a summary rank is a
mean of several and varies less, so the test is conservative. Blocks of one dataset are
not independent, which has the opposite effect; so the distance with datasets as the
unit is drawn as well.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import studentized_range

from augmask_bench.figures.style import INK, SIZE, SOFT, tables, why_unranked
from augmask_bench.ranks import SUMMARY, RankTable

ALPHA = 0.05
# Inches: the height of a text line, and the width of the rank axis.
LINE, AXIS = 0.21, 3.4
TICKS = 12
MOST = 40
BLOCKS, DATASETS = INK, "#9db0ee"


def critical_difference(k: int, n: int) -> float:
    """Return the critical difference of average ranks of k methods over n blocks.

    Examples
    --------
    >>> round(critical_difference(21, 90), 2)
    3.3
    """
    q = studentized_range.ppf(1 - ALPHA, k, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(k * (k + 1) / (6 * n)))


def groups_within(ranks: list[float], distance: float) -> list[tuple[int, int]]:
    """Return the maximal groups of sorted ranks that lie within a distance.

    Examples
    --------
    >>> groups_within([1.0, 1.5, 2.2, 4.0], 1.0)
    [(0, 1), (1, 2)]
    """
    groups: list[tuple[int, int]] = []
    last = 0
    for i, rank in enumerate(ranks):
        j = max(j for j, other in enumerate(ranks) if other - rank <= distance)
        if j > max(i, last):
            groups.append((i, j))
            last = j
    return groups


def _bars(ax: Axes, ranks: list[float], distances: dict[str, float], y: float) -> float:
    """Draw a bar for each group of methods that do not differ; return the next y."""
    beyond = 0.012 * len(ranks)
    for colour, distance in distances.items():
        for i, j in groups_within(ranks, distance):
            ends = [ranks[i] - beyond, ranks[j] + beyond]
            ax.plot(ends, [y, y], color=colour, lw=3.2, solid_capstyle="round")
            y += 0.42
    return y


def _axis(ax: Axes, k: int, distances: dict[str, float], labels: list[str]) -> None:
    """Draw the rank axis and, above it, the critical differences."""
    inch = (k - 1) / AXIS
    for i, (colour, distance) in enumerate(distances.items()):
        y = -1.9 - 0.95 * i
        ends = [1, 1 + min(distance, k - 1)]
        ax.plot(ends, [y, y], color=colour, lw=3.2, solid_capstyle="round")
        ax.text(
            1 - 0.15 * inch,
            y,
            f"CD {distance:.2f}, {labels[i]}",
            size=SIZE,
            color=SOFT,
            va="center",
            ha="right",
        )
    ax.plot([1, k], [0, 0], color=SOFT, lw=1)
    for tick in range(1, k + 1, -(-k // TICKS)):
        ax.plot([tick, tick], [0, -0.22], color=SOFT, lw=1)
        ax.text(tick, -0.4, str(tick), size=SIZE, color=SOFT, ha="center", va="bottom")


def _diagram(ax: Axes, table: RankTable, side: float) -> float:
    """Draw one mechanism with `side` inches for names; return its height in lines."""
    mean = table.mean[SUMMARY].sort_values(kind="stable")
    ranks, k = list(mean), len(mean)
    inch = (k - 1) / AXIS
    n_datasets = table.ranks.index.unique("dataset").size
    units = {BLOCKS: (table.blocks, "blocks"), DATASETS: (n_datasets, "datasets")}
    if n_datasets in (1, table.blocks):
        del units[DATASETS]
    distances = {
        colour: critical_difference(k, count) for colour, (count, _) in units.items()
    }
    _axis(ax, k, distances, [f"{count} {unit}" for count, unit in units.values()])
    start = _bars(ax, ranks, distances, 0.45) + 0.35
    half = (k + 1) // 2
    for i, (method, rank) in enumerate(mean.items()):
        left = i < half
        # the outermost name is the highest, so that lines do not cross
        y = start + 0.95 * (i if left else k - 1 - i)
        edge = 1 - 0.12 * inch if left else k + 0.12 * inch
        ax.plot([rank, rank, edge], [0, y, y], color=INK, lw=0.8)
        label = f"{method}  {rank:.1f}" if left else f"{rank:.1f}  {method}"
        ax.text(
            edge + (-0.03 if left else 0.03) * inch,
            y,
            label,
            size=SIZE,
            color=INK,
            va="center",
            ha="right" if left else "left",
        )
    if table.mechanism != "all":
        ax.text(
            1 - 0.15 * inch,
            0,
            table.mechanism.upper(),
            size=SIZE + 1,
            color=INK,
            va="center",
            ha="right",
            weight="bold",
        )
    top, bottom = -2.6 - 0.95 * (len(units) - 1), start + 0.95 * half
    ax.set_xlim(1 - side * inch, k + side * inch)
    ax.set_ylim(bottom, top)
    ax.set_axis_off()
    return bottom - top


def needs(results: pd.DataFrame) -> str:
    """Return why the figure cannot be drawn; an empty text if it can."""
    why = why_unranked(results)
    if why:
        return why
    most = max(len(table.methods) for table in tables(results))
    if most > MOST:
        return f"a diagram of more than {MOST} methods is not readable, got {most}"
    return ""


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw summary ranks on an axis, with bars over methods that do not differ.

    Dark bars use blocks as the unit, light ones datasets.
    """
    del out
    diagrams = tables(results)
    longest = max(len(name) for table in diagrams for name in table.methods.index)
    side = max(1.4, 0.6 + 0.066 * longest)
    figure = Figure()
    panels = figure.subplots(len(diagrams), 1, squeeze=False)[:, 0]
    heights = [
        _diagram(ax, table, side) for ax, table in zip(panels, diagrams, strict=True)
    ]
    gap = 1.0
    total = sum(heights) + gap * (len(heights) - 1)
    figure.set_size_inches(AXIS + 2 * side, LINE * total)
    top = 1.0
    for ax, height in zip(panels, heights, strict=True):
        ax.set_position((0.0, top - height / total, 1.0, height / total))
        top -= (height + gap) / total
    return figure
