"""Real and synthetic rows on a UMAP of the real table: densities, residual, IoU.

Rows are encoded as for α-precision, with indicators divided by √2, so that two levels
are as far apart as the extremes of a number. UMAP is fitted on one half of the real
rows, and transforms the other half and equally many synthetic rows. Densities are
Gaussian KDEs (Scott) on one grid that extends by 1 beyond all rows, and

    IoU = Σ min(P, Q) / Σ max(P, Q)

The IoU of the two real halves is shown too: no generator can reach more. The paper
does not say how its figure was made; this recipe gives similar numbers. It is a
picture, not a metric: independent columns already reach .74 on Adult.
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
from augmask.evaluation.alpha_beta import as_points
from augmask.evaluation.tables import Floats
from augmask.report.aggregates import overlap
from augmask.report.plots import fade, thin_frame
from augmask.rng import stream
from augmask_bench.figures.data import column_roles, kept_rows, no_rows_error
from augmask_bench.figures.fidelity import contour_heights
from augmask_bench.figures.style import COLOURS, FAINT, INK, SIZE, SOFT
from augmask_bench.ranks import BLOCK, FILL

# Rows of each half; more rows take longer and do not change the second digit.
ROWS = 5000
FEWEST = 60
GRID = 100
BEYOND = 1.0
MOST = 6
INSTALL = "the UMAP figure needs the package umap-learn; run `pip install umap-learn`"


def embed(base: Floats, others: list[Floats]) -> list[Floats]:
    """Fit UMAP on `base`; return the embeddings of `base` and of the others."""
    with warnings.catch_warnings():
        # it warns about Tensorflow and about its use of other packages
        warnings.simplefilter("ignore")
        try:
            umap = import_module("umap")
        except ImportError as error:
            raise UsageError(INSTALL) from error
        reducer = umap.UMAP(n_neighbors=30, min_dist=0.1, random_state=42)
        embedded = np.asarray(reducer.fit_transform(base), np.float64)
        mapped = np.asarray(reducer.transform(np.vstack(others)), np.float64)
    return [embedded, *np.split(mapped, np.cumsum([len(rows) for rows in others])[:-1])]


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
    density = gaussian_kde(points.T)(grid)
    return np.asarray(density / max(density.sum(), 1e-300)).reshape(GRID, GRID)


def densities(
    real: pd.DataFrame, synthetic: dict[str, pd.DataFrame], rng: np.random.Generator
) -> Densities:
    """Return the densities of real and synthetic tables on one embedding."""
    numeric, categorical = column_roles(real)
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
    # the grid covers all rows: a row outside would not count
    mapped = np.vstack([first, *rest])
    low, high = mapped.min(axis=0) - BEYOND, mapped.max(axis=0) + BEYOND
    axes = [np.linspace(a, b, GRID) for a, b in zip(low, high, strict=True)]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes)])
    kdes = [_density(p, grid) for p in (first, *rest)]
    return Densities(
        kdes[0],
        kdes[1],
        dict(zip(synthetic, kdes[2:], strict=True)),
        (float(low[0]), float(high[0]), float(low[1]), float(high[1])),
    )


def _runs(results: pd.DataFrame) -> pd.DataFrame:
    return results[(results["status"] == "done") & (results["generator"] != FILL)]


def needs(results: pd.DataFrame) -> str:
    """Return why the figure cannot be drawn; an empty text if it can."""
    if find_spec("umap") is None:
        return INSTALL
    return "" if len(_runs(results)) else "the UMAP figure needs a completed run"


def _read_tables(
    results: pd.DataFrame, out: Path | None
) -> tuple[pd.Series, pd.DataFrame, dict[str, pd.DataFrame]]:
    """Return the block with the highest missing ratio that kept rows, and its rows."""
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
    raise no_rows_error("densities")


def _above(ax: Axes, kdes: Densities, values: Floats, colour: str) -> None:
    ax.imshow(
        fade(np.sqrt(kdes.real / kdes.real.max()) * 0.75, "real"),
        origin="lower",
        extent=kdes.extent,
        aspect="auto",
        interpolation="bilinear",
    )
    ax.contour(
        values,
        contour_heights(values),
        extent=kdes.extent,
        colors=colour,
        linewidths=0.9,
    )


def _below(ax: Axes, kdes: Densities, values: Floats, largest: float) -> None:
    apart = values - kdes.real
    ax.imshow(
        fade(
            np.sign(apart) * np.sqrt(np.abs(apart) / largest), "synthetic", "remasked"
        ),
        origin="lower",
        extent=kdes.extent,
        aspect="auto",
        interpolation="bilinear",
    )


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw densities above and residuals below, one column per method."""
    block, real, tables = _read_tables(results, out)
    rng = stream(0, "umap", str(block["dataset"]))
    kdes = densities(real, tables, rng)
    strategies = results.drop_duplicates("method").set_index("method")["strategy"]
    columns = {"other real rows": kdes.holdout, **kdes.synthetic}
    figure = Figure(figsize=(0.3 + 1.75 * len(columns), 3.75), layout="constrained")
    panels = figure.subplots(2, len(columns), squeeze=False)
    largest = max(float(np.abs(v - kdes.real).max()) for v in columns.values())
    for column, (name, values) in zip(panels.T, columns.items(), strict=True):
        colour = COLOURS.get(strategies.get(name, ""), COLOURS["AugMask"])
        _above(column[0], kdes, values, SOFT if name not in tables else colour)
        _below(column[1], kdes, values, largest)
        column[0].set_title(
            f"{name}\nIoU {overlap(kdes.real, values):.3f}", size=SIZE, color=INK
        )
        for ax in column:
            for spine in thin_frame(ax).spines.values():
                spine.set_color(FAINT)
            ax.set_xlim(kdes.extent[:2])
            ax.set_ylim(kdes.extent[2:])
    panels[0, 0].set_ylabel("density\n(grey: real)", size=SIZE, color=SOFT)
    panels[1, 0].set_ylabel("residual\nblue: too many", size=SIZE, color=SOFT)
    missingness = f"{str(block['mechanism']).upper()} {block['ratio']:g}"
    figure.supxlabel(
        f"UMAP of {block['dataset']}, {missingness}", size=SIZE, color=SOFT
    )
    return figure
