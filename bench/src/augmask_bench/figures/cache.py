"""One fixed filling or many: β-recall and utility by policy of draws.

The paper's ablation of cached fillings: `one` is kept all the time, `cycle:k` switches
among k from epoch to epoch, `anchor:k:ρ` stays with a fixed one in a share ρ of the
epochs; `stack:k` (ours) trains on k copies of every row at once. A line marks `one`.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from augmask.augmentation.completions import CompletionPlan
from augmask.report.plots import plain_number
from augmask_bench.figures.matched import blocks_of, matched, with_quality
from augmask_bench.figures.style import COLOURS, FAINT, INK, SIZE, SOFT, plain
from augmask_bench.ranks import METRICS

SHOWN = ("beta_recall", "mle")
KINDS = ("one", "cycle", "anchor", "stack")


def in_words(policy: str) -> str:
    """Return a policy as the paper's table names it.

    Examples
    --------
    >>> in_words("one"), in_words("anchor:30:0.8")
    ('one, fixed', '30 cached, 80% fixed')
    """
    draws = CompletionPlan.parse(policy)
    if draws.kind == "one":
        return "one, fixed"
    if draws.kind == "anchor":
        return f"{draws.k} cached, {100 * draws.rho:g}% fixed"
    return f"{draws.k} cycled" if draws.kind == "cycle" else f"{draws.k} stacked"


def _place(policy: str) -> tuple[int, int, float]:
    draws = CompletionPlan.parse(policy)
    return KINDS.index(draws.kind), draws.k, draws.rho


def policies(results: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return for every generator its AugMask runs with one rule and many policies."""
    rows = with_quality(results)
    bent = rows["eta"].notna() | rows["lam"].notna()
    rows = rows[(rows["supervise"] == "observed") & ~bent]
    found = {}
    for generator, part in rows.groupby("generator"):
        many = part.groupby("augmenter")["completions"].nunique()
        if many.empty or many.max() < 2:
            continue
        kept = matched(part[part["augmenter"] == many.idxmax()], ["completions"])
        if kept["completions"].nunique() > 1:
            found[str(generator)] = kept
    return found


def _panel(ax: Axes, rows: pd.DataFrame, order: list[str], metric: str) -> None:
    by_seed = rows.groupby(["completions", "seed"])[metric].mean()
    colour = COLOURS["AugMask"]
    if "one" in order:
        ax.axvline(float(by_seed["one"].mean()), color=FAINT, lw=1.2, zorder=0)
    for y, policy in enumerate(order):
        seeds = by_seed[policy]
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
    """Return why the figure cannot be drawn, "" if it can."""
    if policies(results):
        return ""
    return (
        "policies of draws are compared if AugMask ran with two of them or more, for "
        "example 'one' and 'cycle:10', with one generator and rule in the same blocks"
    )


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw a line a policy, a panel a metric, a row of panels a generator."""
    del out
    found = policies(results)
    orders = {
        name: sorted(rows["completions"].unique(), key=_place)
        for name, rows in found.items()
    }
    lines = [len(order) for order in orders.values()]
    figure = Figure(
        figsize=(6.6, 0.3 + 0.26 * sum(lines) + 0.75 * len(found)),
        layout="constrained",
    )
    panels = figure.subplots(
        len(found), len(SHOWN), squeeze=False, sharey="row", height_ratios=lines
    )
    for line, (generator, rows) in zip(panels, found.items(), strict=True):
        order = orders[generator]
        name = str(rows["method"].iloc[0]).split(" + ")[0]
        for ax, metric in zip(line, SHOWN, strict=True):
            plain(ax).grid(visible=False)
            _panel(ax, rows, order, metric)
            ax.set_title(METRICS[metric], size=SIZE + 1, color=INK)
            ax.margins(x=0.08)
            ax.locator_params(axis="x", nbins=4)
            ax.xaxis.set_major_formatter(plain_number)
        line[0].set_yticks(range(len(order)), [in_words(policy) for policy in order])
        line[0].tick_params(axis="y", labelcolor=INK)
        line[1].tick_params(labelleft=False)
        line[0].set_xlabel(
            f"{name} + AugMask, {blocks_of(rows)}", size=SIZE, color=SOFT
        )
    return figure
