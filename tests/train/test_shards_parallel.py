"""Two processes train on their own shards as one process does on all of them.

This file is also the program that the processes run, called with a folder.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from augmask.augmentation.shards import Shard
from augmask.diffusion.base import CellLoss
from augmask.model import AugMask
from augmask.table import partitions

ROWS, PARTS = 1_200, 10


class NoNoise(torch.nn.Module):
    """A network that gets its rows without noise, so nothing is random."""

    reduction = "batch"

    def __init__(self, layout) -> None:
        super().__init__()
        self.net = torch.nn.Linear(
            layout.n_features, layout.n_features, dtype=torch.float64
        )

    def cell_loss(self, batch, _generator):
        rows = torch.cat([batch.num, batch.cat], 1).double()
        return CellLoss((self.net(rows) - rows).square(), {})

    sample = None


def make_lake(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=ROWS).cumsum(),
            "y": rng.normal(size=ROWS).round(2),
            "c": rng.choice(["a", "b", "c"], ROWS),
        }
    ).mask(rng.random((ROWS, 3)) < 0.3)
    folder.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(ROWS), PARTS)):
        frame.iloc[rows].reset_index(drop=True).to_parquet(folder / f"{i}.parquet")
    return folder


def train(folder: Path, job: str) -> dict:
    """Fit in parts; return the losses, the weights and the shards that were read."""
    read = set()
    original = Shard.read

    def noted(self, runs):
        # the main process has read all of them for validation, in another thread
        if threading.current_thread().name.startswith("augmask-batches"):
            read.add(self.path.name)
        return original(self, runs)

    Shard.read, part_rows = noted, partitions.PART_ROWS
    partitions.PART_ROWS = ROWS // PARTS
    options = {"steps": 200, "batch_size": 50, "completions": "stack:2"}
    options["validation_fraction"] = 0.05
    model = AugMask(NoNoise, augmenter="ecdf", preset="fast", options=options)
    model.fit(folder / "lake", work_dir=folder / job, progress=False)
    Shard.read, partitions.PART_ROWS = original, part_rows
    weights = torch.nn.utils.parameters_to_vector(model.backbone_.parameters())
    return {
        "loss": model.history_["loss"].tolist(),
        "held_out": model.history_["held_out"].tolist(),
        "weights": weights.tolist(),
        "read": sorted(read),
    }


if __name__ == "__main__":
    result = train(Path(sys.argv[1]), "together")
    Path(sys.argv[1], f"{os.environ['RANK']}.json").write_text(json.dumps(result))
    sys.exit()


from .test_parallel import start_two  # noqa: E402


def test_two_processes_have_the_loss_of_one_and_read_half_of_the_shards(tmp_path):
    make_lake(tmp_path / "lake")
    alone = train(tmp_path, "alone")
    completed = start_two(__file__, tmp_path)
    assert [done.returncode for done in completed] == [0, 0], completed
    first, second = (
        json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)
    )
    for name in ("loss", "held_out", "weights"):
        np.testing.assert_allclose(first[name], alone[name], rtol=0, atol=1e-6)
        assert first[name] == second[name]
    # lanes are dealt shard by shard: ten shards in eight lanes
    assert len(second["read"]) == 4
    assert len(set(first["read"]) | set(second["read"])) == PARTS
    assert not set(first["read"]) & set(second["read"])
