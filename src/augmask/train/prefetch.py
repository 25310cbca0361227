"""Batches of a table that stays in host memory, made ready ahead of the training.

While the device works on a batch, a thread gathers the next ones; their numbers then
travel to the device into tensors that stay in place, so that a CUDA graph can read
them. The thread touches host memory only: what it would ask of CUDA could spoil a
recording that is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor

Parts = tuple[Tensor, ...]
State = Mapping[str, Tensor]

DEPTH = 2


class Ahead:
    """A queue of batches that are being gathered, and the one that is used.

    Parameters
    ----------
    gather : callable
        Returns the parts of a batch, in host memory, given the numbers of its rows.
    device : torch.device
        Where the batch is used.

    Attributes
    ----------
    staged : tuple of Tensor
        The batch in use; the same tensors from batch to batch of one size.
    """

    def __init__(self, gather: Callable[[Tensor], Parts], device: torch.device) -> None:
        self._gather, self._device = gather, device
        self._thread = ThreadPoolExecutor(1, "augmask-batches")
        self._asked: deque[tuple[Future[Parts], State]] = deque()
        self._sent: deque[tuple[Parts, Any]] = deque()
        self._free: list[Parts] = []
        self.staged: Parts = ()

    @property
    def wants_more(self) -> bool:
        """Whether a further batch should be asked for."""
        return len(self._asked) <= DEPTH

    def ask(self, rows: Tensor, state: State) -> None:
        """Have a batch gathered; `state` is handed back with it."""
        page = self._page(rows) if self._device.type == "cuda" else None
        self._asked.append((self._thread.submit(self._fetch, rows, page), state))

    def take(self) -> State:
        """Stage the oldest batch asked for and return its state."""
        future, state = self._asked.popleft()
        parts = future.result()
        if [p.shape for p in self.staged] != [p.shape for p in parts]:
            self.staged = tuple(torch.empty_like(p, device=self._device) for p in parts)
        for place, part in zip(self.staged, parts, strict=True):
            place.copy_(part, non_blocking=True)
        if self._device.type == "cuda":
            sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
            sent.record(torch.cuda.current_stream(self._device))
            self._sent.append((parts, sent))
            if len(self._sent) > 1:
                page, arrived = self._sent.popleft()
                arrived.synchronize()
                self._free.append(page)
        return state

    def forget(self) -> None:
        """Drop what was asked for and not taken."""
        wait([future for future, _ in self._asked])
        self._asked.clear()

    def _page(self, rows: Tensor) -> Parts:
        """Return page-locked memory for a batch, from which copies need not wait."""
        like = self._gather(rows[:0])
        shapes = [(len(rows), *part.shape[1:]) for part in like]
        while self._free:
            page = self._free.pop()
            if [tuple(part.shape) for part in page] == shapes:
                return page
        return tuple(
            torch.empty(shape, dtype=part.dtype, pin_memory=True)
            for shape, part in zip(shapes, like, strict=True)
        )

    def _fetch(self, rows: Tensor, page: Parts | None) -> Parts:
        parts = self._gather(rows)
        if page is None:
            return parts
        for place, part in zip(page, parts, strict=True):
            place.copy_(part)
        return page
