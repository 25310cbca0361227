"""Fill the holes of a user's rows; every other cell comes back as it was."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from operator import eq
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from augmask.errors import AugMaskWarning, DataError, did_you_mean
from augmask.progress import Progress, silent
from augmask.rng import stream, stream_seed
from augmask.sample.inpaint import complete_rows
from augmask.sample.multiple import Filled, Imputations, Shares, completed
from augmask.sample.source import Source
from augmask.table.cells import Cells, read_cells
from augmask.table.encode import Codec, level_places
from augmask.table.frames import read_frame
from augmask.table.recover import to_boolean, to_datetime, to_float, to_integer
from augmask.table.schema import NUMERIC, Column, Schema
from augmask.table.table import BoolArray, FloatArray, Layout, Table

# so many values of a column are named in a warning
NAMED = 5


@dataclass(frozen=True, eq=False)
class _Holes:
    """A learned column of a user's frame, and where it is to be filled."""

    column: Column
    label: Any
    cells: Cells
    fill: BoolArray


def _labels(frame: pd.DataFrame, schema: Schema) -> dict[str, Any]:
    """Return the frame's label of every column of the schema that it has."""
    labels = {str(label): label for label in frame.columns}
    for name in labels:
        if name not in schema.names:
            raise DataError(
                f"the table must have no columns but those that were learned, got "
                f"{name!r}{did_you_mean(name, schema.names)}"
            )
    for column in schema:
        if column.learned and column.name not in labels:
            raise DataError(
                f"the table must have the column {column.name!r} that was learned; add "
                "it, empty if nothing is known"
            )
    return labels


def _holes(frame: pd.DataFrame, codec: Codec, table: Table) -> list[_Holes]:
    """Return every learned column with what is to be filled, if it is anything.

    A hole that was declared a level is a value; a level that was never learned is a
    hole.
    """
    labels, place = _labels(frame, codec.schema), codec.layout.names.index
    found, strange = [], []
    for column in codec.schema:
        if not column.learned:
            continue
        label = labels[column.name]
        cells = read_cells(frame[label], column.name, column.na_values)
        empty = ~table.observed[:, place(column.name)]
        unseen = empty & cells.observed
        if unseen.any():
            levels = pd.unique(pd.Series(cells.values[unseen]))
            shown = ", ".join(repr(level) for level in levels[:NAMED])
            more = f" and {len(levels) - NAMED} more" if len(levels) > NAMED else ""
            strange.append(f"column {column.name!r}: {shown}{more}")
        fill = empty if not column.gated else unseen
        if fill.any():
            found.append(_Holes(column, label, cells, fill))
    if strange:
        warnings.warn(
            "values that were not learned are taken for holes and filled: "
            + "; ".join(strange),
            AugMaskWarning,
            stacklevel=4,
        )
    return found


def _same_numbers(own: pd.Series, typed: pd.Series) -> bool:
    """Say whether a user's numbers and what was made of them are equal, not nearly."""
    if own.dtype.kind not in "iufb":
        # digits of text or of decimals, of which a float may hold too few
        pairs = zip(own.tolist(), typed.tolist(), strict=True)
        return all(Decimal(str(a)) == Decimal(str(b)) for a, b in pairs)
    if own.dtype.kind in "iu" and typed.dtype.kind == "f":
        # as floats, whole numbers beyond 2**53 would equal their neighbours
        return all(map(eq, own.tolist(), typed.tolist()))
    return bool((typed == own).all())


def _canonical(holes: _Holes, own: pd.Series, dtype: Any) -> pd.Series | None:
    """Return the column's cells in a type; None where that type would change one.

    What stands in cells that are filled does not matter.
    """
    column, cells = holes.column, holes.cells
    if cells.form == "empty":
        return None
    if column.kind == "category":
        return _levels(holes, dtype)
    read = {"integer": to_integer, "float": to_float}
    read |= {"boolean": to_boolean, "datetime": to_datetime}
    plain = read[column.kind](cells)
    if plain is None:
        return None
    series = pd.Series(plain.values)
    if column.kind == "datetime" and column.tz is not None:
        series = series.dt.tz_localize("UTC").dt.tz_convert(column.tz)
    seen = cells.observed & ~holes.fill
    typed = series.astype(dtype)
    if not (typed[seen] == series[seen]).all():
        return None
    counts = column.kind in ("integer", "float") and cells.form != "boolean"
    if counts and not _same_numbers(own[seen], typed[seen]):
        return None
    gap = ~cells.observed & ~holes.fill
    return typed.mask(gap) if gap.any() else typed


def _levels(holes: _Holes, dtype: Any) -> pd.Series:
    column, cells = holes.column, holes.cells
    place = level_places(cells, column)
    # as objects, so that a whole number stays one
    table = pd.Series(column.every_level, dtype=object)
    series = table.iloc[np.maximum(place, 0)].reset_index(drop=True)
    gap = ~cells.observed & ~holes.fill
    return (series.mask(gap) if gap.any() else series).astype(dtype)


def _first(frame: pd.DataFrame, holes: _Holes, drawn: pd.Series) -> pd.Series:
    """Return the column with its first draw, in the type that `sample` gives it."""
    series, rows = frame[holes.label], np.flatnonzero(holes.fill)
    if series.dtype != drawn.dtype:
        typed = _canonical(holes, series.reset_index(drop=True), drawn.dtype)
        if typed is not None:
            series = typed.set_axis(series.index)
    return completed(series, rows, drawn)


class _Belief:
    """What the network took the holes of one column to be, summed over draws."""

    def __init__(self, holes: _Holes, layout: Layout) -> None:
        column = holes.column
        self.column = column
        self.slots: slice | None = None
        if column.kind in NUMERIC:
            return
        ends = np.cumsum((0, *layout.cards))
        j = layout.cat_names.index(column.name)
        self.slots = slice(int(ends[j]), int(ends[j + 1]))
        # where in `sums` a row of the frame is
        self.place = np.cumsum(holes.fill) - 1
        self.sums = np.zeros((holes.fill.sum(), layout.cards[j]), np.float32)

    def add(self, rows: npt.NDArray[np.intp], class_probs: FloatArray) -> None:
        if self.slots is not None:
            # a batch may hold a row twice, in two draws
            np.add.at(self.sums, self.place[rows], class_probs[:, self.slots])

    def shares(self) -> Shares | None:
        if self.slots is None:
            return None
        column, sums = self.column, self.sums
        if column.gated:
            # a hole that is filled does not become one of the kept ones
            sums = sums[:, :-1]
        if column.kind == "boolean":
            levels: list[Any] = [False, True]
        else:
            levels = column.every_level
        if column.folded:
            weight = np.array([count for _, count in column.folded], np.float64)
            rare = sums[:, -1:] * (weight / weight.sum())
            sums = np.concatenate([sums[:, :-1], rare], axis=1)
        # all belief may have been in a kept hole: then nothing is known of the rest
        sums = sums + np.finfo(np.float32).tiny
        return Shares(levels, sums / sums.sum(1, keepdims=True))


def _drawn(
    source: Source, table: Table, draws: int, progress: Progress
) -> Iterator[tuple[slice, pd.DataFrame, FloatArray]]:
    """Yield completed rows and beliefs: all draws of the first row, of the second, ...

    So the members of an ensemble, which take rows in turn, all have their say in a row.
    """
    n, size, seed = len(table), source.settings.sampling_batch, source.seed
    for batch, start in enumerate(range(0, n * draws, size)):
        part = slice(start, min(start + size, n * draws))
        rows = np.arange(part.start, part.stop) // draws
        generator = torch.Generator(source.device)
        generator.manual_seed(stream_seed(seed, "impute", batch))
        num, cat, class_probs = complete_rows(
            source.backbone,
            table.num[rows],
            table.cat[rows],
            table.observed[rows],
            generator,
            believe=True,
        )
        progress("impute", part.stop, n * draws, {})
        decoding = stream(seed, "impute decode", batch)
        yield part, source.codec.decode(num, cat, decoding, start), class_probs


def impute(
    data: Any, source: Source, draws: int = 1, progress: Progress = silent
) -> Imputations:
    """Return `draws` completions of a table.

    Parameters
    ----------
    data : DataFrame, polars frame, Arrow table or path
        Rows with holes, whether they were learned from or not.
    source : Source
    draws : int
    progress : callable
    """
    codec = source.codec
    frame = read_frame(data)
    _labels(frame, codec.schema)
    spread = None
    if source.settings.ties == "dequantize":
        spread = stream_seed(source.seed, "impute ties")
    table = codec.encode(frame, spread)
    holes = _holes(frame, codec, table)
    if isinstance(data, pd.DataFrame):
        frame.index = data.index
    if not holes:
        return Imputations(frame, {}, draws)

    # rows without a hole are not run
    rows = np.flatnonzero(np.any([one.fill for one in holes], axis=0))
    part = Table(table.num[rows], table.cat[rows], table.observed[rows], table.layout)
    parts: dict[Any, list[pd.Series]] = {one.label: [] for one in holes}
    sums = {one.label: _Belief(one, codec.layout) for one in holes}
    for place, rows_drawn, class_probs in _drawn(source, part, draws, progress):
        at = rows[np.arange(place.start, place.stop) // draws]
        for one in holes:
            here = one.fill[at]
            parts[one.label].append(rows_drawn[one.column.label][here])
            sums[one.label].add(at[here], class_probs[here])
    filled = {}
    for one in holes:
        values = pd.concat(parts[one.label], ignore_index=True)
        where = np.flatnonzero(one.fill)
        each = [values.iloc[k::draws].reset_index(drop=True) for k in range(draws)]
        filled[one.label] = Filled(where, each, sums[one.label].shares())
        frame[one.label] = _first(frame, one, filled[one.label].values[0])
    return Imputations(frame, filled, draws)
