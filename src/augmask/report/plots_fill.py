"""Filled holes: draws of one beside its column, and shares of levels."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from augmask.report.counts import Bars
from augmask.report.imputation_examples import Fan
from augmask.report.plots import SMALL, bare, canvas, number_axis, percent
from augmask.report.plots_columns import bars_figure, histogram_figure
from augmask.report.svg import FAINT, INK, REAL, SYNTHETIC

# Where the column stands, and the strip of its draws below.
COLUMN, STRIP = (0.03, 0.38, 0.94, 0.6), (0.03, 0.18, 0.94, 0.15)
STRENGTH = (0.22, 0.35, 0.6)


def fan_figure(found: Fan) -> Figure:
    """Draw a column, and the draws of one of its holes as ranges or as shares.

    Examples
    --------
    >>> import numpy as np
    >>> from augmask.report.counts import Histogram
    >>> column = Histogram(np.arange(4.0), {"real": np.array([0.2, 0.5, 0.3])}, False)
    >>> found = Fan("x", column, np.linspace(1, 2, 7), "median 1 to 2")
    >>> len(fan_figure(found).axes)
    2
    """
    if isinstance(found.picture, Bars) or found.quantiles is None:
        assert isinstance(found.picture, Bars)
        return bars_figure(found.picture)
    figure = histogram_figure(found.picture)
    (above,) = figure.axes
    above.set_position(COLUMN)
    above.tick_params(labelbottom=False)
    strip = figure.add_axes(STRIP)
    bare(strip)
    q = found.quantiles
    for i, alpha in enumerate(STRENGTH):
        low, high = float(q[i]), float(q[-1 - i])
        strip.barh(0, high - low, 0.9, left=low, color=SYNTHETIC, alpha=alpha, lw=0)
    strip.plot([q[3], q[3]], [-0.5, 0.5], color=SYNTHETIC, lw=2, clip_on=False)
    strip.set_ylim(-0.6, 0.5)
    strip.set_xlim(above.get_xlim())
    number_axis(strip, found.picture.dates, 5)
    return figure


def shares_figure(found: pd.DataFrame) -> Figure:
    """Draw how often levels are the truth by their share among the draws."""
    figure, ax = canvas(3.1, 2.3, (0.15, 0.17, 0.82, 0.8))
    bare(ax, left=True)
    ax.plot(found["drawn"], found["right"], color=REAL, lw=1, ls=(0, (2, 2)))
    ax.plot(
        found["drawn"],
        found["found"],
        color=SYNTHETIC,
        marker="s",
        ms=4,
        lw=1.4,
        clip_on=False,
    )
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.xaxis.set_major_formatter(percent)
    ax.yaxis.set_major_formatter(percent)
    ax.set_xlabel("share of the draws", size=SMALL, color=INK, labelpad=2)
    ax.grid(axis="y", color=FAINT, lw=0.6)
    return figure
