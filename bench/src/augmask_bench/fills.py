"""Fills: the draws of an augmenter for one incomplete table, stored in one file.

A training reads its completions from there, so the machine that trains needs neither
the augmenter nor its packages. The name of a fill says what it is made from (the table
by its contents, the missing cells, the augmenter and its settings, see `plan`) and not
how: no versions of libraries, no bytes of a file. Only filled cells are stored, numbers
in single precision as networks read them, codes in as few bytes as they need.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from augmask.augmentation import Augmenter
from augmask.augmentation.completions import check_completion
from augmask.errors import DataError, not_fitted
from augmask.files import atomic_write
from augmask.table.table import Table
from augmask_bench.arrays import Arrays, read_arrays

if TYPE_CHECKING:
    from augmask.progress import Progress


class CannotFill(Exception):
    """The fill of a run is not stored, and cannot be made on this machine."""


def _cells(table: Table) -> str:
    """Return a hash of the mask and the codes of a table, to recognise another one.

    Scaled numbers are not compared: their last digits depend on the processor.
    """
    digest = hashlib.sha256(np.packbits(table.observed).tobytes())
    codes = np.where(table.cat_observed, table.cat, -1)
    digest.update(np.ascontiguousarray(codes, dtype="<i4").tobytes())
    return digest.hexdigest()


def _small_codes(codes: np.ndarray) -> np.ndarray:
    """Return codes as the smallest unsigned integers that hold them.

    Examples
    --------
    >>> _small_codes(np.array([3, 300])).dtype
    dtype('uint16')
    """
    return codes.astype(np.min_scalar_type(int(codes.max(initial=0))))


class StoredFill:
    """An augmenter whose draws are read from a file; they are made if it is missing.

    Parameters
    ----------
    augmenter : Augmenter
        What makes the draws.
    path : Path
        The file.
    n_draws : int
        Number of draws to store.

    Attributes
    ----------
    seconds : float
        Time of fit and draws when they were made, here or elsewhere.
    spent : float
        Time of the same here.
    """

    def __init__(self, augmenter: Augmenter, path: Path, n_draws: int = 1) -> None:
        self.augmenter, self.path, self.n_draws = augmenter, path, n_draws
        self.stochastic = bool(getattr(augmenter, "stochastic", True))
        self.seconds = self.spent = 0.0

    @property
    def stored(self) -> bool:
        """Whether the fill exists."""
        return self.path.is_file()

    def fit(
        self, table: Table, rng: np.random.Generator, progress: Progress | None = None
    ) -> Self:
        """Read the draws for this table, or make and store them."""
        start = time.perf_counter()
        self.table_, self._next = table, 0
        arrays = read_arrays(self.path)
        if arrays is None:
            arrays = self._make(table, rng, progress)
            self._write(arrays)
        facts = json.loads(str(arrays["facts"]))
        if facts["cells"] != _cells(table):
            raise DataError(
                f"the fill {self.path.name} is of another incomplete table: missing "
                "cells differ; delete it, and fill again with the same data"
            )
        self._arrays, self._facts = arrays, facts
        self.seconds = float(facts["seconds"])
        self.spent = time.perf_counter() - start
        return self

    def draw(self, rng: np.random.Generator) -> Table:
        """Return the table with the next stored draw in place of missing values."""
        if not hasattr(self, "table_"):
            raise not_fitted(self)
        i, self._next = self._next, self._next + 1
        if i >= len(self._arrays["num"]):
            raise DataError(
                f"the fill {self.path.name} has {i} draws and more are needed; delete "
                "it, and fill again"
            )
        table = self.table_
        num, cat = table.num.copy(), table.cat.copy()
        num[~table.num_observed] = self._arrays["num"][i]
        cat[~table.cat_observed] = self._arrays["cat"][i]
        rng.bit_generator.state = self._facts["states"][i]
        layout = table.layout
        if self._facts["reserved"]:
            cards = tuple(card + 1 for card in layout.cards)
            layout = replace(layout, cards=cards, reserved=True)
        return table.filled(num, cat, layout)

    def _make(
        self, table: Table, rng: np.random.Generator, progress: Progress | None
    ) -> Arrays:
        """Return the draws that the augmenter makes of a table."""
        start = time.perf_counter()
        different = self.stochastic and not table.observed.all()
        nums, cats, states, reserved = [], [], [], False
        try:
            self.augmenter.fit(table, rng, progress)
            for _ in range(self.n_draws if different else 1):
                drawn = self.augmenter.draw(rng)
                check_completion(table, drawn)
                nums.append(drawn.num[~table.num_observed].astype("<f4"))
                cats.append(drawn.cat[~table.cat_observed])
                states.append(rng.bit_generator.state)
                reserved = drawn.layout.reserved
        except ImportError as error:
            raise CannotFill(
                f"needs a fill that is not stored, and cannot make it here ({error}); "
                "run `augmask bench fill` where that is installed, then export and "
                "import it"
            ) from error
        facts: dict[str, Any] = {
            "cells": _cells(table),
            "reserved": reserved,
            "seconds": time.perf_counter() - start,
            "states": states,
        }
        return {
            "num": np.stack(nums),
            "cat": _small_codes(np.stack(cats)),
            "facts": np.array(json.dumps(facts)),
        }

    def stored_seconds(self) -> float:
        """Return the time that the stored draws took; 0 without a file."""
        arrays = read_arrays(self.path)
        return float(json.loads(str(arrays["facts"]))["seconds"]) if arrays else 0.0

    def _write(self, arrays: Arrays) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with atomic_write(self.path) as part, part.open("wb") as file:
                # given a path, numpy would append a suffix
                np.savez_compressed(file, allow_pickle=False, **arrays)
        except DataError as error:
            # a folder that cannot be written is no failure of the method
            raise OSError(str(error)) from error
