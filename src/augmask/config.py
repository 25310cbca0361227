"""`Settings`: everything that shapes a run and is not data, strategy or seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from augmask.augmentation.completions import CompletionPlan
from augmask.errors import UsageError, did_you_mean
from augmask.validation import ValueSpec

# The paper's names: the rule that fills holes, and the cells that the loss counts.
STRATEGIES: dict[str, tuple[str, Literal["observed", "all"]]] = {
    "NoAug": ("mean", "all"),
    "AugFull": ("lgbm-s", "all"),
    "AugMask": ("lgbm-s", "observed"),
}
SUPERVISE = ("observed", "all")
TIES = ("midpoint", "dequantize")
LINKS = ("ignore", "keep")
PRODUCTS = ("auto", "bf16", "tf32")
FUSE = ("auto", "always", "never")
# Compiling takes some 20 seconds on a GPU; a run should last longer than that.
WORTH_FUSING = 5_000
ROWS_WORTH_FUSING = 5_000_000
CHOICES = {"ties": TIES, "links": LINKS, "matmul_precision": PRODUCTS, "compile": FUSE}
MAY_BE_ZERO = ("holdout", "patience", "warmup", "max_device_gib")
BELOW = {"holdout": 0.5, "ema": 1, "beta2": 1}
TYPES = {"int": int, "float": float, "bool": bool, "str": str}
MOST = 1_000_000_000  # of anything that is counted
# Beyond these a run is a slip of the pen, or a file that was tampered with.
AT_MOST = {
    "sampling_steps": 5_000,
    "sampling_batch": 1_000_000,
    "batch_size": 10_000_000,
}


@dataclass(frozen=True)
class Settings:
    """One frozen record; `augmask.presets` has the values.

    Parameters
    ----------
    ties : str
        What equal numbers of a column are to the network: one point (`midpoint`, the
        paper), or spread over the normal scores that they share (`dequantize`).
    links : str
        Columns that are nearly functions of others: learned like any (`ignore`, the
        paper), or generated so that the relation holds as often (`keep`).
    batch_size, steps : int
        Rows a step, and how many steps.
    lr, warmup, beta2, ema : float, int, float, float
        Peak learning rate, steps to reach it, decay of AdamW's second moment, decay of
        the weight average.
    completions : str
        How many completions of the holes are trained on: `one` (the paper), `stack:4`,
        `cycle:10`, `anchor:30:0.8`.
    holdout : float
        Share of observed cells hidden from the loss to watch it on.
    patience : int
        Stop after so many looks at the held-out cells without progress; 0 never stops.
    sampling_steps, solver : int, str
        Steps of the sampler, and which of the backbone's; empty for its published one.
    sampling_batch : int
        Rows generated at once.
    matmul_precision : {"auto", "bf16", "tf32"}
        How the hidden layers multiply. `auto` is bf16 on a CUDA device that has it, and
        elsewhere `tf32`, which on a CPU is plain float32.
    compile : {"auto", "always", "never"}
        Whether torch compiles the loss, and the sampler's step, into fused kernels;
        `auto` does so on a CUDA device for long runs and millions of rows.
    max_device_gib : float
        GiB of the device that the table may take; a larger table stays in the host's
        memory, and batches of it are gathered ahead of the training.
    network : mapping
        What the backbone is built with, by the names of its own keywords.
    """

    ties: str = "midpoint"
    links: str = "ignore"
    batch_size: int = 4096
    steps: int = 30_000
    lr: float = 1e-3
    warmup: int = 0
    beta2: float = 0.999
    ema: float = 0.999
    completions: str = "one"
    holdout: float = 0.0
    patience: int = 0
    sampling_steps: int = 200
    solver: str = ""
    sampling_batch: int = 16_384
    matmul_precision: str = "auto"
    compile: str = "auto"
    max_device_gib: float = 4.0
    network: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kind in _kinds().items():
            object.__setattr__(self, name, kind.checked(name, getattr(self, name)))
        CompletionPlan.parse(self.completions)

    def compiled(self, device: str) -> bool:
        """Whether the loss is compiled on a device of that type."""
        if self.compile == "auto":
            return device == "cuda" and self.steps >= WORTH_FUSING
        return self.compile == "always"

    def compiled_sampling(self, device: str, n: int) -> bool:
        """Whether the step of the sampler is compiled for `n` rows."""
        if self.compile == "auto":
            return device == "cuda" and n >= ROWS_WORTH_FUSING
        return self.compile == "always"

    def replace(
        self, changes: Mapping[str, Any], network: Collection[str] | None = ()
    ) -> Settings:
        """Return settings with some values changed; what cannot be is an error.

        Parameters
        ----------
        changes : mapping
            Names of settings, and of what the backbone can be built with.
        network : mapping of str to ValueKind, or collection of str, optional
            The latter names, and what their values may be; None when the backbone takes
            any.

        Examples
        --------
        >>> Settings().replace({"steps": 9, "width": 32}, ["width"]).network
        {'width': 32}
        """
        own = {name: value for name, value in changes.items() if name in _kinds()}
        other = {}
        for name, value in changes.items():
            if name in own:
                continue
            if network is not None and name not in network:
                hint = did_you_mean(name, [*_kinds(), *network])
                raise UsageError(f"there is no setting {name!r}{hint}")
            other[name] = _kind_in(network, name).checked(name, value)
        return dataclasses.replace(self, **own, network={**self.network, **other})


def read_settings(
    texts: Mapping[str, str], network: Mapping[str, ValueSpec] | None
) -> dict[str, Any]:
    """Return settings that were written as text, each as what it may be.

    Parameters
    ----------
    texts : mapping
        Of names, known or not, to text.
    network : mapping of str to ValueKind, optional
        What the backbone can be built with.

    Examples
    --------
    >>> read_settings({"lr": "1", "anneal": "no"}, {"anneal": ValueSpec(bool)})
    {'lr': 1.0, 'anneal': False}
    """
    own = _kinds()
    return {
        name: (own.get(name) or _kind_in(network, name)).read(text)
        for name, text in texts.items()
    }


@cache
def _kinds() -> dict[str, ValueSpec]:
    """Return the plain settings and what each may be."""
    found = {}
    for each in dataclasses.fields(Settings):
        if each.name == "network":
            continue
        kind = ValueSpec(TYPES[str(each.type)], CHOICES.get(each.name, ()))
        if kind.plain in (int, float):
            may_be_zero = each.name in MAY_BE_ZERO
            kind = dataclasses.replace(
                kind,
                lowest=0 if may_be_zero else None,
                above=None if may_be_zero else 0,
                highest=AT_MOST.get(each.name, MOST) if kind.plain is int else None,
                below=BELOW.get(each.name),
            )
        found[each.name] = kind
    return found


def _kind_in(network: Collection[str] | None, name: str) -> ValueSpec:
    known = network if isinstance(network, Mapping) else {}
    return known.get(name) or ValueSpec()
