"""The point of the method on one screen: three strategies, one known truth."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from augmask.demo.clinic import clinic_with_holes
from augmask.errors import DataError
from augmask.evaluation.fidelity import shape, trend
from augmask.model import AugMask
from augmask.progress import Progress, silent
from augmask.sample.stream import write_frames
from augmask.table.schema import Schema

STRATEGIES: dict[str, tuple[str, Literal["observed", "all"]]] = {
    "NoAug": ("mean", "all"),
    "AugFull": ("lgbm-s", "all"),
    "AugMask": ("lgbm-s", "observed"),
}
# Enough for the order of the three to be plain, and for three fits in three minutes.
STEPS = 2000
MEANING = {
    "NoAug": "holes filled with the mean, and learned as if real",
    "AugFull": "holes filled with draws, and learned as if real",
    "AugMask": "holes filled with draws, learned from observed cells only",
}


@dataclass(frozen=True)
class Comparison:
    """How close one strategy came to the complete truth."""

    strategy: str
    meaning: str
    shape: float
    trend: float
    seconds: float


def score(
    truth: pd.DataFrame, synthetic: pd.DataFrame, schema: Schema
) -> tuple[float, float]:
    """Return Shape and Trend over the columns that were learned."""
    numeric = [c.name for c in schema if c.kind in ("integer", "float", "datetime")]
    categorical = [c.name for c in schema if c.kind in ("category", "boolean")]
    return (
        shape(truth, synthetic, numeric, categorical).value,
        trend(truth, synthetic, numeric, categorical).value,
    )


def compare_strategies(
    out: str | Path,
    n: int = 5000,
    seed: int = 0,
    steps: int = STEPS,
    progress: Progress = silent,
) -> Iterator[Comparison]:
    """Fit every strategy on the incomplete clinic table, yielding its scores.

    Writes the table with holes, the complete truth, AugMask's synthetic rows and its
    model to the folder `out`.
    """
    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot make the folder {out}: {error.strerror}") from error
    truth, incomplete = clinic_with_holes(n, seed)
    write_frames([incomplete], out / "clinic-incomplete.csv")
    write_frames([truth], out / "clinic-truth.csv")
    for strategy, (augmenter, supervise) in STRATEGIES.items():
        began = time.monotonic()

        def report(
            phase: str,
            done: int,
            total: int,
            numbers: Mapping[str, float],
            strategy: str = strategy,
        ) -> None:
            progress(f"{strategy} {phase}", done, total, numbers)

        model = AugMask(
            augmenter=augmenter,
            supervise=supervise,
            preset="fast",
            options={"steps": steps},
            seed=seed,
            device="cpu",
        )
        model.fit(incomplete, progress=report)
        synthetic = model.sample(n, seed=seed, progress=report)
        scores = score(truth, synthetic, model.schema_)
        if strategy == "AugMask":
            write_frames([synthetic], out / "clinic-synthetic.csv")
            model.save(out / "clinic.augmask")
        yield Comparison(strategy, MEANING[strategy], *scores, time.monotonic() - began)
