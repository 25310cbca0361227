"""Any number of rows, in batches, each from a random stream of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch

from augmask.config import Settings
from augmask.device import fast_matmul, uses_bf16
from augmask.diffusion.base import Backbone
from augmask.diffusion.compiled import CompiledSampler
from augmask.diffusion.nets import bf16_matmul
from augmask.diffusion.sampling import Sampler, run_sampler
from augmask.progress import Progress, silent
from augmask.rng import stream_seed
from augmask.table.table import CodeArray, FloatArray


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
    sampler = None
    if settings.compiled_sampling(device.type, n):
        sampler = _compiled_sampler(backbone, settings)
    for batch, start in enumerate(range(0, n, size)):
        rows = min(size, n - start)
        generator = torch.Generator(device)
        generator.manual_seed(stream_seed(seed, "sample", batch))
        # a last, shorter batch is not worth another compilation
        taken = sampler if rows == size else None
        num, cat = sample_batch(backbone, rows, generator, settings, taken)
        progress("sample", start + rows, n, {})
        yield Rows(start, num, cat)


def sample_batch(
    backbone: Any,
    rows: int,
    generator: torch.Generator,
    settings: Settings,
    sampler: Sampler | None = None,
) -> tuple[FloatArray, CodeArray]:
    """Return rows by the backbone's `sample`, or along a way that it has laid out."""
    device = generator.device
    bf16 = uses_bf16(settings.matmul_precision, device)
    with fast_matmul(device), bf16_matmul(backbone, bf16):
        if sampler is None:
            solver = {"solver": settings.solver} if settings.solver else {}
            steps = settings.sampling_steps
            num, cat = backbone.sample(rows, generator, steps=steps, **solver)
        else:
            num, cat = run_sampler(sampler, rows, generator)
    return num.double().cpu().numpy(), cat.int().cpu().numpy()


@torch.no_grad()
def _compiled_sampler(backbone: Any, settings: Settings) -> Sampler | None:
    """Return the way back with a fused step, if the backbone has a way."""
    if not hasattr(backbone, "sampler"):
        return None
    solver = settings.solver or backbone.solvers[0]
    return cast(
        Sampler, CompiledSampler(backbone.sampler(settings.sampling_steps, solver))
    )
