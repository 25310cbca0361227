"""`augment`: the first half of the method on a frame, for anyone's training loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from augmask.augmentation import resolve_augmenter
from augmask.augmentation.base import Augmenter
from augmask.errors import UsageError
from augmask.rng import stream
from augmask.table.encode import Codec
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema, missing_mask
from augmask.table.table import Table


def augment(
    data: Any,
    augmenter: str | Augmenter = "lgbm-s",
    seed: int = 0,
    schema: Any = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Fill every hole of a table once, and say which cells were really observed.

    Parameters
    ----------
    data : DataFrame, polars frame, Arrow table or path
    augmenter : str or Augmenter
        A rule by name, or an object with `fit` and `draw`. `zero` has no place here:
        its placeholder category is a code for networks, not a value.
    seed : int
    schema : Schema, path or mapping, optional
        As for `AugMask.fit`.

    Returns
    -------
    filled : DataFrame
        The table without holes, with recovered dtypes; observed cells are unchanged.
        Columns that hold no value at all stay empty.
    observed : DataFrame of bool
        False where a value was made up.

    Examples
    --------
    >>> df = pd.DataFrame({"x": [1, None, 3, 4.5] * 6, "y": ["a", "b", None, "b"] * 6})
    >>> filled, observed = augment(df, "ecdf")
    >>> filled.isna().to_numpy().any(), observed["x"].tolist()[:4]
    (np.False_, [True, False, True, True])
    >>> filled["x"][0], filled["y"][1]
    (np.float64(1.0), 'b')
    """
    made = augmented(read_frame(data), augmenter, seed, schema)
    return made.frame, made.observed


@dataclass(frozen=True, eq=False)
class Augmented:
    """A table that was filled after scaling, with all that is known of it.

    Parameters
    ----------
    codec : Codec
        Fitted on the observed cells of the incomplete table.
    table : Table
        Its scaled numbers and codes without holes, numbers as they were drawn.
    frame, observed : DataFrame
        As `augment` returns them.
    """

    codec: Codec
    table: Table
    frame: pd.DataFrame
    observed: pd.DataFrame


def augmented(
    frame: pd.DataFrame, augmenter: str | Augmenter, seed: int, schema: Any = None
) -> Augmented:
    """Scale by what is observed, then fill; the parameters are those of `augment`."""
    found = infer_schema(frame, schema)
    codec = Codec.fit(frame, found)
    table = codec.encode(frame)
    rng = stream(seed, "fill")
    filled = resolve_augmenter(augmenter).fit(table, rng).draw(rng)
    if filled.layout.reserved:
        raise UsageError(
            "augment needs a rule that fills categories with levels, and 'zero' fills "
            "them with a placeholder; use 'mean', 'ecdf' or 'lgbm-s'"
        )
    drawn = codec.decode(filled.num, filled.cat, rng, derive=False)
    holes = missing_mask(frame, found)
    for column in found:
        # what was observed comes from the frame itself, not through the scaling
        kept = ~holes[column.label].to_numpy()
        if column.learned or column.kind == "identifier":
            drawn[column.label] = _patched(
                drawn[column.label], frame[column.label], kept
            )
    return Augmented(codec, filled, drawn, ~holes)


def _patched(drawn: pd.Series, original: pd.Series, kept: np.ndarray) -> pd.Series:
    """Return `drawn` with the original values where they were observed."""
    if not kept.any():
        return drawn
    patched = drawn.copy()
    # as an array: a series would be aligned by its index, and lose its dtype on the way
    patched[kept] = original[kept].astype(drawn.dtype).array
    return patched
