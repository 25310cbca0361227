"""Holes that are drawn again: how like those of the table they are.

    AUGMASK_DATA=... python benchmarks/learned_missingness.py [--max-minutes 10]

Two tables that really are incomplete, the preset `auto`. Printed is the largest
difference of a column's share of holes, and of the share of rows in which two columns
miss together, between the table and 20,000 sampled rows; and what learning the holes
adds to the time of `fit`.
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
    """Run once and print one line per table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-minutes", type=float)
    a = parser.parse_args()
    warnings.simplefilter("ignore", category=UserWarning)
    for name in TABLES:
        table = read_frame(Path(os.environ["AUGMASK_DATA"]) / f"{name}.csv.gz")
        began = time.monotonic()
        model = am.AugMask().fit(table, max_minutes=a.max_minutes)
        fitted = time.monotonic()
        fit_missing_model(
            table, model.codec_, model.codec_.encode(table), np.random.default_rng(0)
        )
        learned = time.monotonic()
        made = model.sample(20_000, missing="learned")
        real, drawn = (f.isna().to_numpy(np.float64) for f in (table, made))
        rates = np.abs(real.mean(0) - drawn.mean(0)).max()
        one, two = (rows.T @ rows / len(rows) for rows in (real, drawn))
        print(
            f"{name:20} rates {rates:.4f}  pairs {np.abs(one - two).max():.4f}"
            f"  holes learned in {learned - fitted:.1f} s of {fitted - began:.0f} s"
        )


if __name__ == "__main__":
    main()
