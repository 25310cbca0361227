"""Learned missingness: how close the missing values of sampled rows are to real ones.

    AUGMASK_DATA=... python benchmarks/learned_missingness.py [--max-minutes 10]

Uses two tables that are really incomplete, and the preset `auto`. Compares the table
with 20,000 sampled rows and prints the largest difference between the missing rates of
a column, the largest difference between the rates at which two columns are missing
together, and how much of the time of `fit` learning the missingness takes.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np

import augmask as am
from augmask.missing.model import fit_missing_model
from augmask.table.frames import read_frame

TABLES = ("incomplete-nafld1", "incomplete-loans")


def main() -> None:
    """Print one line per table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-minutes", type=float)
    a = parser.parse_args()
    warnings.simplefilter("ignore", category=UserWarning)
    for name in TABLES:
        table = read_frame(Path(os.environ["AUGMASK_DATA"]) / f"{name}.csv.gz")
        began = time.monotonic()
        model = am.AugMask().fit(table, max_minutes=a.max_minutes, holdout=0)
        fitted = time.monotonic()
        fit_missing_model(
            table, model.codec_, model.codec_.encode(table), np.random.default_rng(0)
        )
        learned = time.monotonic()
        synthetic = model.sample(20_000, missing="learned")
        real, drawn = (f.isna().to_numpy(np.float64) for f in (table, synthetic))
        rates = np.abs(real.mean(0) - drawn.mean(0)).max()
        one, two = (rows.T @ rows / len(rows) for rows in (real, drawn))
        print(
            f"{name:20} rates {rates:.4f}  pairs {np.abs(one - two).max():.4f}"
            f"  missingness learned in {learned - fitted:.1f} s"
            f" of {fitted - began:.0f} s"
        )


if __name__ == "__main__":
    main()
