"""Packages of other authors: the library versions they work with, and isolation.

Some of them break silently with libraries that pip installs beside them, so the limits
found by testing are listed here. All of them draw from global random generators, and
some print or change the environment: `isolated` confines these side effects.
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

INSTALL = "see docs/research/baselines.md for an environment in which it works"


@dataclass(frozen=True)
class Limit:
    """A library that must be older than a version, and what fails otherwise."""

    library: str
    below: tuple[int, int]
    otherwise: str


# By import name. ctgan and ForestDiffusion, as used here, gave the same rows with
# pandas 2.3 and 3.1, numpy 2.3 and 2.4.
LIMITS: dict[str, tuple[Limit, ...]] = {
    "arfpy": (
        Limit("numpy", (2, 4), "it calls a function that was removed"),
        Limit("pandas", (3, 0), "it looks up columns in a way that was removed"),
    ),
    "hyperimpute": (
        Limit("pandas", (3, 0), "it imputes means without a warning"),
        Limit("scikit-learn", (1, 8), "it passes an argument that was removed"),
    ),
}


def _version(library: str) -> str:
    return metadata.version(library)


def why_unusable(package: str) -> str:
    """Return why a package cannot be used here; an empty text if it can.

    Examples
    --------
    >>> why_unusable("no_such_package")
    'needs the package no_such_package, which is not installed'
    """
    if find_spec(package) is None:
        return f"needs the package {package}, which is not installed"
    for limit in LIMITS.get(package, ()):
        version = _version(limit.library)
        parts = tuple(int(part) for part in version.split(".")[:2])
        if parts >= limit.below:
            below = ".".join(map(str, limit.below))
            return (
                f"{package} needs {limit.library} below {below}, got {version}: "
                f"{limit.otherwise}"
            )
    return ""


def require(package: str) -> None:
    """Raise unless a package is installed with library versions that it works with."""
    reason = why_unusable(package)
    if reason:
        raise UsageError(f"{reason}; {INSTALL}")


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Context manager: run another package's code without side effects.

    The global generators of Python, numpy and torch are seeded with `seed` and restored
    afterwards, as are environment variables; warnings and prints are discarded. Import
    the package inside it.

    Examples
    --------
    >>> with isolated(7):
    ...     first = random.random()
    ...     print("discarded")
    >>> with isolated(7):
    ...     again = random.random()
    >>> first == again
    True
    """
    import numpy as np
    import torch

    environment = dict(os.environ)
    python_state = random.getstate()
    # The packages draw from numpy's global generator only.
    numpy_state = np.random.get_state()  # noqa: NPY002
    # Reading the state would initialise the device; before that there is none to save.
    cuda: Any = torch.cuda
    devices = list(range(cuda.device_count())) if cuda.is_initialized() else []
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(redirect_stdout(io.StringIO()))
        stack.enter_context(torch.random.fork_rng(devices))
        stack.callback(random.setstate, python_state)
        stack.callback(np.random.set_state, numpy_state)
        stack.callback(_restore, environment)
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
