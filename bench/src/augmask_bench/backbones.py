"""The three diffusion backbones as generators, through the public API."""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from augmask.config import STRATEGIES, Settings
from augmask.errors import UsageError
from augmask.presets import resolve_preset
from augmask_bench.generator import Generator, Made, Request

if TYPE_CHECKING:
    from augmask_bench.methods import Method


def _resolved(method: Method) -> Settings:
    if method.preset == "auto":
        raise UsageError(
            f"the preset of {method.generator} must be named in a plan, got 'auto': "
            "what is compared must not depend on the machine"
        )
    changes = {**dict(method.options), "completions": method.completions}
    return resolve_preset(method.preset, "", method.generator, changes, None)[1]


def _alike(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of which 1 and 1.0 give a run the same name."""
    return {k: float(v) if type(v) is int else v for k, v in settings.items()}


def _settings(method: Method) -> Mapping[str, Any]:
    """Return all settings, with what the backbone itself takes by default."""
    from augmask.diffusion import resolve_backbone

    settings = _resolved(method)
    built: Any = resolve_backbone(method.generator)
    _, *keywords = inspect.signature(built).parameters.values()
    defaults = {keyword.name: keyword.default for keyword in keywords}
    return {
        **_alike(dataclasses.asdict(settings)),
        "solver": settings.solver or built.solvers[0],
        "network": _alike({**defaults, **settings.network}),
    }


def _check(method: Method) -> None:
    from augmask.diffusion import check_sampler, keywords_of

    names = keywords_of(method.generator)
    resolve_preset(method.preset, "", method.generator, dict(method.options), names)
    settings = _resolved(method)
    check_sampler(
        method.generator, settings.sampling_steps, settings.solver, **settings.network
    )


def _make(request: Request) -> Made:
    import augmask as am

    method, fill = request.method, request.fill
    supervise: Any = method.supervise
    model = am.AugMask(
        backbone=method.generator,
        augmenter=fill if fill is not None else method.augmenter,
        supervise=supervise,
        preset=method.preset,
        options={**dict(method.options), "completions": method.completions},
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


BACKBONES = tuple(
    Generator(
        name,
        label,
        _make,
        version="5",
        strategies=tuple(STRATEGIES),
        on_device=True,
        keeps_time=True,
        settings=_settings,
        check=_check,
    )
    for name, label in (
        ("tabddpm", "TabDDPM"),
        ("cdtd", "CDTD"),
        ("tabdiff", "TabDiff"),
    )
)
