"""Augmenters that use one column at a time: zero, mean, noise, ecdf.

The univariate baselines of the paper's Table 1. A numeric column without any observed
value is filled with 0, the mean of a scaled column.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from augmask.augmentation import check_fitted
from augmask.augmentation.moments import (
    class_frequencies,
    codes_from_uniform,
    write_missing,
)
from augmask.table.table import CodeArray, FloatArray, Table

if TYPE_CHECKING:
    from augmask.progress import Progress


class _Marginal:
    """The loop over columns; subclasses draw `size` values for one column."""

    stochastic: ClassVar[bool]
    version: ClassVar[str] = "1"
    # the table with the observed cells to learn from, if not the one to fill
    _learned: Table | None = None

    def frozen(
        self, table: Table, rng: np.random.Generator, progress: Progress | None = None
    ) -> Self:
        """Return an augmenter that fills other tables from the columns of this one."""
        other = copy(self).fit(table, rng, progress)
        other._learned = table
        return other

    def fit(
        self, table: Table, rng: np.random.Generator, progress: Progress | None = None
    ) -> Self:
        """Keep the table; `draw` computes the statistics of a column."""
        del rng
        self.table_ = table
        if progress is not None:
            for done in range(1, table.layout.n_features + 1):
                progress("augment", done, table.layout.n_features, {})
        return self

    def draw(self, rng: np.random.Generator) -> Table:
        """Return the table with its missing cells filled column by column."""
        check_fitted(self, "table_")
        table = self.table_
        if table.observed.all():
            return self._extended(table)
        num, cat = [], []
        source = self._learned or table
        for j in range(table.layout.n_num):
            size = int((~table.num_observed[:, j]).sum())
            values = source.num[source.num_observed[:, j], j]
            num.append(
                self._numbers(values, size, rng) if len(values) else np.zeros(size)
            )
        for j, card in enumerate(table.layout.cards):
            size = int((~table.cat_observed[:, j]).sum())
            codes = source.cat[source.cat_observed[:, j], j]
            cat.append(self._codes(codes, card, size, rng))
        return write_missing(self._extended(table), num, cat)

    def _extended(self, table: Table) -> Table:
        return table

    def _numbers(
        self, values: FloatArray, size: int, rng: np.random.Generator
    ) -> FloatArray:
        raise NotImplementedError

    def _codes(
        self, codes: CodeArray, card: int, size: int, rng: np.random.Generator
    ) -> CodeArray:
        """Draw from the observed class frequencies π̂_j."""
        return codes_from_uniform(class_frequencies(codes, card), rng.random(size))


class Zero(_Marginal):
    """A fixed placeholder: 0 for numbers, a reserved code K_j for categories.

    If a categorical cell is missing, the layout of the filled table has one more code
    in every categorical feature and `Layout.reserved` is True.

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

    def _extended(self, table: Table) -> Table:
        if table.cat_observed.all() and self._learned is None:
            return table
        cards = tuple(card + 1 for card in table.layout.cards)
        return replace(table, layout=replace(table.layout, cards=cards, reserved=True))

    def _numbers(
        self, values: FloatArray, size: int, rng: np.random.Generator
    ) -> FloatArray:
        del values, rng
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
        self, values: FloatArray, size: int, rng: np.random.Generator
    ) -> FloatArray:
        del rng
        return np.full(size, values.mean(dtype=np.float64))

    def _codes(
        self, codes: CodeArray, card: int, size: int, rng: np.random.Generator
    ) -> CodeArray:
        del rng
        return np.full(size, class_frequencies(codes, card).argmax())


class Noise(_Marginal):
    """Gaussian with the observed mean and deviation; observed class frequencies."""

    stochastic: ClassVar[bool] = True

    def _numbers(
        self, values: FloatArray, size: int, rng: np.random.Generator
    ) -> FloatArray:
        values = values.astype(np.float64)
        return rng.normal(values.mean(), values.std(), size)


class Ecdf(_Marginal):
    """Observed numbers drawn with replacement; observed class frequencies."""

    stochastic: ClassVar[bool] = True

    def _numbers(
        self, values: FloatArray, size: int, rng: np.random.Generator
    ) -> FloatArray:
        return rng.choice(values, size)
