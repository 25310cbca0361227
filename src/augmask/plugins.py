"""What other installed packages add to augmask, through entry points.

`augmask-bench` adds the command `bench` this way (`augmask.commands`) and the augmenter
`hyperimpute` (`augmask.augmenters`). Nothing is imported until it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any


def entry_points_of(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return {point.name: point for point in entry_points(group=group)}


def plugins(group: str) -> dict[str, Callable[[], Any]]:
    """Return functions that load and call what a group's entry points name.

    Examples
    --------
    >>> plugins("augmask.no_such_group")
    {}
    """

    def maker(point: EntryPoint) -> Callable[[], Any]:
        return lambda: point.load()()

    return {name: maker(point) for name, point in entry_points_of(group).items()}
