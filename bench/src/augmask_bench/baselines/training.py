"""The training loop of all baselines: Adam on shuffled batches.

Rows are on the device, and the loss receives their indices. On a GPU a step is captured
as a CUDA graph, so all batches have one size: the last batch of an epoch continues with
rows of the next epoch, and no row is skipped. Tensors that a captured step reads must
stay in place, and the loss must not synchronise with the device.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from augmask.device import allow_tf32
from augmask.diffusion.cuda_graph import cuda_graphed
from augmask.errors import TrainingDiverged
from augmask.rng import stream, stream_seed

# relative improvement below which a loss does not count as better (as in torch)
TOLERANCE = 1e-4
# maximum number of held-out rows
MOST_HELD = 16_384
# steps between two looks at the clock: an epoch may be long
CLOCK_STEPS = 20


def generator(device: torch.device, seed: int) -> torch.Generator:
    """Return a generator on the device."""
    return torch.Generator(device).manual_seed(seed)


def held_out(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return the indices of training rows and of held-out rows.

    At least one row is held out, at most 16,384; a single row is used for both.

    Examples
    --------
    >>> training, validation = held_out(10, 0.2, seed=0)
    >>> len(training), len(validation)
    (8, 2)
    """
    order = torch.from_numpy(stream(seed, "held out").permutation(n))
    count = min(max(round(share * n), 1), MOST_HELD, n - 1)
    if count == 0:
        return order, order
    return order[count:].sort().values, order[:count].sort().values


class Clock:
    """A time limit; None is no limit."""

    def __init__(self, seconds: float | None = None) -> None:
        self._start = time.monotonic()
        self.seconds = math.inf if seconds is None else seconds

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self.spent >= self.seconds

    def part(self, share: float) -> Clock:
        """Return a clock, started now, for a share of the remaining time."""
        return Clock(share * max(self.seconds - self.spent, 0.0))


class Plateau:
    """Reports when a loss has not improved more than `patience` times in a row.

    It then starts to count again. A loss has improved if it is below the best by more
    than the relative `tolerance`.

    Examples
    --------
    >>> plateau = Plateau(patience=1)
    >>> [plateau.stalls(loss) for loss in (3.0, 3.0, 3.0, 3.0, 2.0)]
    [False, False, True, False, False]
    """

    def __init__(self, patience: int, tolerance: float = TOLERANCE) -> None:
        self._patience, self._tolerance = patience, tolerance
        self._best, self._bad = math.inf, 0

    def stalls(self, loss: float) -> bool:
        """Record a loss; return whether the patience is exhausted."""
        if loss < self._best - self._tolerance * abs(self._best) or (
            math.isinf(self._best) and math.isfinite(loss)
        ):
            self._best, self._bad = loss, 0
            return False
        self._bad += 1
        if self._bad <= self._patience:
            return False
        self._bad = 0
        return True


class Best:
    """Keeps a copy of the weights with the lowest loss.

    Attributes
    ----------
    loss : float
        The lowest so far.
    since : int
        Number of losses recorded since then.
    """

    def __init__(self, module: nn.Module) -> None:
        self._weights = list(module.parameters())
        self._saved = [weights.detach().clone() for weights in self._weights]
        self.loss, self.since = math.inf, 0

    @torch.no_grad()
    def record(self, loss: float) -> None:
        """Save the weights if this is their lowest loss."""
        self.since += 1
        if loss < self.loss:
            self.loss, self.since = loss, 0
            for saved, weights in zip(self._saved, self._weights, strict=True):
                saved.copy_(weights)

    @torch.no_grad()
    def restore(self) -> None:
        """Copy the saved weights back in place."""
        for saved, weights in zip(self._saved, self._weights, strict=True):
            weights.copy_(saved)


class _Step:
    """One step on the device, on tensors that stay in place.

    It holds no reference to its CUDA graph: a reference cycle would keep device memory
    alive.
    """

    def __init__(
        self,
        loss: Callable[[Tensor], Tensor],
        adam: torch.optim.Adam,
        batch_size: int,
        device: torch.device,
    ) -> None:
        self._loss, self._adam = loss, adam
        self.rows = torch.zeros(batch_size, dtype=torch.long, device=device)
        self.total = torch.zeros((), device=device)

    def __call__(self) -> None:
        self._adam.zero_grad(set_to_none=True)
        loss = self._loss(self.rows)
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()
        self.total += loss.detach()


class Trainer:
    """Adam steps on batches of shuffled rows.

    Parameters
    ----------
    loss : callable
        Receives row indices, long [batch_size], and returns a scalar. It draws noise
        from `generator` only, uses fixed shapes and does not synchronise.
    parameters : iterable of Parameter
    n_rows : int
    batch_size : int
        At most `n_rows` are used.
    lr, weight_decay : float
        Decay as in Adam, added to the gradient.
    generator : torch.Generator
        On the device. The order of rows has its own random stream.

    Attributes
    ----------
    done : int
        Steps completed.
    lr : float
        The learning rate; may be set between steps.

    Examples
    --------
    >>> rows = torch.tensor([1.0, 2.0, 3.0])
    >>> centre = nn.Parameter(torch.zeros(()))
    >>> noise = torch.Generator().manual_seed(0)
    >>> loss = lambda indices: (rows[indices] - centre).square().mean()
    >>> trainer = Trainer(loss, [centre], 3, 2, 0.1, 0.0, noise)
    >>> _ = trainer.steps(200)
    >>> abs(centre.item() - 2.0) < 0.3
    True
    """

    def __init__(
        self,
        loss: Callable[[Tensor], Tensor],
        parameters: Iterable[nn.Parameter],
        n_rows: int,
        batch_size: int,
        lr: float,
        weight_decay: float,
        generator: torch.Generator,
    ) -> None:
        device = generator.device
        on_gpu = device.type == "cuda"
        self._device = device
        self.n_rows, self.batch_size = n_rows, min(batch_size, n_rows)
        self.done = 0
        self._shuffle = torch.Generator(device).manual_seed(
            stream_seed(generator.initial_seed(), "shuffle")
        )
        self._order = torch.empty(0, dtype=torch.long, device=device)
        self._cursor = 0
        self._lr = lr
        # a captured step reads the learning rate from this tensor
        self._lr_tensor = torch.tensor(lr, dtype=torch.float32, device=device)
        self._adam = torch.optim.Adam(
            # a table without numeric columns has empty weights
            [p for p in parameters if p.numel()],
            lr=self._lr_tensor if on_gpu else lr,
            weight_decay=weight_decay,
            fused=device.type in ("cpu", "cuda"),
            capturable=on_gpu,
        )
        self._step = _Step(loss, self._adam, self.batch_size, device)
        self._run_step = cuda_graphed(self._step, generator, "training")

    @property
    def lr(self) -> float:
        """The learning rate."""
        return self._lr

    @lr.setter
    def lr(self, lr: float) -> None:
        self._lr = lr
        self._lr_tensor.fill_(lr)
        if self._device.type != "cuda":
            self._adam.param_groups[0]["lr"] = lr

    def _stage(self) -> None:
        """Write the row indices of the next batch in place."""
        while self._cursor + self.batch_size > len(self._order):
            # the rest of this epoch precedes the next one
            fresh = torch.randperm(
                self.n_rows, generator=self._shuffle, device=self._device
            )
            self._order = torch.cat([self._order[self._cursor :], fresh])
            self._cursor = 0
        self._step.rows.copy_(
            self._order[self._cursor : self._cursor + self.batch_size]
        )
        self._cursor += self.batch_size

    def steps(self, count: int) -> float:
        """Run `count` steps and return their mean loss."""
        self._step.total.zero_()
        with allow_tf32(self._device), torch.enable_grad():
            for _ in range(count):
                self._stage()
                self._run_step()
        self.done += count
        return float(self._step.total) / count

    @property
    def steps_to_epoch_end(self) -> int:
        """The number of steps to the end of the current epoch."""
        used = self.done * self.batch_size
        return -((used % self.n_rows - self.n_rows) // self.batch_size)

    def epoch(self) -> float:
        """Run to the end of the current epoch and return the mean loss."""
        return self.steps(self.steps_to_epoch_end)


@dataclass(frozen=True)
class Schedule:
    """Length of a training, and when to reduce its learning rate.

    Parameters
    ----------
    steps : int
        Maximum number of steps.
    factor : float
        Multiplies the learning rate after `patience` epochs without improvement.
    patience : int
    stop_after : int
        Epochs without a lower loss after which training stops.
    """

    steps: int
    factor: float
    patience: int
    stop_after: int


def train(
    trainer: Trainer, module: nn.Module, schedule: Schedule, clock: Clock
) -> dict[str, object]:
    """Train with a schedule on the training loss; restore the best weights.

    Returns
    -------
    dict
        Steps completed, the lowest loss and why training ended.
    """
    best, plateau = Best(module), Plateau(schedule.patience)
    ended = "steps"
    while (left := schedule.steps - trainer.done) > 0:
        loss = trainer.steps(min(trainer.steps_to_epoch_end, left))
        if not math.isfinite(loss):
            ended = "loss not finite"
            break
        best.record(loss)
        if plateau.stalls(loss):
            trainer.lr *= schedule.factor
        if best.since >= schedule.stop_after:
            ended = "patience"
            break
        if clock.over:
            ended = "time"
            break
    best.restore()
    return {"steps": trainer.done, "loss": best.loss, "ended": ended}


def _facts(epochs: int, trainer: Trainer, loss: float) -> dict[str, object]:
    return {"epochs": epochs, "steps": trainer.done, "loss": loss}


def train_epochs(
    trainer: Trainer,
    epochs: int,
    clock: Clock,
    lr: Callable[[int], float] | None = None,
) -> dict[str, object]:
    """Train for a number of epochs; the last weights are used, not the best.

    Parameters
    ----------
    trainer : Trainer
    epochs : int
    clock : Clock
        May end it earlier.
    lr : callable, optional
        The learning rate of every epoch, counted from 0.

    Returns
    -------
    dict
        Epochs and steps completed, the mean loss of the last epoch and why training
        ended.
    """
    loss = math.nan
    for epoch in range(epochs):
        if lr is not None:
            trainer.lr = lr(epoch)
        count = left = trainer.steps_to_epoch_end
        total = 0.0
        while left:
            part = min(CLOCK_STEPS, left)
            total += part * trainer.steps(part)
            left -= part
            if not math.isfinite(total):
                raise TrainingDiverged(
                    f"the loss must stay finite, got {total / (count - left)} in "
                    f"epoch {epoch}; lower the learning rate"
                )
            if clock.over and (left or epoch < epochs - 1):
                facts = _facts(epoch + (not left), trainer, total / (count - left))
                return facts | {"ended": "time"}
        loss = total / count
    return _facts(epochs, trainer, loss) | {"ended": "epochs"}
