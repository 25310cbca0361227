"""Every metric together with the numbers to compare it with.

A metric compares two tables, so it also applies to other pairs than the real and the
synthetic one. `Pairs` names them by their role:

* `value`: the real and the synthetic table;
* `reference`: real rows and other real rows, the ceiling;
* `floor`: the real table and independent columns;
* `filled`: complete test rows and mean/mode-imputed real rows;
* `comparable`: the real rows of the reference and as many synthetic ones, for metrics
  that get worse with fewer rows.

A value comes with its noise, `Z` standard errors of its difference to the reference, so
that chance is not taken for a fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import joblib
import numpy as np
import pandas as pd

from augmask.augmentation import Augmenter
from augmask.evaluation.alpha_beta import alpha_beta
from augmask.evaluation.dependence import dependence_kept
from augmask.evaluation.descriptions import make_entry
from augmask.evaluation.detection import detection
from augmask.evaluation.fidelity import shape, trend
from augmask.evaluation.held_out import (
    HIDDEN_SHARE,
    N_DRAWS,
    augmenter_name,
    held_out_cells,
)
from augmask.evaluation.incomplete import (
    KnownMask,
    RemaskedScores,
    compare_remasked,
    match_missing,
)
from augmask.evaluation.privacy import privacy
from augmask.evaluation.references import mean_mode_fill
from augmask.evaluation.results import Entry, worst_tenth
from augmask.evaluation.tables import ColumnNames, Floats, Tables, first_permuted
from augmask.evaluation.utility import TITLES, Learner, Utility, utility
from augmask.missing.model import MissingModel
from augmask.progress import Progress
from augmask.rng import stream

Role = Literal["value", "reference", "floor", "filled", "comparable"]
Pair = tuple[pd.DataFrame, pd.DataFrame]
Pairs = Mapping[Role, Pair]
Result = TypeVar("Result")

# Standard errors that chance may reach; there are many numbers.
Z = 2.5
# Standard deviation of 1 - score among real rows, relative to its mean, times the root
# of the number of columns; from repeated halves of six tables of 60 to 5,000 rows.
# Cells of two columns are many and steady, correlations are few and vary more.
SHAPE_SPREAD = 0.4
TREND_SPREAD = 0.17
CORRELATION_SPREAD = 0.9
# Standard deviation in fresh samples of 100 to 400 rows relative to the textbook error:
# β-recall sums over quantiles, and trees that overfit few rows vary by themselves.
BETA_SPREAD = 1.4
AUC_SPREAD = 1.5
# Dependence kept has a standard error of its own, and is one number.
Z_KEPT = 2.0
CONFIDENCE = 0.8


def noise_of_means(
    key: str, reference: float, numeric: Sequence[str], categorical: Sequence[str]
) -> float:
    """Return the noise of Shape or Trend, which would be 1 but for chance.

    Examples
    --------
    >>> round(noise_of_means("shape", 0.9, ["age", "pay"], ["sex", "job"]), 2)
    0.07
    """
    spread = SHAPE_SPREAD
    if key.startswith("trend"):
        spread = TREND_SPREAD if len(categorical) else CORRELATION_SPREAD
    if key.startswith(("trend_sdmetrics", "trend_worst")):
        # Bins that move with the largest value of either table, or a tenth of the
        # pairs; measured in the same way on eight tables of 60 to 1,000 rows.
        spread = max(spread, SHAPE_SPREAD)
    gap = 0.0 if math.isnan(reference) else 1 - reference
    return Z * spread * gap * math.sqrt(2 / (len(numeric) + len(categorical)))


def noise_of_shares(share: float, *counts: float) -> float:
    """Return the noise of a difference between shares of `counts` trials.

    Examples
    --------
    >>> noise_of_shares(0.5, 200, 200)
    0.125
    """
    return Z * math.sqrt(sum(share * (1 - share) / n for n in counts))


def _utility_noise(result: Utility, truth: pd.Series) -> float:
    """Return the noise of MLE: the relative error of a score on the test rows.

    Both models are tested on the same rows, so this is an upper bound.
    """
    if result.measure != "auroc":
        return Z / math.sqrt(len(truth))
    # The error of an AUC is about that of a share of the rows of the rarer side.
    rarer = len(truth) - int(truth.value_counts().max())
    return noise_of_shares(result.trtr, rarer) / max(result.trtr, 0.5)


def _measure_each(measure: Callable[..., Result], pairs: Pairs) -> dict[Role, Result]:
    return {role: measure(*pair) for role, pair in pairs.items()}


def _with_reference(
    table: pd.DataFrame, other: pd.DataFrame, score: str
) -> pd.DataFrame:
    """Return a table of columns or pairs with the reference of each line."""
    names = [name for name in ("column", "first", "second") if name in table]
    references = other[[*names, score]].rename(columns={score: "reference"})
    return table.merge(references, "left", on=names)


class Scorer:
    """Computes metrics with their references, and collects the results for `Scores`."""

    def __init__(self, tables: Tables, seed: int, n_jobs: int | None) -> None:
        self.tables = tables
        self.seed = seed
        self.n_jobs = n_jobs
        self.columns = tables.columns
        self.cache: dict[str, Floats] = {}
        self.entries: dict[str, Entry] = {}
        self.details: dict[str, pd.DataFrame] = {}
        self.parts: dict[str, Any] = {}
        self.notes: list[str] = []
        self.filled: dict[str, float] = {}
        # Pairs of real and re-masked rows, if the real table is incomplete.
        self.incomplete: dict[Role, Pair] = {}

    def add(
        self, key: str, numbers: Mapping[Role, float | None], **options: Any
    ) -> None:
        """Add a number with its references; NaN and None are left out."""
        value, reference, floor, filled, comparable = (
            None if number is None or math.isnan(number) else float(number)
            for number in (numbers.get(role) for role in get_args(Role))
        )
        if value is None:
            return
        self.entries[key] = make_entry(
            key, value, reference, floor, comparable=comparable, **options
        )
        if filled is not None:
            self.filled[key] = filled

    def _mean_noise(self, key: str, reference: float) -> float:
        return noise_of_means(key, reference, **self.columns)

    def _comparable_pair(self, pairs: Pairs) -> Pair | None:
        """Return the pair `comparable`; None if all pairs have as many rows anyway."""
        synthetic, (real, other) = pairs["value"][1], pairs["reference"]
        if [len(frame) for frame in pairs["value"]] == [len(real), len(other)]:
            return None
        return real, first_permuted(synthetic, len(other), stream(self.seed, "alike"))

    def _add_worst(self, key: str, pairs: Mapping[Role, pd.DataFrame]) -> None:
        tenths = {role: worst_tenth(t, pairs["value"]) for role, t in pairs.items()}
        self.add(key, tenths, noise=self._mean_noise(key, tenths["reference"]))

    def add_fidelity(self, pairs: Pairs, suffix: str = "") -> None:
        """Add Shape and both kinds of Trend; `suffix` distinguishes their tables."""
        comparable = self._comparable_pair(pairs)
        if comparable is not None:
            pairs = {**pairs, "comparable": comparable}
        shapes = _measure_each(partial(shape, **self.columns), pairs)
        trends = _measure_each(partial(trend, **self.columns), pairs)
        published = _measure_each(
            partial(trend, **self.columns, edges="sdmetrics"), pairs
        )
        for key, scores in (
            ("shape", shapes),
            ("trend", trends),
            ("trend_sdmetrics", published),
        ):
            values = {role: score.value for role, score in scores.items()}
            self.add(key, values, noise=self._mean_noise(key, values["reference"]))
            self.parts[key] = scores["value"]
        self._add_worst(
            "trend_worst", {role: score.table for role, score in trends.items()}
        )
        if not suffix:
            self.add_dependence(pairs["value"])
        for name, scores in (("columns", shapes), ("pairs", trends)):
            self.details[name + suffix] = _with_reference(
                scores["value"].table, scores["reference"].table, "score"
            )

    def add_dependence(self, pair: Pair) -> None:
        """Add the share of the dependence between columns that is kept."""
        kept = None
        if len(self.tables.numeric) + len(self.tables.categorical) > 1:
            kept = dependence_kept(*pair, **self.columns, seed=self.seed)
        if kept is not None:
            self.add(
                "dependence",
                {"value": kept.value, "reference": 1.0, "floor": 0.0},
                noise=Z_KEPT * kept.error,
            )

    def _equally_long(self, pair: Pair, role: str) -> Pair:
        """Return both tables cut at random to the length of the shorter one."""
        n = min(map(len, pair))
        cut = []
        for i, frame in enumerate(pair):
            rng = stream(self.seed, "coverage", role, i)
            rows = np.sort(rng.permutation(len(frame))[:n])
            cut.append(frame if len(frame) == n else frame.iloc[rows])
        return cut[0], cut[1]

    def add_coverage(self, pairs: Pairs) -> None:
        """Add α-precision and β-recall, on equally many rows of both tables."""
        real, synthetic = pairs["value"]
        if len(real) != len(synthetic):
            n = min(len(real), len(synthetic))
            self.notes.append(
                f"α-precision and β-recall compare a random {n:,} rows of each table, "
                "because they need equally many."
            )
        # "value" for all: cut the real table in one way, to search it once.
        equal: Pairs = {
            role: self._equally_long(pair, "value" if pair[0] is real else role)
            for role, pair in pairs.items()
        }
        measure = partial(
            alpha_beta, **self.columns, cache=self.cache, n_jobs=self.n_jobs
        )
        both = _measure_each(measure, equal)
        rows = [len(equal[role][0]) for role in ("value", "reference")]
        noises = (
            # The shape of one column: the distances from the centre.
            noise_of_means("shape", both["reference"][0].value, ["distance"], []),
            # Whether a synthetic or a real row is the nearer one is a coin toss.
            BETA_SPREAD * noise_of_shares(0.5, *rows),
        )
        for i, key in enumerate(("alpha_precision", "beta_recall")):
            numbers = {role: scores[i].value for role, scores in both.items()}
            self.add(key, numbers, noise=noises[i])
            self.parts[key] = both["value"][i]

    def add_detection(self, pairs: Pairs, remasked: bool = False) -> None:
        """Add the C2ST AUC and the columns that reveal the synthetic table."""
        measure = partial(
            detection,
            **self.columns,
            seed=self.seed,
            n_jobs=joblib.cpu_count() if self.n_jobs is None else self.n_jobs,
            allow_missing=remasked,
        )
        results = _measure_each(measure, pairs)
        # The variance of an AUC of n against n rows from one distribution.
        rows = [results[role].rows for role in ("value", "reference")]
        error = math.sqrt(sum((2 * n + 1) / (12 * n**2) for n in rows))
        self.add(
            "c2st_auc",
            {role: result.value for role, result in results.items()},
            description="c2st_auc_remasked" if remasked else "c2st_auc",
            noise=AUC_SPREAD * Z * error,
        )
        self.details["features"] = results["value"].table
        self.parts["detection"] = results["value"]

    def add_privacy(self, real: pd.DataFrame, holdout: pd.DataFrame) -> None:
        """Add the signs of copying."""
        result = privacy(
            real,
            self.tables.synthetic,
            holdout,
            **self.columns,
            seed=self.seed,
            cache=self.cache,
        )
        for line in result.table.itertuples():
            numbers: dict[Role, float | None] = {
                "value": line.value,
                "reference": line.reference,
            }
            self.add(line.measure, numbers, detail=line.meaning)
        self.notes.append(result.note)
        self.details["privacy"] = result.table
        self.parts["privacy"] = result

    def add_utility(
        self,
        pairs: Pairs,
        test: pd.DataFrame,
        target: str,
        learner: Learner,
        imputed: bool,
    ) -> None:
        """Add MLE and its two parts; the first table of each pair is trained on too.

        If that table was `imputed`, TRTR is the `filled` side of TSTR, and there is no
        MLE.
        """
        measure = partial(
            utility,
            test=test,
            **self.columns,
            target=target,
            seed=self.seed % 2**31,
            cache=self.cache,
            learner=learner,
        )
        results = _measure_each(measure, pairs)
        result = results["value"]
        noise = _utility_noise(result, test[target].dropna())
        options: dict[str, Any] = {
            "lower_is_better": result.measure != "auroc",
            "detail": f"Measured as {result.measure} of {TITLES[learner]}.",
        }
        tstr = {role: other.tstr for role, other in results.items()}
        if not imputed:
            ratios = {role: other.value for role, other in results.items()}
            self.add("mle", ratios | {"reference": 1.0}, noise=noise)
            tstr |= {"reference": result.trtr}
            self.add("tstr", tstr, noise=noise * result.trtr, **options)
            self.add("trtr", {"value": result.trtr}, **options)
        else:
            self.add("tstr", tstr | {"filled": result.trtr}, **options)
        self.details["utility"] = result.table.rename_axis("measure").reset_index()
        self.parts["utility"] = result

    def _compare_observed(self, pair: Pair) -> RemaskedScores:
        """Compare the observed cells of two incomplete tables."""
        real, other = pair
        # A sparse column may have no value among the rows of one side.
        shared = [name for name in real if all(f[name].notna().any() for f in pair)]
        columns: ColumnNames = {
            "numeric": [name for name in self.tables.numeric if name in shared],
            "categorical": [name for name in self.tables.categorical if name in shared],
        }
        other = other[[*columns["numeric"], *columns["categorical"]]]
        return compare_remasked(
            real,
            # Imputed cells are hidden again and never compared.
            mean_mode_fill(other, **columns),
            **columns,
            rng=stream(self.seed, "remask"),
            model=KnownMask(other),
        )

    def add_remasked(self, pairs: Pairs) -> None:
        """Add Shape, Trend and C2ST after re-masking."""
        tables = self.tables
        names = [*tables.numeric, *tables.categorical]
        model = MissingModel().fit(tables.real[names], tables.numeric)
        own = tables.incomplete_synthetic
        results: dict[Role, RemaskedScores] = {}
        incomplete = self.incomplete
        for role, (real, other) in pairs.items():
            if role == "reference":
                results[role] = self._compare_observed((real, other))
                incomplete[role] = (real, other)
                continue
            rng = stream(self.seed, "remask")
            # rows with missing values of their own need no others
            mask = (
                KnownMask(own[names]) if role == "value" and own is not None else model
            )
            results[role] = compare_remasked(
                real, other, **self.columns, rng=rng, model=mask
            )
            incomplete[role] = (real, results[role].frame)
        comparable = self._comparable_pair(incomplete)
        if comparable is not None:
            results["comparable"] = self._compare_observed(comparable)
        for key, name in (
            ("shape_remasked", "shape"),
            ("trend_remasked", "trend"),
            ("shape_complete", "shape_complete"),
            ("trend_complete", "trend_complete"),
            ("rate_gap", "rate_gap"),
        ):
            numbers = {role: float(getattr(r, name)) for role, r in results.items()}
            noise = 0.0
            if key.endswith("_complete") and own is not None:
                continue
            if key.endswith("_complete"):
                # The missing values of the reference rows were imputed.
                numbers = {role: numbers[role] for role in ("value", "floor")}
            elif key.endswith("_remasked"):
                noise = self._mean_noise(key, numbers["reference"])
            else:
                # A maximum over columns: what real rows reach is chance.
                numbers.pop("comparable", None)
                noise = numbers["reference"]
            self.add(key, numbers, noise=noise)
        self._add_worst(
            "trend_worst_remasked", {role: r.pairs for role, r in results.items()}
        )
        self.add_dependence(incomplete["value"])
        result = results["value"]
        for name in ("columns", "pairs"):
            other = getattr(results["reference"], name)
            self.details[name] = _with_reference(
                getattr(result, name), other, "remasked"
            )
        self.parts["remasked_scores"] = result
        self.parts["remasked"] = tables.for_display(result.frame)
        matched: Pairs = {
            role: match_missing(*pair, stream(self.seed, "alike", "holes", role))
            for role, pair in incomplete.items()
        }
        self.add_detection(matched, remasked=True)

    def add_held_out(self, augmenter: str | Augmenter, progress: Progress) -> None:
        """Add how calibrated and how sharp an augmenter's draws are."""
        result = held_out_cells(self.tables, augmenter, self.seed, progress)
        if result is None:
            self.notes.append(
                "Held-out cells are not scored: the incomplete columns have too few "
                "values to hide any."
            )
            return
        lines = result.coverage[result.coverage["nominal"] == CONFIDENCE]
        self.add(
            "held_out_coverage_80",
            {
                "value": float(np.average(lines["coverage"], weights=lines["cells"])),
                "reference": CONFIDENCE,
            },
            noise=noise_of_shares(CONFIDENCE, int(lines["cells"].sum())),
        )
        self.add("held_out_skill", {"value": result.skill, "floor": 0.0})
        cells = int(result.columns["cells"].sum())
        self.notes.append(
            f"Held-out cells: {cells:,} observed cells, {HIDDEN_SHARE:.0%} of each "
            f"incomplete column, were hidden and drawn {N_DRAWS} times by "
            f"{augmenter_name(augmenter)!r}. They score the augmenter on this table, "
            "not the synthetic rows."
        )
        self.details["held_out"] = result.columns
        self.details["held_out_coverage"] = result.coverage
        self.details["held_out_ranks"] = result.pit.rename_axis("column").reset_index()
        self.parts["calibration"] = result
