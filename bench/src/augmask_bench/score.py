"""The five metrics of a run, each taken once, with the real side shared between runs.

Two parts of the work depend on the real rows only: the distances within them, and what
a model learns from them (TRTR). All methods of a dataset and seed share both, in memory
and in a file; a lost race costs time only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from augmask.evaluation.columns import Floats
from augmask.evaluation.coverage import alpha_beta
from augmask.evaluation.fidelity import shape, trend
from augmask.evaluation.utility import utility
from augmask.rng import stream
from augmask_bench.arrays import read_arrays, write_arrays
from augmask_bench.data import Dataset
from augmask_bench.plan import Metrics


@dataclass(frozen=True, eq=False)
class Judge:
    """Scores synthetic rows against the complete truth.

    Parameters
    ----------
    dataset : Dataset
        For its roles.
    train, test : pandas.DataFrame
        The complete training part, and rows that nobody learned from.
    metrics : Metrics
    seed : int
    cache : Path
        The file of the real side; made if it is absent.
    """

    dataset: Dataset
    train: pd.DataFrame
    test: pd.DataFrame
    metrics: Metrics
    seed: int
    cache: Path

    def score(self, rows: pd.DataFrame) -> dict[str, float]:
        """Return the five metrics, and both sides of MLE."""
        data, metrics = self.dataset, self.metrics
        columns = data.numeric, data.categorical
        edges: Any = metrics.trend
        known = read_arrays(self.cache)
        shared = known or {}

        def taught_by(table: pd.DataFrame, cache: dict[str, Floats]) -> Any:
            return utility(
                *(self.train, table, self.test, *columns, data.target),
                seed=self.seed,
                cache=cache,
            )

        if not known:
            # real rows against themselves train the one model that all others share
            taught_by(self.train, shared)
        alpha, beta = alpha_beta(
            self.train,
            rows,
            *columns,
            cache=shared,
            rows=metrics.rows,
            rng=stream(self.seed, "score"),
        )
        if not known:
            write_arrays(self.cache, shared)
        taught = taught_by(rows, dict(shared))
        return {
            "shape": shape(self.train, rows, *columns).value,
            "trend": trend(self.train, rows, *columns, edges=edges).value,
            "alpha_precision": alpha.value,
            "beta_recall": beta.value,
            "mle": float(taught.value),
            "mle_real": float(taught.trtr),
            "mle_synthetic": float(taught.tstr),
        }
