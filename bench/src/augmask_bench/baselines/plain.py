"""Tables for packages that scale numbers themselves: unscaled numbers and codes.

Their codec does not scale. Decoding works as for all models: ranges, whole numbers,
decimals, levels and dtypes come from the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import DataError
from augmask.table.codec import Codec
from augmask.table.infer import Overrides, infer_schema
from augmask.table.scale import QuantileNormal
from augmask.table.schema import NUMERIC, Schema
from augmask.table.table import Layout, Table

Rows = tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]


class NoScaling(QuantileNormal):
    """The identity in place of a scaler."""

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
    """Return a codec for a frame that does not scale numbers.

    Parameters
    ----------
    frame : pandas.DataFrame
    kinds : Schema, mapping or path, optional
        Kinds of columns, as for `infer_schema`.

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
    return unscaled_codec(infer_schema(frame, kinds))


def unscaled_codec(schema: Schema) -> Codec:
    """Return a codec for a schema that does not scale numbers."""
    scalers: Mapping[str, QuantileNormal] = {
        column.name: NoScaling() for column in schema if column.kind in NUMERIC
    }
    return Codec(schema, scalers)


def plain_frame(table: Table) -> pd.DataFrame:
    """Return numbers and codes as floats, missing as NaN; columns are named 0, 1, ...

    Digits do not collide with names that a package uses for its own columns.
    """
    cells = np.concatenate([table.num, table.cat], axis=1, dtype=np.float64)
    cells[~table.observed] = np.nan
    return pd.DataFrame(cells, columns=[str(j) for j in range(cells.shape[1])])


def complete_frame(table: Table, peer: str) -> pd.DataFrame:
    """Return a frame of floats and integer codes; raise if values are missing."""
    if not table.observed.all():
        missing = ~table.observed
        column = table.layout.names[int(missing.any(axis=0).argmax())]
        raise DataError(
            f"{peer} needs a complete table, got {int(missing.sum())} missing cells, "
            f"some in column {column!r}; use an augmenter"
        )
    return plain_frame(table).astype(dict.fromkeys(code_names(table.layout), np.int64))


def code_names(layout: Layout) -> list[str]:
    """Return the names of categorical features in a plain frame."""
    return [str(layout.n_num + j) for j in range(layout.n_cat)]


def plain_rows(frame: pd.DataFrame, layout: Layout, peer: str) -> Rows:
    """Return the numbers and codes of generated rows; raise if one is not finite."""
    cells = frame.to_numpy(np.float64)
    if not np.isfinite(cells).all():
        column = layout.names[int((~np.isfinite(cells)).any(axis=0).argmax())]
        raise DataError(
            f"{peer} generated values that are not finite: column {column!r}"
        )
    return cells[:, : layout.n_num], cells[:, layout.n_num :].astype(np.int32)
