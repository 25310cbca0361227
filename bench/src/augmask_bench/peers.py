"""Peers' own packages: with which libraries they work, and a room to run them in.

Some of them break without a word on libraries that pip installs beside them, so each
says here what it was found to need. All of them draw from global generators, and some
print or change the environment: `contained` keeps that from everybody else.
"""

from __future__ import annotations

import io
import os
import random
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from augmask.errors import UsageError

INSTALL = "docs/baselines.md says how to install it where it works"


@dataclass(frozen=True)
class Limit:
    """A library that must be older than a version, and what happens otherwise."""

    library: str
    below: tuple[int, int]
    otherwise: str


# By name of import. ctgan and ForestDiffusion, the way they are used here, were found
# to give the same rows on pandas 2.3 and 3.1, numpy 2.3 and 2.4.
LIMITS: dict[str, tuple[Limit, ...]] = {
    "arfpy": (
        Limit("numpy", (2, 4), "it calls a function that is gone"),
        Limit("pandas", (3, 0), "it looks up columns in a way that is gone"),
    ),
    "hyperimpute": (
        Limit("pandas", (3, 0), "it fills in means and says nothing"),
        Limit("scikit-learn", (1, 8), "it passes an argument that is gone"),
    ),
}


def _version(library: str) -> str:
    return metadata.version(library)


def why_not(package: str) -> str:
    """Return why a peer's package cannot be used here; empty if it can.

    Examples
    --------
    >>> why_not("no_such_package")
    'needs the package no_such_package, which is not installed'
    """
    if find_spec(package) is None:
        return f"needs the package {package}, which is not installed"
    for limit in LIMITS.get(package, ()):
        found = _version(limit.library)
        parts = tuple(int(part) for part in found.split(".")[:2])
        if parts >= limit.below:
            below = ".".join(map(str, limit.below))
            return (
                f"{package} needs {limit.library} below {below}, got {found}: "
                f"{limit.otherwise}"
            )
    return ""


def require(package: str) -> None:
    """Raise unless a peer's package is there, among libraries that it works with."""
    reason = why_not(package)
    if reason:
        raise UsageError(f"{reason}; {INSTALL}")


@contextmanager
def contained(seed: int) -> Iterator[None]:
    """Run a peer's code, imports included, so that nobody else notices.

    The global generators of Python, numpy and torch start from `seed` and are put back
    afterwards, as are environment variables; warnings and prints go nowhere.

    Examples
    --------
    >>> with contained(7):
    ...     first = random.random()
    ...     print("never seen")
    >>> with contained(7):
    ...     again = random.random()
    >>> first == again
    True
    """
    import numpy as np
    import torch

    environment = dict(os.environ)
    python_state = random.getstate()
    # The peers draw from numpy's global generator, and from no other.
    numpy_state = np.random.get_state()  # noqa: NPY002
    # Asking a device for its state would start it up; one asleep has none to keep.
    cuda: Any = torch.cuda
    devices = list(range(cuda.device_count())) if cuda.is_initialized() else []
    with ExitStack() as room:
        room.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        room.enter_context(redirect_stdout(io.StringIO()))
        room.enter_context(torch.random.fork_rng(devices))
        room.callback(random.setstate, python_state)
        room.callback(np.random.set_state, numpy_state)
        room.callback(_restore, environment)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        torch.manual_seed(seed)
        yield


def _restore(environment: dict[str, str]) -> None:
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
