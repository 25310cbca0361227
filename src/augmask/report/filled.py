"""How well a model fills holes: observed cells are hidden, and drawn again.

The rows are test rows if there are any. Complete ones get the holes of real rows, so
that as much is known of them as of rows that one would fill; of others a share of the
observed cells is hidden. Ranks of the truth among its draws give the coverage
(`evaluation.held_out`), without bias from few draws. So do shares of levels here: every
draw plays the truth once, which tells what a law that is right would show.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import AugMaskError, AugMaskWarning, UsageError
from augmask.evaluation.columns import Codes, Floats, level_codes, numbers
from augmask.evaluation.held_out import KEPT, Calibration, calibration, hide
from augmask.evaluation.tables import MISSING_LEVEL
from augmask.missing.model import with_holes
from augmask.progress import Progress, silent
from augmask.report.counts import FEWEST
from augmask.report.imputation_examples import Example, Impute, examples
from augmask.rng import stream, stream_seed
from augmask.table.schema import Column, Schema

# A few seconds on a CPU, and standard errors of one to two points.
ROWS, DRAWS = 200, 20
SHARE = 0.2
# Examples are looked for among so many rows, and shown beside so many real ones.
LOOKED_AT, BESIDE = 2_000, 20_000
# Fewer hidden cells say nothing.
LEAST = 50
OTHER = "the model was learned from a table with other columns"
WORDS = {"numeric": "numbers", "categorical": "levels"}
# Shares of draws are put together in bins; the last holds both its ends.
SHARES = np.array([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
LAST = len(SHARES) - 2


class _CannotFill(Exception):
    """The model cannot fill these rows; the message is for the page."""


@dataclass(frozen=True, eq=False)
class Filling:
    """What is said about holes that the model fills.

    Parameters
    ----------
    examples : list of Example
    calibration : Calibration or None
        Of the hidden cells; None if there are too few.
    columns : pandas.DataFrame
        One line per column: `column`, `kind`, `cells`, `coverage_50`, `coverage_90`;
        for numbers `ratio`, the error of the mean of the draws over that of the
        column's mean; for levels `exact` and `frequent`, how often the most drawn and
        the most frequent level are right.
    shares : pandas.DataFrame or None
        Levels by their share among the draws: `drawn` (mean share), `found` (how often
        it is the truth), `right` (how often, if the draws were right) and `cells`.
    n_rows, n_cells : int
    unseen : bool
        Whether the rows are test rows.
    like_real : bool
        Whether the rows were complete and got the holes of real rows.
    why_not : str
        Why nothing of this could be measured.
    """

    examples: list[Example]
    calibration: Calibration | None
    columns: pd.DataFrame
    shares: pd.DataFrame | None
    n_rows: int
    n_cells: int
    unseen: bool
    like_real: bool
    why_not: str = ""

    @property
    def covered(self) -> list[tuple[str, int, list[float]]]:
        """Kind, cells, and the share of them in each of the intervals."""
        if self.calibration is None:
            return []
        return [
            (WORDS[str(kind)], int(part["cells"].iloc[0]), part["found"].tolist())
            for kind, part in self.calibration.coverage.groupby("kind", sort=False)
        ]

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """Return the columns of a kind that have enough cells, least gained first."""
        part = self.columns[self.columns["kind"] == kind]
        part = part[part["cells"] >= FEWEST]
        if kind == "numeric":
            part = part.sort_values("ratio", ascending=False)
        else:
            gained = (part["exact"] - part["frequent"]).sort_values()
            part = part.loc[gained.index]
        return list(part.to_dict("records"))

    def mean(self, name: str) -> float | None:
        """Return the mean of a number over cells, None where it does not apply."""
        known = self.columns[self.columns[name].notna()]
        if not len(known):
            return None
        return float(np.average(known[name], weights=known["cells"]))


def _some(frame: pd.DataFrame, n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return at most `n` rows, drawn at random."""
    return frame.iloc[rng.permutation(len(frame))[:n]].reset_index(drop=True)


def _as_learned(frame: pd.DataFrame, model: Any) -> pd.DataFrame:
    """Return rows of an evaluation as the model takes them.

    There a hole that is a value is a level or has a column of its own.
    """
    schema = model.schema_
    rows = frame[[name for name in frame.columns if name in schema.names]].copy()
    for column in schema:
        name = column.name
        if column.gated and name in rows and rows[name].dtype == "category":
            rows[name] = rows[name].cat.remove_categories(
                [level for level in rows[name].cat.categories if level == MISSING_LEVEL]
            )
    return rows


def _alike(column: Column, schema: Schema) -> bool:
    """Whether the model has learned to fill a column of that name and kind."""
    if column.name not in schema.names:
        return False
    learned = schema[column.name]
    return learned.kind == column.kind and not learned.gated


def _hidden(
    rows: pd.DataFrame, real: pd.DataFrame, like_real: bool, rng: np.random.Generator
) -> pd.DataFrame:
    """Return which cells to hide."""
    if not like_real:
        return hide(rows, SHARE, rng)[1]
    like = real.isna().to_numpy()[rng.integers(0, len(real), len(rows))]
    for j in range(like.shape[1]):
        # Something of every column stays.
        like[rng.permutation(len(rows))[:KEPT], j] = False
    return pd.DataFrame(like, index=rows.index, columns=rows.columns)


def _ratio(y: Floats, draws: Floats, column: Floats) -> float:
    """Return the error of the mean of the draws over that of the column's mean."""
    filled = np.sqrt(((draws.mean(axis=1) - y) ** 2).mean())
    plain = np.sqrt(((np.nanmean(column) - y) ** 2).mean())
    return float(filled / plain) if plain > 0 else float("nan")


def _counts(draws: Codes, n_levels: int) -> Floats:
    counts = np.zeros((len(draws), n_levels))
    np.add.at(counts, (np.arange(len(draws))[:, None], draws), 1)
    return counts


def _share_sums(y: Codes, draws: Codes, n_levels: int) -> Floats:
    """Return sums by share of a level: share, truth, draw in its place, cells.

    One draw at a time stands beside the truth, and the others say how likely a level
    is; so both are compared with the same shares.
    """
    n, m = draws.shape
    counts, cells = _counts(draws, n_levels), np.arange(n)
    sums = np.zeros((4, LAST + 1))
    for j in range(m):
        others = counts.copy()
        others[cells, draws[:, j]] -= 1
        share = others / (m - 1)
        place = np.clip(np.searchsorted(SHARES, share, side="right") - 1, 0, LAST)
        truth, drawn = np.zeros_like(share), np.zeros_like(share)
        truth[cells, y] = 1
        drawn[cells, draws[:, j]] = 1
        # A level that is never drawn and never true would fill the first bin.
        told = (share > 0) | (truth > 0) | (drawn > 0)
        for k, values in enumerate((share, truth, drawn, np.ones_like(share))):
            sums[k] += np.bincount(
                place[told], weights=values[told], minlength=LAST + 1
            )
    return np.asarray(sums / m, dtype=np.float64)


def _shares(sums: Floats) -> pd.DataFrame | None:
    share, truth, drawn, cells = sums
    enough = cells >= FEWEST
    if enough.sum() < 2:
        return None
    return pd.DataFrame(
        {
            "drawn": share[enough] / cells[enough],
            "found": truth[enough] / cells[enough],
            "right": drawn[enough] / cells[enough],
            "cells": cells[enough],
        }
    )


def _columns(
    truth: pd.DataFrame,
    hidden: pd.DataFrame,
    draws: Sequence[pd.DataFrame],
    real: pd.DataFrame,
    found: Calibration,
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    lines, sums = [], np.zeros((4, LAST + 1))
    for line in found.columns.to_dict("records"):
        name = line["column"]
        cells = hidden[name].to_numpy(dtype=bool)
        parts = {"real": real[[name]].dropna(), "truth": truth.loc[cells, [name]]}
        parts |= {f"draw {i}": f.loc[cells, [name]] for i, f in enumerate(draws)}
        keys = ("column", "kind", "cells", "coverage_50", "coverage_90")
        told: dict[str, Any] = {key: line[key] for key in keys}
        if line["kind"] == "numeric":
            column, y, *drawn = numbers(parts, name)
            told["ratio"] = _ratio(y, np.stack(drawn, axis=1), column)
        else:
            (codes, y_codes, *more), levels, _ = level_codes(parts, name)
            stacked = np.stack(more, axis=1)
            mode = _counts(stacked, len(levels)).argmax(axis=1)
            common = np.bincount(codes).argmax()
            told["exact"] = float((mode == y_codes).mean())
            told["frequent"] = float((common == y_codes).mean())
            sums += _share_sums(y_codes, stacked, len(levels))
        lines.append(told)
    names = ["column", "kind", "cells", "coverage_50", "coverage_90"]
    names += ["ratio", "exact", "frequent"]
    return pd.DataFrame(lines).reindex(columns=names), _shares(sums)


def _filled(
    parts: Mapping[str, Any],
    model: Any,
    holed: list[str],
    numeric: Sequence[str],
    impute: Impute,
    rng: np.random.Generator,
) -> Filling:
    unseen = "test" in parts
    table, real = parts["test"] if unseen else parts["real"], parts["real"]
    truth = _as_learned(_some(table, ROWS, rng), model)
    like_real = unseen and not truth[holed].isna().to_numpy().any()
    hidden = _hidden(truth[holed], real[holed], like_real, rng)
    n_cells = int(hidden.to_numpy().sum())
    fans: list[Example] = []
    if "remasked" in parts:
        shown = _as_learned(_some(parts["remasked"], LOOKED_AT, rng), model)
        beside = _some(real, BESIDE, rng)
        fans = examples(shown, beside, holed, numeric, impute, rng)
    rest = (len(truth), n_cells, unseen, like_real)
    if n_cells < LEAST:
        return Filling(fans, None, pd.DataFrame(), None, *rest)
    observed: npt.NDArray[np.bool_] = np.ones(truth.shape, dtype=bool)
    for name in holed:
        observed[:, truth.columns.get_loc(name)] = ~hidden[name].to_numpy(dtype=bool)
    draws = list(impute(with_holes(truth, observed), DRAWS))
    found = calibration(
        truth,
        hidden,
        draws,
        [name for name in holed if name in numeric],
        [name for name in holed if name not in numeric],
        rng=rng,
    )
    lines, shares = _columns(truth, hidden, draws, real, found)
    return Filling(fans, found, lines, shares, *rest)


def fill_missing(
    parts: Mapping[str, Any],
    model: Any,
    unknown: Sequence[str],
    numeric: Sequence[str],
    seed: int = 0,
    progress: Progress = silent,
) -> Filling | None:
    """Return how a model fills holes, None if it fills none or there are none.

    Parameters
    ----------
    parts : mapping
        Of an evaluation: `schema`, and the rows `real`, `remasked` and perhaps `test`.
    model : object or None
        With `impute` and `schema_`.
    unknown : sequence of str
        Columns whose holes are values that nobody knows.
    numeric : sequence of str
    seed : int
    progress : Progress
    """
    schema = getattr(model, "schema_", None)
    real = parts["real"]
    holed = [name for name in unknown if real[name].isna().any()]
    if not holed or schema is None or not hasattr(model, "impute"):
        return None
    holed = [name for name in holed if _alike(parts["schema"][name], schema)]

    def impute(rows: pd.DataFrame, draws: int) -> Any:
        try:
            with warnings.catch_warnings():
                # Synthetic and test rows may have levels that were not learned.
                warnings.simplefilter("ignore", AugMaskWarning)
                own = stream_seed(seed, "filling", draws)
                return model.impute(rows, draws, own, progress)
        except UsageError as error:
            raise _CannotFill(str(error)) from error
        except AugMaskError as error:
            # What is wrong with a cell is not for a page that shows none.
            raise _CannotFill(OTHER) from error

    try:
        if not holed:
            raise _CannotFill(OTHER)
        return _filled(parts, model, holed, numeric, impute, stream(seed, "filling"))
    except _CannotFill as error:
        return Filling([], None, pd.DataFrame(), None, 0, 0, False, False, str(error))
