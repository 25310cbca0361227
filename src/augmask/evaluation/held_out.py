"""Held-out cells: whether conditional draws are honest about what they do not know.

Without a complete truth one can still hide cells that were observed, let a model draw
them, and compare. `hide` makes the holes, the model draws each of them m times, and
`calibration` scores the draws:

* a rank u in (0, 1) per cell, uniform for any m if the draws come from the law of the
  truth. For a number it is the randomised PIT: where the truth lies among its draws.
  For a level it is how common its level is among truth and draws together, the most
  common first. Coverage is read off the ranks: the share of numbers with
  |u - 1/2| <= c/2 (the central interval), the share of levels with u <= c (the set of
  most common levels). Draws that are too sure of themselves leave it below c.
* a proper score, which also rewards sharp draws: CRPS for numbers and Brier score for
  levels, both in the fair version that has no bias from few draws, and the log score.

The floor is the same score for draws from the observed values of the column: a model
that does not beat it learned nothing about the row.

Hidden cells are chosen at random among the observed ones. The result therefore speaks
for cells like those that were observed; that the same holds in real holes is the MAR
assumption, which no score can check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import DataError, UsageError
from augmask.evaluation.columns import (
    Codes,
    Floats,
    check_tables,
    level_codes,
    numbers,
)
from augmask.missing.model import with_holes

NOMINAL = (0.5, 0.8, 0.9, 0.95)
PIT_BINS = 10
# Values that stay in every column, so that there is something to learn it from.
KEPT = 2

MEANING: Mapping[str, str] = MappingProxyType(
    {
        "coverage": (
            "Share of hidden cells inside the model's intervals (numbers) or sets "
            "(levels). Should equal the nominal level; below it the draws are too "
            "sure. Drawing from the whole column is also calibrated, so read it with "
            "the skill."
        ),
        "skill": (
            "1 - score / score of draws from the column's observed values. 0: the rest "
            "of the row was of no use. 1 is out of reach unless the row tells the "
            "cell exactly."
        ),
        "pit": (
            "Ranks of the truth among its draws. Flat is calibrated; a U for numbers, "
            "or a rise to the right for levels, means draws that are too narrow."
        ),
    }
)


@dataclass(frozen=True, eq=False)
class Calibration:
    """How honest and how sharp draws for hidden cells are.

    Parameters
    ----------
    coverage : pandas.DataFrame
        One line per kind and level: `kind`, `nominal`, `found`, `cells` and
        `standard_error` (as if cells were independent).
    columns : pandas.DataFrame
        One line per column with hidden cells: `column`, `kind`, `cells`, `measure`
        ("crps" or "brier", smaller is better), `score`, `reference` (its floor),
        `skill`, for levels also `log_score` and `log_reference`, and `coverage_50` to
        `coverage_95`. Few draws make the log score worse, so it can lie above its
        reference by that alone; the other scores are free of it.
    pit : pandas.DataFrame
        Share of the ranks in each tenth of (0, 1), one line per column.
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
        With or without holes; it is not changed.
    share : float
        Above 0 and below 1. Every column keeps at least two observed values.
    rng : numpy.random.Generator

    Returns
    -------
    holed : pandas.DataFrame
        The table with more holes, to be fitted on.
    hidden : pandas.DataFrame of bool
        True where a value was hidden.

    Examples
    --------
    >>> table = pd.DataFrame({"a": [1.0, None, 3.0, 4.0, 5.0, 6.0]})
    >>> holed, hidden = hide(table, 0.4, np.random.default_rng(0))
    >>> int(holed["a"].isna().sum()), int(hidden["a"].sum()), bool(hidden["a"][1])
    (3, 2, False)
    """
    if not 0 < share < 1:
        raise UsageError(
            f"`share` is the share of observed cells to hide and lies between 0 and 1, "
            f"got {share!r}"
        )
    observed = frame.notna().to_numpy()
    hidden = np.zeros(frame.shape, dtype=bool)
    for j in range(frame.shape[1]):
        rows = np.flatnonzero(observed[:, j])
        count = max(min(round(share * len(rows)), len(rows) - KEPT), 0)
        hidden[rng.choice(rows, count, replace=False), j] = True
    return (
        with_holes(frame, ~hidden),
        pd.DataFrame(hidden, index=frame.index, columns=frame.columns),
    )


def _ranks(before: Floats, ties: Floats, m: int, rng: np.random.Generator) -> Floats:
    """Return u: `before` draws come first, `ties` are equal, the rest comes after."""
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
    """Return the same for draws from the values of a column, without drawing them."""
    x = np.sort(values)
    n = len(x)
    sums = np.append(0.0, np.cumsum(x))
    below = np.searchsorted(x, y, side="right")
    distance = y * (2 * below - n) - 2 * sums[below] + sums[-1]
    spread = x @ (2.0 * np.arange(n) - n + 1) / (n * (n - 1)) if n > 1 else 0.0
    return np.asarray(distance / n - spread, dtype=np.float64)


def _numeric(
    y: Floats, draws: Floats, column: Floats, rng: np.random.Generator
) -> tuple[dict[str, Any], Floats]:
    m = draws.shape[1]
    below = (draws < y[:, None]).sum(axis=1)
    equal = (draws == y[:, None]).sum(axis=1)
    u = _ranks(below, equal, m, rng)
    found = {
        "measure": "crps",
        "score": float(_crps(y, draws).mean()),
        "reference": float(_crps_of_column(y, column).mean()),
    }
    return found, u


def _categorical(
    y: Codes, draws: Codes, column: Codes, n_levels: int, rng: np.random.Generator
) -> tuple[dict[str, Any], Floats]:
    n, m = draws.shape
    cells = np.arange(n)
    counts = np.zeros((n, n_levels))
    np.add.at(counts, (cells[:, None], draws), 1)
    # One row in hand for every level, so that an unseen one has some probability.
    seen = np.bincount(column, minlength=n_levels) + 1.0
    marginal = np.asarray(seen / seen.sum(), dtype=np.float64)
    smoothed = (counts + marginal) / (m + 1)

    def brier(p: Floats) -> Floats:
        chosen = p[np.arange(len(p)), y] if p.ndim == 2 else p[y]
        return np.asarray((p**2).sum(axis=-1) - 2 * chosen + 1, dtype=np.float64)

    share = counts / m
    # m draws scatter around their law, which adds Σ p(1-p)/m; this takes it out again.
    scatter = (share * (1 - share)).sum(axis=1) / (m - 1)

    # Truth and draws are m + 1 equals; each is as common as its level among them all.
    common = counts.copy()
    common[cells, y] += 1
    of_draws = np.take_along_axis(common, draws, axis=1)
    of_truth = common[cells, y][:, None]
    u = _ranks(
        (of_draws > of_truth).sum(axis=1), (of_draws == of_truth).sum(axis=1), m, rng
    )
    found = {
        "measure": "brier",
        "score": float((brier(share) - scatter).mean()),
        "reference": float(brier(marginal).mean()),
        "log_score": float(-np.log(smoothed[cells, y]).mean()),
        "log_reference": float(-np.log(marginal[y]).mean()),
    }
    return found, u


def _inside(kind: str, u: Floats, nominal: float) -> npt.NDArray[np.bool_]:
    if kind == "numeric":
        return np.asarray(np.abs(u - 0.5) <= nominal / 2)
    return np.asarray(u <= nominal)


def _check(
    truth: pd.DataFrame, hidden: pd.DataFrame, draws: Sequence[pd.DataFrame]
) -> None:
    if len(draws) < 2:
        raise UsageError(
            f"Calibration needs at least 2 draws of every hidden cell, got "
            f"{len(draws)}; 20 or more give useful intervals."
        )
    for i, frame in enumerate(draws):
        if len(frame) != len(truth):
            raise DataError(
                f"A draw has the rows of the real table, {len(truth)}, but draw {i} "
                f"has {len(frame)}; pass completed copies of the table."
            )
    if len(hidden) != len(truth):
        raise UsageError(
            f"`hidden` has the rows of the real table, {len(truth)}, got {len(hidden)}"
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
    """Score draws for cells whose truth is known.

    Parameters
    ----------
    truth : pandas.DataFrame
        The table before `hide`.
    hidden : pandas.DataFrame of bool
        What `hide` returned.
    draws : sequence of pandas.DataFrame
        Completed copies of the table, row by row, each with its own draw in the hidden
        cells: from `augment` with several seeds, or a model's imputations. Two at
        least; 20 or more give useful intervals.
    numeric, categorical : sequence of str
        The columns to score; one without hidden cells is passed over.
    rng : numpy.random.Generator
        Breaks ties between truth and draws.

    Returns
    -------
    Calibration

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=2000)
    >>> truth = pd.DataFrame({"x": x, "y": x + 0.5 * rng.normal(size=2000)})
    >>> _, hidden = hide(truth, 0.5, rng)
    >>> draws = [truth.assign(y=x + 0.5 * rng.normal(size=2000)) for _ in range(20)]
    >>> result = calibration(truth, hidden, draws, ["y"], [], rng=rng)
    >>> found = result.coverage["found"] - result.coverage["nominal"]
    >>> bool(found.abs().max() < 0.05)
    True
    >>> 0.4 < result.skill < 0.7
    True
    """
    tables = {"real": truth} | {f"draw {i}": frame for i, frame in enumerate(draws)}
    check_tables(tables, numeric, categorical)
    _check(truth, hidden, draws)
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
                f"The reference is drawn from cells that were not hidden, but column "
                f"{name!r} has none; hide fewer."
            )
        parts = {
            "observed": truth.loc[rest, [name]],
            "hidden": truth.loc[cells, [name]],
        }
        parts |= {f"draw {i}": f.loc[cells, [name]] for i, f in enumerate(draws)}
        kind = "numeric" if name in numeric else "categorical"
        if kind == "numeric":
            column, y, *drawn = numbers(parts, name)
            line, u = _numeric(y, np.stack(drawn, axis=1), column, rng)
        else:
            (codes, y_codes, *more), levels, _ = level_codes(parts, name)
            stacked = np.stack(more, axis=1)
            line, u = _categorical(y_codes, stacked, codes, len(levels), rng)
        score, floor = line["score"], line["reference"]
        covered = {
            f"coverage_{round(100 * c)}": float(_inside(kind, u, c).mean())
            for c in NOMINAL
        }
        skill = 1 - score / floor if floor else 0.0
        head = {"column": name, "kind": kind, "cells": int(cells.sum())}
        lines.append({**head, **line, "skill": skill, **covered})
        ranks[kind].append(u)
        histogram, _ = np.histogram(u, PIT_BINS, (0.0, 1.0))
        histograms[name] = histogram / len(u)
    if not lines:
        raise DataError(
            "Calibration needs hidden cells, but none of the named columns has one; "
            "call `hide` first."
        )
    coverage = []
    for kind, found in ranks.items():
        u = np.concatenate(found) if found else np.zeros(0)
        for c in NOMINAL if found else ():
            error = float(np.sqrt(c * (1 - c) / len(u)))
            coverage.append((kind, c, _inside(kind, u, c).mean(), len(u), error))
    edges = np.arange(PIT_BINS) / PIT_BINS
    return Calibration(
        coverage=pd.DataFrame(
            coverage, columns=["kind", "nominal", "found", "cells", "standard_error"]
        ),
        columns=pd.DataFrame(lines),
        pit=pd.DataFrame(histograms, index=edges).T,
        n_draws=len(draws),
    )
