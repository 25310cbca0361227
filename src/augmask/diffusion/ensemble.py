"""Several models of one table, sampled from in turn.

Models trained from different initial weights miss different parts of a table. Rows
0, k, 2k, … come from the first of k members, the next ones from the second, and so on,
so that any slice of a sample holds rows of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from augmask.diffusion.base import Batch
from augmask.diffusion.sampling import map_tensors, tensors

Rows = slice | Tensor


def _nested_rows(value: Any, rows: Rows) -> Any:
    """Return the given rows of a tensor, or of all tensors of nested tuples."""

    def of_tensor(value: Any) -> Any:
        return value[rows] if isinstance(value, Tensor) and value.dim() else value

    return map_tensors(of_tensor, value)


def _interleave(parts: Sequence[Any], rows: Sequence[Rows]) -> Any:
    """Undo `_nested_rows`: put the rows of every part back to their places."""

    def of_tensors(*parts: Tensor) -> Tensor:
        out = parts[0].new_empty(sum(map(len, parts)), *parts[0].shape[1:])
        for part, place in zip(parts, rows, strict=True):
            out[place] = part
        return out

    return map_tensors(of_tensors, *parts)


def _in_turn(k: int, n: int) -> list[slice]:
    """Return which of `n` rows belong to each of `k` members, without empty ones."""
    k = min(k, n)
    return [slice(i, n, k) for i in range(k)]


class EnsembleSampler:
    """The samplers of all members, each for its own rows; a `Sampler` itself.

    Parameters
    ----------
    samplers : sequence of Sampler
    rows : sequence of Tensor, optional
        The rows of each sampler; in turn by default.
    """

    def __init__(self, samplers: Sequence[Any], rows: Sequence[Tensor] = ()) -> None:
        self._samplers, self._rows = samplers, rows

    def start(self, n: int, rng: Any) -> Any:
        """Return `n` rows of pure noise."""
        turns = _in_turn(len(self._samplers), n)
        parts = [
            sampler.start(len(range(n)[place]), rng)
            for sampler, place in zip(self._samplers, turns, strict=False)
        ]
        return _interleave(parts, turns)

    def for_rows(self, rows: Tensor) -> EnsembleSampler:
        """Return the sampler of some rows, each with the member that started it.

        Parameters
        ----------
        rows : Tensor [m]
            Positions among the rows of this sampler, which are in turn.
        """
        owners = rows % len(self._samplers)
        places = [torch.nonzero(owners == i)[:, 0] for i in range(len(self._samplers))]
        used = [i for i, place in enumerate(places) if len(place)]
        return EnsembleSampler(
            [self._samplers[i] for i in used], [places[i] for i in used]
        )

    def _each(self, name: str, *args: Any) -> Any:
        """Call a method of every sampler with its rows of all arguments."""
        n = len(next(tensors(args)))
        turns: Sequence[Rows] = self._rows or _in_turn(len(self._samplers), n)
        parts = [
            getattr(sampler, name)(*(_nested_rows(value, place) for value in args))
            for sampler, place in zip(self._samplers, turns, strict=False)
        ]
        return _interleave(parts, turns)

    def __getattr__(self, name: str) -> Any:
        shared = getattr(self._samplers[0], name)
        if not callable(shared):
            return shared
        return lambda *args: self._each(name, *args)


class Ensemble(nn.Module):
    """Backbones of one table and kind that are sampled from in turn.

    Parameters
    ----------
    members : sequence of modules

    Examples
    --------
    >>> class Always(nn.Module):
    ...     def __init__(self, value):
    ...         super().__init__()
    ...         self.value = value
    ...     def sample(self, n, generator, steps, **options):
    ...         return Batch(torch.full((n, 1), self.value), torch.zeros(n, 0))
    >>> both = Ensemble([Always(1.0), Always(2.0)])
    >>> both.sample(5, torch.Generator(), steps=1).num[:, 0].tolist()
    [1.0, 2.0, 1.0, 2.0, 1.0]
    """

    def __init__(self, members: Sequence[Any]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "members":
                raise
            # what members have in common: solvers, sizes
            shared = getattr(self.members[0], name)
            return self._sampler if name == "sampler" else shared

    def _sampler(self, steps: int, solver: str) -> EnsembleSampler:
        return EnsembleSampler(
            [cast(Any, member).sampler(steps, solver) for member in self.members]
        )

    @torch.no_grad()
    def sample(
        self, n: int, generator: torch.Generator, steps: int, **options: Any
    ) -> Batch:
        """Return `n` complete rows, of each member in turn."""
        turns = _in_turn(len(self.members), n)
        parts = [
            Batch(
                *cast(Any, member).sample(
                    len(range(n)[place]), generator, steps, **options
                )
            )
            for member, place in zip(self.members, turns, strict=False)
        ]
        return cast(Batch, _interleave(parts, turns))
