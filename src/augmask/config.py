"""Settings: one frozen record, three presets, and how `auto` chooses.

`paper` is the paper's size and budget. `balanced` and `fast` are for CPUs; what they
cost and give is measured in `docs/presets.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from augmask.augmentation.draws import Draws
from augmask.errors import UsageError, did_you_mean

CHOICES = {"ties": ("middle", "spread"), "solver": ("euler", "multistep")}


@dataclass(frozen=True)
class Settings:
    """Everything that shapes a run and is not data, strategy or seed.

    Parameters
    ----------
    ties : str
        What equal numbers of a column are to the network: one point (`middle`, the
        paper), or spread over the normal scores that they share (`spread`).
    width, depth, time_width : int
        Size of the network.
    low_noise : float
        How much more time low noise levels get at the start; 3 as published.
    batch, steps : int
        Rows a step, and how many steps.
    lr, warmup, ema : float, int, float
        Peak learning rate, steps to reach it, decay of the weight average.
    draws : str
        How many completions of the holes are trained on: `one` (the paper), `stack:4`,
        `cycle:10`, `anchor:30:0.8`.
    holdout : float
        Share of observed cells hidden from the loss to watch it on.
    patience : int
        Stop after so many looks at the held-out cells without progress; 0 never stops.
    sampling_steps, solver : int, str
        Steps of the sampler, `euler` or `multistep`.
    sampling_batch : int
        Rows generated at once.
    """

    ties: str = "middle"
    width: int = 796
    depth: int = 5
    time_width: int = 256
    low_noise: float = 3.0
    batch: int = 4096
    steps: int = 30_000
    lr: float = 1e-3
    warmup: int = 1000
    ema: float = 0.999
    draws: str = "one"
    holdout: float = 0.0
    patience: int = 0
    sampling_steps: int = 200
    solver: str = "euler"
    sampling_batch: int = 16_384

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kinds = {"int": (int,), "float": (int, float), "str": (str,)}
            if type(value) not in kinds[str(field.type)]:
                raise UsageError(
                    f"{field.name} must be of type {field.type}, got {value!r}"
                )
            lowest = 0 if field.name in ("holdout", "patience", "warmup") else 1e-12
            if field.type != "str" and not lowest <= value < float("inf"):
                word = "finite and at least 0" if lowest == 0 else "finite and above 0"
                raise UsageError(f"{field.name} must be {word}, got {value!r}")
        for name, limit in (("holdout", 0.5), ("ema", 1)):
            if getattr(self, name) >= limit:
                raise UsageError(
                    f"{name} must be below {limit}, got {getattr(self, name)!r}"
                )
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise UsageError(
                    f"{name} must be one of {known}, got {getattr(self, name)!r}"
                )
        Draws.parse(self.draws)

    @property
    def network(self) -> dict[str, Any]:
        """The sizes that a backbone is built with."""
        return {
            "width": self.width,
            "depth": self.depth,
            "time_width": self.time_width,
            "low_noise": self.low_noise,
        }

    def replace(self, changes: Mapping[str, Any]) -> Settings:
        """Return settings with some values changed; unknown names are an error."""
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                hint = did_you_mean(name, known)
                raise UsageError(f"there is no setting {name!r}{hint}")
        return dataclasses.replace(self, **changes)


PRESETS: dict[str, Settings] = {
    "paper": Settings(),
    "balanced": Settings(
        ties="spread",
        width=512,
        depth=4,
        low_noise=100.0,
        batch=1024,
        steps=12_000,
        warmup=500,
        draws="stack:4",
        holdout=0.01,
        sampling_steps=60,
        solver="multistep",
    ),
    "fast": Settings(
        ties="spread",
        width=256,
        depth=3,
        low_noise=100.0,
        batch=512,
        steps=4_000,
        lr=2e-3,
        warmup=200,
        ema=0.995,
        draws="stack:4",
        holdout=0.01,
        sampling_steps=40,
        solver="multistep",
    ),
}


def resolve_preset(
    preset: str, device: str, changes: Mapping[str, Any] | None = None
) -> tuple[str, Settings, str]:
    """Return the preset's name, its settings and why it was taken.

    Examples
    --------
    >>> name, settings, why = resolve_preset("auto", "cpu", {"steps": 100})
    >>> name, settings.steps, why
    ('fast', 100, 'no GPU')
    """
    why = "asked for"
    if preset == "auto":
        if device != "cpu":
            preset, why = "paper", f"a {device} device is there"
        else:
            preset, why = "fast", "no GPU"
    if preset not in PRESETS:
        raise UsageError(
            f"there is no preset {preset!r}{did_you_mean(preset, PRESETS)}"
        )
    return preset, PRESETS[preset].replace(changes or {}), why
