"""Properties and cost of augmenters: the paper's taxonomy as a table.

Seconds are the median time to augment one table, over all runs with the augmenter; a
cached augmentation counts with the time of its computation. Compare them within one
machine only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from augmask.augmentation import available_augmenters
from augmask_bench.figures.augmenters import is_stochastic
from augmask_bench.figures.style import FAINT, INK, SIZE, SOFT
from augmask_bench.methods import display_name

UNIVARIATE = ("zero", "mean", "noise", "ecdf")
YES, NO = "✓", "✗"
LINE, FIRST, COLUMN = 0.24, 1.35, 0.82


def seconds(value: float) -> str:
    """Return seconds with three digits, without an exponent.

    Examples
    --------
    >>> seconds(0.0412), seconds(9.874), seconds(1234.5)
    ('0.0412', '9.87', '1234')
    """
    return f"{value:.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


def taxonomy(results: pd.DataFrame) -> pd.DataFrame:
    """Return a table of texts: properties and seconds of each augmenter.

    Augmenters are in the paper's order; one whose runs all failed is marked.
    """
    rows = results[(results["augmenter"] != "") & (results["status"] != "unable")]
    rows = rows[rows["eta"].isna() & rows["lam"].isna()]
    augmenters = [
        name for name in available_augmenters() if name in set(rows["augmenter"])
    ]
    augmenters += sorted(set(rows["augmenter"]) - set(augmenters))
    done = rows[rows["status"] == "done"]
    cost = done.groupby(["dataset", "augmenter"])["augment_seconds"].median()
    table = {}
    for name in augmenters:
        known = name in available_augmenters()
        multivariate = name not in UNIVARIATE
        lines = {
            "Stochastic": (YES if is_stochastic(name) else NO) if known else "",
            "Multivariate": (YES if multivariate else NO) if known else "",
            "Model-based": (YES if multivariate else NO) if known else "",
        }
        for dataset in sorted(rows["dataset"].unique()):
            tried = ((rows["dataset"] == dataset) & (rows["augmenter"] == name)).any()
            lines[f"{dataset} (s)"] = (
                seconds(float(cost[dataset, name]))
                if (dataset, name) in cost.index
                else "failed"
                if tried
                else "–"
            )
        table[display_name(name)] = lines
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
    """Return why the table cannot be drawn; an empty text if it can."""
    timed = (results["status"] == "done") & (results["augment_seconds"] > 0)
    named = timed & (results["augmenter"] != "")
    if results.loc[named, "augmenter"].nunique() > 1:
        return ""
    return "the cost of augmentation needs at least two augmenters with known times"


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw the table: three properties, then the seconds on each dataset."""
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
        title = name.replace("LGBM-S-CALIBRATED", "LGBM-S cal.").replace(
            "LGBM-CHAIN", "Chain"
        )
        x = FIRST + COLUMN * (j + 0.5)
        write(x, 0, title, ha="center", color=INK, weight="bold")
        for i, text in enumerate(table[name]):
            colour = SOFT if text in (NO, "–", "failed") else INK
            write(x, i + 1, text, ha="center", color=colour)
    for i, name in enumerate(table.index):
        write(0.1, i + 1, str(name), ha="left", color=INK)
    for line in (1, 4):
        y = 0.1 + LINE * line + (0.03 if line == 1 else 0.09)
        ax.plot([0.08, width - 0.08], [y, y], color=FAINT, lw=0.9)
    return figure
