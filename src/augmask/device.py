"""Choose the device and the precision of its matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from augmask.errors import UsageError


def resolve_device(device: str) -> torch.device:
    """Return the device of that name; `auto` prefers CUDA, then MPS, then the CPU."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise UsageError(
            f"device must be 'auto', 'cpu', 'cuda' or 'mps', got {device!r}"
        ) from error
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not available.get(resolved.type, False):
        raise UsageError(
            f"device {device!r} is not available on this machine; use device='auto'"
        )
    return resolved


def uses_bf16(matmul_precision: str, device: torch.device) -> bool:
    """Whether hidden layers multiply in bfloat16; see `Settings.matmul_precision`."""
    if matmul_precision == "auto" and device.type == "cuda":
        # older GPUs support bfloat16 but are slow with it
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return matmul_precision == "bf16"


@contextmanager
def one_thread() -> Iterator[None]:
    """Context manager: compute with one thread.

    Sums depend on how many threads share them, so only then are the results those of
    any other process that does the same.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def allow_tf32(device: torch.device) -> Iterator[None]:
    """Context manager: allow TF32 matrix products on CUDA."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
