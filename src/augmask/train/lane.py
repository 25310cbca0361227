"""Work that is too small to fill a GPU, beside other such work."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


class Lane:
    """A CUDA stream of one's own, beside that of the caller; nothing elsewhere.

    What is recorded on several lanes of a step is replayed side by side.

    Parameters
    ----------
    device : torch.device, optional
        None for none.
    """

    def __init__(self, device: torch.device | None) -> None:
        self._stream: Any = None
        if device and device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def start(self) -> None:
        """Let the lane wait for what the caller has asked for."""
        if self._stream:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))

    def taken(self) -> AbstractContextManager[Any]:
        """Return a context whose work goes to the lane."""
        return torch.cuda.stream(self._stream) if self._stream else nullcontext()

    def leave(self) -> None:
        """Let the caller wait for the lane."""
        if self._stream:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
