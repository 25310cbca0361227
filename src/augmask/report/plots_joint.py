"""Columns together: dependence matrices, joint counts, the map of all rows."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from augmask.report.counts import short
from augmask.report.dependence import Axis, Joint
from augmask.report.map2d import Map
from augmask.report.plots import (
    SMALL,
    Floats,
    canvas,
    faded,
    framed,
    heat,
    plain_number,
)
from augmask.report.svg import INK

# More names than this cannot be read beside a matrix.
MOST_NAMES = 22


def matrix_figure(values: Floats, names: tuple[str, ...], full: float = 1.0) -> Figure:
    """Draw a matrix: blue above zero, orange below, full colour at `full`."""
    n = len(names)
    named = n <= MOST_NAMES
    side = 2.5
    width = side + (1.05 if named else 0.05)
    figure, ax = canvas(
        width, side, ((width - side + 0.02) / width, 0.01, (side - 0.04) / width, 0.98)
    )
    shown = values / full
    np.fill_diagonal(shown, np.nan)
    heat(ax, faded(shown, "synthetic", "remasked"))
    framed(ax)
    if named:
        ax.set_yticks(np.arange(n), [short(name, 17) for name in names])
        size = SMALL if n <= 16 else 6
        ax.tick_params(left=False, labelsize=size, labelcolor=INK, pad=3)
    return figure


def _label(ax: Axes, axis: Axis, vertical: bool) -> None:
    side = ax.yaxis if vertical else ax.xaxis
    ax.tick_params(left=False, bottom=False, labelsize=6.5, labelcolor=INK, pad=2)
    if axis.labels:
        side.set_major_locator(FixedLocator(list(range(axis.size))))
        most = 10 if vertical else 5
        side.set_ticklabels([short(label, most) for label in axis.labels])
        return
    # Bins are drawn equally wide; name two round edges of them.
    edges = np.asarray(axis.edges)
    places = [round(0.15 * axis.size), round(0.85 * axis.size)]
    side.set_major_locator(FixedLocator([p - 0.5 for p in places]))
    if axis.dates:
        days = edges[places].astype("datetime64[D]")
        long = edges[-1] - edges[0] > 900
        side.set_ticklabels([str(day)[: 4 if long else 7] for day in days])
    else:
        # Edges between whole numbers: name the number that follows.
        whole = bool((edges % 1 == 0.5).all())
        side.set_ticklabels([plain_number(edges[p] + 0.5 * whole) for p in places])


def joint_figure(pair: Joint) -> Figure:
    """Draw the joint shares of a pair, real on the left, synthetic on the right."""
    figure = Figure(figsize=(3.1, 1.75))
    top = max(np.nanmax(m, initial=0.0) for m in (pair.real, pair.synthetic)) or 1.0
    for i, (values, colour) in enumerate(
        ((pair.real, "real"), (pair.synthetic, "synthetic"))
    ):
        ax = figure.add_axes((0.19 + 0.41 * i, 0.13, 0.385, 0.84))
        # The root lets small cells be seen beside large ones.
        heat(ax, faded(np.sqrt(values.T / top), colour), flip=True)
        framed(ax)
        _label(ax, pair.first, vertical=False)
        if i == 0:
            _label(ax, pair.second, vertical=True)
    return figure


def density_figure(values: Floats, colour: str) -> Figure:
    """Draw one density of the map; the root shows thin regions too."""
    figure, ax = canvas(2.4, 2.1, (0.01, 0.01, 0.98, 0.98))
    heat(ax, faded(np.sqrt(values / (values.max() or 1)), colour), flip=True)
    framed(ax)
    return figure


def residual_figure(found: Map) -> Figure:
    """Draw where synthetic rows are too many (blue) and too few (orange)."""
    figure, ax = canvas(2.4, 2.1, (0.01, 0.01, 0.98, 0.98))
    apart = found.synthetic - found.real
    largest = max(found.real.max(), found.synthetic.max()) or 1.0
    shown = np.sign(apart) * np.sqrt(np.abs(apart) / largest)
    heat(ax, faded(shown, "synthetic", "remasked"), flip=True)
    framed(ax)
    return figure
