"""`ampute`: MCAR, MAR and MNAR missing values at a target ratio, in any table.

Every column takes part, the target column too, and loses the same share p = `ratio` of
its cells. Three mechanisms (Rubin, 1976):

- ``mcar``: a cell is hidden with probability p, independently of all values.
- ``mar``: the probability depends on cells that stay observed in the same row. With
  ``mar="equal"`` each row keeps one block of columns, a different one from row to row,
  which decides about its other cells; so no column stays complete and no row is lost.
  With ``mar="diffputer"`` (Zhang et al., 2025) a few columns stay complete in all rows
  and decide about the others.
- ``mnar``: a few columns decide about the others and are then hidden themselves.

A decision is logistic: sigmoid(z·w + b) with z the standardised deciding cells, w
normal and scaled so that z·w has unit variance, and b such that the mean is the target.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from scipy.special import expit, logit

from augmask.errors import UsageError
from augmask.rng import stream
from augmask.table.frame_kinds import collected, give_back
from augmask.table.frames import read_frame
from augmask.table.table import BoolArray, FloatArray
from augmask.validation import SEED, ValueSpec

MECHANISMS = ("mcar", "mar", "mnar")
MAR_VARIANTS = ("equal", "diffputer")

MECHANISM, MAR_VARIANT = ValueSpec(str, MECHANISMS), ValueSpec(str, MAR_VARIANTS)
RATIO = ValueSpec(Real, lowest=0, below=1)


def _standardise(values: FloatArray) -> FloatArray:
    """Give every column mean 0 and variance 1; NaN and infinities become 0."""
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    z = np.where(known, values, 0.0)
    # Scaled to at most 1 first, so that squares of huge numbers cannot overflow.
    z /= np.maximum(np.abs(z).max(axis=0, initial=0.0), np.finfo(float).tiny)
    z = np.where(known, z - z.sum(axis=0) / count, 0.0)
    sd = np.sqrt((z**2).sum(axis=0) / count)
    # Below this a column is constant up to rounding.
    return np.where(sd > 1e-12, z / np.maximum(sd, 1e-12), 0.0)


def _propensity(
    deciding: FloatArray, n_targets: int, target: float, rng: np.random.Generator
) -> FloatArray:
    """Return the probabilities [n, n_targets] of hiding, with column means `target`."""
    z = _standardise(deciding)
    score = z @ rng.standard_normal((z.shape[1], n_targets))
    if not score.size:
        return score
    sd = score.std(axis=0)
    score /= np.where(sd > 1e-12, sd, 1.0)
    # At these two ends of b every probability is at most, or at least, the target.
    low = logit(target) - score.max(axis=0)
    high = logit(target) - score.min(axis=0)
    for _ in range(40):
        middle = (low + high) / 2
        above = expit(score + middle).mean(axis=0) > target
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    probability: FloatArray = expit(score + (low + high) / 2)
    return probability


def _mar_equal(
    values: FloatArray, ratio: float, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Hide cells depending on the block of columns that their row keeps.

    All numbers that enter a row's probabilities, also the means and variances that
    standardise them, stay observed: changing any hidden value changes nothing, which
    is exactly MAR.
    """
    n, d = values.shape
    # Blocks are small enough for the rest of the row to reach the ratio, and have at
    # most 30 % of the columns.
    n_blocks = min(d, max(2, math.ceil(1 / min(0.3, 0.95 * (1 - ratio)))))
    target = ratio / (1 - 1 / n_blocks)
    if target >= 1:
        raise UsageError(
            f"mechanism='mar' keeps at least one cell in every row, so ratio must be "
            f"below {1 - 1 / d:.3g} with {d} columns, got {ratio!r}; lower it or use "
            f"mechanism='mcar'"
        )
    blocks = np.array_split(rng.permutation(d), n_blocks)
    block_of_row = rng.permutation(np.arange(n) % n_blocks)
    hidden = np.zeros((n, d), dtype=bool)
    for g, block in enumerate(blocks):
        rows, others = (
            np.flatnonzero(block_of_row == g),
            np.setdiff1d(np.arange(d), block),
        )
        p = _propensity(values[np.ix_(rows, block)], len(others), target, rng)
        hidden[np.ix_(rows, others)] = rng.random(p.shape) < p
    return hidden


def _by_deciding_columns(
    values: FloatArray, ratio: float, rng: np.random.Generator, *, mnar: bool
) -> npt.NDArray[np.bool_]:
    """Hide cells depending on a few columns: complete (MAR) or hidden too (MNAR)."""
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
    p = _propensity(values[:, deciding], len(others), target, rng)
    hidden[:, others] = rng.random(p.shape) < p
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
        Numbers of any scale. NaN stays missing, and counts as the column's mean where
        it decides about other cells.
    mechanism : {"mcar", "mar", "mnar"}
    ratio : float
        Share of cells to hide, at least 0 and below 1.
    rng : numpy.random.Generator
    mar : {"equal", "diffputer"}
        Which variant of MAR; see the module docstring.

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
    MECHANISM.checked("mechanism", mechanism)
    MAR_VARIANT.checked("mar", mar)
    RATIO.checked("ratio, the share of cells to hide,", ratio)
    values = np.asarray(values, dtype=float)
    present: BoolArray = ~np.isnan(values)
    if ratio == 0:
        return present
    if mechanism == "mcar":
        return present & (rng.random(values.shape) >= ratio)
    if values.shape[1] < 2:
        raise UsageError(
            f"mechanism={mechanism!r} needs at least 2 columns, because values of one "
            f"decide what is missing in another, got {values.shape[1]}; use "
            f"mechanism='mcar'"
        )
    if mechanism == "mar" and mar == "equal":
        return present & ~_mar_equal(values, ratio, rng)
    return present & ~_by_deciding_columns(values, ratio, rng, mnar=mechanism == "mnar")


def is_ordered(dtype: Any) -> bool:
    """Whether a column of that type holds numbers, dates or durations."""
    return dtype.kind in "mM" or (is_numeric_dtype(dtype) and not is_bool_dtype(dtype))


def as_numbers(frame: pd.DataFrame) -> FloatArray:
    """Return a frame as numbers, NaN where a value is missing.

    Numbers and booleans keep their value, dates become days since the first one, and
    everything else becomes the rank of its level among those that occur.

    Examples
    --------
    >>> as_numbers(pd.DataFrame({"age": [41, 7], "town": ["Oslo", None]})).tolist()
    [[41.0, 0.0], [7.0, nan]]
    """
    numbers = np.empty(frame.shape)
    for j in range(frame.shape[1]):
        column = frame.iloc[:, j]
        kind = column.dtype
        if kind.kind in "mM":  # dates and durations: numpy, Arrow, with a time zone
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


def hide_cells(column: pd.Series, hidden: BoolArray) -> pd.Series:
    """Return a copy of `column` with missing values, in the dtype pandas would use."""
    if not hidden.any():
        return column.copy()
    # Without `mask`: pandas 2.2 warns about object columns whose remaining values fit
    # a narrower dtype.
    if column.dtype in (np.dtype(object), np.dtype(bool)):
        values = column.to_numpy(dtype=object, copy=True)
        values[hidden] = np.nan
        return pd.Series(values, index=column.index, name=column.name, dtype=object)
    return column.mask(hidden)


def ampute(
    data: Any,
    *,
    mechanism: str = "mcar",
    ratio: float = 0.3,
    seed: int = 0,
    mar: str = "equal",
) -> Any:
    """Return a copy of a table in which a share of the cells is missing.

    Use it to test a method on missing values whose truth you know. Every column takes
    part, the target column too; drop an identifier first.

    Parameters
    ----------
    data : pandas or polars DataFrame, Arrow table, or path
        Not changed. Values that are already missing stay missing.
    mechanism : {"mcar", "mar", "mnar"}, default "mcar"
        Missing completely at random; depending on cells that stay observed; or
        depending on cells that go missing too.
    ratio : float, default 0.3
        Share of the cells to hide, the same in every column: 0 or more, below 1.
    seed : int, default 0
        The same table, settings and seed give the same mask.
    mar : {"equal", "diffputer"}, default "equal"
        With ``"equal"`` every column has missing values and no row is empty;
        ``"diffputer"`` (Zhang et al., 2025) keeps some columns complete.

    Returns
    -------
    DataFrame, polars frame or Arrow table
        As what `data` came as. A pandas frame has the index of `data`; integers become
        floats where they need NaN, booleans become objects with NaN; categories, dates
        and nullable dtypes are kept.

    Raises
    ------
    UsageError
        If a setting is unknown, out of range, or out of reach for this table.

    Examples
    --------
    >>> table = pd.DataFrame({"age": range(20, 60), "member": [True, False] * 20})
    >>> incomplete = ampute(table, mechanism="mar", ratio=0.25, seed=1)
    >>> incomplete.dtypes.astype(str).tolist()
    ['float64', 'object']
    >>> bool(incomplete.isna().all(axis=1).any())
    False

    The true values are still in `table`:

    >>> truth = table["age"][incomplete["age"].isna()]
    >>> len(truth) == int(incomplete["age"].isna().sum())
    True
    """
    seed = SEED.checked("seed", seed)
    MECHANISM.checked("mechanism", mechanism)
    data = collected(data)
    table = read_frame(data)
    rng = stream(seed, "ampute", mechanism)
    numbers = as_numbers(table)
    hidden = ~draw_mask(numbers, mechanism, ratio, rng, mar) & ~np.isnan(numbers)
    columns = [
        hide_cells(table[name], hidden[:, j]) for j, name in enumerate(table.columns)
    ]
    result = pd.concat(columns, axis=1).set_axis(table.columns, axis=1)
    # A frame keeps its index: users compare the two cell by cell.
    if isinstance(data, pd.DataFrame):
        return result.set_axis(data.index)
    return give_back(data, result, result.columns)
