"""How many completions of the table exist, and which one an epoch of training sees.

`one` fixed draw is the paper's default. `cycle:k` switches the whole table to the next
of k cached draws each epoch. `anchor:k:rho` uses a fixed draw with probability ρ and
otherwise a cached one. `stack:k` (ours) lets every row live in the training set k
times, each time with another draw in its holes and the same mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from augmask.errors import UsageError
from augmask.table.table import BoolArray, Table

if TYPE_CHECKING:
    from augmask.augmentation.base import Augmenter
    from augmask.progress import Progress

Kind = Literal["one", "cycle", "anchor", "stack"]
# Rows that are looked at a time.
PIECE = 65_536

FORMS = "'one', 'cycle:K', 'anchor:K:RHO' or 'stack:K', for example 'stack:4'"


@dataclass(frozen=True)
class CompletionPlan:
    """A policy of draws.

    Parameters
    ----------
    kind : {"one", "cycle", "anchor", "stack"}
    k : int
        Size of the cache; of "anchor" the anchor itself comes on top.
    rho : float
        Share of epochs that see the anchor; only "anchor" uses it.

    Examples
    --------
    >>> CompletionPlan.parse("anchor:30:0.8")
    CompletionPlan(kind='anchor', k=30, rho=0.8)
    >>> str(CompletionPlan.parse("stack:4")), CompletionPlan.parse("anchor:30:0.8").n_draws
    ('stack:4', 31)
    """

    kind: Kind = "one"
    k: int = 1
    rho: float = 1.0

    def __post_init__(self) -> None:
        wrong = (
            self.kind not in get_args(Kind)
            or self.k < 1
            or (self.kind == "one" and self.k != 1)
            or not 0.0 <= self.rho <= 1.0
        )
        if wrong:
            raise UsageError(
                f"completions must be {FORMS}, with K at least 1 and RHO in [0, 1]; "
                f"got kind={self.kind!r}, k={self.k}, rho={self.rho}"
            )

    @classmethod
    def parse(cls, text: str) -> CompletionPlan:
        """Read a policy from its name."""
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
        """How many completions the policy needs."""
        return self.k + 1 if self.kind == "anchor" else self.k

    def draw_of_epoch(self, epoch: int, rng: np.random.Generator) -> int | None:
        """Return which draw the whole table shows in `epoch`, counted from 0.

        None means no single one: with "stack" an epoch visits every pair of a row
        and a draw once.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> [CompletionPlan.parse("cycle:3").draw_of_epoch(epoch, rng) for epoch in range(4)]
        [0, 1, 2, 0]
        """
        if self.kind == "stack":
            return None
        if self.kind == "cycle":
            return epoch % self.k
        if self.kind == "anchor" and rng.random() >= self.rho:
            # By epoch and not by a counter, so that a resumed run needs no memory.
            return 1 + epoch % self.k
        return 0


@dataclass(frozen=True, eq=False)
class Completions:
    """k completions of one table, with memory for the missing cells only.

    Parameters
    ----------
    table : Table
        Completed with draw 0. Its layout may hold a reserved code.
    num_fill : float32 array [k, numeric holes]
        Holes in row-major order of `table.num`.
    cat_fill : int32 array [k, categorical holes]
        Holes in row-major order of `table.cat`.
    policy : Draws
    """

    table: Table
    num_fill: npt.NDArray[np.float32]
    cat_fill: npt.NDArray[np.int32]
    policy: CompletionPlan

    @property
    def n_draws(self) -> int:
        """How many completions there are."""
        return len(self.num_fill)

    def completion(self, i: int) -> Table:
        """Return the table completed with draw `i`."""
        num, cat = self.table.num.copy(), self.table.cat.copy()
        num[~self.table.num_observed] = self.num_fill[i]
        cat[~self.table.cat_observed] = self.cat_fill[i]
        return self.table.filled(num, cat)

    def draw_of_epoch(self, epoch: int, rng: np.random.Generator) -> int | None:
        """Return the policy's choice for `epoch`; see `CompletionPlan.draw_of_epoch`."""
        return self.policy.draw_of_epoch(epoch, rng)


def _pieces(n: int) -> Iterator[slice]:
    """Go over `n` rows without needing memory for something as large as the table."""
    return (slice(start, start + PIECE) for start in range(0, n, PIECE))


def _broken(table: Table, filled: Table, rows: slice) -> str | None:
    """Say which promise of `Augmenter.draw` some rows break, if one."""
    num, cat = filled.num[rows], filled.cat[rows]
    changed_num = (num != table.num[rows]) & table.num_observed[rows]
    changed_cat = (cat != table.cat[rows]) & table.cat_observed[rows]
    if changed_num.any() or changed_cat.any():
        return "leave observed cells as they are"
    if not np.isfinite(num).all():
        return "fill every numeric hole with a finite number"
    if ((cat < 0) | (cat >= np.array(filled.layout.cards, dtype=int))).any():
        return "fill every categorical hole with a code of the layout"
    return None


def check_completion(table: Table, filled: Table) -> None:
    """Raise `UsageError` unless `filled` keeps the promises of `Augmenter.draw`."""
    broken: str | None = None
    if filled.layout.names != table.layout.names or not np.array_equal(
        filled.observed, table.observed
    ):
        broken = "keep the features and the mask"
    else:
        every = (_broken(table, filled, rows) for rows in _pieces(len(table)))
        broken = next(filter(None, every), None)
    if broken:
        raise UsageError(f"The draw of an augmenter must {broken}; this one does not.")


def _take_holes(
    values: npt.NDArray[Any], observed: BoolArray, place: npt.NDArray[Any]
) -> None:
    """Write what stands in the holes, in row-major order, to `place`."""
    at = 0
    for rows in _pieces(len(values)):
        found = values[rows][~observed[rows]]
        place[at : at + len(found)] = found
        at += len(found)


def complete(
    augmenter: Augmenter,
    table: Table,
    policy: CompletionPlan,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> Completions:
    """Fit `augmenter` on `table` and draw as many completions as `policy` asks for.

    Where all draws would be equal (no holes, or a rule that says it is not
    stochastic) one is drawn and the policy becomes "one": copies of the same row
    would only change the order in which training meets the data.

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
    >>> drawn = complete(Ecdf(), table, CompletionPlan.parse("stack:4"), rng)
    >>> drawn.n_draws, drawn.num_fill.shape, drawn.completion(3).num.shape
    (4, (4, 1), (3, 1))
    """
    augmenter.fit(table, rng, progress)
    if table.observed.all() or not getattr(augmenter, "stochastic", True):
        policy = CompletionPlan("one")
    k = policy.n_draws
    n_num = np.count_nonzero(~table.num_observed)
    n_cat = np.count_nonzero(~table.cat_observed)
    num_fill = np.empty((k, n_num), dtype=np.float32)
    cat_fill = np.empty((k, n_cat), dtype=np.int32)
    layout = table.layout
    for i in range(k):
        filled = augmenter.draw(rng)
        check_completion(table, filled)
        layout = filled.layout
        _take_holes(filled.num, table.num_observed, num_fill[i])
        _take_holes(filled.cat, table.cat_observed, cat_fill[i])
        # the next draw is made while this one is not in memory any more
        del filled
    holed = Completions(
        table.filled(table.num, table.cat, layout), num_fill, cat_fill, policy
    )
    return Completions(holed.completion(0), num_fill, cat_fill, policy)
