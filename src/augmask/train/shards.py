"""Training on shards: rows of a table that is larger than memory, in random order.

Rows are shuffled in two stages, because a disk reads runs of rows far faster than
single ones. Every epoch the blocks of `BLOCK_ROWS` neighbouring rows are shuffled over
the whole table; `WINDOW_BLOCKS` of them at a time are read into memory, and the rows of
this window are shuffled again. So a batch holds rows from all over the table, except
that neighbours meet more often than by chance. Memory depends on the window, not on the
table.

The shards are dealt to lanes, and every batch takes its share of rows from each lane.
Several processes divide the lanes, so each of them reads its own shards only, and a
batch holds the same rows however many processes there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from augmask.augmentation.completions import CompletionPlan
from augmask.augmentation.shards import HELD_OUT, Arrays, Shard, joined
from augmask.diffusion.base import Batch
from augmask.errors import UsageError
from augmask.rng import stream, stream_seed
from augmask.table.table import Layout
from augmask.train import parallel
from augmask.train.accelerated.prefetch import Prefetcher
from augmask.train.data import Supervise, Supervised, as_batch, gather_pairs

BLOCK_ROWS = 1_024
# Blocks in memory at a time, over all lanes: about a million rows.
WINDOW_BLOCKS = 1_024
LANES = 8

Block = tuple[int, int, int]  # shard, first row, end


class Position(NamedTuple):
    """The next pair of a row and a completion in a lane."""

    epoch: int
    window: int
    cursor: int


class Lane:
    """The order in which the rows of some shards are visited, over and over.

    Parameters
    ----------
    shards : sequence of Shard
    plan : CompletionPlan
    seed : int
        Of this lane.
    window_blocks : int
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        plan: CompletionPlan,
        seed: int,
        window_blocks: int,
    ) -> None:
        self.shards, self.plan = shards, plan
        self.seed, self.window_blocks = seed, window_blocks
        self.rows = sum(shard.rows for shard in shards)
        self.position = Position(0, 0, 0)
        self._blocks = [
            (s, first, min(first + BLOCK_ROWS, shard.rows))
            for s, shard in enumerate(shards)
            for first in range(0, shard.rows, BLOCK_ROWS)
        ]
        self.n_windows = -(-len(self._blocks) // window_blocks)
        self._order: tuple[int, npt.NDArray[np.int64]] | None = None
        self._loaded: tuple[Position, dict[str, Tensor], Tensor] | None = None

    def blocks(self, epoch: int, window: int) -> list[Block]:
        """Return the blocks of a window."""
        if self._order is None or self._order[0] != epoch:
            order = stream(self.seed, "blocks", epoch).permutation(len(self._blocks))
            self._order = (epoch, order)
        start = window * self.window_blocks
        chosen = self._order[1][start : start + self.window_blocks]
        return [self._blocks[i] for i in chosen]

    def take(self, size: int) -> list[tuple[Position, int]]:
        """Move on by `size` pairs; return the runs of them, and their lengths."""
        runs = []
        while size:
            epoch, window, cursor = here = self.position
            left = self._pairs(epoch, window) - cursor
            n = min(size, left)
            runs.append((here, n))
            size -= n
            if n < left:
                self.position = Position(epoch, window, cursor + n)
            elif window + 1 < self.n_windows:
                self.position = Position(epoch, window + 1, 0)
            else:
                self.position = Position(epoch + 1, 0, 0)
        return runs

    def _pairs(self, epoch: int, window: int) -> int:
        rows = sum(end - first for _, first, end in self.blocks(epoch, window))
        return rows if self._completion(epoch) is not None else rows * self.plan.n_draws

    def _completion(self, epoch: int) -> int | None:
        """Return the completion that an epoch uses, None if it uses all."""
        return self.plan.draw_of_epoch(epoch, stream(self.seed, "epoch", epoch))

    def read(self, position: Position, n: int) -> tuple[Tensor, ...]:
        """Return numbers, codes and flags of `n` pairs from a position on."""
        store, order = self._window(position)
        return gather_pairs(store, order[position.cursor : position.cursor + n])

    def _window(self, position: Position) -> tuple[dict[str, Tensor], Tensor]:
        """Return the rows of a window and the order of its pairs; the last is kept."""
        key = position._replace(cursor=0)
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = None  # or two windows would be in memory
            epoch, window, _ = key
            arrays = self._load(self.blocks(epoch, window))
            n = len(arrays["flags"])
            completion = self._completion(epoch)
            pairs = n if completion is not None else n * self.plan.n_draws
            generator = torch.Generator().manual_seed(
                stream_seed(self.seed, "rows", epoch, window)
            )
            order = torch.randperm(pairs, generator=generator)
            order += (completion or 0) * n
            store = {name: torch.from_numpy(array) for name, array in arrays.items()}
            self._loaded = (key, store, order)
        return self._loaded[1], self._loaded[2]

    def _load(self, blocks: list[Block]) -> Arrays:
        """Read blocks, those of a shard together."""
        parts = []
        for s in sorted({block[0] for block in blocks}):
            runs = sorted((first, end) for own, first, end in blocks if own == s)
            parts.append(self.shards[s].read(runs))
        return joined(parts)


class ShardedData:
    """What `TrainingData` is for a table in memory, for shards on disk.

    Parameters
    ----------
    shards : sequence of Shard
        All of them, in the order of the parts; this process reads its lanes only.
    validation : Arrays
        Rows with held-out cells.
    layout : Layout
    plan : CompletionPlan
    supervise : {"observed", "all"}
    seed : int
        Of the shuffle.
    device : torch.device
    """

    indices = None  # batches are prefetched

    def __init__(
        self,
        shards: Sequence[Shard],
        validation: Arrays,
        layout: Layout,
        plan: CompletionPlan,
        supervise: Supervise,
        seed: int,
        device: torch.device,
    ) -> None:
        self.layout, self.device = layout, device
        self._supervise_all = supervise == "all"
        self._validation = validation
        n_lanes = min(LANES, len(shards))
        own, processes = parallel.rank(), parallel.world_size()
        if processes > n_lanes:
            raise UsageError(
                f"{processes} processes need as many parts of the table, at most "
                f"{LANES}, and there are {len(shards)}; start fewer processes"
            )
        self.lanes = [
            Lane(
                shards[lane::n_lanes],
                plan,
                stream_seed(seed, "lane", lane),
                max(1, WINDOW_BLOCKS // n_lanes),
            )
            for lane in range(n_lanes)
        ]
        # a lane's share of every batch is that of its rows
        self._shares = np.cumsum([0, *(lane.rows for lane in self.lanes)])
        self._own = {i for i in range(n_lanes) if i * processes // n_lanes == own}
        self._prefetcher = Prefetcher(self._read, device)
        self._state: Mapping[str, Tensor] = self._positions()

    def advance(self, size: int, rows: slice = slice(None)) -> None:
        """Select the next `size` rows; this process reads those of its lanes."""
        del rows
        while self._prefetcher.has_room:
            requests = self._requests(size)
            self._prefetcher.submit(requests, self._positions())
        self._state = self._prefetcher.next()

    def _requests(self, size: int) -> Tensor:
        """Return the runs of pairs of the next batch: lane, position, length."""
        ends = self._shares * size // self._shares[-1]
        # every process follows all lanes, so that any of them can write a checkpoint
        requests = [
            (i, *position, n)
            for i, lane in enumerate(self.lanes)
            for position, n in lane.take(int(ends[i + 1] - ends[i]))
            if i in self._own
        ]
        return torch.tensor(requests, dtype=torch.int64).reshape(-1, 5)

    def _read(self, requests: Tensor) -> tuple[Tensor, ...]:
        if not len(requests):
            empty = (self._validation[name][:0] for name in ("num", "cat", "flags"))
            return tuple(map(torch.from_numpy, empty))
        parts = [
            self.lanes[lane].read(Position(epoch, window, cursor), n)
            for lane, epoch, window, cursor, n in requests.tolist()
        ]
        return tuple(torch.cat(part) for part in zip(*parts, strict=True))

    def batch(self) -> Supervised:
        """Return the current batch and the mask of its supervised cells."""
        return as_batch(self._prefetcher.current, self._supervise_all)

    def example(self, size: int) -> Supervised:
        """Return a batch of this size; what it holds does not matter."""
        shape = {"num": self.layout.n_num, "cat": self.layout.n_cat}
        num, cat = (torch.zeros(size, d, device=self.device) for d in shape.values())
        flags = torch.full((size, self.layout.n_features), 1, device=self.device)
        return as_batch((num, cat, flags), self._supervise_all)

    @property
    def validates(self) -> bool:
        """Whether any cell is held out of the loss."""
        return bool((self._validation["flags"] >= HELD_OUT).any())

    def held_out_batch(self, max_rows: int) -> tuple[Batch, Tensor]:
        """Return rows with held-out cells, and the mask of these cells."""
        num, cat, flags = (
            torch.from_numpy(self._validation[name][:max_rows]).to(self.device)
            for name in ("num", "cat", "flags")
        )
        return Batch(num, cat.long()), flags >= HELD_OUT

    def _positions(self) -> Mapping[str, Tensor]:
        positions = [lane.position for lane in self.lanes]
        return {"position": torch.tensor(positions, dtype=torch.int64)}

    def state(self) -> Mapping[str, Tensor]:
        """Return the position in every lane, for a checkpoint."""
        return self._state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Return to a state from `state()`."""
        self._prefetcher.clear()
        for lane, position in zip(self.lanes, state["position"].tolist(), strict=True):
            epoch, window, cursor = position
            if not (epoch >= 0 and 0 <= window < lane.n_windows and cursor >= 0):
                raise ValueError(f"there is no window {window} in epoch {epoch}")
            lane.position = Position(epoch, window, cursor)
        self._state = self._positions()


def validation_rows(shards: Sequence[Shard], most: int) -> Arrays:
    """Return rows with held-out cells, of each shard its share of `most`."""
    total = sum(shard.rows for shard in shards)
    parts = []
    for shard in shards:
        share = max(1, round(most * shard.rows / total))
        # most rows have no held-out cell
        head = shard.read([(0, min(shard.rows, 16 * share))])
        chosen = np.flatnonzero((head["flags"] >= HELD_OUT).any(axis=1))[:share]
        parts.append({name: head[name][chosen] for name in ("num", "cat", "flags")})
    return joined(parts)
