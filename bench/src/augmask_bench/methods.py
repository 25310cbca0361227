"""Methods: a generator by name, a strategy for its holes, and its settings.

A generator (`generator`) is registered under a name; from then on it can be named in a
plan. Known from the start are the paper's baselines, the three diffusion backbones and
`fill`, the augmenter alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from augmask.augmentation.completions import CompletionPlan
from augmask.config import STRATEGIES, SUPERVISE
from augmask.errors import UsageError, did_you_mean
from augmask_bench.augmentation_cache import (
    augmenter_settings,
    augmenter_version,
    bent,
    rule_lacks,
)
from augmask_bench.backbones import BACKBONES
from augmask_bench.baseline_generators import BASELINES
from augmask_bench.generator import Generator, Made, Request

NAMES_IN_PRINT = {
    **{"zero": "Zero", "mean": "Mean", "noise": "Noise"},
    "hyperimpute": "HyperImpute",
}


@dataclass(frozen=True)
class Method:
    """A generator with its settings, as a plan names it.

    Parameters
    ----------
    generator : str
    strategy : str
        `NoAug`, `AugFull`, `AugMask`, a name of one's own, or empty for a generator
        that handles holes itself.
    augmenter : str
        The rule that fills holes; empty if none is used.
    supervise : str
        Cells that the loss counts; empty where that is no choice.
    completions : str
        How many completions are trained on; `one` as in the paper.
    eta, lam : float, optional
        Context bias and stochasticity of a bent LightGBM rule.
    preset : str
        Sizes and budgets of a backbone or baseline.
    options : tuple of (name, value)
        Single settings that differ.
    label : str
        How results call it.
    """

    generator: str
    strategy: str = ""
    augmenter: str = ""
    supervise: str = ""
    completions: str = "one"
    eta: float | None = None
    lam: float | None = None
    preset: str = "paper"
    options: tuple[tuple[str, Any], ...] = ()
    label: str = ""

    def identity(self) -> dict[str, Any]:
        """Return all that decides about the rows, and no names.

        Presets and defaults are written out, so that a run is done again when one of
        them changes; for what no setting says there are the versions.
        """
        generator = find_generator(self.generator)
        knobs = ("generator", "augmenter", "supervise", "completions")
        fill: dict[str, Any] = {}
        if self.augmenter:
            augmenter = bent(self.augmenter, self.eta, self.lam)
            fill = {
                "version": augmenter_version(augmenter),
                "settings": augmenter_settings(augmenter),
            }
        return {
            **{name: getattr(self, name) for name in knobs},
            "version": generator.version,
            "settings": dict(generator.settings(self)),
            "fill": fill,
        }

    def why_unavailable(self, device: str = "auto") -> str:
        """Return why it cannot run here, in words; empty if it can."""
        reason = find_generator(self.generator).why_unavailable(device)
        return reason or rule_lacks(self.augmenter)


def _filled(request: Request) -> Made:
    return Made(request.table)


def _no_options(method: Method) -> None:
    if method.options:
        raise UsageError(
            f"{method.generator} has no options, got {method.options[0][0]!r}"
        )


FILL = Generator("fill", "fill", _filled, complete=True, check=_no_options)
GENERATORS = {known.name: known for known in (*BASELINES, *BACKBONES, FILL)}


def register(generator: Generator) -> Generator:
    """Make a generator known by its name; a later one of that name replaces it."""
    GENERATORS[generator.name] = generator
    return generator


def find_generator(name: str) -> Generator:
    """Return the generator of that name.

    Examples
    --------
    >>> find_generator("cdtd").strategies
    ('NoAug', 'AugFull', 'AugMask')
    >>> find_generator("ctdt")
    Traceback (most recent call last):
    augmask.errors.UsageError: there is no generator 'ctdt'; did you mean 'cdtd'?
    """
    if name not in GENERATORS:
        hint = did_you_mean(name, GENERATORS)
        raise UsageError(f"there is no generator {name!r}{hint}")
    return GENERATORS[name]


# -- from the words of a plan -------------------------------------------------------


def in_print(augmenter: str) -> str:
    """Return a rule's name as papers print it.

    Examples
    --------
    >>> in_print("lgbm-s"), in_print("mean")
    ('LGBM-S', 'Mean')
    """
    return NAMES_IN_PRINT.get(augmenter, augmenter.upper())


def _label(method: Method, generator: Generator) -> str:
    """Return a name that tells a method from the others of a usual plan."""
    if generator.complete and not generator.strategies:
        name = f"{generator.label}: {in_print(method.augmenter)}"
    else:
        name = generator.label + (f" + {method.strategy}" if method.strategy else "")
    usual = STRATEGIES.get(method.strategy, (method.augmenter, method.supervise))
    extra = []
    if usual[0] != method.augmenter:
        extra.append(in_print(method.augmenter))
    if method.completions != "one":
        extra.append(method.completions)
    if method.eta is not None or method.lam is not None:
        extra.append(f"eta {method.eta or 0:g}")
        extra.append(f"lam {1 if method.lam is None else method.lam:g}")
    return name + (f" ({', '.join(extra)})" if extra else "")


def complete_method(method: Method) -> Method:
    """Return a method with what its strategy implies filled in, or raise.

    Examples
    --------
    >>> full = complete_method(Method("cdtd", "AugMask"))
    >>> full.augmenter, full.supervise, full.label
    ('lgbm-s', 'observed', 'CDTD + AugMask')
    """
    generator = find_generator(method.generator)
    augmenter, supervise = method.augmenter, method.supervise
    if generator.strategies:
        known = {name: STRATEGIES[name] for name in generator.strategies}
        own = bool(augmenter and supervise)
        if method.strategy not in known and not own:
            hint = did_you_mean(method.strategy, known)
            raise UsageError(
                f"{generator.label} has no strategy {method.strategy!r}{hint}; one of "
                "your own names its augmenter and what it supervises"
            )
        usual = known.get(method.strategy, ("", ""))
        augmenter, supervise = augmenter or usual[0], supervise or usual[1]
    elif method.strategy or supervise:
        raise UsageError(
            f"{generator.label} takes no strategy, got "
            f"{method.strategy or supervise!r}; leave it out"
        )
    if augmenter:
        bent(augmenter, method.eta, method.lam)
    if generator.complete and not augmenter:
        raise UsageError(f"{generator.label} takes complete tables: name an augmenter")
    if generator.complete and supervise == "observed":
        raise UsageError(
            f"{generator.label} takes complete tables and counts every cell, got "
            "supervise = 'observed'; use 'all'"
        )
    if supervise and supervise not in SUPERVISE:
        raise UsageError(f"supervise must be one of {SUPERVISE}, got {supervise!r}")
    CompletionPlan.parse(method.completions)
    full = dataclasses.replace(method, augmenter=augmenter, supervise=supervise)
    return dataclasses.replace(full, label=method.label or _label(full, generator))
