"""Augmenters with and without masking, as in the paper's figure.

Each augmenter has two points: trained on all cells (AugFull) and on observed cells only
(AugMask), with the same augmented table. Points rather than bars, because the axes do
not start at 0. Stochastic augmenters have a shaded background.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from augmask.augmentation import available_augmenters
from augmask.report.plots import plain_number
from augmask_bench.figures.data import (
    blocks_of,
    matched,
    usual_completions,
    with_quality,
)
from augmask_bench.figures.style import (
    COLOURS,
    FAINT,
    INK,
    SIZE,
    SOFT,
    legend_above,
    plain,
)
from augmask_bench.methods import display_name

PLOTTED = {"quality": "Sample quality", "mle": "ML Task"}
STRATEGY = {"all": "AugFull", "observed": "AugMask"}
SHADE = "#f1f2f5"


def is_stochastic(augmenter: str) -> bool:
    """Return whether an augmenter is stochastic; unknown ones are assumed to be."""
    if augmenter not in available_augmenters():
        return True
    return bool(getattr(available_augmenters()[augmenter](), "stochastic", True))


def _short(augmenter: str) -> str:
    """Return an augmenter's name in at most two short lines."""
    name = display_name(augmenter)
    stem, _, rest = name.rpartition("-")
    return f"{stem}\n{rest.lower()}" if len(rest) > 1 and stem else name


def _order(names: pd.Series) -> list[str]:
    """Return augmenters in the paper's order, that of the registry; others last."""
    known = [name for name in available_augmenters() if name in set(names)]
    return known + sorted(set(names) - set(known))


def _rows(results: pd.DataFrame) -> pd.DataFrame:
    rows = with_quality(results)
    perturbed = rows["eta"].notna() | rows["lam"].notna()
    rows = rows[rows["supervise"].isin(list(STRATEGY)) & ~perturbed]
    return usual_completions(rows)


def pairs(results: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return each generator's runs of augmenters that have both strategies."""
    runs = {}
    for generator, part in _rows(results).groupby("generator"):
        both = part.groupby("augmenter")["supervise"].transform("nunique") == 2
        comparable = matched(part[both], ["augmenter", "supervise"])
        if comparable["augmenter"].nunique() > 1:
            runs[str(generator)] = comparable
    return runs


def _panel(ax: Axes, rows: pd.DataFrame, augmenters: list[str], metric: str) -> None:
    by_seed = rows.groupby(["augmenter", "supervise", "seed"])[metric].mean()
    for x, augmenter in enumerate(augmenters):
        if is_stochastic(augmenter):
            ax.axvspan(x - 0.5, x + 0.5, color=SHADE, lw=0, zorder=0)
        ends = [float(by_seed[augmenter, kind].mean()) for kind in STRATEGY]
        ax.plot([x - 0.13, x + 0.13], ends, color=FAINT, lw=1.4, zorder=1)
        for kind, shift in zip(STRATEGY, (-0.13, 0.13), strict=True):
            seeds = by_seed[augmenter, kind]
            colour = COLOURS[STRATEGY[kind]]
            ax.vlines(
                x + shift, seeds.min(), seeds.max(), color=colour, lw=1, alpha=0.5
            )
            ax.plot([x + shift], [seeds.mean()], "o", color=colour, ms=5, zorder=3)
    ax.set_xlim(-0.5, len(augmenters) - 0.5)


def needs(results: pd.DataFrame) -> str:
    """Return why the figure cannot be drawn; an empty text if it can."""
    if pairs(results):
        return ""
    return (
        "the figure needs runs of one generator with at least two augmenters, each "
        "with supervise 'all' and 'observed', in the same blocks"
    )


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw quality above and utility below, a column of panels per generator."""
    del out
    runs = pairs(results)
    orders = {name: _order(rows["augmenter"]) for name, rows in runs.items()}
    widths = [len(order) for order in orders.values()]
    metrics = [m for m in PLOTTED if all(r[m].notna().all() for r in runs.values())]
    figure = Figure(
        figsize=(0.9 + 0.68 * sum(widths), 0.95 + 1.55 * len(metrics)),
        layout="constrained",
    )
    panels = figure.subplots(
        len(metrics),
        len(runs),
        squeeze=False,
        sharex="col",
        sharey="row",
        width_ratios=widths,
    )
    for j, (generator, rows) in enumerate(runs.items()):
        augmenters = orders[generator]
        for i, metric in enumerate(metrics):
            ax = plain(panels[i, j])
            _panel(ax, rows, augmenters, metric)
            ax.margins(y=0.12)
            ax.locator_params(axis="y", nbins=4)
            ax.yaxis.set_major_formatter(plain_number)
            ax.tick_params(labelleft=j == 0)
            if j == 0:
                ax.set_ylabel(PLOTTED[metric], size=SIZE + 1, color=INK)
        title = str(rows["method"].iloc[0]).split(" + ")[0]
        panels[0, j].set_title(title, size=SIZE + 1, color=INK)
        names = [_short(name) for name in augmenters]
        panels[-1, j].set_xticks(range(len(augmenters)), names)
        panels[-1, j].tick_params(axis="x", labelcolor=INK, labelsize=SIZE - 0.5)
        panels[-1, j].set_xlabel(blocks_of(rows), size=SIZE, color=SOFT)
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=COLOURS[name], marker="o", ms=5, ls="none", label=label)
        for name, label in (
            ("AugFull", "AugFull: all cells supervised"),
            ("AugMask", "AugMask: observed cells"),
        )
    ]
    handles.append(Patch(color=SHADE, label="stochastic augmenter"))
    legend_above(figure, handles)
    return figure
