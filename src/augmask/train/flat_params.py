"""All weights of a model in one tensor, or of several models in its rows.

A model has some thirty parameters, most of them small. Laid side by side, the optimiser
and the average are one operation each instead of thirty, and models of one make can be
moved by the same operations. The modules keep their parameters: these become views.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from augmask.errors import UsageError

# Numbers of which every parameter starts at a multiple. Products read theirs from here,
# and are much faster on a GPU if it does so at a multiple of 16 bytes.
ALIGNED = 32


class Flat:
    """The learned numbers of M modules of one make, [M, P], and their gradients.

    P has some room: between two parameters there may be numbers that stay 0.

    Parameters
    ----------
    modules : sequence of modules
        Alike in names and shapes of their parameters, which must be of one type.

    Attributes
    ----------
    weights : Parameter [M, P]
        With a gradient that stays in place.

    Examples
    --------
    >>> layer = nn.Linear(2, 1)
    >>> flat = Flat([layer])
    >>> flat.weights.shape
    torch.Size([1, 64])
    >>> flat.weights.data.fill_(7.0)[0, 0].item(), layer.bias.item()
    (7.0, 7.0)
    """

    def __init__(self, modules: Sequence[Any]) -> None:
        named = dict(modules[0].named_parameters())
        types = {p.dtype for p in named.values()}
        if len(types) != 1:
            raise UsageError(
                "all parameters of a backbone must be of one floating-point type, got "
                f"{', '.join(sorted(map(str, types))) or 'no parameter'}"
            )
        self.shapes = {name: p.shape for name, p in named.items()}
        # a parameter, and what is empty until the next
        self._sizes = [
            size for p in named.values() for size in (p.numel(), -p.numel() % ALIGNED)
        ]
        self.parameters = [list(module.parameters()) for module in modules]
        first = next(iter(named.values()))
        weights = first.detach().new_zeros(len(modules), sum(self._sizes))
        for row, parameters in zip(weights, self.parameters, strict=True):
            for p, view in zip(parameters, self.by_name(row).values(), strict=True):
                p.data = view.copy_(p.detach())
        self.weights = nn.Parameter(weights)
        self.weights.grad = torch.zeros_like(self.weights)

    def row(self, number: int) -> Flat:
        """Return one model's part, in the same memory."""
        one = copy(self)
        one.weights = nn.Parameter(self.weights.detach()[number : number + 1])
        one.parameters = self.parameters[number : number + 1]
        return one

    def by_name(self, values: Tensor) -> dict[str, Tensor]:
        """Return numbers [..., P] as views with the parameters' names and shapes."""
        parts = torch.split(values, self._sizes, -1)[::2]
        return {
            name: part.view(*values.shape[:-1], *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def take_gradients(self) -> None:
        """Collect the gradients of the modules' own parameters, and forget them."""
        assert self.weights.grad is not None
        for row, parameters in zip(self.weights.grad, self.parameters, strict=True):
            found = [
                torch.zeros_like(p) if p.grad is None else p.grad for p in parameters
            ]
            torch._foreach_copy_(list(self.by_name(row).values()), found)
            for p in parameters:
                p.grad = None

    def release(self) -> None:
        """Give every module tensors of its own again."""
        for parameters in self.parameters:
            for p in parameters:
                p.data = p.data.clone()
