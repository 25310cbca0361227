"""Held-out cells: whether imputations have the right uncertainty.

Without a complete truth you can still hide observed cells, let a model draw them, and
compare. `hide` hides the cells, the model draws each of them m times, and `calibration`
scores the draws:

* a rank u in (0, 1) per cell, uniform for any m if truth and draws have the same
  distribution. For a number it is the randomised PIT, the rank of the truth among its
  draws. For a level it is the rank of its frequency among truth and draws together,
  the most frequent first. Coverage follows from the ranks: the share of numbers with
  |u - 1/2| <= c/2 (the central interval), the share of levels with u <= c (the set of
  most frequent levels). Overconfident draws have coverage below the nominal c.
* a proper score, which also rewards sharp draws: CRPS for numbers and Brier score for
  levels, both in the fair version without bias from few draws, and the log score.

The reference is the same score for draws from the observed values of the column: a
model that does not beat it learned nothing from the rest of the row.

Hidden cells are chosen at random among the observed ones, so the result is about cells
like those. That missing cells are similar is the MAR assumption, which no score checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.augmentation import DEFAULT_AUGMENTER, Augmenter, resolve_augmenter
from augmask.errors import DataError, UsageError
from augmask.evaluation.tables import (
    Codes,
    Floats,
    Tables,
    check_tables,
    level_codes,
    numbers,
)
from augmask.missing.model import with_missing
from augmask.progress import Progress
from augmask.rng import stream
from augmask.table.codec import Codec
from augmask.validation import ValueSpec

NOMINAL = (0.5, 0.8, 0.9, 0.95)
PIT_BINS = 10
# Observed values that every column keeps, so that a model can learn it.
MIN_OBSERVED = 2
# Cells that `held_out_cells` hides, and how often it draws each of them.
HIDDEN_SHARE = 0.1
N_DRAWS = 20


@dataclass(frozen=True, eq=False)
class Calibration:
    """How calibrated and how sharp draws for hidden cells are.

    Parameters
    ----------
    coverage : pandas.DataFrame
        One line per kind and confidence: `kind`, `nominal`, `coverage`, `cells` and
        `standard_error` (as if cells were independent). Draws from the whole column
        are calibrated too, so look at the skill as well.
    columns : pandas.DataFrame
        One line per column with hidden cells: `column`, `kind`, `cells`, `measure`
        ("crps" or "brier", smaller is better), `score`, `reference`, `skill` (1 -
        score / reference), for levels also `log_score` and `log_reference`, and
        `coverage_50` to `coverage_95`. Few draws make the log score worse, so that it
        can exceed its reference for this reason alone; the other scores are unbiased.
    pit : pandas.DataFrame
        Share of the ranks in each tenth of (0, 1), one line per column. Flat is
        calibrated; a U for numbers, or a rise to the right for levels, means draws
        that are too narrow.
    n_draws : int
    """

    coverage: pd.DataFrame
    columns: pd.DataFrame
    pit: pd.DataFrame
    n_draws: int

    @property
    def skill(self) -> float:
        """Mean skill over columns."""
        return float(self.columns["skill"].mean())


def hide(
    frame: pd.DataFrame, share: float, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Hide a share of the observed cells of every column.

    Parameters
    ----------
    frame : pandas.DataFrame
        Complete or not; it is not changed.
    share : float
        Above 0 and below 1. Every column keeps at least two observed values.
    rng : numpy.random.Generator

    Returns
    -------
    masked : pandas.DataFrame
        The table without the hidden cells, to fit a model on.
    hidden : pandas.DataFrame of bool
        True where a value was hidden.

    Examples
    --------
    >>> table = pd.DataFrame({"a": [1.0, None, 3.0, 4.0, 5.0, 6.0]})
    >>> masked, hidden = hide(table, 0.4, np.random.default_rng(0))
    >>> int(masked["a"].isna().sum()), int(hidden["a"].sum()), bool(hidden["a"][1])
    (3, 2, False)
    """
    ValueSpec(Real, above=0, below=1).checked("the share of cells to hide", share)
    observed = frame.notna().to_numpy()
    hidden = np.zeros(frame.shape, dtype=bool)
    for j in range(frame.shape[1]):
        rows = np.flatnonzero(observed[:, j])
        count = max(min(round(share * len(rows)), len(rows) - MIN_OBSERVED), 0)
        hidden[rng.choice(rows, count, replace=False), j] = True
    return (
        with_missing(frame, ~hidden),
        pd.DataFrame(hidden, index=frame.index, columns=frame.columns),
    )


def _ranks(before: Floats, ties: Floats, m: int, rng: np.random.Generator) -> Floats:
    """Return u for the number of draws ranked before the truth, and tied with it."""
    u = (before + rng.random(len(before)) * (ties + 1)) / (m + 1)
    return np.asarray(u, dtype=np.float64)


def _crps(y: Floats, draws: Floats) -> Floats:
    """Return E|X - y| - E|X - X'| / 2 per cell, without bias; draws are [cells, m]."""
    m = draws.shape[1]
    ordered = np.sort(draws, axis=1)
    # Σ_i<k (x_(k) - x_(i)) by how often each order statistic is added and subtracted.
    pairs = ordered @ (2.0 * np.arange(m) - m + 1)
    fair = np.abs(draws - y[:, None]).mean(axis=1) - pairs / (m * (m - 1))
    return np.asarray(fair, dtype=np.float64)


def _crps_of_column(y: Floats, values: Floats) -> Floats:
    """Return the CRPS of draws from the values of a column, in closed form."""
    x = np.sort(values)
    n = len(x)
    sums = np.append(0.0, np.cumsum(x))
    below = np.searchsorted(x, y, side="right")
    distance = y * (2 * below - n) - 2 * sums[below] + sums[-1]
    pairs = x @ (2.0 * np.arange(n) - n + 1) / (n * (n - 1)) if n > 1 else 0.0
    return np.asarray(distance / n - pairs, dtype=np.float64)


def _numeric_scores(
    y: Floats, draws: Floats, column: Floats, rng: np.random.Generator
) -> tuple[dict[str, Any], Floats]:
    m = draws.shape[1]
    below = (draws < y[:, None]).sum(axis=1)
    equal = (draws == y[:, None]).sum(axis=1)
    u = _ranks(below, equal, m, rng)
    scores = {
        "measure": "crps",
        "score": float(_crps(y, draws).mean()),
        "reference": float(_crps_of_column(y, column).mean()),
    }
    return scores, u


def level_counts(draws: Codes, n_levels: int) -> Floats:
    """Return how often each level is drawn for each cell; draws are [cells, m]."""
    counts = np.zeros((len(draws), n_levels))
    np.add.at(counts, (np.arange(len(draws))[:, None], draws), 1)
    return counts


def _categorical_scores(
    y: Codes, draws: Codes, column: Codes, n_levels: int, rng: np.random.Generator
) -> tuple[dict[str, Any], Floats]:
    n, m = draws.shape
    cells = np.arange(n)
    counts = level_counts(draws, n_levels)
    # Add-one smoothing, so that an unseen level has a positive probability.
    frequency = np.bincount(column, minlength=n_levels) + 1.0
    marginal = np.asarray(frequency / frequency.sum(), dtype=np.float64)
    smoothed = (counts + marginal) / (m + 1)

    def brier(p: Floats) -> Floats:
        chosen = p[np.arange(len(p)), y] if p.ndim == 2 else p[y]
        return np.asarray((p**2).sum(axis=-1) - 2 * chosen + 1, dtype=np.float64)

    share = counts / m
    # The variance of m draws adds Σ p(1-p)/m; subtract its unbiased estimate.
    variance = (share * (1 - share)).sum(axis=1) / (m - 1)

    # Truth and draws are m + 1 exchangeable values, each as frequent as its level.
    frequent = counts.copy()
    frequent[cells, y] += 1
    of_draws = np.take_along_axis(frequent, draws, axis=1)
    of_truth = frequent[cells, y][:, None]
    u = _ranks(
        (of_draws > of_truth).sum(axis=1), (of_draws == of_truth).sum(axis=1), m, rng
    )
    scores = {
        "measure": "brier",
        "score": float((brier(share) - variance).mean()),
        "reference": float(brier(marginal).mean()),
        "log_score": float(-np.log(smoothed[cells, y]).mean()),
        "log_reference": float(-np.log(marginal[y]).mean()),
    }
    return scores, u


def _inside_interval(kind: str, u: Floats, nominal: float) -> npt.NDArray[np.bool_]:
    if kind == "numeric":
        return np.asarray(np.abs(u - 0.5) <= nominal / 2)
    return np.asarray(u <= nominal)


def _check_draws(
    truth: pd.DataFrame, hidden: pd.DataFrame, draws: Sequence[pd.DataFrame]
) -> None:
    if len(draws) < 2:
        raise UsageError(
            f"calibration needs at least 2 draws of every hidden cell, got "
            f"{len(draws)}; pass 20 or more for useful intervals"
        )
    for i, frame in enumerate(draws):
        if len(frame) != len(truth):
            raise DataError(
                f"draw {i} has {len(frame)} rows, not {len(truth)} as the real table; "
                "pass completed copies of the table"
            )
    if len(hidden) != len(truth):
        raise UsageError(
            f"`hidden` must have the {len(truth)} rows of the real table, got "
            f"{len(hidden)}"
        )


def calibration(
    truth: pd.DataFrame,
    hidden: pd.DataFrame,
    draws: Sequence[pd.DataFrame],
    numeric: Sequence[str],
    categorical: Sequence[str],
    *,
    rng: np.random.Generator,
) -> Calibration:
    """Score draws for hidden cells whose true values are known.

    Parameters
    ----------
    truth : pandas.DataFrame
        The table before `hide`.
    hidden : pandas.DataFrame of bool
        What `hide` returned.
    draws : sequence of pandas.DataFrame
        Completed copies of the table, each with another draw of the hidden cells: from
        `augment` with several seeds, or a model's imputations. At least two; 20 or
        more give useful intervals.
    numeric, categorical : sequence of str
        The columns to score; those without hidden cells are skipped.
    rng : numpy.random.Generator
        Breaks ties between truth and draws.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=2000)
    >>> truth = pd.DataFrame({"x": x, "y": x + 0.5 * rng.normal(size=2000)})
    >>> _, hidden = hide(truth, 0.5, rng)
    >>> draws = [truth.assign(y=x + 0.5 * rng.normal(size=2000)) for _ in range(20)]
    >>> result = calibration(truth, hidden, draws, ["y"], [], rng=rng)
    >>> gap = result.coverage["coverage"] - result.coverage["nominal"]
    >>> bool(gap.abs().max() < 0.05)
    True
    >>> 0.4 < result.skill < 0.7
    True
    """
    tables = {"real": truth} | {f"draw {i}": frame for i, frame in enumerate(draws)}
    check_tables(tables, numeric, categorical)
    _check_draws(truth, hidden, draws)
    lines: list[dict[str, Any]] = []
    ranks: dict[str, list[Floats]] = {"numeric": [], "categorical": []}
    histograms = {}
    for name in [*numeric, *categorical]:
        cells = hidden[name].to_numpy(dtype=bool)
        if not cells.any():
            continue
        rest = truth[name].notna().to_numpy() & ~cells
        if not rest.any():
            raise DataError(
                f"column {name!r} has no observed cells left to draw the reference "
                "from; hide fewer"
            )
        parts = {
            "observed": truth.loc[rest, [name]],
            "hidden": truth.loc[cells, [name]],
        }
        parts |= {f"draw {i}": f.loc[cells, [name]] for i, f in enumerate(draws)}
        kind = "numeric" if name in numeric else "categorical"
        if kind == "numeric":
            column, y, *drawn = numbers(parts, name)
            line, u = _numeric_scores(y, np.stack(drawn, axis=1), column, rng)
        else:
            (codes, y_codes, *more), levels, _ = level_codes(parts, name)
            stacked = np.stack(more, axis=1)
            line, u = _categorical_scores(y_codes, stacked, codes, len(levels), rng)
        score, reference = line["score"], line["reference"]
        covered = {
            f"coverage_{round(100 * c)}": float(_inside_interval(kind, u, c).mean())
            for c in NOMINAL
        }
        skill = 1 - score / reference if reference else 0.0
        head = {"column": name, "kind": kind, "cells": int(cells.sum())}
        lines.append({**head, **line, "skill": skill, **covered})
        ranks[kind].append(u)
        histogram, _ = np.histogram(u, PIT_BINS, (0.0, 1.0))
        histograms[name] = histogram / len(u)
    if not lines:
        raise DataError(
            "none of the named columns has hidden cells to score; call `hide` first"
        )
    coverage = []
    for kind, of_kind in ranks.items():
        if not of_kind:
            continue
        u = np.concatenate(of_kind)
        for c in NOMINAL:
            error = float(np.sqrt(c * (1 - c) / len(u)))
            coverage.append(
                (kind, c, _inside_interval(kind, u, c).mean(), len(u), error)
            )
    edges = np.arange(PIT_BINS) / PIT_BINS
    return Calibration(
        coverage=pd.DataFrame(
            coverage, columns=["kind", "nominal", "coverage", "cells", "standard_error"]
        ),
        columns=pd.DataFrame(lines),
        pit=pd.DataFrame(histograms, index=edges).T,
        n_draws=len(draws),
    )


def augmenter_name(augmenter: str | Augmenter) -> str:
    """Return the name of an augmenter, or of its class; `auto` is the default's."""
    if isinstance(augmenter, str):
        return DEFAULT_AUGMENTER if augmenter == "auto" else augmenter
    return type(augmenter).__name__


def held_out_cells(
    tables: Tables, augmenter: str | Augmenter, seed: int, progress: Progress
) -> Calibration | None:
    """Hide observed cells, let an augmenter draw them, and score the draws.

    Only cells of incomplete columns are hidden: others are never augmented. None if
    these columns have too few values to hide any.
    """
    incomplete = [name for name in tables.real if tables.real[name].isna().any()]
    truth = tables.real[incomplete]
    rng = stream(seed, "held-out")
    _, hidden = hide(truth, HIDDEN_SHARE, rng)
    if not hidden.to_numpy().any():
        return None
    observed = pd.DataFrame(True, tables.source.index, tables.source.columns)
    for column in tables.schema:
        if column.name in incomplete:
            observed[column.label] = ~hidden[column.name].to_numpy()
    source = with_missing(tables.source, observed.to_numpy(dtype=bool))
    codec = Codec.fit(source, tables.schema)
    fitted = resolve_augmenter(augmenter).fit(codec.encode(source), rng, progress)
    draws = []
    for i in range(N_DRAWS):
        drawn = fitted.draw(rng)
        if drawn.layout.reserved:
            raise UsageError(
                f"the augmenter {augmenter_name(augmenter)!r} fills categories with a "
                "placeholder, which held-out cells cannot score; choose another or None"
            )
        frame = codec.decode(drawn.num, drawn.cat, rng, derive=False)
        draws.append(tables.read_like_real(frame, "completed", incomplete))
        progress("held-out", i + 1, N_DRAWS, {})
    numeric = [name for name in tables.numeric if name in incomplete]
    categorical = [name for name in tables.categorical if name in incomplete]
    return calibration(truth, hidden, draws, numeric, categorical, rng=rng)
