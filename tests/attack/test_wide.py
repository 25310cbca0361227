"""Wide tables: 5,000 columns and few rows, through all commands in bounded work."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from .budget import report

pytestmark = pytest.mark.slow

COLUMNS, ROWS = 5_000, 50
SECONDS, MEMORY = 45, 3 * 2**30
TINY = "--steps 2 --preset fast --augmenter ecdf --device cpu"
COMMANDS = {
    "fit": f"fit t.csv --out m.augmask {TINY}",
    "sample": "sample m.augmask -n 20 --out rows.csv --device cpu",
    "impute": "impute m.augmask t.csv --out filled.csv --device cpu",
}


def make(kind: str) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    shape = (ROWS, COLUMNS)
    cells = rng.normal(size=shape).round(2)
    if kind == "text":
        cells = rng.choice(list("abcdef"), shape)
    frame = pd.DataFrame(cells).add_prefix("c")
    return frame.mask(rng.random(shape) < 0.2)


@pytest.mark.parametrize("kind", ["numbers", "text"])
def test_wide_tables(tmp_path, kind):
    make(kind).to_csv(tmp_path / "t.csv", index=False)
    figures = {}
    for name, line in COMMANDS.items():
        process = subprocess.Popen(
            [sys.executable, "-m", "augmask", *line.split()],
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_AS, (4 * MEMORY, 4 * MEMORY)
            ),
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = usage.ru_utime + usage.ru_stime
        figures[f"{name}_cpu_seconds"] = round(seconds)
        figures[f"{name}_peak_mib"] = round(usage.ru_maxrss / 2**10)
        assert process.returncode == 0, (name, figures)
        assert seconds < SECONDS, (name, figures)
        assert usage.ru_maxrss * 2**10 < MEMORY, (name, figures)
    report(f"5,000 columns of {kind}", **figures)
