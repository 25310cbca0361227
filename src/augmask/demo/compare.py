"""The three training strategies on one incomplete table whose complete truth is known.

`augmask demo` prints the result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import joblib
import pandas as pd

from augmask.config import STRATEGIES
from augmask.demo.clinic import clinic, clinic_with_missing
from augmask.errors import DataError
from augmask.evaluation.alpha_beta import alpha_beta
from augmask.evaluation.detection import detection
from augmask.evaluation.evaluate import evaluate
from augmask.evaluation.fidelity import shape, trend
from augmask.evaluation.results import pair_names, worst_tenth
from augmask.evaluation.tables import Floats
from augmask.evaluation.utility import utility
from augmask.model import AugMask
from augmask.progress import Progress, silent
from augmask.report.page import write_report
from augmask.sample.write import write_frames
from augmask.table.schema import CATEGORICAL, NUMERIC, Schema

# The fastest to learn this table on a CPU (benchmarks/clinic_backbones.py): three fits
# and a report take two minutes.
BACKBONE = "tabddpm"
TARGET = "triage"
MEANING = {
    "NoAug": "missing values filled with the mean and learned as if observed",
    "AugFull": "missing values filled with draws and learned as if observed",
    "AugMask": "missing values filled with draws, loss on observed values only",
    "real": "other complete visits to the same clinic: what a perfect table scores",
}
# What the demo writes to its folder.
FILES = {
    "clinic-incomplete.csv": "the training table, with missing values",
    "clinic-truth.csv": "the same table complete, which no model sees",
    "clinic-test.csv": "other visits, to test on",
    "clinic-synthetic.csv": "complete synthetic rows from AugMask",
    "clinic.augmask": "the AugMask model, to sample more rows from",
    "report.html": "the quality report: open it in a browser",
}


@dataclass(frozen=True)
class Comparison:
    """Scores of complete rows against the complete truth.

    `trend_worst` is the mean over the worst tenth of pairs, and `worst_pair` the very
    worst one. `verdict` is the sentence of the report, which only AugMask has.
    """

    strategy: str
    meaning: str
    shape: float
    trend: float
    alpha_precision: float
    beta_recall: float
    mle: float
    c2st_auc: float
    trend_worst: float
    worst_pair: str
    seconds: float
    verdict: str = ""


def compare_with_truth(
    strategy: str,
    rows: pd.DataFrame,
    truth: pd.DataFrame,
    test: pd.DataFrame,
    schema: Schema,
    *,
    seed: int,
    seconds: float,
    cache: dict[str, Floats],
) -> Comparison:
    """Score complete rows by the paper's five metrics, C2ST and the worst pairs."""
    numeric = [column.name for column in schema if column.kind in NUMERIC]
    categorical = [column.name for column in schema if column.kind in CATEGORICAL]
    tables = (truth, rows, numeric, categorical)
    alpha, beta = alpha_beta(*tables, cache=cache)
    mle = utility(
        *(truth, rows, test, numeric, categorical, TARGET),
        seed=seed,
        cache=cache,
        learner="lightgbm",
    ).value
    pairs = trend(*tables)
    lowest = pairs.table.sort_values("score", kind="stable")[:1]
    return Comparison(
        strategy,
        MEANING[strategy],
        shape(*tables).value,
        pairs.value,
        alpha.value,
        beta.value,
        mle,
        # The AUC does not depend on the number of cores.
        detection(*tables, seed=seed, n_jobs=joblib.cpu_count()).value,
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
    """Fit every strategy on the incomplete clinic table and yield its scores.

    The last scores are those of other real rows, as a reference. Writes `FILES` to the
    folder `out`.
    """
    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot create the folder {out}: {error.strerror}; choose another one"
        ) from error
    truth, incomplete = clinic_with_missing(n, seed)
    test = clinic(n, seed + 1)
    cache: dict[str, Floats] = {}
    for name, frame in (("incomplete", incomplete), ("truth", truth), ("test", test)):
        write_frames([frame], out / f"clinic-{name}.csv")
    for strategy, (augmenter, supervise) in STRATEGIES.items():
        start = time.monotonic()

        def with_strategy(
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
        model.fit(incomplete, holdout=0, progress=with_strategy)
        synthetic = model.sample(n, seed=seed, progress=with_strategy)
        seconds = time.monotonic() - start
        known = (truth, test, model.schema_)
        compared = compare_with_truth(
            strategy, synthetic, *known, seed=seed, seconds=seconds, cache=cache
        )
        if strategy == "AugMask":
            write_frames([synthetic], out / "clinic-synthetic.csv")
            model.save(out / "clinic.augmask")
            scores = evaluate(
                incomplete,
                synthetic,
                test=test,
                target=TARGET,
                model=model,
                seed=seed,
                progress=progress,
            )
            write_report(out / "report.html", scores, model)
            compared = replace(compared, verdict=scores.verdict)
        yield compared
    others = clinic(n, seed + 2)
    yield compare_with_truth(
        "real", others, *known, seed=seed, seconds=0.0, cache=cache
    )
