"""How many attacks to make, and their results.

`AUGMASK_ATTACK=full` attacks as often as before a release, which takes an hour on two
cores; without it a run takes minutes. `AUGMASK_ATTACK_RESULTS` names a JSON
file to which the figures of each part are added.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

FULL = {
    "model files": 200_000,
    "commands and calls": 1_000,
    "checkpoints": 200,
    "kills": 100,
    "schemas": 10_000,
}
SHORT = {
    "model files": 2_000,
    "commands and calls": 200,
    "checkpoints": 60,
    "kills": 8,
    "schemas": 200,
}
FIGURES: dict[str, dict[str, Any]] = {}


@cache
def _commit() -> str:
    """Return the commit that is attacked, marked if files differ from it."""
    here = Path(__file__).parents[2]

    def git(*line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *line], cwd=here, capture_output=True, text=True, check=False
        )

    head = git("rev-parse", "--short=7", "HEAD").stdout.strip()
    changed = git("diff", "--quiet", "HEAD", "--", "src", "bench/src", "tests")
    return f"{head}-dirty" if head and changed.returncode else head or "unknown"


def budget(part: str) -> int:
    """Return how many attacks of a kind to make."""
    return (FULL if os.environ.get("AUGMASK_ATTACK") == "full" else SHORT)[part]


def report(part: str, **figures: Any) -> None:
    """Keep figures for the end of the run."""
    FIGURES[part] = figures = figures | {"commit": _commit()}
    path = os.environ.get("AUGMASK_ATTACK_RESULTS")
    if path:
        file = Path(path)
        known = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(known | {part: figures}, indent=1) + "\n")
