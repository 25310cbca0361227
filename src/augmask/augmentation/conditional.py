"""One column's conditional models T_j: the body of the paper's Algorithm 1.

Numeric columns get a mean model f^(μ) and a model f^(σ) of the log squared residuals,
categorical columns a classifier; all LightGBM with the paper's settings. Only worker
processes should import LightGBM (see `workers.py`), so models that travel are text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from augmask.augmentation.moments import (
    CatMoments,
    Float32Array,
    NumMoments,
    class_frequencies,
)
from augmask.table.table import BoolArray, Table

Spread = Literal["none", "paper", "log-chi2"]
FoldArray = npt.NDArray[np.int8]
# Which columns of a context are codes.
Categories = Sequence[int]
# How many rows a column is learned from, and the seed of their choice.
Learn = tuple[int, int]

# The paper's table "LightGBM defaults", in LightGBM's own names. The last four do not
# change the model: one thread, the same bytes on every run, no timing run to choose
# between two ways of counting (by row took 2.2 s where by column took 3.0 s for the
# 15 classes of an Adult column, with equal bits).
SETTINGS: dict[str, Any] = {
    "boosting": "gbdt",
    "num_leaves": 31,
    "max_depth": -1,
    "learning_rate": 0.1,
    "bin_construct_sample_cnt": 200_000,
    "min_gain_to_split": 0.0,
    "min_sum_hessian_in_leaf": 1e-3,
    "min_data_in_leaf": 20,
    "bagging_fraction": 1.0,
    "bagging_freq": 0,
    "feature_fraction": 1.0,
    "lambda_l1": 0.0,
    "lambda_l2": 0.0,
    "seed": 42,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}
N_TREES = 50

# The paper's tables have fewer rows than this; 50 trees of 31 leaves gain next to
# nothing from more (see `LgbmS`).
LEARN_ROWS = 200_000

# Holes that are predicted at a time; their contexts are copies.
PREDICT_ROWS = 65_536

# α and ε of Algorithm 1. The paper gives α; its ε has no printed value: in units of
# the scaled column this one caps how narrow a factor can be at σ̂ = 0.001.
ALPHA = 0.05
EPSILON = 1e-6

# E[log r²] = log σ² + ψ(1/2) + log 2 for Gaussian residuals, the last two terms being
# -1.2704: without them exp(f/2) is 0.53 σ (Harvey 1976).
LOG_CHI2_BIAS = 1.2704
N_FOLDS = 5


@dataclass(frozen=True, eq=False)
class NumModel:
    """f^(μ) and f^(σ): boosters, their text, or constants."""

    mean: Any
    log_variance: Any

    def predict(self, u: Float32Array) -> NumMoments:
        """Return μ̂ and σ̂ for the contexts `u`."""
        log_variance = _evaluate(self.log_variance, u)
        return NumMoments(
            _evaluate(self.mean, u).astype(np.float32),
            np.exp(0.5 * log_variance).astype(np.float32),
        )

    def packed(self) -> NumModel:
        """Return the model with its boosters as text."""
        return replace(
            self, mean=_as_text(self.mean), log_variance=_as_text(self.log_variance)
        )

    def unpacked(self) -> NumModel:
        """Return the model with its boosters parsed."""
        return replace(
            self,
            mean=_as_booster(self.mean),
            log_variance=_as_booster(self.log_variance),
        )


@dataclass(frozen=True, eq=False)
class CatModel:
    """f^CAT: a booster over the observed classes, its text, or constant frequencies."""

    classifier: Any
    classes: npt.NDArray[np.integer]
    card: int

    def predict(self, u: Float32Array) -> CatMoments:
        """Return p̂ over all K_j codes for the contexts `u`, label-smoothed."""
        p = np.zeros((len(u), self.card), dtype=np.float32)
        if isinstance(self.classifier, np.ndarray):
            p[:] = self.classifier
        else:
            q = _evaluate(self.classifier, u)
            # A binary booster returns only the probability of the second class.
            q = np.stack([1.0 - q, q], axis=1) if q.ndim == 1 else q
            p[:, self.classes] = q
        return CatMoments(smooth(p))

    def packed(self) -> CatModel:
        """Return the model with its booster as text."""
        return replace(self, classifier=_as_text(self.classifier))

    def unpacked(self) -> CatModel:
        """Return the model with its booster parsed."""
        return replace(self, classifier=_as_booster(self.classifier))


ColumnModel = NumModel | CatModel


def _as_text(model: Any) -> Any:
    return model.model_to_string() if hasattr(model, "model_to_string") else model


def _as_booster(model: Any) -> Any:
    import lightgbm as lgb

    # LightGBM reads the thread count of a parsed model from its text.
    return lgb.Booster(model_str=model) if isinstance(model, str) else model


def _evaluate(model: Any, u: Float32Array) -> npt.NDArray[np.float64]:
    if isinstance(model, float):
        return np.full(len(u), model)
    prediction = _as_booster(model).predict(u, num_threads=1)
    return np.asarray(prediction, dtype=np.float64)


def _train(objective: dict[str, Any], dataset: Any) -> Any:
    import lightgbm as lgb

    # Kept as it is: turning it into text and back only takes time.
    return lgb.train(
        {**SETTINGS, **objective}, dataset, N_TREES, keep_training_booster=True
    )


def _dataset(u: Float32Array, y: npt.NDArray[Any], categories: Categories) -> Any:
    import lightgbm as lgb

    return lgb.Dataset(
        u,
        label=y,
        params=SETTINGS,
        free_raw_data=False,
        categorical_feature=list(categories),
    )


def can_split(n: int, n_context: int) -> bool:
    """Return whether any tree can have two leaves; if not, constants say the same."""
    return n >= 2 * int(SETTINGS["min_data_in_leaf"]) and n_context > 0


def smooth(p: Float32Array) -> Float32Array:
    """Smooth labels: (1 - α) p̂ + α / K_j.

    Examples
    --------
    >>> smooth(np.array([[1.0, 0.0]], dtype=np.float32)).round(3)
    array([[0.975, 0.025]], dtype=float32)
    """
    return np.asarray((1.0 - ALPHA) * p + ALPHA / p.shape[1], dtype=np.float32)


def stacked(table: Table) -> Float32Array:
    """Return numbers and codes side by side, NaN in holes: x̃ of Algorithm 1."""
    x = np.concatenate([table.num, table.cat], axis=1, dtype=np.float32)
    x[~table.observed] = np.nan
    return x


def context_categories(n_num: int, d: int, j: int) -> list[int]:
    """Return which columns of the context of column `j` are codes.

    They are declared to LightGBM as categories. The paper does not say; as plain
    integers the rare levels of wide columns go wrong: on Adult at MCAR 0.7 the
    completed table then meets the truth with Shape .957 and Trend .916, declared with
    .962 and .924, at the same cost.

    Examples
    --------
    >>> context_categories(n_num=1, d=3, j=0), context_categories(n_num=1, d=3, j=1)
    ([0, 1], [1])
    """
    return [k - (k > j) for k in range(n_num, d) if k != j]


def context(x: Float32Array, observed: BoolArray, j: int) -> Float32Array:
    """Return u_i = (x̃_i,-j, m_i,-j) for the rows of `x`.

    Examples
    --------
    >>> x = np.array([[1.0, np.nan, 3.0]], dtype=np.float32)
    >>> context(x, ~np.isnan(x), 2)
    array([[ 1., nan,  1.,  0.]], dtype=float32)
    """
    others = np.arange(x.shape[1]) != j
    return np.concatenate([x[:, others], observed[:, others]], axis=1, dtype=np.float32)


def _log_squares(
    residual: npt.NDArray[np.floating], spread: Spread
) -> npt.NDArray[np.floating]:
    bias = LOG_CHI2_BIAS if spread == "log-chi2" else 0.0
    return np.asarray(np.log(residual**2 + EPSILON) + bias)


def _constant_log_variance(residual: npt.NDArray[np.floating], spread: Spread) -> float:
    return -np.inf if spread == "none" else float(_log_squares(residual, spread).mean())


def fit_numeric(
    u: Float32Array,
    y: Float32Array,
    spread: Spread,
    categories: Categories = (),
    folds: FoldArray | None = None,
) -> NumModel:
    """Fit f^(μ) on targets `y`, then f^(σ) on its log squared residuals.

    With spread "none" the variance is zero; with "log-chi2" the residuals are those
    of `folds` left out in turn, and the bias of the logarithm is added back.
    """
    if not len(y):
        return NumModel(0.0, -np.inf)
    regression = {"objective": "regression"}
    if not can_split(len(y), u.shape[1]):
        mean = float(y.mean(dtype=np.float64))
        residual = y - mean
        if spread == "log-chi2" and len(y) > 1:
            # What the mean of all other rows would have left over.
            residual = residual * (len(y) / (len(y) - 1))
        return NumModel(mean, _constant_log_variance(residual, spread))
    dataset = _dataset(u, y, categories)
    mean_model = _train(regression, dataset)
    if spread == "none":
        return NumModel(mean_model, -np.inf)
    if spread == "paper":
        residual = y - _evaluate(mean_model, u)
    else:
        assert folds is not None
        residual = np.empty(len(y))
        for k in range(N_FOLDS):
            out = folds == k
            left = _dataset(u[~out], y[~out], categories)
            fold_model = _train(regression, left)
            residual[out] = y[out] - _evaluate(fold_model, u[out])
    # Same contexts, other targets: the binned features are used again.
    dataset.set_label(_log_squares(residual, spread))
    return NumModel(mean_model, _train(regression, dataset))


def fit_classes(
    u: Float32Array,
    y: npt.NDArray[np.integer],
    card: int,
    categories: Categories = (),
) -> CatModel:
    """Fit f^CAT on labels `y`; classes that were never observed keep probability 0."""
    classes, labels = np.unique(y, return_inverse=True)
    if len(classes) < 2 or not can_split(len(y), u.shape[1]):
        return CatModel(class_frequencies(y, card), classes, card)
    objective: dict[str, Any] = {"objective": "binary"}
    if len(classes) > 2:
        objective = {"objective": "multiclass", "num_class": len(classes)}
    return CatModel(_train(objective, _dataset(u, labels, categories)), classes, card)


def learned_rows(
    known: BoolArray, most: int, rng: np.random.Generator
) -> npt.NDArray[np.intp]:
    """Return the rows that have a column, in order; of too many, a random part.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> learned_rows(np.array([True, False, True]), 2, rng).tolist()
    [0, 2]
    >>> learned_rows(np.ones(9, bool), 2, rng).size
    2
    """
    rows = np.flatnonzero(known)
    if len(rows) <= most:
        return rows
    return np.sort(rng.choice(rows, most, replace=False, shuffle=False))


def fit_column(
    x: Float32Array,
    observed: BoolArray,
    n_num: int,
    j: int,
    card: int | None,
    spread: Spread,
    folds: FoldArray | None = None,
    learn: Learn = (LEARN_ROWS, 0),
) -> ColumnModel:
    """Fit the conditional models of column `j` on the rows that have it.

    Parameters
    ----------
    x : float32 array [n, d]
        Numbers, then codes; NaN in holes, or a completion.
    observed : bool array [n, d]
    n_num : int
        How many of the columns are numbers.
    j : int
    card : int or None
        K_j of a categorical column, None for a numeric one.
    spread : {"none", "paper", "log-chi2"}
        How the variance of a numeric column is found; see `fit_numeric`.
    folds : int8 array [n], optional
        Fold of each row, for "log-chi2".
    learn : pair of int
        Of how many rows at most, and the seed of their choice.
    """
    most, seed = learn
    known = learned_rows(observed[:, j], most, np.random.default_rng([seed, j]))
    u, y = context(x[known], observed[known], j), x[known, j]
    categories = context_categories(n_num, x.shape[1], j)
    if card is not None:
        return fit_classes(u, y.astype(np.int64), card, categories)
    kept = None if folds is None else folds[known]
    return fit_numeric(u, y, spread, categories, kept)


def fit_and_predict(
    x: Float32Array,
    observed: BoolArray,
    n_num: int,
    j: int,
    card: int | None,
    spread: Spread,
    folds: FoldArray | None = None,
    learn: Learn = (LEARN_ROWS, 0),
) -> NumMoments | CatMoments:
    """Fit column `j` and return the moments of its holes; the models are dropped."""
    model = fit_column(x, observed, n_num, j, card, spread, folds, learn)
    return predict_holes(model, x, observed, j)


def predict_holes(
    model: ColumnModel, x: Float32Array, observed: BoolArray, j: int
) -> NumMoments | CatMoments:
    """Return the moments of the holes of column `j`."""
    missing = np.flatnonzero(~observed[:, j])
    pieces = np.split(missing, range(PREDICT_ROWS, len(missing), PREDICT_ROWS))
    found = [
        model.predict(context(x[rows], observed[rows], j)).arrays() for rows in pieces
    ]
    whole = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    return NumMoments(*whole) if isinstance(model, NumModel) else CatMoments(*whole)


def fit_and_pack(
    x: Float32Array,
    observed: BoolArray,
    n_num: int,
    j: int,
    card: int | None,
    spread: Spread,
    learn: Learn = (LEARN_ROWS, 0),
) -> ColumnModel:
    """Fit column `j` and return its models as text."""
    return fit_column(x, observed, n_num, j, card, spread, learn=learn).packed()


def longest_first(table: Table, most: int = LEARN_ROWS) -> list[tuple[int, int | None]]:
    """Return `(j, K_j or None)` of the columns with holes, the costliest fit first.

    A classifier of K > 2 classes grows K trees per round and dominates the time.
    """
    layout = table.layout
    cards: list[int | None] = [None] * layout.n_num + list(layout.cards)
    known = table.observed.sum(axis=0)

    def cost(j: int) -> int:
        card = cards[j]
        trees = 2 if card is None else card if card > 2 else 1
        return min(int(known[j]), most) * trees

    holed = [j for j in range(layout.n_features) if known[j] < len(table)]
    return [(j, cards[j]) for j in sorted(holed, key=cost, reverse=True)]
