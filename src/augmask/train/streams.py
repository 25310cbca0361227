"""Work that is too small to fill a GPU, beside other such work."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


class Lane:
    """A CUDA stream of one's own, beside that of the caller; nothing elsewhere.

    What is recorded on several lanes of a step is replayed side by side. What a lane
    has made is used after it has left, and the lane takes that memory again only after
    it has started anew, behind all that was asked of the caller by then.

    Parameters
    ----------
    device : torch.device, optional
        None for none.
    """

    def __init__(self, device: torch.device | None) -> None:
        self._stream: Any = None
        if device and device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @property
    def beside(self) -> bool:
        """Whether work on the lane goes on beside that of the caller."""
        return self._stream is not None

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
