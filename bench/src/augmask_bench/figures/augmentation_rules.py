"""Which rule fills the holes, and whether filled cells are supervised.

The paper's figure of augmentation rules with and without masking: for every rule two
points, one trained on all cells (AugFull) and one on observed cells only (AugMask),
with the same filled table. Points and not bars, because the axes do not start at 0.
Stochastic rules stand on a shaded ground.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from augmask.augmentation import every_augmenter
from augmask.report.plots import plain_number
from augmask_bench.figures.matched import blocks_of, matched, usual_draws, with_quality
from augmask_bench.figures.style import (
    COLOURS,
    FAINT,
    INK,
    SIZE,
    SOFT,
    legend_above,
    plain,
)
from augmask_bench.methods import in_print

SHOWN = {"quality": "Sample quality", "mle": "ML Task"}
STRATEGY = {"all": "AugFull", "observed": "AugMask"}
SHADE = "#f1f2f5"


def is_stochastic(rule: str) -> bool:
    """Return whether a rule draws; one that is not ours is taken to."""
    if rule not in every_augmenter():
        return True
    return bool(getattr(every_augmenter()[rule](), "stochastic", True))


def _short(rule: str) -> str:
    """Return a rule's name in two short lines at most."""
    stem, _, rest = in_print(rule).rpartition("-")
    return f"{stem}\n{rest.lower()}" if len(rest) > 1 and stem else in_print(rule)


def _order(rules: pd.Series) -> list[str]:
    """Return rules in the paper's order, which is the registry's; others at the end."""
    known = [rule for rule in every_augmenter() if rule in set(rules)]
    return known + sorted(set(rules) - set(known))


def _rows(results: pd.DataFrame) -> pd.DataFrame:
    rows = with_quality(results)
    bent = rows["eta"].notna() | rows["lam"].notna()
    rows = rows[rows["supervise"].isin(list(STRATEGY)) & ~bent]
    return usual_draws(rows)


def pairs(results: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return for every generator the runs of rules that have both strategies."""
    found = {}
    for generator, part in _rows(results).groupby("generator"):
        both = part.groupby("augmenter")["supervise"].transform("nunique") == 2
        kept = matched(part[both], ["augmenter", "supervise"])
        if kept["augmenter"].nunique() > 1:
            found[str(generator)] = kept
    return found


def _panel(ax: Axes, rows: pd.DataFrame, rules: list[str], metric: str) -> None:
    by_seed = rows.groupby(["augmenter", "supervise", "seed"])[metric].mean()
    for x, rule in enumerate(rules):
        if is_stochastic(rule):
            ax.axvspan(x - 0.5, x + 0.5, color=SHADE, lw=0, zorder=0)
        ends = [float(by_seed[rule, kind].mean()) for kind in STRATEGY]
        ax.plot([x - 0.13, x + 0.13], ends, color=FAINT, lw=1.4, zorder=1)
        for kind, shift in zip(STRATEGY, (-0.13, 0.13), strict=True):
            seeds = by_seed[rule, kind]
            colour = COLOURS[STRATEGY[kind]]
            ax.vlines(
                x + shift, seeds.min(), seeds.max(), color=colour, lw=1, alpha=0.5
            )
            ax.plot([x + shift], [seeds.mean()], "o", color=colour, ms=5, zorder=3)
    ax.set_xlim(-0.5, len(rules) - 0.5)


def needs(results: pd.DataFrame) -> str:
    """Return why the figure cannot be drawn, "" if it can."""
    if pairs(results):
        return ""
    return (
        "augmentation rules are compared if one generator ran with two rules or more, "
        "each with supervise 'all' and 'observed', in the same blocks"
    )


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw quality above and utility below, a column of panels per generator."""
    del out
    found = pairs(results)
    orders = {name: _order(rows["augmenter"]) for name, rows in found.items()}
    widths = [len(rules) for rules in orders.values()]
    metrics = [m for m in SHOWN if all(r[m].notna().all() for r in found.values())]
    figure = Figure(
        figsize=(0.9 + 0.68 * sum(widths), 0.95 + 1.55 * len(metrics)),
        layout="constrained",
    )
    panels = figure.subplots(
        len(metrics),
        len(found),
        squeeze=False,
        sharex="col",
        sharey="row",
        width_ratios=widths,
    )
    for j, (generator, rows) in enumerate(found.items()):
        rules = orders[generator]
        for i, metric in enumerate(metrics):
            ax = plain(panels[i, j])
            _panel(ax, rows, rules, metric)
            ax.margins(y=0.12)
            ax.locator_params(axis="y", nbins=4)
            ax.yaxis.set_major_formatter(plain_number)
            ax.tick_params(labelleft=j == 0)
            if j == 0:
                ax.set_ylabel(SHOWN[metric], size=SIZE + 1, color=INK)
        title = str(rows["method"].iloc[0]).split(" + ")[0]
        panels[0, j].set_title(title, size=SIZE + 1, color=INK)
        names = [_short(rule) for rule in rules]
        panels[-1, j].set_xticks(range(len(rules)), names)
        panels[-1, j].tick_params(axis="x", labelcolor=INK, labelsize=SIZE - 0.5)
        panels[-1, j].set_xlabel(blocks_of(rows), size=SIZE, color=SOFT)
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=COLOURS[name], marker="o", ms=5, ls="none", label=label)
        for name, label in (
            ("AugFull", "AugFull: all cells supervised"),
            ("AugMask", "AugMask: observed cells"),
        )
    ]
    handles.append(Patch(color=SHADE, label="stochastic rule"))
    legend_above(figure, handles)
    return figure
