"""The training set on its device: completions, supervised cells, shuffled batches.

The table is small beside a GPU's memory, so it lives there and a batch is one gather.
With several completions of a table only the holes are stored several times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from augmask.augmentation.draws import Completions, Draws
from augmask.diffusion.base import Batch
from augmask.rng import stream
from augmask.table.carrier import BoolArray, Table
from augmask.train import parallel

Supervise = Literal["observed", "all"]


def hidden_cells(
    observed: BoolArray, share: float, rng: np.random.Generator
) -> BoolArray:
    """Choose which observed cells are kept from the loss, to watch it on.

    They are chosen cell by cell, so every column is watched and no row is lost.
    """
    if share == 0:
        return np.zeros_like(observed)
    return observed & (rng.random(observed.shape) < share)


def filled_once(
    fill: Callable[[], Completions], table: Table, policy: Draws
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
    policy = policy if as_asked else Draws("one")
    first = Completions(holed, num_fill, cat_fill, policy).completion(0)
    return Completions(first, num_fill, cat_fill, policy)


def _hole_numbers(observed: BoolArray) -> Tensor:
    """Return the number of each hole in row-major order, -1 where observed."""
    holes = ~observed
    numbers = np.full(observed.shape, -1, dtype=np.int64)
    numbers[holes] = np.arange(holes.sum())
    return torch.from_numpy(numbers)


class TrainingData:
    """Completed rows, which of their cells are supervised, and an endless shuffle.

    Every pass over the data draws a new order and visits every row; a batch may reach
    over the end of one pass into the next, so no row is ever left out. With the policy
    `stack` a pass visits every pair of row and completion.

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
    """

    def __init__(
        self,
        completions: Completions,
        supervise: Supervise,
        hidden: BoolArray,
        seed: int,
        device: torch.device,
    ) -> None:
        table = completions.table
        self.completions = completions
        self.n_rows = len(table)
        self.n_num = table.layout.n_num
        counted = table.observed if supervise == "observed" else np.ones_like(hidden)

        self.num = torch.from_numpy(table.num.astype(np.float32)).to(device)
        self.cat = torch.from_numpy(table.cat.astype(np.int64)).to(device)
        self.counted = torch.from_numpy(counted & ~hidden).to(device)
        self.hidden = torch.from_numpy(hidden).to(device)
        self.many = completions.n_draws > 1
        if self.many:
            self.num_hole = _hole_numbers(table.num_observed).to(device)
            self.cat_hole = _hole_numbers(table.cat_observed).to(device)
            self.num_fill = torch.from_numpy(completions.num_fill).to(device)
            cat_fill = completions.cat_fill.astype(np.int64)
            self.cat_fill = torch.from_numpy(cat_fill).to(device)

        self._generator = torch.Generator(device).manual_seed(seed)
        self._seed = seed
        self._order = torch.empty(0, dtype=torch.long, device=device)
        self._cursor = 0
        self._epoch = 0

    def gather(self, rows: Tensor, draws: Tensor) -> Batch:
        """Return the given rows, each with the given completion of its holes."""
        num, cat = self.num[rows], self.cat[rows]
        if self.many:
            num = _fill(num, self.num_hole[rows], self.num_fill, draws)
            cat = _fill(cat, self.cat_hole[rows], self.cat_fill, draws)
        return Batch(num, cat)

    def next_pairs(self, size: int) -> Tensor:
        """Return the numbers of the next `size` pairs of row and completion."""
        parts: list[Tensor] = []
        while size:
            if self._cursor == len(self._order):
                self._start_epoch()
            part = self._order[self._cursor : self._cursor + size]
            self._cursor += len(part)
            size -= len(part)
            parts.append(part)
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def at(self, pairs: Tensor) -> tuple[Batch, Tensor]:
        """Return the rows of these pairs and the mask of their supervised cells."""
        rows = pairs % self.n_rows
        return self.gather(rows, pairs // self.n_rows), self.counted[rows]

    def _start_epoch(self) -> None:
        """Shuffle anew; a pair of row r and completion k is the number k n + r."""
        n = self.n_rows
        rng = stream(self._seed, "epoch", self._epoch)
        draw = self.completions.draw_of_epoch(self._epoch, rng)
        pairs = n * self.completions.n_draws if draw is None else n
        device = self.num.device
        self._order = torch.randperm(pairs, generator=self._generator, device=device)
        if draw is not None:
            self._order += draw * n
        # GPUs of two kinds may shuffle differently from the same seed
        parallel.copy_lead([self._order])
        self._cursor = 0
        self._epoch += 1

    def state(self) -> dict[str, Tensor]:
        """Return where the shuffle stands, for a checkpoint."""
        return {
            "order": self._order,
            "generator": self._generator.get_state(),
            "position": torch.tensor([self._cursor, self._epoch]),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state from `state()`."""
        self._order = state["order"].to(self.num.device)
        self._generator.set_state(state["generator"].cpu())
        self._cursor, self._epoch = state["position"].tolist()


def _fill(values: Tensor, holes: Tensor, fills: Tensor, draws: Tensor) -> Tensor:
    """Put completion draws[b] of hole holes[b, j] where holes[b, j] >= 0."""
    if not fills.shape[1]:
        return values
    drawn = fills[draws[:, None], holes.clamp(min=0)]
    return torch.where(holes < 0, values, drawn)
