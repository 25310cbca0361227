"""The figures of the report.

Each function takes aggregates and returns a matplotlib `Figure` without touching global
state, so that the same figure can go into a page, a notebook or a paper. `svg` turns it
into SVG whose colours are CSS variables of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from augmask.evaluation.held_out import Calibration
from augmask.evaluation.tables import Floats
from augmask.missing.describe import Missingness
from augmask.report.aggregates import (
    Axis,
    Bars,
    Histogram,
    Joint,
    MissingPatterns,
    Projection,
    safe_share,
    short,
)
from augmask.report.svg import FAINT, INK, REAL, REMASKED, SYNTHETIC

SMALL = 7.5
COLOURS = {"real": REAL, "synthetic": SYNTHETIC, "remasked": REMASKED}
# The page's colours in light mode, for pixels, which no CSS variable reaches.
PIXELS = {
    "real": (91, 103, 122),
    "synthetic": (59, 91, 219),
    "remasked": (224, 88, 8),
}
DASHED = (0, (2, 2))
# Left, bottom, width and height of the axes of a small heat map and of a curve.
HEAT_BOX, CURVE_BOX = (0.01, 0.01, 0.98, 0.98), (0.15, 0.17, 0.82, 0.8)
# Inches of a marginal, of the map of missing values, and of a line of names.
WIDTH, MAP_WIDTH, LINE = 2.7, 4.6, 0.165
# Inches of the side of a matrix.
MATRIX = 2.5
# The highest bin is cut off if it is this many times as high as the next.
SPIKE = 4.0
# A fan chart: axes of the column and of the draws below it; opacity by interval.
COLUMN_BOX, FAN_BOX = (0.03, 0.38, 0.94, 0.6), (0.03, 0.18, 0.94, 0.15)
OPACITY = (0.22, 0.35, 0.6)
# More names than this cannot be read beside a matrix.
MOST_NAMES = 22
# Curves with fewer points than this get markers.
FEW_POINTS = 40
TRAINING = {"held_out": SYNTHETIC, "loss": REAL}
KINDS = {"numeric": ("o", "-"), "categorical": ("s", "--")}


def plain_number(value: float, _: Any = None) -> str:
    """Return a tick label: 12500 is 12.5k.

    Examples
    --------
    >>> plain_number(12500), plain_number(-3e6), plain_number(0.25), plain_number(0)
    ('12.5k', '−3M', '0.25', '0')
    """
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scale = 1e3 if unit == "k" else limit
            return f"{value / scale:.4g}{unit}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def percent(value: float, _: Any = None) -> str:
    """Return a share as a tick label."""
    return f"{100 * value:.3g}%"


def name_width(names: Sequence[str], most: int) -> float:
    """Return the width in inches of the longest name, cut to `most` letters."""
    return 0.12 + 0.066 * max(len(short(name, most)) for name in names)


def despine(ax: Axes, *, left: bool = False) -> Axes:
    """Remove frame and ticks, and the labels of the left axis unless `left`."""
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)
    ax.tick_params(
        bottom=False, left=False, labelsize=SMALL, labelcolor=INK, pad=3, labelleft=left
    )
    ax.margins(0)
    return ax


def number_axis(ax: Axes, dates: bool, n: int = 4) -> None:
    """Label the horizontal axis with a few round numbers or dates."""
    if dates:
        # matplotlib has no types for these.
        locate: Any = AutoDateLocator
        write: Any = ConciseDateFormatter
        locator = locate(minticks=2, maxticks=n)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(write(locator, show_offset=False))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(n, steps=[1, 2, 2.5, 5, 10]))
        ax.xaxis.set_major_formatter(FuncFormatter(plain_number))


def fade(values: Floats, colour: str, below: str | None = None) -> Any:
    """Return pixels whose opacity is the absolute value, 0 to 1; NaN is transparent.

    Negative values take the colour `below`. Opacity in 32 steps keeps the file small.
    """
    opacity = np.round(np.clip(np.abs(np.nan_to_num(values)), 0, 1) * 31) / 31 * 255
    pixels = np.zeros((*values.shape, 4), dtype=np.uint8)
    pixels[..., :3] = PIXELS[colour]
    if below is not None:
        pixels[np.nan_to_num(values) < 0, :3] = PIXELS[below]
    pixels[..., 3] = opacity
    pixels[pixels[..., 3] == 0] = 0
    return pixels


def heat(ax: Axes, pixels: Any, *, flip: bool = False) -> None:
    """Draw pixels as sharp cells that fill the axes."""
    origin: Any = "lower" if flip else "upper"
    ax.imshow(pixels, interpolation="none", aspect="auto", origin=origin)


def thin_frame(ax: Axes) -> Axes:
    """Give a heat map a thin frame and no ticks."""
    for spine in ax.spines.values():
        spine.set_color(FAINT)
        spine.set_linewidth(0.8)
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def _canvas(
    width: float, height: float, box: tuple[float, float, float, float]
) -> tuple[Figure, Axes]:
    """Return a figure in inches and its axes at left, bottom, width, height."""
    figure = Figure(figsize=(width, height))
    return figure, figure.add_axes(box)


def _heat_figure(pixels: Any) -> Figure:
    figure, ax = _canvas(2.4, 2.1, HEAT_BOX)
    heat(ax, pixels, flip=True)
    thin_frame(ax)
    return figure


def _percent_axes(xlabel: str) -> tuple[Figure, Axes]:
    """Return a figure with axes whose ticks are percentages."""
    figure, ax = _canvas(3.1, 2.3, CURVE_BOX)
    despine(ax, left=True)
    ax.xaxis.set_major_formatter(percent)
    ax.yaxis.set_major_formatter(percent)
    ax.set_xlabel(xlabel, size=SMALL, color=INK, labelpad=2)
    ax.grid(axis="y", color=FAINT, lw=0.6)
    return figure, ax


def _name_rows(ax: Axes, names: Sequence[str], size: float) -> None:
    ax.set_yticks(np.arange(len(names)), names)
    ax.tick_params(left=False, labelsize=size, labelcolor=INK, pad=3)


def missing_map(patterns: MissingPatterns) -> Figure:
    """Draw missing values by column and rows sorted by pattern, beside column rates."""
    # Column names need not be text.
    rates = patterns.summary.column_rates.rename(index=str)
    names = [name for name in patterns.names if rates[name] > 0]
    n = len(names)
    height = 0.3 + LINE * n
    bottom, high = 0.28 / height, 1 - 0.3 / height
    left, wide = name_width(names, 20) / MAP_WIDTH, 0.15
    start = left + wide + 0.01
    figure, ax = _canvas(MAP_WIDTH, height, (start, bottom, 0.995 - start, high))
    heat(ax, fade(patterns.bands[:, :n].T, "real"))
    thin_frame(ax)
    ax.set_xlabel(
        "rows, from few missing values to many", size=SMALL, color=INK, labelpad=4
    )
    side = despine(figure.add_axes((left, bottom, wide, high)), left=True)
    n_rows = patterns.summary.n_rows
    shares = [safe_share(float(rate), n_rows) for rate in rates[names]]
    lengths = np.array([share for share, _ in shares])
    side.barh(np.arange(n), lengths, 0.7, color=REAL, alpha=0.6, lw=0)
    side.set_ylim(n - 0.5, -0.5)
    # Room for the number behind the longest bar.
    side.set_xlim(0, 1.75 * max(0.4, lengths.max()))
    side.spines["bottom"].set_visible(False)
    side.axvline(0, color=FAINT, lw=0.8)
    side.set_xticks([])
    side.set_yticks(np.arange(n), [short(name, 20) for name in names])
    for i, (share, raised) in enumerate(shares):
        text = ("<" if raised else "") + percent(float(f"{share:.2g}"))
        x = share + 0.03 * side.get_xlim()[1]
        side.text(x, i, text, size=SMALL, va="center", color=INK)
    return figure


def co_missing_figure(missing: Missingness) -> Figure:
    """Draw φ between missingness of any two columns: blue above 0, orange below."""
    phi = missing.co_missing.to_numpy().copy()
    n = len(phi)
    line, size = (LINE, SMALL) if n <= 30 else (0.13, 6.5)
    side = max(1.2, line * n)
    names = [short(name) for name in missing.co_missing.columns]
    left = name_width(names, 22)
    width = side + left + 0.02
    figure, ax = _canvas(width, side, (left / width, 0.005, side / width, 0.99))
    np.fill_diagonal(phi, np.nan)
    heat(ax, fade(phi, "synthetic", "remasked"))
    thin_frame(ax)
    _name_rows(ax, names, size)
    return figure


def _cut_off(heights: Floats) -> float:
    """Return where to cut off the highest bin, if it dwarfs all others."""
    ordered = np.sort(heights)
    if len(ordered) < 3 or ordered[-2] == 0 or ordered[-1] < SPIKE * ordered[-2]:
        return float(ordered[-1])
    return float(1.8 * ordered[-2])


def histogram_figure(column: Histogram) -> Figure:
    """Draw densities: real as an area, the others as outlines."""
    figure, ax = _canvas(WIDTH, 1.25, (0.03, 0.18, 0.94, 0.8))
    despine(ax)
    edges, widths = column.edges, np.diff(column.edges)
    heights = np.max([s / widths for s in column.shares.values()], axis=0)
    top = _cut_off(heights)
    for name, shares in column.shares.items():
        density = np.minimum(shares / widths, top)
        style: dict[str, Any] = {"color": COLOURS[name], "lw": 1.4, "clip_on": False}
        if name == "real":
            style = {"fill": True, "color": REAL, "alpha": 0.32, "lw": 0, "ec": "none"}
        elif name == "remasked":
            style["ls"] = (0, (2.2, 1.2))
        ax.stairs(density, edges, **style)
    if heights.max() > top:
        k, margin = int(heights.argmax()), 0.02 * (edges[-1] - edges[0])
        on_the_left = edges[k] + edges[k + 1] < edges[0] + edges[-1]
        ax.text(
            float(edges[k + 1] + margin if on_the_left else edges[k] - margin),
            1.0,
            f"{100 * column.shares['real'][k]:.0f}% here",
            transform=ax.get_xaxis_transform(),
            size=SMALL,
            color=INK,
            va="top",
            ha="left" if on_the_left else "right",
        )
    ax.set_ylim(0, top * 1.05 or 1)
    ax.set_xlim(edges[0], edges[-1])
    number_axis(ax, column.dates, 5)
    return figure


def bars_figure(column: Bars) -> Figure:
    """Draw shares of levels: a broad bar for real, thin bars for the others."""
    n = len(column.labels)
    height = 0.26 + 0.21 * n
    bottom = 0.2 / height
    longest = max(len(label) for label in column.labels)
    left = min(0.46, 0.05 + 0.024 * longest)
    figure, ax = _canvas(WIDTH, height, (left, bottom, 0.94 - left, 0.98 - bottom))
    despine(ax, left=True)
    at = np.arange(n)
    ax.barh(at, column.shares["real"], 0.72, color=REAL, alpha=0.32, lw=0)
    others = [name for name in column.shares if name != "real"]
    for i, name in enumerate(others):
        offset = (i - (len(others) - 1) / 2) * 0.3
        ax.barh(at + offset, column.shares[name], 0.18, color=COLOURS[name], lw=0)
    top = max(float(s.max()) for s in column.shares.values())
    ax.set_xlim(0, top * 1.02 or 1)
    ax.set_ylim(n - 0.5, -0.5)
    ax.set_yticks(at, column.labels)
    ax.locator_params(axis="x", nbins=3)
    ax.xaxis.set_major_formatter(percent)
    ax.axvline(0, color=FAINT, lw=0.8)
    ax.tick_params(labelsize=SMALL, labelcolor=INK)
    return figure


def marginal_figure(column: Histogram | Bars) -> Figure:
    """Draw a column by its kind."""
    if isinstance(column, Histogram):
        return histogram_figure(column)
    return bars_figure(column)


def matrix_box(n: int) -> tuple[float, float, float, float]:
    """Return left, bottom, width and height of a matrix of `n` columns."""
    names = 1.05 if n <= MOST_NAMES else 0.05
    width = MATRIX + names
    return (names + 0.02) / width, 0.01, (MATRIX - 0.04) / width, 0.98


def matrix_figure(values: Floats, names: Sequence[str], full: float = 1.0) -> Figure:
    """Draw a matrix: blue above zero, orange below, full colour at `full`."""
    n = len(names)
    named = n <= MOST_NAMES
    box = matrix_box(n)
    figure, ax = _canvas((MATRIX - 0.04) / box[2], MATRIX, box)
    scaled = values / full
    np.fill_diagonal(scaled, np.nan)
    heat(ax, fade(scaled, "synthetic", "remasked"))
    thin_frame(ax)
    if named:
        _name_rows(ax, [short(name, 17) for name in names], SMALL if n <= 16 else 6)
    return figure


def _label(ax: Axes, axis: Axis, vertical: bool) -> None:
    side = ax.yaxis if vertical else ax.xaxis
    ax.tick_params(left=False, bottom=False, labelsize=6.5, labelcolor=INK, pad=2)
    if axis.labels:
        side.set_major_locator(FixedLocator(list(range(axis.size))))
        side.set_ticklabels([short(label, 10) for label in axis.labels])
        if not vertical:
            ax.tick_params(axis="x", labelrotation=90)
        return
    # All bins have the same width; label two of their edges.
    edges = np.asarray(axis.edges)
    places = [round(0.15 * axis.size), round(0.85 * axis.size)]
    side.set_major_locator(FixedLocator([p - 0.5 for p in places]))
    if axis.dates:
        days = edges[places].astype("datetime64[D]")
        long = edges[-1] - edges[0] > 900
        side.set_ticklabels([str(day)[: 4 if long else 7] for day in days])
    else:
        # Edges between integers: label the integer that follows.
        integer = bool((edges % 1 == 0.5).all())
        side.set_ticklabels([plain_number(edges[p] + 0.5 * integer) for p in places])


def joint_figure(pair: Joint) -> Figure:
    """Draw the joint shares of a pair, real on the left, synthetic on the right."""
    # Names below stand upright, or they would collide.
    below = name_width(pair.first.labels, 10) if pair.first.labels else 0.2
    height = 1.55 + below
    figure = Figure(figsize=(3.1, height))
    tables = {"real": pair.real, "synthetic": pair.synthetic}
    top = max(np.nanmax(m, initial=0.0) for m in tables.values()) or 1.0
    for i, (name, shares) in enumerate(tables.items()):
        box = (0.19 + 0.41 * i, below / height, 0.385, 1.5 / height)
        ax = figure.add_axes(box)
        # The square root makes small cells visible beside large ones.
        heat(ax, fade(np.sqrt(shares.T / top), name), flip=True)
        thin_frame(ax)
        _label(ax, pair.first, vertical=False)
        if i == 0:
            _label(ax, pair.second, vertical=True)
    return figure


def density_figure(values: Floats, colour: str) -> Figure:
    """Draw one density of the projection on a square-root scale."""
    return _heat_figure(fade(np.sqrt(values / (values.max() or 1)), colour))


def residual_figure(rows: Projection) -> Figure:
    """Draw where synthetic rows are too many (blue) and too few (orange)."""
    difference = rows.synthetic - rows.real
    largest = max(rows.real.max(), rows.synthetic.max()) or 1.0
    scaled = np.sign(difference) * np.sqrt(np.abs(difference) / largest)
    return _heat_figure(fade(scaled, "synthetic", "remasked"))


def coverage_figure(cells: Calibration) -> Figure:
    """Draw the share of hidden cells inside intervals against the nominal share."""
    figure, ax = _percent_axes("nominal")
    ax.plot([0.4, 1], [0.4, 1], color=REAL, lw=1, ls=DASHED)
    for kind, part in cells.coverage.groupby("kind", sort=False):
        marker, line = KINDS[str(kind)]
        ax.plot(
            part["nominal"],
            part["coverage"],
            color=SYNTHETIC,
            marker=marker,
            ms=4,
            ls=line,
            lw=1.4,
            clip_on=False,
        )
    ax.set_xlim(0.4, 1)
    ax.set_ylim(min(0.4, float(cells.coverage["coverage"].min()) - 0.05), 1)
    return figure


def pit_figure(cells: Calibration, kind: str) -> Figure:
    """Draw ranks of the truth among its draws; uniform if the draws are calibrated."""
    lines = cells.columns[cells.columns["kind"] == kind]
    weights = lines["cells"].to_numpy(dtype=np.float64)
    shares = cells.pit.loc[lines["column"]].to_numpy()
    pooled = weights @ shares / weights.sum()
    figure, ax = _canvas(3.1, 1.4, (0.04, 0.19, 0.92, 0.78))
    despine(ax)
    n = len(pooled)
    at = (np.arange(n) + 0.5) / n
    ax.bar(at, pooled * n, 0.86 / n, color=SYNTHETIC, alpha=0.7, lw=0)
    ax.axhline(1, color=REAL, lw=1, ls=DASHED)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, max(1.4, float(pooled.max()) * n * 1.05))
    names = ("lowest", "highest") if kind == "numeric" else ("common", "rare")
    ax.set_xticks([0.0, 1.0], [f"{name} draw" for name in names])
    first, last = ax.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    return figure


def fan_figure(column: Histogram | Bars, quantiles: Floats | None) -> Figure:
    """Draw a column above the draws of one missing value, as intervals or as shares."""
    figure = marginal_figure(column)
    if isinstance(column, Bars) or quantiles is None:
        return figure
    (above,) = figure.axes
    above.set_position(COLUMN_BOX)
    above.tick_params(labelbottom=False)
    fan = despine(figure.add_axes(FAN_BOX))
    q = quantiles
    for i, alpha in enumerate(OPACITY):
        low, high = float(q[i]), float(q[-1 - i])
        fan.barh(0, high - low, 0.9, left=low, color=SYNTHETIC, alpha=alpha, lw=0)
    fan.plot([q[3], q[3]], [-0.5, 0.5], color=SYNTHETIC, lw=2, clip_on=False)
    fan.set_ylim(-0.6, 0.5)
    fan.set_xlim(above.get_xlim())
    number_axis(fan, column.dates, 5)
    return figure


def shares_figure(shares: pd.DataFrame) -> Figure:
    """Draw how often levels are the truth by their share among the draws."""
    figure, ax = _percent_axes("share of the draws")
    x = shares["drawn"]
    ax.plot(x, shares["expected"], color=REAL, lw=1, ls=DASHED)
    style: dict[str, Any] = {"marker": "s", "ms": 4, "lw": 1.4, "clip_on": False}
    ax.plot(x, shares["true"], color=SYNTHETIC, **style)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    return figure


def training_figure(history: pd.DataFrame, best_step: float | None) -> Figure:
    """Draw the validation loss above, the training loss below.

    Each has its own scale: the training loss varies with the sampled noise, far more
    than the validation loss falls.
    """
    curves = {
        name: history[["step", name]].dropna()
        for name in TRAINING
        if name in history and history[name].notna().any()
    }
    figure = Figure(figsize=(MAP_WIDTH, 0.25 + 1.1 * len(curves)))
    bottom = 0.25 / figure.get_figheight()
    share = (1 - bottom) / max(len(curves), 1)
    last = float(history["step"].max())
    for i, (name, part) in enumerate(reversed(curves.items())):
        ax = figure.add_axes((0.1, bottom + share * i, 0.87, 0.84 * share))
        despine(ax, left=True)
        mark = "o" if len(part) < FEW_POINTS else ""
        colour = TRAINING[name]
        ax.plot(part["step"], part[name], color=colour, lw=1.5, marker=mark, ms=3)
        if best_step is not None:
            ax.axvline(best_step, color=FAINT, lw=1.2)
        ax.margins(y=0.08)
        ax.set_xlim(-0.01 * last, 1.01 * last)
        number_axis(ax, dates=False, n=6)
        ax.tick_params(labelbottom=i == 0)
        ax.locator_params(axis="y", nbins=4)
        ax.yaxis.set_major_formatter(plain_number)
        ax.grid(axis="y", color=FAINT, lw=0.6)
    return figure
