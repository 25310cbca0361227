"""Which versions something was made with."""

from __future__ import annotations

import platform
from importlib import metadata


def library_versions(*names: str) -> dict[str, str]:
    """Return the versions of Python and of those libraries that are installed.

    A library may be there as its build for CPUs, such as `xgboost-cpu`.

    Examples
    --------
    >>> sorted(library_versions("numpy", "no-such-library"))
    ['numpy', 'python']
    """
    found = {"python": platform.python_version()}
    for name in names:
        for called in (name, f"{name}-cpu"):
            try:
                found[name] = metadata.version(called)
            except metadata.PackageNotFoundError:
                continue
            break
    return found
