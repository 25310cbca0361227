"""The paper's baselines as generators: `augmask_bench.baselines`, with presets and options.

Missing-aware ones (MIWAE, MissDiff, DiffPuter, ForestDiff) get the table with its
holes. The others want complete tables, and have the strategies NoAug and AugFull: the
benchmark fills the holes before they see them, and every cell counts. Numbers are
scaled by what was observed, and then filled, as in the paper; TVAE, CTGAN and ARF get
them unscaled.

Each has the presets `paper` and `small`. An option overrides one setting by its name;
those of TabSyn's autoencoder begin with `vae_`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from augmask.errors import UsageError, did_you_mean
from augmask.rng import stream
from augmask_bench.generator import Generator, Made, Request
from augmask_bench.options import with_options

if TYPE_CHECKING:
    from augmask.table.encode import Codec
    from augmask.table.table import Table
    from augmask_bench.methods import Method

PRESETS = ("paper", "small")
STRATEGIES = ("NoAug", "AugFull")
# files of peers that scale numbers themselves, and of those that know threads only
UNSCALED = ("tvae", "ctgan", "arf", "forest")
THREADED = ("arf", "forest")


def resolved(module: str, method: Method) -> Any:
    """Return the settings of a baseline's preset with the options of a method.

    Examples
    --------
    >>> from augmask_bench.methods import Method
    >>> resolved("arf", Method("arf", preset="small", options=(("num_trees", 3),)))
    ArfSettings(num_trees=3, max_iters=5, min_node_size=5)
    """
    name = method.generator
    if method.preset not in PRESETS:
        hint = did_you_mean(method.preset, PRESETS)
        raise UsageError(f"{name} has no preset {method.preset!r}{hint}")
    there = import_module(f"augmask_bench.baselines.{module}")
    preset = there.PAPER if method.preset == "paper" else there.SMALL
    return with_options(preset, method.options, name)


def _settings(module: str, method: Method) -> Mapping[str, Any]:
    return dataclasses.asdict(resolved(module, method))


def _check(module: str, complete: bool, method: Method) -> None:
    resolved(module, method)
    if method.draws != "one":
        raise UsageError(
            f"{method.generator} learns from one table, got draws = {method.draws!r}; "
            "leave it out"
        )
    if method.augmenter and not complete:
        raise UsageError(
            f"{method.generator} handles holes itself, got the augmenter "
            f"{method.augmenter!r}; leave it out"
        )


def _fitted(module: str, request: Request, table: Any) -> tuple[Any, str]:
    """Return the fitted model, and the device that it was fitted on."""
    fit: Any = import_module(f"augmask_bench.baselines.{module}").fit
    settings = resolved(module, request.method)
    if module in THREADED:
        import joblib

        return fit(table, settings, request.seed, joblib.cpu_count()), "cpu"
    from augmask.device import resolve_device

    device, minutes = resolve_device(request.device), request.max_minutes
    seconds = None if minutes is None else 60 * minutes
    return fit(table, settings, request.seed, device, seconds), device.type


def _steps(facts: Any) -> int:
    """Return how many steps all trainings of a method took together."""
    if isinstance(facts, list):
        return sum(map(_steps, facts))
    if not isinstance(facts, Mapping):
        return 0
    return int(facts.get("steps", 0)) or sum(map(_steps, facts.values()))


def _encoded(module: str, request: Request) -> tuple[Codec, Table]:
    """Return the table to learn from, and its codec: fitted on observed cells only."""
    from augmask.table.encode import Codec
    from augmask.table.infer import infer_schema
    from augmask_bench.baselines.plain import unscaled

    given = request.filled
    if given is None:
        schema = infer_schema(request.table, request.kinds)
    else:
        schema = given.codec.schema
    if given is None or module in UNSCALED:
        plain = module in UNSCALED
        codec = unscaled(schema) if plain else Codec.fit(request.table, schema)
        return codec, codec.encode(request.table)
    # it takes complete tables: every cell counts, observed or filled
    every = np.ones_like(given.table.observed)
    return given.codec, dataclasses.replace(given.table, observed=every)


def _make(module: str, request: Request) -> Made:
    began = time.perf_counter()
    codec, table = _encoded(module, request)
    model, device = _fitted(module, request, table)
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
    return Made(rows, fitted - began, sampled - fitted, facts)


def _aware(name: str, label: str, module: str, **needs: Any) -> Generator:
    return Generator(
        name,
        label,
        partial(_make, module),
        aware=True,
        settings=partial(_settings, module),
        check=partial(_check, module, False),
        **needs,
    )


def _unaware(name: str, label: str, **needs: Any) -> Generator:
    return Generator(
        name,
        label,
        partial(_make, name),
        version="2",
        strategies=STRATEGIES,
        complete=True,
        settings=partial(_settings, name),
        check=partial(_check, name, True),
        **needs,
    )


_TIMED = {"on_device": True, "keeps_time": True}

# in the order of the paper's table
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
