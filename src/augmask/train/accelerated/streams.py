"""CUDA side streams, for work that is too small to fill a GPU on its own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


class SideStream:
    """A CUDA stream beside the caller's; without a CUDA device it does nothing.

    Join the stream before you read its tensors; it reuses their memory only after the
    next `fork`, behind everything the caller has queued by then.
    """

    def __init__(self, device: torch.device | None) -> None:
        self._stream: Any = None
        if device and device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def fork(self) -> None:
        """Make the side stream wait for the caller's stream."""
        if self._stream:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))

    def active(self) -> AbstractContextManager[Any]:
        """Return a context manager that queues work on the side stream."""
        return torch.cuda.stream(self._stream) if self._stream else nullcontext()

    def join(self) -> None:
        """Make the caller's stream wait for the side stream."""
        if self._stream:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
