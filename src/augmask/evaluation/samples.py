"""Tables of many files are scored on a sample, with standard errors.

The sample is stratified: every part of a table gives its share of the rows. Sampled
rows are scored like a table in memory of these rows. How far another sample would score
differently is seen from `SUBSAMPLES` disjoint subsamples, each with every tenth row of
all tables: the standard deviation of their scores, divided by the root of their number,
is the standard error of the score of all. It tells what chance there is in the rows; a
model that is trained again differs by more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from augmask.errors import DataError
from augmask.evaluation.results import Entry
from augmask.evaluation.tables import Tables
from augmask.table.holdout import Holdout
from augmask.table.partitions import is_partitioned, partitioned_table

# Rows of a table of many files that are scored: Shape and Trend are then exact to about
# .001, and the evaluation takes minutes.
SAMPLE_ROWS = 100_000
SUBSAMPLES = 10
# A table with fewer rows in a subsample says nothing about the error of its scores.
FEWEST_ROWS = 50


@dataclass
class Samples:
    """Reads samples of tables of many files, and remembers how many rows they have.

    Parameters
    ----------
    most : int
        Rows of a sample.
    seed : int
    sizes : dict of str to pair of int
        Rows of the samples and of their tables, by what these are called.
    """

    most: int
    seed: int
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def open(self, source: Any, label: str) -> Any:
        """Return a sample of a table of many files, and anything else as it is."""
        if not is_partitioned(source):
            return source
        return self._sample(source, label)[0]

    def open_without(
        self, source: Any, label: str, held_out: Holdout, seed: int
    ) -> tuple[pa.Table, pa.Table | None]:
        """Return a sample without the held-out rows, and those.

        Parameters
        ----------
        source : path or sequence of paths
        label : str
        held_out : Holdout
            None are held out of another table.
        seed : int
            Of the model.
        """
        return self._sample(source, label, held_out, seed)

    def _sample(
        self, source: Any, label: str, held_out: Holdout | None = None, seed: int = 0
    ) -> tuple[pa.Table, pa.Table | None]:
        try:
            table = partitioned_table(source)
            places = table.sample_places(self.most, self.seed, "evaluate", label)
            choices = [places]
            if held_out is not None and held_out.matches(table):
                others = table.places(held_out.chosen(seed))
                choices = [list(map(_rows_without, places, others)), others]
            sample, *other = table.take(*choices)
        except DataError as error:
            raise DataError(f"the {label} table: {error}") from error
        self.sizes[label] = len(sample), len(table)
        return sample, other[0] if other else None

    @property
    def note(self) -> str:
        """What to know about scores of samples."""
        sizes = ", ".join(
            f"{n:,} of {total:,} rows of the {label} table"
            for label, (n, total) in self.sizes.items()
        )
        return (
            f"Scored on a stratified sample, {sizes}; ± is one standard error, from "
            f"{SUBSAMPLES} disjoint subsamples."
        )


def _rows_without(
    rows: npt.NDArray[np.int64], others: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    return rows[~np.isin(rows, others)]


def subsamples(tables: Tables) -> list[Tables]:
    """Return disjoint parts of all tables; none if they would have too few rows."""
    enough = SUBSAMPLES * FEWEST_ROWS
    if min(len(tables.real), len(tables.synthetic)) < enough:
        return []

    def cut(frame: pd.DataFrame | None, i: int) -> Any:
        if frame is None:
            return None
        return frame.iloc[i::SUBSAMPLES].reset_index(drop=True)

    test = tables.test
    if test is not None and len(test) < enough:
        test = None
    return [
        replace(
            tables,
            real=cut(tables.real, i),
            synthetic=cut(tables.synthetic, i),
            test=cut(test, i),
            source=cut(tables.source, i),
            incomplete_synthetic=cut(tables.incomplete_synthetic, i),
        )
        for i in range(SUBSAMPLES)
    ]


def with_errors(
    entries: Mapping[str, Entry],
    tables: Tables,
    score: Callable[[Tables], Mapping[str, Entry]],
) -> dict[str, Entry]:
    """Return the scores with their standard errors.

    Parameters
    ----------
    entries : mapping of key to Entry
        The scores of `tables`.
    tables : Tables
    score : callable
        Scores a subsample; a score that one of them lacks gets no error.
    """
    runs = [score(part) for part in subsamples(tables)]
    return {
        key: replace(entry, error=_standard_error([run[key].value for run in runs]))
        if runs and all(key in run for run in runs)
        else entry
        for key, entry in entries.items()
    }


def _standard_error(values: Sequence[float]) -> float:
    """Return the standard error of a score from its values in disjoint subsamples.

    Examples
    --------
    >>> round(_standard_error([0.9, 0.92, 0.88, 0.9]), 4)
    0.0082
    """
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))
