"""Generators: anything that turns a table into synthetic rows.

A `Generator` declares whether it needs a complete table, a GPU or a package, and which
settings determine its rows. This file defines those of the paper: the three diffusion
backbones, through augmask's public API, and the baselines of
`augmask_bench.baselines`. Register your own with `methods.register`.

Missing-aware baselines (MIWAE, MissDiff, DiffPuter, ForestDiff) receive the incomplete
table. The others need complete tables and have the strategies NoAug and AugFull: the
benchmark augments the missing values first, and every cell counts in their loss.
Numbers are scaled by what was observed and then augmented, as in the paper; TVAE, CTGAN
and ARF receive them unscaled. Each baseline has the presets `paper` and `small`; an
option overrides one setting by its name, and those of TabSyn's autoencoder begin with
`vae_`.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from augmask.config import STRATEGIES, Settings
from augmask.errors import UsageError, did_you_mean
from augmask.presets import resolve_preset
from augmask.rng import stream
from augmask_bench.peers import why_unusable
from augmask_bench.validation import with_options

if TYPE_CHECKING:
    import pandas as pd

    from augmask import AugMask
    from augmask.augmentation.augment import Augmented
    from augmask.table.codec import Codec
    from augmask.table.schema import Schema
    from augmask.table.table import Table
    from augmask_bench.fills import StoredFill
    from augmask_bench.methods import Method

BASELINE_PRESETS = ("paper", "small")
BASELINE_STRATEGIES = ("NoAug", "AugFull")
# Modules whose packages scale numbers themselves, and those that take threads instead
# of a device and a time limit.
UNSCALED = ("tvae", "ctgan", "arf", "forest")
THREADED = ("arf", "forest")


@dataclass(frozen=True, eq=False)
class Request:
    """What a generator is asked to do.

    Parameters
    ----------
    table : pandas.DataFrame
        The training table; complete if the generator needs that.
    kinds : mapping
        The kind of every column, as a schema.
    schema : mapping
        Kinds and, of categories, the levels of the complete table; a network for it
        has the same shape whichever levels are observed.
    rows : int
        Number of rows to generate.
    target : str
    method : Method
    seed : int
    device : str
    max_minutes : float, optional
    augmenter : StoredFill, optional
        The augmenter of the method, for a generator that augments the table itself.
    augmented : Augmented, optional
        For a generator that needs complete tables: the encoded `table`, with the codec
        fitted on observed cells before augmentation. Use it if you scale numbers: a
        scaler fitted on `table` would treat augmented values as data.
    """

    table: pd.DataFrame
    kinds: Mapping[str, str]
    rows: int
    target: str
    method: Method
    seed: int
    device: str = "auto"
    max_minutes: float | None = None
    augmenter: StoredFill | None = None
    augmented: Augmented | None = None
    schema: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Generated:
    """The complete rows of a generator, and what they cost.

    `facts` are recorded with the run. The time of augmentation is not part of
    `fit_seconds`.
    """

    rows: pd.DataFrame
    fit_seconds: float = 0.0
    sample_seconds: float = 0.0
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# Rows of one request, or what its training raised.
Outcome = Generated | Exception
# How the complete baselines encode a table before it is filled.
PLAIN_ENCODING = {"ties": "midpoint", "links": "ignore"}


def _plain_encoding(method: Method) -> Mapping[str, Any]:
    del method
    return PLAIN_ENCODING


def _plain_options(method: Method) -> Mapping[str, Any]:
    return dict(method.options)


def _any_options(method: Method) -> None:
    del method


@dataclass(frozen=True)
class Generator:
    """A method of generating rows, and its requirements.

    Parameters
    ----------
    name, label : str
        In plans, and in tables and figures.
    generate : callable
        `generate(request) -> Generated`.
    version : str
        Raise it when a change of the code changes the rows; its runs are then repeated.
    strategies : tuple of str
        Strategies that apply; none if the generator handles missing values itself.
    complete : bool
        Whether it needs a complete table; it then receives an augmented one.
    gpu : bool
        Whether it needs a GPU.
    on_device : bool
        Whether it uses the device that the plan names.
    package : str
        A package that must be installed.
    aware : bool
        Whether it is one of the paper's missing-aware baselines.
    keeps_time : bool
        Whether it respects `max_minutes` itself.
    settings : callable
        `settings(method)`: everything that determines its rows, as plain values.
    check : callable
        `check(method)` raises if an option is invalid; called before a grid starts.
    generate_many : callable, optional
        `generate_many(requests)` yields rows, or an error, for each of several requests
        that differ in table, seed and strategy only, and that are trained together. The
        rows are those of `generate`.
    encoding : callable
        `encoding(method)`: the settings that determine how the table is encoded before
        it is filled. Methods with equal ones share fills.
    fill : callable, optional
        `fill(request)` makes and stores the fill that `generate` would use, for a
        generator that fills the table itself; without it the training does so.
    """

    name: str
    label: str
    generate: Callable[[Request], Generated]
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
    generate_many: Callable[[Sequence[Request]], Iterator[Outcome]] | None = None
    encoding: Callable[[Method], Mapping[str, Any]] = _plain_encoding
    fill: Callable[[Request], None] | None = None

    def why_unavailable(self, device: str = "auto") -> str:
        """Return why it cannot run here; an empty text if it can."""
        reason = why_unusable(self.package) if self.package else ""
        if reason:
            return reason
        if self.gpu or (self.on_device and device == "cuda"):
            import torch

            if not torch.cuda.is_available():
                return "needs a GPU, and there is none"
        return ""

    @property
    def needs(self) -> str:
        """Its requirements, in words."""
        augmenter_only = self.complete and not self.strategies
        needs = ["an augmenter"] if augmenter_only else []
        needs += ["a GPU"] if self.gpu else []
        needs += [f"the package {self.package}"] if self.package else []
        return ", ".join(needs) or "nothing"


# -- the diffusion backbones ----------------------------------------------------


def _backbone_config(method: Method) -> Settings:
    if method.preset == "auto":
        raise UsageError(
            f"the preset of {method.generator} must not be 'auto', which depends on "
            "the machine; name a preset"
        )
    changes = {**dict(method.options), "completions": method.completions}
    return resolve_preset(method.preset, "", method.generator, changes, None)[1]


def _with_floats(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with integers as floats: 1 and 1.0 name the same run."""
    return {k: float(v) if type(v) is int else v for k, v in settings.items()}


def _backbone_settings(method: Method) -> Mapping[str, Any]:
    """Return all settings, the defaults of the backbone's keywords included."""
    from augmask.diffusion import resolve_backbone

    settings = _backbone_config(method)
    backbone: Any = resolve_backbone(method.generator)
    _, *keywords = inspect.signature(backbone).parameters.values()
    defaults = {keyword.name: keyword.default for keyword in keywords}
    return {
        **_with_floats(dataclasses.asdict(settings)),
        "solver": settings.solver or backbone.solvers[0],
        "network": _with_floats({**defaults, **settings.network}),
    }


def _check_backbone(method: Method) -> None:
    from augmask.diffusion import check_sampler, keywords_of

    names = keywords_of(method.generator)
    resolve_preset(method.preset, "", method.generator, dict(method.options), names)
    settings = _backbone_config(method)
    check_sampler(
        method.generator, settings.sampling_steps, settings.solver, **settings.network
    )


def _backbone_encoding(method: Method) -> Mapping[str, Any]:
    settings = _backbone_config(method)
    return {name: getattr(settings, name) for name in PLAIN_ENCODING}


def _model(request: Request) -> AugMask:
    """Return the unfitted model of a request."""
    import augmask as am

    method, fill = request.method, request.augmenter
    supervise: Any = method.supervise
    return am.AugMask(
        backbone=method.generator,
        augmenter=fill if fill is not None else method.augmenter,
        supervise=supervise,
        preset=method.preset,
        options={**dict(method.options), "completions": method.completions},
        seed=request.seed,
        device=request.device,
    )


def _fill_backbone(request: Request) -> None:
    """Prepare a training, which fills the table, and stop there."""
    from augmask.prepare import prepare_fit

    model = _model(request).set_params(device="cpu")
    prepare_fit(model, request.table, schema=request.schema or request.kinds)


def _trained_together(
    models: Sequence[AugMask], requests: Sequence[Request]
) -> list[float]:
    """Fit the models, together if possible; return the seconds that each took.

    If they do not fit into memory together, halves of them may.
    """
    import augmask as am
    from augmask.errors import TrainingDiverged

    start = time.perf_counter()
    first = requests[0]
    try:
        am.fit_many(
            models,
            [request.table for request in requests],
            schema=first.schema or first.kinds,
            max_minutes=first.max_minutes,
            progress=False,
        )
    except TrainingDiverged:
        # all others are fitted
        if len(models) == 1:
            raise
    except (MemoryError, RuntimeError):
        if len(models) == 1:
            raise
        half = len(models) // 2
        return [
            *_trained_together(models[:half], requests[:half]),
            *_trained_together(models[half:], requests[half:]),
        ]
    spent = sum(r.augmenter.spent for r in requests if r.augmenter is not None)
    return [(time.perf_counter() - start - spent) / len(models)] * len(models)


def _run_backbones(requests: Sequence[Request]) -> Iterator[Outcome]:
    """Train all models together, then generate the rows of one after another."""
    models = [_model(request) for request in requests]
    seconds = _trained_together(models, requests)
    for i, request in enumerate(requests):
        model = models[i]
        try:
            if not hasattr(model, "backbone_"):
                # alone, it fails with its own message
                _trained_together([model], [request])
            start = time.perf_counter()
            rows = model.sample(request.rows, seed=request.seed)
        except Exception as error:
            yield error
            continue
        yield Generated(
            rows,
            seconds[i],
            time.perf_counter() - start,
            {
                "steps": int(model.history_["step"].iloc[-1]),
                "stopped": model.training_["stopped"],
                "restarts": model.training_["restarts"],
                "device": next(model.backbone_.parameters()).device.type,
            },
        )
        # what has its rows is not needed any more
        models[i] = model.__class__()


def _run_backbone(request: Request) -> Generated:
    (outcome,) = _run_backbones([request])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


BACKBONES = tuple(
    Generator(
        name,
        label,
        _run_backbone,
        version="6",
        strategies=tuple(STRATEGIES),
        on_device=True,
        keeps_time=True,
        settings=_backbone_settings,
        check=_check_backbone,
        generate_many=_run_backbones,
        encoding=_backbone_encoding,
        fill=_fill_backbone,
    )
    for name, label in (
        ("tabddpm", "TabDDPM"),
        ("cdtd", "CDTD"),
        ("tabdiff", "TabDiff"),
    )
)


# -- the baselines --------------------------------------------------------------


def baseline_settings(module: str, method: Method) -> Any:
    """Return a baseline's preset, changed by the options of a method.

    Examples
    --------
    >>> from augmask_bench.methods import Method
    >>> small = Method("arf", preset="small", options=(("num_trees", 3),))
    >>> baseline_settings("arf", small)
    ArfSettings(num_trees=3, max_iters=5, min_node_size=5)
    """
    name = method.generator
    if method.preset not in BASELINE_PRESETS:
        hint = did_you_mean(method.preset, BASELINE_PRESETS)
        raise UsageError(f"{name} has no preset {method.preset!r}{hint}")
    baseline = import_module(f"augmask_bench.baselines.{module}")
    preset = baseline.PAPER if method.preset == "paper" else baseline.SMALL
    return with_options(preset, method.options, name)


def _baseline_settings_dict(module: str, method: Method) -> Mapping[str, Any]:
    return dataclasses.asdict(baseline_settings(module, method))


def _check_baseline(module: str, complete: bool, method: Method) -> None:
    baseline_settings(module, method)
    if method.completions != "one":
        raise UsageError(
            f"{method.generator} learns from one completion, got completions = "
            f"{method.completions!r}; remove it"
        )
    if method.augmenter and not complete:
        raise UsageError(
            f"{method.generator} handles missing values itself, got the augmenter "
            f"{method.augmenter!r}; remove it"
        )


def _fit_baseline(module: str, request: Request, table: Any) -> tuple[Any, str]:
    """Return the fitted model and the device it was fitted on."""
    fit: Any = import_module(f"augmask_bench.baselines.{module}").fit
    settings = baseline_settings(module, request.method)
    if module in THREADED:
        import joblib

        return fit(table, settings, request.seed, joblib.cpu_count()), "cpu"
    from augmask.device import resolve_device

    device, minutes = resolve_device(request.device), request.max_minutes
    seconds = None if minutes is None else 60 * minutes
    return fit(table, settings, request.seed, device, seconds), device.type


def _steps(facts: Any) -> int:
    """Return the steps of all trainings of a method together."""
    if isinstance(facts, list):
        return sum(map(_steps, facts))
    if not isinstance(facts, Mapping):
        return 0
    return int(facts.get("steps", 0)) or sum(map(_steps, facts.values()))


def _schema_of_rows(request: Request) -> Schema:
    """Return a schema whose levels are those of some row of the training table.

    Packages of other authors expect that. Numbers are described by what was observed.
    """
    from augmask.table.infer import infer_schema
    from augmask.table.schema import CATEGORICAL, Schema

    schema = infer_schema(request.table, request.kinds)
    if request.augmented is None:
        return schema
    return Schema(
        tuple(
            schema[column.name] if column.kind in CATEGORICAL else column
            for column in request.augmented.codec.schema
        )
    )


def _encode(module: str, request: Request) -> tuple[Codec, Table]:
    """Return the codec, fitted on observed cells only, and the table to train on."""
    from augmask.table.codec import Codec
    from augmask.table.infer import infer_schema
    from augmask_bench.baselines.plain import unscaled_codec

    augmented = request.augmented
    if module in UNSCALED:
        codec = unscaled_codec(_schema_of_rows(request))
        return codec, codec.encode(request.table)
    if augmented is None:
        schema = infer_schema(request.table, request.schema or request.kinds)
        codec = Codec.fit(request.table, schema)
        return codec, codec.encode(request.table)
    # a complete table: every cell counts, observed or augmented
    every = np.ones_like(augmented.table.observed)
    return augmented.codec, dataclasses.replace(augmented.table, observed=every)


def _run_baseline(module: str, request: Request) -> Generated:
    start = time.perf_counter()
    codec, table = _encode(module, request)
    model, device = _fit_baseline(module, request, table)
    fitted = time.perf_counter()
    num, cat = model.sample(request.rows, request.seed)
    rows = codec.decode(num, cat, stream(request.seed, "decode"))
    sampled = time.perf_counter()
    facts = {
        "steps": _steps(model.facts) or None,
        "stopped": model.facts.get("ended", ""),
        "device": device,
        "facts": model.facts,
    }
    return Generated(rows, fitted - start, sampled - fitted, facts)


def _aware(name: str, label: str, module: str, **needs: Any) -> Generator:
    return Generator(
        name,
        label,
        partial(_run_baseline, module),
        aware=True,
        settings=partial(_baseline_settings_dict, module),
        check=partial(_check_baseline, module, False),
        **needs,
    )


def _unaware(name: str, label: str, **needs: Any) -> Generator:
    return Generator(
        name,
        label,
        partial(_run_baseline, name),
        version="2",
        strategies=BASELINE_STRATEGIES,
        complete=True,
        settings=partial(_baseline_settings_dict, name),
        check=partial(_check_baseline, name, True),
        **needs,
    )


_TIMED = {"on_device": True, "keeps_time": True}

# In the order of the paper's table.
BASELINES = (
    _aware("miwae", "MIWAE", "miwae", **_TIMED),
    _aware("missdiff", "MissDiff", "missdiff", **_TIMED),
    _aware("diffputer", "DiffPuter", "diffputer", **_TIMED),
    _aware("forestdiff", "ForestDiff", "forest", package="ForestDiffusion"),
    _unaware("tvae", "TVAE", package="ctgan", **_TIMED),
    _unaware("ctgan", "CTGAN", package="ctgan", **_TIMED),
    _unaware("arf", "ARF", package="arfpy"),
    _unaware("tabsyn", "TabSyn", **_TIMED),
)
