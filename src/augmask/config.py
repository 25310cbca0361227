"""`Settings`: everything that shapes a run besides data, strategy and seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from augmask.augmentation.completions import CompletionPlan
from augmask.errors import UsageError, did_you_mean
from augmask.validation import ValueSpec

# The paper's names: the augmenter, and the cells that the loss counts.
STRATEGIES: dict[str, tuple[str, Literal["observed", "all"]]] = {
    "NoAug": ("mean", "all"),
    "AugFull": ("lgbm-s", "all"),
    "AugMask": ("lgbm-s", "observed"),
}
SUPERVISE = ("observed", "all")
# Compiling takes about 20 seconds on a GPU; a run should last longer than that.
COMPILE_STEPS = 5_000
COMPILE_ROWS = 5_000_000
CHOICES = {
    "ties": ("midpoint", "dequantize"),
    "extremes": ("far", "expected"),
    "links": ("ignore", "keep"),
    "matmul_precision": ("auto", "bf16", "tf32"),
    "compile": ("auto", "always", "never"),
}
MAY_BE_ZERO = ("validation_fraction", "patience", "warmup", "max_device_gib")
BELOW = {"validation_fraction": 0.5, "ema": 1, "beta2": 1}
TYPES = {"int": int, "float": float, "bool": bool, "str": str}
MAX_NUMBER = 1_000_000_000
# A larger number is a typing error, or comes from a file that was tampered with.
AT_MOST = {
    "sampling_steps": 5_000,
    "sampling_batch": 1_000_000,
    "batch_size": 10_000_000,
    "n": 10**11,
    "n_draws": 10_000,
    "ensemble": 1_000,
    "seed": 2**64 - 1,
}


def check_int(name: str, value: Any, lowest: int) -> int:
    """Return the value of an integer parameter as an int, or raise `UsageError`.

    Examples
    --------
    >>> check_int("seed", -1, 0)
    Traceback (most recent call last):
    augmask.errors.UsageError: seed must be a whole number of at least 0 and at most \
18,446,744,073,709,551,615, got -1
    """
    spec = ValueSpec(int, lowest=lowest, highest=AT_MOST.get(name))
    number: int = spec.checked(name, value)
    return number


@dataclass(frozen=True)
class Settings:
    """All settings of a run; `augmask.presets` has their values.

    Parameters
    ----------
    ties : {"midpoint", "dequantize"}
        How equal numbers of a column are encoded: as one point (the paper), or spread
        over the normal scores that they share.
    extremes : {"far", "expected"}
        Where the smallest and the largest value of a column lie among normal scores:
        about 5.2 standard deviations out (`far`, the paper), or where they are expected
        for as many normal numbers (`expected`).
    links : {"ignore", "keep"}
        Columns that are nearly functions of others are learned like any other column
        (`ignore`, the paper), or generated such that the relation holds as often as in
        the table (`keep`). With `keep` values also stay beside those that they occur
        with, and whole numbers whose order means little are levels.
    batch_size, steps : int
        Rows per training step, and number of steps.
    lr, warmup, beta2, ema : float, int, float, float
        Peak learning rate, steps to reach it, decay of AdamW's second moment, decay of
        the exponential moving average (EMA) of the weights.
    completions : str
        The completions of the missing values to train on: `one` (the paper), `stack:4`,
        `cycle:10` or `anchor:30:0.8`.
    validation_fraction : float
        Share of observed cells excluded from the loss, to measure it on them.
    patience : int
        Stop after this many evaluations of the held-out cells without progress; 0
        never stops.
    sampling_steps, solver : int, str
        Steps of the sampler, and its solver; an empty one is the published solver of
        the backbone.
    sampling_batch : int
        Rows generated at once.
    matmul_precision : {"auto", "bf16", "tf32"}
        Precision of the hidden layers' products. `auto` is bf16 on a CUDA device that
        supports it, and elsewhere `tf32`, which on a CPU is plain float32.
    compile : {"auto", "always", "never"}
        Whether torch compiles the loss and the sampler's step into fused kernels;
        `auto` does so on a CUDA device for long runs and for millions of rows.
    max_device_gib : float
        Largest table, in GiB, that is copied to the device; a larger one stays in the
        host's memory, from which batches are prefetched.
    network : mapping
        Keywords that the backbone is built with.
    """

    ties: str = "midpoint"
    extremes: str = "far"
    links: str = "ignore"
    batch_size: int = 4096
    steps: int = 30_000
    lr: float = 1e-3
    warmup: int = 0
    beta2: float = 0.999
    ema: float = 0.999
    completions: str = "one"
    validation_fraction: float = 0.0
    patience: int = 0
    sampling_steps: int = 200
    solver: str = ""
    sampling_batch: int = 16_384
    matmul_precision: str = "auto"
    compile: str = "auto"
    max_device_gib: float = 4.0
    network: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, spec in _specs().items():
            object.__setattr__(self, name, spec.checked(name, getattr(self, name)))
        CompletionPlan.parse(self.completions)

    def compiled(self, device: str) -> bool:
        """Whether to compile the loss on a device of that type."""
        if self.compile == "auto":
            return device == "cuda" and self.steps >= COMPILE_STEPS
        return self.compile == "always"

    def compiled_sampling(self, device: str, n: int) -> bool:
        """Whether to compile the sampler's step for `n` rows."""
        if self.compile == "auto":
            return device == "cuda" and n >= COMPILE_ROWS
        return self.compile == "always"

    def replace(
        self, changes: Mapping[str, Any], network: Collection[str] | None = ()
    ) -> Settings:
        """Return settings with some values changed, after checking them.

        Parameters
        ----------
        changes : mapping
            Settings, and keywords of the backbone.
        network : mapping of str to ValueSpec, or collection of str, optional
            The keywords that the backbone accepts, with their values; None if it
            accepts any.

        Examples
        --------
        >>> Settings().replace({"steps": 9, "width": 32}, ["width"]).network
        {'width': 32}
        """
        own = {name: value for name, value in changes.items() if name in _specs()}
        keywords = {}
        for name, value in changes.items():
            if name in own:
                continue
            if network is not None and name not in network:
                hint = did_you_mean(name, [*_specs(), *network])
                raise UsageError(f"there is no setting {name!r}{hint}")
            keywords[name] = _network_spec(network, name).checked(name, value)
        return dataclasses.replace(self, **own, network={**self.network, **keywords})


def read_settings(
    texts: Mapping[str, str], network: Mapping[str, ValueSpec] | None
) -> dict[str, Any]:
    """Parse settings that were written as text, each by its own type.

    Parameters
    ----------
    texts : mapping of str to str
        Names, known or not, and values.
    network : mapping of str to ValueSpec, optional
        The keywords of the backbone.

    Examples
    --------
    >>> read_settings({"lr": "1", "anneal": "no"}, {"anneal": ValueSpec(bool)})
    {'lr': 1.0, 'anneal': False}
    """
    own = _specs()
    return {
        name: (own.get(name) or _network_spec(network, name)).read(text)
        for name, text in texts.items()
    }


@cache
def _specs() -> dict[str, ValueSpec]:
    """Return the valid values of every setting but `network`."""
    specs = {}
    for each in dataclasses.fields(Settings):
        if each.name == "network":
            continue
        spec = ValueSpec(TYPES[str(each.type)], CHOICES.get(each.name, ()))
        if spec.plain in (int, float):
            may_be_zero = each.name in MAY_BE_ZERO
            spec = dataclasses.replace(
                spec,
                lowest=0 if may_be_zero else None,
                above=None if may_be_zero else 0,
                highest=AT_MOST.get(each.name, MAX_NUMBER),
                below=BELOW.get(each.name),
            )
        specs[each.name] = spec
    return specs


def _network_spec(network: Collection[str] | None, name: str) -> ValueSpec:
    known = network if isinstance(network, Mapping) else {}
    return known.get(name) or ValueSpec()
