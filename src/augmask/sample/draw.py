"""Any number of rows, in batches, each from a random stream of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import torch

from augmask.config import Settings
from augmask.device import fast_products, multiplies_in_bf16
from augmask.diffusion.base import Backbone, Batch
from augmask.diffusion.fuse import FusedWay
from augmask.diffusion.nets import products_in_bf16
from augmask.diffusion.reverse import Way, follow
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
    bf16 = multiplies_in_bf16(settings.products, device)
    sample = _sampler(backbone, settings, settings.compiled_sampling(device.type, n))
    for batch, start in enumerate(range(0, n, size)):
        rows = min(size, n - start)
        generator = torch.Generator(device)
        generator.manual_seed(stream_seed(seed, "sample", batch))
        with fast_products(device), products_in_bf16(backbone, bf16):
            num, cat = sample(rows, generator)
        progress("sample", start + rows, n, {})
        yield Rows(start, num.double().cpu().numpy(), cat.int().cpu().numpy())


def _sampler(
    backbone: Any, settings: Settings, fuse: bool
) -> Callable[[int, torch.Generator], Batch]:
    """Return what draws rows: the backbone's own `sample`, or its way with fused steps.

    A last, shorter batch is not worth another compilation.
    """
    steps, solver = settings.sampling_steps, settings.solver
    chosen = {"solver": solver} if solver else {}

    def plain(rows: int, generator: torch.Generator) -> Batch:
        made: Batch = backbone.sample(rows, generator, steps=steps, **chosen)
        return made

    if not fuse or not hasattr(backbone, "way"):
        return plain
    with torch.no_grad():
        way = cast(Way, FusedWay(backbone.way(steps, solver or backbone.solvers[0])))

    def fused(rows: int, generator: torch.Generator) -> Batch:
        if rows < settings.sampling_batch:
            return plain(rows, generator)
        return follow(way, rows, generator)

    return fused
