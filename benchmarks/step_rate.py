"""Training steps a second of every backbone at the paper's size, after a warm-up.

    python benchmarks/step_rate.py WORK [--table adult-0] [--steps 1500]

WORK is what `paper_setting.py prepare` made. The rate is taken from the model's own
history between a third of the steps and the end, so that start-up, the recording of a
CUDA graph and the reading of the table do not count.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

import augmask as am
from augmask.diffusion import BACKBONES


def main() -> None:
    """Print one line per backbone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--table", default="adult-0")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=4096)
    a = parser.parse_args()
    folder = a.work / a.table
    table = pd.read_parquet(folder / "train.parquet")
    for backbone in BACKBONES:
        model = am.AugMask(
            backbone=backbone,
            augmenter="mean",
            preset="paper",
            options={"steps": a.steps, "batch": a.batch},
        )
        history = model.fit(table, schema=folder / "schema.toml").history_
        late = history[history["step"] >= a.steps / 3]
        rate = late["step"].iloc[[0, -1]].diff() / late["seconds"].iloc[[0, -1]].diff()
        print(f"{backbone:8} {rate.iloc[-1]:8.1f} steps/s", flush=True)


if __name__ == "__main__":
    main()
