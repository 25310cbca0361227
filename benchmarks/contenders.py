"""The contenders of `speed.py`: a table, a clock, training and sampling."""

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
from augmask.device import allow_tf32
from augmask.diffusion import build_backbone
from augmask.diffusion.base import (
    Batch,
    init_from_data,
    reduction_of,
    type_weights,
)
from augmask.diffusion.reduce import reduce_cells
from augmask.prepare import FitSetup, prepare_fit
from augmask.train import loop

CARDS = (2, 9, 16, 7, 15, 6, 5, 2, 42)  # Adult's
N_NUM = 6
WARM_UP = 60  # steps before timing; they include one read of the device


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
        codes[:card] = np.arange(card)  # every level occurs
        frame[f"c{j}"] = np.char.add("level ", codes.astype(str))
    return pd.DataFrame(frame)


class Clock:
    """Wall-clock seconds, or CPU seconds of this process and its workers."""

    on_wall = True

    def __call__(self) -> float:
        """Return the time."""
        if self.on_wall:
            return time.perf_counter()
        used = os.times()
        return used.user + used.system + used.children_user + used.children_system


now = Clock()


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def prepared_fit(
    backbone: str, frame: pd.DataFrame, options: dict, device: str
) -> FitSetup:
    """Return the setup that `AugMask.fit` would train."""
    model = am.AugMask(
        backbone=backbone,
        augmenter="mean",
        preset="paper",
        options=options,
        device=device,
    )
    incomplete = am.ampute(frame, mechanism="mcar", ratio=0.3, seed=0)
    kinds = {c: "float" if c.startswith("x") else "category" for c in frame}
    return prepare_fit(model, incomplete, schema=kinds)


def untrained(backbone: str, setup: FitSetup) -> Any:
    """Return a new backbone with the same initial weights."""
    built = build_backbone(
        backbone, setup.state.layout, 0, **setup.state.settings.network
    )
    init_from_data(built, setup.table)
    return built.to(setup.trainer.device)


class Fitted:
    """Our training as `fit` runs it; it continues from call to call."""

    def __init__(self, setup: FitSetup) -> None:
        self.trainer = setup.trainer
        self._steps = loop.training_steps(setup.trainer)

    def __call__(self, seconds: float) -> float:
        """Train for `seconds`; return steps per second."""
        trainer = self.trainer
        with ExitStack() as stack:
            stack.enter_context(allow_tf32(trainer.device))
            stack.enter_context(trainer.matmul_precision())
            synchronize(trainer.device)
            first, began = trainer.steps_done, now()
            while now() - began < seconds:
                next(self._steps)
            synchronize(trainer.device)
            passed = now() - began
        return (trainer.steps_done - first) / passed

    def warm_up(self) -> float:
        """Compile and capture in the first steps; return the seconds they take."""
        began = now()
        while self.trainer.steps_done < WARM_UP:
            self(0.01)
        return now() - began


class Stepping:
    """Training as an iterator of steps: a stand-in, or our eager loop.

    Parameters
    ----------
    steps : iterator
    device : torch.device
    whole : int
        Steps per epoch; only whole epochs are timed, because the work of a loader
        between epochs is part of training.
    """

    def __init__(
        self, steps: Iterator[None], device: torch.device, whole: int = 1
    ) -> None:
        self._steps, self._device, self._whole = steps, device, whole
        for _ in range(whole if whole > 1 else 5):
            next(steps)

    def __call__(self, seconds: float) -> float:
        """Train for `seconds`; return steps per second."""
        synchronize(self._device)
        steps, began = 0, now()
        while now() - began < seconds:
            for _ in range(self._whole):
                next(self._steps)
            steps += self._whole
        synchronize(self._device)
        return steps / (now() - began)


def eager_steps(
    backbone: Any, num: torch.Tensor, cat: torch.Tensor, batch: int
) -> Iterator[None]:
    """Train our backbone by plain PyTorch code with the rows on the device."""
    device = next(backbone.parameters()).device
    num, cat = num.to(device), cat.to(device)
    observed = torch.ones(len(num), num.shape[1] + cat.shape[1], device=device) > 0
    optimizer = torch.optim.AdamW(backbone.parameters(), lr=1e-3, weight_decay=0.0)
    ema = [p.detach().clone() for p in backbone.parameters()]
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
                torch._foreach_lerp_(ema, list(backbone.parameters()), 1e-3)
            yield


def together(
    backbone: str, frame: pd.DataFrame, options: dict, device: str, k: int, steps: int
) -> tuple[float, float]:
    """Return steps per second of `k` batched models, and the seconds before timing."""
    options = {**options, "steps": steps, "compile": "always"}
    trainers = [
        prepared_fit(backbone, frame, options, device).trainer for _ in range(k)
    ]
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
    """Return rows per second, sampling for `seconds` and at least once."""
    synchronize(torch.device(device))
    rows, began = 0, now()
    while not rows or now() - began < seconds:
        rows += sample()
    synchronize(torch.device(device))
    return rows / (now() - began)


@contextmanager
def exact_matmul() -> Iterator[None]:
    """Context manager: multiply in float32, as the published code does."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
