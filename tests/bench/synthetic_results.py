"""Synthetic tables of results, as grids collect them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from augmask_bench.ranks import METRICS

AWARE = ("MIWAE", "MissDiff", "DiffPuter", "ForestDiff")


def make_results(
    lifts: Mapping[str, float],
    *,
    noise: float = 0.0,
    dataset_noise: float = 0.0,
    datasets: int = 2,
    mechanisms: tuple[str, ...] = ("mcar",),
    ratios: tuple[float, ...] = (0.1, 0.5),
    seeds: int = 2,
    seed: int = 0,
) -> pd.DataFrame:
    """Return results in which `lifts` are the effects of the methods."""
    rng = np.random.default_rng(seed)
    effects = {
        (method, d): rng.normal(0, dataset_noise, len(METRICS))
        for method in lifts
        for d in range(datasets)
    }
    blocks = [
        (d, mechanism, ratio, s)
        for d in range(datasets)
        for mechanism in mechanisms
        for ratio in ratios
        for s in range(seeds)
    ]
    rows = []
    for d, mechanism, ratio, s in blocks:
        for i, (method, lift) in enumerate(lifts.items()):
            stem, _, strategy = method.partition(" + ")
            base = 0.7 - 0.2 * ratio - 0.02 * d + lift
            scores = base + effects[method, d] + rng.normal(0, noise, len(METRICS))
            rows.append(
                {
                    "dataset": f"table_{d}",
                    "mechanism": mechanism,
                    "ratio": ratio,
                    "seed": s,
                    "method": method,
                    "generator": stem.lower(),
                    "strategy": strategy.partition(" (")[0],
                    "aware": stem in AWARE,
                    "status": "done",
                    "reason": "",
                    **dict(zip(METRICS, scores, strict=True)),
                    "augment_seconds": 1.0 if strategy else 0.0,
                    "fit_seconds": 10.0 * (i + 1),
                    "sample_seconds": 2.0,
                }
            )
    return pd.DataFrame(rows)


def break_runs(
    results: pd.DataFrame,
    method: str,
    status: str = "failed",
    reason: str = "",
    **at: object,
) -> pd.DataFrame:
    """Return results in which runs of a method failed, or could not be made."""
    results = results.copy()
    hit = results["method"] == method
    for name, value in at.items():
        hit &= results[name] == value
    assert hit.any()
    results.loc[hit, list(METRICS)] = np.nan
    results.loc[hit, "status"] = status
    results.loc[hit, "reason"] = reason
    return results
