"""The rows that `fit` holds out, so that privacy and utility can be measured later.

Whether synthetic rows copy training rows, and what a model learns from them, takes real
rows that the generator has not seen. Which ones follows from the seed and the number of
rows. A model file holds no row: only the share, the number of rows and a short
fingerprint of the table, by which the same table is recognised when a report is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import UsageError, brief_repr
from augmask.rng import stream
from augmask.table.cells import read_cells
from augmask.table.frames import from_arrow
from augmask.table.partitions import PartitionedTable
from augmask.validation import InvalidValue, RecordSpec, Refined, ValueSpec

# What "auto" holds out. A copier has a DCR share of 1; 100 rows tell a share of 0.65
# from chance, and of 2,000 rows they are a twentieth. In smaller tables every row
# counts. Beyond 5,000 rows nothing is gained.
AUTO_SHARE = 0.03
FEWEST, MOST = 100, 5_000
SMALLEST_TABLE = 2_000
# More would leave too little to learn from.
MOST_SHARE = 0.5
# Rows of every part of a table of many files by which the table is recognised.
HEAD_ROWS = 1_000
# Hexadecimal digits: enough to recognise a table, too few to search for its values.
DIGITS = 8


def table_fingerprint(frame: pd.DataFrame) -> str:
    """Return a short digest of a table that does not depend on how it is stored.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [31, None], "sex": ["f", "m"]})
    >>> same = frame.astype({"age": "Int64", "sex": "category"})
    >>> table_fingerprint(frame) == table_fingerprint(same)
    True
    >>> table_fingerprint(frame) == table_fingerprint(frame[::-1])
    False
    """
    digest = hashlib.sha256()
    for i, label in enumerate(frame.columns):
        cells = read_cells(frame.iloc[:, i], str(label))
        digest.update(f"{label}\0{len(frame)}\0".encode())
        digest.update(np.packbits(cells.observed).tobytes())
        values = cells.observed_values
        if cells.form == "text":
            codes, levels = pd.factorize(values)
            digest.update("\0".join(map(str, levels)).encode())
            digest.update(codes.astype(np.int64).tobytes())
        elif cells.form == "datetime":
            digest.update(values.astype("datetime64[s]").astype(np.int64).tobytes())
        elif cells.form != "empty":
            # float32: a file may hold fewer digits than the frame it was written from.
            with np.errstate(over="ignore"):
                digest.update((values.astype(np.float32) + 0).tobytes())
    return digest.hexdigest()[:DIGITS]


def partitions_fingerprint(table: PartitionedTable) -> str:
    """Return a short digest of a table of many files, wherever they lie.

    Of every part it sees the number of rows and the values of the first ones.
    """
    digest = hashlib.sha256()
    for part in table.parts:
        first = table_fingerprint(from_arrow(part.head(HEAD_ROWS), part.name))
        digest.update(f"{part.rows}\0{first}\0".encode())
    return digest.hexdigest()[:DIGITS]


_SPEC = RecordSpec(
    {
        "share": ValueSpec(float, above=0, below=1),
        "rows": ValueSpec(int, above=0),
        "held_out": ValueSpec(int, above=0),
        "fingerprint": Refined(
            ValueSpec(str), lambda text: len(text) == DIGITS, f"{DIGITS} digits"
        ),
    }
)


@dataclass(frozen=True)
class Holdout:
    """Which rows of a table were held out.

    Parameters
    ----------
    share : float
    rows : int
        Of the whole table.
    held_out : int
    fingerprint : str
        Of the whole table.
    """

    share: float
    rows: int
    held_out: int
    fingerprint: str

    @classmethod
    def of(cls, frame: pd.DataFrame, held_out: int) -> Self:
        """Return the holdout of so many rows of a table."""
        n = len(frame)
        return cls(held_out / n, n, held_out, table_fingerprint(frame))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild from `to_dict()`; raise ValueError on invalid data."""
        try:
            holdout = cls(**(_SPEC.fitting(data) or {}))
        except InvalidValue:
            holdout = None
        if holdout is None or holdout.held_out >= holdout.rows:
            raise ValueError(f"its holdout is {brief_repr(data, 200)}")
        return holdout

    def chosen(self, seed: int) -> npt.NDArray[np.int64]:
        """Return the places of the rows that are held out, in order."""
        rng = stream(seed, "holdout", "rows")
        return np.sort(rng.choice(self.rows, self.held_out, replace=False))

    def split(
        self, frame: pd.DataFrame, seed: int
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the rows to learn from, and those that are held out."""
        held_out = np.zeros(len(frame), dtype=bool)
        held_out[self.chosen(seed)] = True
        learned, other = frame[~held_out], frame[held_out]
        return learned.reset_index(drop=True), other.reset_index(drop=True)

    def matches(self, table: pd.DataFrame | PartitionedTable) -> bool:
        """Whether a table is the one that rows were held out of."""
        if len(table) != self.rows:
            return False
        if isinstance(table, PartitionedTable):
            return partitions_fingerprint(table) == self.fingerprint
        return table_fingerprint(table) == self.fingerprint


def rows_to_hold_out(holdout: Any, rows: int, preset: str) -> int:
    """Return how many rows of a table to hold out.

    Parameters
    ----------
    holdout : "auto" or float
        A share below a half.
    rows : int
        Of the table.
    preset : str
        The preset in use; "paper" learns from all rows, as printed.

    Examples
    --------
    >>> rows_to_hold_out("auto", 48_842, "fast"), rows_to_hold_out("auto", 500, "fast")
    (1465, 0)
    """
    if isinstance(holdout, str) and holdout == "auto":
        if rows < SMALLEST_TABLE or preset == "paper":
            return 0
        return min(max(round(AUTO_SHARE * rows), FEWEST), MOST)
    if (
        isinstance(holdout, bool)
        or not isinstance(holdout, int | float | np.number)
        or not 0 <= holdout < MOST_SHARE
    ):
        raise UsageError(
            f"holdout must be 'auto' or a share of at least 0 and below {MOST_SHARE}, "
            f"got {brief_repr(holdout)}"
        )
    return round(float(holdout) * rows)
