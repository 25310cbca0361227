"""Describe missingness: rates, patterns, and co-missing columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from augmask.errors import UsageError
from augmask.table.table import BoolArray

MAX_PATTERNS = 10


@dataclass(frozen=True, eq=False)
class Missingness:
    """The missing values of a table in numbers.

    Parameters
    ----------
    n_rows : int
    rate : float
        Share of all cells that are missing.
    column_rates : pandas.Series
        The same per column, in column order.
    complete_rows : int
        Rows without missing values.
    n_patterns : int
        Number of distinct sets of columns that are missing in some row.
    patterns : tuple of (tuple of column names, int)
        The most frequent of these sets, at most 10, with their numbers of rows.
    co_missing : pandas.DataFrame
        Correlation φ between the masks of two columns: 1 if they are always missing
        together, 0 if independently. Columns whose mask is constant are left out.
    """

    n_rows: int
    rate: float
    column_rates: pd.Series
    complete_rows: int
    n_patterns: int
    patterns: tuple[tuple[tuple[Any, ...], int], ...]
    co_missing: pd.DataFrame

    def to_dict(self) -> dict[str, Any]:
        """Return the same numbers as plain types, ready for JSON."""
        names = [str(name) for name in self.column_rates.index]
        return {
            "rows": self.n_rows,
            "rate": self.rate,
            "column_rates": dict(zip(names, self.column_rates.tolist(), strict=True)),
            "complete_rows": self.complete_rows,
            "n_patterns": self.n_patterns,
            "patterns": [
                {"missing": [str(name) for name in missing], "rows": count}
                for missing, count in self.patterns
            ],
            "co_missing": {
                "columns": [str(name) for name in self.co_missing.columns],
                "phi": self.co_missing.to_numpy().tolist(),
            },
        }


def missing_cells(frame: pd.DataFrame, missing: pd.DataFrame | None) -> BoolArray:
    """Return which cells count as missing: those that `missing` says, or NaN."""
    if missing is not None and missing.shape != frame.shape:
        raise UsageError(
            f"missing must have the shape of the table, {frame.shape}, got "
            f"{missing.shape}"
        )
    return np.asarray(frame.isna() if missing is None else missing, dtype=np.bool_)


def describe(frame: pd.DataFrame, missing: pd.DataFrame | None = None) -> Missingness:
    """Count the missing values of a table and find those that occur together.

    Parameters
    ----------
    frame : pandas.DataFrame
    missing : pandas.DataFrame of bool, optional
        True where a cell is missing, in the shape of `frame`. Pass it when declared
        codes such as -999 count as missing; by default NaN, None and NaT do.

    Examples
    --------
    >>> import pandas as pd
    >>> facts = describe(pd.DataFrame({"a": [1, None, None], "b": [None, 2, 3]}))
    >>> facts.rate, facts.complete_rows, facts.patterns
    (0.5, 0, ((('a',), 2), (('b',), 1)))
    >>> facts.co_missing.loc["a", "b"].round(6).item()
    -1.0
    """
    mask = missing_cells(frame, missing)
    n, d = mask.shape
    # Packed bits sort much faster than d booleans.
    packed, counts = np.unique(np.packbits(mask, axis=1), axis=0, return_counts=True)
    sets = np.unpackbits(packed, axis=1, count=d).astype(bool)
    top = np.argsort(-counts, kind="stable")[:MAX_PATTERNS]
    varies = mask.any(axis=0) & ~mask.all(axis=0)
    phi: Any = np.corrcoef(mask[:, varies], rowvar=False) if varies.any() else []
    names = frame.columns[varies]
    size = len(names)
    return Missingness(
        n_rows=n,
        rate=float(mask.mean()) if mask.size else 0.0,
        column_rates=pd.Series(mask.sum(axis=0) / max(n, 1), index=frame.columns),
        complete_rows=int((~mask.any(axis=1)).sum()),
        n_patterns=len(counts),
        patterns=tuple((tuple(frame.columns[sets[i]]), int(counts[i])) for i in top),
        co_missing=pd.DataFrame(np.reshape(phi, (size, size)), names, names),
    )
