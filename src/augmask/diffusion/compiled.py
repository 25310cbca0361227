"""Run a function of random numbers and tensors through `torch.compile`.

The networks are small, so a step on a GPU is mostly kernel launches and reads of what
the kernel before has just written. Compilation fuses the kernels of a step; a CUDA
graph (`cuda_graph`) launches them at once. Both run the same code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from augmask.diffusion.cuda_graph import first_line
from augmask.diffusion.random_draws import RecordingRNG, ReplayRNG, draw_all

log = logging.getLogger("augmask")


def compile_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, to be compiled at its first call for static shapes."""
    # A process may train on many tables, and each layout is compiled anew: torch would
    # stop after eight. Older versions have no such keyword.
    known = "recompile_limit" in signature(torch.compile).parameters
    limit: dict[str, Any] = {"recompile_limit": 256} if known else {}
    return torch.compile(function, dynamic=False, **limit)


class Compiled:
    """A compiled function of a generator and tensors; plain where compilation fails.

    The first call runs plainly and records the draws. Later calls draw in advance, so
    that no generator breaks the compiled graph. A function that uses the generator
    directly is compiled around its draws.

    Parameters
    ----------
    plain : callable
        Called with an `RNG` and tensors.
    what : str
        What continues uncompiled if compilation fails, for the log.
    """

    def __init__(self, plain: Callable[..., Any], what: str) -> None:
        self._plain, self._what = plain, what
        self._call: Callable[..., Any] = self._record

    def __call__(self, generator: torch.Generator, *args: Any) -> Any:
        """Return what the plain function returns."""
        return self._call(generator, *args)

    def _record(self, generator: torch.Generator, *args: Any) -> Any:
        before, recording = generator.get_state(), RecordingRNG(generator)
        try:
            result = self._plain(recording, *args)
        except (TypeError, AttributeError):
            # the function needs a real generator
            generator.set_state(before)
            result = self._plain(generator, *args)
            self._call = partial(self._try, compile_function(self._plain))
            return result
        fast = compile_function(
            lambda values, *rest: self._plain(ReplayRNG(values), *rest)
        )
        specs = recording.specs

        def call(generator: torch.Generator, *args: Any) -> Any:
            return fast(draw_all(specs, generator), *args)

        self._call = partial(self._try, call)
        return result

    def _try(
        self, fast: Callable[..., Any], generator: torch.Generator, *args: Any
    ) -> Any:
        """Compile; an error of the function itself is raised by the plain call."""
        before = generator.get_state()
        try:
            result = fast(generator, *args)
        except Exception as error:
            generator.set_state(before)
            self._call = self._plain
            result = self._plain(generator, *args)
            log.warning(
                "torch.compile failed (%s); %s continues uncompiled",
                first_line(error),
                self._what,
            )
            return result
        self._call = fast
        return result


class CompiledSampler:
    """A `Sampler` with a compiled step; every number of rows is compiled anew."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._step: Compiled | None = None

    def step(self, state: Any, i: Tensor, rng: Any) -> Any:
        """Take step i."""
        sampler, state_type = self._sampler, type(state)
        if self._step is None:
            self._step = Compiled(
                lambda rng, i, *parts: tuple(sampler.step(state_type(*parts), i, rng)),
                "sampling",
            )
        return state_type(*self._step(rng, i, *state))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)
