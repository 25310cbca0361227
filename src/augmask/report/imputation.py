"""How well a model imputes: hidden values compared with draws, and a few examples.

Calibration: observed values are hidden and drawn again. The rows are test rows if there
are any. Complete test rows get the missingness patterns of real rows, so that as much
is known of them as of rows that you would impute; otherwise a share of the observed
values is hidden. Examples: a few synthetic rows with missing values put in, because the
page must show no real row. Even of these, numbers are given as ranges and categories
only if enough real rows have them, because a generator may have copied a row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import AugMaskError, AugMaskWarning, UsageError
from augmask.evaluation.held_out import (
    MIN_OBSERVED,
    Calibration,
    calibration,
    hide,
    level_counts,
)
from augmask.evaluation.tables import MISSING_LEVEL, Codes, Floats, level_codes, numbers
from augmask.missing.model import with_missing
from augmask.progress import Progress, silent
from augmask.report.aggregates import (
    BARS,
    MIN_COUNT,
    Bars,
    Histogram,
    bars,
    bin_codes,
    floats,
    frequent_levels,
    histogram,
    short,
)
from augmask.report.plots import plain_number
from augmask.rng import stream, stream_seed
from augmask.table.schema import Column, Schema

Impute = Callable[[pd.DataFrame, int], Sequence[pd.DataFrame]]

# Calibration takes a few seconds on a CPU, with standard errors of one to two points.
ROWS, DRAWS = 200, 20
HIDDEN_SHARE = 0.2
# Fewer hidden values say nothing.
MIN_CELLS = 50
# Edges of the bins of a level's share among the draws.
SHARE_EDGES = np.array([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
SHARE_BINS = len(SHARE_EDGES) - 1
# Examples: how many, values shown of each, draws of a missing value.
EXAMPLES = 3
MOST_DRAWN, MOST_KNOWN, EXAMPLE_DRAWS = 4, 8, 100
QUANTILES = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
NAME = 30
# Examples are chosen among this many rows, and shown beside this many real rows.
CANDIDATES, MOST_REAL = 2_000, 20_000
OTHER_COLUMNS = "the model was fitted on a table with other columns"
LINE_NAMES = ["column", "kind", "cells", "coverage_50", "coverage_90"]


class _CannotImpute(Exception):
    """The model cannot impute these rows; the message is for the page."""


@dataclass(frozen=True, eq=False)
class DrawnCell:
    """The draws of one missing value beside its column.

    Numeric draws as `QUANTILES`, clipped to the bins of the column; categorical ones as
    a second series of bars. `summary` says the same in words.
    """

    name: str
    column: Histogram | Bars
    quantiles: Floats | None
    summary: str


@dataclass(frozen=True, eq=False)
class Example:
    """A row: approximate `known` values, draws of missing ones, and how many more."""

    known: list[tuple[str, str]]
    more_known: int
    drawn: list[DrawnCell]
    more_missing: int


@dataclass(frozen=True, eq=False)
class Imputation:
    """How a model imputes.

    Parameters
    ----------
    examples : list of Example
    calibration : Calibration or None
        Of the hidden values; None if there are too few.
    columns : pandas.DataFrame
        One line per column: `column`, `kind`, `cells`, `coverage_50`, `coverage_90`;
        for numbers `ratio`, the RMSE of the mean of the draws over that of the column
        mean; for categories `accuracy` and `baseline`, how often the most drawn and the
        most frequent level are right.
    shares : pandas.DataFrame or None
        Levels by their share among the draws: `drawn` (mean share), `true` (how often
        they are the truth), `expected` (how often, if the draws were calibrated) and
        `cells`.
    n_rows, n_cells : int
    unseen : bool
        Whether the rows are test rows.
    like_real : bool
        Whether the rows were complete and got missingness patterns of real rows.
    why_not : str
        Why nothing of this could be measured.
    """

    examples: Sequence[Example] = ()
    calibration: Calibration | None = None
    columns: pd.DataFrame = field(default_factory=pd.DataFrame)
    shares: pd.DataFrame | None = None
    n_rows: int = 0
    n_cells: int = 0
    unseen: bool = False
    like_real: bool = False
    why_not: str = ""

    @property
    def coverage(self) -> list[tuple[str, int, list[float]]]:
        """Kind, number of hidden values, and their share in each interval."""
        if self.calibration is None:
            return []
        return [
            (str(kind), int(part["cells"].iloc[0]), part["coverage"].tolist())
            for kind, part in self.calibration.coverage.groupby("kind", sort=False)
        ]

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """Return the columns of a kind with enough hidden values, worst first."""
        part = self.columns[self.columns["kind"] == kind]
        part = part[part["cells"] >= MIN_COUNT]
        if kind == "numeric":
            part = part.sort_values("ratio", ascending=False)
        else:
            gain = (part["accuracy"] - part["baseline"]).sort_values()
            part = part.loc[gain.index]
        return list(part.to_dict("records"))

    def mean(self, name: str) -> float | None:
        """Return the mean of a measure over cells, None where it does not apply."""
        known = self.columns[self.columns[name].notna()]
        if not len(known):
            return None
        return float(np.average(known[name], weights=known["cells"]))


def _day(value: float) -> str:
    return str(pd.Timestamp(value, unit="D").date())


def range_text(value: float, column: Histogram) -> str:
    """Return the bin of a number in words; the outer bins are open.

    Examples
    --------
    >>> column = Histogram(np.array([-0.5, 4.5, 9.5, 14.5]), {}, integer=True)
    >>> [range_text(value, column) for value in (3, 7, 4000)]
    ['at most 4', '5 to 9', 'at least 10']
    """
    k = int(bin_codes(np.array([value]), column.edges)[0])
    low, high = float(column.edges[k]), float(column.edges[k + 1])
    first, last = k == 0, k == len(column.edges) - 2
    if first and last:
        return "somewhere in its range"
    if column.dates:
        if first:
            return f"before {_day(high)}"
        return f"from {_day(low)}" if last else f"{_day(low)} to {_day(high)}"
    if column.integer:
        low, high = np.ceil(low), np.ceil(high) - 1
    texts = plain_number(low), plain_number(high)
    if first:
        return f"at most {texts[1]}"
    if last:
        return f"at least {texts[0]}"
    return texts[0] if texts[0] == texts[1] else f"{texts[0]} to {texts[1]}"


def _cell_text(row: pd.DataFrame, real: pd.DataFrame, name: str, numeric: bool) -> str:
    """Return a value approximately; empty if that is not safe to show."""
    tables = {"real": real, "row": row}
    if numeric:
        column = histogram({"real": real}, name)
        value = float(floats(tables, name)[0][1][0])
        return "" if column is None else range_text(value, column)
    codes, names, n_named = frequent_levels(tables, name, BARS)
    code = int(codes[1][0])
    return names[code] if code < n_named else ""


def drawn_cell(
    draws: pd.DataFrame, real: pd.DataFrame, name: str, numeric: bool
) -> DrawnCell | None:
    """Return the draws of a missing value; None if its column has too few values.

    `draws` is the row once for every draw.
    """
    if numeric:
        column = histogram({"real": real}, name)
        if column is None:
            return None
        _, values = floats({"real": real, "draws": draws}, name)[0]
        quantiles = np.quantile(values, QUANTILES)
        median = range_text(float(quantiles[3]), column)
        clipped = np.asarray(np.clip(quantiles, column.edges[0], column.edges[-1]))
        return DrawnCell(name, column, clipped, f"median {median}")
    levels = bars({"real": real, "synthetic": draws}, name)
    if levels is None:
        return None
    best = int(levels.shares["synthetic"].argmax())
    share = 100 * float(levels.shares["synthetic"][best])
    return DrawnCell(name, levels, None, f"{levels.labels[best]} in {share:.0f} %")


def _choose(
    missing: pd.DataFrame, rng: np.random.Generator
) -> list[tuple[int, list[int]]]:
    """Return rows and missing columns to show, preferring columns not shown yet."""
    mask = missing.to_numpy(dtype=bool)
    count = mask.sum(axis=1)
    rows = rng.permutation(np.flatnonzero((count > 0) & (count < mask.shape[1])))
    columns = {int(row): np.flatnonzero(mask[row]).tolist() for row in rows}
    covered: set[int] = set()
    chosen = []
    for _ in range(min(EXAMPLES, len(columns))):
        # Few enough missing values to show all; then the most new columns.
        best = max(
            columns,
            key=lambda row: (
                min(MOST_DRAWN - len(columns[row]), 0),
                len(set(columns[row]) - covered),
            ),
        )
        new_first = sorted(columns.pop(best), key=lambda j: j in covered)[:MOST_DRAWN]
        covered |= set(new_first)
        chosen.append((best, sorted(new_first)))
    return chosen


def examples(
    rows: pd.DataFrame,
    real: pd.DataFrame,
    incomplete: Sequence[str],
    numeric: Sequence[str],
    impute: Impute,
    rng: np.random.Generator,
) -> list[Example]:
    """Return a few of the synthetic `rows` with draws of their missing values.

    Only the columns `incomplete` are imputed; draws are shown beside columns of `real`.
    """
    chosen = _choose(rows[list(incomplete)].isna(), rng)
    if not chosen:
        return []
    some = rows.iloc[[row for row, _ in chosen]].reset_index(drop=True)
    completions = list(impute(some, EXAMPLE_DRAWS))
    result = []
    for i, (_, columns) in enumerate(chosen):
        draws = pd.concat([one.iloc[[i]] for one in completions], ignore_index=True)
        names = [incomplete[j] for j in columns]
        cells = [drawn_cell(draws, real, name, name in numeric) for name in names]
        drawn = [cell for cell in cells if cell is not None]
        row = some.iloc[[i]]
        observed = [name for name in rows.columns if row[name].notna().all()]
        texts = [(n, _cell_text(row, real, n, n in numeric)) for n in observed]
        known = [(short(n, NAME), text) for n, text in texts if text][:MOST_KNOWN]
        n_missing = int(row[list(incomplete)].isna().to_numpy().sum())
        if drawn:
            more = len(observed) - len(known)
            result.append(Example(known, more, drawn, n_missing - len(drawn)))
    return result


def _sample(frame: pd.DataFrame, n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return at most `n` random rows."""
    return frame.iloc[rng.permutation(len(frame))[:n]].reset_index(drop=True)


def _model_input(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return rows of an evaluation as a model takes them.

    An evaluation turns missing values that carry meaning into a level or a column.
    """
    rows = frame[[name for name in frame.columns if name in schema.names]].copy()
    for column in schema:
        name = column.name
        if column.missing_is_level and name in rows and rows[name].dtype == "category":
            rows[name] = rows[name].cat.remove_categories(
                [level for level in rows[name].cat.categories if level == MISSING_LEVEL]
            )
    return rows


def _can_impute(column: Column, schema: Schema) -> bool:
    """Whether the model imputes a column of that name and kind."""
    if column.name not in schema.names:
        return False
    learned = schema[column.name]
    return learned.kind == column.kind and not learned.missing_is_level


def _hidden_cells(
    rows: pd.DataFrame, real: pd.DataFrame, like_real: bool, rng: np.random.Generator
) -> pd.DataFrame:
    """Return which cells to hide."""
    if not like_real:
        return hide(rows, HIDDEN_SHARE, rng)[1]
    mask = real.isna().to_numpy()[rng.integers(0, len(real), len(rows))]
    for j in range(mask.shape[1]):
        # Some values of every column stay.
        mask[rng.permutation(len(rows))[:MIN_OBSERVED], j] = False
    return pd.DataFrame(mask, index=rows.index, columns=rows.columns)


def _rmse_ratio(y: Floats, draws: Floats, column: Floats) -> float:
    """Return the RMSE of the mean of the draws over that of the column mean."""
    rmse = np.sqrt(((draws.mean(axis=1) - y) ** 2).mean())
    baseline = np.sqrt(((np.nanmean(column) - y) ** 2).mean())
    return float(rmse / baseline) if baseline > 0 else float("nan")


def _share_sums(y: Codes, draws: Codes, n_levels: int) -> Floats:
    """Return sums by share of a level: share, truth, draw in its place, cells.

    Every draw in turn takes the place of the truth while the others give the share of
    each level: this is what calibrated draws would show, without bias from few draws.
    """
    n, m = draws.shape
    counts, cells = level_counts(draws, n_levels), np.arange(n)
    sums = np.zeros((4, SHARE_BINS))
    for j in range(m):
        others = counts.copy()
        others[cells, draws[:, j]] -= 1
        share = others / (m - 1)
        place = np.searchsorted(SHARE_EDGES, share, side="right") - 1
        place = np.clip(place, 0, SHARE_BINS - 1)
        truth, drawn = np.zeros_like(share), np.zeros_like(share)
        truth[cells, y] = 1
        drawn[cells, draws[:, j]] = 1
        # Levels that are neither drawn nor true would fill the first bin.
        used = (share > 0) | (truth > 0) | (drawn > 0)
        for k, values in enumerate((share, truth, drawn, np.ones_like(share))):
            sums[k] += np.bincount(
                place[used], weights=values[used], minlength=SHARE_BINS
            )
    return np.asarray(sums / m, dtype=np.float64)


def _share_table(sums: Floats) -> pd.DataFrame | None:
    enough = sums[3] >= MIN_COUNT
    if enough.sum() < 2:
        return None
    *means, cells = sums[:, enough]
    table = dict(zip(("drawn", "true", "expected"), means / cells, strict=True))
    return pd.DataFrame({**table, "cells": cells})


def _score_columns(
    truth: pd.DataFrame,
    hidden: pd.DataFrame,
    draws: Sequence[pd.DataFrame],
    real: pd.DataFrame,
    scores: Calibration,
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Return `columns` and `shares` of `Imputation`."""
    lines, sums = [], np.zeros((4, SHARE_BINS))
    for score in scores.columns.to_dict("records"):
        name = score["column"]
        cells = hidden[name].to_numpy(dtype=bool)
        tables = {"real": real[[name]].dropna(), "truth": truth.loc[cells, [name]]}
        tables |= {f"draw {i}": f.loc[cells, [name]] for i, f in enumerate(draws)}
        line: dict[str, Any] = {key: score[key] for key in LINE_NAMES}
        if score["kind"] == "numeric":
            column, y, *values = numbers(tables, name)
            line["ratio"] = _rmse_ratio(y, np.stack(values, axis=1), column)
        else:
            (codes, y_codes, *drawn), levels, _ = level_codes(tables, name)
            stacked = np.stack(drawn, axis=1)
            mode = level_counts(stacked, len(levels)).argmax(axis=1)
            line["accuracy"] = float((mode == y_codes).mean())
            line["baseline"] = float((np.bincount(codes).argmax() == y_codes).mean())
            sums += _share_sums(y_codes, stacked, len(levels))
        lines.append(line)
    names = [*LINE_NAMES, "ratio", "accuracy", "baseline"]
    return pd.DataFrame(lines).reindex(columns=names), _share_table(sums)


def _measure(
    parts: Mapping[str, Any],
    schema: Schema,
    incomplete: list[str],
    numeric: Sequence[str],
    impute: Impute,
    rng: np.random.Generator,
) -> Imputation:
    unseen = "test" in parts
    table, real = parts["test"] if unseen else parts["real"], parts["real"]
    truth = _model_input(_sample(table, ROWS, rng), schema)
    like_real = unseen and not truth[incomplete].isna().to_numpy().any()
    hidden = _hidden_cells(truth[incomplete], real[incomplete], like_real, rng)
    n_cells = int(hidden.to_numpy().sum())
    rows: list[Example] = []
    if "remasked" in parts:
        candidates = _model_input(_sample(parts["remasked"], CANDIDATES, rng), schema)
        beside = _sample(real, MOST_REAL, rng)
        rows = examples(candidates, beside, incomplete, numeric, impute, rng)
    result = Imputation(
        rows,
        n_rows=len(truth),
        n_cells=n_cells,
        unseen=unseen,
        like_real=like_real,
    )
    if n_cells < MIN_CELLS:
        return result
    observed: npt.NDArray[np.bool_] = np.ones(truth.shape, dtype=bool)
    for name in incomplete:
        observed[:, truth.columns.get_loc(name)] = ~hidden[name].to_numpy(dtype=bool)
    draws = list(impute(with_missing(truth, observed), DRAWS))
    scores = calibration(
        truth,
        hidden,
        draws,
        [name for name in incomplete if name in numeric],
        [name for name in incomplete if name not in numeric],
        rng=rng,
    )
    columns, shares = _score_columns(truth, hidden, draws, real, scores)
    return replace(result, calibration=scores, columns=columns, shares=shares)


def measure_imputation(
    parts: Mapping[str, Any],
    model: Any,
    unknown: Sequence[str],
    numeric: Sequence[str],
    seed: int = 0,
    progress: Progress = silent,
) -> Imputation | None:
    """Return how a model imputes, None without missing values or a fitted model.

    Parameters
    ----------
    parts : mapping
        Of an evaluation: `schema`, and the rows `real`, `remasked` and perhaps `test`.
    model : object or None
        With `impute` and `schema_`.
    unknown : sequence of str
        Columns whose missing values are unknown, not a level or not applicable.
    numeric : sequence of str
    seed : int
    progress : Progress
    """
    schema = getattr(model, "schema_", None)
    real = parts["real"]
    incomplete = [name for name in unknown if real[name].isna().any()]
    if not incomplete or schema is None or not hasattr(model, "impute"):
        return None
    incomplete = [n for n in incomplete if _can_impute(parts["schema"][n], schema)]
    if not incomplete:
        return Imputation(why_not=OTHER_COLUMNS)

    def impute(rows: pd.DataFrame, draws: int) -> Any:
        own = stream_seed(seed, "filling", draws)
        try:
            with warnings.catch_warnings():
                # Synthetic and test rows may have levels that the model never saw.
                warnings.simplefilter("ignore", AugMaskWarning)
                return model.impute(rows, n_draws=draws, seed=own, progress=progress)
        except UsageError as error:
            raise _CannotImpute(str(error)) from error
        except AugMaskError as error:
            # The message may quote a value, and the page must not.
            raise _CannotImpute(OTHER_COLUMNS) from error

    rng = stream(seed, "filling")
    try:
        return _measure(parts, schema, incomplete, numeric, impute, rng)
    except _CannotImpute as error:
        return Imputation(why_not=str(error))
