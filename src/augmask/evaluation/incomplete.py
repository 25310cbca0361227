"""Shape and Trend when the real table has holes and no complete truth exists.

Complete synthetic rows and the values one happens to observe are not the same thing:
if the rich do not tell their income (MAR), the right complete table has more high
incomes than the observed cells, and a plain comparison punishes it. So the holes are
put back first: learn P(observed | row) from the real table, hide the synthetic cells by
it, and compare what is left with what was observed. These two should agree.

The plain comparison stands beside it. It is not a score: the difference between the
two is how far the complete rows moved away from the observed values, which is the
correction for MAR, or a fault. Only the re-masked comparison can tell which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import DataError
from augmask.evaluation.columns import check_tables, level_codes, numbers
from augmask.evaluation.fidelity import (
    BINS,
    binned,
    clipped,
    ks_distance,
    pearson,
    tv_distance,
)
from augmask.missing.model import MissingModel, with_holes

Bools = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]

COLUMN_LINE = [
    *("column", "kind", "remasked", "complete"),
    *("real_rate", "remasked_rate"),
]
PAIR_LINE = [
    *("first", "second", "kind", "rows", "remasked", "complete"),
    *("real", "rho_remasked", "rho_complete"),
]

MEANING: Mapping[str, str] = MappingProxyType(
    {
        "shape": (
            "Observed values against synthetic values after the same holes were put "
            "in. 1 is agreement. It cannot see cells that are always hidden, nor "
            "holes that depend on the hidden value itself."
        ),
        "trend": (
            "The same for pairs of columns, on rows that show both. 1 is agreement. "
            "Pairs that are never seen together cannot be scored."
        ),
        "shape_complete": (
            "Observed values against all synthetic values. Not a score: a correct "
            "table differs here whenever holes depend on other columns. The "
            "difference to `shape` is the correction for that."
        ),
        "trend_complete": (
            "Pairs of observed values against all synthetic rows. Not a score, as "
            "`shape_complete`."
        ),
        "rate_gap": (
            "Largest difference between a column's share of holes in the real and in "
            "the re-masked table. Large if the synthetic rows differ in the columns "
            "that decide about holes; small says little else."
        ),
    }
)


@dataclass(frozen=True, eq=False)
class Remasked:
    """Observed values against synthetic ones, with and without the holes.

    Parameters
    ----------
    shape, trend : float
        Mean agreement of columns and of pairs after re-masking; these are the scores.
    shape_complete, trend_complete : float
        The same against the complete synthetic rows; for the difference only.
    rate_gap : float
        Largest difference between the rates of holes of a column.
    columns : pandas.DataFrame
        One line per column: `column`, `kind`, `remasked`, `complete`, the rates of
        holes `real_rate` and `remasked_rate`.
    pairs : pandas.DataFrame
        One line per pair: `first`, `second`, `kind`, `rows` (real rows that show
        both), `remasked`, `complete`; for two numeric columns the correlations `real`,
        `rho_remasked`, `rho_complete`, synthetic numbers beyond the observed range
        taken for its ends, as in `fidelity.trend`.
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

    def to_frame(self) -> pd.DataFrame:
        """Return one line per number: `name`, `value` and what it can tell."""
        return pd.DataFrame(
            [(name, getattr(self, name), text) for name, text in MEANING.items()],
            columns=["name", "value", "meaning"],
        )


@dataclass(frozen=True, eq=False)
class _Column:
    """A column of both tables; whatever stands in the holes is not to be read."""

    kind: str
    real: Values
    synthetic: Values
    synthetic_clipped: Values
    real_codes: Values
    synthetic_codes: Values
    n_codes: int
    real_seen: Bools
    synthetic_seen: Bools


def _column(
    real: pd.DataFrame, synthetic: pd.DataFrame, name: str, numeric: bool, seen: Bools
) -> _Column:
    real_seen = real[name].notna().to_numpy()
    if not real_seen.any():
        raise DataError(
            f"A column to be compared has observed values, but {name!r} of the real "
            "table has none; leave it out."
        )
    tables = {"real": real.loc[real_seen, [name]], "synthetic": synthetic[[name]]}
    r: Values
    s: Values
    within: Values
    if numeric:
        r, s = numbers(tables, name)
        r_codes, s_codes = binned(r, s, "real")
        within = clipped(r, s)
        n_codes = BINS + 2
    else:
        (r_codes, s_codes), levels, _ = level_codes(tables, name)
        r, s, within, n_codes = r_codes, s_codes, s_codes, len(levels)

    def spread(values: Values) -> Values:
        whole = np.zeros(len(real), dtype=values.dtype)
        whole[real_seen] = values
        return whole

    kind = "numeric" if numeric else "categorical"
    return _Column(
        kind, spread(r), s, within, spread(r_codes), s_codes, n_codes, real_seen, seen
    )


def _alone(column: _Column, seen: Bools) -> float:
    """Return the agreement of one column with the synthetic cells `seen`."""
    if not seen.any():
        return np.nan
    if column.kind == "numeric":
        real = column.real[column.real_seen]
        return 1 - ks_distance(real, column.synthetic[seen])
    real = column.real_codes[column.real_seen]
    return 1 - tv_distance(real, column.synthetic_codes[seen], column.n_codes)


def _rho(a: Values, b: Values) -> float:
    return float(pearson([a, b])[0, 1])


def _pair(
    a: _Column, b: _Column, real: Bools, seen: Bools
) -> tuple[float, float, float]:
    """Return agreement and both correlations of a pair on the rows given."""
    if not real.any() or not seen.any():
        return np.nan, np.nan, np.nan
    if a.kind == b.kind == "numeric":
        rho = _rho(a.real[real], b.real[real])
        rho_synthetic = _rho(a.synthetic_clipped[seen], b.synthetic_clipped[seen])
        return 1 - abs(rho - rho_synthetic) / 2, rho, rho_synthetic
    cells = a.real_codes[real] * b.n_codes + b.real_codes[real]
    other = a.synthetic_codes[seen] * b.n_codes + b.synthetic_codes[seen]
    return 1 - tv_distance(cells, other, a.n_codes * b.n_codes), np.nan, np.nan


def remasked(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    numeric: Sequence[str],
    categorical: Sequence[str],
    *,
    rng: np.random.Generator,
    model: MissingModel | None = None,
) -> Remasked:
    """Compare an incomplete real table with complete synthetic rows.

    Parameters
    ----------
    real : pandas.DataFrame
        The table with holes.
    synthetic : pandas.DataFrame
        Complete rows.
    numeric, categorical : sequence of str
        The columns to compare, as in `fidelity.shape`.
    rng : numpy.random.Generator
        Draws the holes of the synthetic rows.
    model : MissingModel, optional
        Fitted on `real` with these columns; by default it is fitted here.

    Returns
    -------
    Remasked

    Notes
    -----
    The holes are drawn from a model of P(observed | row) that was itself learned from
    the observed cells. Values that are always hidden again are never judged: where
    holes follow a rule, the real rows themselves with anything in their holes score
    nearly 1. So this is a test for generated rows, and `held_out` is the one for fills.

    Examples
    --------
    High earners, who are older, tend not to say what they earn:

    >>> rng = np.random.default_rng(0)
    >>> def people(n):
    ...     age = rng.normal(size=n)
    ...     return pd.DataFrame({"age": age, "income": age + rng.normal(size=n)})
    >>> real, synthetic = people(5000), people(5000)
    >>> real.loc[rng.random(5000) < 1 / (1 + np.exp(-2 * real["age"])), "income"] = None
    >>> result = remasked(real, synthetic, ["age", "income"], [], rng=rng)
    >>> result.columns.round(1)[["column", "remasked", "complete"]]
       column  remasked  complete
    0     age       1.0       1.0
    1  income       1.0       0.8
    """
    check_tables({"real": real, "synthetic": synthetic}, numeric, categorical)
    names = [*numeric, *categorical]
    if model is None:
        model = MissingModel().fit(real[names], numeric)
    drawn = pd.DataFrame(model.observed(synthetic, rng), columns=model.columns_)
    observed = drawn[names].to_numpy()
    columns = {
        name: _column(real, synthetic, name, name in numeric, observed[:, j])
        for j, name in enumerate(names)
    }
    every = np.ones(len(synthetic), dtype=bool)
    lines = [
        (
            name,
            column.kind,
            _alone(column, column.synthetic_seen),
            _alone(column, every),
            1 - column.real_seen.mean(),
            1 - column.synthetic_seen.mean(),
        )
        for name, column in columns.items()
    ]
    table = pd.DataFrame(
        lines,
        columns=COLUMN_LINE,
    )
    pairs = []
    for (first, a), (second, b) in combinations(columns.items(), 2):
        both = a.real_seen & b.real_seen
        score, rho, after = _pair(a, b, both, a.synthetic_seen & b.synthetic_seen)
        plain, _, before = _pair(a, b, both, every)
        kind = a.kind if a.kind == b.kind else "mixed"
        line = (first, second, kind, both.sum(), score, plain, rho, after, before)
        pairs.append(line)
    pair_table = pd.DataFrame(
        pairs,
        columns=PAIR_LINE,
    ).astype({"remasked": np.float64, "complete": np.float64})
    return Remasked(
        shape=float(table["remasked"].mean()),
        trend=float(pair_table["remasked"].mean()),
        shape_complete=float(table["complete"].mean()),
        trend_complete=float(pair_table["complete"].mean()),
        rate_gap=float((table["real_rate"] - table["remasked_rate"]).abs().max()),
        columns=table,
        pairs=pair_table,
        frame=with_holes(synthetic[names], observed),
    )
