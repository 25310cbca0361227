"""Colours and bare axes that the figures of a grid share.

The report draws in placeholder colours that its page replaces; these figures are files
of their own, so they take the page's light colours as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from augmask.errors import AugMaskError
from augmask.report.plots import bare
from augmask_bench.ranks import RankTable, rank_table

INK, SOFT, FAINT = "#23272f", "#59616e", "#d9dce1"
SIZE = 8.0
COLOURS = {"NoAug": "#5b677a", "AugFull": "#d9540b", "AugMask": "#3b5bdb"}
# For methods that are none of the three, in turn.
OTHERS = ("#1c7a4a", "#9a3fb5", "#a67c00", "#0f8b8d", "#c2387f", "#7a4a2b", "#4d4d4d")
MARKERS = ("o", "s", "^", "v", "P", "X", "D", "*")


def plain(ax: Axes) -> Axes:
    """Leave of an axes its numbers, a baseline and faint lines to read values by."""
    bare(ax, left=True)
    ax.spines["bottom"].set_color(FAINT)
    ax.tick_params(labelsize=SIZE, labelcolor=SOFT)
    ax.grid(axis="y", color=FAINT, lw=0.6)
    ax.set_axisbelow(True)
    return ax


def colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour a name: the paper's strategies have their own.

    Examples
    --------
    >>> colours(["AugMask", "MIWAE"])
    {'AugMask': '#3b5bdb', 'MIWAE': '#1c7a4a'}
    """
    others = [name for name in dict.fromkeys(names) if name not in COLOURS]
    given = {name: OTHERS[i % len(OTHERS)] for i, name in enumerate(others)}
    return {name: (COLOURS | given)[name] for name in names}


def legend_above(figure: Figure, handles: Sequence[Artist]) -> None:
    """Name what is drawn above all panels, in as many columns as fit."""
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
    """Return one rank table a mechanism, MCAR first."""
    usual = ["mcar", "mar", "mnar"]
    found = sorted(
        results["mechanism"].unique(),
        key=lambda name: (usual.index(name) if name in usual else len(usual), name),
    )
    return [rank_table(results, mechanism) for mechanism in found]


def why_unranked(results: pd.DataFrame) -> str:
    """Return why methods cannot be ranked, "" if they can."""
    try:
        tables(results)
    except AugMaskError as error:
        return str(error)
    return ""
