"""HyperImpute, through the package of that name (Jarrett et al. 2022).

Imputation column by column, with models selected again in every round. The package is
imported only when the augmenter `hyperimpute` is used.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from augmask.augmentation.moments import write_missing
from augmask.errors import not_fitted
from augmask_bench.peers import isolated, require

if TYPE_CHECKING:
    from augmask.progress import Progress
    from augmask.table.table import FloatArray, Table

ROUNDS = 40

# The package's choice without a GPU; with a GPU it would add networks to both.
CLASSIFIERS = ["random_forest", "logistic_regression", "xgboost", "catboost"]
REGRESSIONS = [
    "random_forest_regressor",
    "linear_regression",
    "xgboost_regressor",
    "catboost_regressor",
]


class _OutOfTime(Exception):
    """Raised inside the package to stop its rounds."""


def _imputed_table(table: Table, x: FloatArray) -> Table:
    """Return the table with imputed values; codes are rounded and clipped."""
    n_num = table.layout.n_num
    imputed = [x[~table.observed[:, j], j] for j in range(x.shape[1])]
    codes = [
        np.clip(np.rint(column), 0, card - 1).astype(np.int64)
        for column, card in zip(imputed[n_num:], table.layout.cards, strict=True)
    ]
    return write_missing(table, imputed[:n_num], codes)


class HyperImpute:
    """The package's imputer with its defaults; one deterministic imputation.

    Categories are passed as codes. The package treats columns of fewer than five
    distinct values as classification and the others as regression, so codes are rounded
    and clipped to 0 .. K_j - 1.

    Parameters
    ----------
    seconds : float, optional
        Time limit, checked after every round.

    Attributes
    ----------
    rounds_ : int
        Rounds completed.
    """

    stochastic: ClassVar[bool] = False
    version: ClassVar[str] = "1"
    package: ClassVar[str] = "hyperimpute"

    def __init__(self, *, seconds: float | None = None) -> None:
        self.seconds = seconds

    def fit(
        self, table: Table, rng: np.random.Generator, progress: Progress | None = None
    ) -> Self:
        """Run the imputer and keep its completion for `draw`."""
        require(self.package)
        self.table_, self.rounds_ = table, 0
        seed = int(rng.integers(2**31))
        self.completed_ = (
            table if table.observed.all() else self._imputed(table, seed, progress)
        )
        if progress is not None:
            progress("augment", ROUNDS, ROUNDS, {})
        return self

    def draw(self, rng: np.random.Generator) -> Table:
        """Return the completion."""
        del rng
        if not hasattr(self, "completed_"):
            raise not_fitted(self)
        return self.completed_

    def _imputed(self, table: Table, seed: int, progress: Progress | None) -> Table:
        import pandas as pd

        x = np.concatenate([table.num, table.cat], axis=1, dtype=np.float64)
        x[~table.observed] = np.nan
        frame = pd.DataFrame(x, columns=[str(j) for j in range(x.shape[1])])
        start = time.monotonic()
        last = frame

        def before_round(done: int, filled: Any) -> None:
            nonlocal last
            self.rounds_, last = done, filled
            if progress is not None:
                progress("augment", done, ROUNDS, {})
            if (
                self.seconds is not None
                and done
                and time.monotonic() - start > self.seconds
            ):
                raise _OutOfTime

        # copy-on-write, optional before pandas 3, would undo its assignments
        with isolated(seed), pd.option_context("mode.copy_on_write", False):
            from hyperimpute.plugins.imputers import Imputers

            imputer = Imputers().get(
                "hyperimpute",
                optimizer="simple",
                classifier_seed=CLASSIFIERS,
                regression_seed=REGRESSIONS,
                imputation_order=2,
                baseline_imputer=0,
                class_threshold=5,
                optimize_thresh=5000,
                n_inner_iter=ROUNDS,
                select_model_by_column=True,
                select_model_by_iteration=True,
                select_patience=5,
                select_lazy=True,
                inner_loop_hook=before_round,
                random_state=seed,
            )
            try:
                last = imputer.fit_transform(frame)
                self.rounds_ += 1
            except _OutOfTime:
                pass
        return _imputed_table(table, last.to_numpy(np.float64))
