"""Adam on shuffled batches: the one loop in which every baseline learns.

Rows lie on the device and a loss is asked for by their numbers. On a GPU a step is
recorded once and replayed, so batches have one size: the last one of a pass reaches
over into the next pass, and no row is left out. What a recorded step reads must stay in
place, and the loss must not ask the device for a number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from augmask.device import fast_matmul
from augmask.diffusion.cuda_graph import recorded
from augmask.rng import stream, stream_seed

# how far below the best a loss must be to count as better, for the rate (as in torch)
TOLERANCE = 1e-4
# rows to check on, at most
MOST_HELD = 16_384


def generator(device: torch.device, seed: int) -> torch.Generator:
    """Return a generator on the device."""
    return torch.Generator(device).manual_seed(seed)


def held_out(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return the numbers of rows to learn from and of rows to check on.

    At least one row is held out, at most 16,384; of a single row both are made.

    Examples
    --------
    >>> learn, check = held_out(10, 0.2, seed=0)
    >>> len(learn), len(check)
    (8, 2)
    """
    order = torch.from_numpy(stream(seed, "held out").permutation(n))
    count = min(max(round(share * n), 1), MOST_HELD, n - 1)
    if count == 0:
        return order, order
    return order[count:].sort().values, order[:count].sort().values


class Clock:
    """Says when a number of seconds is over; with None it never is."""

    def __init__(self, seconds: float | None = None) -> None:
        self._began = time.monotonic()
        self.seconds = math.inf if seconds is None else seconds

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.spent >= self.seconds

    def part(self, share: float) -> Clock:
        """Return a clock, started now, for a share of the seconds that are left."""
        return Clock(share * max(self.seconds - self.spent, 0.0))


class Plateau:
    """Says when a loss has failed to become better more than `patience` times.

    It then starts to count anew. A loss is better if it lies below the best by more
    than `tolerance` of it.

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
        """Note a loss; return whether patience is over."""
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
    """Keeps the weights that had the lowest loss.

    Attributes
    ----------
    loss : float
        The lowest so far.
    since : int
        How many losses were noted since then.
    """

    def __init__(self, module: nn.Module) -> None:
        self._weights = list(module.parameters())
        self._kept = [weights.detach().clone() for weights in self._weights]
        self.loss, self.since = math.inf, 0

    @torch.no_grad()
    def note(self, loss: float) -> None:
        """Keep the weights if this loss of theirs is the lowest."""
        self.since += 1
        if loss < self.loss:
            self.loss, self.since = loss, 0
            for kept, weights in zip(self._kept, self._weights, strict=True):
                kept.copy_(weights)

    @torch.no_grad()
    def restore(self) -> None:
        """Go back to the weights that were kept, where they lie."""
        for kept, weights in zip(self._kept, self._weights, strict=True):
            weights.copy_(kept)


class _Step:
    """What a step does on the device, on tensors that stay in place.

    It does not know the recording that is made of it: the two would keep each other,
    and memory of the device, alive.
    """

    def __init__(
        self,
        loss: Callable[[Tensor], Tensor],
        adam: torch.optim.Adam,
        batch: int,
        device: torch.device,
    ) -> None:
        self._loss, self._adam = loss, adam
        self.rows = torch.zeros(batch, dtype=torch.long, device=device)
        self.total = torch.zeros((), device=device)

    def __call__(self) -> None:
        self._adam.zero_grad(set_to_none=True)
        loss = self._loss(self.rows)
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()
        self.total += loss.detach()


class Descent:
    """Adam steps on batches of shuffled rows.

    Parameters
    ----------
    loss : callable
        Takes row numbers, long [batch], and returns a scalar. It draws noise from
        `generator` and nowhere else, works with fixed shapes and reads nothing back
        from the device.
    parameters : iterable of Parameter
    n_rows : int
    batch : int
        At most `n_rows` are taken.
    lr, weight_decay : float
        Decay as in Adam, added to the gradient.
    generator : torch.Generator
        On the device. The order of rows has a stream of its own.

    Attributes
    ----------
    done : int
        Steps taken.
    rate : float
        The learning rate; may be set between steps.

    Examples
    --------
    >>> rows = torch.tensor([1.0, 2.0, 3.0])
    >>> centre = nn.Parameter(torch.zeros(()))
    >>> noise = torch.Generator().manual_seed(0)
    >>> loss = lambda numbers: (rows[numbers] - centre).square().mean()
    >>> descent = Descent(loss, [centre], 3, 2, 0.1, 0.0, noise)
    >>> _ = descent.steps(200)
    >>> abs(centre.item() - 2.0) < 0.3
    True
    """

    def __init__(
        self,
        loss: Callable[[Tensor], Tensor],
        parameters: Iterable[nn.Parameter],
        n_rows: int,
        batch: int,
        lr: float,
        weight_decay: float,
        generator: torch.Generator,
    ) -> None:
        device = generator.device
        on_gpu = device.type == "cuda"
        self._device = device
        self.n_rows, self.batch = n_rows, min(batch, n_rows)
        self.done = 0
        self._shuffle = torch.Generator(device).manual_seed(
            stream_seed(generator.initial_seed(), "shuffle")
        )
        self._order = torch.empty(0, dtype=torch.long, device=device)
        self._cursor = 0
        self._rate = lr
        # a recorded step reads the rate where it lies
        self._rate_there = torch.tensor(lr, dtype=torch.float32, device=device)
        self._adam = torch.optim.Adam(
            # a table without numbers has weights without entries: nothing to move
            [p for p in parameters if p.numel()],
            lr=self._rate_there if on_gpu else lr,
            weight_decay=weight_decay,
            fused=device.type in ("cpu", "cuda"),
            capturable=on_gpu,
        )
        self._work = _Step(loss, self._adam, self.batch, device)
        self._take = recorded(self._work, generator, "training")

    @property
    def rate(self) -> float:
        """The learning rate."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._rate = rate
        self._rate_there.fill_(rate)
        if self._device.type != "cuda":
            self._adam.param_groups[0]["lr"] = rate

    def _stage(self) -> None:
        """Put the numbers of the next batch in place."""
        while self._cursor + self.batch > len(self._order):
            # what is left of this pass goes before the next one
            fresh = torch.randperm(
                self.n_rows, generator=self._shuffle, device=self._device
            )
            self._order = torch.cat([self._order[self._cursor :], fresh])
            self._cursor = 0
        self._work.rows.copy_(self._order[self._cursor : self._cursor + self.batch])
        self._cursor += self.batch

    def steps(self, count: int) -> float:
        """Take `count` steps and return their mean loss."""
        self._work.total.zero_()
        with fast_matmul(self._device), torch.enable_grad():
            for _ in range(count):
                self._stage()
                self._take()
        self.done += count
        return float(self._work.total) / count

    @property
    def steps_of_epoch(self) -> int:
        """How many steps complete the pass over the rows that is under way."""
        seen = self.done * self.batch
        return -((seen % self.n_rows - self.n_rows) // self.batch)

    def epoch(self) -> float:
        """Go to the end of the pass over the rows and return the mean loss."""
        return self.steps(self.steps_of_epoch)


@dataclass(frozen=True)
class Schedule:
    """How long to learn, and when to learn more slowly.

    Parameters
    ----------
    steps : int
        At most so many.
    factor : float
        What the rate is multiplied by after `patience` epochs whose loss was no better.
    patience : int
    stop_after : int
        Epochs without a lower loss that end it.
    """

    steps: int
    factor: float
    patience: int
    stop_after: int


def descend(
    descent: Descent, module: nn.Module, schedule: Schedule, clock: Clock
) -> dict[str, object]:
    """Learn by a schedule that watches the training loss; keep the best weights.

    Returns
    -------
    dict
        Steps done, the lowest loss and why it ended.
    """
    best, plateau = Best(module), Plateau(schedule.patience)
    ended = "steps"
    while (left := schedule.steps - descent.done) > 0:
        loss = descent.steps(min(descent.steps_of_epoch, left))
        if not math.isfinite(loss):
            ended = "loss not finite"
            break
        best.note(loss)
        if plateau.stalls(loss):
            descent.rate *= schedule.factor
        if best.since >= schedule.stop_after:
            ended = "patience"
            break
        if clock.over:
            ended = "time"
            break
    best.restore()
    return {"steps": descent.done, "loss": best.loss, "ended": ended}
