"""The same step, run differently: fused kernels, and all of them launched at once.

The networks are small, so a step on a GPU is mostly the time that Python needs to
launch some hundred kernels, and that kernels need to fetch what the one before had at
hand. A compiler fuses kernels (`Compiled`); a CUDA graph, recorded once, launches them
all by one call (`StepGraph`). The step itself is the same code: it reads from tensors
that stay in place and writes to tensors that stay in place, and what changes from step
to step (rows, rates) is copied into them first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch

from augmask.diffusion.base import Batch, CellLoss

log = logging.getLogger("augmask")

# steps that run as they are before the recording, so that every lazy allocation of
# torch and its libraries is behind us
WARM_UP = 3


def _reason(error: Exception) -> str:
    """Return the first line of what went wrong."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


CellLossOf = Callable[[Batch, torch.Generator], CellLoss]


def _fused(cell_loss: CellLossOf) -> CellLossOf:
    # A process may train on many tables, and each layout is compiled anew: torch would
    # stop after eight. Older versions have no such keyword.
    known = "recompile_limit" in signature(torch.compile).parameters
    limit: dict[str, Any] = {"recompile_limit": 256} if known else {}
    return torch.compile(cell_loss, dynamic=False, **limit)


class Compiled:
    """Losses per cell by fused kernels; as they are where torch cannot make those.

    Parameters
    ----------
    cell_loss : callable
        A backbone's.
    """

    def __init__(self, cell_loss: CellLossOf) -> None:
        self._plain = cell_loss
        self._call: CellLossOf = self._first
        self._fused: CellLossOf = _fused(cell_loss)

    def __call__(self, batch: Batch, generator: torch.Generator) -> CellLoss:
        """Return the losses of a batch."""
        return self._call(batch, generator)

    def _first(self, batch: Batch, generator: torch.Generator) -> CellLoss:
        """Compile; what fails here for another reason fails again without."""
        before = generator.get_state()
        try:
            losses = self._fused(batch, generator)
        except Exception as error:
            generator.set_state(before)
            self._call = self._plain
            losses = self._plain(batch, generator)
            log.warning("training goes on without fused kernels: %s", _reason(error))
            return losses
        self._call = self._fused
        return losses


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
        outside = torch.cuda.current_stream(self._generator.device)
        self._stream.wait_stream(outside)
        with torch.cuda.stream(self._stream):
            self._step()
        outside.wait_stream(self._stream)
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
            torch.cuda.synchronize(self._generator.device)
            self._generator.set_state(before)
            log.warning("training goes on without a CUDA graph: %s", _reason(error))
            return
        self._graph = graph
