"""What a backbone takes and gives: `Batch` in, `CellLoss` out, rows from `sample`.

The protocol is the whole of the plug: a torch module with `cell_loss` and `sample`
trains under every strategy. It never receives the mask, so it cannot leak supervision
from a hole. What else a backbone may have stands below the protocol, each with what
happens when it has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from augmask.diffusion.reduce import Reduction, Weight
from augmask.table.table import Table


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

    def cell_loss(self, batch: Batch, generator: torch.Generator) -> CellLoss:
        """Noise the batch and return the loss of every cell."""

    def sample(
        self, n: int, generator: torch.Generator, steps: int, **options: Any
    ) -> Batch:
        """Return `n` complete rows; `options` holds `solver` where one was chosen."""

    # -- what every torch module has --

    def parameters(self, recurse: bool = True) -> Iterator[torch.nn.Parameter]:
        """Return everything learned."""

    def modules(self) -> Iterator[torch.nn.Module]:
        """Return the module itself and all its parts."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything learned or set from data, by name."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Take over a state by name."""

    def to(self, device: torch.device) -> Any:
        """Move to a device."""


# -- what a backbone may have besides --------------------------------------------


def reduction_of(backbone: Backbone) -> Reduction:
    """Return `backbone.reduction`, how cells become a loss; one mean by default."""
    return cast(Reduction, getattr(backbone, "reduction", "batch"))


def init_from_data(backbone: Backbone, table: Table) -> None:
    """Let `backbone.init_from_data` set what depends on the data, if it wants to.

    The missing cells are filled by now; a backbone must read observed cells only, and
    they are the same ones under every strategy.
    """
    if hasattr(backbone, "init_from_data"):
        backbone.init_from_data(table)


def validation_loss(
    backbone: Backbone, batch: Batch, generator: torch.Generator
) -> Tensor:
    """Return [B, d] losses that can be compared between training steps.

    They rank states of one run on held-out cells. A backbone whose `cell_loss` depends
    on learned schedules or weights has a `validation_loss` that does not.
    """
    if hasattr(backbone, "validation_loss"):
        return cast(Tensor, backbone.validation_loss(batch, generator))
    return backbone.cell_loss(batch, generator).main


def type_weights(backbone: Backbone, done: Tensor) -> tuple[Weight, Weight]:
    """Return `backbone.type_weights(done)`, of numeric and categorical losses.

    `done` is the share of the training behind us, on the device.
    """
    if hasattr(backbone, "type_weights"):
        return cast(tuple[Weight, Weight], backbone.type_weights(done))
    return 1.0, 1.0


def diagnostics(backbone: Backbone) -> dict[str, float]:
    """Return what `backbone.diagnostics` tells of its learned state, for the history.

    It returns scalar tensors by name; they are read from the device in one go.
    """
    if not hasattr(backbone, "diagnostics"):
        return {}
    told: dict[str, Tensor] = backbone.diagnostics()
    if not told:
        return {}
    values = torch.stack([value.detach().float() for value in told.values()])
    return dict(zip(told, values.tolist(), strict=True))


def recover(backbone: Backbone) -> str:
    """Let `backbone.recover` answer a loss that is not finite; return what it did."""
    return str(backbone.recover()) if hasattr(backbone, "recover") else ""
