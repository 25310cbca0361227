"""From a wish to frames: plain rows, rows under conditions, rows with holes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from augmask.errors import UsageError
from augmask.missing.learned import draw_missing
from augmask.missing.model import MissingModel
from augmask.progress import Progress, silent
from augmask.rng import stream
from augmask.sample.condition import Demand, satisfying
from augmask.sample.constraints import Constraint
from augmask.sample.partial import completed_rows
from augmask.sample.source import Source
from augmask.table.where import read_where

# Rows that tell how far the model's rows are from the table's.
PILOT = 4_000


def check_missing(missing: Any) -> None:
    """Raise unless the wish for holes can be met."""
    if missing not in (None, "learned"):
        raise UsageError(
            f"missing must be None (complete rows) or 'learned', got {missing!r}"
        )


def holed(
    frames: Iterator[pd.DataFrame], model: MissingModel, seed: int
) -> Iterator[pd.DataFrame]:
    """Yield frames with the holes that one would have found in them."""
    start = 0
    for frame in frames:
        with_holes = draw_missing(model, frame, stream(seed, "holes", start))
        with_holes.attrs = frame.attrs
        start += len(frame)
        yield with_holes


def adjusted_missing_model(
    source: Source, constraints: tuple[Constraint, ...], model: MissingModel
) -> MissingModel:
    """Return the model of holes that gives rows of this source the table's rates."""
    rows = pd.concat(generate(source, PILOT, None, constraints), ignore_index=True)
    named = rows.set_axis(rows.columns.map(str), axis=1)
    return model.suited(named, stream(source.seed, "holes", "pilot"))


def _plain(source: Source, n: int, progress: Progress) -> Iterator[pd.DataFrame]:
    return map(source.frame_of, source.batches(n, progress))


def generate(
    source: Source,
    n: int | None,
    where: Any = None,
    constraints: tuple[Constraint, ...] = (),
    progress: Progress = silent,
) -> Iterator[pd.DataFrame]:
    """Return rows as frames; what is wrong with the wish is said before any is drawn.

    Parameters
    ----------
    source : Source
    n : int or None
        None takes the number of rows from the frame `where`.
    where : mapping, str, frame or None
    rules : tuple of Rule
    progress : callable
    """
    if where is not None and not isinstance(where, str | Mapping | int | float):
        return completed_rows(source, where, n, constraints, progress)
    if n is None:
        raise UsageError("n must be a whole number of at least 1, got None")
    if where is None and not constraints:
        return _plain(source, n, progress)
    wanted = None if where is None else read_where(where, source.codec.schema)
    return satisfying(source, n, Demand(wanted, constraints), progress)
