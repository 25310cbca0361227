"""One call instead of a hundred: a step on a GPU, recorded and played again.

The networks are small, so a step is mostly the time that Python needs to launch its
kernels. A CUDA graph, recorded once, launches them all by one call. The step reads from
tensors that stay in place and writes to tensors that stay in place; what changes from
step to step is copied into them first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch

from augmask.diffusion.noise import Noise

log = logging.getLogger("augmask")

# steps that run as they are before the recording, so that every lazy allocation of
# torch and its libraries is behind us
WARM_UP = 3


def reason(error: Exception) -> str:
    """Return the first line of what went wrong."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class CudaGraph:
    """Run `step` as it is at first, then from a recording.

    Parameters
    ----------
    step : callable
        Takes and returns nothing; reads and writes tensors that stay in place.
    generators : sequence of torch.Generator
        The CUDA generators that the step draws from, at least one. A replay draws what
        the step itself would have drawn.
    what : str
        What goes on without a recording if none can be made, for the log.
    """

    def __init__(
        self,
        step: Callable[[], None],
        generators: Sequence[torch.Generator],
        what: str,
    ) -> None:
        self._step, self._generators, self._what = step, generators, what
        self._device = generators[0].device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
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
        outside = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(outside)
        with torch.cuda.stream(self._stream):
            self._step()
        outside.wait_stream(self._stream)
        self._calls += 1

    def _record(self) -> None:
        """Record the step; nothing is computed by that, and nothing is drawn."""
        graph = torch.cuda.CUDAGraph()
        before = [generator.get_state() for generator in self._generators]
        try:
            for generator in self._generators:
                graph.register_generator_state(generator)
            with torch.cuda.graph(graph, stream=self._stream):
                self._step()
        except RuntimeError as error:
            self.failed = True
            torch.cuda.synchronize(self._device)
            for generator, state in zip(self._generators, before, strict=True):
                generator.set_state(state)
            log.warning(
                "%s goes on without a CUDA graph: %s", self._what, reason(error)
            )
            return
        # Before it records, torch sets the generators' places to zero on that stream:
        # on a busy GPU that could come after a replay has set them right.
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        self._graph = graph


def recorded(step: Callable[[], None], noise: Noise, what: str) -> Callable[[], None]:
    """Return the step, recorded where it draws from a CUDA generator."""
    if isinstance(noise, torch.Generator) and noise.device.type == "cuda":
        return CudaGraph(step, [noise], what)
    return step
