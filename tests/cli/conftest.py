"""The command line run in this process, on a table and a model of a few rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from augmask.cli import main

# a network of a few weights: what these tests ask does not depend on its size
TINY = [
    *("--augmenter", "ecdf", "--steps", "20", "--device", "cpu"),
    *("--set", "width=16", "--set", "depth=1", "--set", "time_width=8"),
    *(
        "--set",
        "batch_size=32",
        "--set",
        "sampling_steps=4",
        "--set",
        "completions=one",
    ),
]


@dataclass(frozen=True)
class Result:
    """What a command left on the screen."""

    code: int
    out: str
    err: str


RunCli = Callable[..., Result]


@pytest.fixture
def run_cli(monkeypatch, capsys) -> RunCli:
    def run(*arguments: object) -> Result:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["augmask", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        screen = capsys.readouterr()
        return Result(int(stopped.value.code or 0), screen.out, screen.err)

    return run


def make_frame(n: int = 60) -> pd.DataFrame:
    """Return a table with missing integers, decimals, words and booleans."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "weight": rng.normal(70, 12, n).round(1),
            "job": rng.choice(["cook", "smith", "clerk"], n),
            "smokes": rng.random(n) < 0.3,
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.2)


@pytest.fixture(scope="session")
def good_model(tmp_path_factory) -> Path:
    """Return a model file; copy it before damaging it."""
    from augmask.model import AugMask

    path = tmp_path_factory.mktemp("model") / "good.augmask"
    sizes = {"width": 16, "depth": 1, "time_width": 8, "sampling_steps": 4}
    model = AugMask(
        augmenter="ecdf", options={"steps": 5, "batch_size": 32, **sizes}, device="cpu"
    )
    model.fit(make_frame()).save(path)
    return path
