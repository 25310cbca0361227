"""The training set: completions, supervised cells, batches.

Most tables are small beside a GPU's memory, so they live there and a batch is one
gather; larger ones are streamed. With several completions of a table only the holes
are stored several times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from augmask.augmentation.completions import CompletionPlan, Completions
from augmask.diffusion.base import Batch
from augmask.table.table import BoolArray, Table
from augmask.train import parallel
from augmask.train.prefetch import Ahead
from augmask.train.shuffle import Shuffle

Supervise = Literal["observed", "all"]

# What is known of a cell, in one byte.
OBSERVED, HIDDEN = 1, 2

# Rows of a piece, where a whole table of random numbers would be larger than the table.
PIECE = 65_536


def hidden_cells(
    observed: BoolArray, share: float, rng: np.random.Generator
) -> BoolArray:
    """Choose which observed cells are kept from the loss, to watch it on.

    They are chosen cell by cell, so every column is watched and no row is lost.
    """
    hidden = np.zeros_like(observed)
    if share == 0:
        return hidden
    for start in range(0, len(observed), PIECE):
        piece = observed[start : start + PIECE]
        hidden[start : start + PIECE] = piece & (rng.random(piece.shape) < share)
    return hidden


def filled_once(
    fill: Callable[[], Completions], table: Table, policy: CompletionPlan
) -> Completions:
    """Return what `fill` made of `table`; of several processes only the first calls it.

    Filling is the dear part of a fit. What travels is what the others cannot know: how
    many draws there are, the levels that the rule may have added, and the holes.
    """
    if parallel.size() == 1:
        return fill()
    made = fill() if parallel.leads() else None
    layout = made.table.layout if made else table.layout
    facts = np.zeros(3 + layout.n_cat, dtype=np.int64)
    if made:
        facts[:] = [made.n_draws, made.policy == policy, layout.reserved, *layout.cards]
    parallel.copy_lead_array(facts)
    k, as_asked, reserved, *cards = facts.tolist()
    num_fill = np.empty((k, int((~table.num_observed).sum())), dtype=np.float32)
    cat_fill = np.empty((k, int((~table.cat_observed).sum())), dtype=np.int32)
    if made:
        num_fill, cat_fill = made.num_fill, made.cat_fill
    parallel.copy_lead_array(num_fill)
    parallel.copy_lead_array(cat_fill)
    if made:
        return made
    layout = replace(layout, cards=tuple(cards), reserved=bool(reserved))
    holed = table.filled(table.num, table.cat, layout)
    policy = policy if as_asked else CompletionPlan("one")
    first = Completions(holed, num_fill, cat_fill, policy).completion(0)
    return Completions(first, num_fill, cat_fill, policy)


def _stored(completions: Completions, hidden: BoolArray) -> dict[str, Tensor]:
    """Return the arrays of a table that batches are gathered from."""
    table = completions.table
    marks = table.observed.astype(np.uint8) * OBSERVED
    marks[hidden] |= HIDDEN
    store = {
        "num": table.num.astype(np.float32, copy=False),
        "cat": table.cat,
        "marks": marks,
    }
    if completions.n_draws > 1:
        store |= {
            "num_first": _holes_before(table.num_observed),
            "cat_first": _holes_before(table.cat_observed),
            "num_fill": completions.num_fill,
            "cat_fill": completions.cat_fill,
        }
    return {name: torch.from_numpy(part) for name, part in store.items()}


def _holes_before(observed: BoolArray) -> npt.NDArray[np.integer]:
    """Return how many holes the rows before each row have."""
    holes = observed.shape[1] - np.count_nonzero(observed, axis=1)
    before: npt.NDArray[np.integer] = np.cumsum(holes) - holes
    fits = not len(before) or before[-1] < 2**31
    return before.astype(np.int32) if fits else before


def _filled(
    values: Tensor, hole: Tensor, first: Tensor, fills: Tensor, draws: Tensor
) -> Tensor:
    """Put completion draws[b] where hole[b, j]; first[b] holes lie before row b."""
    if not fills.shape[1]:
        return values
    number = first[:, None] + hole.cumsum(1) - 1
    drawn = fills[draws[:, None], torch.where(hole, number, 0)]
    return torch.where(hole, drawn.to(values.dtype), values)


def _gathered(
    store: Mapping[str, Tensor], pairs: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return numbers, codes and marks of pairs of row and completion."""
    n, n_num = store["num"].shape
    several = "num_fill" in store
    rows = pairs % n if several else pairs
    num, cat, marks = store["num"][rows], store["cat"][rows], store["marks"][rows]
    if several:
        draws, hole = pairs // n, (marks & OBSERVED) == 0
        first, fills = store["num_first"][rows], store["num_fill"]
        num = _filled(num, hole[:, :n_num], first, fills, draws)
        first, fills = store["cat_first"][rows], store["cat_fill"]
        cat = _filled(cat, hole[:, n_num:], first, fills, draws)
    return num, cat, marks


class TrainingData:
    """Completed rows in batches, and which of their cells are supervised.

    A table of up to `resident` bytes lives on the device and a batch is one gather
    there. A larger one stays in host memory: a thread gathers batches ahead of the
    training, and the device holds one of them at a time.

    Parameters
    ----------
    completions : Completions
    supervise : {"observed", "all"}
        Whether the loss counts observed cells only (AugMask) or every cell.
    hidden : bool array [n, d]
        Observed cells kept from the loss.
    seed : int
        Of the shuffle.
    device : torch.device
    resident : float
        Bytes of the device that the table may take.

    Attributes
    ----------
    shuffle : Shuffle
        Which rows come next.
    nbytes : int
        What the table takes.
    streamed : bool
        Whether that is more than it may take.
    """

    def __init__(
        self,
        completions: Completions,
        supervise: Supervise,
        hidden: BoolArray,
        seed: int,
        device: torch.device,
        resident: float = math.inf,
    ) -> None:
        table = completions.table
        self.completions = completions
        self.device = device
        self.n_rows = len(table)
        self.n_num = table.layout.n_num
        self._every = supervise == "all"
        store = _stored(completions, hidden)
        pairs = self.n_rows * completions.n_draws
        self.nbytes = sum(part.nbytes for part in store.values()) + 8 * pairs
        self.streamed = self.nbytes > resident
        home = torch.device("cpu") if self.streamed else device
        self._store = {name: part.to(home) for name, part in store.items()}
        self._watched: Tensor | None = None
        self._asked: Tensor | None = None
        self._pairs: Tensor | None = None
        self._ahead: Ahead | None = None
        if self.streamed:
            # not a method: the two would keep each other, and the table, alive
            self._ahead = Ahead(partial(_gathered, self._store), device)
        self.shuffle = Shuffle(completions, seed, home, shared=not self.streamed)
        self._used: Mapping[str, Tensor] = self.shuffle.state()

    # -- rows ----------------------------------------------------------------------

    def _as_batch(
        self, num: Tensor, cat: Tensor, marks: Tensor
    ) -> tuple[Batch, Tensor]:
        counted = marks < HIDDEN if self._every else marks == OBSERVED
        return Batch(num, cat.long()), counted

    def at(self, pairs: Tensor) -> tuple[Batch, Tensor]:
        """Return the rows of these pairs and the mask of their supervised cells."""
        parts = _gathered(self._store, pairs.to(self._store["num"].device))
        return self._as_batch(*(part.to(self.device) for part in parts))

    @property
    def hidden(self) -> Tensor:
        """Which observed cells are kept from the loss, [n, d]; made anew each time."""
        return self._store["marks"] >= HIDDEN

    def watched(self, most: int) -> tuple[Batch, Tensor]:
        """Return the first rows that hold hidden cells, and which cells those are."""
        if self._watched is None:
            # looked up once: it is a pass over the whole table
            self._watched = torch.nonzero(self.hidden.any(1))[:, 0]
        num, cat, marks = _gathered(self._store, self._watched[:most])
        batch, _ = self._as_batch(*(p.to(self.device) for p in (num, cat, marks)))
        return batch, (marks >= HIDDEN).to(self.device)

    # -- batches -------------------------------------------------------------------

    def ask(self, size: int, share: slice = slice(None)) -> None:
        """Move on by a batch of `size`, of which this process wants a share.

        It is there after `place`.
        """
        if self._ahead is None:
            self._asked = self.shuffle.take(size)[share]
            return
        while self._ahead.wants_more:
            pairs = self.shuffle.take(size)[share]
            self._ahead.ask(pairs, self.shuffle.state())
        self._used = self._ahead.take()

    def stage(self, size: int, share: slice = slice(None)) -> None:
        """Ask for a batch and place it."""
        self.ask(size, share)
        place([self])

    def staged(self) -> tuple[Batch, Tensor]:
        """Return the batch that was staged, and the mask of its supervised cells.

        Reads tensors that stay in place, so a CUDA graph may hold this.
        """
        if self._ahead is not None:
            return self._as_batch(*self._ahead.staged)
        assert self._pairs is not None
        return self.at(self._pairs)

    def state(self) -> Mapping[str, Tensor]:
        """Return where the shuffle stands, for a checkpoint."""
        return self.shuffle.state() if self._ahead is None else self._used

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state from `state()`."""
        if self._ahead is not None:
            self._ahead.forget()
        self.shuffle.restore(state)
        self._used = self.shuffle.state()


def place(every: Sequence[TrainingData]) -> None:
    """Put what each was asked for where `staged` reads it; all by one copy."""
    places, asked = [], []
    for data in every:
        if data._asked is None:
            continue
        if data._pairs is None or len(data._pairs) != len(data._asked):
            data._pairs = torch.empty_like(data._asked)
        places.append(data._pairs)
        asked.append(data._asked)
        data._asked = None
    if places:
        torch._foreach_copy_(places, asked)
