"""Small tables and models to attack."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from augmask import AugMask

TINY = {
    "steps": 3,
    "batch_size": 16,
    "width": 8,
    "depth": 1,
    "time_width": 8,
    "sampling_steps": 3,
    "validation_fraction": 0.0,
}
N = 60


def make_frame(n: int = N, seed: int = 0) -> pd.DataFrame:
    """Return a table of every kind of column, with missing values."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "kg": rng.normal(70, 9, n).round(1),
            "low": rng.integers(0, 40, n).astype(float),
            "job": rng.choice(["smith", "cook", "clerk"], n),
            "smokes": rng.choice([True, False], n).astype(object),
            "day": pd.date_range("2020", periods=n, tz="Europe/Paris"),
        }
    ).mask(rng.random((n, 5)) < 0.2)
    frame["high"] = frame["low"].fillna(40) + rng.integers(0, 9, n)
    frame["grade"] = pd.Categorical(rng.choice(["a", "b"], n), ["a", "b", "c"])
    frame.insert(0, "key", [f"k{i:05d}" for i in range(n)])
    frame["land"] = "DE"
    return frame


def fit(
    frame, backbone: str = "cdtd", constraints=None, schema=None, **more
) -> AugMask:
    """Return a model after very little training."""
    options = TINY | more.pop("options", {})
    model = AugMask(
        backbone, "ecdf", preset="fast", options=options, device="cpu", **more
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(frame, schema=schema, constraints=constraints)


def write_models(folder: Path) -> list[Path]:
    """Write a model of every backbone, an ensemble, one whose gaps are levels."""
    frame = make_frame()
    constraints = ["low <= high", ["job", "grade"]]
    levels = {"kg": {"missing_as": "level"}, "job": {"missing_as": "level"}}
    models = {
        "cdtd": fit(frame, constraints=constraints),
        "tabdiff": fit(frame, "tabdiff"),
        "tabddpm": fit(frame, "tabddpm", options={"timesteps": 10}),
        "ensemble": fit(frame, ensemble=2, options={"time_width": 4, "width": 4}),
        "levels": fit(frame, schema=levels),
    }
    for name, model in models.items():
        model.save(folder / f"{name}.augmask")
    return sorted(folder.glob("*.augmask"))
