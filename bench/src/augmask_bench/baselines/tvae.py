"""TVAE, through the authors' package (Xu et al. 2019).

The package accepts an incomplete table and fails when rows are sampled; here such a
table is refused at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from augmask_bench.baselines.ctgan import Synthesizer, Timed, fit_timed, with_mixin

if TYPE_CHECKING:
    import torch

    from augmask.table.table import Table


@dataclass(frozen=True)
class TvaeSettings:
    """Settings of TVAE.

    Parameters
    ----------
    steps : int
        Minimum number of steps, in whole epochs.
    batch_size : int
        Limited to the rows of the table.
    embedding_dim : int
        Of the latent space.
    widths : tuple of int
        Hidden layers of encoder and decoder.
    l2scale : float
        Weight decay.
    loss_factor : float
        Weight of the reconstruction relative to the KL divergence.
    """

    steps: int = 30_000
    batch_size: int = 4096
    embedding_dim: int = 256
    widths: tuple[int, ...] = (256, 602, 602, 602, 602)
    l2scale: float = 1e-5
    loss_factor: float = 2.0


PAPER = TvaeSettings()
SMALL = TvaeSettings(steps=2_000, batch_size=500, embedding_dim=128, widths=(128, 128))


def fit(
    table: Table,
    settings: TvaeSettings,
    seed: int,
    device: torch.device,
    seconds: float | None = None,
) -> Synthesizer:
    """Fit TVAE to a complete table with unscaled numbers."""
    batch_size = min(settings.batch_size, len(table))
    per_epoch = -(-len(table) // batch_size)

    def make() -> Any:
        from ctgan import TVAE

        return with_mixin(Timed, TVAE)(
            embedding_dim=settings.embedding_dim,
            compress_dims=settings.widths,
            decompress_dims=settings.widths,
            l2scale=settings.l2scale,
            batch_size=batch_size,
            loss_factor=settings.loss_factor,
            epochs=-(-settings.steps // per_epoch),
            enable_gpu=False,
        )

    return fit_timed("TVAE", make, table, per_epoch, seed, device, seconds)
