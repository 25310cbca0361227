"""What a backbone takes and gives: `Batch` in, `CellLoss` out, rows from `sample`.

The protocol is the whole of the plug: a module with these methods trains under every
strategy. It never receives the mask, so it cannot leak supervision from a hole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from augmask.diffusion.reduce import Reduction
from augmask.table.carrier import Table


class Batch(NamedTuple):
    """Completed rows x^A: `num` float [B, d_num] and `cat` codes [B, d_cat]."""

    num: Tensor
    cat: Tensor


@dataclass(frozen=True)
class CellLoss:
    """One number per cell, columns as in the layout: numeric, then categorical.

    Parameters
    ----------
    main : Tensor [B, d]
        The denoising loss, weighted and calibrated but neither masked nor averaged.
    aux : mapping of name to Tensor [B, d]
        Losses of learned schedules and weights. They regress on the main loss, so they
        are masked with it: otherwise they would learn the loss curve of filled cells.
    """

    main: Tensor
    aux: Mapping[str, Tensor] = field(default_factory=dict)


class Backbone(Protocol):
    """A torch module that can be trained by `augmask.train` and sampled from."""

    reduction: Reduction

    def init_from_data(self, table: Table) -> None:
        """Set what depends on the data, from observed cells only."""

    def cell_loss(self, batch: Batch, generator: torch.Generator) -> CellLoss:
        """Noise the batch and return the loss of every cell."""

    def probe_loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return [B, d] losses that can be compared between training steps.

        Unlike `cell_loss` it must not depend on learned schedules or weights: it ranks
        states of one training run on held-out cells.
        """

    def sample(
        self, n: int, generator: torch.Generator, steps: int, solver: str
    ) -> Batch:
        """Return `n` complete rows."""

    # -- what every torch module has --

    def parameters(self, recurse: bool = True) -> Iterator[torch.nn.Parameter]:
        """Return everything learned."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything learned or set from data, by name."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Take over a state by name."""

    def to(self, device: torch.device) -> Any:
        """Move to a device."""
