"""What takes turns in `speed.py`: a table, a clock, and ways to train and sample."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pandas as pd
import torch

import augmask as am
from augmask.device import fast_matmul
from augmask.diffusion import build_backbone
from augmask.diffusion.base import (
    Batch,
    init_from_data,
    reduction_of,
    type_weights,
)
from augmask.diffusion.reduce import reduce_cells
from augmask.prepare import Ready, prepare_fit
from augmask.progress import silent
from augmask.train import loop

CARDS = (2, 9, 16, 7, 15, 6, 5, 2, 42)  # Adult's
N_NUM = 6
WARM_UP = 60  # steps of ours; one read of the device lies within


def adult_like(n: int, seed: int = 0) -> pd.DataFrame:
    """Return rows in the shape of Adult: six numbers, nine categories of 2 to 42."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    frame: dict[str, Any] = {
        f"x{j}": z[:, j % 3] + rng.normal(size=n) for j in range(N_NUM)
    }
    for j, card in enumerate(CARDS):
        edges = np.quantile(z[:, j % 3], 1 - 0.88 ** np.arange(1, card))
        codes = np.searchsorted(edges, z[:, j % 3] + 0.5 * rng.normal(size=n))
        codes[:card] = np.arange(card)  # every level is there
        frame[f"c{j}"] = np.char.add("level ", codes.astype(str))
    return pd.DataFrame(frame)


class Clock:
    """Seconds on the wall, or seconds that this process and its workers computed."""

    on_wall = True

    def __call__(self) -> float:
        """Return the time."""
        if self.on_wall:
            return time.perf_counter()
        used = os.times()
        return used.user + used.system + used.children_user + used.children_system


now = Clock()


def finalize(device: torch.device) -> None:
    """Wait until the device has done what it was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def ready_of(backbone: str, frame: pd.DataFrame, options: dict, device: str) -> Ready:
    """Return what `AugMask.fit` would train, a moment before it does."""
    model = am.AugMask(
        backbone=backbone,
        augmenter="mean",
        preset="paper",
        options=options,
        device=device,
    )
    holed = am.ampute(frame, mechanism="mcar", ratio=0.3, seed=0)
    kinds = {c: "float" if c.startswith("x") else "category" for c in frame}
    return prepare_fit(model, holed, kinds, None, silent)


def untrained(backbone: str, ready: Ready) -> Any:
    """Return the same backbone once more, for others to train."""
    built = build_backbone(backbone, ready.layout, 0, **ready.settings.network)
    init_from_data(built, ready.table)
    return built.to(ready.trainer.device)


class Fitted:
    """Our training as `fit` runs it; it can be left and taken up again."""

    def __init__(self, ready: Ready) -> None:
        self.trainer = ready.trainer
        self._way = loop.steps(ready.trainer)

    def __call__(self, seconds: float) -> float:
        """Train for so many seconds; return steps a second."""
        trainer = self.trainer
        with ExitStack() as stack:
            stack.enter_context(fast_matmul(trainer.device))
            stack.enter_context(trainer.matmul_precision())
            finalize(trainer.device)
            first, began = trainer.steps_done, now()
            while now() - began < seconds:
                next(self._way)
            finalize(trainer.device)
            passed = now() - began
        return (trainer.steps_done - first) / passed

    def warm_up(self) -> float:
        """Take the first steps, compiling and recording; return the seconds."""
        began = now()
        while self.trainer.steps_done < WARM_UP:
            self(0.01)
        return now() - began


class Stepping:
    """Training that is an iterator of steps: a stand-in, or our eager loop.

    Parameters
    ----------
    way : iterator
    device : torch.device
    whole : int
        Steps in a pass over the table; only whole passes are timed, because what a
        loader does between them belongs to training too.
    """

    def __init__(
        self, way: Iterator[None], device: torch.device, whole: int = 1
    ) -> None:
        self._way, self._device, self._whole = way, device, whole
        for _ in range(whole if whole > 1 else 5):
            next(way)

    def __call__(self, seconds: float) -> float:
        """Train for so many seconds; return steps a second."""
        finalize(self._device)
        steps, began = 0, now()
        while now() - began < seconds:
            for _ in range(self._whole):
                next(self._way)
            steps += self._whole
        finalize(self._device)
        return steps / (now() - began)


def eager_steps(
    backbone: Any, num: torch.Tensor, cat: torch.Tensor, batch: int
) -> Iterator[None]:
    """Train our backbone as one would write it: rows on the device, nothing else."""
    device = next(backbone.parameters()).device
    num, cat = num.to(device), cat.to(device)
    observed = torch.ones(len(num), num.shape[1] + cat.shape[1], device=device) > 0
    optimizer = torch.optim.AdamW(backbone.parameters(), lr=1e-3, weight_decay=0.0)
    average = [p.detach().clone() for p in backbone.parameters()]
    noise = torch.Generator(device).manual_seed(0)
    done = torch.zeros((), device=device)
    while True:
        for rows in torch.randperm(len(num), device=device).split(batch):
            cell = backbone.cell_loss(Batch(num[rows], cat[rows]), noise)
            loss = reduce_cells(
                cell,
                observed[rows],
                reduction_of(backbone),
                num.shape[1],
                type_weights(backbone, done),
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(average, list(backbone.parameters()), 1e-3)
            yield


def together(
    backbone: str, frame: pd.DataFrame, options: dict, device: str, k: int, steps: int
) -> tuple[float, float]:
    """Return the steps a second of `k` models at once, and seconds until they ran."""
    options = {**options, "steps": steps, "compile": "always"}
    trainers = [ready_of(backbone, frame, options, device).trainer for _ in range(k)]
    began = now()
    runs = loop.train_many(trainers)
    passed = now() - began
    rates = []
    for run in runs:
        history = pd.DataFrame(run.history)
        late = history[history["step"] >= steps / 3].iloc[[0, -1]]
        rates.append(float((late["step"].diff() / late["seconds"].diff()).iloc[-1]))
    return sum(rates), passed - k * steps / sum(rates)


def rows_a_second(sample: Callable[[], int], seconds: float, device: str) -> float:
    """Sample again and again for so many seconds, at least once."""
    finalize(torch.device(device))
    rows, began = 0, now()
    while not rows or now() - began < seconds:
        rows += sample()
    finalize(torch.device(device))
    return rows / (now() - began)


@contextmanager
def exact_matmul() -> Iterator[None]:
    """Let stand-ins multiply in float32, which is what their code does."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
