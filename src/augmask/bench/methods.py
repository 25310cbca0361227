"""Methods: a generator by name, a strategy for its holes, and what it needs.

A generator is anything that turns a table into synthetic rows. It says what it needs
(a complete table, a GPU, a package), and is registered under a name; from then on it
can be named in a plan. The three diffusion backbones and `fill`, the augmenter alone,
are registered here.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from augmask.augmentation.draws import Draws
from augmask.bench.fills import SharedFill, bent, rule_version
from augmask.config import STRATEGIES, SUPERVISE, Settings
from augmask.errors import UsageError, did_you_mean
from augmask.presets import resolve_preset

if TYPE_CHECKING:
    import pandas as pd

NAMES_IN_PRINT = {"zero": "Zero", "mean": "Mean", "noise": "Noise"}


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
    draws : str
        How many completions are trained on; `one` as in the paper.
    eta, lam : float, optional
        Context bias and stochasticity of a bent LightGBM rule.
    preset : str
        Sizes and budgets of a backbone.
    options : tuple of (name, value)
        Single settings that differ.
    label : str
        How results call it.
    """

    generator: str
    strategy: str = ""
    augmenter: str = ""
    supervise: str = ""
    draws: str = "one"
    eta: float | None = None
    lam: float | None = None
    preset: str = "paper"
    options: tuple[tuple[str, Any], ...] = ()
    label: str = ""

    def identity(self) -> dict[str, Any]:
        """Return all that decides about the rows, and no names.

        Presets are written out, so that a run is done again when its preset changes.
        """
        generator = find_generator(self.generator)
        knobs = ("generator", "augmenter", "supervise", "draws")
        return {
            **{name: getattr(self, name) for name in knobs},
            # a rule that is not bent
            "eta": 0.0 if self.eta is None else self.eta,
            "lam": 1.0 if self.lam is None else self.lam,
            "version": generator.version,
            "rule_version": rule_version(self.augmenter),
            "settings": dict(generator.settings(self)),
        }


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
        The rule of the method, for a generator that fills holes itself.
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

    def can_run(self, device: str = "auto") -> str:
        """Return why it cannot run here, in words; empty if it can."""
        if self.package and find_spec(self.package) is None:
            return f"needs the package {self.package}, which is not installed"
        if self.gpu or (self.on_device and device == "cuda"):
            import torch

            if not torch.cuda.is_available():
                return "needs a GPU, and there is none"
        return ""

    @property
    def needs(self) -> str:
        """What it needs, in words."""
        needs = ["an augmenter, for holes"] if self.complete else []
        needs += ["a GPU"] if self.gpu else []
        needs += [f"the package {self.package}"] if self.package else []
        return ", ".join(needs) or "nothing"


GENERATORS: dict[str, Generator] = {}


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


# -- the diffusion backbones --------------------------------------------------------


def _resolved(method: Method) -> Settings:
    if method.preset == "auto":
        raise UsageError(
            f"the preset of {method.generator} must be named in a plan, got 'auto': "
            "what is compared must not depend on the machine"
        )
    changes = {**dict(method.options), "draws": method.draws}
    return resolve_preset(method.preset, "", method.generator, changes, None)[1]


def _diffusion_settings(method: Method) -> Mapping[str, Any]:
    return dataclasses.asdict(_resolved(method))


def _check_diffusion(method: Method) -> None:
    from augmask.diffusion import check_sampler, keywords_of

    names = keywords_of(method.generator)
    resolve_preset(method.preset, "", method.generator, dict(method.options), names)
    settings = _resolved(method)
    check_sampler(
        method.generator, settings.sampling_steps, settings.solver, **settings.network
    )


def _diffusion(request: Request) -> Made:
    import augmask as am

    method, fill = request.method, request.fill
    supervise: Any = method.supervise
    model = am.AugMask(
        backbone=method.generator,
        augmenter=fill if fill is not None else method.augmenter,
        supervise=supervise,
        preset=method.preset,
        options={**dict(method.options), "draws": method.draws},
        seed=request.seed,
        device=request.device,
    )
    began = time.perf_counter()
    model.fit(request.table, schema=request.kinds, max_minutes=request.max_minutes)
    fitted = time.perf_counter()
    rows = model.sample(request.rows, seed=request.seed)
    sampled = time.perf_counter()
    return Made(
        rows,
        fitted - began - (fill.spent if fill is not None else 0.0),
        sampled - fitted,
        {
            "steps": int(model.history_["step"].iloc[-1]),
            "stopped": model.training_["stopped"],
            "restarts": model.training_["restarts"],
            "device": next(model.backbone_.parameters()).device.type,
        },
    )


def _filled(request: Request) -> Made:
    return Made(request.table)


def _no_options(method: Method) -> None:
    if method.options:
        raise UsageError(
            f"{method.generator} has no options, got {method.options[0][0]!r}"
        )


for _name, _print in (("cdtd", "CDTD"), ("tabdiff", "TabDiff"), ("tabddpm", "TabDDPM")):
    register(
        Generator(
            _name,
            _print,
            _diffusion,
            strategies=tuple(STRATEGIES),
            on_device=True,
            keeps_time=True,
            settings=_diffusion_settings,
            check=_check_diffusion,
        )
    )
register(Generator("fill", "fill", _filled, complete=True, check=_no_options))


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
    if method.draws != "one":
        extra.append(method.draws)
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
    if supervise and supervise not in SUPERVISE:
        raise UsageError(f"supervise must be one of {SUPERVISE}, got {supervise!r}")
    Draws.parse(method.draws)
    full = dataclasses.replace(method, augmenter=augmenter, supervise=supervise)
    return dataclasses.replace(full, label=method.label or _label(full, generator))
