"""`generate`: unconditional rows, rows under conditions, completed partial rows.

A frame of partial rows is completed row by row: known cells stay, the others are drawn.
Unlike in `impute`, columns may be absent, and an unknown level is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from augmask.errors import ConditionError, UsageError, brief_repr, did_you_mean
from augmask.missing.model import MissingModel, draw_missing
from augmask.progress import Progress, silent
from augmask.rng import stream
from augmask.sample.conditional import (
    RowFilter,
    sample_where,
    sample_where_missing,
)
from augmask.sample.constraints import Constraint
from augmask.sample.row_generator import RowGenerator, complete_rows
from augmask.table.codec import parse_formats
from augmask.table.conditions import Where, read_where
from augmask.table.frame_kinds import kind_name
from augmask.table.frames import read_frame
from augmask.table.infer import missing_mask
from augmask.table.schema import Schema
from augmask.table.table import BoolArray, Table

# Rows generated to calibrate the missingness model.
CALIBRATION_ROWS = 4_000
# How often partial rows that violate a constraint are redrawn.
MAX_REDRAWS = 10


# -- missing values of generated rows ----------------------------------------------


def check_missing(missing: Any) -> None:
    """Raise unless `missing` is None or "learned"."""
    if missing is not None and not (isinstance(missing, str) and missing == "learned"):
        raise UsageError(
            "missing must be None (complete rows) or 'learned', got "
            f"{brief_repr(missing)}"
        )


def add_missing_values(
    frames: Iterator[pd.DataFrame], model: MissingModel, seed: int
) -> Iterator[pd.DataFrame]:
    """Yield frames with missing values drawn from `model`."""
    start = 0
    for frame in frames:
        incomplete = draw_missing(model, frame, stream(seed, "holes", start))
        incomplete.attrs = frame.attrs
        start += len(frame)
        yield incomplete


def adjusted_missing_model(
    generator: RowGenerator, constraints: tuple[Constraint, ...], model: MissingModel
) -> MissingModel:
    """Calibrate `model` so that generated rows get the missing rates of the table."""
    frames = generate(generator, CALIBRATION_ROWS, None, constraints)
    rows = pd.concat(frames, ignore_index=True)
    named = rows.set_axis(rows.columns.map(str), axis=1)
    return model.calibrated(named, stream(generator.seed, "holes", "pilot"))


# -- partial rows ------------------------------------------------------------------


def _with_all_columns(rows: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return the rows with every column of the schema, empty where absent."""
    labels = {str(label): label for label in rows.columns}
    for name in labels:
        if name not in schema.names:
            raise ConditionError(
                f"the partial rows have an unknown column {name!r}"
                + did_you_mean(name, schema.names)
            )
    empty = pd.Series([None] * len(rows), dtype=object)
    return pd.concat(
        {c.label: rows[labels[c.name]] if c.name in labels else empty for c in schema},
        axis=1,
    )


def _encode_partial(
    frame: pd.DataFrame, generator: RowGenerator
) -> tuple[Table, BoolArray, BoolArray]:
    """Return the encoded rows, and the known cells of the table and of the frame."""
    codec = generator.codec
    cell_known = ~missing_mask(frame, codec.schema).to_numpy()
    table = codec.encode(frame)
    known = table.observed.copy()
    for j, column in enumerate(codec.schema):
        if not column.learned:
            continue
        # Also where missing is a level: here an empty cell is one to draw.
        known[np.ix_(~cell_known[:, j], generator.features((column.label,)))] = False
        encoded = table.observed[:, codec.layout.names.index(column.name)]
        unknown = cell_known[:, j] & ~encoded
        if unknown.any():
            value = frame[column.label][unknown].iloc[0]
            raise ConditionError(
                f"the partial rows have an unknown level {value!r} in column "
                f"{column.name!r}; leave the cell empty to have it drawn"
            )
    return table, known, cell_known


def _restore_known(drawn: pd.Series, own: pd.Series, known: BoolArray) -> pd.Series:
    """Return the drawn column with the known cells unchanged."""
    if not known.any():
        return drawn
    try:
        cells = own[known].astype(drawn.dtype)
        same = bool((cells == own[known]).all())
    except (TypeError, ValueError):
        same = False
    if not same:
        # Another spelling of the same value, such as a date as text, was decoded.
        return drawn
    drawn = drawn.copy()
    drawn[known] = cells
    return drawn


def complete_partial(
    generator: RowGenerator,
    rows: Any,
    n: int | None,
    constraints: tuple[Constraint, ...] = (),
    progress: Progress = silent,
) -> Iterator[pd.DataFrame]:
    """Return completed partial rows as frames; errors are raised before any is drawn.

    Parameters
    ----------
    generator : RowGenerator
    rows : frame or path
        Columns may be absent and cells empty.
    n : int or None
        If not None, the number of rows that is expected.
    constraints : tuple of Constraint
    progress : callable
    """
    partial = read_frame(rows)
    if n is not None and n != len(partial):
        raise UsageError(
            f"n must be the number of partial rows, {len(partial)}, or be left out, "
            f"got {n}"
        )
    partial = _with_all_columns(partial, generator.codec.schema)
    partial = parse_formats(partial, generator.codec.schema)
    table, known, cell_known = _encode_partial(partial, generator)
    identifiers = [c.label for c in generator.codec.schema if c.kind == "identifier"]

    def draw(at: np.ndarray, *name: str | int) -> pd.DataFrame:
        num, cat, _ = complete_rows(
            generator.backbone,
            table.num[at],
            table.cat[at],
            known[at],
            generator.random_stream("partial", *name),
        )
        frame = generator.decode(num, cat, int(at[0]), "partial", *name)
        own = partial.iloc[at].reset_index(drop=True)
        for j, label in enumerate(own.columns):
            frame[label] = _restore_known(frame[label], own[label], cell_known[at, j])
        return frame

    def redraw_violations(frame: pd.DataFrame, at: np.ndarray) -> pd.DataFrame:
        for turn in range(MAX_REDRAWS + 1):
            valid = np.ones(len(frame), dtype=np.bool_)
            for constraint in constraints:
                valid &= constraint.holds(frame)
            if valid.all():
                return frame
            bad = np.flatnonzero(~valid)
            if turn < MAX_REDRAWS:
                redrawn = draw(at[bad], int(at[0]), turn).set_index(bad)
                # Fresh identifiers would repeat those of other rows.
                redrawn[identifiers] = frame.loc[bad, identifiers]
                frame = pd.concat([frame[valid], redrawn]).sort_index()
        raise ConditionError(
            f"{len(bad):,} of {len(frame):,} partial rows violated a constraint in "
            f"each of {MAX_REDRAWS} draws, the first is number {at[bad[0]]}; correct "
            "its known cells"
        )

    def batches() -> Iterator[pd.DataFrame]:
        size = generator.settings.sampling_batch
        for start in range(0, len(partial), size):
            at = np.arange(start, min(start + size, len(partial)))
            yield redraw_violations(draw(at, start), at)
            progress("sample", int(at[-1]) + 1, len(partial), {})

    return batches()


# -- all of it ---------------------------------------------------------------------


def is_partial_rows(where: Any) -> bool:
    """Whether it can only be partial rows; anything else is read as a condition."""
    return isinstance(where, pd.DataFrame | Path) or kind_name(where) != "pandas"


def _check_missing_columns(where: Where, schema: Schema, learned: bool) -> None:
    """Raise if a column must be missing that never is."""
    for label, missing in where.missing_columns.items():
        column = schema[str(label)]
        if not missing or column.missing_is_level:
            continue
        if not column.missing_rate:
            raise ConditionError(
                f"column {column.name!r} cannot be missing: it has no missing values "
                "in the table"
            )
        if not learned:
            raise ConditionError(
                f"column {column.name!r} cannot be missing in complete rows; pass "
                "missing='learned' (--missing learned) to have rows with missing values"
            )


def generate(
    generator: RowGenerator,
    n: int | None,
    where: Any = None,
    constraints: tuple[Constraint, ...] = (),
    progress: Progress = silent,
    missing: Callable[[], MissingModel] | None = None,
) -> Iterator[pd.DataFrame]:
    """Return rows as frames; invalid arguments raise before any row is drawn.

    Parameters
    ----------
    generator : RowGenerator
    n : int or None
        None uses the number of partial rows in `where`.
    where : mapping, str, frame of partial rows, or None
    constraints : tuple of Constraint
    progress : callable
    missing : callable, optional
        Returns the model of the missing values that rows get; without it they are
        complete.
    """
    if is_partial_rows(where):
        frames = complete_partial(generator, where, n, constraints, progress)
    elif n is None:
        raise UsageError(
            "n, the number of rows, must be given unless `where` is a frame of partial "
            "rows, got None"
        )
    elif where is None and not constraints:
        frames = map(generator.decode_batch, generator.batches(n, progress))
    else:
        schema = generator.codec.schema
        condition, rest = None, Where()
        if where is not None:
            asked = read_where(where, schema)
            _check_missing_columns(asked, schema, missing is not None)
            condition, rest = asked.split(
                {c.label for c in schema if c.missing_is_level}
                if missing is not None
                else asked.columns
            )
        row_filter = RowFilter(condition, constraints)
        if missing is not None and rest.columns:
            return sample_where_missing(
                generator, n, row_filter, rest, missing(), progress
            )
        frames = sample_where(generator, n, row_filter, progress)
    if missing is None:
        return frames
    return add_missing_values(frames, missing(), generator.seed)
