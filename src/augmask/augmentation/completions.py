"""How many completions of a table to draw, and which one each training epoch uses.

`one` fixed draw is the paper's default. `cycle:k` switches the whole table to the next
of k cached draws each epoch. `anchor:k:rho` uses a fixed draw with probability ρ and
otherwise a cached one. `stack:k` (ours) repeats every row k times in the training set,
each time with another draw in its missing cells and the same mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from augmask.errors import UsageError
from augmask.table.table import BoolArray, Table

if TYPE_CHECKING:
    from augmask.augmentation import Augmenter
    from augmask.progress import Progress

Kind = Literal["one", "cycle", "anchor", "stack"]
# All draws are kept in memory.
MOST_DRAWS = 1_000
# Rows processed at a time.
CHUNK = 65_536

FORMS = "'one', 'cycle:K', 'anchor:K:RHO' or 'stack:K', for example 'stack:4'"


@dataclass(frozen=True)
class CompletionPlan:
    """How many completions to draw, and which one an epoch uses.

    Parameters
    ----------
    kind : {"one", "cycle", "anchor", "stack"}
    k : int
        Size of the cache; "anchor" needs the anchor in addition.
    rho : float
        Share of epochs that use the anchor; for "anchor" only.

    Examples
    --------
    >>> plan = CompletionPlan.parse("anchor:30:0.8")
    >>> plan, plan.n_draws
    (CompletionPlan(kind='anchor', k=30, rho=0.8), 31)
    """

    kind: Kind = "one"
    k: int = 1
    rho: float = 1.0

    def __post_init__(self) -> None:
        invalid = (
            self.kind not in get_args(Kind)
            or not 1 <= self.k <= MOST_DRAWS
            or (self.kind == "one" and self.k != 1)
            or not 0.0 <= self.rho <= 1.0
        )
        if invalid:
            raise UsageError(
                f"completions must be {FORMS}, with K from 1 to {MOST_DRAWS:,} and RHO "
                f"in [0, 1]; got kind={self.kind!r}, k={self.k}, rho={self.rho}"
            )

    @classmethod
    def parse(cls, text: str) -> CompletionPlan:
        """Parse a plan such as "stack:4"."""
        kind, *numbers = text.split(":")
        expected = {"one": 0, "cycle": 1, "anchor": 2, "stack": 1}
        try:
            if expected[kind] != len(numbers):
                raise ValueError
            k = int(numbers[0]) if numbers else 1
            rho = float(numbers[1]) if len(numbers) > 1 else 1.0
        except (KeyError, ValueError):
            raise UsageError(f"completions must be {FORMS}; got {text!r}") from None
        return cls(cast(Kind, kind), k, rho)

    def __str__(self) -> str:
        if self.kind == "one":
            return "one"
        if self.kind == "anchor":
            return f"anchor:{self.k}:{self.rho:g}"
        return f"{self.kind}:{self.k}"

    @property
    def n_draws(self) -> int:
        """Number of completions to draw."""
        return self.k + 1 if self.kind == "anchor" else self.k

    def draw_of_epoch(self, epoch: int, rng: np.random.Generator) -> int | None:
        """Return the draw that `epoch` uses, counted from 0.

        None for "stack", whose epochs visit every pair of a row and a draw once.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> plan = CompletionPlan.parse("cycle:3")
        >>> [plan.draw_of_epoch(epoch, rng) for epoch in range(4)]
        [0, 1, 2, 0]
        """
        if self.kind == "stack":
            return None
        if self.kind == "cycle":
            return epoch % self.k
        if self.kind == "anchor" and rng.random() >= self.rho:
            # A function of the epoch, so that a resumed run needs no state.
            return 1 + epoch % self.k
        return 0


@dataclass(frozen=True, eq=False)
class Completions:
    """k completions of one table; only missing cells are stored k times.

    Parameters
    ----------
    table : Table
        Completed with draw 0. Its layout may have a reserved code.
    num_fill : float32 array [k, missing numbers]
        In row-major order of `table.num`.
    cat_fill : int32 array [k, missing categories]
        In row-major order of `table.cat`.
    plan : CompletionPlan
    """

    table: Table
    num_fill: npt.NDArray[np.float32]
    cat_fill: npt.NDArray[np.int32]
    plan: CompletionPlan

    @property
    def n_draws(self) -> int:
        """Number of completions."""
        return len(self.num_fill)

    def completion(self, i: int) -> Table:
        """Return the table completed with draw `i`."""
        num, cat = self.table.num.copy(), self.table.cat.copy()
        num[~self.table.num_observed] = self.num_fill[i]
        cat[~self.table.cat_observed] = self.cat_fill[i]
        return self.table.filled(num, cat)

    def draw_of_epoch(self, epoch: int, rng: np.random.Generator) -> int | None:
        """Return the draw that `epoch` uses; see `CompletionPlan.draw_of_epoch`."""
        return self.plan.draw_of_epoch(epoch, rng)


def _chunks(n: int) -> Iterator[slice]:
    """Yield slices of `n` rows, to avoid temporaries as large as the table."""
    return (slice(start, start + CHUNK) for start in range(0, n, CHUNK))


def _violation(table: Table, filled: Table, rows: slice) -> str | None:
    """Return the requirement of `Augmenter.draw` that some rows violate, if any."""
    num, cat = filled.num[rows], filled.cat[rows]
    changed_num = (num != table.num[rows]) & table.num_observed[rows]
    changed_cat = (cat != table.cat[rows]) & table.cat_observed[rows]
    if changed_num.any() or changed_cat.any():
        return "leave observed cells unchanged"
    if not np.isfinite(num).all():
        return "fill every missing number with a finite number"
    if ((cat < 0) | (cat >= np.array(filled.layout.cards, dtype=int))).any():
        return "fill every missing category with a code of the layout"
    return None


def check_completion(table: Table, filled: Table) -> None:
    """Raise `UsageError` unless `filled` is a valid result of `Augmenter.draw`."""
    if filled.layout.names != table.layout.names or not np.array_equal(
        filled.observed, table.observed
    ):
        violation: str | None = "keep the features and the mask"
    else:
        each = (_violation(table, filled, rows) for rows in _chunks(len(table)))
        violation = next(filter(None, each), None)
    if violation:
        raise UsageError(f"invalid draw of the augmenter: it must {violation}")


def _copy_missing(
    values: npt.NDArray[Any], observed: BoolArray, out: npt.NDArray[Any]
) -> None:
    """Copy the unobserved cells, in row-major order, to `out`."""
    start = 0
    for rows in _chunks(len(values)):
        cells = values[rows][~observed[rows]]
        out[start : start + len(cells)] = cells
        start += len(cells)


def complete(
    augmenter: Augmenter,
    table: Table,
    plan: CompletionPlan,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> Completions:
    """Fit `augmenter` on `table` and draw the completions of `plan`.

    Where all draws would be equal (no missing values, or an augmenter that is not
    stochastic) one is drawn and the plan becomes "one": copies of the same row would
    only change the order of training.

    Examples
    --------
    >>> from augmask.augmentation.marginal import Ecdf
    >>> from augmask.table.table import Layout
    >>> table = Table(
    ...     np.array([[1.0], [2.0], [0.0]]),
    ...     np.zeros((3, 0), dtype=int),
    ...     np.array([[True], [True], [False]]),
    ...     Layout(("a",), (), ()),
    ... )
    >>> rng = np.random.default_rng(0)
    >>> completions = complete(Ecdf(), table, CompletionPlan.parse("stack:4"), rng)
    >>> completions.n_draws, completions.num_fill.shape
    (4, (4, 1))
    """
    augmenter.fit(table, rng, progress)
    if table.observed.all() or not getattr(augmenter, "stochastic", True):
        plan = CompletionPlan("one")
    k = plan.n_draws
    n_num = np.count_nonzero(~table.num_observed)
    n_cat = np.count_nonzero(~table.cat_observed)
    num_fill = np.empty((k, n_num), dtype=np.float32)
    cat_fill = np.empty((k, n_cat), dtype=np.int32)
    layout = table.layout
    for i in range(k):
        filled = augmenter.draw(rng)
        check_completion(table, filled)
        layout = filled.layout
        _copy_missing(filled.num, table.num_observed, num_fill[i])
        _copy_missing(filled.cat, table.cat_observed, cat_fill[i])
        # Free this draw before the next one is drawn.
        del filled
    incomplete = Completions(
        table.filled(table.num, table.cat, layout), num_fill, cat_fill, plan
    )
    return replace(incomplete, table=incomplete.completion(0))
