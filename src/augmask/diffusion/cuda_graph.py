"""Capture a step as a CUDA graph and replay it.

The networks are small, so a step on a GPU is mostly the time that Python needs to
launch its kernels. A CUDA graph launches them all with one call. The step must read
from and write to tensors that stay in place; whatever changes from step to step is
copied into them first.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from augmask.diffusion.random_draws import RNG

log = logging.getLogger("augmask")

# plain steps before the capture, so that lazy allocations of torch and its libraries
# are done
WARM_UP = 3


def first_line(error: Exception) -> str:
    """Return the first line of an error message, or the error's type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect garbage now, and not inside the context.

    CUDA does not allow the destruction of a graph during a capture: a model that is no
    longer used, collected then, would end the capture of another.
    """
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class CudaGraph:
    """Run a step: plainly at first, then as a captured CUDA graph.

    Parameters
    ----------
    step : callable
        Takes and returns nothing; reads and writes tensors that stay in place.
    generators : sequence of torch.Generator
        The CUDA generators that the step draws from, at least one. A replay draws what
        the plain step would draw.
    what : str
        What continues without a graph if the capture fails, for the log.
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
            self._capture()
        if self._graph is not None:
            self._graph.replay()
            return
        # warm up on the stream of the capture, as torch requires
        outside = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(outside)
        with torch.cuda.stream(self._stream):
            self._step()
        outside.wait_stream(self._stream)
        self._calls += 1

    def _capture(self) -> None:
        """Capture the step, which computes and draws nothing."""
        graph = torch.cuda.CUDAGraph()
        before = [generator.clone_state() for generator in self._generators]
        try:
            for generator in self._generators:
                graph.register_generator_state(generator)
            with (
                _no_garbage_collection(),
                torch.cuda.graph(graph, stream=self._stream),
            ):
                self._step()
        except RuntimeError as error:
            self.failed = True
            torch.cuda.synchronize(self._device)
            # the states that took part believe that the capture is still going on
            for generator, state in zip(self._generators, before, strict=True):
                generator.graphsafe_set_state(state)
            log.warning(
                "CUDA graph capture failed (%s); %s continues without a graph",
                first_line(error),
                self._what,
            )
            return
        # Before the capture, torch resets the generators' offsets on that stream: on a
        # busy GPU this could happen after a replay has set them.
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        self._graph = graph


def cuda_graphed(step: Callable[[], None], rng: RNG, what: str) -> Callable[[], None]:
    """Return the step, as a `CudaGraph` if it draws from a CUDA generator."""
    if isinstance(rng, torch.Generator) and rng.device.type == "cuda":
        return CudaGraph(step, [rng], what)
    return step
