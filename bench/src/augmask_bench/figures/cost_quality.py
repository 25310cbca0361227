"""Quality against cost: summary rank over the seconds from table to rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from augmask.errors import AugMaskError
from augmask_bench.figures.style import (
    FAINT,
    INK,
    MARKERS,
    SIZE,
    SOFT,
    colours,
    legend_above,
    plain,
)
from augmask_bench.ranks import BLOCK, SUMMARY, rank_table

SECONDS = ["augment_seconds", "fit_seconds", "sample_seconds"]
AWARE = "missing-aware"
# Round durations in seconds, for ticks.
ROUND = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30]
ROUND += [60 * n for n in (1, 2, 5, 10, 20, 30)]
ROUND += [3600 * n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)]
TICKS = 6
# Up to this many variants of one strategy are all labelled, else only the best.
FEW = 8


def duration(seconds: float, _: object = None) -> str:
    """Return seconds with a suitable unit.

    Examples
    --------
    >>> duration(0.5), duration(45), duration(600), duration(7200)
    ('0.5 s', '45 s', '10 min', '2 h')
    """
    for limit, unit in ((3600, "h"), (60, "min")):
        if seconds >= limit:
            return f"{seconds / limit:.3g} {unit}"
    return f"{seconds:.3g} s"


def costs(results: pd.DataFrame) -> pd.DataFrame:
    """Return the median `seconds` of completed runs and the `rank` of each method.

    Both are over the same blocks. A method without a completed run has no row.
    """
    table = rank_table(results)
    runs = results[results["status"] == "done"].set_index(list(BLOCK))
    runs = runs[runs.index.isin(table.ranks.index)]
    seconds = runs[SECONDS].fillna(0.0).sum(axis=1).groupby(runs["method"]).median()
    summary = table.methods[["generator", "strategy", "aware"]].assign(
        seconds=seconds.reindex(table.methods.index), rank=table.mean[SUMMARY]
    )
    return summary[summary["seconds"] > 0]


def _ticks(low: float, high: float) -> list[float]:
    inside = [value for value in ROUND if low <= value <= high]
    return inside[:: -(-len(inside) // TICKS) or 1]


def _name_points(ax: Axes, points: dict[str, tuple[float, float]]) -> None:
    """Write names beside points, towards the middle, without overlap."""
    low, high = np.log(ax.get_xlim())
    bottom, top = ax.get_ylim()
    line = 0.05 * (bottom - top)
    placed: list[tuple[float, float]] = []
    for name, (seconds, rank) in sorted(points.items(), key=lambda item: item[1][1]):
        x, y = np.log(seconds), rank
        for near, above in placed:
            if abs(near - x) < 0.3 * (high - low):
                y = max(y, above + line)
        placed.append((x, y))
        right = x < (low + high) / 2
        ax.annotate(
            name,
            (seconds, y),
            (6 if right else -6, 0),
            textcoords="offset points",
            size=SIZE,
            color=INK,
            va="center",
            ha="left" if right else "right",
        )


def needs(results: pd.DataFrame) -> str:
    """Return why the figure cannot be drawn; an empty text if it can."""
    missing = [name for name in SECONDS if name not in results]
    if missing:
        return f"the results have no column {missing[0]!r}"
    try:
        n_methods = len(costs(results))
    except AugMaskError as error:
        return str(error)
    return "" if n_methods > 1 else "costs need at least two methods with known times"


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw one point per method; up is better, left is cheaper.

    Lines join the strategies of one generator. Compare times within one machine only.
    """
    del out
    points_of = costs(results)
    aware = points_of["aware"].astype(bool)
    kind = points_of["strategy"].where(~aware, AWARE).replace("", "other")
    shades = colours(list(kind))
    generators = list(dict.fromkeys(points_of.loc[~aware, "generator"]))
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    ax = plain(figure.subplots())
    ax.set_xscale("log")
    low, high = points_of["seconds"].min(), points_of["seconds"].max()
    points = {}
    for generator, part in points_of[~aware].groupby("generator", sort=False):
        named = part[part["rank"] == part["rank"].min()].iloc[:1]
        if part["strategy"].is_unique:
            ax.plot(part["seconds"], part["rank"], color=FAINT, lw=1.2, zorder=1)
        elif len(part) <= FEW:
            named = part
        for method, line in named.iterrows():
            full_name = len(named) > 1 or not part["strategy"].is_unique
            name = str(method) if full_name else str(method).split(" + ")[0]
            points[name] = line["seconds"], line["rank"]
        marker = MARKERS[generators.index(generator) % len(MARKERS)]
        for method, line in part.iterrows():
            ax.plot(
                line["seconds"],
                line["rank"],
                marker,
                ms=6.5,
                color=shades[kind[method]],
            )
    for method, line in points_of[aware].iterrows():
        ax.plot(line["seconds"], line["rank"], "D", ms=5, color=shades[AWARE])
        points[str(method)] = line["seconds"], line["rank"]
    ax.set_xlim(low / 1.6, high * 1.6)
    k = len(points_of)
    ax.set_ylim(points_of["rank"].max() + 0.06 * k, points_of["rank"].min() - 0.06 * k)
    _name_points(ax, points)
    ax.xaxis.set_major_locator(FixedLocator(_ticks(*ax.get_xlim())))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(duration))
    ax.set_xlabel("augment, fit and sample, median of runs", size=SIZE + 1, color=SOFT)
    ax.set_ylabel("summary rank, 1 is best", size=SIZE + 1, color=SOFT)
    handles = [
        Line2D([], [], color=shade, marker="o", ms=5, ls="none", label=name)
        for name, shade in shades.items()
    ]
    legend_above(figure, handles)
    return figure
