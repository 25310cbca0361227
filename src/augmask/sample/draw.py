"""Any number of rows, in batches, each from a random stream of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from augmask.config import Settings
from augmask.device import fast_products
from augmask.diffusion.base import Backbone
from augmask.progress import Progress, silent
from augmask.rng import stream_seed
from augmask.table.carrier import CodeArray, FloatArray


class Rows(NamedTuple):
    """Generated rows from number `start` on, still encoded."""

    start: int
    num: FloatArray
    cat: CodeArray


def draw_batches(
    backbone: Backbone,
    n: int,
    seed: int,
    settings: Settings,
    device: torch.device,
    progress: Progress = silent,
) -> Iterator[Rows]:
    """Yield `n` rows in batches of `settings.sampling_batch`.

    Memory does not depend on `n`: whole batches stay the same when `n` grows, because
    each draws from a stream of its own.
    """
    size = settings.sampling_batch
    solver = {"solver": settings.solver} if settings.solver else {}
    for batch, start in enumerate(range(0, n, size)):
        rows = min(size, n - start)
        generator = torch.Generator(device)
        generator.manual_seed(stream_seed(seed, "sample", batch))
        with fast_products(device):
            num, cat = backbone.sample(
                rows, generator, steps=settings.sampling_steps, **solver
            )
        progress("sample", start + rows, n, {})
        yield Rows(start, num.double().cpu().numpy(), cat.int().cpu().numpy())
