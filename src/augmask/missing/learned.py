"""The holes of a learned table, drawn again into generated rows.

`MissingModel` is learned from the table as its complete rows will be generated: same
dtypes, same levels. Holes that a column keeps as a value of its own are generated with
the rows and are values here, so they may explain other holes. Identifiers miss where
they missed, but a fresh identifier says nothing about the row.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from augmask.missing.model import MissingModel, with_holes
from augmask.table.encode import Codec
from augmask.table.infer import missing_mask
from augmask.table.schema import NUMERIC
from augmask.table.table import Table

# Learning takes time in proportion to the rows, and more of them change little: so many
# give each rate within half a point.
MOST_ROWS = 20_000
# Beyond this a float no longer holds every whole number.
WHOLE = 2.0**53


def fit_missing_model(
    frame: pd.DataFrame, codec: Codec, table: Table, rng: np.random.Generator
) -> MissingModel:
    """Return the model of P(observed | row) for an encoded frame.

    Parameters
    ----------
    frame : pandas.DataFrame
        With holes.
    codec : Codec
        Fitted on it.
    table : Table
        `codec.encode(frame)`.
    rng : numpy.random.Generator
    """
    if len(frame) > MOST_ROWS:
        some = np.sort(rng.choice(len(frame), MOST_ROWS, replace=False))
        frame = frame.iloc[some].reset_index(drop=True)
        table = Table(
            table.num[some], table.cat[some], table.observed[some], table.layout
        )
    names = [column.name for column in codec.schema]
    hidden = missing_mask(frame, codec.schema).rename(columns=str)[names]
    for column in codec.schema:
        # Generated as empty, or generated with its holes: none are to be added.
        if column.gated or column.kind == "all-missing":
            hidden[column.name] = False
    rows = codec.decode(table.num, table.cat, rng, derive=False).rename(columns=str)
    numeric = [column.name for column in codec.schema if column.kind in NUMERIC]
    return MissingModel().fit(rows, numeric, hidden)


def _roomy(column: pd.Series) -> pd.Series:
    """Return a column in the dtype that pandas gives it when it has holes."""
    kind = column.dtype
    if kind == np.dtype(bool):
        return column.astype(object)
    if isinstance(kind, np.dtype) and kind.kind in "iu":
        wide = column.abs().max() >= WHOLE
        return column.astype("Int64" if wide else "float64")
    return column


def draw_missing(
    model: MissingModel, rows: pd.DataFrame, rng: np.random.Generator
) -> pd.DataFrame:
    """Return complete rows with the holes that one would have found in them.

    Every column that had holes comes in a dtype that can have them, whether it has
    some in these rows or not: whole numbers as float64 (Int64 beyond 2**53), booleans
    as objects; text, categories, dates and floats stay what they are.
    """
    named = rows.set_axis(rows.columns.map(str), axis=1)
    observed = model.observed(named, rng)
    holed = {j for factor in model.factors_ for j in factor.columns}
    roomy = [
        _roomy(rows.iloc[:, j]) if j in holed else rows.iloc[:, j]
        for j in range(rows.shape[1])
    ]
    frame = pd.concat(roomy, axis=1).set_axis(rows.columns, axis=1)
    return with_holes(frame, observed)
