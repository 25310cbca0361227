"""One fixed completion or many: β-recall and utility by the setting `completions`.

The paper's ablation of cached completions: `one` uses the same completion throughout,
`cycle:k` switches among k from epoch to epoch, `anchor:k:ρ` uses a fixed one in a share
ρ of the epochs; `stack:k` (ours) trains on k copies of every row. A line marks `one`.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from augmask.augmentation.completions import CompletionPlan
from augmask.report.plots import plain_number
from augmask_bench.figures.data import blocks_of, matched, with_quality
from augmask_bench.figures.style import COLOURS, FAINT, INK, SIZE, SOFT, plain
from augmask_bench.ranks import METRICS

PLOTTED = ("beta_recall", "mle")
KINDS = ("one", "cycle", "anchor", "stack")


def in_words(setting: str) -> str:
    """Return a setting as the paper's table names it.

    Examples
    --------
    >>> in_words("one"), in_words("anchor:30:0.8")
    ('one, fixed', '30 cached, 80% fixed')
    """
    plan = CompletionPlan.parse(setting)
    if plan.kind == "one":
        return "one, fixed"
    if plan.kind == "anchor":
        return f"{plan.k} cached, {100 * plan.rho:g}% fixed"
    return f"{plan.k} cycled" if plan.kind == "cycle" else f"{plan.k} stacked"


def _place(setting: str) -> tuple[int, int, float]:
    plan = CompletionPlan.parse(setting)
    return KINDS.index(plan.kind), plan.k, plan.rho


def runs_by_generator(results: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return each generator's AugMask runs of one augmenter with several settings."""
    rows = with_quality(results)
    perturbed = rows["eta"].notna() | rows["lam"].notna()
    rows = rows[(rows["supervise"] == "observed") & ~perturbed]
    runs = {}
    for generator, part in rows.groupby("generator"):
        many = part.groupby("augmenter")["completions"].nunique()
        if many.empty or many.max() < 2:
            continue
        comparable = matched(part[part["augmenter"] == many.idxmax()], ["completions"])
        if comparable["completions"].nunique() > 1:
            runs[str(generator)] = comparable
    return runs


def _panel(ax: Axes, rows: pd.DataFrame, order: list[str], metric: str) -> None:
    by_seed = rows.groupby(["completions", "seed"])[metric].mean()
    colour = COLOURS["AugMask"]
    if "one" in order:
        ax.axvline(float(by_seed["one"].mean()), color=FAINT, lw=1.2, zorder=0)
    for y, setting in enumerate(order):
        seeds = by_seed[setting]
        ax.hlines(y, seeds.min(), seeds.max(), color=colour, lw=1.2, alpha=0.45)
        ax.plot([seeds.mean()], [y], "o", color=colour, ms=5)
        ax.annotate(
            f"{seeds.mean():.3f}",
            (1, y),
            (4, 0),
            xycoords=ax.get_yaxis_transform(),
            textcoords="offset points",
            size=SIZE,
            color=SOFT,
            va="center",
        )
    ax.set_ylim(len(order) - 0.5, -0.5)


def needs(results: pd.DataFrame) -> str:
    """Return why the figure cannot be drawn; an empty text if it can."""
    if runs_by_generator(results):
        return ""
    return (
        "the figure needs AugMask runs of one generator and augmenter with at least "
        "two settings of completions, for example 'one' and 'cycle:10', in the same "
        "blocks"
    )


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw a line per setting, a panel per metric, a row of panels per generator."""
    del out
    runs = runs_by_generator(results)
    orders = {
        name: sorted(rows["completions"].unique(), key=_place)
        for name, rows in runs.items()
    }
    lines = [len(order) for order in orders.values()]
    figure = Figure(
        figsize=(6.6, 0.3 + 0.26 * sum(lines) + 0.75 * len(runs)),
        layout="constrained",
    )
    panels = figure.subplots(
        len(runs), len(PLOTTED), squeeze=False, sharey="row", height_ratios=lines
    )
    for line, (generator, rows) in zip(panels, runs.items(), strict=True):
        order = orders[generator]
        name = str(rows["method"].iloc[0]).split(" + ")[0]
        for ax, metric in zip(line, PLOTTED, strict=True):
            plain(ax).grid(visible=False)
            _panel(ax, rows, order, metric)
            ax.set_title(METRICS[metric], size=SIZE + 1, color=INK)
            ax.margins(x=0.08)
            ax.locator_params(axis="x", nbins=4)
            ax.xaxis.set_major_formatter(plain_number)
        line[0].set_yticks(range(len(order)), [in_words(setting) for setting in order])
        line[0].tick_params(axis="y", labelcolor=INK)
        line[1].tick_params(labelleft=False)
        line[0].set_xlabel(
            f"{name} + AugMask, {blocks_of(rows)}", size=SIZE, color=SOFT
        )
    return figure
