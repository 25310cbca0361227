"""The presets: the paper as printed, the best for a GPU, and two for CPUs.

A preset consists of settings that all backbones share and of settings for each
backbone. `paper` holds what the paper prints and nothing else: every departure from it
is a setting that is off there (docs/research/paper.md lists them). docs/presets.md has
measured costs and quality. `auto` picks a preset by the device and adapts it to small
tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from augmask.config import Settings
from augmask.errors import UsageError, choices

_PAPER = {"sampling_batch": 65_536}
_BEST = _PAPER | {"ties": "dequantize", "completions": "stack:4"}
_SHORT = {
    "ties": "dequantize",
    "links": "keep",
    "completions": "stack:4",
    "validation_fraction": 0.01,
}
_BALANCED = _SHORT | {"batch_size": 1024, "steps": 12_000, "warmup": 500}
_FAST = _SHORT | {"batch_size": 512, "steps": 4_000, "warmup": 200}

PRESETS: dict[str, Settings] = {
    "paper": Settings().replace(_PAPER),
    "best": Settings().replace(_BEST),
    "balanced": Settings().replace(_BALANCED),
    "fast": Settings().replace(_FAST),
}

# What the paper prints for each backbone.
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

# What the two short presets share: sizes, and settings of each backbone.
_MEDIUM = {"width": 512, "depth": 4}
_SMALL = {"width": 256, "depth": 3, "lr": 2e-3, "ema": 0.995}
_SHORT_CDTD = {
    "cat_width": 4,
    "precondition": "table",
    "low_noise": 100.0,
    "beta2": 0.99,
    "solver": "dpmpp_2m",
}
_SHORT_TABDIFF = {"solver": "dpmpp_2m"}
_SHORT_TABDDPM = {"clip": 1.0, "normal_start": True}

# preset -> backbone -> its network, and settings that differ from the preset's
BACKBONE_SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "paper": _PRINTED,
    "best": {
        "cdtd": _PRINTED["cdtd"] | {"anchor": None, "solver": "dpmpp_2m"},
        "tabdiff": _PRINTED["tabdiff"],
        "tabddpm": _PRINTED["tabddpm"] | {"clip": 1.0},
    },
    "balanced": {
        "cdtd": _MEDIUM | _SHORT_CDTD | {"sampling_steps": 60},
        "tabdiff": _MEDIUM | _SHORT_TABDIFF | {"sampling_steps": 60},
        "tabddpm": _MEDIUM | _SHORT_TABDDPM | {"sampling_steps": 200},
    },
    "fast": {
        "cdtd": _SMALL | _SHORT_CDTD | {"sampling_steps": 40},
        "tabdiff": _SMALL
        | _SHORT_TABDIFF
        | {"steps": 1_500, "sampling_steps": 40, "anneal": False},
        "tabddpm": _SMALL | _SHORT_TABDDPM | {"steps": 2_000, "sampling_steps": 100},
    },
}

# A single long run overfits a table with fewer rows than this: see docs/presets.md.
SMALL_ROWS = 1_500
# Below this, dependence between columns can hardly be learned.
FEW_ROWS = 100
SMALL_MEMBERS = 4
SMALL_BATCH = 256
# (observed cells, steps of each member) for small tables: the fewer cells, the sooner
# they are memorised.
SMALL_STEPS = ((8_000, 600), (16_000, 1_000))
MOST_SMALL_STEPS = 1_500
# On a CPU, CDTD starts from the correlations and frequencies of the table, so it has
# less to learn and memorises few cells sooner; docs/presets.md has what more steps do.
STARTED_STEPS = ((3_000, 100), (8_000, 200))
# With more numbers and levels, a linear model of all of them takes too long.
MOST_LINEAR = 128
# Starting from the table, and a direct path from all inputs to all outputs, take time
# and memory that grow faster than its width: 5,000 columns of six levels 20 GB.
MOST_STARTED = 2_000


@dataclass(frozen=True)
class AutoChoice:
    """What `auto` changes for the size of a table, and why.

    Parameters
    ----------
    settings : mapping
        Changes of the preset, as in `Settings.replace`.
    ensemble : int
        Number of members.
    reason, warning : str
        A line for logs and reports, and what the user must know; empty for none.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    ensemble: int = 1
    reason: str = ""
    warning: str = ""


def choose_for_size(
    rows: int,
    observed: int,
    coordinates: int,
    device: str,
    backbone: str | None,
    options: Collection[str] = (),
) -> AutoChoice:
    """Return several short runs instead of a long one for a small table.

    Parameters
    ----------
    rows, observed : int
        Rows and observed cells of the encoded table.
    coordinates : int
        Its numbers, and one less than the levels of each category.
    device : str
        `cpu`, `cuda` or `mps`.
    backbone : str, optional
        Its name; None for a custom backbone.
    options : collection of str
        Settings that the user has set; they are not changed. `steps` is the budget: if
        it is set, nothing is changed.

    Examples
    --------
    >>> choice = choose_for_size(200, 950, 12, "cpu", "cdtd")
    >>> choice.ensemble, choice.settings["steps"]
    (4, 100)
    >>> choose_for_size(20_000, 95_000, 12, "cpu", "cdtd") == AutoChoice()
    True
    """
    if "steps" in options or rows >= SMALL_ROWS:
        return AutoChoice()
    started = backbone == "cdtd" and device == "cpu"
    bounds = (STARTED_STEPS if started else ()) + SMALL_STEPS
    steps = next((n for cells, n in bounds if observed <= cells), MOST_SMALL_STEPS)
    changes: dict[str, Any] = {
        "steps": steps,
        "warmup": steps // 10,
        "batch_size": SMALL_BATCH,
        # every cell counts here, and a share of so few would tell nothing
        "validation_fraction": 0.0,
        "extremes": "expected",
    }
    if started and coordinates <= MOST_LINEAR:
        changes["precondition"] = "joint"
    few = (
        f"a table of {rows} rows is very small: the distribution of single columns "
        "will come out well, but only strong dependence between columns; compare "
        "several seeds before you rely on it"
    )
    return AutoChoice(
        {name: value for name, value in changes.items() if name not in options},
        SMALL_MEMBERS,
        f"{rows:,} rows with {observed:,} observed cells: {SMALL_MEMBERS} members of "
        f"{steps:,} steps each",
        few if rows < FEW_ROWS else "",
    )


def choose_for_width(
    coordinates: int, settings: Settings, options: Collection[str] = ()
) -> dict[str, Any]:
    """Return changes of the settings for a table that is very wide.

    Parameters
    ----------
    coordinates : int
        Numbers of the encoded table, and one less than the levels of each category.
    settings : Settings
    options : collection of str
        Settings that the user has set; they are not changed.

    Examples
    --------
    >>> settings = Settings(network={"precondition": "table"})
    >>> choose_for_width(20, settings), choose_for_width(9_000, settings)
    ({}, {'precondition': 'cell'})
    """
    started = settings.network.get("precondition") == "table"
    if coordinates <= MOST_STARTED or not started or "precondition" in options:
        return {}
    return {"precondition": "cell"}


def resolve_preset(
    preset: str,
    device: str,
    backbone: str | None,
    changes: Mapping[str, Any] | None = None,
    network: Collection[str] | None = (),
) -> tuple[str, Settings, str]:
    """Return the preset's name, its settings and the reason for it.

    Parameters
    ----------
    preset : str
        `auto` chooses by the device.
    device : str
        `cpu`, `cuda` or `mps`.
    backbone : str, optional
        Its name; None for a custom backbone, which has its own defaults.
    changes : mapping, optional
        Single settings that differ from the preset's.
    network : collection of str, optional
        The backbone's keywords, see `Settings.replace`.

    Examples
    --------
    >>> name, settings, reason = resolve_preset("auto", "cpu", None, {"steps": 100})
    >>> name, settings.steps, reason
    ('fast', 100, 'no GPU')
    """
    reason = "requested"
    if preset == "auto":
        if device != "cpu":
            preset, reason = "best", f"{device} is available"
        else:
            preset, reason = "fast", "no GPU"
    if preset not in PRESETS:
        raise UsageError(
            f"there is no preset {preset!r}{choices(preset, ['auto', *PRESETS])}"
        )
    own = BACKBONE_SETTINGS[preset].get(backbone or "", {})
    settings = PRESETS[preset].replace(own, None)
    return preset, settings.replace(changes or {}, network), reason
