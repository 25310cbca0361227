"""Conditional sampling: its time, and how close its rows are to real ones.

    AUGMASK_DATA=... python benchmarks/conditions.py [--model adult.augmask]

Uses Adult with 30 % missing values (MCAR) and the preset `fast`, unless you pass a
model. For each condition it prints the number of real rows that satisfy it, the share
of unconditional rows that do, the share of inpainted rows, the Shape of all other
columns against those real rows, the Shape of the same columns without a condition, and
the CPU time relative to unconditional rows, both the median of three calls.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

import augmask as am
from augmask.evaluation.fidelity import shape
from augmask.table.conditions import read_where
from augmask.table.frames import read_frame

CONDITIONS = (
    'sex == "Female"',
    "30 <= age <= 40",
    'sex == "Female" and 30 <= age <= 40',
    'income == ">50K"',
    'education in ["Bachelors", "Masters"] and age > 50',
    "`hours-per-week` > 60",
    'race == "Amer-Indian-Eskimo"',
)


def score(
    real: pd.DataFrame, rows: pd.DataFrame, schema: am.Schema, without: set[Any]
) -> float:
    """Return the Shape of all columns except `without`."""
    others = [column for column in schema if column.label not in without]
    numeric = [c.name for c in others if c.kind in ("integer", "float")]
    categorical = [c.name for c in others if c.kind in ("category", "boolean")]
    return float(shape(real, rows, numeric, categorical).value)


def timed(sample: Callable[[], pd.DataFrame]) -> tuple[pd.DataFrame, float]:
    """Return the sampled rows and the median CPU time of three calls."""
    seconds = []
    for _ in range(3):
        began = time.process_time()
        rows = sample()
        seconds.append(time.process_time() - began)
    return rows, statistics.median(seconds)


def main() -> None:
    """Print one line per condition."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("-n", type=int, default=5000)
    a = parser.parse_args()
    warnings.simplefilter("ignore", category=UserWarning)
    real = read_frame(Path(os.environ["AUGMASK_DATA"]) / "adult.csv.gz")
    if a.model is None:
        incomplete = am.ampute(real, mechanism="mcar", ratio=0.3, seed=0)
        model = am.AugMask(preset="fast").fit(incomplete, holdout=0)
    else:
        model = am.load(a.model)
    model.sample(100)
    plain, seconds = timed(lambda: model.sample(a.n, seed=0))
    print(f"{'':52} real rows   rate  completed   Shape  without  time")
    for text in CONDITIONS:
        where = read_where(text, model.schema_)
        wanted = real[where.holds(real)].reset_index(drop=True)
        rows, longer = timed(lambda text=text: model.sample(a.n, where=text, seed=0))
        ratio = longer / seconds
        if not where.holds(rows).all():
            raise SystemExit(f"some rows violate the condition {text}")
        facts, without = rows.attrs["where"], set(where.conditions)
        print(
            f"{text:52} {len(wanted):9,} {facts['rate']:6.1%} "
            f"{facts['completed'] / a.n:10.0%} "
            f"{score(wanted, rows, model.schema_, without):7.3f} "
            f"{score(real, plain, model.schema_, without):8.3f} {ratio:5.2f}"
        )


if __name__ == "__main__":
    main()
