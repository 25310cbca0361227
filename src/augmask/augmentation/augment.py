"""`augment`: the first half of the method on a frame, for your own training loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from augmask.augmentation import Augmenter, resolve_augmenter
from augmask.errors import UsageError
from augmask.rng import stream
from augmask.table.codec import Codec, write_formats
from augmask.table.frame_kinds import FrameKind, collected, give_back, kind_name
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema, missing_mask
from augmask.table.table import Table
from augmask.validation import SEED


@dataclass(frozen=True, eq=False)
class Augmented:
    """An augmented table, scaled and as a frame.

    Parameters
    ----------
    codec : Codec
        Fitted on the observed cells of the incomplete table.
    table : Table
        Scaled numbers and codes, numbers as they were drawn.
    frame, observed : DataFrame
        As `augment` returns them.
    """

    codec: Codec
    table: Table
    frame: pd.DataFrame
    observed: pd.DataFrame


def _restore_observed(
    filled: pd.Series, original: pd.Series, observed: np.ndarray
) -> pd.Series:
    """Return `filled` with the original values where they were observed."""
    if not observed.any():
        return filled
    restored = filled.copy()
    # As an array: a series would be aligned by its index and lose its dtype.
    restored[observed] = original[observed].astype(filled.dtype).array
    return restored


def augmented(
    frame: pd.DataFrame, augmenter: str | Augmenter, seed: int, schema: Any = None
) -> Augmented:
    """Scale by the observed cells, then augment; parameters as in `augment`."""
    seed = SEED.checked("seed", seed)
    schema = infer_schema(frame, schema)
    codec = Codec.fit(frame, schema)
    rng = stream(seed, "fill")
    table = resolve_augmenter(augmenter).fit(codec.encode(frame), rng).draw(rng)
    if table.layout.reserved:
        raise UsageError(
            "augment cannot use 'zero', which fills categories with a placeholder "
            "code; use 'mean', 'ecdf' or 'lgbm-s'"
        )
    filled = codec.decode(table.num, table.cat, rng, derive=False)
    filled = write_formats(filled, schema)
    missing = missing_mask(frame, schema)
    for column in schema:
        # Observed cells come from the frame itself, not through the scaling.
        if column.learned or column.kind == "identifier":
            label = column.label
            filled[label] = _restore_observed(
                filled[label], frame[label], ~missing[label].to_numpy()
            )
    return Augmented(codec, table, filled, ~missing)


def augment(
    data: Any,
    *,
    augmenter: str | Augmenter = "auto",
    seed: int = 0,
    schema: Any = None,
) -> tuple[Any, Any]:
    """Fill the missing values of a table once, and return which cells were observed.

    Parameters
    ----------
    data : DataFrame, polars frame, Arrow table or path
    augmenter : str or Augmenter, default "auto"
        A name, or an object with `fit` and `draw`; `auto` is `lgbm-s`. `zero` is
        refused: its placeholder category is a code for networks, not a value.
    seed : int, default 0
        The same table, augmenter and seed give the same values.
    schema : Schema, path or mapping, optional
        As for `AugMask.fit`.

    Returns
    -------
    filled : DataFrame, polars frame or Arrow table
        The complete table, as what `data` came as; a pandas frame with recovered
        dtypes. Observed cells are unchanged. Columns without any value stay empty.
    observed : the same, of bool
        False where a value was filled in.

    Examples
    --------
    >>> df = pd.DataFrame({"x": [1, None, 3, 4.5] * 6, "y": ["a", "b", None, "b"] * 6})
    >>> filled, observed = augment(df, augmenter="ecdf")
    >>> filled.isna().to_numpy().any(), observed["x"].tolist()[:4]
    (np.False_, [True, False, True, True])
    >>> filled["x"][0], filled["y"][1]
    (np.float64(1.0), 'b')
    """
    data = collected(data)
    result = augmented(read_frame(data), augmenter, seed, schema)
    filled = result.frame
    changed = [
        label
        for label in filled
        if not (result.observed[label] | filled[label].isna()).all()
    ]
    observed = FrameKind(kind_name(data)).build(result.observed)
    return give_back(data, filled, changed), observed
