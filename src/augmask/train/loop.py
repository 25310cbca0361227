"""The training loop: steps until the budget is spent, logging and validating.

Every `LOG_EVERY` steps the loss is read from the device. If it is not finite, training
returns to the last good state, finds the step and the column that failed, and restarts
with half the learning rate. From time to time the EMA weights are validated on observed
cells that are held out of the loss; `train` leaves the last of the late states that are
about as good as the best in the backbone.

`training_steps` is a generator that yields after every step, so several models can
alternate on one GPU.
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
from augmask.train.accelerated import batch_models
from augmask.train.accelerated.streams import SideStream
from augmask.train.checkpoint import Checkpoint, check_state
from augmask.train.interrupts import Interrupts
from augmask.train.trainer import Trainer

log = logging.getLogger("augmask")

LOG_EVERY = 100  # steps between two reads of the device
LOG_EVERY_CUDA = 200  # a read stalls a GPU
VALIDATIONS = 40  # in a full run
MAX_RESTARTS = 3
REPORT_SECONDS = 0.1  # between two progress reports
# A later state replaces the best one unless its held-out loss is clearly worse: late
# steps have a low learning rate and give better samples while that loss hardly moves.
TOLERANCE = 0.02
# States before this fraction of the run do not compete with later ones. On a small
# table the held-out loss may rise from the start, as the network memorises observed
# cells, while samples improve until the learning rate has decayed: on 1,800 rows of
# Adult, Shape is .932 at the best early state and .971 at the end.
LATE = 0.8
# With `patience` the mean of this many validations counts: on a small table few cells
# are held out, and the lowest of many noisy values is luck.
SMOOTHING = 3

STOPS = ("steps", "time", "held-out cells")
HISTORY = ("step", "loss", "held_out", "lr", "seconds")


@dataclass
class TrainingRun:
    """The record of a training: its history and the best EMA weights."""

    history: list[dict[str, float]] = field(default_factory=list)
    best_loss: float = math.inf
    best_step: int = 0
    best_weights: Tensor | None = None
    validations_since_best: int = 0
    recent_losses: list[float] = field(default_factory=list)
    late: bool = False
    restarts: int = 0
    seconds: float = 0.0
    stopped: str = "steps"

    def to_dict(self) -> dict[str, object]:
        """Return everything but the weights, for a checkpoint."""
        return {k: v for k, v in vars(self).items() if k != "best_weights"}

    @classmethod
    def from_dict(cls, values: Any) -> TrainingRun:
        """Rebuild a run from `to_dict()`; invalid values raise `ValueError`."""
        run = cls(**values)
        default = cls()
        for name, value in values.items():
            non_negative = type(value) is int or name == "seconds"
            if type(value) is not type(getattr(default, name)) or (
                non_negative and not value >= 0
            ):
                raise ValueError(f"invalid {name}: {value!r}")
        for row in run.history:
            # a backbone may add its own diagnostics
            complete = isinstance(row, dict) and row.keys() >= set(HISTORY)
            if not complete or not all(type(v) in (int, float) for v in row.values()):
                raise ValueError("invalid history: rows must hold numbers")
            if row.keys() != run.history[0].keys():
                raise ValueError("invalid history: rows must have the same columns")
        if run.stopped not in STOPS:
            raise ValueError(f"invalid stopped: {run.stopped!r}")
        if not all(type(loss) is float for loss in run.recent_losses):
            raise ValueError("invalid recent_losses: they must be numbers")
        return run


class _Budget:
    """How much of the budget of steps and wall-clock time is used."""

    def __init__(self, steps: int, seconds: float | None, elapsed: float) -> None:
        self.steps, self.seconds = steps, seconds
        self.start = time.monotonic() - elapsed

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def fraction_used(self, step: int) -> float:
        fraction = step / self.steps
        if self.seconds is not None:
            # one clock decides: processes that stop at different steps would deadlock
            elapsed = parallel.broadcast_value(self.elapsed)
            fraction = max(fraction, elapsed / max(self.seconds, 1e-9))
        return min(fraction, 1.0)


def _log_every(trainer: Trainer) -> int:
    return LOG_EVERY_CUDA if trainer.device.type == "cuda" else LOG_EVERY


def _resume(trainer: Trainer, checkpoint: Checkpoint | None) -> TrainingRun:
    """Return the run of the checkpoint, restored in the trainer, or else a new one."""
    saved = checkpoint.load() if checkpoint else None
    if not (saved and checkpoint):
        return TrainingRun()
    tensors, values = saved
    try:
        check_state(tensors, trainer.state())
        run = TrainingRun.from_dict(values)
        trainer.restore(tensors)
    # a torch.Generator raises RuntimeError for an invalid state
    except (TypeError, ValueError, RuntimeError) as error:
        raise checkpoint.refusal(str(error)) from error
    if "best" in tensors:
        run.best_weights = tensors["best"].to(trainer.device)
    if parallel.rank() and f"noise/{parallel.rank()}" not in tensors:
        trainer.reseed_noise(trainer.steps_done)
    log.info("resuming training at step %d", trainer.steps_done)
    return run


def _save(checkpoint: Checkpoint, state: dict[str, Tensor], run: TrainingRun) -> None:
    """Write a checkpoint, including the noise state of every process."""
    noise = parallel.all_gather(state["noise"])
    tensors = state | {f"noise/{i}": noise[i] for i in range(1, len(noise))}
    if run.best_weights is not None:
        tensors["best"] = run.best_weights
    if parallel.is_main_process():
        checkpoint.save(tensors, run.to_dict())


def _stop(
    interrupts: Interrupts,
    checkpoint: Checkpoint | None,
    good: dict[str, Tensor],
    run: TrainingRun,
) -> None:
    """Save the last good state, and raise what the pending signal raises."""
    step = int(good["counters"][0])
    if checkpoint is None:
        note = "nothing was saved; name a checkpoint to be able to resume"
    elif not step:
        note = "nothing was saved: the training had hardly begun"
    else:
        _save(checkpoint, good, run)
        note = (
            f"the training up to step {step:,} is in {checkpoint.path}; to resume it, "
            "start again with the same table, settings, seed and checkpoint"
        )
    try:
        interrupts.raise_pending()
    except BaseException as stop:
        stop.add_note(f"the training was stopped; {note}")
        raise


def _validate(trainer: Trainer, run: TrainingRun, done: float) -> float:
    """Validate the EMA weights on held-out cells; keep them unless clearly worse.

    With `patience` the best of the smoothed curve is kept instead: after its minimum
    the loss rises for good, if only slightly from one validation to the next.
    """
    loss = trainer.held_out_loss()
    run.recent_losses = [*run.recent_losses, loss][-SMOOTHING:]
    if done >= LATE and not run.late:
        run.late = True
        if not trainer.settings.patience:
            run.best_loss = math.inf
    score, tolerance = loss, TOLERANCE
    if trainer.settings.patience:
        score, tolerance = sum(run.recent_losses) / len(run.recent_losses), 0.0
    run.best_loss = min(run.best_loss, score)
    run.validations_since_best += 1
    if score <= run.best_loss * (1 + tolerance):
        run.best_step = trainer.steps_done
        run.best_weights = trainer.ema.weights.clone()
        run.validations_since_best = 0
    return loss


def _find_failure(trainer: Trainer, good: dict[str, Tensor], done: float) -> str:
    """Repeat the steps since `good` to find the step and the column that failed."""
    names = trainer.data.layout.names
    trainer.restore(good)
    for _ in range(_log_every(trainer)):
        trainer.step(done)
        assert trainer.last is not None
        losses, supervised = trainer.last
        losses = torch.where(supervised, losses, 0.0)
        losses = torch.where(losses.isfinite(), losses, torch.inf)
        by_column = parallel.all_reduce_max(losses.amax(0))
        column = names[int(by_column.argmax())]
        step = f"at step {trainer.steps_done}"
        if by_column.isinf().any():
            return f"the loss of column {column!r} {step}"
        if not math.isfinite(trainer.mean_loss()):
            return f"a weight {step}, where column {column!r} had the largest loss,"
    return f"the loss after step {int(good['counters'][0])}"


def _restart(
    trainer: Trainer, run: TrainingRun, good: dict[str, Tensor], done: float
) -> None:
    """Restart from the last good state with half the learning rate, a few times."""
    failure = _find_failure(trainer, good, done)
    run.restarts += 1
    if run.restarts > MAX_RESTARTS:
        raise TrainingDiverged(
            f"{failure} is not finite, even after {MAX_RESTARTS} restarts with a lower "
            "learning rate; check the values of that column or lower lr"
        )
    trainer.restore(good)
    changes = [recover(trainer.backbone), "the learning rate is halved"]
    trainer.lr_scale /= 2
    trainer.reseed_noise(run.restarts)
    good.update(trainer.state())
    log.warning(
        "%s is not finite; restarting from step %d: %s",
        failure,
        trainer.steps_done,
        " and ".join(filter(None, changes)),
    )


def training_steps(
    trainer: Trainer,
    seconds: float | None = None,
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
    interrupts: Interrupts | None = None,
) -> Generator[None, None, TrainingRun]:
    """Train until the budget of steps or time, or the patience, is exhausted.

    Yields after every step.

    Parameters
    ----------
    trainer : Trainer
    seconds : float, optional
        Wall-clock budget. The learning rate decays in time for it.
    progress : Progress
    checkpoint : Checkpoint, optional
        Resumed if it exists, and written at intervals.
    interrupts : Interrupts, optional
        Once a signal is pending, the checkpoint is written and the signal has its
        effect.

    Returns
    -------
    TrainingRun
        The backbone then holds the last EMA weights that did about as well as any on
        held-out cells, or the final ones without held-out cells.
    """
    settings = trainer.settings
    run = _resume(trainer, checkpoint)
    parallel.check_same(
        str(trainer.steps_done), "a checkpoint must be readable by all processes"
    )
    validating = trainer.data.validates
    log_every = _log_every(trainer)
    validate_every = log_every * max(1, round(settings.steps / VALIDATIONS / log_every))
    budget = _Budget(settings.steps, seconds, run.seconds)
    good = trainer.state()
    numbers: dict[str, float] = {}
    last_report = 0.0

    def log_row(loss: float, done: float, validate: bool) -> dict[str, float]:
        run.seconds = budget.elapsed
        row = {
            "step": float(trainer.steps_done),
            "loss": loss,
            "held_out": math.nan,
            "lr": trainer.learning_rate(done),
            "seconds": run.seconds,
            **diagnostics(trainer.backbone),
        }
        if validate:
            row["held_out"] = _validate(trainer, run, done)
        return row

    while trainer.steps_done < settings.steps:
        done = budget.fraction_used(trainer.steps_done)
        if done >= 1.0:
            run.stopped = "time"
            break
        trainer.step(done)
        yield
        if interrupts is not None and interrupts.pending:
            _stop(interrupts, checkpoint, good, run)
        if budget.elapsed - last_report > REPORT_SECONDS:
            last_report = budget.elapsed
            progress("train", trainer.steps_done, settings.steps, numbers)
        last = trainer.steps_done == settings.steps
        if trainer.steps_done % log_every and not last:
            continue

        loss = trainer.mean_loss()
        if not math.isfinite(loss):
            _restart(trainer, run, good, done)
            continue
        validate = validating and (last or trainer.steps_done % validate_every == 0)
        row = log_row(loss, done, validate)
        run.history.append(row)
        numbers["loss"] = loss
        if validate:
            numbers["held_out"] = row["held_out"]
        good = trainer.state(good)
        if checkpoint and parallel.broadcast_value(checkpoint.due):
            _save(checkpoint, good, run)
        if settings.patience and run.validations_since_best >= settings.patience:
            run.stopped = "held-out cells"
            break
    if run.stopped == "time":
        # time can run out anywhere, also just after a step that failed
        loss = trainer.mean_loss()
        if not math.isfinite(loss):
            trainer.restore(good)
        row = log_row(loss, 1.0, validating)
        if trainer.steps_done > (run.history[-1]["step"] if run.history else 0):
            run.history.append(row)
    progress("train", trainer.steps_done, trainer.steps_done, numbers)
    trainer.finalize(run.best_weights)
    run.best_step = run.best_step or trainer.steps_done
    return run


def train(
    trainer: Trainer,
    seconds: float | None = None,
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
) -> TrainingRun:
    """Train one model to the end; see `training_steps`."""
    # several processes are not stopped at the same step, so none of them could save
    single = parallel.world_size() == 1
    with trainer.matmul_precision(), ExitStack() as held:
        interrupts = held.enter_context(Interrupts()) if single else None
        steps = training_steps(trainer, seconds, progress, checkpoint, interrupts)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                run: TrainingRun = end.value
                return run


def train_many(
    trainers: Sequence[Trainer],
    progress: Progress = silent,
    seconds: float | None = None,
) -> list[TrainingRun | TrainingDiverged]:
    """Train several models to the end, one step of each in turn.

    On a GPU, models of the same architecture share their steps (`BatchedModels`), and
    each of the others has its own CUDA stream. Every model ends as it would alone. One
    that diverges does not stop the others: its error takes the place of its result.
    """
    results: list[TrainingRun | TrainingDiverged | None] = [None] * len(trainers)
    batches = batch_models(trainers)
    batched = {id(trainer) for batch in batches for trainer in batch.members}
    running = {
        i: (
            training_steps(trainer, seconds),
            SideStream(None if id(trainer) in batched else trainer.device),
        )
        for i, trainer in enumerate(trainers)
    }
    for _, stream in running.values():
        stream.fork()
    total = sum(trainer.settings.steps for trainer in trainers)
    last_report = 0.0
    with ExitStack() as precisions:
        for trainer in trainers:
            precisions.enter_context(trainer.matmul_precision())
        while running:
            for i, (steps, stream) in list(running.items()):
                with stream.active():
                    try:
                        next(steps)
                        continue
                    except StopIteration as end:
                        results[i] = end.value
                    except TrainingDiverged as error:
                        results[i] = error
                del running[i]
                stream.join()
            for batch in batches:
                batch.step()
            if time.monotonic() - last_report > REPORT_SECONDS or not running:
                last_report = time.monotonic()
                progress("train", sum(t.steps_done for t in trainers), total, {})
    return [result for result in results if result is not None]


def all_or_raise(
    results: Sequence[TrainingRun | TrainingDiverged],
) -> list[TrainingRun]:
    """Return the runs, or raise the first error among them."""
    for result in results:
        if isinstance(result, TrainingDiverged):
            raise result
    return [result for result in results if isinstance(result, TrainingRun)]
