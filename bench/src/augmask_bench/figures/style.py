"""Colours, axes and legends that the figures of a grid share.

Figures of the report use placeholder colours that its page replaces; these figures are
separate files and use the page's light colours directly.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from augmask.errors import AugMaskError
from augmask.report.plots import despine
from augmask_bench.ranks import RankTable, rank_table

INK, SOFT, FAINT = "#23272f", "#59616e", "#d9dce1"
SIZE = 8.0
COLOURS = {"NoAug": "#5b677a", "AugFull": "#d9540b", "AugMask": "#3b5bdb"}
# For all other methods, in this order.
OTHERS = ("#1c7a4a", "#9a3fb5", "#a67c00", "#0f8b8d", "#c2387f", "#7a4a2b", "#4d4d4d")
MARKERS = ("o", "s", "^", "v", "P", "X", "D", "*")


def plain(ax: Axes) -> Axes:
    """Reduce an axes to tick labels, a baseline and faint grid lines."""
    despine(ax, left=True)
    ax.spines["bottom"].set_color(FAINT)
    ax.tick_params(labelsize=SIZE, labelcolor=SOFT)
    ax.grid(axis="y", color=FAINT, lw=0.6)
    ax.set_axisbelow(True)
    return ax


def colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each name; the paper's strategies have fixed ones.

    Examples
    --------
    >>> colours(["AugMask", "MIWAE"])
    {'AugMask': '#3b5bdb', 'MIWAE': '#1c7a4a'}
    """
    others = [name for name in dict.fromkeys(names) if name not in COLOURS]
    assigned = {name: OTHERS[i % len(OTHERS)] for i, name in enumerate(others)}
    return {name: (COLOURS | assigned)[name] for name in names}


def legend_above(figure: Figure, handles: Sequence[Artist]) -> None:
    """Draw the legend above all panels, in as many columns as fit."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    fitting = int(figure.get_figwidth() / (0.55 + 0.075 * longest))
    figure.legend(
        handles=list(handles),
        loc="outside upper center",
        ncols=min(len(handles), max(fitting, 1)),
        frameon=False,
        fontsize=SIZE,
        labelcolor=INK,
    )


def tables(results: pd.DataFrame) -> list[RankTable]:
    """Return one rank table per mechanism, MCAR first."""
    usual = ["mcar", "mar", "mnar"]
    mechanisms = sorted(
        results["mechanism"].unique(),
        key=lambda name: (usual.index(name) if name in usual else len(usual), name),
    )
    return [rank_table(results, mechanism) for mechanism in mechanisms]


def why_unranked(results: pd.DataFrame) -> str:
    """Return why methods cannot be ranked; an empty text if they can."""
    try:
        tables(results)
    except AugMaskError as error:
        return str(error)
    return ""
