"""Rows generated from small tables, with each start of the network.

    AUGMASK_DATA=... python benchmarks/small_rows.py [--seeds 2]

A model learns 300 complete rows of a table with a tenth of the cells hidden, and 2,000
generated rows are compared with 2,000 other real rows. `auto` is `fit` with default
settings; `table` starts from correlations of numbers and frequencies of levels, with
the extremes of columns far out, as `auto` did before. The results file has one line per
table, seed and start; existing lines are kept. Seconds are CPU seconds of the fit.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import augmask as am
from augmask.evaluation.alpha_beta import alpha_beta
from augmask.evaluation.detection import detection
from augmask.evaluation.fidelity import shape, trend
from augmask.evaluation.held_out import hide
from augmask.table.schema import NUMERIC

ROWS, OTHERS = 300, 2_000
# table -> file, and columns to drop
TABLES = {
    "adult": ("adult.csv.gz", []),
    "nafld1": ("incomplete-nafld1.csv.gz", ["id", "case.id"]),
    "flchain": ("incomplete-flchain.csv.gz", ["chapter"]),
}
STARTS: dict[str, dict[str, Any]] = {
    "table": {"precondition": "table", "extremes": "far"},
    "auto": {},
}
NAMES = ["table", "seed", "start", "shape", "trend", "c2st", "alpha", "beta", "seconds"]


def measured(name: str, seed: int, start: str) -> list[float]:
    """Return the scores of one model, and the seconds of its fit."""
    file, dropped = TABLES[name]
    table = pd.read_csv(Path(os.environ["AUGMASK_DATA"]) / file)
    table = table.drop(columns=[*dropped, "rownames"], errors="ignore").dropna()
    table = table.sample(ROWS + OTHERS, random_state=seed).reset_index(drop=True)
    learned, others = table[:ROWS], table[ROWS:].reset_index(drop=True)
    incomplete, _ = hide(learned, 0.1, np.random.default_rng(seed))
    began = time.process_time()
    model = am.AugMask(seed=seed, options=STARTS[start]).fit(incomplete)
    seconds = time.process_time() - began
    rows = model.sample(OTHERS, seed=seed)
    columns = [column for column in model.schema_ if column.learned]
    numeric = [c.name for c in columns if c.kind in NUMERIC]
    categorical = [c.name for c in columns if c.kind not in NUMERIC]
    numbers = dict.fromkeys(numeric, "float64")
    levels = dict.fromkeys(categorical, "str")
    real, rows = (
        frame[[*numeric, *categorical]].astype(numbers | levels)
        for frame in (others, rows)
    )
    named = (numeric, categorical)
    return [
        shape(real, rows, *named).value,
        trend(real, rows, *named).value,
        detection(real, rows, *named, seed=0).value,
        *(score.value for score in alpha_beta(real, rows, *named, n_jobs=1)),
        seconds,
    ]


def main() -> None:
    """Read the command line and add the lines that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    results = Path(__file__).parent / "results" / "small_rows.csv"
    parser.add_argument("--out", type=Path, default=results)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    out: Path = options.out
    lines = pd.read_csv(out) if out.exists() else pd.DataFrame(columns=NAMES)
    done = set(zip(lines["table"], lines["seed"], lines["start"], strict=True))
    for seed in range(options.seeds):
        for name in TABLES:
            for start in STARTS:
                if (name, seed, start) not in done:
                    scores = [round(v, 4) for v in measured(name, seed, start)]
                    lines.loc[len(lines)] = [name, seed, start, *scores]
                    lines.to_csv(out, index=False)
                    print(*lines.iloc[-1], flush=True)


if __name__ == "__main__":
    main()
