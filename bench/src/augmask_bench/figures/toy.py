"""The paper's Gaussian example: when supervising augmented cells does harm.

Left, the errors of both strategies by the mismatch δ² = p (b² + τ²) of augmented
values: lines are the closed forms, dots are simulated. They cross at the tolerance.
Right, the tolerance by the noise of the missing column; below it AugFull is better. It
needs no runs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from augmask.rng import stream
from augmask_bench.figures.style import COLOURS, FAINT, INK, SIZE, SOFT, plain
from augmask_bench.theory.toy import (
    Toy,
    mismatch,
    mse_full,
    mse_mask,
    simulate,
    tolerance,
)

EXAMPLE = Toy(rho=1.0, d=5, p=0.5)
SIMULATED = 40_000
COUPLINGS = (0.5, 1.0, 2.0)


def curves(toy: Toy, mismatches: np.ndarray) -> pd.DataFrame:
    """Return both errors for augmented values of the given mismatches.

    Examples
    --------
    >>> errors = curves(EXAMPLE, np.array([0.0, tolerance(EXAMPLE)]))
    >>> errors["AugFull"].round(3).tolist(), errors["AugMask"].round(3).tolist()
    ([0.2, 0.25], [0.25, 0.25])
    """
    toys = [replace(toy, b=float(np.sqrt(value / toy.p))) for value in mismatches]
    return pd.DataFrame(
        {
            "AugMask": [mse_mask(one) for one in toys],
            "AugFull": [mse_full(one) for one in toys],
        },
        index=[mismatch(one) for one in toys],
    )


def _errors(ax: Axes, toy: Toy) -> None:
    crossing = tolerance(toy)
    values = np.linspace(0, 2.2 * crossing, 60)
    exact = curves(toy, values)
    for name in ("AugFull", "AugMask"):
        ax.plot(exact.index, exact[name], color=COLOURS[name], lw=1.4, label=name)
    for i, value in enumerate(np.linspace(0, 2 * crossing, 7)):
        drawn = simulate(
            replace(toy, b=float(np.sqrt(value / toy.p))),
            SIMULATED,
            stream(0, "toy figure", i),
        )
        for name, error in (("AugMask", drawn.mask), ("AugFull", drawn.full)):
            ax.plot([value], [error.mean()], "o", ms=3, color=COLOURS[name])
    ax.axvline(crossing, color=FAINT, lw=1.2, zorder=0)
    ax.annotate(
        "crossover",
        (crossing, 1),
        (3, -2),
        xycoords=ax.get_xaxis_transform(),
        textcoords="offset points",
        size=SIZE,
        color=SOFT,
        va="top",
    )
    ax.set_xlabel("mismatch δ² of augmented values", size=SIZE, color=SOFT)
    ax.set_title("mean squared error of the shared factor", size=SIZE + 1, color=INK)
    ax.legend(frameon=False, fontsize=SIZE, labelcolor=INK, loc="upper left")


def _tolerances(ax: Axes, toy: Toy) -> None:
    noise = np.linspace(0, 2, 80)
    for rho, style in zip(COUPLINGS, (":", "-", "--"), strict=True):
        bound = [
            max(tolerance(replace(toy, rho=rho, sigma_m=float(s))), 0.0) for s in noise
        ]
        ax.plot(noise, bound, style, color=INK, lw=1.2, label=f"ρ = {rho:g}")
        if rho == toy.rho:
            ax.fill_between(noise, bound, color=COLOURS["AugFull"], alpha=0.15, lw=0)
    for text, place in (("AugFull better", (0.3, 0.7)), ("AugMask better", (1.2, 1.9))):
        ax.text(*place, text, size=SIZE, color=SOFT)
    ax.set_xlabel("noise σ of the missing column", size=SIZE, color=SOFT)
    ax.set_title("largest mismatch that AugFull tolerates", size=SIZE + 1, color=INK)
    ax.legend(frameon=False, fontsize=SIZE, labelcolor=INK, loc="upper right")


def needs(results: pd.DataFrame) -> str:
    """Return an empty text: the figure needs no runs."""
    del results
    return ""


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw both errors by mismatch, and the crossover by noise."""
    del results, out
    figure = Figure(figsize=(7.2, 2.7), layout="constrained")
    left, right = figure.subplots(1, 2)
    _errors(plain(left), EXAMPLE)
    _tolerances(plain(right), EXAMPLE)
    return figure
