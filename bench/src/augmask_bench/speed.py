"""How long groups of runs trained: for the time left, and for what a GPU was used.

A small file per group in `groups` of the grid's folder says which runs trained
together, on what device, for how many steps and seconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from augmask.files import atomic_write
from augmask_bench.methods import find_generator
from augmask_bench.plan import Run
from augmask_bench.results import RunResult

# What a file says about a group, and of which types.
FACTS: dict[str, Any] = {
    **dict.fromkeys(["generator", "dataset", "device"], str),
    **dict.fromkeys(["train_seconds", "seconds"], float),
    **{"runs": list, "steps": int},
}


def note_speed(
    out: Path, runs: Sequence[Run], results: Sequence[RunResult], seconds: float
) -> None:
    """Store how long the runs of a group took together, rows included."""
    names = sorted(run.name for run in runs)
    first = runs[0]
    trained = [result for result in results if result["status"] == "trained"]
    facts = {
        "generator": first.method.generator,
        "dataset": first.source.name,
        "runs": names,
        "device": str(trained[0].get("device", "cpu")) if trained else "",
        "steps": sum(int(result.get("steps") or 0) for result in trained),
        "train_seconds": sum(float(result["fit_seconds"]) for result in trained),
        "seconds": seconds,
    }
    digest = hashlib.sha256(json.dumps(names).encode()).hexdigest()[:20]
    path = out / "groups" / f"{digest}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        part.write_text(json.dumps(facts) + "\n", encoding="utf-8")


def speed_of(text: str | bytes) -> dict[str, Any] | None:
    """Return what a file says about a group; None if it is damaged."""
    try:
        facts = json.loads(text)
        known = {name: kind(facts[name]) for name, kind in FACTS.items()}
    except (ValueError, TypeError, KeyError):
        return None
    return known if known["runs"] else None


def speeds(out: Path) -> list[dict[str, Any]]:
    """Return what is stored about groups; damaged files are ignored."""
    found = []
    for path in sorted((out / "groups").glob("*.json")):
        with suppress(OSError):
            facts = speed_of(path.read_bytes())
            if facts is not None:
                found.append(facts | {"path": path})
    return found


def expected_seconds(known: Sequence[dict[str, Any]], runs: Sequence[Run]) -> float:
    """Return how long a group will take, by earlier ones of its kind; 0 if unknown.

    Groups of the same generator and data set say most; otherwise the slowest of the
    generator counts. What another machine trained on another kind of device says
    nothing.
    """
    first = runs[0]
    generator = find_generator(first.method.generator)
    same = [one for one in known if one["generator"] == generator.name]
    if same and generator.on_device and not generator.why_unavailable(first.device):
        from augmask.device import resolve_device

        here = resolve_device(first.device).type
        same = [one for one in same if one["device"] in ("", here)]
    near = [one for one in same if one["dataset"] == first.source.name]
    each = [one["seconds"] / len(one["runs"]) for one in near or same]
    return max(each, default=0.0) * len(runs)


def use_of_devices(out: Path, names: set[str]) -> dict[str, dict[str, float]]:
    """Return seconds, runs and model-steps per second of training, by device.

    Parameters
    ----------
    out : Path
    names : set of str
        Names of runs: a group counts by the share of its runs that are among them.
    """
    used: dict[str, dict[str, float]] = {}
    for one in speeds(out):
        share = len(names & set(one["runs"])) / len(one["runs"])
        if not one["device"] or not share:
            continue
        total = used.setdefault(
            one["device"], {"runs": 0, "seconds": 0.0, "steps": 0, "train_seconds": 0.0}
        )
        total["runs"] += round(share * len(one["runs"]))
        for key in ("seconds", "steps", "train_seconds"):
            total[key] += share * one[key]
    for total in used.values():
        spent = total.pop("train_seconds")
        total["steps_per_second"] = total["steps"] / spent if spent else 0.0
    return used
