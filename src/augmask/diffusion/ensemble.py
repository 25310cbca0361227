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


def _part(value: Any, i: int, k: int) -> Any:
    """Return every k-th row from row i on, of whatever has rows."""
    if isinstance(value, Tensor):
        return value[i::k] if value.dim() else value
    if isinstance(value, Batch):
        return Batch(value.num[i::k], value.cat[i::k])
    if isinstance(value, tuple):
        return tuple(_part(each, i, k) for each in value)
    return value


def _woven(parts: Sequence[Any]) -> Any:
    """Undo `_part`: weave the rows of all parts into one another."""
    first = parts[0]
    if isinstance(first, Batch):
        return Batch(*(_woven(same) for same in zip(*parts, strict=True)))
    if isinstance(first, tuple):
        return tuple(_woven(same) for same in zip(*parts, strict=True))
    whole = first.new_empty(sum(map(len, parts)), *first.shape[1:])
    for i, part in enumerate(parts):
        whole[i :: len(parts)] = part
    return whole


class EnsembleWay:
    """The ways of all members, each for its own rows; see `diffusion.reverse.Way`."""

    def __init__(self, ways: Sequence[Any]) -> None:
        self._ways = ways

    def start(self, n: int, noise: Any) -> Any:
        """Return `n` rows of nothing but noise."""
        ways = self._ways[:n]
        sizes = [len(range(i, n, len(ways))) for i in range(len(ways))]
        return _woven(
            [way.start(rows, noise) for way, rows in zip(ways, sizes, strict=True)]
        )

    def _each(self, name: str, rows: Any, *others: Any) -> Any:
        """Call a method of every way with its rows of all that has rows."""
        first: Any = rows[0] if isinstance(rows, tuple) else rows
        ways = self._ways[: len(first)]
        k = len(ways)
        return _woven(
            [
                getattr(way, name)(*(_part(v, i, k) for v in (rows, *others)))
                for i, way in enumerate(ways)
            ]
        )

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._ways[0], name)
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
            return self._way if name == "way" else found

    def _way(self, *given: Any) -> EnsembleWay:
        return EnsembleWay([cast(Any, member).way(*given) for member in self.members])

    @torch.no_grad()
    def sample(
        self, n: int, generator: torch.Generator, steps: int, **options: Any
    ) -> Batch:
        """Return `n` complete rows, of each member in turn."""
        members = [cast(Any, member) for member in self.members][:n]
        k = len(members)
        parts = [
            member.sample(len(range(i, n, k)), generator, steps, **options)
            for i, member in enumerate(members)
        ]
        woven: Batch = _woven([Batch(*part) for part in parts])
        return woven
