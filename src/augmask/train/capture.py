"""A training step as a CUDA graph: recorded once, then replayed by one call.

The networks are small, so a step on a GPU is mostly the time that Python needs to
launch some hundred kernels. A graph launches them all at once. The step itself is the
same code: it reads from tensors that stay in place and writes to tensors that stay in
place, and what changes from step to step (rows, rates) is copied into them first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

log = logging.getLogger("augmask")

# steps that run as they are before the recording, so that every lazy allocation of
# torch and its libraries is behind us
WARM_UP = 3


class StepGraph:
    """Run `step` as it is at first, then from a recording.

    Parameters
    ----------
    step : callable
        Takes and returns nothing; reads and writes tensors that stay in place.
    generator : torch.Generator
        The CUDA generator that the step draws from. A replay draws what the step
        itself would have drawn.
    """

    def __init__(self, step: Callable[[], None], generator: torch.Generator) -> None:
        self._step, self._generator = step, generator
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream = torch.cuda.Stream(generator.device)  # type: ignore[no-untyped-call]
        self._calls = 0
        self.failed = False

    def __call__(self) -> None:
        """Take one step."""
        if self._graph is None and not self.failed and self._calls >= WARM_UP:
            self._record()
        if self._graph is not None:
            self._graph.replay()
            return
        # on the stream that will record, as torch asks for
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._step()
        torch.cuda.current_stream().wait_stream(self._stream)
        self._calls += 1

    def _record(self) -> None:
        """Record the step; nothing is computed by that, and nothing is drawn."""
        graph = torch.cuda.CUDAGraph()
        before = self._generator.get_state()
        try:
            graph.register_generator_state(self._generator)
            with torch.cuda.graph(graph, stream=self._stream):
                self._step()
        except RuntimeError as error:
            self.failed = True
            torch.cuda.synchronize()
            self._generator.set_state(before)
            reason = str(error).strip().splitlines()[0]
            log.warning("training goes on without a CUDA graph: %s", reason)
            return
        self._graph = graph
