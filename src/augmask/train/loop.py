"""The run: steps until a budget is spent, looking up from time to time.

Every so many steps the device is read once. If the loss broke, the run goes back to its
last good state, finds the step and the column that broke it, and tries again with half
the learning rate. Now and then the averaged weights are scored on observed cells that
were kept from the loss; of the states late in the run the last that is about as good as
the best is what `train` leaves in the backbone.

A run gives way after every step. So several can take turns, which on a GPU makes use of
what one small network leaves idle: those that are alike take their steps as one, see
`stack`, and each of the others has a stream of its own.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from augmask.diffusion.base import diagnostics, recover
from augmask.errors import TrainingDiverged
from augmask.progress import Progress, silent
from augmask.train import parallel
from augmask.train.batched_models import stacked
from augmask.train.checkpoint import Checkpoint, check_state
from augmask.train.streams import Lane
from augmask.train.trainer import Trainer

log = logging.getLogger("augmask")

LOOK = 100  # steps between two reads of the device
LOOK_GPU = 200  # a read lets a GPU run dry
EVALUATIONS = 40  # looks at the held-out cells in a full run
RESTARTS = 3
# A later state is taken unless it is clearly worse on held-out cells: late steps have a
# low learning rate and make better samples while that loss hardly moves.
TOLERANCE = 0.02
# States before this share of the run do not compete with later ones. On a small table
# the held-out loss may rise from the start, as observed cells are memorised, while rows
# get better until the learning rate has come down: on 1,800 rows of Adult, Shape is
# .932 at the best early state and .971 at the end.
LATE = 0.8
# With `patience` the curve is judged by the mean of so many looks: on a small table few
# cells are held out, and the lowest of many noisy values is luck.
SMOOTHED = 3

STOPS = ("steps", "time", "held-out cells")
HISTORY = ("step", "loss", "held_out", "lr", "seconds")


@dataclass
class Run:
    """What happened: one history row per look, and the best averaged weights."""

    history: list[dict[str, float]] = field(default_factory=list)
    best_loss: float = math.inf
    best_step: int = 0
    best_weights: Tensor | None = None
    looks_since_best: int = 0
    looks: list[float] = field(default_factory=list)
    late: bool = False
    restarts: int = 0
    seconds: float = 0.0
    stopped: str = "steps"

    def facts(self) -> dict[str, object]:
        """Return the part that is not tensors."""
        hidden = ("best_weights",)
        return {k: v for k, v in vars(self).items() if k not in hidden}

    @classmethod
    def from_facts(cls, facts: Any) -> Run:
        """Rebuild from `facts()`; raises `ValueError` on what no run has done."""
        run = cls(**facts)
        known = cls()
        for name, value in facts.items():
            counts = type(value) is int or name == "seconds"
            if type(value) is not type(getattr(known, name)) or (
                counts and not value >= 0
            ):
                raise ValueError(f"{name} of a run cannot be {value!r}")
        for row in run.history:
            # a backbone may add what it says of itself
            named = isinstance(row, dict) and row.keys() >= set(HISTORY)
            if not named or not all(type(v) in (int, float) for v in row.values()):
                raise ValueError("the history of a run has rows of numbers")
        if run.stopped not in STOPS:
            raise ValueError(f"a run is not stopped by {run.stopped!r}")
        if not all(type(look) is float for look in run.looks):
            raise ValueError("looks at held-out cells are numbers")
        return run


def _look_every(trainer: Trainer) -> int:
    return LOOK_GPU if trainer.device.type == "cuda" else LOOK


def _find_culprit(trainer: Trainer, good: dict[str, Tensor], done: float) -> str:
    """Replay the steps since `good` one by one; say which column broke, and where."""
    names = trainer.data.completions.table.layout.names
    trainer.restore(good)
    for _ in range(_look_every(trainer)):
        trainer.step(done)
        assert trainer.last is not None
        losses, counted = trainer.last
        losses = torch.where(counted, losses, 0.0)
        losses = torch.where(losses.isfinite(), losses, torch.inf)
        peaks = parallel.largest(losses.amax(0))
        where = f"at step {trainer.steps_done}"
        largest = names[int(peaks.argmax())]
        if peaks.isinf().any():
            return f"the loss of column {largest!r} {where}"
        if not math.isfinite(trainer.window()):
            return f"a weight {where}, where column {largest!r} had the largest loss,"
    return f"the loss after step {int(good['counters'][0])}"


class _Clock:
    """How much of the run is behind us, by steps or by the wall clock."""

    def __init__(self, steps: int, seconds: float | None, already: float) -> None:
        self.steps, self.seconds = steps, seconds
        self.start = time.monotonic() - already

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def done(self, step: int) -> float:
        share = step / self.steps
        if self.seconds is not None:
            # one clock rules: processes that stop at different steps wait for ever
            elapsed = parallel.lead(self.elapsed)
            share = max(share, elapsed / max(self.seconds, 1e-9))
        return min(share, 1.0)


def steps(
    trainer: Trainer,
    seconds: float | None = None,
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
) -> Generator[None, None, Run]:
    """Train until the budget of steps or time or the patience is spent.

    Gives way after every step.

    Parameters
    ----------
    trainer : Trainer
    seconds : float, optional
        Wall-clock budget. The learning rate comes down in time for it.
    progress : Progress
    checkpoint : Checkpoint, optional
        Resumed from when it exists; written every so often.

    Returns
    -------
    Run
        The backbone then holds the last averaged weights that did about as well as any
        on held-out cells, or the last ones when no cells were held out.
    """
    settings = trainer.settings
    run = Run()
    saved = checkpoint.load() if checkpoint else None
    if saved and checkpoint:
        tensors, facts = saved
        try:
            check_state(tensors, trainer.state())
            run = Run.from_facts(facts)
            trainer.restore(tensors)
        # a generator says in its own way that a state is none
        except (TypeError, ValueError, RuntimeError) as error:
            raise checkpoint.refusal(str(error)) from error
        if "best" in tensors:
            run.best_weights = tensors["best"].to(trainer.device)
        if parallel.rank() and f"noise/{parallel.rank()}" not in tensors:
            trainer.reseed_noise(trainer.steps_done)
        log.info("training goes on from step %d", trainer.steps_done)
    parallel.check_same(
        str(trainer.steps_done), "a checkpoint must be readable by all processes"
    )
    watching = bool(trainer.data.hidden.any())
    look = _look_every(trainer)
    evaluate_every = look * max(1, round(settings.steps / EVALUATIONS / look))
    clock = _Clock(settings.steps, seconds, run.seconds)
    good = trainer.state()
    shown: dict[str, float] = {}
    last_report = 0.0

    while trainer.steps_done < settings.steps:
        done = clock.done(trainer.steps_done)
        if done >= 1.0:
            run.stopped = "time"
            break
        trainer.step(done)
        yield
        if clock.elapsed - last_report > 0.1:
            last_report = clock.elapsed
            progress("train", trainer.steps_done, settings.steps, shown)
        last = trainer.steps_done == settings.steps
        if trainer.steps_done % look and not last:
            continue

        loss = trainer.window()
        if not math.isfinite(loss):
            _restart(trainer, run, good, done)
            continue
        run.seconds = clock.elapsed
        row = _row(trainer, run, loss, done)
        if watching and (last or trainer.steps_done % evaluate_every == 0):
            row["held_out"] = _watch(trainer, run, done)
            shown["held_out"] = row["held_out"]
        shown["loss"] = loss
        run.history.append(row)
        good = trainer.state(good)
        if checkpoint and parallel.lead(checkpoint.due):
            noise = _noise_of_others(good["noise"])
            best = {} if run.best_weights is None else {"best": run.best_weights}
            if parallel.leads():
                checkpoint.save(good | noise | best, run.facts())
        if settings.patience and run.looks_since_best >= settings.patience:
            run.stopped = "held-out cells"
            break
    if run.stopped == "time":
        # the clock stops a run anywhere, also just after a step that broke it
        loss = trainer.window()
        if not math.isfinite(loss):
            trainer.restore(good)
        run.seconds = clock.elapsed
        row = _row(trainer, run, loss, 1.0)
        if watching:
            row["held_out"] = _watch(trainer, run, 1.0)
        if trainer.steps_done > (run.history[-1]["step"] if run.history else 0):
            run.history.append(row)
    progress("train", trainer.steps_done, trainer.steps_done, shown)
    trainer.finalize(run.best_weights)
    run.best_step = run.best_step or trainer.steps_done
    return run


def train(
    trainer: Trainer,
    seconds: float | None = None,
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
) -> Run:
    """Train to the end; see `steps`."""
    with trainer.matmul_precision():
        way = steps(trainer, seconds, progress, checkpoint)
        while True:
            try:
                next(way)
            except StopIteration as end:
                run: Run = end.value
                return run


def all_or_raise(results: Sequence[Run | TrainingDiverged]) -> list[Run]:
    """Return the runs if all came to an end, or raise what the first broke with."""
    for result in results:
        if isinstance(result, TrainingDiverged):
            raise result
    return [result for result in results if isinstance(result, Run)]


def train_many(
    trainers: Sequence[Trainer],
    progress: Progress = silent,
    seconds: float | None = None,
) -> list[Run | TrainingDiverged]:
    """Train several to the end, a step of each in turn.

    Every run is what it would be alone. One that diverges does not stop the others: it
    leaves its error in the place of its result.
    """
    results: list[Run | TrainingDiverged | None] = [None] * len(trainers)
    stacks = stacked(trainers)
    together = {id(t) for stack in stacks for t in stack.members}
    ways = {
        i: (steps(t, seconds), Lane(None if id(t) in together else t.device))
        for i, t in enumerate(trainers)
    }
    for _, lane in ways.values():
        lane.start()
    total = sum(t.settings.steps for t in trainers)
    last_report = 0.0
    with ExitStack() as settings:
        for trainer in trainers:
            settings.enter_context(trainer.matmul_precision())
        while ways:
            for i, (way, lane) in list(ways.items()):
                with lane.taken():
                    try:
                        next(way)
                        continue
                    except StopIteration as end:
                        results[i] = end.value
                    except TrainingDiverged as error:
                        results[i] = error
                del ways[i]
                lane.leave()
            for stack in stacks:
                stack.advance()
            if time.monotonic() - last_report > 0.1 or not ways:
                last_report = time.monotonic()
                progress("train", sum(t.steps_done for t in trainers), total, {})
    return [result for result in results if result is not None]


def _row(trainer: Trainer, run: Run, loss: float, done: float) -> dict[str, float]:
    """Return a row of the history, before anyone looked at the held-out cells."""
    return {
        "step": float(trainer.steps_done),
        "loss": loss,
        "held_out": math.nan,
        "lr": trainer.learning_rate(done),
        "seconds": run.seconds,
        **diagnostics(trainer.backbone),
    }


def _noise_of_others(noise: Tensor) -> dict[str, Tensor]:
    """Return where the noise of the other processes stands, for a checkpoint."""
    every = parallel.gathered(noise)
    return {f"noise/{i}": every[i] for i in range(1, len(every))}


def _watch(trainer: Trainer, run: Run, done: float) -> float:
    """Score the averaged weights on held-out cells; keep them unless clearly worse.

    A run that patience may end keeps the best of the smoothed curve instead: what comes
    after a minimum is worse for good, however little each look says so.
    """
    loss = trainer.held_out_loss()
    run.looks = [*run.looks, loss][-SMOOTHED:]
    if done >= LATE and not run.late:
        run.late = True
        if not trainer.settings.patience:
            run.best_loss = math.inf
    judged, tolerance = loss, TOLERANCE
    if trainer.settings.patience:
        judged, tolerance = sum(run.looks) / len(run.looks), 0.0
    run.best_loss = min(run.best_loss, judged)
    run.looks_since_best += 1
    if judged <= run.best_loss * (1 + tolerance):
        run.best_step = trainer.steps_done
        run.best_weights = trainer.average.weights.clone()
        run.looks_since_best = 0
    return loss


def _restart(trainer: Trainer, run: Run, good: dict[str, Tensor], done: float) -> None:
    """Go back to the last good state with half the learning rate, a few times."""
    culprit = _find_culprit(trainer, good, done)
    run.restarts += 1
    if run.restarts > RESTARTS:
        raise TrainingDiverged(
            f"{culprit} is not finite, also after {RESTARTS} restarts with a smaller "
            "learning rate; look at that column's values, or lower lr"
        )
    trainer.restore(good)
    answers = [recover(trainer.backbone), "the learning rate is halved"]
    trainer.lr_scale /= 2
    trainer.reseed_noise(run.restarts)
    good.update(trainer.state())
    log.warning(
        "%s is not finite; going on from step %d: %s",
        culprit,
        trainer.steps_done,
        " and ".join(filter(None, answers)),
    )
