"""Data-parallel training with `torch.distributed`; no other module deals with it.

`torchrun` starts the same program several times and sets the environment variables that
tell the processes apart. Every process holds the whole training set, takes its share of
each batch and averages its gradients with the others', so all take the same steps and
end with the same weights. The main process (rank 0) augments, keeps the time, writes
the files and reports.

There are two process groups. The default group (NCCL on GPUs, Gloo on CPUs) carries
what a training step needs. Everything else goes through a second one that is always
Gloo: it does not stall a GPU, and its timeout allows for the augmentation of a table.

Without torchrun nothing here initialises torch.distributed. torch is imported on first
use, because the command line asks for its rank before it loads anything large.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import logging
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from augmask.errors import AugMaskError, AugMaskWarning, UsageError

if TYPE_CHECKING:
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch import Tensor
else:

    class _Lazy:
        """A module that is imported when an attribute is read."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module(self._name), name)

    torch, dist = _Lazy("torch"), _Lazy("torch.distributed")

# Clusters set some of these for other purposes; only torchrun sets all.
TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# how long the other processes wait for the main one to augment a table
TIMEOUT = timedelta(days=2)

# process-wide, like torch's default group
_cpu_group: dist.ProcessGroup | None = None
_group_numbers = itertools.count()


class PeerEnded(AugMaskError):
    """Another process of the training ended or cannot be reached."""


class AlreadyReported(AugMaskError):
    """Another process has reported this error; the command line exits silently."""

    exit_code = 0


# -- ranks ----------------------------------------------------------------------


def launched_by_torchrun() -> bool:
    """Whether torchrun started this process as one of several."""
    complete = all(name in os.environ for name in TORCHRUN_VARIABLES)
    return complete and int(os.environ["WORLD_SIZE"]) > 1


def _is_initialized() -> bool:
    """Whether there is a default process group."""
    imported = "torch.distributed" in sys.modules
    return imported and dist.is_available() and dist.is_initialized()


def world_size() -> int:
    """Return the number of processes that train together, 1 outside of a group."""
    return dist.get_world_size() if _is_initialized() else 1


def rank() -> int:
    """Return the rank of this process, 0 outside of a group."""
    return dist.get_rank() if _is_initialized() else 0


def is_main_process() -> bool:
    """Whether this process augments, writes and reports; needs no process group."""
    if launched_by_torchrun() and not _is_initialized():
        return int(os.environ["RANK"]) == 0
    return rank() == 0


def local_device(device: torch.device) -> torch.device:
    """Return the device of this process; with CUDA each process needs its own GPU."""
    if world_size() == 1 or device.type == "cpu" or device.index is not None:
        return device
    if device.type != "cuda":
        raise UsageError(
            f"several processes cannot train on device {device.type!r}; use "
            "device='cpu' or start without torchrun"
        )
    local_rank = int(os.environ.get("LOCAL_RANK", rank()))
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise UsageError(
            f"no GPU for local rank {local_rank}: this machine has {count}; "
            f"start torchrun with --nproc-per-node {count}"
        )
    # also for code that asks for plain "cuda" later in this process
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def local_rows(batch_size: int) -> slice:
    """Return the rows of a batch that this process trains on.

    Shares differ by at most one row. The loss is still that of the whole batch, because
    `augmask.diffusion.reduce` sums numerators and denominators before it divides.

    Examples
    --------
    >>> local_rows(7)
    slice(0, 7, None)
    """
    index, count = rank(), world_size()
    if batch_size < count:
        raise UsageError(
            f"batch_size must be at least the number of processes, {count}; "
            f"got {batch_size}"
        )
    return slice(batch_size * index // count, batch_size * (index + 1) // count)


# -- process groups ---------------------------------------------------------------


@functools.cache
def _store() -> Any:
    """Return the key-value store through which the processes find each other.

    It is cached: its server may run in the main process, and a second fit needs it.
    """
    from torch.distributed.rendezvous import rendezvous

    return next(rendezvous("env://"))[0]


def _init_process_group() -> None:
    from torch.distributed.distributed_c10d import PrefixStore

    # a new prefix each time: the keys of an earlier group would mislead
    prefix = f"augmask/{next(_group_numbers)}"
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        store=PrefixStore(prefix, _store()),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )


def _is_peer_failure(error: BaseException) -> bool:
    """Whether the error says that another process is gone."""
    # Gloo has no exception class, only its name in the message of a RuntimeError
    gloo = type(error) is RuntimeError and "gloo" in str(error).lower()
    return gloo or isinstance(error, dist.DistError)


@contextmanager
def _only_main_process_logs() -> Iterator[None]:
    """Context manager: ignore augmask's warnings and log on all other processes."""
    log = logging.getLogger("augmask")
    before = log.disabled
    with warnings.catch_warnings():
        if not is_main_process():
            warnings.simplefilter("ignore", AugMaskWarning)
            log.disabled = True
        try:
            yield
        finally:
            log.disabled = before


@contextmanager
def process_group() -> Iterator[None]:
    """Context manager: train with the other processes, if there are any.

    An existing process group is used and left as it is. Otherwise one is created from
    torchrun's environment and destroyed at the end. Blocks may be nested.
    """
    global _cpu_group
    ours = launched_by_torchrun() and not _is_initialized()
    if _cpu_group is not None or not (ours or world_size() > 1):
        yield
        return
    try:
        if ours:
            _init_process_group()
        _cpu_group = dist.new_group(backend="gloo", timeout=TIMEOUT)
        with _only_main_process_logs():
            yield
    except BaseException as error:
        if ours and dist.group.WORLD is not None:
            # destroying an NCCL group waits for the others, who may wait for us
            dist.group.WORLD.abort()
        if not _is_peer_failure(error):
            raise
        raise PeerEnded(
            "another process of this training ended or cannot be reached; "
            "see its output for the reason"
        ) from error
    finally:
        cpu_group, _cpu_group = _cpu_group, None
        if ours and _is_initialized():
            dist.destroy_process_group()
        elif cpu_group is not None:
            dist.destroy_process_group(cpu_group)


@contextmanager
def report_error_once() -> Iterator[None]:
    """Context manager: raise `AlreadyReported` if another process failed first.

    Use it inside `process_group`, so that a process claims its error before the others
    notice that it is gone.
    """
    try:
        yield
    except Exception as error:
        if not launched_by_torchrun():
            raise
        # without a store the main process is gone and has reported its own error
        first = is_main_process()
        with suppress(RuntimeError):
            first = _store().add("augmask/errors", 1) == 1
        if first:
            raise
        raise AlreadyReported("another process reported the error") from error


# -- collectives: no-ops in a single process ----------------------------------------


def average_gradients(gradient: Tensor) -> None:
    """Replace a gradient by its mean over the processes.

    A process differentiates W times its share of the global loss (see `reduce`), so
    the mean over W processes is the gradient of the global loss.
    """
    if world_size() > 1:
        dist.all_reduce(gradient)
        gradient /= world_size()


def all_reduce_max(values: Tensor) -> Tensor:
    """Return the elementwise maximum over the processes."""
    if world_size() > 1:
        values = values.clone()
        dist.all_reduce(values, dist.ReduceOp.MAX)
    return values


def broadcast(tensors: Iterable[Any]) -> None:
    """Overwrite tensors in place with those of the main process."""
    if world_size() == 1:
        return
    with torch.no_grad():
        for tensor in tensors:
            message = tensor.detach().contiguous()
            dist.broadcast(message, 0)
            tensor.copy_(message)


def broadcast_array(array: np.ndarray) -> None:
    """Overwrite an array in place with that of the main process.

    All processes must know the shape: only numbers are sent, never pickled objects.
    """
    if world_size() > 1 and array.size:
        dist.broadcast(torch.from_numpy(array), 0, group=_cpu_group)


def broadcast_value(value: float) -> float:
    """Return the number of the main process, e.g. its time."""
    if world_size() == 1:
        return value
    message = torch.tensor([value], dtype=torch.float64)
    broadcast_array(message.numpy())
    return message.item()


def all_gather(tensor: Tensor) -> list[Tensor]:
    """Return the tensors of all processes; they must be alike and on the CPU."""
    if world_size() == 1:
        return [tensor]
    tensors = [torch.empty_like(tensor) for _ in range(world_size())]
    dist.all_gather(tensors, tensor, group=_cpu_group)
    return tensors


def check_same(text: str, message: str) -> None:
    """Raise `UsageError` with `message` unless all processes pass the same text."""
    digest = torch.frombuffer(
        bytearray(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8
    )
    first, *others = all_gather(digest)
    if not all(torch.equal(first, other) for other in others):
        raise UsageError(message)
