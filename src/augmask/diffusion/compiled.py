"""The same step, run differently: by kernels that a compiler has fused.

The networks are small, so a step on a GPU is mostly the time that Python needs to
launch some hundred kernels, and that kernels need to fetch what the one before had at
hand. Recording a step launches all at once (`diffusion.replay`); fusing makes them few.
The step itself is the same code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from augmask.diffusion.cuda_graph import reason
from augmask.diffusion.noise import RecordingRNG, ReplayRNG, drawn

log = logging.getLogger("augmask")


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, to be compiled when it is first called."""
    # A process may train on many tables, and each layout is compiled anew: torch would
    # stop after eight. Older versions have no such keyword.
    known = "recompile_limit" in signature(torch.compile).parameters
    limit: dict[str, Any] = {"recompile_limit": 256} if known else {}
    return torch.compile(function, dynamic=False, **limit)


class Compiled:
    """A function of noise and tensors by fused kernels; as it is where torch fails.

    The first call runs as it is and notes what is drawn. Later ones draw that before
    they start, so that no draw stands in the compiler's way. A function that draws from
    the generator itself is compiled around its draws.

    Parameters
    ----------
    plain : callable
        Called with a generator, or what stands for one, and tensors.
    what : str
        What goes on without fused kernels if none can be made, for the log.
    """

    def __init__(self, plain: Callable[..., Any], what: str) -> None:
        self._plain, self._what = plain, what
        self._call: Callable[..., Any] = self._note

    def __call__(self, generator: torch.Generator, *tensors: Any) -> Any:
        """Return what the function returns."""
        return self._call(generator, *tensors)

    def _note(self, generator: torch.Generator, *tensors: Any) -> Any:
        """Find out what is drawn."""
        before, noted = generator.get_state(), RecordingRNG(generator)
        try:
            found = self._plain(noted, *tensors)
        except (TypeError, AttributeError):
            # it takes nothing but a generator
            generator.set_state(before)
            found = self._plain(generator, *tensors)
            self._call = partial(self._try, fused(self._plain))
            return found
        fast = fused(lambda values, *rest: self._plain(ReplayRNG(values), *rest))
        asked = noted.asked

        def call(generator: torch.Generator, *tensors: Any) -> Any:
            return fast(drawn(asked, generator), *tensors)

        self._call = partial(self._try, call)
        return found

    def _try(
        self, fast: Callable[..., Any], generator: torch.Generator, *tensors: Any
    ) -> Any:
        """Compile; what fails here for another reason fails again without."""
        before = generator.get_state()
        try:
            found = fast(generator, *tensors)
        except Exception as error:
            generator.set_state(before)
            self._call = self._plain
            found = self._plain(generator, *tensors)
            log.warning(
                "%s goes on without fused kernels: %s", self._what, reason(error)
            )
            return found
        self._call = fast
        return found


class CompiledSampler:
    """A way back whose step is fused, see `augmask.diffusion.sampling.Sampler`.

    Every number of rows is compiled anew.
    """

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._step = Compiled(
            lambda noise, i, *state: sampler.step(state, i, noise), "sampling"
        )

    def step(
        self, state: tuple[Tensor, ...], i: Tensor, noise: Any
    ) -> tuple[Tensor, ...]:
        """Go from place i to place i + 1."""
        there: tuple[Tensor, ...] = self._step(noise, i, *state)
        return there

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)
