"""A generator: anything that turns a table into synthetic rows, and what it needs.

It says whether it wants a complete table, a GPU or a package, and which settings decide
about its rows. `backbones` and `baselines` are those of the paper; one of your own is
registered with `methods.register`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from augmask_bench.peers import why_not

if TYPE_CHECKING:
    import pandas as pd

    from augmask.augmentation.frame import Augmented
    from augmask_bench.augmentation_cache import SharedFill
    from augmask_bench.methods import Method


@dataclass(frozen=True, eq=False)
class Request:
    """What a generator is asked for.

    Parameters
    ----------
    table : pandas.DataFrame
        To learn from; without holes for a generator that takes no others.
    kinds : mapping
        The kind of every column, as a schema.
    rows : int
        How many rows to generate.
    target : str
    method : Method
    seed : int
    device : str
    max_minutes : float, optional
    fill : SharedFill, optional
        The augmenter of the method, for a generator that fills missing values itself.
    filled : Augmented, optional
        For a generator that takes complete tables: `table` once more, as codes, with
        the codec that was fitted on observed cells before anything was filled. A
        generator that scales numbers takes these: a scaling of its own, fitted on
        `table`, would take made-up values for data.
    """

    table: pd.DataFrame
    kinds: Mapping[str, str]
    rows: int
    target: str
    method: Method
    seed: int
    device: str = "auto"
    max_minutes: float | None = None
    fill: SharedFill | None = None
    filled: Augmented | None = None


@dataclass(frozen=True, eq=False)
class Made:
    """What a generator answers: complete rows, and what they cost.

    `facts` are recorded with the run. Seconds of filling are not among those of the
    fit.
    """

    rows: pd.DataFrame
    fit_seconds: float = 0.0
    sample_seconds: float = 0.0
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _plain_options(method: Method) -> Mapping[str, Any]:
    return dict(method.options)


def _any_options(method: Method) -> None:
    del method


@dataclass(frozen=True)
class Generator:
    """A way to synthetic rows, and what it needs.

    Parameters
    ----------
    name, label : str
        In plans, and in print.
    make : callable
        `make(request) -> Made`.
    version : str
        Declared by whoever writes the generator; raise it when its rows change, and
        its runs are done again.
    strategies : tuple of str
        Those that make sense; none for one that handles holes itself.
    complete : bool
        Whether it takes complete tables only: it is then given a filled one.
    gpu : bool
        Whether it needs a GPU.
    on_device : bool
        Whether it works on the device that the plan names.
    package : str
        A package that must be installed.
    aware : bool
        Whether it is one of the paper's missing-aware baselines.
    keeps_time : bool
        Whether it ends in time by itself when given `max_minutes`.
    settings : callable
        `settings(method)`: everything that decides about its rows, as plain values.
    check : callable
        `check(method)` raises if an option does not exist; called before a grid
        starts.
    """

    name: str
    label: str
    make: Callable[[Request], Made]
    version: str = "1"
    strategies: tuple[str, ...] = ()
    complete: bool = False
    gpu: bool = False
    on_device: bool = False
    package: str = ""
    aware: bool = False
    keeps_time: bool = False
    settings: Callable[[Method], Mapping[str, Any]] = _plain_options
    check: Callable[[Method], None] = _any_options

    def why_unavailable(self, device: str = "auto") -> str:
        """Return why it cannot run here, in words; empty if it can."""
        reason = why_not(self.package) if self.package else ""
        if reason:
            return reason
        if self.gpu or (self.on_device and device == "cuda"):
            import torch

            if not torch.cuda.is_available():
                return "needs a GPU, and there is none"
        return ""

    @property
    def needs(self) -> str:
        """What it needs, in words."""
        alone = self.complete and not self.strategies
        needs = ["an augmenter, for holes"] if alone else []
        needs += ["a GPU"] if self.gpu else []
        needs += [f"the package {self.package}"] if self.package else []
        return ", ".join(needs) or "nothing"
