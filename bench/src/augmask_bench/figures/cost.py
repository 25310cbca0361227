"""What the augmentation rules are, and what they cost: the paper's taxonomy as a table.

Seconds are the median of filling one table, over all runs that used the rule; a filling
that runs share was timed once, when it was made. They compare within one machine only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from augmask.augmentation import every_augmenter
from augmask_bench.figures.augmentation_rules import is_stochastic
from augmask_bench.figures.style import FAINT, INK, SIZE, SOFT
from augmask_bench.methods import in_print

UNIVARIATE = ("zero", "mean", "noise", "ecdf")
YES, NO = "✓", "✗"
LINE, FIRST, COLUMN = 0.24, 1.35, 0.82


def seconds(value: float) -> str:
    """Return seconds with three digits, without powers of ten.

    Examples
    --------
    >>> seconds(0.0412), seconds(9.874), seconds(1234.5)
    ('0.0412', '9.87', '1234')
    """
    return f"{value:.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


def taxonomy(results: pd.DataFrame) -> pd.DataFrame:
    """Return a table of texts: properties and datasets by rules, in the paper's order.

    A rule whose runs all failed says so.
    """
    rows = results[(results["augmenter"] != "") & (results["status"] != "unable")]
    rows = rows[rows["eta"].isna() & rows["lam"].isna()]
    rules = [rule for rule in every_augmenter() if rule in set(rows["augmenter"])]
    rules += sorted(set(rows["augmenter"]) - set(rules))
    done = rows[rows["status"] == "done"]
    cost = done.groupby(["dataset", "augmenter"])["augment_seconds"].median()
    table = {}
    for rule in rules:
        known = rule in every_augmenter()
        several = rule not in UNIVARIATE
        lines = {
            "Stochastic": (YES if is_stochastic(rule) else NO) if known else "",
            "Multivariate": (YES if several else NO) if known else "",
            "Model-based": (YES if several else NO) if known else "",
        }
        for dataset in sorted(rows["dataset"].unique()):
            tried = ((rows["dataset"] == dataset) & (rows["augmenter"] == rule)).any()
            lines[f"{dataset} (s)"] = (
                seconds(float(cost[dataset, rule]))
                if (dataset, rule) in cost.index
                else "failed"
                if tried
                else "–"
            )
        table[in_print(rule)] = lines
    return pd.DataFrame(table)


def markdown(results: pd.DataFrame) -> str:
    """Return the table as Markdown."""
    table = taxonomy(results)
    lines = [["Property", *table.columns], ["---"] + [":-:"] * table.shape[1]]
    lines += [
        [str(name), *line] for name, line in zip(table.index, table.values, strict=True)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def needs(results: pd.DataFrame) -> str:
    """Return why the table cannot be drawn, "" if it can."""
    timed = (results["status"] == "done") & (results["augment_seconds"] > 0)
    rules = results.loc[timed & (results["augmenter"] != ""), "augmenter"].nunique()
    if rules > 1:
        return ""
    return "costs are compared if two augmentation rules or more were timed"


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw the table: three properties, then seconds per dataset."""
    del out
    table = taxonomy(results)
    n, k = table.shape
    width, height = FIRST + COLUMN * k, LINE * (n + 1) + 0.35
    figure = Figure(figsize=(width, height))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    ax.set_xlim(0, width)
    ax.set_ylim(LINE * (n + 1) + 0.35, 0)

    def write(x: float, line: int, text: str, **how: Any) -> None:
        y = (
            0.1
            + LINE * (line + 0.5)
            + (0.06 if line else 0)
            + (0.06 if line > 3 else 0)
        )
        ax.text(x, y, text, size=SIZE + 0.5, va="center", **how)

    for j, name in enumerate(table.columns):
        shown = name.replace("LGBM-S-CALIBRATED", "LGBM-S cal.").replace(
            "LGBM-CHAIN", "Chain"
        )
        x = FIRST + COLUMN * (j + 0.5)
        write(x, 0, shown, ha="center", color=INK, weight="bold")
        for i, text in enumerate(table[name]):
            colour = SOFT if text in (NO, "–", "failed") else INK
            write(x, i + 1, text, ha="center", color=colour)
    for i, name in enumerate(table.index):
        write(0.1, i + 1, str(name), ha="left", color=INK)
    for line in (1, 4):
        y = 0.1 + LINE * line + (0.03 if line == 1 else 0.09)
        ax.plot([0.08, width - 0.08], [y, y], color=FAINT, lw=0.9)
    return figure
