"""Average ranks as a heat map: methods by metrics, one map per mechanism."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from augmask.report.plots import fade, heat, name_width, thin_frame
from augmask_bench.figures.style import FAINT, INK, SIZE, SOFT, tables, why_unranked
from augmask_bench.ranks import SUMMARY, TITLES, RankTable

LINE = 0.24
CELL = 0.66


def _map(ax: Axes, table: RankTable, names: bool) -> None:
    mean = table.mean
    k, n = mean.shape
    # Blue is good; the last rank is white.
    goodness = (k - mean.to_numpy()) / max(k - 1, 1)
    heat(ax, fade(goodness, "synthetic"))
    for spine in thin_frame(ax).spines.values():
        spine.set_color(FAINT)
    for i, j in np.ndindex(k, n):
        ax.text(
            j,
            i,
            f"{mean.iat[i, j]:.1f}",
            size=SIZE,
            ha="center",
            va="center",
            color="white" if goodness[i, j] > 0.62 else INK,
        )
    groups = table.methods["generator"].where(~table.methods["aware"].astype(bool), "")
    for i in np.flatnonzero((groups != groups.shift()).to_numpy())[1:]:
        ax.axhline(i - 0.5, color="white", lw=3)
    if SUMMARY in mean:
        ax.axvline(n - 1.5, color="white", lw=3)
    ax.set_xticks(range(n), [TITLES[metric] for metric in mean.columns])
    ax.set_yticks(range(k), list(mean.index) if names else [""] * k)
    ax.tick_params(left=False, top=False, labelsize=SIZE, labelcolor=INK, pad=3)
    ax.tick_params(bottom=False, labelbottom=False, labeltop=True)
    title = "" if table.mechanism == "all" else table.mechanism.upper() + ", "
    ax.set_xlabel(f"{title}{table.blocks} blocks", size=SIZE, color=SOFT, labelpad=6)


def needs(results: pd.DataFrame) -> str:
    """Return why the figure cannot be drawn; an empty text if it can."""
    return why_unranked(results)


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw the average ranks of all methods; dark is good, white is last."""
    del out
    maps = tables(results)
    most = max(len(table.methods) for table in maps)
    columns = sum(len(table.metrics) for table in maps)
    names = [name for table in maps for name in table.methods.index]
    figure = Figure(
        figsize=(
            name_width(names, 60) + CELL * columns + 0.2 * len(maps),
            0.75 + LINE * most,
        ),
        layout="constrained",
    )
    panels = figure.subplots(
        1,
        len(maps),
        squeeze=False,
        width_ratios=[len(table.metrics) for table in maps],
    )[0]
    previous: list[str] = []
    for ax, table in zip(panels, maps, strict=True):
        methods = list(table.methods.index)
        _map(ax, table, names=methods != previous)
        previous = methods
    return figure
