"""Misspecified augmenters: quality over context bias η and stochasticity λ.

One fitted LGBM-S is perturbed (`augmentation/perturb.py`); AugFull and AugMask train on
the same augmented tables. η = 0, λ = 1 is LGBM-S, λ = 0 is deterministic, η = 1 ignores
the context. The right panel is the paper's: AugMask - AugFull, blue where AugMask is
better, orange where AugFull is, white where they are equal.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from augmask.report.plots import fade, heat, thin_frame
from augmask_bench.figures.data import (
    blocks_of,
    matched,
    usual_completions,
    with_quality,
)
from augmask_bench.figures.style import FAINT, INK, SIZE, SOFT

CELL = 0.46
KEYS = ["eta", "lam", "supervise"]


def _rows(results: pd.DataFrame) -> pd.DataFrame:
    """Return runs of perturbed augmenters, and of the unperturbed as (0, 1)."""
    rows = with_quality(results)
    perturbed = rows["eta"].notna() | rows["lam"].notna()
    swept = rows["augmenter"].isin(rows.loc[perturbed, "augmenter"].unique())
    rows = rows[swept & rows["supervise"].isin(["all", "observed"])]
    rows = rows.assign(eta=rows["eta"].fillna(0.0), lam=rows["lam"].fillna(1.0))
    return usual_completions(rows)


def sweeps(results: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return each generator's runs of settings that have both strategies."""
    runs = {}
    for generator, part in _rows(results).groupby("generator"):
        both = part.groupby(["eta", "lam"])["supervise"].transform("nunique") == 2
        comparable = matched(part[both], KEYS)
        if len(comparable[["eta", "lam"]].drop_duplicates()) > 1:
            runs[str(generator)] = comparable
    return runs


def maps(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return mean quality over η (rows) and λ (columns), and the difference."""
    mean = rows.groupby(KEYS)["quality"].mean().unstack("lam")
    full, mask = (mean.xs(kind, level="supervise") for kind in ("all", "observed"))
    return {"AugFull": full, "AugMask": mask, "AugMask − AugFull": mask - full}


def _map(
    ax: Axes, values: pd.DataFrame, shades: pd.DataFrame, colour: tuple[str, str | None]
) -> None:
    heat(ax, fade(shades.to_numpy(), *colour), flip=True)
    for spine in thin_frame(ax).spines.values():
        spine.set_color(FAINT)
    signed = colour[1] is not None
    for i, j in np.ndindex(values.shape):
        value = values.iat[i, j]
        text = f"{100 * value:+.1f}" if signed else f"{100 * value:.1f}"
        ax.text(
            j,
            i,
            "" if np.isnan(value) else text.replace("-", "−"),
            size=SIZE,
            ha="center",
            va="center",
            color="white" if abs(shades.iat[i, j]) > 0.68 else INK,
        )
    ax.set_xticks(range(values.shape[1]), [f"{lam:g}" for lam in values.columns])
    ax.set_yticks(range(values.shape[0]), [f"{eta:g}" for eta in values.index])
    ax.tick_params(left=False, bottom=False, labelsize=SIZE, labelcolor=INK, pad=3)


def needs(results: pd.DataFrame) -> str:
    """Return why the figure cannot be drawn; an empty text if it can."""
    if sweeps(results):
        return ""
    return (
        "the figure needs runs of one generator with at least two settings of eta and "
        "lam, each with supervise 'all' and 'observed', in the same blocks"
    )


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw AugFull, AugMask and their difference, a row of maps per generator."""
    del out
    panels_of = {name: (rows, maps(rows)) for name, rows in sweeps(results).items()}
    tall, wide = (
        max(m["AugFull"].shape[axis] for _, m in panels_of.values()) for axis in (0, 1)
    )
    wide_enough = max(1.4 + 3 * CELL * wide, 5.0)
    figure = Figure(
        figsize=(wide_enough, 0.2 + (0.85 + CELL * 0.8 * tall) * len(panels_of)),
        layout="constrained",
    )
    panels = figure.subplots(len(panels_of), 3, squeeze=False)
    for line, (rows, three) in zip(panels, panels_of.values(), strict=True):
        scores = np.stack([three["AugFull"], three["AugMask"]])
        low, high = np.nanmin(scores), np.nanmax(scores)
        name = str(rows["method"].iloc[0]).split(" + ")[0]
        for ax, (title, values) in zip(line, three.items(), strict=True):
            if title in ("AugFull", "AugMask"):
                # both on one scale; the lowest quality is nearly white
                shades = 0.06 + 0.8 * (values - low) / max(high - low, 1e-12)
                _map(ax, values, shades, ("real", None))
            else:
                largest = max(float(np.nanmax(np.abs(values))), 1e-12)
                _map(ax, values, 0.9 * values / largest, ("synthetic", "remasked"))
            ax.set_title(title, size=SIZE + 1, color=INK)
            ax.set_xlabel("stochasticity λ", size=SIZE, color=SOFT)
        line[0].set_ylabel(f"{name}\ncontext bias η", size=SIZE, color=SOFT)
        line[1].set_xlabel(
            f"stochasticity λ\n100 × sample quality; {blocks_of(rows)}",
            size=SIZE,
            color=SOFT,
        )
    return figure
