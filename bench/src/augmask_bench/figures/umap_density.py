"""Real and synthetic rows on a UMAP of the real table: densities, residual, IoU.

Rows are encoded as α-precision encodes them, indicators divided by √2, so that two
levels are as far apart as the ends of a number. UMAP is fitted on one half of the real
rows; the other half and equally many synthetic rows are laid on it. Densities are
Gaussian KDEs (Scott) on one grid over all rows and 1 beyond, and

    IoU = Σ min(P, Q) / Σ max(P, Q)

The IoU of the two real halves stands beside: more than that no generator can reach. The
paper shows the figure and not how it was made; this recipe gives numbers like its own.
It is a picture, not a metric: independent columns already reach .74 on Adult.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from augmask.config import STRATEGIES
from augmask.errors import UsageError
from augmask.evaluation.columns import Floats
from augmask.evaluation.coverage import as_points
from augmask.report.map2d import overlap
from augmask.report.plots import faded, framed
from augmask.rng import stream
from augmask_bench.figures.fidelity import levels
from augmask_bench.figures.kept import kept_rows, kinds, nothing_kept
from augmask_bench.figures.style import COLOURS, FAINT, INK, SIZE, SOFT
from augmask_bench.ranks import BLOCK, FILL

# Rows of each half; more take long and change no second digit.
ROWS = 5000
FEWEST = 60
GRID = 100
BEYOND = 1.0
MOST = 6
HOW_TO_GET = (
    "the UMAP figure needs the package umap-learn; run `pip install 'augmask[bench]'`"
)


def embed(base: Floats, others: list[Floats]) -> list[Floats]:
    """Fit UMAP on `base`; return it and the others on two axes."""
    with warnings.catch_warnings():
        # It warns about Tensorflow, and about its own use of other packages.
        warnings.simplefilter("ignore")
        try:
            umap = import_module("umap")
        except ImportError as error:
            raise UsageError(f"{HOW_TO_GET}.") from error
        reducer = umap.UMAP(n_neighbors=30, min_dist=0.1, random_state=42)
        placed = np.asarray(reducer.fit_transform(base), np.float64)
        laid = np.asarray(reducer.transform(np.vstack(others)), np.float64)
    return [placed, *np.split(laid, np.cumsum([len(rows) for rows in others])[:-1])]


@dataclass(frozen=True, eq=False)
class Densities:
    """KDEs on one grid, each with sum 1: real rows, other real rows, synthetic rows.

    `extent` is left, right, bottom, top.
    """

    real: Floats
    holdout: Floats
    synthetic: dict[str, Floats]
    extent: tuple[float, float, float, float]


def _density(points: Floats, grid: Floats) -> Floats:
    found = gaussian_kde(points.T)(grid)
    return np.asarray(found / max(found.sum(), 1e-300)).reshape(GRID, GRID)


def densities(
    real: pd.DataFrame, synthetic: dict[str, pd.DataFrame], rng: np.random.Generator
) -> Densities:
    """Return the densities of real and synthetic tables on one map."""
    numeric, categorical = kinds(real)
    n = min(len(real) // 2, *(len(frame) for frame in synthetic.values()), ROWS)
    order = rng.permutation(len(real))
    frames = {"holdout": real.iloc[order[n : 2 * n]]}
    for name, frame in synthetic.items():
        frames[f"synthetic {name}"] = frame.iloc[rng.permutation(len(frame))[:n]]
    base = real.iloc[order[:n]]
    points = []
    for frame in (base, *frames.values()):
        both = {"real": real, "synthetic": frame}
        coded = as_points(both, numeric, categorical)[1]
        coded[:, len(numeric) :] /= np.sqrt(2)
        points.append(coded)
    first, *rest = embed(points[0], points[1:])
    # Rows outside the grid would not count at all, so all are inside.
    laid = np.vstack([first, *rest])
    low, high = laid.min(axis=0) - BEYOND, laid.max(axis=0) + BEYOND
    axes = [np.linspace(a, b, GRID) for a, b in zip(low, high, strict=True)]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes)])
    found = [_density(p, grid) for p in (first, *rest)]
    return Densities(
        found[0],
        found[1],
        dict(zip(synthetic, found[2:], strict=True)),
        (float(low[0]), float(high[0]), float(low[1]), float(high[1])),
    )


def _runs(results: pd.DataFrame) -> pd.DataFrame:
    return results[(results["status"] == "done") & (results["generator"] != FILL)]


def needs(results: pd.DataFrame) -> str:
    """Return why the figure cannot be drawn, "" if it can."""
    if find_spec("umap") is None:
        return HOW_TO_GET
    return "" if len(_runs(results)) else "the UMAP figure needs a finished run"


def _found(
    results: pd.DataFrame, out: Path | None
) -> tuple[pd.Series, pd.DataFrame, dict[str, pd.DataFrame]]:
    """Return the block with most holes that has kept rows: real and by method."""
    rows = _runs(results)
    place = {name: i for i, name in enumerate(STRATEGIES)}
    rows = rows.assign(place=rows["strategy"].map(place).fillna(len(place)))
    rows = rows.sort_values(["generator", "place"], kind="stable")
    rows = rows.sort_values("ratio", ascending=False, kind="stable")
    for _, block in rows.groupby(list(BLOCK), sort=False):
        real, tables = None, {}
        for _, run in block.iterrows():
            kept = kept_rows(out, run)
            if kept is not None and min(map(len, kept)) >= FEWEST:
                real, tables[str(run["method"])] = kept
        if real is not None:
            return block.iloc[0], real, dict(list(tables.items())[:MOST])
    raise nothing_kept("Densities")


def _above(ax: Axes, found: Densities, values: Floats, colour: str) -> None:
    ax.imshow(
        faded(np.sqrt(found.real / found.real.max()) * 0.75, "real"),
        origin="lower",
        extent=found.extent,
        aspect="auto",
        interpolation="bilinear",
    )
    ax.contour(
        values, levels(values), extent=found.extent, colors=colour, linewidths=0.9
    )


def _below(ax: Axes, found: Densities, values: Floats, largest: float) -> None:
    apart = values - found.real
    ax.imshow(
        faded(
            np.sign(apart) * np.sqrt(np.abs(apart) / largest), "synthetic", "remasked"
        ),
        origin="lower",
        extent=found.extent,
        aspect="auto",
        interpolation="bilinear",
    )


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw density over the real one above and residual below, a column per method."""
    block, real, tables = _found(results, out)
    rng = stream(0, "umap", str(block["dataset"]))
    found = densities(real, tables, rng)
    strategies = results.drop_duplicates("method").set_index("method")["strategy"]
    shown = {"other real rows": found.holdout, **found.synthetic}
    figure = Figure(figsize=(0.3 + 1.75 * len(shown), 3.75), layout="constrained")
    panels = figure.subplots(2, len(shown), squeeze=False)
    largest = max(float(np.abs(v - found.real).max()) for v in shown.values())
    for column, (name, values) in zip(panels.T, shown.items(), strict=True):
        colour = COLOURS.get(strategies.get(name, ""), COLOURS["AugMask"])
        _above(column[0], found, values, SOFT if name not in tables else colour)
        _below(column[1], found, values, largest)
        column[0].set_title(
            f"{name}\nIoU {overlap(found.real, values):.3f}", size=SIZE, color=INK
        )
        for ax in column:
            for spine in framed(ax).spines.values():
                spine.set_color(FAINT)
            ax.set_xlim(found.extent[:2])
            ax.set_ylim(found.extent[2:])
    panels[0, 0].set_ylabel("density\n(grey: real)", size=SIZE, color=SOFT)
    panels[1, 0].set_ylabel("residual\nblue: too many", size=SIZE, color=SOFT)
    holes = f"{str(block['mechanism']).upper()} {block['ratio']:g}"
    figure.supxlabel(f"UMAP of {block['dataset']}, {holes}", size=SIZE, color=SOFT)
    return figure
