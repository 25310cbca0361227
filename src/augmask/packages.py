"""Installed packages: their versions, and the plugins that they add to augmask.

A plugin is an entry point. `augmask-bench` adds the command `bench` this way (group
`augmask.commands`) and the augmenter `hyperimpute` (group `augmask.augmenters`). It is
imported when it is used.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any

from augmask.errors import UsageError


def library_versions(*names: str) -> dict[str, str]:
    """Return the versions of Python and of those libraries that are installed.

    A library may be installed as its build for CPUs, such as `xgboost-cpu`.

    Examples
    --------
    >>> sorted(library_versions("numpy", "no-such-library"))
    ['numpy', 'python']
    """
    versions = {"python": platform.python_version()}
    for name in names:
        for distribution in (name, f"{name}-cpu"):
            try:
                versions[name] = metadata.version(distribution)
            except metadata.PackageNotFoundError:
                continue
            break
    return versions


def entry_points_of(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return {point.name: point for point in metadata.entry_points(group=group)}


def plugins(group: str) -> dict[str, Callable[[], Any]]:
    """Return, by name, functions that load and call the entry points of a group.

    Examples
    --------
    >>> plugins("augmask.no_such_group")
    {}
    """

    def maker(point: EntryPoint) -> Callable[[], Any]:
        def make() -> Any:
            try:
                return point.load()()
            except ImportError as error:
                raise UsageError(
                    f"{point.name} cannot be loaded from {point.value}: {error}; "
                    "install that package again"
                ) from error

        return make

    return {name: maker(point) for name, point in entry_points_of(group).items()}
