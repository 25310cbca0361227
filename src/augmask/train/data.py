"""The training set: completed rows, supervised cells, batches.

Most tables are small compared with a GPU's memory, so they live there and a batch is
one gather; larger ones are streamed from host memory. With several completions of a
table only the missing values are stored several times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from augmask.augmentation.completions import CompletionPlan, Completions
from augmask.augmentation.shards import HELD_OUT, OBSERVED, training_arrays
from augmask.diffusion.base import Batch
from augmask.table.table import BoolArray, Table
from augmask.train import parallel
from augmask.train.accelerated import make_shuffle
from augmask.train.accelerated.prefetch import Prefetcher

Supervise = Literal["observed", "all"]
Supervised = tuple[Batch, Tensor]  # a batch, and the mask of its supervised cells


def complete_once(
    fill: Callable[[], Completions], table: Table, plan: CompletionPlan
) -> Completions:
    """Return the completions of `table` that `fill` makes, on every process.

    Augmentation is expensive, so only the main process calls `fill`. It broadcasts what
    the others cannot know: how many completions there are, the levels that the
    augmenter may have added, and the imputed values.
    """
    if parallel.world_size() == 1:
        return fill()
    filled = fill() if parallel.is_main_process() else None
    layout = filled.table.layout if filled else table.layout
    header = np.zeros(3 + layout.n_cat, dtype=np.int64)
    if filled:
        plans = filled.n_draws, filled.plan == plan
        header[:] = [*plans, layout.reserved, *layout.cards]
    parallel.broadcast_array(header)
    k, same_plan, reserved, *cards = header.tolist()
    num_fill = np.empty((k, int((~table.num_observed).sum())), dtype=np.float32)
    cat_fill = np.empty((k, int((~table.cat_observed).sum())), dtype=np.int32)
    if filled:
        num_fill, cat_fill = filled.num_fill, filled.cat_fill
    parallel.broadcast_array(num_fill)
    parallel.broadcast_array(cat_fill)
    if filled:
        return filled
    layout = replace(layout, cards=tuple(cards), reserved=bool(reserved))
    incomplete = table.filled(table.num, table.cat, layout)
    plan = plan if same_plan else CompletionPlan("one")
    first = Completions(incomplete, num_fill, cat_fill, plan).completion(0)
    return Completions(first, num_fill, cat_fill, plan)


def _apply_fill(
    values: Tensor, missing: Tensor, offset: Tensor, fill: Tensor, completion: Tensor
) -> Tensor:
    """Put the imputed values of completion[b] where missing[b, j].

    Row b's values start at offset[b] in `fill`.
    """
    if not fill.shape[1]:
        return values
    position = offset[:, None] + missing.cumsum(1) - 1
    imputed = fill[completion[:, None], torch.where(missing, position, 0)]
    return torch.where(missing, imputed.to(values.dtype), values)


def gather_pairs(store: Mapping[str, Tensor], indices: Tensor) -> tuple[Tensor, ...]:
    """Return numbers, codes and flags of pairs of row and completion."""
    n, n_num = store["num"].shape
    several = "num_fill" in store
    rows = indices % n if several else indices
    num, cat, flags = store["num"][rows], store["cat"][rows], store["flags"][rows]
    if several:
        completion, missing = indices // n, (flags & OBSERVED) == 0
        offset, fill = store["num_offset"][rows], store["num_fill"]
        num = _apply_fill(num, missing[:, :n_num], offset, fill, completion)
        offset, fill = store["cat_offset"][rows], store["cat_fill"]
        cat = _apply_fill(cat, missing[:, n_num:], offset, fill, completion)
    return num, cat, flags


def as_batch(rows: tuple[Tensor, ...], supervise_all: bool) -> Supervised:
    """Return numbers, codes and flags as a batch and the mask of supervised cells."""
    num, cat, flags = rows
    supervised = flags < HELD_OUT if supervise_all else flags == OBSERVED
    return Batch(num, cat.long()), supervised


class TrainingData:
    """A data loader of completed rows and of the mask of their supervised cells.

    `advance` selects the rows of the next batch, `batch` returns them. A table of up to
    `max_bytes` lives on the device; a larger one stays in host memory, where a thread
    prefetches batches.

    Parameters
    ----------
    completions : Completions
    supervise : {"observed", "all"}
        Whether the loss includes observed cells only (AugMask) or every cell.
    held_out : bool array [n, d]
        Observed cells that are left out of the loss.
    seed : int
        Of the shuffle.
    device : torch.device
    max_bytes : float
        Device memory that the table may take.

    Attributes
    ----------
    indices : Tensor, or None
        Of the current batch; None when batches are prefetched.
    shuffle : Shuffle
        Supplies the indices.
    layout : Layout
    nbytes : int
        Size of the table.
    streamed : bool
        Whether it exceeds `max_bytes`.
    """

    def __init__(
        self,
        completions: Completions,
        supervise: Supervise,
        held_out: BoolArray,
        seed: int,
        device: torch.device,
        max_bytes: float = math.inf,
    ) -> None:
        table = completions.table
        self.completions = completions
        self.device = device
        self.n_rows = len(table)
        self.layout = table.layout
        self._supervise_all = supervise == "all"
        arrays = training_arrays(completions, held_out)
        store = {name: torch.from_numpy(part) for name, part in arrays.items()}
        pairs = self.n_rows * completions.n_draws
        self.nbytes = sum(part.nbytes for part in store.values()) + 8 * pairs
        self.streamed = self.nbytes > max_bytes
        home = torch.device("cpu") if self.streamed else device
        self._store = {name: part.to(home) for name, part in store.items()}
        self._held_out_rows: Tensor | None = None
        self.indices: Tensor | None = None
        self._prefetcher: Prefetcher | None = None
        if self.streamed:
            # a bound method would be a reference cycle that keeps the table alive
            self._prefetcher = Prefetcher(partial(gather_pairs, self._store), device)
        self.shuffle = make_shuffle(
            completions, seed, home, synchronized=not self.streamed
        )
        self._prefetched_state: Mapping[str, Tensor] = self.shuffle.state()

    def advance(self, size: int, rows: slice = slice(None)) -> None:
        """Select the next `size` rows, of which this process uses the slice `rows`."""
        if self._prefetcher is None:
            self.indices = self.shuffle.take(size)[rows]
            return
        while self._prefetcher.has_room:
            indices = self.shuffle.take(size)[rows]
            self._prefetcher.submit(indices, self.shuffle.state())
        self._prefetched_state = self._prefetcher.next()

    def batch(self) -> Supervised:
        """Return the current batch and the mask of its supervised cells."""
        if self._prefetcher is not None:
            return as_batch(self._prefetcher.current, self._supervise_all)
        assert self.indices is not None
        return self.gather(self.indices)

    def gather(self, indices: Tensor) -> Supervised:
        """Return the rows with these indices and the mask of their supervised cells."""
        parts = gather_pairs(self._store, indices.to(self._store["num"].device))
        return as_batch(
            tuple(part.to(self.device) for part in parts), self._supervise_all
        )

    def example(self, size: int) -> Supervised:
        """Return a batch of this size; what it holds does not matter."""
        return self.gather(torch.zeros(size).long())

    @property
    def validates(self) -> bool:
        """Whether any cell is held out of the loss."""
        return bool(self.held_out.any())

    @property
    def held_out(self) -> Tensor:
        """The observed cells left out of the loss, [n, d]; computed on every access."""
        return self._store["flags"] >= HELD_OUT

    def held_out_batch(self, max_rows: int) -> tuple[Batch, Tensor]:
        """Return the first rows with held-out cells, and the mask of these cells."""
        if self._held_out_rows is None:
            # cached, because it takes a pass over the whole table
            self._held_out_rows = torch.nonzero(self.held_out.any(1))[:, 0]
        rows = self._held_out_rows[:max_rows]
        batch, _ = self.gather(rows)
        return batch, (self._store["flags"][rows] >= HELD_OUT).to(self.device)

    def state(self) -> Mapping[str, Tensor]:
        """Return the position in the shuffle, for a checkpoint."""
        return self._prefetched_state if self._prefetcher else self.shuffle.state()

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Return to a state from `state()`."""
        if self._prefetcher is not None:
            self._prefetcher.clear()
        self.shuffle.restore(state)
        self._prefetched_state = self.shuffle.state()
