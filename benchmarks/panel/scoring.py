"""The same numbers for every contender, from the rows that it left.

Synthetic rows. Where the real table has missing values and a synthetic column has none,
cells are hidden by what was learned of missing values in the real table
(`MissingModel`); a contender that leaves missing values in a column of
its own is taken at its word there. Then observed cells are compared: Shape, Trend, the
worst tenth of pairs. For C2ST rows are paired and hide the same cells, so that missing
values tell nothing (`augmask.evaluation.incomplete`). Where a complete truth exists
is hidden. MLE: XGBoost learns the target from either table and is tested on real rows
that nobody saw; the ratio of the scores.

Imputed cells. Observed cells were hidden; the mean of the draws is compared with
numbers (RMSE over the column's standard deviation), the most frequent draw with levels
(accuracy), columns counting alike. Of contenders that draw, intervals are scored too.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import data
import numpy as np
import pandas as pd

from augmask.errors import AugMaskError
from augmask.evaluation.detection import detection
from augmask.evaluation.held_out import calibration
from augmask.evaluation.incomplete import KnownMask, compare_remasked, match_missing
from augmask.evaluation.references import mean_mode_fill
from augmask.evaluation.results import worst_tenth
from augmask.evaluation.utility import XGBOOST
from augmask.missing.model import MissingModel, with_missing

REAL = "real rows"
NUMBERS = (
    *("c2st", "worst_tenth", "mle", "shape", "trend"),
    *("rmse", "accuracy", "coverage_80", "skill"),
)
COLUMNS = (
    *("table", "task", "method", "commit", "date", "seed", "rows"),
    *("seconds", "cpu_seconds", "load"),
    *NUMBERS,
    "why",
)
KEY = ["table", "task", "method", "commit", "date"]
COVERAGE = 0.8
# Folds of a few rows differ by chance; the mean of several is steadier.
FEW_ROWS = 2500
REPEATS = 5


def _rng(*words: object) -> np.random.Generator:
    """Return the same generator for every contender."""
    return np.random.default_rng([len(words), *map(len, map(str, words))])


class Table:
    """A prepared table, read once for all contenders.

    Parameters
    ----------
    work : Path
    name : str
    """

    def __init__(self, work: Path, name: str) -> None:
        whole = data.panel()
        self.facts, self.settings = data.facts(work, name), whole["settings"]
        self.target = whole["tables"][name]["target"]
        self.folder = work / "tables" / name
        train = pd.read_parquet(self.folder / "train.parquet")
        kinds = self.facts["kinds"]
        # A column may have all its values in the test rows.
        self.kinds = data.Kinds(
            {n: k for n, k in kinds.items() if train[n].notna().any()}
        )
        self.train = data.plain(train, self.kinds)
        self.test = self.read("test.parquet")
        truth = self.folder / "truth.parquet"
        self.truth = self.read("truth.parquet") if truth.exists() else None
        self.columns = (self.kinds.numeric, self.kinds.categorical)
        self._model: MissingModel | None = None

    def read(self, file: str) -> pd.DataFrame:
        """Return a stored table as it is scored."""
        return data.plain(pd.read_parquet(self.folder / file), self.kinds)

    @property
    def real(self) -> pd.DataFrame:
        """What synthetic rows are compared with."""
        return self.train if self.truth is None else self.truth

    def hidden(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return synthetic rows with missing values like those of the real table."""
        if self.truth is not None:
            return rows
        if self._model is None:
            self._model = MissingModel().fit(self.train, self.kinds.numeric)
        seen = self._model.draw_mask(rows, _rng("hidden"))
        own = rows.isna()
        told = own.any(axis=0).to_numpy()
        return with_missing(rows, np.where(told, ~own.to_numpy(), seen))


def _codes(frame: pd.DataFrame, like: pd.DataFrame, table: Table) -> np.ndarray:
    """Return numbers and codes of levels, NaN where a value is missing or unknown."""
    columns = [frame[name].to_numpy(np.float64) for name in table.kinds.numeric]
    for name in table.kinds.categorical:
        levels = sorted(set(like[name].dropna()))
        codes = pd.Categorical(frame[name], categories=levels).codes.astype(float)
        columns.append(np.where(codes < 0, np.nan, codes))
    return np.stack(columns, axis=1)


def _skill(
    train: np.ndarray, test: np.ndarray, target: int, classes: int, seed: int
) -> float:
    """Return AUROC, or the RMSE of a number, of a model on the test rows."""
    import xgboost
    from sklearn.metrics import roc_auc_score

    train, test = (x[~np.isnan(x[:, target])] for x in (train, test))
    x, y = np.delete(train, target, axis=1), train[:, target]
    x_test, y_test = np.delete(test, target, axis=1), test[:, target]
    settings = XGBOOST | {"random_state": seed, "n_jobs": 1}
    if not classes:
        model = xgboost.XGBRegressor(**settings).fit(x, y)
        return float(np.sqrt(np.mean((model.predict(x_test) - y_test) ** 2)))
    present, labels = np.unique(y, return_inverse=True)
    chances = np.zeros((len(y_test), classes))
    if len(present) > 1:
        model = xgboost.XGBClassifier(**settings).fit(x, labels)
        chances[:, present.astype(int)] = model.predict_proba(x_test)
    asked = [k for k in range(classes) if 0 < (y_test == k).sum() < len(y_test)]
    areas = [roc_auc_score(y_test == k, chances[:, k]) for k in asked]
    return float(np.mean(areas))


def mle(table: Table, rows: pd.DataFrame, seed: int) -> float:
    """Return how much of a model's skill synthetic rows keep."""
    target = table.target
    place = [*table.columns[0], *table.columns[1]].index(target)
    most = table.settings["score_rows"]
    classes = 0
    if target in table.columns[1]:
        classes = table.train[target].nunique()
    real, test = table.real, table.test
    frames = []
    for i, frame in enumerate((real, rows)):
        kept = np.sort(_rng("mle", i).permutation(len(frame))[:most])
        frames.append(_codes(frame.iloc[kept], real, table))
    asked = _codes(test, real, table)
    trtr, tstr = (_skill(x, asked, place, classes, seed) for x in frames)
    return tstr / trtr if classes else trtr / tstr


def compared(table: Table, masked: pd.DataFrame, seed: int) -> dict[str, float]:
    """Return the numbers that compare observed cells of two tables."""
    numeric, categorical = table.columns
    # A rare column may have no value in a few rows.
    shown = [name for name in table.real if masked[name].notna().any()]
    numeric = [name for name in numeric if name in shown]
    categorical = [name for name in categorical if name in shown]
    masked = masked[[*numeric, *categorical]]
    found = compare_remasked(
        table.real,
        mean_mode_fill(masked, numeric, categorical),
        numeric,
        categorical,
        rng=_rng("remasked"),
        model=KnownMask(masked),
    )
    most = table.settings["score_rows"]
    cut = [
        frame.iloc[np.sort(_rng("c2st", i).permutation(len(frame))[:most])]
        for i, frame in enumerate((table.real[list(masked)], masked))
    ]
    told = []
    for i in range(REPEATS if len(cut[0]) < FEW_ROWS else 1):
        pair = match_missing(*(f.reset_index(drop=True) for f in cut), _rng("alike", i))
        found_in = detection(
            *pair, numeric, categorical, seed=seed + i, allow_missing=True
        )
        told.append(found_in.value)
    return {
        "shape": found.shape,
        "trend": found.trend,
        "worst_tenth": worst_tenth(found.pairs),
        "c2st": float(np.mean(told)),
    }


def synthetic(table: Table, rows: pd.DataFrame, seed: int) -> dict[str, float]:
    """Return the numbers of synthetic rows."""
    lost = [name for name in table.real if not rows[name].notna().any()]
    if lost:
        raise AugMaskError(f"no value at all in the column {lost[0]!r}")
    masked = table.hidden(rows)
    return {**compared(table, masked, seed), "mle": mle(table, masked, seed)}


def _most_frequent(draws: list[pd.Series]) -> np.ndarray:
    """Return the level that most draws have, the first of equals."""
    told = pd.concat(draws, axis=1).astype(object).to_numpy()
    return np.array(
        [max(dict.fromkeys(row), key=list(row).count) for row in told], dtype=object
    )


def imputed(table: Table, draws: list[pd.DataFrame]) -> dict[str, float]:
    """Return the numbers of cells that were hidden and filled."""
    true, holed = (
        pd.read_parquet(table.folder / f"impute-{part}.parquet")
        for part in ("true", "holed")
    )
    kinds = data.Kinds({n: k for n, k in table.facts["kinds"].items() if n in true})
    true, holed = (data.plain(frame, kinds) for frame in (true, holed))
    frames = [data.plain(frame, kinds) for frame in draws]
    hidden = holed.isna() & true.notna()
    rmse, right = [], []
    for name in true:
        cells = hidden[name].to_numpy()
        if not cells.any():
            continue
        wanted = true.loc[cells, name]
        drawn = [frame.loc[cells, name] for frame in frames]
        if name in kinds.categorical:
            right.append(float(np.mean(_most_frequent(drawn) == wanted.to_numpy())))
            continue
        # Whoever leaves a cell missing is taken to mean the mean.
        mean = holed[name].mean()
        guess = np.mean([d.fillna(mean).to_numpy(float) for d in drawn], axis=0)
        error = float(np.sqrt(np.mean((guess - wanted.to_numpy(float)) ** 2)))
        spread = float(true[name].std())
        if spread:
            rmse.append(error / spread)
    found = {
        "rmse": float(np.mean(rmse)) if rmse else np.nan,
        "accuracy": float(np.mean(right)) if right else np.nan,
    }
    complete = all(
        not f[hidden].isna().where(hidden, False).any(axis=None) for f in frames
    )
    if len(frames) > 1 and complete:
        filled = [f.where(hidden, true) for f in frames]
        found |= _intervals(true, hidden, filled, kinds)
    return found


def _intervals(
    true: pd.DataFrame,
    hidden: pd.DataFrame,
    frames: list[pd.DataFrame],
    kinds: data.Kinds,
) -> dict[str, float]:
    """Return how often intervals hold what was hidden, and the gain over the column."""
    result = calibration(
        true, hidden, frames, kinds.numeric, kinds.categorical, rng=_rng("intervals")
    )
    lines = result.coverage[result.coverage["nominal"] == COVERAGE]
    covered = float(np.average(lines["coverage"], weights=lines["cells"]))
    return {"coverage_80": covered, "skill": result.skill}


def _line(run: dict[str, Any], score: Callable[[], dict[str, float]]) -> dict[str, Any]:
    """Return a line of results, or why there are no numbers in it."""
    line = dict(run)
    if line.get("why"):
        return line
    try:
        line |= {k: round(v, 4) for k, v in score().items()}
    except (AugMaskError, ValueError, KeyError) as error:
        line["why"] = f"not scored: {error}"
    return line


def _append(result: Path, line: dict[str, Any]) -> None:
    """Append a line to the results at once: whatever was scored is kept."""
    frame = pd.DataFrame([{name: line.get(name) for name in COLUMNS}])
    frame.to_csv(result, mode="a", header=not result.exists(), index=False)


def _real_rows(table: Table, name: str, seed: int) -> dict[str, Any]:
    """Return the line of real rows that nobody learned from: the ceiling."""
    run = {
        "table": name,
        "task": "synthesize",
        "method": REAL,
        "commit": "",
        "date": "",
        "rows": len(table.test),
        "seed": seed,
    }

    # They bring their own missing values, and are what MLE is tested on.
    return _line(run, lambda: compared(table, table.test, seed))


def score_all(work: Path, result: Path, names: list[str]) -> None:
    """Score every run that has no line in the results yet."""
    warnings.simplefilter("ignore")
    known: set[tuple[str, ...]] = set()
    if result.exists():
        read = pd.read_csv(result, dtype=str, keep_default_na=False)
        known = set(read[KEY].itertuples(index=False, name=None))
    result.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (work / "tables" / name / "facts.json").exists():
            continue
        table: Table | None = None
        if (name, "synthesize", REAL, "", "") not in known:
            table = Table(work, name)
            _append(result, _real_rows(table, name, table.facts["seed"]))
        for done in sorted((work / "runs" / name).glob("*/*/done.json")):
            run = json.loads(done.read_text())
            if tuple(str(run[key]) for key in KEY) in known:
                continue
            table = Table(work, name) if table is None else table
            began = time.monotonic()
            line = _line(run, lambda t=table, d=done, r=run: _scored(t, d.parent, r))
            _append(result, line)
            told = line["why"] or {k: line[k] for k in NUMBERS if k in line}
            print(f"{name} {run['task']} {run['method']}: {told}", end=" ")
            print(f"({time.monotonic() - began:.0f} s)", flush=True)


def _scored(table: Table, folder: Path, run: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of one run."""
    files = sorted(folder.glob("[0-9]*.parquet"), key=lambda path: int(path.stem))
    frames = [pd.read_parquet(path) for path in files]
    if run["task"] == "impute":
        return imputed(table, frames)
    return synthetic(table, data.plain(frames[0], table.kinds), run["seed"])
