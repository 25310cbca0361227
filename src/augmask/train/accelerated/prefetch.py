"""Work done ahead of the training: batches of large tables, and shuffles on a GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from augmask.train.accelerated.streams import SideStream
from augmask.train.shuffle import Epoch, Shuffle

Parts = tuple[Tensor, ...]
State = Mapping[str, Tensor]

DEPTH = 2  # batches that are gathered ahead


class Prefetcher:
    """Gathers batches of a table in host memory while the device trains.

    A thread calls `gather` with the indices of the next batches; each batch is then
    copied into the tensors `current`, which stay in place for a CUDA graph to read. The
    thread touches host memory only: a call to CUDA could break a graph capture.
    """

    def __init__(self, gather: Callable[[Tensor], Parts], device: torch.device) -> None:
        self._gather, self._device = gather, device
        self._thread = ThreadPoolExecutor(1, "augmask-batches")
        self._queue: deque[tuple[Future[Parts], State]] = deque()
        self._in_transfer: deque[tuple[Parts, Any]] = deque()
        self._free_buffers: list[Parts] = []
        self.current: Parts = ()

    @property
    def has_room(self) -> bool:
        """Whether to submit another batch."""
        return len(self._queue) <= DEPTH

    def submit(self, indices: Tensor, state: State) -> None:
        """Start gathering a batch; `next` returns `state` along with it."""
        buffer = self._pinned_buffer(indices) if self._device.type == "cuda" else None
        self._queue.append((self._thread.submit(self._fetch, indices, buffer), state))

    def next(self) -> State:
        """Make the oldest submitted batch the current one and return its state."""
        future, state = self._queue.popleft()
        parts = future.result()
        if [p.shape for p in self.current] != [p.shape for p in parts]:
            self.current = tuple(
                torch.empty_like(p, device=self._device) for p in parts
            )
        for target, part in zip(self.current, parts, strict=True):
            target.copy_(part, non_blocking=True)
        if self._device.type == "cuda":
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(torch.cuda.current_stream(self._device))
            self._in_transfer.append((parts, copied))
            if len(self._in_transfer) > 1:
                buffer, copied = self._in_transfer.popleft()
                copied.synchronize()
                self._free_buffers.append(buffer)
        return state

    def clear(self) -> None:
        """Drop all submitted batches."""
        wait([future for future, _ in self._queue])
        self._queue.clear()

    def _pinned_buffer(self, indices: Tensor) -> Parts:
        """Return page-locked memory for a batch, for asynchronous copies."""
        like = self._gather(indices[:0])
        shapes = [(len(indices), *part.shape[1:]) for part in like]
        while self._free_buffers:
            buffer = self._free_buffers.pop()
            if [tuple(part.shape) for part in buffer] == shapes:
                return buffer
        return tuple(
            torch.empty(shape, dtype=part.dtype, pin_memory=True)
            for shape, part in zip(shapes, like, strict=True)
        )

    def _fetch(self, indices: Tensor, buffer: Parts | None) -> Parts:
        parts = self._gather(indices)
        if buffer is None:
            return parts
        for target, part in zip(buffer, parts, strict=True):
            target.copy_(part)
        return buffer


class PrefetchedShuffle(Shuffle):
    """A shuffle that draws the next epoch on a side stream during the current one.

    Sorting random numbers takes many small kernels, and the next training step would
    wait for them.
    """

    _upcoming: Epoch | None = None

    @cached_property
    def _stream(self) -> SideStream:
        return SideStream(self._generator.device)

    def _start_epoch(self) -> Epoch:
        current = self._upcoming or self._draw(self._epoch)
        self._stream.join()
        self._upcoming = self._draw(self._epoch + 1)
        return current

    def _draw(self, epoch: int) -> Epoch:
        self._stream.fork()
        with self._stream.active():
            return super()._draw(epoch)

    def state(self) -> dict[str, Tensor]:
        """Return the position in the shuffle, for a checkpoint."""
        state = super().state()
        if self._current is None and self._upcoming:
            state["generator"] = self._upcoming.generator_state
        return state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Return to a state from `state()`."""
        super().restore(state)
        self._upcoming = None
