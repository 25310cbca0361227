"""Every metric against the missing ratio, as in the paper's robustness figure.

A row is one generator under one mechanism, with its strategies and all missing-aware
baselines. A line is the mean over the datasets and seeds that all lines of the row
have; its band spans the seeds. Where a run of a method failed, its line has no point,
because a mean over the remaining runs would be too good; a cross at the bottom marks
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from augmask.config import STRATEGIES
from augmask.report.plots import percent, plain_number
from augmask_bench.figures.style import (
    INK,
    MARKERS,
    SIZE,
    SOFT,
    colours,
    legend_above,
    plain,
    why_unranked,
)
from augmask_bench.ranks import FILL, METRICS

CELL = ["ratio", "dataset", "seed"]
WIDE, HIGH = 1.9, 1.45
# More lines of one generator are not distinguishable.
MOST = 8


def _generator_runs(results: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that generated rows, or failed to.

    Of a generator with many methods only the plain strategies are kept, such as
    "CDTD + AugMask" but not its variants with other augmenters.
    """
    rows = results[(results["generator"] != FILL) & (results["status"] != "unable")]
    many = rows.groupby("generator")["method"].transform("nunique") > MOST
    pairs = zip(rows["method"], rows["strategy"], strict=True)
    usual = np.array([method.endswith(f"+ {name}") for method, name in pairs], bool)
    return rows[~many | usual]


def _line_names(rows: pd.DataFrame) -> dict[str, str]:
    """Return the name of each line: its strategy if that is unique, else its method."""
    about = rows.drop_duplicates("method").sort_values("method").set_index("method")
    names = {}
    for method, line in about.iterrows():
        same = (about["generator"] == line["generator"]) & (
            about["strategy"] == line["strategy"]
        )
        own = not line["aware"] and line["strategy"] and same.sum() == 1
        names[str(method)] = str(line["strategy"]) if own else str(method)
    return names


def _common(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of datasets, ratios and seeds that every method has."""
    count = rows.groupby(CELL)["method"].transform("nunique")
    return rows[count == rows["method"].nunique()]


def curve(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return `mean`, `low` and `high` of one method per ratio; NaN if a run failed.

    Examples
    --------
    >>> rows = pd.DataFrame({"ratio": [0.1, 0.1, 0.5, 0.5], "seed": [0, 1, 0, 1],
    ...                      "status": ["done", "done", "done", "failed"],
    ...                      "shape": [0.8, 0.9, 0.7, float("nan")]})
    >>> curve(rows, "shape").round(3).values.tolist()
    [[0.85, 0.8, 0.9], [nan, nan, nan]]
    """
    score = rows[metric].astype(float).where(rows["status"] == "done")
    by_seed = score.groupby([rows["ratio"], rows["seed"]]).mean()
    summary = by_seed.groupby("ratio").agg(["mean", "min", "max"])
    complete = score.notna().groupby(rows["ratio"]).all()
    summary.loc[~complete] = np.nan
    return summary.set_axis(["mean", "low", "high"], axis=1)


def _lines(
    ax: Axes, rows: pd.DataFrame, metric: str, styles: dict[str, tuple[str, str, str]]
) -> bool:
    """Draw the curves of one panel; return whether a run failed."""
    crosses = 0
    for method, (colour, marker, dash) in styles.items():
        part = rows[rows["method"] == method]
        if part.empty:
            continue
        line = curve(part, metric)
        x = line.index.to_numpy(dtype=float)
        ax.plot(x, line["mean"], color=colour, marker=marker, ms=3.4, lw=1.4, ls=dash)
        if (line["high"] > line["low"]).any():
            ax.fill_between(
                x, line["low"], line["high"], color=colour, alpha=0.14, lw=0
            )
        for ratio in x[line["mean"].isna()]:
            ax.plot(
                [ratio],
                [0.04 + 0.07 * crosses],
                color=colour,
                marker="x",
                ms=4,
                ls="none",
                transform=ax.get_xaxis_transform(),
            )
        crosses += int(line["mean"].isna().any())
    return crosses > 0


def _styles(
    methods: Sequence[str], names: dict[str, str], aware: set[str]
) -> dict[str, tuple[str, str, str]]:
    shades = colours([names[method] for method in methods])
    rivals = [method for method in methods if method in aware]
    return {
        method: (
            shades[names[method]],
            MARKERS[1 + rivals.index(method) % 7] if method in aware else "o",
            "--" if method in aware else "-",
        )
        for method in methods
    }


def _rows(runs: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the title and the runs of every row of panels."""
    panels = []
    for mechanism, part in runs.groupby("mechanism", sort=False):
        aware = part["aware"].astype(bool)
        rivals, own = part[aware], part[~aware]
        groups = [mine for _, mine in own.groupby("generator")] or [own]
        for mine in groups:
            title = str(mechanism).upper()
            if len(mine):
                title = f"{mine['method'].iloc[0].split(' + ')[0]}, {title}"
            panels.append((title, _common(pd.concat([mine, rivals]))))
    return [(title, rows) for title, rows in panels if len(rows)]


def needs(results: pd.DataFrame) -> str:
    """Return why the figure cannot be drawn; an empty text if it can."""
    why = why_unranked(results)
    if why:
        return why
    runs = _generator_runs(results)
    if runs.empty:
        return f"more than {MOST} lines of one generator are not distinguishable"
    if runs["ratio"].nunique() < 2:
        return "a curve over missing ratios needs at least two ratios"
    return ""


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw one panel per metric, one row per generator and mechanism."""
    del out
    runs = _generator_runs(results).sort_values(["mechanism", "method"], kind="stable")
    runs = runs.sort_values("mechanism", key=lambda m: m != "mcar", kind="stable")
    metrics = [metric for metric in METRICS if runs[metric].notna().any()]
    rows = _rows(runs)
    names = _line_names(runs)
    aware = set(runs.loc[runs["aware"].astype(bool), "method"])
    ratios = sorted(runs["ratio"].unique())
    # baselines first, so that they do not cover ours
    methods = sorted(names, key=lambda name: (name not in aware, name))
    styles = _styles(methods, names, aware)
    figure = Figure(
        figsize=(0.6 + WIDE * len(metrics), 0.75 + HIGH * len(rows)),
        layout="constrained",
    )
    panels = figure.subplots(
        len(rows), len(metrics), squeeze=False, sharex=True, sharey="col"
    )
    failed = False
    for i, (title, part) in enumerate(rows):
        for j, metric in enumerate(metrics):
            ax = plain(panels[i, j])
            failed |= _lines(ax, part, metric, styles)
            if i == 0:
                ax.set_title(METRICS[metric], size=SIZE + 1, color=INK)
        panels[i, 0].set_ylabel(title, size=SIZE + 1, color=INK)
    for ax in panels.flat:
        ax.margins(x=0.06, y=0.1)
        ax.autoscale_view()
        ax.set_xticks(ratios)
        ax.xaxis.set_major_formatter(percent)
        ax.locator_params(axis="y", nbins=4)
        ax.yaxis.set_major_formatter(plain_number)
        ax.tick_params(labelleft=True, labelsize=SIZE - 0.5)
    figure.supxlabel("missing cells", size=SIZE + 1, color=SOFT)
    known = [name for name in STRATEGIES if name in names.values()]
    listed = {names[method]: styles[method] for method in methods}
    _legend(figure, {name: listed[name] for name in [*known, *listed]}, failed)
    return figure


def _legend(
    figure: Figure, styles: dict[str, tuple[str, str, str]], failed: bool
) -> None:
    handles = [
        Line2D([], [], color=colour, marker=marker, ms=4, ls=dash, label=name)
        for name, (colour, marker, dash) in styles.items()
    ]
    if failed:
        handles.append(
            Line2D(
                [], [], color=SOFT, marker="x", ms=4, ls="none", label="a run failed"
            )
        )
    legend_above(figure, handles)
