"""Several processes, one training: the one place that knows about them.

`torchrun` starts the same program several times and says in the environment which copy
is which. Every process holds the whole training set, takes its share of the rows of
each batch, and averages its gradients with the others', so all take the same steps and
end with the same weights. The first process leads: it fills the holes, reads the clock,
writes the files and talks.

Two groups carry the talk. torch's default group (NCCL on GPUs, Gloo on CPUs) moves what
a step needs. Everything else goes through a second group that is always Gloo: it works
between hosts without stopping a GPU, and it waits as long as filling a table may take.

Without torchrun nothing here starts torch.distributed; torch itself is imported where
it is needed, because the command line asks who it is before it loads anything heavy.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import os
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

# what torchrun sets; clusters set some of these for other ends, nobody else sets all
LAUNCHED_BY = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# the others wait that long for the first to fill a table
PATIENCE = timedelta(days=2)

# torch keeps its groups per process, and so does this file
_control: dist.ProcessGroup | None = None
_joins = itertools.count()


class PeerEnded(AugMaskError):
    """Another process of the training ended, or cannot be reached any more."""


class Told(AugMaskError):
    """An error that another process has told already; the command line is silent."""

    exit_code = 0


# -- who am I -------------------------------------------------------------------


def launched() -> bool:
    """Whether torchrun started this process as one of several."""
    complete = all(name in os.environ for name in LAUNCHED_BY)
    return complete and int(os.environ["WORLD_SIZE"]) > 1


def follows() -> bool:
    """Whether torchrun started this process, and not as the first."""
    return launched() and int(os.environ["RANK"]) > 0


def _grouped() -> bool:
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized()


def size() -> int:
    """Return how many processes train together, 1 outside of a group."""
    import torch.distributed as dist

    return dist.get_world_size() if _grouped() else 1


def rank() -> int:
    """Return the number of this process in its group, from 0."""
    import torch.distributed as dist

    return dist.get_rank() if _grouped() else 0


def leads() -> bool:
    """Whether this is the process that fills, writes and talks."""
    return rank() == 0


def own_device(device: torch.device) -> torch.device:
    """Return the device of this process; every process needs a GPU of its own."""
    import torch

    if size() == 1 or device.type == "cpu" or device.index is not None:
        return device
    if device.type != "cuda":
        raise UsageError(
            f"several processes cannot train on device {device.type!r}; use "
            "device='cpu' or start without torchrun"
        )
    local = int(os.environ.get("LOCAL_RANK", rank()))
    present = torch.cuda.device_count()
    if local >= present:
        raise UsageError(
            f"process {local} of this machine has no GPU of its own, there are "
            f"{present}; start torchrun with --nproc-per-node {present}"
        )
    # also for whoever asks for plain "cuda" later in this process
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def share(n: int) -> slice:
    """Return which of the `n` rows of a batch this process takes.

    Shares differ by at most one row. The means stay those of one process, because
    `augmask.diffusion.reduce` sums numerators and denominators before it divides.

    Examples
    --------
    >>> share(7)
    slice(0, 7, None)
    """
    number, count = rank(), size()
    if n < count:
        raise UsageError(
            f"batch must be at least the number of processes, {count}; got {n}"
        )
    return slice(n * number // count, n * (number + 1) // count)


# -- joining and leaving ----------------------------------------------------------


@functools.cache
def _store() -> Any:
    """Return the table of notes where the processes find each other.

    It is kept: its server may live in the first process, and a second fit needs it.
    """
    from torch.distributed.rendezvous import rendezvous

    return next(rendezvous("env://"))[0]


def _join() -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    # a new corner of the store each time: notes of an earlier group would mislead
    corner = PrefixStore(f"augmask/{next(_joins)}", _store())
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        store=corner,
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )


def _lost(error: BaseException) -> bool:
    """Whether the error says that another process is gone."""
    import torch.distributed as dist

    # Gloo has no error of its own, only its name in the text of a plain one
    plain = type(error) is RuntimeError and "gloo" in str(error).lower()
    return plain or isinstance(error, dist.DistError)


@contextmanager
def _silenced() -> Iterator[None]:
    """Keep augmask's notes and log to the first process."""
    log = logging.getLogger("augmask")
    before = log.disabled
    with warnings.catch_warnings():
        if not leads():
            warnings.simplefilter("ignore", AugMaskWarning)
            log.disabled = True
        try:
            yield
        finally:
            log.disabled = before


@contextmanager
def joined() -> Iterator[None]:
    """Train together inside, if torchrun or the caller's own group says so.

    A group that the caller has initialised is used and left as it was. Otherwise one
    is made from torchrun's environment and left at the end. Blocks may be nested.
    """
    global _control
    import torch.distributed as dist

    ours = launched() and not _grouped()
    if _control is not None or not (ours or size() > 1):
        yield
        return
    try:
        if ours:
            _join()
        _control = dist.new_group(backend="gloo", timeout=PATIENCE)
        with _silenced():
            yield
    except BaseException as error:
        if ours and dist.group.WORLD is not None:
            # NCCL waits for the others when a group is left, and they may wait for us
            dist.group.WORLD.abort()
        if not _lost(error):
            raise
        raise PeerEnded(
            "another process of this training ended or cannot be reached; "
            "what it said before tells why"
        ) from error
    finally:
        control, _control = _control, None
        if ours and _grouped():
            dist.destroy_process_group()
        elif control is not None:
            dist.destroy_process_group(control)


@contextmanager
def one_voice() -> Iterator[None]:
    """Let one process tell an error: `Told` is raised where another was first.

    Used inside of `joined`, so that a process claims its error before the others can
    notice that it is gone.
    """
    try:
        yield
    except Exception as error:
        if not launched():
            raise
        # a follower that cannot ask any more was left by the first, which has spoken
        first = not follows()
        with suppress(RuntimeError):
            first = _store().add("augmask/told", 1) == 1
        if first:
            raise
        raise Told("another process told the error") from error


# -- what travels ---------------------------------------------------------------


def average(parameters: Iterable[Tensor]) -> None:
    """Replace gradients by their mean over the processes, all in one message.

    A process differentiates W times its share of the global loss (see `reduce`), so
    the mean over W processes is the gradient of the global loss.
    """
    import torch
    import torch.distributed as dist

    gradients = [p.grad for p in parameters if p.grad is not None]
    if size() == 1 or not gradients:
        return
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= size()
    parts = torch.split(flat, [g.numel() for g in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def largest(values: Tensor) -> Tensor:
    """Return the elementwise maximum over the processes."""
    import torch.distributed as dist

    if size() > 1:
        values = values.clone()
        dist.all_reduce(values, dist.ReduceOp.MAX)
    return values


def copy_lead(tensors: Iterable[Any]) -> None:
    """Overwrite tensors with the first process's, where they lie."""
    import torch
    import torch.distributed as dist

    if size() == 1:
        return
    with torch.no_grad():
        for tensor in tensors:
            message = tensor.detach().contiguous()
            dist.broadcast(message, 0)
            tensor.copy_(message)


def copy_lead_array(array: np.ndarray) -> None:
    """Overwrite an array of numbers with the first process's.

    The shape must be known on all sides. Plain numbers travel, never pickled objects:
    the package unpickles nothing, and these arrays are the large part anyway.
    """
    import torch
    import torch.distributed as dist

    if size() > 1 and array.size:
        dist.broadcast(torch.from_numpy(array), 0, group=_control)


def lead(value: float) -> float:
    """Return the first process's number, e.g. the time on its clock."""
    import torch
    import torch.distributed as dist

    if size() == 1:
        return value
    message = torch.tensor([value], dtype=torch.float64)
    dist.broadcast(message, 0, group=_control)
    return message.item()


def gathered(tensor: Tensor) -> list[Tensor]:
    """Return the tensors of all processes, which lie on the CPU and are alike."""
    import torch
    import torch.distributed as dist

    if size() == 1:
        return [tensor]
    found = [torch.empty_like(tensor) for _ in range(size())]
    dist.all_gather(found, tensor, group=_control)
    return found


def check_same(what: str, sentence: str) -> None:
    """Raise `UsageError` with `sentence` unless all processes pass the same text."""
    import torch

    digest = torch.frombuffer(
        bytearray(hashlib.sha256(what.encode()).digest()), dtype=torch.uint8
    )
    first, *others = gathered(digest)
    if not all(torch.equal(first, other) for other in others):
        raise UsageError(sentence)
