"""The order of preprocessing: what imputing before scaling does to a column.

The paper's figure: a column of a kept real table loses cells completely at random, and
its mean is imputed. Left, imputed values are part of the scaling (impute, then scale):
the observed values are no longer standard normal. Right, the scaling is fitted on
observed values only (scale, then impute), as everywhere in augmask.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from augmask.rng import stream
from augmask.table.scale import QuantileNormal
from augmask_bench.figures.data import column_roles, kept_rows, no_rows_error
from augmask_bench.figures.style import COLOURS, FAINT, INK, SIZE, SOFT, plain

RATIO = 0.7
BINS = np.linspace(-4, 4, 49)
NORMAL = np.exp(-(BINS**2) / 2) / np.sqrt(2 * np.pi)

Floats = npt.NDArray[np.float64]


class Scaled(NamedTuple):
    """Scaled observed values, and the scaled value that stands for missing ones."""

    observed: Floats
    imputed: float


def impute_then_scale(observed: Floats, n_missing: int) -> Scaled:
    """Scale observed values together with their mean in place of missing ones."""
    mean = observed.mean()
    scaler = QuantileNormal.fit(np.append(observed, np.full(n_missing, mean)))
    z = scaler.transform(np.append(observed, mean))
    return Scaled(z[:-1], float(z[-1]))


def scale_then_impute(observed: Floats) -> Scaled:
    """Scale observed values alone, and take the mean of the scaled ones.

    Examples
    --------
    >>> values = np.random.default_rng(0).exponential(size=999)
    >>> round(float(scale_then_impute(values).observed.std()), 3)
    1.0
    >>> bool(impute_then_scale(values, 2000).observed.std() > 1.5)
    True
    """
    z = QuantileNormal.fit(observed).transform(observed)
    return Scaled(z, float(z.mean()))


def _column(results: pd.DataFrame, out: Path | None) -> tuple[str, str, Floats] | None:
    """Return a data set, its numeric column with most values, and these."""
    for _, run in results[results["status"] == "done"].iterrows():
        kept = kept_rows(out, run)
        if kept is None:
            continue
        real = kept[0]
        numeric = list(real[column_roles(real)[0]].select_dtypes("number"))
        if numeric:
            name = max(numeric, key=lambda column: real[column].nunique())
            return str(run["dataset"]), name, real[name].to_numpy(float)
    return None


def _panel(ax: Axes, scaled: Scaled, title: str, colour: str) -> None:
    ax.hist(
        scaled.observed, BINS.tolist(), density=True, color=colour, alpha=0.55, lw=0
    )
    ax.plot(BINS, NORMAL, color=INK, lw=1.0)
    ax.axvline(scaled.imputed, color=FAINT, lw=1.2)
    mean, sd = scaled.observed.mean(), scaled.observed.std()
    ax.set_title(title, size=SIZE + 1, color=INK)
    ax.set_xlabel(
        f"scaled observed values: mean {mean:.2f}, sd {sd:.2f}", size=SIZE, color=SOFT
    )
    ax.set_yticks([])


def needs(results: pd.DataFrame) -> str:
    """Return why the figure cannot be drawn; an empty text if it can."""
    if (results["status"] == "done").any():
        return ""
    return "the figure needs a completed run whose rows were kept"


def draw(results: pd.DataFrame, out: Path | None = None) -> Figure:
    """Draw the scaled observed values of a column under both orders."""
    found = _column(results, out)
    if found is None:
        raise no_rows_error("preprocessing orders")
    dataset, name, values = found
    missing = stream(0, "preprocessing figure").random(len(values)) < RATIO
    observed = values[~missing]
    figure = Figure(figsize=(6.6, 2.4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    first = impute_then_scale(observed, int(missing.sum()))
    _panel(plain(left), first, "impute, then scale", COLOURS["NoAug"])
    second = scale_then_impute(observed)
    _panel(plain(right), second, "scale, then impute (ours)", COLOURS["AugMask"])
    figure.supxlabel(
        f"{dataset}, column {name!r}, MCAR {RATIO:g}; line: standard normal, vertical: "
        "the imputed mean",
        size=SIZE,
        color=SOFT,
    )
    return figure
