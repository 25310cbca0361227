"""Rules that look at one column at a time: zero, mean, noise, ecdf.

The univariate baselines of the paper's Table 1. A numeric column that was observed
nowhere is filled with 0, the mean of the scaled column.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from augmask.augmentation.moments import class_frequencies, pick_alike, write_missing
from augmask.errors import NotFittedError
from augmask.table.table import CodeArray, FloatArray, Table

if TYPE_CHECKING:
    from augmask.progress import Progress


class _Marginal:
    """The loop over columns; a rule says how to fill `size` holes of one column."""

    stochastic: ClassVar[bool]
    version: ClassVar[str] = "1"

    def fit(
        self, table: Table, rng: np.random.Generator, progress: Progress | None = None
    ) -> Self:
        """Keep the table; everything these rules learn is a pass over a column."""
        del rng
        self.table_ = table
        if progress is not None:
            for done in range(1, table.layout.n_features + 1):
                progress("augment", done, table.layout.n_features, {})
        return self

    def draw(self, rng: np.random.Generator) -> Table:
        """Return the table with its holes filled column by column."""
        if not hasattr(self, "table_"):
            raise NotFittedError("Call fit before draw: no table was given yet.")
        table = self.table_
        if table.observed.all():
            return table
        num, cat = [], []
        for j in range(table.layout.n_num):
            known = table.num_observed[:, j]
            pool, size = table.num[known, j], int((~known).sum())
            num.append(self._numbers(pool, size, rng) if len(pool) else np.zeros(size))
        for j, card in enumerate(table.layout.cards):
            known = table.cat_observed[:, j]
            codes, size = table.cat[known, j], int((~known).sum())
            cat.append(self._codes(codes, card, size, rng))
        return write_missing(self._host(table), num, cat)

    def _host(self, table: Table) -> Table:
        return table

    def _numbers(
        self, pool: FloatArray, size: int, rng: np.random.Generator
    ) -> FloatArray:
        raise NotImplementedError

    def _codes(
        self, codes: CodeArray, card: int, size: int, rng: np.random.Generator
    ) -> CodeArray:
        """Draw from the observed class frequencies π̂_j."""
        return pick_alike(class_frequencies(codes, card), rng.random(size))


class Zero(_Marginal):
    """A fixed placeholder: 0 for numbers, a reserved code K_j for categories.

    If a categorical cell is missing, the layout of the drawn table has one code more
    in every categorical feature and says so (`Layout.reserved`).

    Examples
    --------
    >>> from augmask.table.table import Layout
    >>> table = Table(
    ...     np.zeros((2, 0)),
    ...     np.array([[1], [0]]),
    ...     np.array([[True], [False]]),
    ...     Layout((), ("c",), (2,)),
    ... )
    >>> rng = np.random.default_rng(0)
    >>> filled = Zero().fit(table, rng).draw(rng)
    >>> filled.cat.ravel().tolist(), filled.layout.cards, filled.layout.reserved
    ([1, 2], (3,), True)
    """

    stochastic: ClassVar[bool] = False

    def _host(self, table: Table) -> Table:
        if table.cat_observed.all():
            return table
        cards = tuple(card + 1 for card in table.layout.cards)
        return replace(table, layout=replace(table.layout, cards=cards, reserved=True))

    def _numbers(
        self, pool: FloatArray, size: int, rng: np.random.Generator
    ) -> FloatArray:
        del pool, rng
        return np.zeros(size)

    def _codes(
        self, codes: CodeArray, card: int, size: int, rng: np.random.Generator
    ) -> CodeArray:
        del codes, rng
        return np.full(size, card)


class Mean(_Marginal):
    """The mean of the observed numbers, the most frequent observed category."""

    stochastic: ClassVar[bool] = False

    def _numbers(
        self, pool: FloatArray, size: int, rng: np.random.Generator
    ) -> FloatArray:
        del rng
        return np.full(size, pool.mean(dtype=np.float64))

    def _codes(
        self, codes: CodeArray, card: int, size: int, rng: np.random.Generator
    ) -> CodeArray:
        del rng
        return np.full(size, class_frequencies(codes, card).argmax())


class Noise(_Marginal):
    """A Gaussian with the observed mean and deviation; observed class frequencies."""

    stochastic: ClassVar[bool] = True

    def _numbers(
        self, pool: FloatArray, size: int, rng: np.random.Generator
    ) -> FloatArray:
        pool = pool.astype(np.float64)
        return rng.normal(pool.mean(), pool.std(), size)


class Ecdf(_Marginal):
    """Observed numbers drawn with replacement; observed class frequencies."""

    stochastic: ClassVar[bool] = True

    def _numbers(
        self, pool: FloatArray, size: int, rng: np.random.Generator
    ) -> FloatArray:
        return rng.choice(pool, size)
