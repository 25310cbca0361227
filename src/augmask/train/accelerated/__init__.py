"""Faster ways to do what the plain training does; the one place that chooses them.

Networks here are small, so a plain step on a GPU is mostly launch overhead. `step` runs
it as a CUDA graph, compiled in long runs; `batched_models` trains several models as one
program; `prefetch` prepares batches and shuffles ahead of time. Results agree with the
plain path up to rounding, and on a CPU the plain path is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from augmask.augmentation.completions import Completions
from augmask.train import parallel
from augmask.train.accelerated.batched_models import BatchedModels, can_batch
from augmask.train.accelerated.prefetch import PrefetchedShuffle
from augmask.train.accelerated.step import AcceleratedStep
from augmask.train.shuffle import Shuffle

if TYPE_CHECKING:
    from augmask.train.trainer import Trainer

MAX_MODELS = 16  # larger batches are no faster


def accelerated_step(trainer: Trainer) -> AcceleratedStep | None:
    """Return a faster `trainer.train_step`, or None where the plain one is used.

    Several processes train without a CUDA graph, which cannot include the
    communication between them.
    """
    device = trainer.device.type
    compiled = trainer.settings.compiled(device)
    graphed = device == "cuda" and parallel.world_size() == 1
    return AcceleratedStep(trainer, compiled, graphed) if compiled or graphed else None


def make_shuffle(
    completions: Completions, seed: int, device: torch.device, synchronized: bool
) -> Shuffle:
    """Return a shuffle, which works ahead of the training on a single GPU.

    Several processes would have to communicate in the same order on every stream.
    """
    ahead = device.type == "cuda" and parallel.world_size() == 1
    kind = PrefetchedShuffle if ahead else Shuffle
    return kind(completions, seed, device, synchronized)


def batch_models(trainers: Sequence[Trainer]) -> list[BatchedModels]:
    """Group trainers of the same architecture on a GPU into batches.

    A CPU gains nothing: one model keeps its cores busy.
    """
    groups: list[list[Trainer]] = []
    for trainer in trainers:
        if trainer.device.type != "cuda":
            continue
        for group in groups:
            if len(group) < MAX_MODELS and can_batch(group[0], trainer):
                group.append(trainer)
                break
        else:
            groups.append([trainer])
    return [BatchedModels(group) for group in groups if len(group) > 1]
