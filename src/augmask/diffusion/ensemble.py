"""Several models of one table as one to sample from: rows come from each in turn.

Models that were trained from different starts miss different parts of a table. Rows
0, k, 2k, … come from the first of k members, the next ones from the second, and so on,
so that any stretch of a sample holds rows of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from augmask.diffusion.base import Batch

# Of all rows, those of one member.
Rows = slice | Tensor


def _part(value: Any, rows: Rows) -> Any:
    """Return some rows of whatever has rows."""
    if isinstance(value, Tensor):
        return value[rows] if value.dim() else value
    if isinstance(value, Batch):
        return Batch(value.num[rows], value.cat[rows])
    if isinstance(value, tuple):
        return tuple(_part(each, rows) for each in value)
    return value


def _woven(parts: Sequence[Any], rows: Sequence[Rows]) -> Any:
    """Undo `_part`: weave the rows of all parts into one another."""
    first = parts[0]
    if isinstance(first, Batch):
        return Batch(*(_woven(same, rows) for same in zip(*parts, strict=True)))
    if isinstance(first, tuple):
        return tuple(_woven(same, rows) for same in zip(*parts, strict=True))
    whole = first.new_empty(sum(map(len, parts)), *first.shape[1:])
    for part, place in zip(parts, rows, strict=True):
        whole[place] = part
    return whole


def _in_turn(k: int, n: int) -> list[slice]:
    """Return which of `n` rows belong to each of `k` members; some may have none."""
    k = min(k, n)
    return [slice(i, n, k) for i in range(k)]


class EnsembleSampler:
    """The ways of all members, each for its own rows; see `diffusion.reverse.Sampler`.

    Parameters
    ----------
    ways : sequence of Way
    rows : sequence of Tensor, optional
        The rows of each way; in turn unless told.
    """

    def __init__(self, samplers: Sequence[Any], rows: Sequence[Tensor] = ()) -> None:
        self._samplers, self._rows = samplers, rows

    def start(self, n: int, noise: Any) -> Any:
        """Return `n` rows of nothing but noise."""
        turns = _in_turn(len(self._samplers), n)
        sizes = [len(range(n)[place]) for place in turns]
        samplers = self._samplers[: len(turns)]
        parts = [
            sampler.start(rows, noise)
            for sampler, rows in zip(samplers, sizes, strict=True)
        ]
        return _woven(parts, turns)

    def chosen(self, rows: Tensor) -> EnsembleSampler:
        """Return the way of some of the rows, each with the member that it has here.

        Parameters
        ----------
        rows : Tensor [m]
            Their places among the rows of this way, which are in turn.
        """
        owners = rows % len(self._samplers)
        places = [torch.nonzero(owners == i)[:, 0] for i in range(len(self._samplers))]
        used = [i for i, place in enumerate(places) if len(place)]
        return EnsembleSampler(
            [self._samplers[i] for i in used], [places[i] for i in used]
        )

    def _each(self, name: str, rows: Any, *others: Any) -> Any:
        """Call a method of every way with its rows of all that has rows."""
        first: Any = rows[0] if isinstance(rows, tuple) else rows
        turns: Sequence[Rows] = self._rows or _in_turn(len(self._samplers), len(first))
        return _woven(
            [
                getattr(sampler, name)(*(_part(v, place) for v in (rows, *others)))
                for sampler, place in zip(
                    self._samplers[: len(turns)], turns, strict=True
                )
            ],
            turns,
        )

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._samplers[0], name)
        if not callable(own):
            return own
        return lambda *given: self._each(name, *given)


class Ensemble(nn.Module):
    """Members of one make that are sampled from in turn.

    Parameters
    ----------
    members : sequence of modules
        Backbones of one table.

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
            found = getattr(self.members[0], name)
            return self._sampler if name == "sampler" else found

    def _sampler(self, *given: Any) -> EnsembleSampler:
        return EnsembleSampler(
            [cast(Any, member).sampler(*given) for member in self.members]
        )

    @torch.no_grad()
    def sample(
        self, n: int, generator: torch.Generator, steps: int, **options: Any
    ) -> Batch:
        """Return `n` complete rows, of each member in turn."""
        turns = _in_turn(len(self.members), n)
        members = [cast(Any, member) for member in self.members][: len(turns)]
        parts = [
            member.sample(len(range(n)[place]), generator, steps, **options)
            for member, place in zip(members, turns, strict=True)
        ]
        woven: Batch = _woven([Batch(*part) for part in parts], turns)
        return woven
