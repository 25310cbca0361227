"""MLE, machine-learning efficacy: what a model learns from synthetic rows.

One fixed model of boosted trees is trained on synthetic rows (TSTR) and on real rows
(TRTR), and tested on the same unseen real rows. The score is the ratio
AUROC_s / AUROC_r for a categorical target and RMSE_r / RMSE_s for a numeric one; 1
means that nothing was lost. Both parts are reported, because a ratio hides a useless
TRTR.

A numeric target is compared as log(clip(y, 1, 20000)), the scale of the published
tables, if that fits: no negative values and nine in ten training values inside the
clip. Otherwise (proportions, large prices, signed amounts) the clip would erase the
target, and it is standardised by the real training rows instead.

The learner is LightGBM, which is always installed and takes missing inputs, or XGBoost,
with which published tables are made. Both have as many trees of the same depth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import util
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.metrics import roc_auc_score

from augmask.engine import run_each
from augmask.errors import DataError, UsageError
from augmask.evaluation.tables import (
    Codes,
    Floats,
    Frames,
    check_tables,
    level_codes,
    numbers,
    one_hot,
)
from augmask.validation import ValueSpec

Learner = Literal["lightgbm", "xgboost"]
LEARNERS: tuple[Learner, ...] = get_args(Learner)
TITLES: dict[Learner, str] = {"lightgbm": "LightGBM", "xgboost": "XGBoost"}

XGBOOST: dict[str, Any] = {
    "n_estimators": 300,
    "max_depth": 6,
    "learning_rate": 0.1,
    "min_child_weight": 1,
    "subsample": 1.0,
    "colsample_bytree": 1.0,
    "reg_lambda": 1.0,
    "tree_method": "hist",
}
# The same in LightGBM's terms; a tree of depth 6 has at most 64 leaves. One thread and
# `deterministic` give the same bits on every run.
LIGHTGBM: dict[str, Any] = {
    "num_iterations": 300,
    "max_depth": 6,
    "num_leaves": 64,
    "learning_rate": 0.1,
    "min_data_in_leaf": 1,
    "min_sum_hessian_in_leaf": 1.0,
    "lambda_l2": 1.0,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}
LOG_CLIP = (1.0, 20_000.0)
LOG_SHARE = 0.9
TRAINED_ON = ("synthetic", "real")

# Predictions for the test rows, by what they were trained on; and a result.
Answers = Callable[..., dict[str, Floats]]
Result = tuple[float, float, float, str, pd.DataFrame]


@dataclass(frozen=True, eq=False)
class Utility:
    """What a model learned from each table.

    Parameters
    ----------
    value : float
        The MLE ratio; 1 means that synthetic rows are as good as real ones.
    tstr, trtr : float
        The score on real test rows after training on synthetic and on real rows.
    measure : {"auroc", "rmse of log(clip(y, 1, 20000))", "rmse of standardised y"}
        What `tstr` and `trtr` are; a smaller RMSE is better.
    table : pandas.DataFrame
        One line per measure, columns `synthetic` and `real`: `measure`, and the AUROC
        of each class against the rest (more than two classes) or the RMSE in the
        unit of the target.
    learner : {"lightgbm", "xgboost"}
        What learned from both tables.
    """

    value: float
    tstr: float
    trtr: float
    measure: str
    table: pd.DataFrame
    learner: Learner


def check_learner(learner: str) -> None:
    """Raise unless there is such a learner, and it is installed."""
    ValueSpec(str, LEARNERS).checked("learner", learner)
    if learner == "xgboost" and util.find_spec("xgboost") is None:
        raise UsageError(
            "the learner 'xgboost' is not installed; run `pip install "
            "'augmask[utility]'`, or use 'lightgbm'"
        )


def _features(
    tables: Frames,
    numeric: Sequence[str],
    categorical: Sequence[str],
    allow_missing: bool,
) -> list[npt.NDArray[np.float32]]:
    """Return the inputs of each table; levels are those of the first table."""
    parts: list[list[Floats]] = []
    for name in numeric:
        values = numbers(tables, name, allow_missing)
        parts.append([column[:, None] for column in values])
    for name in categorical:
        codes, _, n_real = level_codes(tables, name, allow_missing)
        parts.append([one_hot(c, n_real) for c in codes])
    # XGBoost works in float32 and refuses what overflows there.
    limit = np.finfo(np.float32).max
    return [
        np.hstack(blocks).clip(-limit, limit).astype(np.float32)
        for blocks in zip(*parts, strict=True)
    ]


def _lightgbm_predictions(
    x: npt.NDArray[np.float32],
    y: npt.NDArray[Any],
    x_test: npt.NDArray[np.float32],
    n_classes: int,
    seed: int,
) -> Floats:
    """Return LightGBM's predictions; probabilities for two classes or more."""
    import lightgbm as lgb

    settings = LIGHTGBM | {"seed": seed, "objective": "regression"}
    if n_classes == 2:
        settings["objective"] = "binary"
    elif n_classes:
        settings |= {"objective": "multiclass", "num_class": n_classes}
    # An input that is constant here may not be constant in the test.
    settings["feature_pre_filter"] = False
    data = lgb.Dataset(x, y, params=settings)
    predicted = np.asarray(lgb.train(settings, data).predict(x_test, num_threads=1))
    if n_classes == 2:
        return np.stack([1 - predicted, predicted], axis=1)
    return predicted


def _learn(
    x: npt.NDArray[np.float32],
    y: npt.NDArray[Any],
    x_test: npt.NDArray[np.float32],
    n_classes: int,
    settings: dict[str, Any],
) -> Floats:
    """Return predictions: numbers, or probabilities if there are classes."""
    if settings.get("learner") == "lightgbm":
        # Through `run_each`: beside torch, LightGBM crashes on macOS.
        call = (x, y, x_test, n_classes, settings["random_state"])
        ((_, predicted),) = run_each(
            _lightgbm_predictions, [call], cells=x.size, n_jobs=1
        )
        return predicted
    import xgboost

    if n_classes:
        model = xgboost.XGBClassifier(**settings).fit(x, y)
        return np.asarray(model.predict_proba(x_test), dtype=np.float64)
    model = xgboost.XGBRegressor(**settings).fit(x, y)
    return np.asarray(model.predict(x_test), dtype=np.float64)


def _cached_predictions(
    cache: MutableMapping[str, Floats],
    inputs: Sequence[npt.NDArray[Any]],
    settings: dict[str, Any],
    compute: Callable[[], Floats],
) -> Floats:
    """Return predictions; train on the same rows only once."""
    digest = hashlib.sha256(repr(sorted(settings.items())).encode())
    for array in inputs:
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array).data)
    key = f"answers/{digest.hexdigest()}"
    if key not in cache:
        cache[key] = compute()
    return cache[key]


def _answers(
    inputs: Sequence[npt.NDArray[np.float32]],
    cache: MutableMapping[str, Floats],
    predict: Callable[..., Floats],
    targets: Sequence[npt.NDArray[Any]],
    key: dict[str, Any],
) -> dict[str, Floats]:
    """Return the predictions for the test rows after training on either table."""
    (real, synthetic, test), (y_real, y_synthetic, *_) = inputs, targets
    answers = {}
    for label, x, y in (("synthetic", synthetic, y_synthetic), ("real", real, y_real)):
        compute = partial(predict, x, y, test)
        answers[label] = _cached_predictions(cache, (x, y, test), key, compute)
    return answers


def _probabilities(
    x: npt.NDArray[np.float32],
    y: Codes,
    x_test: npt.NDArray[np.float32],
    n_classes: int,
    settings: dict[str, Any],
) -> Floats:
    """Return class probabilities [n_test, n_classes]; zero for a class not in `y`."""
    probabilities = np.zeros((len(x_test), n_classes))
    # A class that real rows never have is not in the test either.
    x, y = x[y < n_classes], y[y < n_classes]
    present, labels = np.unique(y, return_inverse=True)
    if len(present) < 2:
        return probabilities
    probabilities[:, present] = _learn(x, labels, x_test, len(present), settings)
    return probabilities


def _auroc_by_class(probabilities: Floats, y_test: Codes) -> list[float]:
    """Return the one-vs-rest AUROC of every class, NaN if the test rows lack a side."""
    areas = []
    for code in range(probabilities.shape[1]):
        is_class = y_test == code
        if is_class.all() or not is_class.any():
            areas.append(np.nan)
        else:
            areas.append(float(roc_auc_score(is_class, probabilities[:, code])))
    return areas


def _auroc_ratio(
    tables: Frames, target: str, settings: dict[str, Any], answers: Answers
) -> Result:
    codes, levels, n_classes = level_codes(tables, target)
    predict = partial(_probabilities, n_classes=n_classes, settings=settings)
    key = settings | {"classes": n_classes}
    areas = {
        label: _auroc_by_class(probabilities, codes[2])
        for label, probabilities in answers(predict, codes, key).items()
    }
    # Two classes have the same AUROC.
    used = slice(0, 1) if n_classes == 2 else slice(None)
    by_class = pd.DataFrame(areas)[used].astype(np.float64)
    if n_classes < 2 or by_class["real"].isna().all():
        raise DataError(
            f"AUROC needs two classes, but the target {target!r} has fewer in the real "
            "training or test rows; choose another target or split"
        )
    headline = by_class.mean().to_frame("auroc").T
    by_class.index = [f"auroc of {level}" for level in levels[:n_classes][used]]
    table = headline if n_classes == 2 else pd.concat([headline, by_class])
    tstr, trtr = (float(headline[label].iloc[0]) for label in TRAINED_ON)
    return tstr / trtr, tstr, trtr, "auroc", table


def _rmse_ratio(
    tables: Frames, target: str, settings: dict[str, Any], answers: Answers
) -> Result:
    y_real, _, y_test = values = numbers(tables, target)
    low, high = LOG_CLIP
    inside = (y_real >= low) & (y_real <= high)
    logarithmic = y_real.min() >= 0 and inside.mean() >= LOG_SHARE
    centre, scale = y_real.mean(), y_real.std() or 1.0

    def forward(y: Floats) -> Floats:
        return np.log(np.clip(y, low, high)) if logarithmic else (y - centre) / scale

    def back(y: Floats) -> Floats:
        return np.exp(y) if logarithmic else y * scale + centre

    rmse, raw = {}, {}
    predict = partial(_learn, n_classes=0, settings=settings)
    targets = [forward(y) for y in values]
    for label, predicted in answers(predict, targets, settings).items():
        rmse[label] = float(np.sqrt(np.mean((predicted - forward(y_test)) ** 2)))
        raw[label] = float(np.sqrt(np.mean((back(predicted) - y_test) ** 2)))
    measure = (
        "rmse of log(clip(y, 1, 20000))" if logarithmic else "rmse of standardised y"
    )
    table = pd.DataFrame([rmse, raw], index=[measure, "rmse of y"])
    tstr, trtr = (rmse[label] for label in TRAINED_ON)
    # A target that synthetic rows predict without error would divide by zero.
    ratio = trtr / tstr if tstr else (1.0 if trtr == tstr else np.inf)
    return ratio, tstr, trtr, measure, table


def utility(
    train_real: pd.DataFrame,
    synthetic: pd.DataFrame,
    test: pd.DataFrame,
    numeric: Sequence[str],
    categorical: Sequence[str],
    target: str,
    seed: int = 0,
    n_jobs: int = 1,
    cache: MutableMapping[str, Floats] | None = None,
    learner: Learner = "xgboost",
) -> Utility:
    """Compare a model trained on synthetic rows with one trained on real rows.

    Parameters
    ----------
    train_real, synthetic, test : pandas.DataFrame
        `test` holds real rows that neither table was made from. Complete tables;
        LightGBM also takes missing inputs, if all tables have them alike, and then
        rows without a target are left out.
    numeric, categorical : sequence of str
        All columns to use. A target listed as numeric means regression, as categorical
        classification.
    target : str
        The column to predict. A class that synthetic rows lack has AUROC 0.5;
        synthetic rows of a class that real rows lack are left out. With more than two
        classes AUROC is the mean of one class against the rest.
    seed : int
        The learner's random state.
    n_jobs : int
        XGBoost's threads; LightGBM always has one.
    cache : mutable mapping, optional
        Keeps predictions under a hash of the rows, so that several calls train on the
        same real rows once.
    learner : {"xgboost", "lightgbm"}
        XGBoost, of the extra `utility`, is that of published tables.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> real = pd.DataFrame({"x": rng.normal(size=400)})
    >>> real["y"] = np.where(real["x"] > 0, "yes", "no")
    >>> train, test = real[:300], real[300:]
    >>> result = utility(train, train, test, ["x"], ["y"], target="y")
    >>> result.measure, result.value
    ('auroc', 1.0)
    >>> shuffled = train.assign(y=rng.permutation(train["y"]))
    >>> utility(train, shuffled, test, ["x"], ["y"], target="y").value < 0.8
    True
    """
    check_learner(learner)
    tables = {"real training": train_real, "synthetic": synthetic, "real test": test}
    check_tables(tables, numeric, categorical)
    if target not in (*numeric, *categorical):
        raise UsageError(
            f"the target {target!r} is in neither `numeric` nor `categorical`; add it "
            "to one of them"
        )
    used = (
        [c for c in numeric if c != target],
        [c for c in categorical if c != target],
    )
    if not any(used):
        raise UsageError(
            f"no other column is listed to predict the target {target!r} from; name at "
            "least one"
        )
    settings = XGBOOST | {"random_state": seed, "n_jobs": n_jobs}
    if learner == "lightgbm":
        settings = {"learner": learner, **LIGHTGBM, "random_state": seed}
        tables = {label: f[f[target].notna()] for label, f in tables.items()}
        check_tables(tables, numeric, categorical)
    inputs = _features(tables, *used, learner == "lightgbm")
    answers = partial(_answers, inputs, {} if cache is None else cache)
    run = _rmse_ratio if target in numeric else _auroc_ratio
    return Utility(*run(tables, target, settings, answers), learner)
