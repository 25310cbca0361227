"""C2ST: how well a tree model tells synthetic rows from real ones.

LightGBM is trained to separate the two tables and scored on rows that it has not seen.
Its AUC is about 0.5 when the tables cannot be told apart and 1 when they always can. A
linear model, the usual choice, sees single columns only and lets independent columns
pass; trees see how columns hang together.

An AUC well below 0.5 is no success: it comes from rows that stand in both tables, which
the model has learned with the other label. `privacy` looks into that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.metrics import roc_auc_score

from augmask.augmentation.workers import run_each
from augmask.errors import DataError, UsageError
from augmask.evaluation.columns import (
    Floats,
    Frames,
    check_tables,
    level_codes,
    numbers,
)
from augmask.rng import stream, stream_seed

Holes = Literal["refuse", "feature"]

# On Adult these tell as much as XGBoost with 300 trees of depth 6 (0.992 and 0.991 for
# independent columns) in half the time, and LightGBM is always installed. One thread
# and `deterministic`: the same bits on every run.
MODEL: dict[str, Any] = {
    "objective": "binary",
    "num_leaves": 31,
    "learning_rate": 0.1,
    "min_data_in_leaf": 20,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}
N_TREES = 300


@dataclass(frozen=True, eq=False)
class Detection:
    """How well trees tell the two tables apart.

    Parameters
    ----------
    value : float
        AUC over all rows, each scored by a model that has not seen it; 0.5 is best.
    table : pandas.DataFrame
        Columns `column` and `importance`, the share of the model's gain that came from
        the column, largest first. Shares of nothing when `value` is about 0.5.
    rows : int
        Rows scored of each table.
    note : str
        What was left out to make the tables equally long.
    """

    value: float
    table: pd.DataFrame
    rows: int
    note: str


def _equally_long(tables: Frames, seed: int) -> tuple[Frames, int, str]:
    """Return the tables cut to the length of the shorter one, and a note on it."""
    rows = min(len(frame) for frame in tables.values())
    cut, note = {}, f"All {rows:,} rows of each table were used."
    for label, frame in tables.items():
        cut[label] = frame
        if len(frame) > rows:
            rng = stream(seed, "detect", "rows")
            kept = np.sort(rng.choice(len(frame), rows, replace=False))
            cut[label] = frame.iloc[kept]
            note = (
                f"{rows:,} of the {len(frame):,} {label} rows were drawn at random, as "
                "many as the other table has."
            )
    return cut, rows, note


def _features(
    tables: Frames, numeric: Sequence[str], categorical: Sequence[str], holes: Holes
) -> Floats:
    """Return both tables below each other: numbers, then codes, NaN in holes."""
    allowed = holes == "feature"
    columns = [np.concatenate(numbers(tables, name, allowed)) for name in numeric]
    for name in categorical:
        codes = np.concatenate(level_codes(tables, name, allowed)[0])
        columns.append(np.where(codes < 0, np.nan, codes))
    return np.stack(columns, axis=1)


def _fold(
    x: Floats,
    is_synthetic: npt.NDArray[np.bool_],
    fold: npt.NDArray[np.int64],
    held_out: int,
    n_num: int,
    seed: int,
) -> tuple[Floats, Floats]:
    """Return the predictions for one fold, and the gain of each column."""
    import lightgbm as lgb

    used = fold != held_out
    settings = MODEL | {"seed": seed}
    data = lgb.Dataset(
        x[used],
        is_synthetic[used].astype(np.float64),
        categorical_feature=list(range(n_num, x.shape[1])),
        params=settings,
    )
    model = lgb.train(settings, data, N_TREES)
    chances = model.predict(x[~used], num_threads=1)
    return np.asarray(chances), np.asarray(model.feature_importance("gain"))


def detection(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    numeric: Sequence[str],
    categorical: Sequence[str],
    *,
    seed: int,
    folds: int = 3,
    n_jobs: int = 1,
    holes: Holes = "refuse",
) -> Detection:
    """Return how well trees tell synthetic rows from real ones.

    Parameters
    ----------
    real, synthetic : pandas.DataFrame
        The longer table is cut at random to the length of the shorter one.
    numeric, categorical : sequence of str
        The columns to use. A level that only one table has may well give it away.
    seed : int
        Draws the rows that stay and the folds.
    folds : int
        Parts that are held out in turn.
    n_jobs : int
        Worker processes, one fold each. The answer does not depend on it.
    holes : {"refuse", "feature"}
        Whether tables must be complete, or a hole is one more thing that trees can
        see. The second is for an incomplete real table against synthetic rows with
        holes made like those in it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=900)
    >>> real = pd.DataFrame({"x": x, "y": x, "z": rng.normal(size=900)})
    >>> half = len(real) // 2
    >>> fresh = detection(real[:half], real[half:], ["x", "y", "z"], [], seed=0)
    >>> 0.4 < fresh.value < 0.6
    True
    >>> broken = real.assign(y=rng.permutation(real["y"]))
    >>> found = detection(real, broken, ["x", "y", "z"], [], seed=0)
    >>> found.value > 0.9, sorted(found.table["column"][:2]), found.rows
    (True, ['x', 'y'], 900)
    """
    if holes not in get_args(Holes):
        raise UsageError(
            f'`holes` is "refuse" or "feature", but is {holes!r}; choose one of them.'
        )
    tables: Frames = {"real": real, "synthetic": synthetic}
    check_tables(tables, numeric, categorical)
    tables, rows, note = _equally_long(tables, seed)
    if not 2 <= folds <= rows:
        raise (UsageError if rows > 1 else DataError)(
            f"Each of at least 2 folds has rows of both tables, but there are {folds} "
            f"folds and {rows} rows per table; change the folds or pass more rows."
        )
    x = _features(tables, numeric, categorical, holes)
    is_synthetic = np.repeat([False, True], rows)
    rng = stream(seed, "detect", "folds")
    # Every fold gets as many real as synthetic rows.
    fold = np.concatenate([rng.permutation(np.arange(rows) % folds) for _ in range(2)])
    model_seed = stream_seed(seed, "detect", "model") % 2**31
    calls = [(x, is_synthetic, fold, k, len(numeric), model_seed) for k in range(folds)]
    chances = np.empty(2 * rows)
    gains = np.zeros(x.shape[1])
    found = dict(run_each(_fold, calls, cells=x.size, n_jobs=n_jobs))
    for k in range(folds):
        chances[fold == k] = found[k][0]
        gains += found[k][1]
    table = pd.DataFrame(
        {
            "column": [*numeric, *categorical],
            "importance": gains / (gains.sum() or 1.0),
        }
    ).sort_values("importance", ascending=False, kind="stable", ignore_index=True)
    return Detection(float(roc_auc_score(is_synthetic, chances)), table, rows, note)
