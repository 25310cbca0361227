"""MCAR, MAR and MNAR holes at a target ratio, in any table.

Every column takes part, the target column too, and every column loses the same share
p = `ratio` of its cells. Three mechanisms (Rubin, 1976):

- ``mcar``: a cell is hidden with probability p, whatever the table says.
- ``mar``: what hides a cell is visible in the same row. With ``mar="equal"`` each row
  shows one block of columns, a different one from row to row, and the shown block
  decides about the other cells; so no column stays complete and no row is lost. With
  ``mar="diffputer"`` (Zhang et al., 2025) a few columns stay complete in all rows and
  decide about the others.
- ``mnar``: a few columns decide about the others and are then hidden themselves.

A decision is logistic: sigmoid(z·w + b) with z the standardised deciding cells, w
normal and scaled so that z·w has unit variance, and b such that the mean is the target.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_numeric_dtype
from scipy.special import expit, logit

from augmask.errors import UsageError, did_you_mean
from augmask.rng import stream
from augmask.table.frames import read_frame
from augmask.table.table import BoolArray, FloatArray

MECHANISMS = ("mcar", "mar", "mnar")
MAR_RULES = ("equal", "diffputer")


def _check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    choices = tuple(choices)
    if value in choices:
        return
    hint = did_you_mean(str(value), choices)
    raise UsageError(f"there is no {name} {value!r}{hint}")


def _check_ratio(ratio: object) -> None:
    if not isinstance(ratio, Real) or not 0 <= float(ratio) < 1:
        raise UsageError(
            f"ratio is the share of cells to hide and must be at least 0 and below 1, "
            f"got {ratio!r}"
        )


def _standardise(values: FloatArray) -> FloatArray:
    """Give every column mean 0 and variance 1; holes and infinities become 0."""
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    z = np.where(known, values, 0.0)
    # To at most 1 in size first, so that squares of huge numbers cannot overflow.
    z /= np.maximum(np.abs(z).max(axis=0, initial=0.0), np.finfo(float).tiny)
    z = np.where(known, z - z.sum(axis=0) / count, 0.0)
    sd = np.sqrt((z**2).sum(axis=0) / count)
    # Below this a column is constant up to rounding and has nothing to say.
    return np.where(sd > 1e-12, z / np.maximum(sd, 1e-12), 0.0)


def _propensity(
    deciding: FloatArray, n_targets: int, target: float, rng: np.random.Generator
) -> FloatArray:
    """Return the chances [n, n_targets] of being hidden, with column means `target`."""
    z = _standardise(deciding)
    score = z @ rng.standard_normal((z.shape[1], n_targets))
    if not score.size:
        return score
    sd = score.std(axis=0)
    score /= np.where(sd > 1e-12, sd, 1.0)
    # With b at these two ends every chance is at most, or at least, the target.
    low = logit(target) - score.max(axis=0)
    high = logit(target) - score.min(axis=0)
    for _ in range(40):
        middle = (low + high) / 2
        above = expit(score + middle).mean(axis=0) > target
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    chance: FloatArray = expit(score + (low + high) / 2)
    return chance


def _mar_equal(
    values: FloatArray, ratio: float, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Hide cells by the block of columns that their row shows.

    All numbers that enter a row's chances, also the means and variances that
    standardise them, are cells that the result shows: changing any hidden value
    changes nothing, which is MAR to the letter.
    """
    n, d = values.shape
    # Blocks are small enough that the rest of the row can reach the ratio, and hold
    # at most 30 % of the columns.
    n_blocks = min(d, max(2, math.ceil(1 / min(0.3, 0.95 * (1 - ratio)))))
    target = ratio / (1 - 1 / n_blocks)
    if target >= 1:
        raise UsageError(
            f"MAR holes leave at least one cell in every row, so ratio must be below "
            f"{1 - 1 / d:.3g} with {d} columns, got {ratio!r}; "
            f"lower it or use mechanism='mcar'"
        )
    blocks = np.array_split(rng.permutation(d), n_blocks)
    turn = rng.permutation(np.arange(n) % n_blocks)
    hidden = np.zeros((n, d), dtype=bool)
    for g, block in enumerate(blocks):
        rows, others = np.flatnonzero(turn == g), np.setdiff1d(np.arange(d), block)
        chance = _propensity(values[np.ix_(rows, block)], len(others), target, rng)
        hidden[np.ix_(rows, others)] = rng.random(chance.shape) < chance
    return hidden


def _by_deciding_columns(
    values: FloatArray, ratio: float, rng: np.random.Generator, *, mnar: bool
) -> npt.NDArray[np.bool_]:
    """Hide cells by a few columns: shown in all rows (MAR) or hidden too (MNAR)."""
    n, d = values.shape
    share = 0.3 if ratio <= 0.3 else 0.1
    target = ratio if mnar else ratio / (1 - share)
    if target >= 1:
        raise UsageError(
            f"mar='diffputer' keeps {share:.0%} of the columns complete, so ratio must "
            f"be below {1 - share:.3g}, got {ratio!r}; use mar='equal'"
        )
    order = rng.permutation(d)
    deciding, others = np.split(order, [max(int(share * d), 1)])
    hidden = np.zeros((n, d), dtype=bool)
    chance = _propensity(values[:, deciding], len(others), target, rng)
    hidden[:, others] = rng.random(chance.shape) < chance
    if mnar:
        hidden[:, deciding] = rng.random((n, len(deciding))) < ratio
    return hidden


def draw_mask(
    values: FloatArray,
    mechanism: str,
    ratio: float,
    rng: np.random.Generator,
    mar: str = "equal",
) -> BoolArray:
    """Draw which cells of a table of numbers stay observed.

    Parameters
    ----------
    values : float array [n, d]
        Numbers of any scale. NaN is a hole already: it stays one, and where it would
        decide about other cells it counts as the column's mean.
    mechanism : {"mcar", "mar", "mnar"}
    ratio : float
        Share of cells to hide, at least 0 and below 1.
    rng : numpy.random.Generator
    mar : {"equal", "diffputer"}
        Which MAR rule; see the module's text.

    Returns
    -------
    bool array [n, d]
        The paper's m: True where a cell is observed.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> observed = draw_mask(rng.normal(size=(10_000, 5)), "mar", 0.5, rng)
    >>> (~observed).mean(axis=0).round(1).tolist()
    [0.5, 0.5, 0.5, 0.5, 0.5]
    >>> bool(observed.any(axis=1).all())
    True
    """
    _check_choice("mechanism", mechanism, MECHANISMS)
    _check_choice("mar", mar, MAR_RULES)
    _check_ratio(ratio)
    values = np.asarray(values, dtype=float)
    present: BoolArray = ~np.isnan(values)
    if ratio == 0:
        return present
    if mechanism == "mcar":
        return present & (rng.random(values.shape) >= ratio)
    if values.shape[1] < 2:
        raise UsageError(
            f"mechanism={mechanism!r} needs at least 2 columns, because one column's "
            f"values decide about another's holes, got {values.shape[1]}; "
            f"use mechanism='mcar'"
        )
    if mechanism == "mar" and mar == "equal":
        return present & ~_mar_equal(values, ratio, rng)
    return present & ~_by_deciding_columns(values, ratio, rng, mnar=mechanism == "mnar")


def as_numbers(frame: pd.DataFrame) -> FloatArray:
    """Turn a frame into the numbers that decide about holes, NaN where it has a hole.

    Numbers and booleans stand for themselves, dates for the days since the first one,
    and everything else for the rank of its level among those that occur.

    Examples
    --------
    >>> as_numbers(pd.DataFrame({"age": [41, 7], "town": ["Oslo", None]})).tolist()
    [[41.0, 0.0], [7.0, nan]]
    """
    numbers = np.empty(frame.shape)
    for j in range(frame.shape[1]):
        column = frame.iloc[:, j]
        kind = column.dtype
        if kind.kind in "mM":  # dates and durations, of numpy, Arrow or with a zone
            column = (column - column.min()) / pd.Timedelta(days=1)
        elif isinstance(kind, pd.CategoricalDtype):
            codes = column.cat.remove_unused_categories().cat.codes
            column = codes.where(codes >= 0)
        elif not is_numeric_dtype(kind):
            # As text, because values of several types cannot be sorted otherwise.
            known = column.notna().to_numpy()
            codes, _ = pd.factorize(column[known].astype(str), sort=True)
            column = pd.Series(np.nan, range(len(known)))
            column[known] = codes
        numbers[:, j] = column.to_numpy(dtype=float, na_value=np.nan)
    return numbers


def punch(column: pd.Series, hidden: BoolArray) -> pd.Series:
    """Return a copy of `column` with holes, in the dtype that pandas users expect."""
    if not hidden.any():
        return column.copy()
    # By hand, because pandas 2.2 warns when `mask` meets an object column whose
    # remaining values would fit a narrower dtype.
    if column.dtype in (np.dtype(object), np.dtype(bool)):
        values = column.to_numpy(dtype=object, copy=True)
        values[hidden] = np.nan
        return pd.Series(values, index=column.index, name=column.name, dtype=object)
    return column.mask(hidden)


def ampute(
    frame: Any,
    mechanism: str = "mcar",
    ratio: float = 0.3,
    seed: int = 0,
    *,
    mar: str = "equal",
) -> pd.DataFrame:
    """Return a copy of a table in which a share of the cells is missing.

    Use it to see how a method copes with holes when the truth is known. Every column
    takes part, the target column too; leave an identifier out by dropping it first.

    Parameters
    ----------
    frame : pandas or polars DataFrame, Arrow table, or path
        Holes that it already has stay holes. It is not changed.
    mechanism : {"mcar", "mar", "mnar"}, default "mcar"
        Holes at random; holes that depend on cells the row still shows; or holes that
        depend on cells which are hidden too.
    ratio : float, default 0.3
        Share of the cells to hide, the same in every column: 0 or more, below 1.
    seed : int, default 0
        Same table, settings and seed: same holes.
    mar : {"equal", "diffputer"}, default "equal"
        With ``"equal"`` every column has holes and no row is empty. ``"diffputer"``
        is the rule of Zhang et al. (2025), where some columns stay complete.

    Returns
    -------
    pandas.DataFrame
        With the index of `frame`. Integers become floats where they have to hold NaN,
        booleans become objects with NaN; categories, dates and nullable dtypes stay
        what they are.

    Raises
    ------
    UsageError
        If a setting is unknown, out of range, or out of reach for this table.

    Examples
    --------
    >>> table = pd.DataFrame({"age": range(20, 60), "member": [True, False] * 20})
    >>> holed = ampute(table, mechanism="mar", ratio=0.25, seed=1)
    >>> holed.dtypes.astype(str).tolist()
    ['float64', 'object']
    >>> bool(holed.isna().all(axis=1).any())
    False

    The truth under the holes is still in `table`:

    >>> hidden = table["age"][holed["age"].isna()]
    >>> len(hidden) == int(holed["age"].isna().sum())
    True
    """
    table = read_frame(frame)
    rng = stream(seed, "ampute", mechanism)
    numbers = as_numbers(table)
    hidden = ~draw_mask(numbers, mechanism, ratio, rng, mar) & ~np.isnan(numbers)
    columns = [punch(table[name], hidden[:, j]) for j, name in enumerate(table.columns)]
    holed = pd.concat(columns, axis=1).set_axis(table.columns, axis=1)
    # A frame keeps its index: its users compare the two cell by cell.
    return holed.set_axis(frame.index) if isinstance(frame, pd.DataFrame) else holed
