"""Evaluate real rows, copies and independent columns against Adult.

    AUGMASK_DATA=... python benchmarks/evaluate_adult.py

Evaluates three tables against 60 % of the rows, with 20 % as test rows and the target
`income`: fresh real rows (the remaining 20 %), a bootstrap sample of the training rows,
and independent columns. Prints time, peak memory and scores.
"""

from __future__ import annotations

import resource
import time

import numpy as np
import pandas as pd
from real_tables import load
from sklearn.model_selection import train_test_split

import augmask as am
from augmask.evaluation.references import independent

KEYS = (
    *("shape", "trend", "alpha_precision", "beta_recall", "mle", "c2st_auc"),
    *("dcr_share", "mia_auc"),
)


def main() -> None:
    """Print one line per table."""
    frame, role = load("adult")
    target = role["target"]
    train, rest = train_test_split(
        frame, train_size=0.6, random_state=0, stratify=frame[target]
    )
    fresh, test = train_test_split(rest, train_size=0.5, random_state=0)
    rng = np.random.default_rng(0)
    tables = {
        "independent": independent(train.reset_index(drop=True), rng),
        "bootstrap": train.sample(len(train), replace=True, random_state=0),
        "fresh": fresh,
    }
    print(f"{'':12}{'seconds':>8}" + "".join(f"{k[:10]:>11}" for k in KEYS))
    for name, rows in tables.items():
        began = time.monotonic()
        scores = am.evaluate(
            train, rows, test=test, target=target, schema=role["kinds"]
        )
        seconds = time.monotonic() - began
        cells = "".join(f"{scores[key]:11.4f}" for key in KEYS)
        print(f"{name:12}{seconds:8.1f}{cells}", flush=True)
        print(f"{'':12}flagged: {', '.join(scores.facts['flagged']) or 'nothing'}")
        references = pd.Series({k: scores.entries[k].reference for k in KEYS})
        print(f"{'  reference':20}" + "".join(f"{v:11.4f}" for v in references))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"peak memory {peak:.0f} MiB, excluding workers")


if __name__ == "__main__":
    main()
