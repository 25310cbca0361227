"""A small trainer for tests."""

from __future__ import annotations

import numpy as np
import torch

from augmask.augmentation import resolve_augmenter
from augmask.augmentation.completions import CompletionPlan, complete
from augmask.augmentation.shards import choose_held_out_cells
from augmask.config import Settings
from augmask.diffusion import build_backbone
from augmask.train.data import TrainingData
from augmask.train.trainer import Trainer

NETWORK = {"width": 16, "depth": 2, "time_width": 8}
SMALL = NETWORK | {"batch_size": 32, "validation_fraction": 0.05}


def trainer(table, backbone: str, seed: int, steps: int = 60, device="cpu", **changes):
    """Return a trainer; `changes` are settings or keywords of the backbone."""
    device = torch.device(device)
    settings = Settings().replace(SMALL | {"steps": steps} | changes, None)
    rng = np.random.default_rng(seed)
    filled = complete(resolve_augmenter("ecdf"), table, CompletionPlan("stack", 2), rng)
    model = build_backbone(backbone, filled.table.layout, seed, **settings.network)
    model.init_from_data(filled.table)
    model.to(device)
    held_out = choose_held_out_cells(table.observed, settings.validation_fraction, rng)
    data = TrainingData(filled, "observed", held_out, seed, device)
    return Trainer(model, data, settings, seed, device)
