"""All weights of a model in one tensor, or of several models in its rows.

A model has about thirty parameters, most of them small. Side by side in one tensor,
the optimiser, the EMA and a checkpoint each need one operation instead of thirty, and
models of the same architecture can share them. The modules keep their parameters,
which become views.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from augmask.errors import UsageError

# Every parameter starts at a multiple of this many numbers: matrix products on a GPU
# are much faster if their operands start at a multiple of 16 bytes.
ALIGNMENT = 32


class FlatParams:
    """The parameters of M modules as one tensor [M, P], with their gradients.

    P includes padding: numbers between two parameters that stay 0. The modules have the
    same parameter names and shapes, all of one dtype.

    Examples
    --------
    >>> layer = nn.Linear(2, 1)
    >>> flat = FlatParams([layer])
    >>> flat.weights.shape
    torch.Size([1, 64])
    >>> flat.weights.data.fill_(7.0)[0, 0].item(), layer.bias.item()
    (7.0, 7.0)
    """

    def __init__(self, modules: Sequence[Any]) -> None:
        named = dict(modules[0].named_parameters())
        dtypes = {p.dtype for p in named.values()}
        if len(dtypes) != 1:
            raise UsageError(
                "all parameters of a backbone must have one floating-point type, got "
                f"{', '.join(sorted(map(str, dtypes))) or 'no parameter'}"
            )
        self.shapes = {name: p.shape for name, p in named.items()}
        # each parameter is followed by its padding
        self._sizes = [
            size for p in named.values() for size in (p.numel(), -p.numel() % ALIGNMENT)
        ]
        self.parameters = [list(module.parameters()) for module in modules]
        first = next(iter(named.values()))
        weights = first.detach().new_zeros(len(modules), sum(self._sizes))
        for row, parameters in zip(weights, self.parameters, strict=True):
            for p, view in zip(parameters, self.by_name(row).values(), strict=True):
                p.data = view.copy_(p.detach())
        self.weights = nn.Parameter(weights)
        self.weights.grad = torch.zeros_like(self.weights)

    def row(self, index: int) -> FlatParams:
        """Return the parameters of one model, in the same memory."""
        one = copy(self)
        one.weights = nn.Parameter(self.weights.detach()[index : index + 1])
        one.parameters = self.parameters[index : index + 1]
        return one

    def by_name(self, values: Tensor) -> dict[str, Tensor]:
        """Return values [..., P] as views with the parameters' names and shapes."""
        parts = torch.split(values, self._sizes, -1)[::2]
        return {
            name: part.view(*values.shape[:-1], *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def collect_gradients(self) -> Tensor:
        """Move the gradients of the modules' parameters to `weights.grad`."""
        assert self.weights.grad is not None
        for row, parameters in zip(self.weights.grad, self.parameters, strict=True):
            gradients = [
                torch.zeros_like(p) if p.grad is None else p.grad for p in parameters
            ]
            torch._foreach_copy_(list(self.by_name(row).values()), gradients)
            for p in parameters:
                p.grad = None
        return self.weights.grad

    def release(self) -> None:
        """Give every module its own memory again."""
        for parameters in self.parameters:
            for p in parameters:
                p.data = p.data.clone()
