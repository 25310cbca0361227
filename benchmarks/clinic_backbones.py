"""All backbones and strategies on the clinic table, preset `fast`, on a CPU.

    python benchmarks/clinic_backbones.py [--backbones tabdiff tabddpm]

Prints the metrics against the complete table and the time of `fit` and `sample`, and
writes them to `benchmarks/results/clinic_backbones.csv`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import pandas as pd

from augmask import AugMask
from augmask.config import STRATEGIES
from augmask.demo.clinic import clinic, clinic_with_missing
from augmask.demo.compare import compare_with_truth
from augmask.diffusion import BACKBONES
from augmask.errors import AugMaskWarning

ROWS = 5000
RESULT = Path(__file__).parent / "results" / "clinic_backbones.csv"


def save_line(line: dict) -> None:
    """Write one line to the results file, replacing an older one of the same run."""
    frame = pd.DataFrame([line])
    if RESULT.exists():
        keys = ["backbone", "seed", "strategy"]
        old = pd.read_csv(RESULT)
        frame = pd.concat([old, frame]).drop_duplicates(keys, keep="last")
    RESULT.parent.mkdir(exist_ok=True)
    frame.round(4).to_csv(RESULT, index=False)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbones", nargs="+", default=list(BACKBONES))
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    warnings.simplefilter("ignore", AugMaskWarning)
    truth, incomplete = clinic_with_missing(ROWS, a.seed)
    test, cache = clinic(ROWS, a.seed + 1), {}
    for backbone in a.backbones:
        for strategy, (augmenter, supervise) in STRATEGIES.items():
            model = AugMask(
                backbone=backbone,
                augmenter=augmenter,
                supervise=supervise,
                preset="fast",
                seed=a.seed,
                device="cpu",
            )
            start = time.monotonic()
            synthetic = model.fit(incomplete, holdout=0).sample(ROWS, seed=a.seed)
            scores = compare_with_truth(
                *(strategy, synthetic, truth, test, model.schema_),
                seed=a.seed,
                seconds=time.monotonic() - start,
                cache=cache,
            )
            line = {"backbone": backbone, "seed": a.seed} | vars(scores)
            line.pop("meaning")
            save_line(line)
            print(
                "  ".join(
                    f"{v:.3f}" if isinstance(v, float) else str(v)
                    for v in line.values()
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
