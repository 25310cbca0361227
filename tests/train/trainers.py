"""Small trainers that are alike but for their seeds."""

from __future__ import annotations

import numpy as np
import torch

from augmask.augmentation import resolve_augmenter
from augmask.augmentation.completions import CompletionPlan, complete
from augmask.config import Settings
from augmask.diffusion import build_backbone
from augmask.train.data import TrainingData
from augmask.train.trainer import Trainer

NETWORK = {"width": 16, "depth": 2, "time_width": 8}


def trainer(table, backbone: str, seed: int, steps: int = 60, device="cpu", **changes):
    device = torch.device(device)
    settings = Settings().replace(
        NETWORK | {"batch": 32, "steps": steps, "holdout": 0.05} | changes, None
    )
    rng = np.random.default_rng(seed)
    filled = complete(resolve_augmenter("ecdf"), table, CompletionPlan("stack", 2), rng)
    model = build_backbone(backbone, filled.table.layout, seed, **settings.network)
    model.init_from_data(filled.table)
    model.to(device)
    hidden = table.observed & (rng.random(table.observed.shape) < 0.05)
    data = TrainingData(filled, "observed", hidden, seed, device)
    return Trainer(model, data, settings, seed, device)
