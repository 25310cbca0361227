"""The five metrics of a run; the part that needs only real rows is cached.

Two parts of the work depend on the real rows only: the distances between them, and the
score of a model trained on them (TRTR). All methods of a dataset and seed share both
through a file; if two runs compute them at once, only time is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from augmask.evaluation.alpha_beta import alpha_beta
from augmask.evaluation.fidelity import shape, trend
from augmask.evaluation.tables import Floats
from augmask.evaluation.utility import utility
from augmask.rng import stream
from augmask_bench.arrays import read_arrays, write_arrays
from augmask_bench.data import Dataset
from augmask_bench.plan import Metrics


@dataclass(frozen=True, eq=False)
class Scorer:
    """Scores synthetic rows against the complete real table.

    Parameters
    ----------
    dataset : Dataset
        For the roles of its columns.
    train, test : pandas.DataFrame
        The complete training rows, and rows that no method was trained on.
    metrics : Metrics
    seed : int
    cache : Path
        The file of the cached real part; written if it is missing.
    """

    dataset: Dataset
    train: pd.DataFrame
    test: pd.DataFrame
    metrics: Metrics
    seed: int
    cache: Path

    def score(self, rows: pd.DataFrame) -> dict[str, float]:
        """Return the five metrics, and both scores whose ratio is MLE."""
        data, metrics = self.dataset, self.metrics
        columns = data.numeric, data.categorical
        edges: Any = metrics.trend
        cached = read_arrays(self.cache)
        shared = cached or {}

        def utility_of(table: pd.DataFrame, cache: dict[str, Floats]) -> Any:
            return utility(
                *(self.train, table, self.test, *columns, data.target),
                seed=self.seed,
                cache=cache,
            )

        if not cached:
            # stores the score of the model trained on real rows in `shared`
            utility_of(self.train, shared)
        alpha, beta = alpha_beta(
            self.train,
            rows,
            *columns,
            cache=shared,
            rows=metrics.rows,
            rng=stream(self.seed, "score"),
        )
        if not cached:
            write_arrays(self.cache, shared)
        mle = utility_of(rows, dict(shared))
        return {
            "shape": shape(self.train, rows, *columns).value,
            "trend": trend(self.train, rows, *columns, edges=edges).value,
            "alpha_precision": alpha.value,
            "beta_recall": beta.value,
            "mle": float(mle.value),
            "mle_real": float(mle.trtr),
            "mle_synthetic": float(mle.tstr),
        }
