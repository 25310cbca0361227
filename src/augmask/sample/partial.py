"""Partial rows are completed one by one: what is given stays, the rest is drawn.

Other than in `impute`, a column may be absent altogether, and nothing given may be
impossible: rows are asked for here, not repaired.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from augmask.errors import ConditionError, UsageError, did_you_mean
from augmask.progress import Progress, silent
from augmask.sample.constraints import Constraint
from augmask.sample.inpaint import complete_rows
from augmask.sample.source import Source
from augmask.table.frames import read_frame
from augmask.table.infer import missing_mask
from augmask.table.schema import Schema
from augmask.table.table import BoolArray, Table

# Rows that break a rule are drawn again so often.
MOST_ROUNDS = 10


def _whole(rows: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return the rows with every column of the schema, empty where it is absent."""
    labels = {str(label): label for label in rows.columns}
    for name in labels:
        if name not in schema.names:
            raise ConditionError(
                f"a partial row has the column {name!r}, which the model does not have"
                + did_you_mean(name, schema.names)
            )
    empty = pd.Series([None] * len(rows), dtype=object)
    return pd.concat(
        {c.label: rows[labels[c.name]] if c.name in labels else empty for c in schema},
        axis=1,
    )


def _encoded(whole: pd.DataFrame, source: Source) -> tuple[Table, BoolArray, BoolArray]:
    """Return the rows as a table, which of its cells are known, and the frame's."""
    codec = source.codec
    given = ~missing_mask(whole, codec.schema).to_numpy()
    table = codec.encode(whole)
    known = table.observed.copy()
    for j, column in enumerate(codec.schema):
        if not column.learned:
            continue
        # also where a hole is a value: here it stands for what is to be drawn
        known[np.ix_(~given[:, j], source.features((column.label,)))] = False
        strange = (
            given[:, j] & ~table.observed[:, codec.layout.names.index(column.name)]
        )
        if strange.any():
            value = whole[column.label][strange].iloc[0]
            raise ConditionError(
                f"a partial row has {value!r} in column {column.name!r}, a level that "
                "was never seen; leave the cell empty to have it drawn"
            )
    return table, known, given


def _pasted(drawn: pd.Series, own: pd.Series, given: BoolArray) -> pd.Series:
    """Return the drawn column with the given cells as they are."""
    if not given.any():
        return drawn
    try:
        cells = own[given].astype(drawn.dtype)
        same = bool((cells == own[given]).all())
    except (TypeError, ValueError):
        same = False
    if not same:
        # Another spelling of the same value, such as a date as text: it was decoded.
        return drawn
    drawn = drawn.copy()
    drawn[given] = cells
    return drawn


def completed_rows(
    source: Source,
    rows: Any,
    n: int | None,
    constraints: tuple[Constraint, ...] = (),
    progress: Progress = silent,
) -> Iterator[pd.DataFrame]:
    """Return partial rows, completed, as frames; errors come before any is drawn.

    Parameters
    ----------
    source : Source
    rows : frame or path
        Columns may be absent and cells empty.
    n : int or None
        If given, how many rows there must be.
    rules : tuple of Rule
    progress : callable
    """
    frame = read_frame(rows)
    if n is not None and n != len(frame):
        raise UsageError(
            f"n must be left out or be that of the partial rows, {len(frame)}, got {n}"
        )
    whole = _whole(frame, source.codec.schema)
    table, known, given = _encoded(whole, source)
    identifiers = [c.label for c in source.codec.schema if c.kind == "identifier"]

    def drawn(at: np.ndarray, *name: str | int) -> pd.DataFrame:
        num, cat, _ = complete_rows(
            source.backbone,
            table.num[at],
            table.cat[at],
            known[at],
            source.generator("partial", *name),
        )
        made = source.decoded(num, cat, int(at[0]), "partial", *name)
        own = whole.iloc[at].reset_index(drop=True)
        for j, label in enumerate(own.columns):
            made[label] = _pasted(made[label], own[label], given[at, j])
        return made

    def kept(made: pd.DataFrame, at: np.ndarray) -> pd.DataFrame:
        for turn in range(MOST_ROUNDS + 1):
            good = np.ones(len(made), dtype=np.bool_)
            for constraint in constraints:
                good &= constraint.holds(made)
            if good.all():
                return made
            broken = np.flatnonzero(~good)
            if turn < MOST_ROUNDS:
                again = drawn(at[broken], int(at[0]), turn).set_index(broken)
                # numbered from the first of them on, they would meet other rows
                again[identifiers] = made.loc[broken, identifiers]
                made = pd.concat([made[good], again]).sort_index()
        raise ConditionError(
            f"{len(broken):,} of {len(made):,} partial rows broke a rule each of "
            f"{MOST_ROUNDS} times, the first is number {at[broken[0]]}; correct what "
            "is given there"
        )

    def batches() -> Iterator[pd.DataFrame]:
        size = source.settings.sampling_batch
        for start in range(0, len(whole), size):
            at = np.arange(start, min(start + size, len(whole)))
            yield kept(drawn(at, start), at)
            progress("sample", int(at[-1]) + 1, len(whole), {})

    return batches()
