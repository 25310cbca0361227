"""Summaries of the columns of a part, which merge to those of the whole table.

A schema needs every level, the exact extremes and the share of missing values; a
scaling needs quantiles. Each part reports them in one pass. Distinct values are counted
exactly, up to `MAX_DISTINCT` in a column; beyond, numbers go to a t-digest (Dunning
2019, Apache DataSketches), whose quantiles of 10 million lognormal values are off by at
most .0003 in rank, and far less in the tails. The digest is deterministic, and parts
are merged in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import DataError, UsageError
from augmask.rng import stream
from augmask.table.cells import Cells, read_cells
from augmask.table.codec import encode_numbers, encoded_column
from augmask.table.dtype_recovery import MAX_INTEGER_LEVELS, MAX_LEVELS
from augmask.table.infer import infer_column
from augmask.table.notes import is_group_code
from augmask.table.scale import QuantileNormal, knot_probabilities
from augmask.table.schema import NUMERIC, Column, Schema, column_cells

Floats = npt.NDArray[np.float64]

MAX_DISTINCT = 65_536
# Cells that stand for a counted column when its kind is inferred.
REPRESENTATIVE_ROWS = 200_000
# Centroids of a digest; its size is about 16 bytes each.
CENTROIDS = 20_000


# -- quantiles -----------------------------------------------------------------------


def _new_digest() -> Any:
    try:
        from datasketches import tdigest_double
    except ImportError as error:
        raise UsageError(
            "a column of a table in parts has more than "
            f"{MAX_DISTINCT:,} distinct numbers, whose quantiles need datasketches; "
            "pip install 'augmask[cluster]'"
        ) from error
    return tdigest_double(CENTROIDS)


def _digest_of(values: Floats) -> bytes:
    digest = _new_digest()
    digest.update(np.ascontiguousarray(values, dtype=np.float64))
    return bytes(digest.serialize())


def _merged_digest(one: bytes, other: bytes) -> bytes:
    kind = type(_new_digest())
    digest = kind.deserialize(one)
    digest.merge(kind.deserialize(other))
    return bytes(digest.serialize())


def weighted_quantiles(
    values: Floats, counts: npt.NDArray[np.int64], probabilities: Floats
) -> Floats:
    """Return the quantiles of values that occur so often, as `np.percentile` would.

    Examples
    --------
    >>> values, counts = np.array([1.0, 5.0]), np.array([3, 1])
    >>> weighted_quantiles(values, counts, np.array([0.0, 0.5, 0.8, 1.0])).tolist()
    [1.0, 1.0, 2.6000000000000014, 5.0]
    """
    order = np.argsort(values, kind="stable")
    values, ends = values[order], np.cumsum(counts[order])
    # per cent and back, so that they round as numpy's
    position = probabilities * 100 / 100 * (ends[-1] - 1)
    low = np.floor(position)
    left = values[np.searchsorted(ends, low, side="right")]
    high = np.minimum(low + 1, ends[-1] - 1)
    right = values[np.searchsorted(ends, high, side="right")]
    t = position - low
    # the two forms of numpy's own interpolation
    quantiles: Floats = np.where(
        t < 0.5, left + (right - left) * t, right - (right - left) * (1 - t)
    )
    return quantiles


# -- one column ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ColumnSummary:
    """What is known of a column of some rows.

    Parameters
    ----------
    cells : Cells
        Its distinct values, each once, if they were counted; else its extremes if they
        are numbers or dates, else nothing.
    rows, observed : int
    counts : int array, or None
        How often each of `cells` occurs; None if there are too many.
    digest : bytes, or None
        Quantiles of numbers and dates that were not counted.
    """

    cells: Cells
    rows: int
    observed: int
    counts: npt.NDArray[np.int64] | None
    digest: bytes | None = None

    @classmethod
    def of(cls, cells: Cells) -> ColumnSummary:
        """Summarize the cells of some rows."""
        rows, values = len(cells.values), cells.observed_values
        codes, levels = cells.factorized
        if len(levels) <= MAX_DISTINCT:
            counts = np.bincount(codes, minlength=len(levels))
            return cls(_cells_of_values(cells, levels), rows, len(values), counts)
        digest, ends = None, levels[:0]
        if cells.form != "text":
            digest = _digest_of(_as_floats(values))
            ends = np.stack([values.min(), values.max()])
        return cls(_cells_of_values(cells, ends), rows, len(values), None, digest)

    def merged(self, other: ColumnSummary) -> ColumnSummary:
        """Return the summary of the rows of both."""
        rows, observed = self.rows + other.rows, self.observed + other.observed
        if not self.observed or not other.observed:
            known = self if self.observed else other
            return replace(known, rows=rows, observed=observed)
        both = np.concatenate([self.cells.values, other.cells.values])
        codes, levels = pd.factorize(both)
        if self.counts is not None and other.counts is not None:
            weights = np.concatenate([self.counts, other.counts])
            counts = np.zeros(len(levels), np.int64)
            np.add.at(counts, codes, weights)
            if len(levels) <= MAX_DISTINCT:
                cells = _cells_of_values(self.cells, levels)
                return ColumnSummary(cells, rows, observed, counts)
        if self.cells.form == "text":
            cells = _cells_of_values(self.cells, levels[:0])
            return ColumnSummary(cells, rows, observed, None)
        digest = _merged_digest(self._digest_bytes(), other._digest_bytes())
        ends = _cells_of_values(self.cells, np.stack([both.min(), both.max()]))
        return ColumnSummary(ends, rows, observed, None, digest)

    def _digest_bytes(self) -> bytes:
        if self.digest is not None:
            return self.digest
        assert self.counts is not None
        return _digest_of(np.repeat(_as_floats(self.cells.values), self.counts))

    def quantiles(self, column: Column, probabilities: Floats) -> Floats | None:
        """Return quantiles of the encoded values of a numeric column, if known."""
        if self.counts is not None:
            cells = column_cells(self.series(), column)
            values = encode_numbers(cells, column)[cells.observed]
            return weighted_quantiles(
                values, self.counts[cells.observed], probabilities
            )
        if self.digest is None:
            return None
        from datasketches import tdigest_double

        digest = tdigest_double.deserialize(self.digest)
        raw = np.array([digest.get_quantile(float(p)) for p in probabilities])
        if self.cells.form != "float":
            raw = np.rint(raw).astype(self.cells.values.dtype)
        cells = _cells_of_values(self.cells, raw)
        knots = encode_numbers(cells, column)
        exact = encode_numbers(self.cells, column)
        knots[probabilities == 0], knots[probabilities == 1] = exact.min(), exact.max()
        return np.clip(knots, exact.min(), exact.max())

    def series(self) -> pd.Series:
        """Return the distinct values, or the extremes, as a column of a frame."""
        values = self.cells.values
        if self.cells.form == "datetime":
            dates = pd.DatetimeIndex(values.astype("datetime64[ns]"))
            if self.cells.tz is not None:
                dates = dates.tz_localize("UTC").tz_convert(self.cells.tz)
            return pd.Series(dates)
        return pd.Series(values)


def _cells_of_values(cells: Cells, values: Any) -> Cells:
    values = np.asarray(values)
    if cells.form == "datetime":
        values = values.astype("datetime64[ns]")
    return replace(cells, values=values, observed=np.ones(len(values), np.bool_))


def _as_floats(values: npt.NDArray[Any]) -> Floats:
    if values.dtype.kind == "M":
        values = values.astype("datetime64[ns]").astype(np.int64)
    return values.astype(np.float64)


# -- a part, and the whole -----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TableSummary:
    """The summaries of all columns, and a sample of the rows.

    Parameters
    ----------
    columns : dict of str to ColumnSummary
    sample : DataFrame
        Rows drawn at random from the whole table.
    """

    columns: Mapping[str, ColumnSummary]
    sample: pd.DataFrame


def summarize(frame: pd.DataFrame, na_values: Mapping[str, Any]) -> dict[str, Any]:
    """Summarize the columns of a part, given the declared missing-value codes."""
    return {
        str(label): ColumnSummary.of(
            read_cells(frame[label], str(label), na_values.get(str(label), ()))
        )
        for label in frame.columns
    }


def merge(
    one: Mapping[str, ColumnSummary], other: Mapping[str, ColumnSummary]
) -> dict[str, ColumnSummary]:
    """Return the summaries of the rows of two parts."""
    return {name: summary.merged(other[name]) for name, summary in one.items()}


# -- the schema of the whole ---------------------------------------------------------


def _representative_cells(sample: pd.Series, summary: ColumnSummary) -> pd.Series:
    """Return cells that stand for a whole column.

    Counted values occur in proportion, at least once each, and exactly as often as in
    the table if it has few rows; other columns are the sample and their extremes.
    """
    known = summary.series()
    if not len(known):
        return sample
    missing = summary.rows - summary.observed
    if summary.counts is None:
        extremes = known[~known.isin(sample.dropna().unique())]
        return pd.concat([sample, _as_type(extremes, sample)], ignore_index=True)
    scale = min(1.0, REPRESENTATIVE_ROWS / summary.rows)
    counts = np.ceil(summary.counts * scale).astype(np.int64)
    values = _as_type(known, sample).repeat(counts)
    empty = range(len(values), len(values) + int(np.ceil(missing * scale)))
    return values.reset_index(drop=True).reindex([*range(len(values)), *empty])


def _as_type(values: pd.Series, like: pd.Series) -> pd.Series:
    """Return distinct values in the type of the sampled cells."""
    try:
        return values.astype(like.dtype)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"column {like.name!r} holds values of several types, such as "
            f"{values.iloc[0]!r}; rewrite its files"
        ) from error


def complete_column(
    column: Column,
    sample: pd.Series,
    summary: ColumnSummary,
    settings: Mapping[str, Any],
) -> Column:
    """Return a column that was inferred from a sample as the whole table has it.

    Parameters
    ----------
    column : Column
        Inferred from `sample`.
    sample : Series
    summary : ColumnSummary
        Of the whole table.
    settings : mapping
        What the user declares about the column.
    """
    missing_rate = (summary.rows - summary.observed) / summary.rows
    cells = _representative_cells(sample, summary)
    if cells is not sample:
        own = dict(settings) | {"missing_as": column.missing_as}
        distinct = None if summary.counts is None else len(summary.counts)
        settled = column.kind not in ("constant", "all-missing") and not (
            # whole numbers are levels only if they are few
            column.kind == "category"
            and summary.cells.form in ("integer", "float")
            and "kind" not in settings
            and (distinct is None or distinct > MAX_INTEGER_LEVELS)
            and not is_group_code(column)
        )
        if settled:
            own["kind"] = column.kind
        if column.format is not None:
            own["format"] = column.format
        again = infer_column(cells, column.label, own)
        column = replace(
            again,
            dtype=column.dtype if settled else again.dtype,
            reason=column.reason
            if settled and again.reason.startswith("declared")
            else again.reason,
            missing_where=column.missing_where,
            determined_by=column.determined_by,
            seen_with=column.seen_with,
            suspected_na_values=column.suspected_na_values,
        )
    if column.kind == "category" and summary.counts is not None:
        column = _with_counts_of_table(column, summary)
    return replace(column, missing_rate=missing_rate)


def _with_counts_of_table(column: Column, summary: ColumnSummary) -> Column:
    """Return a category whose rare levels are those of the whole table."""
    levels = column.all_levels
    if len(levels) <= MAX_LEVELS:
        return column
    assert summary.counts is not None
    count = dict.fromkeys(levels, 0)
    for value, n in zip(
        summary.cells.values.tolist(), summary.counts.tolist(), strict=True
    ):
        if value in count:
            count[value] = n
    place = {level: i for i, level in enumerate(column.categories or sorted(levels))}
    by_count = sorted(levels, key=lambda level: (-count[level], place[level]))
    frequent, rare = set(by_count[:MAX_LEVELS]), by_count[MAX_LEVELS:]
    return replace(
        column,
        levels=tuple(sorted(frequent, key=place.__getitem__)),
        rare_levels=tuple((level, max(count[level], 1)) for level in rare),
    )


# -- the scaling of the whole --------------------------------------------------------


def fit_scalers(
    schema: Schema,
    summary: TableSummary,
    tie_seed: int | None,
    expected_extremes: bool = False,
) -> dict[str, QuantileNormal]:
    """Return the scaling of every numeric column of the whole table.

    Quantiles are those of all rows; the mean and the deviation of the normal scores,
    which are 0 and 1 but for ties, come from the sample.
    """
    scalers = {}
    for column in schema:
        if column.kind not in NUMERIC:
            continue
        own = summary.columns[column.name]
        numbers, known = encoded_column(summary.sample, column)
        sampled = numbers[known]
        rng = None if tie_seed is None else stream(tie_seed, "ties", column.name)
        points = knot_probabilities(own.observed, dequantized=rng is not None)
        knots = own.quantiles(column, points)
        if knots is None:
            scalers[column.name] = QuantileNormal.fit(sampled, rng, expected_extremes)
            continue
        scalers[column.name] = QuantileNormal.from_knots(
            knots, own.observed, sampled, rng, expected_extremes
        )
    return scalers
