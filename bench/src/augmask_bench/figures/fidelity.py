"""What deterministic filling does to a table: LGBM-D against LGBM-S, with the truth.

The paper's figure: three single columns and three pairs, the true table in grey and the
filled one in colour, a row of panels per rule. Columns are those whose spread LGBM-D
loses most, pairs those that are most correlated in the truth. The numbers in the panels
are the standard deviation and the correlation of the filled table, beside the true
ones.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from scipy.ndimage import gaussian_filter

from augmask.evaluation.columns import Floats
from augmask.report.plots import bare, framed, number_axis
from augmask_bench.figures.kept import kept_rows, kinds, nothing_kept
from augmask_bench.figures.style import COLOURS, FAINT, SIZE, SOFT, legend_above
from augmask_bench.methods import in_print
from augmask_bench.ranks import BLOCK, FILL

RULES = ("lgbm-d", "lgbm-s")
PANELS = 3
BINS, GRID, SMOOTH = 40, 48, 1.6
# Share of true values left outside on each side, so that a tail does not fill the axis.
OUTSIDE = 0.01
# Contours enclose these shares of the rows.
SHARES = (0.9, 0.6, 0.3)
TRUTH = "#9aa2ae"
SHADE = {"lgbm-d": COLOURS["AugFull"], "lgbm-s": COLOURS["AugMask"]}

Tables = dict[str, pd.DataFrame]


def _fills(results: pd.DataFrame) -> pd.DataFrame:
    rows = results[(results["generator"] == FILL) & (results["status"] == "done")]
    return rows[rows["augmenter"].isin(RULES) & rows["eta"].isna() & rows["lam"].isna()]


def _codes(tables: Tables, name: str) -> dict[str, Floats]:
    """Return a column of all tables as numbers; levels by their order in the truth."""
    numbers = {}
    truth = tables["truth"][name]
    levels = pd.Index(sorted(truth.dropna().unique(), key=str))
    numeric = pd.api.types.is_numeric_dtype(truth) and not (
        pd.api.types.is_bool_dtype(truth)
    )
    for rule, frame in tables.items():
        values = frame[name] if numeric else levels.get_indexer(frame[name])
        numbers[rule] = np.asarray(values, dtype=np.float64)
    return numbers


def chosen(tables: Tables) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the columns whose spread is lost most, and the most correlated pairs."""
    numeric, categorical = kinds(tables["truth"])
    values = {name: _codes(tables, name) for name in [*numeric, *categorical]}
    lost = {
        name: values[name]["lgbm-d"].std() / max(values[name]["truth"].std(), 1e-12)
        for name in numeric or categorical
    }
    columns = sorted(lost, key=lambda name: lost[name])[:PANELS]
    truth = pd.DataFrame({name: values[name]["truth"] for name in values})
    strength = truth.corr("spearman").abs()
    pairs = sorted(
        combinations(numeric if len(numeric) > 2 else list(values), 2),
        key=lambda pair: -np.nan_to_num(strength.loc[pair[0], pair[1]]),
    )
    return columns, pairs[:PANELS]


def edges_of(truth: Floats, bins: int) -> Floats:
    """Return edges of at most about `bins` bins; whole numbers are never cut between.

    Examples
    --------
    >>> edges_of(np.array([1.0, 2.0, 2.0, 4.0]), 40).tolist()
    [0.5, 1.5, 2.5, 3.5, 4.5]
    """
    low, high = np.quantile(truth, [OUTSIDE, 1 - OUTSIDE])
    if (truth % 1 == 0).all():
        # A bin that holds one number more than the next would make a comb.
        low, high = np.floor(low), np.ceil(high)
        step = np.ceil((high - low + 1) / bins)
        return np.arange(low - 0.5, high + step, step)
    if high <= low:
        low, high = truth.min() - 0.5, truth.max() + 0.5
    return np.linspace(low, high, bins + 1)


def _single(ax: Axes, values: dict[str, Floats], rule: str) -> None:
    edges = edges_of(values["truth"], BINS)
    for name in ("truth", rule):
        heights, _ = np.histogram(values[name], edges)
        density = heights / len(values[name]) / np.diff(edges)
        if name == "truth":
            ax.stairs(density, edges, fill=True, color=TRUTH, alpha=0.55, lw=0)
            # A spike of the filled table is cut rather than squeezing the truth flat.
            ax.set_ylim(0, 2.2 * density.max())
        else:
            ax.stairs(density, edges, color=SHADE[rule], lw=1.3)
    ax.set_xlim(edges[0], edges[-1])
    number_axis(ax, False, 3)
    ratio = values[rule].std() / max(values["truth"].std(), 1e-12)
    _note(ax, f"sd {100 * ratio:.0f}% of true")
    ax.spines["bottom"].set_color(FAINT)


def levels(density: Floats) -> Floats:
    """Return the heights whose contours enclose 90, 60 and 30 % of a density."""
    ordered = np.sort(density.ravel())[::-1]
    enclosed = np.cumsum(ordered) / max(ordered.sum(), 1e-12)
    found = ordered[np.searchsorted(enclosed, SHARES).clip(max=len(ordered) - 1)]
    # Contours need rising heights, also where one cell holds most of the rows.
    return np.asarray(np.maximum.accumulate(found + np.arange(3) * 1e-12))


def _joint(ax: Axes, x: dict[str, Floats], y: dict[str, Floats], rule: str) -> None:
    edges = [edges_of(v["truth"], GRID) for v in (x, y)]
    if any(len(e) != GRID + 1 for e in edges):
        edges = [np.linspace(e[0], e[-1], GRID + 1) for e in edges]
    middle = [(e[1:] + e[:-1]) / 2 for e in edges]
    for name in ("truth", rule):
        counts, _, _ = np.histogram2d(x[name], y[name], edges)
        density = gaussian_filter(counts, SMOOTH, mode="constant").T
        if name == "truth":
            ax.contourf(
                *middle,
                density,
                [*levels(density), density.max() * 1.01 + 1e-9],
                colors=["#e3e6ea", "#c3c8d0", TRUTH],
            )
        else:
            ax.contour(
                *middle, density, levels(density), colors=SHADE[rule], linewidths=1
            )
    found, true = (np.corrcoef(x[name], y[name])[0, 1] for name in (rule, "truth"))
    _note(ax, f"r {found:.2f}, true {true:.2f}".replace("-", "−"))


def _note(ax: Axes, text: str) -> None:
    ax.set_title(text, size=SIZE - 0.5, color=SOFT, pad=4)


def needs(results: pd.DataFrame) -> str:
    """Return why the figure cannot be drawn, "" if it can."""
    rows = _fills(results)
    both = rows.groupby(list(BLOCK))["augmenter"].nunique()
    if (both == 2).any():
        return ""
    return (
        "augmentation fidelity compares filled tables: it needs runs of the generator "
        "'fill' with the augmenters 'lgbm-d' and 'lgbm-s' in one block, and keep = true"
    )


def _found(results: pd.DataFrame, out: Path | None) -> tuple[pd.Series, Tables]:
    """Return the tables of the first block, of those with most holes, that has both."""
    rows = _fills(results).sort_values("ratio", ascending=False, kind="stable")
    for _, block in rows.groupby(list(BLOCK), sort=False):
        tables: Tables = {}
        for _, run in block.iterrows():
            kept = kept_rows(out, run)
            if kept is not None:
                tables["truth"], tables[run["augmenter"]] = kept
        if len(tables) == 3:
            return block.iloc[0], tables
    raise nothing_kept("Filled tables")


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw single columns and pairs of the truth and of both filled tables."""
    block, tables = _found(results, out)
    columns, pairs = chosen(tables)
    n = len(columns) + len(pairs)
    figure = Figure(figsize=(0.5 + 1.5 * n, 3.9), layout="constrained")
    panels = figure.subplots(2, n, squeeze=False)
    for line, rule in zip(panels, RULES, strict=True):
        for ax, name in zip(line, columns, strict=False):
            _single(bare(ax), _codes(tables, name), rule)
            ax.tick_params(labelsize=SIZE - 1, labelcolor=SOFT)
            ax.set_xlabel(name, size=SIZE - 0.5, color=SOFT, labelpad=2)
        for ax, (x, y) in zip(line[len(columns) :], pairs, strict=True):
            _joint(framed(ax), _codes(tables, x), _codes(tables, y), rule)
            for spine in ax.spines.values():
                spine.set_color(FAINT)
            ax.set_xlabel(x, size=SIZE - 0.5, color=SOFT, labelpad=2)
            ax.set_ylabel(y, size=SIZE - 0.5, color=SOFT, labelpad=2)
        line[0].set_ylabel(in_print(rule), size=SIZE + 1, color=SHADE[rule])
    handles = [Patch(color=TRUTH, label="true table")]
    handles += [
        Patch(color=SHADE[rule], label=f"filled by {in_print(rule)}") for rule in RULES
    ]
    legend_above(figure, handles)
    holes = f"{str(block['mechanism']).upper()} {block['ratio']:g}"
    figure.supxlabel(f"{block['dataset']}, {holes}", size=SIZE, color=SOFT)
    return figure
