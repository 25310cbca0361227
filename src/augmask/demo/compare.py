"""The point of the method on one screen: three strategies, one known truth."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path

import joblib
import pandas as pd

from augmask.config import STRATEGIES
from augmask.demo.clinic import clinic, clinic_with_holes
from augmask.errors import DataError
from augmask.evaluation.columns import Floats
from augmask.evaluation.coverage import alpha_beta
from augmask.evaluation.detect import detection
from augmask.evaluation.evaluate import evaluate
from augmask.evaluation.fidelity import shape, trend
from augmask.evaluation.utility import utility
from augmask.evaluation.worst import pair_names, worst_tenth
from augmask.model import AugMask
from augmask.progress import Progress, silent
from augmask.report.page import write_report
from augmask.sample.stream import write_frames
from augmask.table.schema import CATEGORICAL, NUMERIC, Schema

# The one that learns this table fastest on a CPU, see benchmarks/clinic_backbones.py:
# three fits and a report take two minutes.
BACKBONE = "tabddpm"
TARGET = "triage"
MEANING = {
    "NoAug": "holes filled with the mean, and learned as if real",
    "AugFull": "holes filled with draws, and learned as if real",
    "AugMask": "holes filled with draws, learned from observed cells only",
    "real": "other complete visits to the same clinic: what a perfect table scores",
}
# What the demo leaves in its folder.
FILES = {
    "clinic-incomplete.csv": "what the models saw",
    "clinic-truth.csv": "what they never saw",
    "clinic-test.csv": "other visits, to test on",
    "clinic-synthetic.csv": "complete synthetic rows by AugMask",
    "clinic.augmask": "its model, to sample more rows from",
    "report.html": "how good the rows are, in pictures: open it in a browser",
}


@dataclass(frozen=True)
class Comparison:
    """How close one strategy came to the complete truth; `mle` takes XGBoost.

    `trend_worst` is the mean over the tenth of pairs that are least alike, and
    `worst_pair` the pair that is least so.
    """

    strategy: str
    meaning: str
    shape: float
    trend: float
    alpha_precision: float
    beta_recall: float
    mle: float | None
    c2st_auc: float
    trend_worst: float
    worst_pair: str
    seconds: float


@dataclass(frozen=True)
class Judge:
    """The paper's five metrics and those that see the worst, against the truth."""

    truth: pd.DataFrame
    test: pd.DataFrame
    schema: Schema
    seed: int
    cache: dict[str, Floats]

    def compare(self, name: str, rows: pd.DataFrame, seconds: float) -> Comparison:
        """Return the scores of complete rows."""
        columns = (
            [column.name for column in self.schema if column.kind in NUMERIC],
            [column.name for column in self.schema if column.kind in CATEGORICAL],
        )
        alpha, beta = alpha_beta(self.truth, rows, *columns, cache=self.cache)
        mle = None
        if util.find_spec("xgboost") is not None:
            mle = utility(
                self.truth,
                rows,
                self.test,
                *columns,
                TARGET,
                seed=self.seed,
                cache=self.cache,
            ).value
        pairs = trend(self.truth, rows, *columns)
        # All cores: an evaluation takes them too, and the answer is the same.
        told = detection(
            self.truth, rows, *columns, seed=self.seed, n_jobs=joblib.cpu_count()
        )
        lowest = pairs.table.sort_values("score", kind="stable")[:1]
        return Comparison(
            name,
            MEANING[name],
            shape(self.truth, rows, *columns).value,
            pairs.value,
            alpha.value,
            beta.value,
            mle,
            told.value,
            worst_tenth(pairs.table),
            pair_names(lowest).iloc[0],
            seconds,
        )


def compare_strategies(
    out: str | Path,
    n: int = 5000,
    seed: int = 0,
    steps: int | None = None,
    progress: Progress = silent,
) -> Iterator[Comparison]:
    """Fit every strategy on the incomplete clinic table, yielding its scores.

    Last come the scores of real rows, as the ceiling. `FILES` are written to the
    folder `out`.
    """
    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot make the folder {out}: {error.strerror}") from error
    truth, incomplete = clinic_with_holes(n, seed)
    test = clinic(n, seed + 1)
    cache: dict[str, Floats] = {}
    for name, frame in (("incomplete", incomplete), ("truth", truth), ("test", test)):
        write_frames([frame], out / f"clinic-{name}.csv")
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
            backbone=BACKBONE,
            augmenter=augmenter,
            supervise=supervise,
            preset="fast",
            options={} if steps is None else {"steps": steps},
            seed=seed,
            device="cpu",
        )
        model.fit(incomplete, progress=report)
        synthetic = model.sample(n, seed=seed, progress=report)
        judge = Judge(truth, test, model.schema_, seed, cache)
        yield judge.compare(strategy, synthetic, time.monotonic() - began)
    # AugMask came last, so these are its rows and its model
    write_frames([synthetic], out / "clinic-synthetic.csv")
    model.save(out / "clinic.augmask")
    yield judge.compare("real", clinic(n, seed + 2), 0.0)
    scores = evaluate(
        incomplete,
        synthetic,
        test,
        TARGET,
        schema=model.schema_,
        seed=seed,
        progress=progress,
    )
    write_report(out / "report.html", scores, model)
