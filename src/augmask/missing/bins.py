"""How a column is cut into bins, a hole being one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import DataError
from augmask.table.floats import as_floats

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

MAX_BINS = 50
ROWS_PER_BIN = 100
# A level with fewer rows says nothing about its own rate; such levels share one bin.
ROWS_PER_LEVEL = 20
HOLE, RARE = 0, 1


def _floats(series: pd.Series) -> Floats:
    """Return numbers as they are and dates as seconds, NaN in holes."""
    values = as_floats(series)
    if values is None:
        raise DataError(
            f"Column {series.name!r} was numeric in the incomplete table and must be "
            f"so here, but it is {series.dtype}; convert it."
        )
    return values


@dataclass(frozen=True, eq=False)
class Bins:
    """How one column is cut: code 0 is a hole, the others are bins.

    Parameters
    ----------
    edges : float array or None
        Inner edges of a numeric column; its bins are coded 1 .. len(edges) + 1.
    levels : tuple
        Frequent levels of any other column, coded from 2; code 1 is every other level.
    """

    edges: Floats | None
    levels: tuple[Any, ...] = ()

    @classmethod
    def of(cls, series: pd.Series, numeric: bool) -> Self:
        """Choose bins for the values of a column, holes left out."""
        if not numeric:
            counts = series.value_counts()
            kept = counts.index[counts.to_numpy() >= ROWS_PER_LEVEL]
            return cls(None, tuple(kept.astype(object)))
        values = _floats(series)
        values = values[np.isfinite(values)]
        found = np.unique(values)
        if len(found) <= MAX_BINS:
            return cls((found[1:] + found[:-1]) / 2)
        n_bins = min(MAX_BINS, max(4, len(values) // ROWS_PER_BIN))
        return cls(np.unique(np.quantile(values, np.arange(1, n_bins) / n_bins)))

    @property
    def count(self) -> int:
        """Number of codes, the hole included."""
        return 2 + len(self.levels if self.edges is None else self.edges)

    def codes(self, series: pd.Series) -> Codes:
        """Return the code of every cell."""
        if self.edges is not None:
            values = _floats(series)
            codes = 1 + np.searchsorted(self.edges, values, side="right")
            codes[np.isnan(values)] = HOLE
            return np.asarray(codes, dtype=np.int64)
        local, found = pd.factorize(series)
        known = {level: RARE + 1 + i for i, level in enumerate(self.levels)}
        of = [known.get(v, RARE) for v in pd.Index(found).astype(object)]
        # pandas codes a hole as -1, which here reads the last entry.
        table = np.asarray([*of, HOLE], dtype=np.int64)
        return np.asarray(table[local], dtype=np.int64)
