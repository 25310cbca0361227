"""Four presets: the paper as printed, the best for a GPU, and two for CPUs.

A preset is what all backbones share plus what each needs of its own. `paper` holds what
the paper prints and nothing else: every departure from it is a setting that is off
there (docs/paper.md lists them). What the others cost and give is measured in
`docs/presets.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from augmask.config import Settings
from augmask.errors import UsageError, did_you_mean

_BALANCED = {
    "ties": "dequantize",
    "links": "keep",
    "batch_size": 1024,
    "steps": 12_000,
    "warmup": 500,
    "completions": "stack:4",
    "holdout": 0.01,
}
_FAST = {
    "ties": "dequantize",
    "links": "keep",
    "batch_size": 512,
    "steps": 4_000,
    "warmup": 200,
    "completions": "stack:4",
    "holdout": 0.01,
}

_PAPER = {"sampling_batch": 65_536}
_BEST = _PAPER | {"ties": "dequantize", "completions": "stack:4"}

PRESETS: dict[str, Settings] = {
    "paper": Settings().replace(_PAPER),
    "best": Settings().replace(_BEST),
    "balanced": Settings().replace(_BALANCED),
    "fast": Settings().replace(_FAST),
}

# What fills missing values if nothing else is asked for.
AUGMENTER = "lgbm-s"

# what the paper prints for each backbone
_PRINTED: dict[str, dict[str, Any]] = {
    "cdtd": {
        "width": 796,
        "depth": 5,
        "time_width": 256,
        "low_noise": 3.0,
        "warmup": 1000,
        "beta2": 0.99,
    },
    "tabdiff": {"width": 801, "depth": 5, "time_width": 256, "ema": 0.997},
    "tabddpm": {
        "width": 256,
        "depth": 3,
        "time_width": 128,
        "lr": 2e-4,
        "sampling_steps": 1000,
    },
}

# preset -> backbone -> what it needs of its own
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "paper": _PRINTED,
    "best": {
        "cdtd": _PRINTED["cdtd"] | {"anchor": None, "solver": "dpmpp_2m"},
        "tabdiff": _PRINTED["tabdiff"],
        "tabddpm": _PRINTED["tabddpm"] | {"clip": 1.0},
    },
    "balanced": {
        "cdtd": {
            "width": 512,
            "depth": 4,
            "cat_width": 4,
            "precondition": "table",
            "low_noise": 100.0,
            "beta2": 0.99,
            "sampling_steps": 60,
            "solver": "dpmpp_2m",
        },
        "tabdiff": {
            "width": 512,
            "depth": 4,
            "sampling_steps": 60,
            "solver": "dpmpp_2m",
        },
        "tabddpm": {
            "width": 512,
            "depth": 4,
            "clip": 1.0,
            "normal_start": True,
            "sampling_steps": 200,
        },
    },
    "fast": {
        "cdtd": {
            "width": 256,
            "depth": 3,
            "cat_width": 4,
            "precondition": "table",
            "low_noise": 100.0,
            "lr": 2e-3,
            "beta2": 0.99,
            "ema": 0.995,
            "sampling_steps": 40,
            "solver": "dpmpp_2m",
        },
        "tabdiff": {
            "width": 256,
            "depth": 3,
            "anneal": False,
            "steps": 1_500,
            "lr": 2e-3,
            "ema": 0.995,
            "sampling_steps": 40,
            "solver": "dpmpp_2m",
        },
        "tabddpm": {
            "width": 256,
            "depth": 3,
            "lr": 2e-3,
            "ema": 0.995,
            "clip": 1.0,
            "normal_start": True,
            "steps": 2_000,
            "sampling_steps": 100,
        },
    },
}


def resolve_preset(
    preset: str,
    device: str,
    backbone: str | None,
    changes: Mapping[str, Any] | None = None,
    network: Collection[str] | None = (),
) -> tuple[str, Settings, str]:
    """Return the preset's name, its settings and why it was taken.

    Parameters
    ----------
    preset : str
        `auto` goes by the device.
    device : str
        `cpu`, `cuda` or `mps`.
    backbone : str, optional
        Its name; None for a user's own, which is built with its own defaults.
    changes : mapping, optional
        Single settings that differ.
    network : collection of str, optional
        What the backbone can be built with, see `Settings.replace`.

    Examples
    --------
    >>> name, settings, why = resolve_preset("auto", "cpu", None, {"steps": 100})
    >>> name, settings.steps, why
    ('fast', 100, 'no GPU')
    """
    why = "asked for"
    if preset == "auto":
        if device != "cpu":
            preset, why = "best", f"a {device} device is there"
        else:
            preset, why = "fast", "no GPU"
    if preset not in PRESETS:
        raise UsageError(
            f"there is no preset {preset!r}{did_you_mean(preset, PRESETS)}"
        )
    own = OWN[preset].get(backbone or "", {})
    settings = PRESETS[preset].replace(own, None)
    return preset, settings.replace(changes or {}, network), why
