"""Small tables and models to attack."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl

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


def make_rich_frame(n: int = 1_000, seed: int = 0) -> pd.DataFrame:
    """Return a table of what the schema can say beyond kinds.

    Formats, fakes, identifiers of every form, lattices, columns that follow from others
    or occur beside them, structural missingness, rare levels, nullable types.
    """
    rng = np.random.default_rng(seed)
    town, married = rng.integers(0, 6, n), rng.random(n) < 0.5
    a, b = rng.integers(0, 90, n), rng.integers(0, 90, n)
    days = pd.date_range("1990", periods=n, freq="9D")[rng.permutation(n)]
    usual = [f"r{i % 200}" if i < 300 else "usual" for i in range(n)]
    line = rng.integers(0, 8, n)
    missing = {
        "born": days.strftime("%d/%m/%Y"),
        "fee": [f"${v:,}" for v in rng.integers(10, 9000, n)],
        "share": [f"{v:.1f} %" for v in rng.random(n) * 100],
        "opens": [f"{v // 60:02d}:{v % 60:02d}" for v in rng.integers(0, 1440, n)],
        "fives": rng.integers(0, 200, n) * 5,
        "word": rng.choice(["x", "y", "z"], n),
        "rare": usual,
        "wide": rng.integers(0, 2**61, n),
        "nanos": pd.to_datetime(rng.integers(0, 2**60, n)),
        "code": [f"{v:05d}" for v in rng.integers(0, 40, n)],
        "fine": rng.random(n) < 0.3,
        "a": a,
        "b": b,
    }
    types = {"fives": "Int64", "word": "string", "wide": "Int64", "fine": "boolean"}
    frame = pd.DataFrame(missing).astype(types)
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    spouse = np.where(married, rng.integers(20, 60, n), np.nan)
    return frame.assign(
        mail=[f"ann{i}@lee{i % 7}.org" for i in range(n)],
        case=[f"AB-{i * 7919 % 9973:04d}/X{i % 10}" for i in range(n)],
        serial=np.arange(n) + 2**62,
        total=a + b,
        town=np.array(list("PQRSTU"))[town],
        place=10_000 + town * 37,
        line=np.array(list("ABCDEFGH"))[line],
        stop=np.array(list("klmnopqr"))[(line + rng.integers(0, 3, n)) % 8],
        grade=pd.Categorical(rng.choice(list("lmh"), n), list("lmh"), ordered=True),
        asked=rng.choice(["yes", "no", "?"], n),
        status=np.where(married, "married", "single"),
        spouse=spouse,
    )


def fit(
    frame, backbone: str = "cdtd", options=None, ensemble="auto", **more
) -> AugMask:
    """Return a model after very little training; `more` is passed to its `fit`."""
    model = AugMask(
        backbone,
        "ecdf",
        preset="fast",
        options=TINY | (options or {}),
        device="cpu",
        ensemble=ensemble,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(frame, **more)


def write_models(folder: Path) -> list[Path]:
    """Write models of every backbone and of all that a model file can hold."""
    frame = make_frame()
    rich, links = make_rich_frame(), {"links": "keep", "precondition": "table"}
    constraints = ["low <= high", ["job", "grade"]]
    levels = {"kg": {"missing_as": "level"}, "job": {"missing_as": "level"}}
    models = {
        "cdtd": fit(frame, constraints=constraints),
        "tabdiff": fit(frame, "tabdiff"),
        "tabddpm": fit(frame, "tabddpm", options={"timesteps": 10}),
        "ensemble": fit(frame, ensemble=2, options={"time_width": 4, "width": 4}),
        "levels": fit(frame, schema=levels),
        "rich": fit(
            rich,
            schema={"b": {"na_values": [-9, "none"]}},
            constraints=["a <= total", "town, place"],
            options=links,
            holdout=0.1,
        ),
        "polars": fit(
            pl.from_pandas(rich.drop(columns=["wide", "rare"])),
            options={"ties": "dequantize", "extremes": "expected"},
            private_extremes=True,
        ),
    }
    for name, model in models.items():
        model.save(folder / f"{name}.augmask")
    return sorted(folder.glob("*.augmask"))
