"""Curves: intervals against their promise, ranks of the truth, training."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from augmask.evaluation.held_out import Calibration
from augmask.report.plots import SMALL, bare, canvas, number_axis, percent, plain_number
from augmask.report.svg import FAINT, INK, REAL, SYNTHETIC

FEW_POINTS = 40
# What is drawn of the training, the more telling first.
TRAINING = {"held_out": SYNTHETIC, "loss": REAL}
KINDS = {"numeric": ("o", "-"), "categorical": ("s", "--")}


def coverage_figure(found: Calibration) -> Figure:
    """Draw the share of hidden cells inside intervals against the promised share."""
    figure, ax = canvas(3.1, 2.3, (0.15, 0.17, 0.82, 0.8))
    bare(ax, left=True)
    ax.plot([0.4, 1], [0.4, 1], color=REAL, lw=1, ls=(0, (2, 2)))
    for kind, part in found.coverage.groupby("kind", sort=False):
        marker, line = KINDS[str(kind)]
        ax.plot(
            part["nominal"],
            part["found"],
            color=SYNTHETIC,
            marker=marker,
            ms=4,
            ls=line,
            lw=1.4,
            clip_on=False,
        )
    low = min(0.4, float(found.coverage["found"].min()) - 0.05)
    ax.set_xlim(0.4, 1)
    ax.set_ylim(low, 1)
    ax.xaxis.set_major_formatter(percent)
    ax.yaxis.set_major_formatter(percent)
    ax.set_xlabel("promised", size=SMALL, color=INK, labelpad=2)
    ax.grid(axis="y", color=FAINT, lw=0.6)
    return figure


def pit_figure(found: Calibration, kind: str) -> Figure:
    """Draw the ranks of the truth among its draws; flat is honest."""
    lines = found.columns[found.columns["kind"] == kind]
    weights = lines["cells"].to_numpy(dtype=np.float64)
    shares = found.pit.loc[lines["column"]].to_numpy()
    pooled = weights @ shares / weights.sum()
    figure, ax = canvas(3.1, 1.4, (0.04, 0.19, 0.92, 0.78))
    bare(ax)
    n = len(pooled)
    ax.bar(
        (np.arange(n) + 0.5) / n, pooled * n, 0.86 / n, color=SYNTHETIC, alpha=0.7, lw=0
    )
    ax.axhline(1, color=REAL, lw=1, ls=(0, (2, 2)))
    ax.set_xlim(0, 1)
    ax.set_ylim(0, max(1.4, float(pooled.max()) * n * 1.05))
    names = ("lowest", "highest") if kind == "numeric" else ("common", "rare")
    ax.set_xticks([0.0, 1.0], [f"{name} draw" for name in names])
    first, last = ax.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    return figure


def training_figure(history: pd.DataFrame, best_step: float | None) -> Figure:
    """Draw the loss on held-out cells above, the training loss below.

    Each has a scale of its own: the training loss varies by the noise that is drawn,
    far more than the held-out loss falls.

    Examples
    --------
    >>> history = pd.DataFrame({"step": [1, 2], "loss": [3.0, 1.0], "held_out": 0.9})
    >>> len(training_figure(history, 2).axes)
    2
    """
    curves = {
        name: history[["step", name]].dropna()
        for name in TRAINING
        if name in history and history[name].notna().any()
    }
    high = 1.25
    figure = Figure(figsize=(6.6, 0.25 + high * len(curves)))
    bottom = 0.25 / figure.get_figheight()
    share = (1 - bottom) / max(len(curves), 1)
    last = float(history["step"].max())
    for i, (name, part) in enumerate(reversed(curves.items())):
        ax = figure.add_axes((0.08, bottom + share * i, 0.9, 0.84 * share))
        bare(ax, left=True)
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
