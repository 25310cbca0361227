"""A map of both tables on two axes, and how much of it they share.

Rows are encoded as α-precision and β-recall encode them, and laid on the first two
principal axes of the real table. Holes take the mean or the most frequent level of the
real table, in both tables alike, for the map only. Densities are smoothed counts on one
grid; the overlap is IoU = Σ min / Σ max of two densities. Two random halves of the real
table give what can be reached; the synthetic table is compared with one of these halves
in as many rows, so that both numbers carry the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter

from augmask.evaluation.columns import Floats
from augmask.evaluation.coverage import as_points
from augmask.evaluation.references import mean_mode_fill
from augmask.report.counts import FEWEST

GRID = 64
SMOOTH = 2.0
# Share of rows left outside on each side of each axis.
OUTSIDE = 0.005


@dataclass(frozen=True, eq=False)
class Map:
    """Densities on a grid, the second axis first.

    Parameters
    ----------
    real, synthetic : float array [GRID, GRID]
        Share of rows per cell, smoothed; 0 where fewer than 5 rows are near.
    iou, reference : float
        Overlap of synthetic and real rows, and of real and other real rows.
    explained : float
        Share of the variance that the two axes show.
    filled : bool
        Whether holes were filled for it.
    """

    real: Floats
    synthetic: Floats
    iou: float
    reference: float
    explained: float
    filled: bool


def _axes(x: Floats) -> tuple[Floats, Floats, float]:
    """Return centre, two principal axes and the share of variance on them."""
    centre = x.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(x, rowvar=False).reshape(2 * (x.shape[1],)))
    axes = vectors[:, ::-1][:, :2]
    # An axis has no direction of its own; this makes the picture repeatable.
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1, 1)
    total = values.sum()
    return centre, axes, float(values[-2:].sum() / total) if total > 0 else 1.0


def smoothed(points: Floats, low: Floats, high: Floats) -> Floats:
    """Return smoothed counts per cell."""
    bounds = [(a, b) for a, b in zip(low, high, strict=True)]
    counts, _, _ = np.histogram2d(points[:, 1], points[:, 0], GRID, bounds[::-1])
    return np.asarray(gaussian_filter(counts, SMOOTH, mode="constant"))


def overlap(a: Floats, b: Floats) -> float:
    """Return IoU of two densities, each taken as shares.

    Examples
    --------
    >>> overlap(np.array([2.0, 2.0, 0.0]), np.array([0.0, 1.0, 1.0]))
    0.3333333333333333
    """
    p, q = a / max(a.sum(), 1e-12), b / max(b.sum(), 1e-12)
    return float(np.minimum(p, q).sum() / np.maximum(p, q).sum())


def visible(density: Floats) -> Floats:
    """Return the density with nothing where fewer than FEWEST rows are near."""
    # One row alone leaves this in the cell that it falls into.
    single = 1 / (2 * np.pi * SMOOTH**2)
    shares = density / max(density.sum(), 1e-12)
    return np.where(density < FEWEST * single, 0.0, shares)


def map_rows(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    numeric: Sequence[str],
    categorical: Sequence[str],
    rng: np.random.Generator,
) -> Map | None:
    """Return the map, or None when the rows have no two axes to lie on.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = (pd.DataFrame(rng.normal(size=(2000, 3)), columns=list("xyz"))
    ...         for _ in range(2))
    >>> found = map_rows(a, b, list("xyz"), [], rng)
    >>> abs(found.iou - found.reference) < 0.1
    True
    >>> map_rows(a, b + 2, list("xyz"), [], rng).iou < 0.4
    True
    """
    names = [*numeric, *categorical]
    filled = bool(real[names].isna().any(axis=None))
    if filled:
        both = pd.concat([real[names], synthetic[names]], ignore_index=True)
        fill = mean_mode_fill(real, numeric, categorical)
        holes = real[names].isna()
        for name in names:
            if holes[name].any():
                value = fill[name][holes[name].to_numpy()].iloc[0]
                column = both[name]
                if name in numeric and column.dtype.kind not in "mM":
                    column = column.astype(np.float64)
                both[name] = column.fillna(value)
        real, synthetic = both.iloc[: len(real)], both.iloc[len(real) :]
    frames = {"real": real, "synthetic": synthetic}
    x, s = as_points(frames, numeric, categorical)
    half = min(len(x) // 2, len(s))
    if x.shape[1] < 2 or half < 2 * FEWEST or np.ptp(x, axis=0).max() == 0:
        return None
    centre, axes, explained = _axes(x)
    x, s = (x - centre) @ axes, (s - centre) @ axes
    ends = [np.quantile(np.vstack([x, s]), q, axis=0) for q in (OUTSIDE, 1 - OUTSIDE)]
    room = 0.06 * (ends[1] - ends[0]) + 1e-9
    low, high = ends[0] - room, ends[1] + room
    order = rng.permutation(len(x))
    a, b = x[order[:half]], x[order[half : 2 * half]]
    c = s[rng.choice(len(s), half, replace=False)]
    first, other, drawn = (smoothed(points, low, high) for points in (a, b, c))
    return Map(
        real=visible(smoothed(x, low, high)),
        synthetic=visible(smoothed(s, low, high)),
        iou=overlap(first, drawn),
        reference=overlap(first, other),
        explained=explained,
        filled=filled,
    )
