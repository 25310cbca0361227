"""Tables for peers that want plain data: numbers unscaled, categories as codes.

Peers have scalings of their own, so theirs is a codec that leaves numbers as they are.
The way back is the one of all models: ranges, whole numbers, decimals, levels and
dtypes come from the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import DataError
from augmask.table.encode import Codec
from augmask.table.infer import Overrides, infer_schema
from augmask.table.scale import QuantileNormal
from augmask.table.schema import NUMERIC, Schema
from augmask.table.table import Layout, Table

Rows = tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]


class AsIs(QuantileNormal):
    """The scaling that leaves numbers as they are."""

    def __init__(self) -> None:
        super().__init__(np.zeros(1), 0.0, 1.0)

    def transform(
        self, values: npt.NDArray[Any], rng: np.random.Generator | None = None
    ) -> npt.NDArray[np.float64]:
        """Return the values."""
        del rng
        return np.asarray(values, np.float64)

    def inverse(self, z: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the values."""
        return np.asarray(z, np.float64)


def plain_codec(frame: pd.DataFrame, kinds: Overrides = None) -> Codec:
    """Return the codec of a frame that does not scale its numbers.

    Parameters
    ----------
    frame : pandas.DataFrame
    kinds : Schema, mapping or path, optional
        What is known about its columns, as for `infer_schema`.

    Examples
    --------
    >>> frame = pd.DataFrame({"kg": [71.5, None, 60.25], "sex": ["f", "m", None]})
    >>> codec = plain_codec(frame)
    >>> table = codec.encode(frame)
    >>> plain_frame(table)
           0    1
    0  71.50  0.0
    1    NaN  1.0
    2  60.25  NaN
    >>> num, cat = np.array([[99.123]]), np.array([[1]])
    >>> codec.decode(num, cat, np.random.default_rng(0)).to_numpy().tolist()
    [[71.5, 'm']]
    """
    return unscaled(infer_schema(frame, kinds))


def unscaled(schema: Schema) -> Codec:
    """Return the codec of a schema that does not scale its numbers."""
    scalers: Mapping[str, QuantileNormal] = {
        column.name: AsIs() for column in schema if column.kind in NUMERIC
    }
    return Codec(schema, scalers)


def plain_frame(table: Table) -> pd.DataFrame:
    """Return numbers and codes as floats, NaN in holes; columns are named by place.

    Names are digits, so that they meet none that a peer uses for columns of its own.
    """
    cells = np.concatenate([table.num, table.cat], axis=1, dtype=np.float64)
    cells[~table.observed] = np.nan
    return pd.DataFrame(cells, columns=[str(j) for j in range(cells.shape[1])])


def complete_frame(table: Table, peer: str) -> pd.DataFrame:
    """Return a frame of floats and whole codes, or raise if the table has holes."""
    if not table.observed.all():
        holes = ~table.observed
        worst = table.layout.names[int(holes.any(axis=0).argmax())]
        raise DataError(
            f"{peer} takes complete tables, and {int(holes.sum())} cells are holes, "
            f"some in column {worst!r}; fill them first"
        )
    return plain_frame(table).astype(dict.fromkeys(code_names(table.layout), np.int64))


def code_names(layout: Layout) -> list[str]:
    """Return the names that categorical features have in a plain frame."""
    return [str(layout.n_num + j) for j in range(layout.n_cat)]


def plain_rows(frame: pd.DataFrame, layout: Layout, peer: str) -> Rows:
    """Return the numbers and codes of a peer's rows; raise if a cell is none."""
    cells = frame.to_numpy(np.float64)
    if not np.isfinite(cells).all():
        bad = layout.names[int((~np.isfinite(cells)).any(axis=0).argmax())]
        raise DataError(
            f"{peer} must give finite numbers and codes, and gave others in column "
            f"{bad!r}"
        )
    return cells[:, : layout.n_num], cells[:, layout.n_num :].astype(np.int32)
