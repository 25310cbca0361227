"""Training steps a second of every backbone at the paper's size, after a warm-up.

    python benchmarks/step_rate.py WORK [--table adult-0] [--steps 1500]
        [--products tf32] [--fuse never] [--together 6] [--width 800]

WORK is what `paper_setting.py prepare` made. The rate is taken from the models' own
history between a third of the steps and the end, so that start-up, compiling, the
recording of a CUDA graph and the reading of the table do not count. With several models
at once it is the steps of all of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

import augmask as am
from augmask.diffusion import BACKBONES


def rate(history: pd.DataFrame, steps: int) -> float:
    """Return the steps a second of the last two thirds of a run."""
    late = history[history["step"] >= steps / 3].iloc[[0, -1]]
    return float((late["step"].diff() / late["seconds"].diff()).iloc[-1])


def main() -> None:
    """Print one line per backbone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--table", default="adult-0")
    parser.add_argument("--backbones", nargs="+", default=list(BACKBONES))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--products", default="auto")
    parser.add_argument("--fuse", default="always")
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--width", type=int, help="instead of the paper's")
    a = parser.parse_args()
    folder = a.work / a.table
    table = pd.read_parquet(folder / "train.parquet")
    options = {
        name: getattr(a, name) for name in ("steps", "batch", "products", "fuse")
    }
    if a.width:
        options["width"] = a.width
    for backbone in a.backbones:
        models = [
            am.AugMask(
                backbone=backbone,
                augmenter="mean",
                preset="paper",
                options=options,
                seed=seed,
            )
            for seed in range(a.together)
        ]
        am.fit_together(models, [table] * a.together, schema=folder / "schema.toml")
        rates = [rate(model.history_, a.steps) for model in models]
        print(f"{backbone:8} {sum(rates):8.1f} steps/s", flush=True)


if __name__ == "__main__":
    main()
