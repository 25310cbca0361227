"""Adult on a CPU: time, memory and scores of `fit` and `sample` with a preset.

    AUGMASK_DATA=... python benchmarks/adult_cpu.py --ratio 0.3 --preset fast

Uses 60 % of the rows, MCAR, and the inferred schema. Memory is the peak resident size
of this process plus that of its largest worker.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
import warnings
from pathlib import Path

import augmask as am
from augmask.evaluation.fidelity import shape, trend
from augmask.table.frames import read_frame


def main() -> None:
    """Run once and print one line per result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ratio", type=float, default=0.3)
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    warnings.simplefilter("ignore", category=UserWarning)
    adult = read_frame(Path(os.environ["AUGMASK_DATA"]) / "adult.csv.gz")
    train = adult.sample(frac=0.6, random_state=a.seed).reset_index(drop=True)
    incomplete = am.ampute(train, mechanism="mcar", ratio=a.ratio, seed=a.seed)

    start = time.monotonic()
    model = am.AugMask(preset=a.preset, seed=a.seed, device="cpu").fit(
        incomplete, holdout=0
    )
    fitted = time.monotonic()
    synthetic = model.sample(len(train), seed=a.seed)
    sampled = time.monotonic()

    schema = model.schema_
    numeric = [c.name for c in schema if c.kind in ("integer", "float")]
    categorical = [c.name for c in schema if c.kind in ("category", "boolean")]
    peak = sum(
        resource.getrusage(who).ru_maxrss / 2**20
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    training = model.training_["seconds"]
    print(f"Adult, {len(train):,} rows, MCAR {a.ratio}, preset {a.preset}")
    print(f"  augment {fitted - start - training:7.1f} s")
    print(f"  train   {training:7.1f} s, {model.settings_.steps} steps")
    print(f"  sample  {sampled - fitted:7.1f} s")
    print(f"  total   {sampled - start:7.1f} s")
    print(f"  memory  {peak:7.2f} GiB")
    print(f"  Shape   {shape(train, synthetic, numeric, categorical).value:7.4f}")
    print(f"  Trend   {trend(train, synthetic, numeric, categorical).value:7.4f}")


if __name__ == "__main__":
    main()
