"""Which device to work on, and how it multiplies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from augmask.errors import UsageError


def resolve_device(device: str) -> torch.device:
    """Return the device of that name; `auto` takes CUDA, then MPS, then the CPU."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise UsageError(
            f"device must be 'auto', 'cpu', 'cuda' or 'mps', got {device!r}"
        ) from error
    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not present.get(found.type, False):
        raise UsageError(
            f"device {device!r} is not available on this machine; use device='auto'"
        )
    return found


def uses_bf16(products: str, device: torch.device) -> bool:
    """Whether hidden layers multiply in bfloat16, see `Settings.products`."""
    if products == "auto" and device.type == "cuda":
        # older ones know the type, and are slow with it
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return products == "bf16"


@contextmanager
def fast_matmul(device: torch.device) -> Iterator[None]:
    """Allow TF32 matrix products on CUDA for a while, and put the setting back."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
