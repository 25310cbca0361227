"""What the holes of a table look like: rates, patterns, and which go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from augmask.errors import UsageError

N_PATTERNS = 10


@dataclass(frozen=True, eq=False)
class Missingness:
    """The holes of a table in numbers.

    Parameters
    ----------
    n_rows : int
    rate : float
        Share of all cells that are holes.
    column_rates : pandas.Series
        The same per column, in column order.
    complete_rows : int
        Rows without a hole.
    n_patterns : int
        How many different sets of columns are missing together in some row.
    patterns : tuple of (tuple of column names, int)
        The most frequent of these sets, at most 10, and how many rows have each.
    co_missing : pandas.DataFrame
        Correlation φ between the holes of two columns: 1 if they always miss
        together, 0 if independently. Columns without holes, or with nothing else,
        have no correlation and are left out.
    """

    n_rows: int
    rate: float
    column_rates: pd.Series
    complete_rows: int
    n_patterns: int
    patterns: tuple[tuple[tuple[Any, ...], int], ...]
    co_missing: pd.DataFrame

    def to_dict(self) -> dict[str, Any]:
        """Return the same facts as plain types, ready for JSON."""
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


def describe(frame: pd.DataFrame, holes: pd.DataFrame | None = None) -> Missingness:
    """Count the holes of a table and say which of them come together.

    Parameters
    ----------
    frame : pandas.DataFrame
    holes : pandas.DataFrame of bool, optional
        True where a cell is a hole, in the shape of `frame`. Pass it when declared
        codes such as -999 count as holes; by default the holes are NaN, None and NaT.

    Returns
    -------
    Missingness

    Examples
    --------
    >>> import pandas as pd
    >>> facts = describe(pd.DataFrame({"a": [1, None, None], "b": [None, 2, 3]}))
    >>> facts.rate, facts.complete_rows, facts.patterns
    (0.5, 0, ((('a',), 2), (('b',), 1)))
    >>> facts.co_missing.loc["a", "b"].round(6).item()
    -1.0
    """
    if holes is not None and holes.shape != frame.shape:
        raise UsageError(
            f"holes must have the shape of the table, {frame.shape}, got {holes.shape}"
        )
    missing = (frame.isna() if holes is None else holes).to_numpy(dtype=bool)
    n, d = missing.shape
    # Bits make a row a handful of bytes, which sort much faster than d booleans.
    packed, counts = np.unique(np.packbits(missing, axis=1), axis=0, return_counts=True)
    sets = np.unpackbits(packed, axis=1, count=d).astype(bool)
    top = np.argsort(-counts, kind="stable")[:N_PATTERNS]
    varying = missing.any(axis=0) & ~missing.all(axis=0)
    phi = np.corrcoef(missing[:, varying], rowvar=False) if varying.any() else []
    names = frame.columns[varying]
    size = len(names)
    return Missingness(
        n_rows=n,
        rate=float(missing.mean()) if missing.size else 0.0,
        column_rates=pd.Series(missing.sum(axis=0) / max(n, 1), index=frame.columns),
        complete_rows=int((~missing.any(axis=1)).sum()),
        n_patterns=len(counts),
        patterns=tuple((tuple(frame.columns[sets[i]]), int(counts[i])) for i in top),
        co_missing=pd.DataFrame(np.reshape(phi, (size, size)), names, names),
    )
