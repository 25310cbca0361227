"""Methods: a generator by name, a strategy for missing values, and settings.

Plans name generators by the name under which they are registered: the paper's
baselines, the three diffusion backbones, `fill` (an augmenter alone), and those that
you add with `register`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from augmask.augmentation.completions import CompletionPlan
from augmask.config import STRATEGIES, SUPERVISE
from augmask.errors import UsageError, did_you_mean
from augmask_bench.augmentation_cache import (
    TRUTH,
    augmenter_settings,
    augmenter_version,
    perturbed_augmenter,
    why_augmenter_unavailable,
)
from augmask_bench.generators import (
    BACKBONES,
    BASELINES,
    Generated,
    Generator,
    Request,
)

DISPLAY_NAMES = {
    TRUTH: "truth",
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
        `NoAug`, `AugFull`, `AugMask`, a name that you choose, or empty for a generator
        that handles missing values itself.
    augmenter : str
        Empty if none is used.
    supervise : str
        Cells that the loss counts; empty if the generator offers no choice.
    completions : str
        How many completions to train on; `one` as in the paper.
    eta, lam : float, optional
        Context bias and stochasticity of a perturbed LightGBM augmenter.
    preset : str
        Sizes and budgets of a backbone or baseline.
    options : tuple of (name, value)
        Settings that differ from the preset.
    max_minutes : float, optional
        Limit of a training of this method, instead of the plan's.
    label : str
        Its name in results.
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
    max_minutes: float | None = None
    label: str = ""

    def identity(self) -> dict[str, Any]:
        """Return everything that determines the rows, and no display names.

        Presets and defaults are resolved, so that a run is repeated when one of them
        changes; changes of code are tracked by the declared versions.
        """
        generator = find_generator(self.generator)
        names = ("generator", "augmenter", "supervise", "completions")
        return {
            **{name: getattr(self, name) for name in names},
            "version": generator.version,
            "settings": dict(generator.settings(self)),
            "fill": self.fill_identity(),
        }

    def fill_identity(self) -> dict[str, Any]:
        """Return the version and the settings of the augmenter; empty without one."""
        if not self.augmenter:
            return {}
        augmenter = perturbed_augmenter(self.augmenter, self.eta, self.lam)
        return {
            "version": augmenter_version(augmenter),
            "settings": augmenter_settings(augmenter),
        }

    def why_unavailable(self, device: str = "auto") -> str:
        """Return why it cannot run here; an empty text if it can."""
        reason = find_generator(self.generator).why_unavailable(device)
        return reason or why_augmenter_unavailable(self.augmenter)


def _augmented_table(request: Request) -> Generated:
    return Generated(request.table)


def _no_options(method: Method) -> None:
    if method.options:
        raise UsageError(
            f"{method.generator} has no options, got {method.options[0][0]!r}"
        )


FILL = Generator("fill", "fill", _augmented_table, complete=True, check=_no_options)
GENERATORS = {known.name: known for known in (*BASELINES, *BACKBONES, FILL)}


def register(generator: Generator) -> Generator:
    """Register a generator under its name; it replaces an earlier one of that name."""
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


# -- methods as plans write them ------------------------------------------------


def display_name(augmenter: str) -> str:
    """Return an augmenter's name as the paper prints it.

    Examples
    --------
    >>> display_name("lgbm-s"), display_name("mean")
    ('LGBM-S', 'Mean')
    """
    return DISPLAY_NAMES.get(augmenter, augmenter.upper())


def _label(method: Method, generator: Generator) -> str:
    """Return a label that names what differs from the usual method."""
    if generator.complete and not generator.strategies:
        name = f"{generator.label}: {display_name(method.augmenter)}"
    else:
        name = generator.label + (f" + {method.strategy}" if method.strategy else "")
    usual = STRATEGIES.get(method.strategy, (method.augmenter, method.supervise))
    extra = []
    if usual[0] != method.augmenter:
        extra.append(display_name(method.augmenter))
    if method.completions != "one":
        extra.append(method.completions)
    if method.eta is not None or method.lam is not None:
        extra.append(f"eta {method.eta or 0:g}")
        extra.append(f"lam {1 if method.lam is None else method.lam:g}")
    return name + (f" ({', '.join(extra)})" if extra else "")


def complete_method(method: Method) -> Method:
    """Return the method with the settings that its strategy implies, or raise.

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
                f"{generator.label} has no strategy {method.strategy!r}{hint}; to "
                "define your own, set augmenter and supervise"
            )
        usual = known.get(method.strategy, ("", ""))
        augmenter, supervise = augmenter or usual[0], supervise or usual[1]
    elif method.strategy or supervise:
        raise UsageError(
            f"{generator.label} takes no strategy, got "
            f"{method.strategy or supervise!r}; remove it"
        )
    if augmenter:
        perturbed_augmenter(augmenter, method.eta, method.lam)
    if generator.complete and not augmenter:
        raise UsageError(f"{generator.label} needs complete tables: set augmenter")
    if generator.complete and supervise == "observed":
        raise UsageError(
            f"{generator.label} counts every cell in its loss, got supervise = "
            "'observed'; use 'all'"
        )
    if supervise and supervise not in SUPERVISE:
        raise UsageError(f"supervise must be one of {SUPERVISE}, got {supervise!r}")
    CompletionPlan.parse(method.completions)
    full = dataclasses.replace(method, augmenter=augmenter, supervise=supervise)
    return dataclasses.replace(full, label=method.label or _label(full, generator))
