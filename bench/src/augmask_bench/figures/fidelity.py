"""Deterministic against stochastic augmentation: LGBM-D and LGBM-S beside the truth.

The paper's figure: three columns and three pairs of columns, the true table in grey and
the augmented one in colour, a row of panels per augmenter. It shows the columns whose
spread LGBM-D reduces most, and the pairs that are most correlated in the truth. The
panels give the standard deviation and the correlation of the augmented table beside the
true ones.
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

from augmask.evaluation.tables import Floats
from augmask.report.plots import despine, number_axis, thin_frame
from augmask_bench.figures.data import column_roles, kept_rows, no_rows_error
from augmask_bench.figures.style import COLOURS, FAINT, SIZE, SOFT, legend_above
from augmask_bench.methods import display_name
from augmask_bench.ranks import BLOCK, FILL

AUGMENTERS = ("lgbm-d", "lgbm-s")
PANELS = 3
BINS, GRID, SMOOTH = 40, 48, 1.6
# Share of true values outside the axis on each side, so that tails do not dominate.
OUTSIDE = 0.01
# Contours enclose these shares of the rows.
SHARES = (0.9, 0.6, 0.3)
TRUTH = "#9aa2ae"
SHADE = {"lgbm-d": COLOURS["AugFull"], "lgbm-s": COLOURS["AugMask"]}

Tables = dict[str, pd.DataFrame]


def _augmented_runs(results: pd.DataFrame) -> pd.DataFrame:
    rows = results[(results["generator"] == FILL) & (results["status"] == "done")]
    return rows[
        rows["augmenter"].isin(AUGMENTERS) & rows["eta"].isna() & rows["lam"].isna()
    ]


def _codes(tables: Tables, name: str) -> dict[str, Floats]:
    """Return a column of all tables as numbers; levels as their index in the truth."""
    numbers = {}
    truth = tables["truth"][name]
    levels = pd.Index(sorted(truth.dropna().unique(), key=str))
    numeric = pd.api.types.is_numeric_dtype(truth) and not (
        pd.api.types.is_bool_dtype(truth)
    )
    for key, frame in tables.items():
        values = frame[name] if numeric else levels.get_indexer(frame[name])
        numbers[key] = np.asarray(values, dtype=np.float64)
    return numbers


def choose_columns(tables: Tables) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the columns that lose most spread, and the most correlated pairs."""
    numeric, categorical = column_roles(tables["truth"])
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
    """Return edges of about `bins` bins; bins of integers hold equally many values.

    Examples
    --------
    >>> edges_of(np.array([1.0, 2.0, 2.0, 4.0]), 40).tolist()
    [0.5, 1.5, 2.5, 3.5, 4.5]
    """
    low, high = np.quantile(truth, [OUTSIDE, 1 - OUTSIDE])
    if (truth % 1 == 0).all():
        # unequal numbers of integers per bin would look like a comb
        low, high = np.floor(low), np.ceil(high)
        step = np.ceil((high - low + 1) / bins)
        return np.arange(low - 0.5, high + step, step)
    if high <= low:
        low, high = truth.min() - 0.5, truth.max() + 0.5
    return np.linspace(low, high, bins + 1)


def _single(ax: Axes, values: dict[str, Floats], augmenter: str) -> None:
    edges = edges_of(values["truth"], BINS)
    for name in ("truth", augmenter):
        heights, _ = np.histogram(values[name], edges)
        density = heights / len(values[name]) / np.diff(edges)
        if name == "truth":
            ax.stairs(density, edges, fill=True, color=TRUTH, alpha=0.55, lw=0)
            # a spike of the augmented table is cut off rather than flattening the truth
            ax.set_ylim(0, 2.2 * density.max())
        else:
            ax.stairs(density, edges, color=SHADE[augmenter], lw=1.3)
    ax.set_xlim(edges[0], edges[-1])
    number_axis(ax, False, 3)
    ratio = values[augmenter].std() / max(values["truth"].std(), 1e-12)
    _note(ax, f"sd {100 * ratio:.0f}% of true")
    ax.spines["bottom"].set_color(FAINT)


def contour_heights(density: Floats) -> Floats:
    """Return the heights whose contours enclose 90, 60 and 30 % of a density."""
    ordered = np.sort(density.ravel())[::-1]
    enclosed = np.cumsum(ordered) / max(ordered.sum(), 1e-12)
    heights = ordered[np.searchsorted(enclosed, SHARES).clip(max=len(ordered) - 1)]
    # contours need increasing heights, even if one cell holds most of the rows
    return np.asarray(np.maximum.accumulate(heights + np.arange(3) * 1e-12))


def _joint(
    ax: Axes, x: dict[str, Floats], y: dict[str, Floats], augmenter: str
) -> None:
    edges = [edges_of(v["truth"], GRID) for v in (x, y)]
    if any(len(e) != GRID + 1 for e in edges):
        edges = [np.linspace(e[0], e[-1], GRID + 1) for e in edges]
    middle = [(e[1:] + e[:-1]) / 2 for e in edges]
    for name in ("truth", augmenter):
        counts, _, _ = np.histogram2d(x[name], y[name], edges)
        density = gaussian_filter(counts, SMOOTH, mode="constant").T
        if name == "truth":
            ax.contourf(
                *middle,
                density,
                [*contour_heights(density), density.max() * 1.01 + 1e-9],
                colors=["#e3e6ea", "#c3c8d0", TRUTH],
            )
        else:
            ax.contour(
                *middle,
                density,
                contour_heights(density),
                colors=SHADE[augmenter],
                linewidths=1,
            )
    r, true = (np.corrcoef(x[name], y[name])[0, 1] for name in (augmenter, "truth"))
    _note(ax, f"r {r:.2f}, true {true:.2f}".replace("-", "−"))


def _note(ax: Axes, text: str) -> None:
    ax.set_title(text, size=SIZE - 0.5, color=SOFT, pad=4)


def needs(results: pd.DataFrame) -> str:
    """Return why the figure cannot be drawn; an empty text if it can."""
    rows = _augmented_runs(results)
    both = rows.groupby(list(BLOCK))["augmenter"].nunique()
    if (both == 2).any():
        return ""
    return (
        "the figure needs runs of the generator 'fill' with the augmenters 'lgbm-d' "
        "and 'lgbm-s' in one block, and keep = true"
    )


def _read_tables(results: pd.DataFrame, out: Path | None) -> tuple[pd.Series, Tables]:
    """Return the tables of the block with the highest missing ratio that has both."""
    rows = _augmented_runs(results).sort_values("ratio", ascending=False, kind="stable")
    for _, block in rows.groupby(list(BLOCK), sort=False):
        tables: Tables = {}
        for _, run in block.iterrows():
            kept = kept_rows(out, run)
            if kept is not None:
                tables["truth"], tables[run["augmenter"]] = kept
        if len(tables) == 3:
            return block.iloc[0], tables
    raise no_rows_error("augmented tables")


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw columns and pairs of the truth and of both augmented tables."""
    block, tables = _read_tables(results, out)
    columns, pairs = choose_columns(tables)
    n = len(columns) + len(pairs)
    figure = Figure(figsize=(0.5 + 1.5 * n, 3.9), layout="constrained")
    panels = figure.subplots(2, n, squeeze=False)
    for line, augmenter in zip(panels, AUGMENTERS, strict=True):
        for ax, name in zip(line, columns, strict=False):
            _single(despine(ax), _codes(tables, name), augmenter)
            ax.tick_params(labelsize=SIZE - 1, labelcolor=SOFT)
            ax.set_xlabel(name, size=SIZE - 0.5, color=SOFT, labelpad=2)
        for ax, (x, y) in zip(line[len(columns) :], pairs, strict=True):
            _joint(thin_frame(ax), _codes(tables, x), _codes(tables, y), augmenter)
            for spine in ax.spines.values():
                spine.set_color(FAINT)
            ax.set_xlabel(x, size=SIZE - 0.5, color=SOFT, labelpad=2)
            ax.set_ylabel(y, size=SIZE - 0.5, color=SOFT, labelpad=2)
        line[0].set_ylabel(
            display_name(augmenter), size=SIZE + 1, color=SHADE[augmenter]
        )
    handles = [Patch(color=TRUTH, label="true table")]
    handles += [
        Patch(color=SHADE[name], label=f"augmented by {display_name(name)}")
        for name in AUGMENTERS
    ]
    legend_above(figure, handles)
    missingness = f"{str(block['mechanism']).upper()} {block['ratio']:g}"
    figure.supxlabel(f"{block['dataset']}, {missingness}", size=SIZE, color=SOFT)
    return figure
