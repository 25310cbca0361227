"""Impute the missing values of a user's rows; all other cells stay unchanged."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from operator import eq
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from augmask.errors import AugMaskWarning, DataError, did_you_mean
from augmask.progress import Progress, silent
from augmask.rng import stream, stream_seed
from augmask.sample.imputations import (
    ClassProbs,
    Imputations,
    ImputedColumn,
    fill_column,
)
from augmask.sample.row_generator import RowGenerator, complete_rows
from augmask.table.cells import Cells
from augmask.table.codec import Codec, as_written, level_indices
from augmask.table.dtype_recovery import TO_FORM
from augmask.table.frame_kinds import collected, give_back
from augmask.table.frames import read_frame
from augmask.table.schema import NUMERIC, Column, Schema, column_cells
from augmask.table.table import BoolArray, FloatArray, Layout, Table

# Unknown values of a column that a warning names.
MAX_NAMED = 5

# Levels of a table that its model did not learn, by the name of their column.
UnknownLevels = dict[str, list[Any]]


@dataclass(frozen=True, eq=False)
class _Target:
    """A learned column of a user's frame and the cells to impute."""

    column: Column
    label: Any
    cells: Cells
    fill: BoolArray
    as_text: bool = False


def _labels(frame: pd.DataFrame, schema: Schema) -> dict[str, Any]:
    """Return the frame's label of every column of the schema that it has."""
    labels = {str(label): label for label in frame.columns}
    others = [name for name in labels if name not in schema.names]
    for column in schema:
        if column.learned and column.name not in labels:
            hint = did_you_mean(column.name, others, every=False)
            raise DataError(
                f"the learned column {column.name!r} is absent; add it, empty if "
                f"nothing is known{hint}"
            )
    return {name: label for name, label in labels.items() if name in schema.names}


def _is_text(series: pd.Series) -> bool:
    """Whether a column of the user's holds text, or nothing so far."""
    own = pd.api.types.infer_dtype(series, skipna=True)
    return own in ("string", "empty") or not series.notna().any()


def _targets(
    frame: pd.DataFrame, codec: Codec, table: Table
) -> tuple[list[_Target], UnknownLevels]:
    """Return the learned columns with cells to impute, and levels not learned.

    Missing values modelled as a level are values; a level that was not learned counts
    as missing.
    """
    labels, place = _labels(frame, codec.schema), codec.layout.names.index
    targets: list[_Target] = []
    unknown: UnknownLevels = {}
    for column in codec.schema:
        if not column.learned:
            continue
        label = labels[column.name]
        cells = column_cells(frame[label], column)
        missing = ~table.observed[:, place(column.name)]
        new_level = missing & cells.observed
        if new_level.any():
            unknown[column.name] = list(pd.unique(pd.Series(cells.values[new_level])))
        fill = missing if not column.missing_is_level else new_level
        if fill.any():
            as_text = column.format is not None and _is_text(frame[label])
            targets.append(_Target(column, label, cells, fill, as_text))
    return targets, unknown


def warn_of_unknown(unknown: UnknownLevels) -> None:
    """Warn that these levels are imputed, if there are any."""
    columns = []
    for name, levels in unknown.items():
        text = ", ".join(repr(level) for level in levels[:MAX_NAMED])
        extra = len(levels) - MAX_NAMED
        more = f" and {extra} more" if extra > 0 else ""
        columns.append(f"column {name!r}: {text}{more}")
    if columns:
        warnings.warn(
            "values that were not learned count as missing and are imputed: "
            + "; ".join(columns),
            AugMaskWarning,
            stacklevel=4,
        )


# -- the dtype of an imputed column ------------------------------------------------


def _same_numbers(own: pd.Series, typed: pd.Series) -> bool:
    """Return whether a user's numbers survive a conversion exactly."""
    if own.dtype.kind not in "iufb":
        # Text and decimals may have more digits than a float.
        pairs = zip(own.tolist(), typed.tolist(), strict=True)
        return all(Decimal(str(a)) == Decimal(str(b)) for a, b in pairs)
    if own.dtype.kind in "iu" and typed.dtype.kind == "f":
        # As floats, integers beyond 2**53 would equal their neighbours.
        return all(map(eq, own.tolist(), typed.tolist()))
    return bool((typed == own).all())


def _converted(target: _Target, own: pd.Series, dtype: Any) -> pd.Series | None:
    """Return the column's cells in a dtype; None if that would change one.

    Cells that are imputed may have any value.
    """
    column, cells = target.column, target.cells
    if cells.form == "empty":
        return None
    missing = ~cells.observed & ~target.fill
    if column.kind == "category":
        # As objects, so that an integer stays one.
        levels = pd.Series(column.all_levels, dtype=object)
        place = np.maximum(level_indices(cells, column), 0)
        series = levels.iloc[place].reset_index(drop=True)
        return (series.mask(missing) if missing.any() else series).astype(dtype)
    plain = TO_FORM[column.kind](cells)
    if plain is None:
        return None
    series = pd.Series(plain.values)
    if column.kind == "datetime" and column.tz is not None:
        series = series.dt.tz_localize("UTC").dt.tz_convert(column.tz)
    kept = cells.observed & ~target.fill
    typed = series.astype(dtype)
    if not (typed[kept] == series[kept]).all():
        return None
    numeric = column.kind in ("integer", "float") and cells.form != "boolean"
    if numeric and not _same_numbers(own[kept], typed[kept]):
        return None
    return typed.mask(missing) if missing.any() else typed


def _first_completion(
    frame: pd.DataFrame, target: _Target, values: pd.Series
) -> pd.Series:
    """Return the column with its first draw, in the dtype of `sample` if possible."""
    series, rows = frame[target.label], np.flatnonzero(target.fill)
    if target.as_text:
        if not series.notna().any():
            series = pd.Series([None] * len(series), series.index, dtype=object)
            series = series.astype(target.column.dtype)
        return fill_column(series, rows, as_written(target.column, values))
    if series.dtype != values.dtype:
        typed = _converted(target, series.reset_index(drop=True), values.dtype)
        if typed is not None:
            series = typed.set_axis(series.index)
    return fill_column(series, rows, values)


# -- class probabilities -----------------------------------------------------------


class _ClassProbSums:
    """The network's class probabilities of one column's cells, summed over draws."""

    def __init__(self, target: _Target, layout: Layout) -> None:
        column = target.column
        self.column = column
        self.slots: slice | None = None
        if column.kind in NUMERIC:
            return
        ends = np.cumsum((0, *layout.cards))
        j = layout.cat_names.index(column.name)
        self.slots = slice(int(ends[j]), int(ends[j + 1]))
        # The position in `sums` of a row of the frame.
        self.place = np.cumsum(target.fill) - 1
        self.sums = np.zeros((target.fill.sum(), layout.cards[j]), np.float32)

    def add(self, rows: npt.NDArray[np.intp], class_probs: FloatArray) -> None:
        if self.slots is not None:
            # A batch may contain a row twice, for two draws.
            np.add.at(self.sums, self.place[rows], class_probs[:, self.slots])

    def normalized(self) -> ClassProbs | None:
        if self.slots is None:
            return None
        column, sums = self.column, self.sums
        if column.missing_is_level:
            # An imputed cell does not become missing.
            sums = sums[:, :-1]
        if column.kind == "boolean":
            levels: list[Any] = [False, True]
        else:
            levels = column.all_levels
        if column.rare_levels:
            weight = np.array([count for _, count in column.rare_levels], np.float64)
            rare = sums[:, -1:] * (weight / weight.sum())
            sums = np.concatenate([sums[:, :-1], rare], axis=1)
        # Uniform where all probability was on "missing".
        sums = sums + np.finfo(np.float32).tiny
        return ClassProbs(levels, sums / sums.sum(1, keepdims=True))


# -- imputation --------------------------------------------------------------------


def _draw(
    generator: RowGenerator, table: Table, n_draws: int, progress: Progress
) -> Iterator[tuple[slice, pd.DataFrame, FloatArray]]:
    """Yield completed rows and class probabilities: all draws of row 0, of row 1, ...

    In this order every member of an ensemble, which take rows in turn, contributes to
    each row.
    """
    total, size = len(table) * n_draws, generator.settings.sampling_batch
    seed = generator.seed
    for batch, start in enumerate(range(0, total, size)):
        part = slice(start, min(start + size, total))
        rows = np.arange(part.start, part.stop) // n_draws
        noise = torch.Generator(generator.device)
        noise.manual_seed(stream_seed(seed, "impute", batch))
        num, cat, class_probs = complete_rows(
            generator.backbone,
            table.num[rows],
            table.cat[rows],
            table.observed[rows],
            noise,
            class_probs=True,
        )
        progress("impute", part.stop, total, {})
        rng = stream(seed, "impute decode", batch)
        yield part, generator.codec.decode(num, cat, rng, start), class_probs


def impute(
    data: Any,
    generator: RowGenerator,
    n_draws: int = 1,
    progress: Progress = silent,
    tell: Callable[[UnknownLevels], None] = warn_of_unknown,
) -> Imputations:
    """Return `n_draws` completions of a table.

    Parameters
    ----------
    data : DataFrame, polars frame, Arrow table or path
        Rows with missing values, whether the model was trained on them or not. Columns
        that were not learned stay as they are.
    generator : RowGenerator
    n_draws : int
    progress : callable
    tell : callable
        Gets the levels that were not learned.
    """
    codec = generator.codec
    data = collected(data)
    frame = read_frame(data)
    labels = _labels(frame, codec.schema)
    ties_seed = None
    if generator.settings.ties == "dequantize":
        ties_seed = stream_seed(generator.seed, "impute ties")
    table = codec.encode(frame[list(labels.values())], ties_seed)
    targets, unknown = _targets(frame, codec, table)
    tell(unknown)
    if isinstance(data, pd.DataFrame):
        frame.index = data.index
    changed = [target.label for target in targets]
    own_kind = partial(give_back, data, changed=changed)
    if not targets:
        return Imputations(frame, {}, n_draws, own_kind)

    # Complete rows are not passed to the network.
    rows = np.flatnonzero(np.any([target.fill for target in targets], axis=0))
    part = Table(table.num[rows], table.cat[rows], table.observed[rows], table.layout)
    drawn: dict[Any, list[pd.Series]] = {target.label: [] for target in targets}
    probs = {target.label: _ClassProbSums(target, codec.layout) for target in targets}
    for place, batch, class_probs in _draw(generator, part, n_draws, progress):
        at = rows[np.arange(place.start, place.stop) // n_draws]
        for target in targets:
            here = target.fill[at]
            drawn[target.label].append(batch[target.column.label][here])
            probs[target.label].add(at[here], class_probs[here])
    imputed = {}
    for target in targets:
        label = target.label
        values = pd.concat(drawn[label], ignore_index=True)
        draws = [values.iloc[k::n_draws].reset_index(drop=True) for k in range(n_draws)]
        imputed[label] = ImputedColumn(
            np.flatnonzero(target.fill),
            draws,
            probs[label].normalized(),
            partial(as_written, target.column) if target.as_text else None,
        )
        frame[label] = _first_completion(frame, target, draws[0])
    return Imputations(frame, imputed, n_draws, own_kind)
