"""The `Augmenter` protocol: T(z | x^obs, m), the rule that puts numbers in holes.

Names as in the paper: m is the mask (`Table.observed`), x^A the augmented row, u the
context of a column (the other columns with their holes, and their mask bits).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    import numpy as np

    from augmask.progress import Progress
    from augmask.table.table import Table


class Augmenter(Protocol):
    """Anything with `fit` and `draw`; no base class is needed.

    An augmenter may carry a class attribute `stochastic`. Where it is False, all
    draws are equal and callers keep only one; where it is absent, True is assumed.
    Its `version`, a text, is raised with every change of what it draws, so that stored
    fills and results of benchmarks are made anew.
    """

    def fit(
        self, table: Table, rng: np.random.Generator, progress: Progress | None = None
    ) -> Self:
        """Learn the rule from the observed cells of `table`.

        `progress("augment", done, total, {})` is called after each finished column.
        """
        ...

    def draw(self, rng: np.random.Generator) -> Table:
        """Return the fitted table without holes.

        Every cell holds a finite number or a legal code, observed cells and the mask
        are as they were, bit for bit.
        """
        ...
