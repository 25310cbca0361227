"""The protocols of a backbone: `Batch` in, `CellLoss` out, rows from `sample`.

A torch module with `cell_loss` and `sample` is a `Backbone` and trains under every
strategy. It never receives the mask, so it cannot leak supervision from a missing cell.
A `ConditionalBackbone` also offers its `Sampler`, which `impute` and `sample(where=)`
need. Everything else is optional:

=================================== ================================================
backbone                            without it
=================================== ================================================
``reduction``                       ``"batch"``: one mean over all observed cells
``init_from_data(table)``           nothing is set from the data
``validation_loss(batch, rng)``     held-out cells are scored by ``cell_loss``
``type_weights(progress)``          numeric and categorical losses weigh the same
``diagnostics()``                   the history holds the losses only
``recover()``                       a loss that is not finite halves the learning rate
``solvers``                         `sample` has one solver
``check_sampler(steps, solver)``    sampling settings are not checked before training
``supports_batching = False``       several models may train as one batch of models
----------------------------------- ------------------------------------------------
sampler
----------------------------------- ------------------------------------------------
``deterministic = True``            no random starts are screened for `where`
=================================== ================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from augmask.diffusion.reduce import Reduction, Weight
from augmask.table.table import Table

if TYPE_CHECKING:
    from augmask.diffusion.sampling import InpaintConfig, Sampler


class Batch(NamedTuple):
    """Completed rows x^A: `num` float [B, d_num] and `cat` codes [B, d_cat]."""

    num: Tensor
    cat: Tensor


@dataclass(frozen=True)
class CellLoss:
    """One loss per cell, columns as in the layout: numeric, then categorical.

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
    """A torch module that `augmask.train` can train and `augmask.sample` sample from.

    Draw all randomness from the generator, so that a seed determines the rows.
    """

    def cell_loss(self, batch: Batch, generator: torch.Generator) -> CellLoss:
        """Add noise to the batch and return the loss of every cell."""

    def sample(
        self, n: int, generator: torch.Generator, steps: int, **options: Any
    ) -> Batch:
        """Return `n` complete rows; `options` holds `solver` if the user set one."""

    # -- what every torch module has --

    def parameters(self, recurse: bool = True) -> Iterator[torch.nn.Parameter]:
        """Return all learned tensors."""

    def modules(self) -> Iterator[torch.nn.Module]:
        """Return the module itself and all its submodules."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything learned or set from data, by name."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Load what `state_dict` returned."""

    def to(self, device: torch.device) -> Any:
        """Move to a device."""


class ConditionalBackbone(Backbone, Protocol):
    """A backbone that can also complete rows of which some cells are known."""

    @property
    def solvers(self) -> Sequence[str]:
        """Names for `sampler`: the default first, the one for few steps last."""

    @property
    def inpaint_config(self) -> InpaintConfig:
        """Steps, solver and resampling for rows with known cells."""

    def sampler(self, steps: int, solver: str) -> Sampler:
        """Return the reverse process in `steps` steps."""


# -- optional abilities ------------------------------------------------------------


def reduction_of(backbone: Backbone) -> Reduction:
    """Return `backbone.reduction`, how losses of cells become one number."""
    return cast(Reduction, getattr(backbone, "reduction", "batch"))


def init_from_data(backbone: Backbone, table: Table) -> None:
    """Call `backbone.init_from_data`, which sets constants that depend on the data.

    Missing cells of the table are filled by now; a backbone must read observed cells
    only, so that it starts alike under every strategy.
    """
    if hasattr(backbone, "init_from_data"):
        backbone.init_from_data(table)


def validation_loss(
    backbone: Backbone, batch: Batch, generator: torch.Generator
) -> Tensor:
    """Return [B, d] losses that are comparable between training steps.

    They rank checkpoints of one run on held-out cells. A backbone whose `cell_loss`
    depends on learned schedules or weights needs a `validation_loss` that does not.
    """
    if hasattr(backbone, "validation_loss"):
        return cast(Tensor, backbone.validation_loss(batch, generator))
    return backbone.cell_loss(batch, generator).main


def type_weights(backbone: Backbone, progress: Tensor) -> tuple[Weight, Weight]:
    """Return the weights of numeric and categorical losses.

    `progress` is the share of the training steps already taken, on the device.
    """
    if hasattr(backbone, "type_weights"):
        return cast(tuple[Weight, Weight], backbone.type_weights(progress))
    return 1.0, 1.0


def diagnostics(backbone: Backbone) -> dict[str, float]:
    """Return the scalar tensors of `backbone.diagnostics` as floats, for the history.

    All values are read from the device at once.
    """
    scalars: dict[str, Tensor] = (
        backbone.diagnostics() if hasattr(backbone, "diagnostics") else {}
    )
    if not scalars:
        return {}
    values = torch.stack([value.detach().float() for value in scalars.values()])
    return dict(zip(scalars, values.tolist(), strict=True))


def recover(backbone: Backbone) -> str:
    """Call `backbone.recover` after a loss that is not finite; return what it did."""
    return str(backbone.recover()) if hasattr(backbone, "recover") else ""
