"""HyperImpute, through the package of that name (Jarrett et al. 2022).

Imputation column by column with models chosen anew in every round. It is imported only
when the rule `hyperimpute` is asked for.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from augmask.augmentation.moments import write_missing
from augmask.errors import NotFittedError
from augmask_bench.peers import contained, require

if TYPE_CHECKING:
    from augmask.progress import Progress
    from augmask.table.table import FloatArray, Table

ROUNDS = 40

# As on a machine without a GPU; with one the package would add networks to both.
CLASSIFIERS = ["random_forest", "logistic_regression", "xgboost", "catboost"]
REGRESSIONS = [
    "random_forest_regressor",
    "linear_regression",
    "xgboost_regressor",
    "catboost_regressor",
]


class _OutOfTime(Exception):
    """Raised inside the package to end its rounds."""


def _filled(table: Table, x: FloatArray) -> Table:
    """Return a table with what was imputed; codes are rounded to known ones."""
    n_num = table.layout.n_num
    holes = [x[~table.observed[:, j], j] for j in range(x.shape[1])]
    codes = [
        np.clip(np.rint(column), 0, card - 1).astype(np.int64)
        for column, card in zip(holes[n_num:], table.layout.cards, strict=True)
    ]
    return write_missing(table, holes[:n_num], codes)


class HyperImpute:
    """The package's imputer with its defaults; one deterministic fill.

    Categories enter as codes. The package classifies columns of fewer than five
    different values and regresses the others, so codes come back rounded and clipped
    to 0 .. K_j - 1.

    Parameters
    ----------
    seconds : float, optional
        What the rounds may take; they end with the one in which that has passed.

    Attributes
    ----------
    rounds_ : int
        Rounds done.
    """

    stochastic: ClassVar[bool] = False
    version: ClassVar[str] = "1"
    package: ClassVar[str] = "hyperimpute"

    def __init__(self, *, seconds: float | None = None) -> None:
        self.seconds = seconds

    def fit(
        self, table: Table, rng: np.random.Generator, progress: Progress | None = None
    ) -> Self:
        """Run the imputer; the completion is kept for `draw`."""
        require(self.package)
        self.table_, self.rounds_ = table, 0
        seed = int(rng.integers(2**31))
        self.filled_ = (
            table if table.observed.all() else self._imputed(table, seed, progress)
        )
        if progress is not None:
            progress("augment", ROUNDS, ROUNDS, {})
        return self

    def draw(self, rng: np.random.Generator) -> Table:
        """Return the one completion there is."""
        del rng
        if not hasattr(self, "filled_"):
            raise NotFittedError("Call fit before draw: nothing was imputed yet.")
        return self.filled_

    def _imputed(self, table: Table, seed: int, progress: Progress | None) -> Table:
        import pandas as pd

        x = np.concatenate([table.num, table.cat], axis=1, dtype=np.float64)
        x[~table.observed] = np.nan
        frame = pd.DataFrame(x, columns=[str(j) for j in range(x.shape[1])])
        began = time.monotonic()
        last = frame

        def before_round(done: int, filled: Any) -> None:
            nonlocal last
            self.rounds_, last = done, filled
            if progress is not None:
                progress("augment", done, ROUNDS, {})
            if (
                self.seconds is not None
                and done
                and time.monotonic() - began > self.seconds
            ):
                raise _OutOfTime

        # Copies on write, a choice before pandas 3, would undo its assignments too.
        with contained(seed), pd.option_context("mode.copy_on_write", False):
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
        return _filled(table, last.to_numpy(np.float64))
