"""Helpers that the published training loops share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn


def endless(loader: Iterable[tuple[Tensor, ...]]) -> Iterator[tuple[Tensor, ...]]:
    """Repeat a loader forever; every epoch is shuffled again."""
    while True:
        yield from loader


class HostTensors:
    """Batches of tensors in host memory.

    Parameters
    ----------
    tensors : tuple of Tensor
        Of the same length.
    batch : int
    whole : bool
        Leave out the short batch at the end of an epoch (and with it, as published, the
        rows at the end of the table).
    """

    def __init__(self, *tensors: Tensor, batch: int, whole: bool) -> None:
        self.tensors, self.batch = tensors, batch
        self.length = len(tensors[0])
        if whole:
            self.length -= self.length % batch

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        order = torch.randperm(self.length)
        for rows in order.split(self.batch):
            yield tuple(tensor.index_select(0, rows) for tensor in self.tensors)


def update_ema(ema: list[Tensor], module: nn.Module, decay: float) -> None:
    """Update the EMA of the weights, one parameter after the other."""
    with torch.no_grad():
        for old, new in zip(ema, module.parameters(), strict=True):
            old.mul_(decay).add_(new, alpha=1 - decay)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate from the host."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def copied(module: nn.Module) -> list[Tensor]:
    """Return copies of a module's parameters."""
    return [p.detach().clone() for p in module.parameters()]


def sinusoids(times: Tensor, width: int) -> Tensor:
    """Return cosines and sines of the times; frequencies are computed in each call."""
    half = width // 2
    powers = torch.arange(half, dtype=torch.float32) / half
    frequencies = (10_000.0**-powers).to(times)
    angles = times[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], 1)
