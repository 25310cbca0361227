"""Shape, Trend and C2ST when the real table has missing values.

Complete synthetic rows and observed values have different distributions: if people with
a high income do not report it (MAR), the right complete table has more high incomes
than the observed cells, and a plain comparison punishes it. So re-mask the synthetic
rows first: learn P(observed | row) from the real table, hide synthetic cells by it, and
compare what is left with what was observed (`compare_remasked`).

No model of P(observed | row) reproduces every missingness pattern, and a classifier
would tell the tables apart by their patterns alone. `match_missing` therefore pairs the
rows of two tables and hides in both what is missing in either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import DataError
from augmask.evaluation.fidelity import (
    BINS,
    binned,
    clipped,
    ks_distance,
    pearson,
    tv_distance,
)
from augmask.evaluation.tables import Codes, check_tables, level_codes, numbers
from augmask.missing.model import MissingModel, with_missing
from augmask.table.table import BoolArray

Values = npt.NDArray[Any]


def _by_pattern(observed: BoolArray, rows: Codes) -> dict[bytes, list[int]]:
    """Return the rows of each missingness pattern, in order."""
    groups: dict[bytes, list[int]] = {}
    for i in rows:
        groups.setdefault(observed[i].tobytes(), []).append(int(i))
    return groups


def _paired_rows(
    first: BoolArray, second: BoolArray, rng: np.random.Generator
) -> Codes:
    """Return pairs of rows [n, 2]: equal patterns first, then similar ones."""
    n = min(len(first), len(second))
    a, b = (rng.permutation(len(observed))[:n] for observed in (first, second))
    groups, others = _by_pattern(first, a), _by_pattern(second, b)
    pairs: list[tuple[int, int]] = []
    rest: tuple[list[int], list[int]] = ([], [])
    for pattern in {**groups, **others}:
        ours, theirs = groups.get(pattern, []), others.get(pattern, [])
        pairs += zip(ours, theirs, strict=False)
        both = min(len(ours), len(theirs))
        rest[0].extend(ours[both:])
        rest[1].extend(theirs[both:])
    if rest[0]:
        # The last key leads: columns that about half of the rows lack. Sorted so,
        # similar patterns end up next to each other.
        rate = np.concatenate([first, second]).mean(axis=0)
        order = np.argsort(rate * (1 - rate), kind="stable")
        rows = [
            np.asarray(part)[np.lexsort(observed[part][:, order].T)]
            for part, observed in zip(rest, (first, second), strict=True)
        ]
        pairs += zip(*rows, strict=True)
    return np.asarray(pairs, dtype=np.int64).reshape(-1, 2)


def match_missing(
    first: pd.DataFrame, second: pd.DataFrame, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return equally many rows of both tables, with the same missing cells per pair.

    Missing values then carry no information about the table. Rows of similar patterns
    are paired, so that few more cells have to be hidden.

    Parameters
    ----------
    first, second : pandas.DataFrame
        With the same columns. Rows of the longer table are left out at random.
    rng : numpy.random.Generator

    Examples
    --------
    >>> first = pd.DataFrame({"a": [1.0, None, 3.0], "b": [1.0, 2.0, 3.0]})
    >>> second = pd.DataFrame({"a": [4.0, 5.0], "b": [None, 6.0]})
    >>> left, right = match_missing(first, second, np.random.default_rng(0))
    >>> len(left), left.isna().equals(right.isna())
    (2, True)
    """
    names = list(first.columns)
    observed = [frame[names].notna().to_numpy() for frame in (first, second)]
    if all(mask.all() for mask in observed) and len(first) == len(second):
        return first, second
    pairs = _paired_rows(observed[0], observed[1], rng)
    both = observed[0][pairs[:, 0]] & observed[1][pairs[:, 1]]
    matched = [
        with_missing(frame[names].iloc[pairs[:, k]].reset_index(drop=True), both)
        for k, frame in enumerate((first, second))
    ]
    return matched[0], matched[1]


class KnownMask(MissingModel):
    """Re-mask rows with the missing values that they had before they were filled.

    Parameters
    ----------
    rows : pandas.DataFrame
        The rows before they were filled.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self.columns_ = rows.columns
        self.mask = rows.notna().to_numpy()

    def draw_mask(self, rows: pd.DataFrame, rng: np.random.Generator) -> BoolArray:
        """Return which cells the rows had; this is not random."""
        del rng
        if len(rows) != len(self.mask):
            raise ValueError(f"{len(rows)=} differs from {len(self.mask)=}")
        return np.asarray(self.mask)


@dataclass(frozen=True, eq=False)
class RemaskedScores:
    """Observed values against synthetic ones, re-masked and complete.

    Parameters
    ----------
    shape, trend : float
        Mean agreement of columns and of pairs after re-masking; these are the scores.
    shape_complete, trend_complete : float
        The same against the complete synthetic rows. Not scores: the difference is how
        far complete rows differ from observed values, rightly so under MAR.
    rate_gap : float
        Largest difference between the missing rates of a column.
    columns : pandas.DataFrame
        One line per column: `column`, `kind`, `remasked`, `complete`, and the missing
        rates `real_rate` and `remasked_rate`.
    pairs : pandas.DataFrame
        One line per pair: `first`, `second`, `kind`, `rows` (real rows that show
        both), `remasked`, `complete`; for two numeric columns the correlations `real`,
        `rho_remasked`, `rho_complete`, with synthetic numbers clipped to the observed
        range as in `fidelity.trend`.
    frame : pandas.DataFrame
        The re-masked synthetic table.
    """

    shape: float
    trend: float
    shape_complete: float
    trend_complete: float
    rate_gap: float
    columns: pd.DataFrame
    pairs: pd.DataFrame
    frame: pd.DataFrame


@dataclass(frozen=True, eq=False)
class _Column:
    """A column of both tables; values where `real_observed` is False are undefined."""

    kind: str
    real: Values
    synthetic: Values
    synthetic_clipped: Values
    real_codes: Values
    synthetic_codes: Values
    n_codes: int
    real_observed: BoolArray
    remasked: BoolArray


def _column(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    name: str,
    numeric: bool,
    remasked: BoolArray,
) -> _Column:
    observed = real[name].notna().to_numpy()
    if not observed.any():
        raise DataError(
            f"column {name!r} of the real table has no observed values; leave it out"
        )
    tables = {"real": real.loc[observed, [name]], "synthetic": synthetic[[name]]}
    r: Values
    s: Values
    within: Values
    if numeric:
        r, s = numbers(tables, name)
        r_codes, s_codes = binned(r, s, "real")
        within, n_codes = clipped(r, s), BINS + 2
    else:
        (r_codes, s_codes), levels, _ = level_codes(tables, name)
        r, s, within, n_codes = r_codes, s_codes, s_codes, len(levels)

    def at_rows(values: Values) -> Values:
        every = np.zeros(len(real), dtype=values.dtype)
        every[observed] = values
        return every

    kind = "numeric" if numeric else "categorical"
    codes = at_rows(r_codes), s_codes, n_codes
    return _Column(kind, at_rows(r), s, within, *codes, observed, remasked)


def _column_score(column: _Column, rows: BoolArray) -> float:
    """Return the agreement of one column with some synthetic rows."""
    if not rows.any():
        return np.nan
    if column.kind == "numeric":
        real = column.real[column.real_observed]
        return 1 - ks_distance(real, column.synthetic[rows])
    real = column.real_codes[column.real_observed]
    return 1 - tv_distance(real, column.synthetic_codes[rows], column.n_codes)


def _rho(a: Values, b: Values) -> float:
    return float(pearson([a, b])[0, 1])


def _pair_score(
    a: _Column, b: _Column, real: BoolArray, rows: BoolArray
) -> tuple[float, float, float]:
    """Return agreement and both correlations of a pair on some rows of each table."""
    if not real.any() or not rows.any():
        return np.nan, np.nan, np.nan
    if a.kind == b.kind == "numeric":
        rho = _rho(a.real[real], b.real[real])
        rho_synthetic = _rho(a.synthetic_clipped[rows], b.synthetic_clipped[rows])
        return 1 - abs(rho - rho_synthetic) / 2, rho, rho_synthetic
    cells = a.real_codes[real] * b.n_codes + b.real_codes[real]
    other = a.synthetic_codes[rows] * b.n_codes + b.synthetic_codes[rows]
    return 1 - tv_distance(cells, other, a.n_codes * b.n_codes), np.nan, np.nan


def compare_remasked(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    numeric: Sequence[str],
    categorical: Sequence[str],
    *,
    rng: np.random.Generator,
    model: MissingModel | None = None,
) -> RemaskedScores:
    """Compare an incomplete real table with complete synthetic rows.

    Parameters
    ----------
    real : pandas.DataFrame
        The table with missing values.
    synthetic : pandas.DataFrame
        Complete rows.
    numeric, categorical : sequence of str
        The columns to compare, as in `fidelity.shape`.
    rng : numpy.random.Generator
        Samples the missing values of the synthetic rows.
    model : MissingModel, optional
        Fitted on `real` with these columns; by default it is fitted here.

    Notes
    -----
    The model of P(observed | row) is itself learned from observed cells, and values
    that are hidden again are never scored. The real rows with any values imputed score
    nearly 1 if their missingness is deterministic. So use this to score generated rows,
    and `held_out` to score imputations.

    Examples
    --------
    High earners, who are older, tend not to report what they earn:

    >>> rng = np.random.default_rng(0)
    >>> def people(n):
    ...     age = rng.normal(size=n)
    ...     return pd.DataFrame({"age": age, "income": age + rng.normal(size=n)})
    >>> real, synthetic = people(5000), people(5000)
    >>> real.loc[rng.random(5000) < 1 / (1 + np.exp(-2 * real["age"])), "income"] = None
    >>> result = compare_remasked(real, synthetic, ["age", "income"], [], rng=rng)
    >>> result.columns.round(1)[["column", "remasked", "complete"]]
       column  remasked  complete
    0     age       1.0       1.0
    1  income       1.0       0.8
    """
    check_tables({"real": real, "synthetic": synthetic}, numeric, categorical)
    names = [*numeric, *categorical]
    if model is None:
        model = MissingModel().fit(real[names], numeric)
    sampled = pd.DataFrame(model.draw_mask(synthetic, rng), columns=model.columns_)
    observed = sampled[names].to_numpy()
    columns = {
        name: _column(real, synthetic, name, name in numeric, observed[:, j])
        for j, name in enumerate(names)
    }
    every = np.ones(len(synthetic), dtype=bool)
    lines = [
        {
            "column": name,
            "kind": column.kind,
            "remasked": _column_score(column, column.remasked),
            "complete": _column_score(column, every),
            "real_rate": 1 - column.real_observed.mean(),
            "remasked_rate": 1 - column.remasked.mean(),
        }
        for name, column in columns.items()
    ]
    table = pd.DataFrame(lines)
    pairs = []
    for (first, a), (second, b) in combinations(columns.items(), 2):
        both = a.real_observed & b.real_observed
        score, rho, after = _pair_score(a, b, both, a.remasked & b.remasked)
        plain, _, before = _pair_score(a, b, both, every)
        kind = a.kind if a.kind == b.kind else "mixed"
        line = (first, second, kind, both.sum(), score, plain, rho, after, before)
        pairs.append(line)
    pair_table = pd.DataFrame(
        pairs,
        columns=[
            *("first", "second", "kind", "rows", "remasked", "complete"),
            *("real", "rho_remasked", "rho_complete"),
        ],
    ).astype({"remasked": np.float64, "complete": np.float64})
    return RemaskedScores(
        shape=float(table["remasked"].mean()),
        trend=float(pair_table["remasked"].mean()),
        shape_complete=float(table["complete"].mean()),
        trend_complete=float(pair_table["complete"].mean()),
        rate_gap=float((table["real_rate"] - table["remasked_rate"]).abs().max()),
        columns=table,
        pairs=pair_table,
        frame=with_missing(synthetic[names], observed),
    )
