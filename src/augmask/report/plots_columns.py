"""Single columns: observed, synthetic, and synthetic with the holes put back."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from augmask.report.counts import Bars, Histogram
from augmask.report.plots import SMALL, Floats, bare, canvas, number_axis, percent
from augmask.report.svg import FAINT, INK, REAL, REMASKED, SYNTHETIC

WIDTH = 2.7
# A bin this many times as high as the next is cut, or nothing else could be seen.
SPIKE = 4.0
COLOURS = {"real": REAL, "synthetic": SYNTHETIC, "remasked": REMASKED}


def _top(heights: Floats) -> float:
    """Return where to cut the highest bin, if it dwarfs all others."""
    ordered = np.sort(heights)
    if len(ordered) < 3 or ordered[-2] == 0 or ordered[-1] < SPIKE * ordered[-2]:
        return float(ordered[-1])
    return float(1.8 * ordered[-2])


def _on_the_left(edges: Floats, spike: int) -> bool:
    return bool(edges[spike] + edges[spike + 1] < edges[0] + edges[-1])


def _beside(edges: Floats, spike: int) -> tuple[float, float]:
    """Return where to say how high a cut bin is: x in the data, y from 0 to 1."""
    room = 0.02 * (edges[-1] - edges[0])
    if _on_the_left(edges, spike):
        return float(edges[spike + 1] + room), 1.0
    return float(edges[spike] - room), 1.0


def histogram_figure(found: Histogram) -> Figure:
    """Draw densities: real as an area, the others as outlines.

    Examples
    --------
    >>> found = Histogram(np.arange(4.0), {"real": np.array([0.2, 0.5, 0.3])}, False)
    >>> len(histogram_figure(found).axes)
    1
    """
    figure, ax = canvas(WIDTH, 1.25, (0.03, 0.18, 0.94, 0.8))
    bare(ax)
    widths = np.diff(found.edges)
    heights = np.max([s / widths for s in found.shares.values()], axis=0)
    top = _top(heights)
    for name, shares in found.shares.items():
        density = np.minimum(shares / widths, top)
        if name == "real":
            ax.stairs(
                density, found.edges, fill=True, color=REAL, alpha=0.32, lw=0, ec="none"
            )
        else:
            ax.stairs(
                density,
                found.edges,
                color=COLOURS[name],
                lw=1.4,
                ls=(0, (2.2, 1.2)) if name == "remasked" else "-",
                clip_on=False,
            )
    if heights.max() > top:
        spike = int(heights.argmax())
        ax.text(
            *_beside(found.edges, spike),
            f"{100 * found.shares['real'][spike]:.0f}% here",
            transform=ax.get_xaxis_transform(),
            size=SMALL,
            color=INK,
            va="top",
            ha="left" if _on_the_left(found.edges, spike) else "right",
        )
    ax.set_ylim(0, top * 1.05 or 1)
    ax.set_xlim(found.edges[0], found.edges[-1])
    number_axis(ax, found.dates, 5)
    return figure


def bars_figure(found: Bars) -> Figure:
    """Draw shares of levels: a broad bar for real, thin marks for the others."""
    n = len(found.labels)
    height = 0.26 + 0.21 * n
    bottom = 0.2 / height
    longest = max(len(label) for label in found.labels)
    left = min(0.46, 0.05 + 0.024 * longest)
    figure, ax = canvas(WIDTH, height, (left, bottom, 0.94 - left, 0.98 - bottom))
    bare(ax, left=True)
    at = np.arange(n)
    ax.barh(at, found.shares["real"], 0.72, color=REAL, alpha=0.32, lw=0)
    others = [name for name in found.shares if name != "real"]
    for i, name in enumerate(others):
        offset = (i - (len(others) - 1) / 2) * 0.3
        ax.barh(at + offset, found.shares[name], 0.18, color=COLOURS[name], lw=0)
    top = max(float(s.max()) for s in found.shares.values())
    ax.set_xlim(0, top * 1.02 or 1)
    ax.set_ylim(n - 0.5, -0.5)
    ax.set_yticks(at, found.labels)
    ax.locator_params(axis="x", nbins=3)
    ax.xaxis.set_major_formatter(percent)
    ax.axvline(0, color=FAINT, lw=0.8)
    ax.tick_params(labelsize=SMALL, labelcolor=INK)
    return figure


def marginal_figure(found: Histogram | Bars) -> Figure:
    """Draw a column as its kind asks."""
    if isinstance(found, Histogram):
        return histogram_figure(found)
    return bars_figure(found)
