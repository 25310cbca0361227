"""`evaluate`: every score that applies to two tables, and what to read it against.

What applies depends on what is there. A complete real table is compared cell by cell; a
real table with holes has no complete truth, so synthetic rows get holes like its own
first. Test rows, which the generator never saw, add privacy and a better ceiling; a
target adds utility.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import util
from typing import Any

import joblib
import numpy as np
import pandas as pd

from augmask.augmentation import resolve_augmenter
from augmask.augmentation.base import Augmenter
from augmask.errors import AugMaskError, UsageError
from augmask.evaluation.alike import missing_alike
from augmask.evaluation.columns import Floats
from augmask.evaluation.measures import (
    Found,
    Pair,
    Pairs,
    add_coverage,
    add_detection,
    add_fidelity,
    add_privacy,
    add_utility,
)
from augmask.evaluation.references import (
    RealPair,
    independent,
    mean_mode_fill,
    real_pair,
)
from augmask.evaluation.scores import Scores
from augmask.evaluation.tables import Tables, read_tables
from augmask.evaluation.without_truth import add_held_out, add_remasked, rule_name
from augmask.missing.model import MissingModel, with_holes
from augmask.progress import Progress, silent
from augmask.rng import stream
from augmask.versions import library_versions

Step = Callable[[], None]

LIBRARIES = ("augmask", "numpy", "pandas", "scipy", "scikit-learn", "lightgbm")
NO_TEST = (
    "Privacy is not scored: it takes real rows that the generator never saw, pass "
    "them as test rows."
)
NO_XGBOOST = (
    "Utility is not scored: it is measured with XGBoost, which is not installed; run "
    "`pip install 'augmask[bench]'`."
)


class _Evaluation:
    """The steps of one evaluation, and what they find."""

    def __init__(
        self,
        tables: Tables,
        target: str | None,
        seed: int,
        fill: str | Augmenter | None,
        n_jobs: int | None,
        progress: Progress,
    ) -> None:
        self.tables = tables
        self.target = target
        self.seed = seed
        self.fill = fill
        self.n_jobs = n_jobs
        self.progress = progress
        self.found = Found()
        self.cache: dict[str, Floats] = {}
        self.compared_with = "real" if tables.complete else "observed cells of real"
        self.pair = self._real_pair()
        self.floor = independent(tables.real, stream(seed, "independent"))

    def _real_pair(self) -> RealPair:
        """Return real rows against other real rows, holes like with like."""
        tables = self.tables
        holdout = tables.complete_test
        if not tables.complete:
            # Test rows without holes are not like real rows that have some.
            holdout = tables.test if holdout is None else None
        return real_pair(tables.real, holdout, stream(self.seed, "reference"))

    def _pairs(self, real: pd.DataFrame, pair: RealPair) -> Pairs:
        return {
            "value": (real, self.tables.synthetic),
            "reference": (pair.real, pair.other),
            "floor": (real, self.floor),
        }

    def steps(self) -> list[Step]:
        """Return what is to be done, in order."""
        if self.tables.complete:
            steps = self._complete(self._pairs(self.tables.real, self.pair))
        else:
            steps = [self._without_truth]
            if self.tables.complete_test is not None:
                steps += self._against_test(self.tables.complete_test)
            else:
                self.found.notes.append(
                    "α-precision and β-recall are not scored: they compare complete "
                    "rows, and the real table has holes. Complete test rows would do."
                )
            if self.fill is not None:
                steps.append(
                    partial(
                        add_held_out,
                        self.found,
                        self.tables,
                        self.fill,
                        self.seed,
                        self.progress,
                    )
                )
        if self.tables.test is None:
            self.found.notes.append(NO_TEST)
        else:
            steps.append(self._privacy)
        if self.target is not None:
            steps.append(self._utility)
        return steps

    def _complete(self, pairs: Pairs, ending: str = "") -> list[Step]:
        found, tables = self.found, self.tables
        jobs = joblib.cpu_count() if self.n_jobs is None else self.n_jobs
        cover = (found, pairs, tables, self.seed, self.cache, self.n_jobs)
        steps: list[Step] = [
            partial(add_fidelity, found, pairs, tables, self.seed, ending),
            partial(add_coverage, *cover),
        ]
        if not ending:
            steps.append(partial(add_detection, found, pairs, tables, self.seed, jobs))
        return steps

    def _against_test(self, test: pd.DataFrame) -> list[Step]:
        """Compare with test rows, the only complete truth there is."""
        tables, self.compared_with = self.tables, "test"
        halves = real_pair(test, None, stream(self.seed, "reference", "test"))
        self.found.notes.append(
            "The real table has holes, so Shape, Trend, α-precision and β-recall "
            f"compare with the complete test rows; their reference: {halves.says}, "
            "the test rows in place of the real table."
        )
        filled = mean_mode_fill(tables.real, tables.numeric, tables.categorical)
        pairs: Pairs = {**self._pairs(test, halves), "filled": (test, filled)}
        return self._complete(pairs, "_test")

    def _without_truth(self) -> None:
        pairs = self._pairs(self.tables.real, self.pair)
        holed = add_remasked(self.found, pairs, self.tables, self.seed)
        jobs = joblib.cpu_count() if self.n_jobs is None else self.n_jobs
        alike: Pairs = {
            role: missing_alike(*pair, stream(self.seed, "alike", "holes", role))
            for role, pair in holed.items()
        }
        add_detection(self.found, alike, self.tables, self.seed, jobs, "feature")

    def _holes_alike(self, test: pd.DataFrame) -> Pair:
        """Return real and test rows, the complete ones with holes like the others'.

        Holes that depend on values leave values that are not like all values: rows
        with such holes would seem nearer, or farther, for that reason alone.
        """
        tables = self.tables
        names = [*tables.numeric, *tables.categorical]
        real, test = tables.real[names], test[names]
        holed, whole = (test, real) if tables.complete else (real, test)
        model = MissingModel().fit(holed, tables.numeric)
        seen = model.observed(whole, stream(self.seed, "privacy", "holes"))
        whole = with_holes(whole, seen)
        which = "real" if tables.complete else "test"
        self.found.notes.append(
            f"For privacy the complete {which} rows got holes like those of the other "
            "real rows, because only like can be compared with like."
        )
        return (whole, holed) if tables.complete else (holed, whole)

    def _privacy(self) -> None:
        real, holdout = self.tables.real, self.tables.test
        if self.pair.source == "holdout":
            # The same rows as for the reference, so that their distances are known.
            real, holdout = self.pair.real, self.pair.other
            self.found.notes.append(
                f"Privacy compares {len(real):,} real rows with {len(holdout):,} test "
                "rows: as many of each as the shorter table has."
            )
        elif self.tables.complete != (self.tables.complete_test is not None):
            real, holdout = self._holes_alike(holdout)
        try:
            add_privacy(self.found, real, holdout, self.tables, self.seed, self.cache)
        except AugMaskError as error:
            self.found.notes.append(f"Privacy is not scored. {error}")

    def _utility(self) -> None:
        tables, target, test = self.tables, str(self.target), self.tables.complete_test
        if util.find_spec("xgboost") is None:
            self.found.notes.append(NO_XGBOOST)
            return
        if test is None:
            self.found.notes.append(
                f"Utility for {target!r} is not scored: it takes complete real rows to "
                "test on, pass them as test rows."
            )
            return
        train = tables.real
        if not tables.complete:
            self.found.notes.append(
                "MLE and TRTR are not scored, because no complete real rows are there "
                "to train on; beside TSTR stands, as `filled`, training on the real "
                "table with means and modes in its holes."
            )
            known = train[train[target].notna()]
            train = mean_mode_fill(known, tables.numeric, tables.categorical)
        pairs: Pairs = {
            "value": (train, tables.synthetic),
            "floor": (train, self.floor),
        }
        try:
            seed = self.seed % 2**31
            add_utility(self.found, pairs, test, tables, target, seed, self.cache)
        except AugMaskError as error:
            # A test without a second class, a table without another column: the other
            # scores are none the worse for it.
            self.found.notes.append(f"Utility is not scored. {error}")

    def references(self) -> pd.DataFrame:
        """Return one line per score with all that it can be read against."""
        lines = [
            (key, entry.value, entry.reference, entry.floor, self.found.filled.get(key))
            for key, entry in self.found.entries.items()
        ]
        columns = ["score", "value", "reference", "floor", "filled"]
        table = pd.DataFrame(lines, columns=columns)
        return table.astype(dict.fromkeys(columns[1:], "float64"))

    def facts(self, subsample: int | None, seconds: float) -> dict[str, Any]:
        """Return what the numbers rest on."""
        tables = self.tables
        frames = {
            "real": tables.real,
            "synthetic": tables.synthetic,
            "test": tables.test,
        }
        flagged = []
        if "privacy" in self.found.tables:
            table = self.found.tables["privacy"]
            flagged = table.loc[table["flagged"], "measure"].tolist()
        return {
            "rows": {k: len(f) for k, f in frames.items() if f is not None},
            "columns": {"numeric": tables.numeric, "categorical": tables.categorical},
            "left_out": dict(tables.left_out),
            "complete": tables.complete,
            "compared_with": self.compared_with,
            "reference": self.pair.says,
            "floor": "independent columns, each with the values of the real table",
            "filled": "the real rows with means and modes in their holes",
            "target": self.target,
            "fill": None if self.fill is None else rule_name(self.fill),
            "seed": self.seed,
            "subsample": subsample,
            "flagged": flagged,
            "versions": library_versions(*LIBRARIES),
            "seconds": round(seconds, 1),
            "notes": [*tables.notes, *self.found.notes],
        }


def evaluate(
    real: Any,
    synthetic: Any,
    test: Any = None,
    target: str | None = None,
    *,
    schema: Any = None,
    seed: int = 0,
    subsample: int | None = None,
    fill: str | Augmenter | None = "lgbm-s",
    n_jobs: int | None = None,
    progress: Progress = silent,
) -> Scores:
    """Compare synthetic rows with the real table they were learned from.

    Parameters
    ----------
    real : DataFrame, polars frame, Arrow table or path
        The table that was learned from, with or without holes.
    synthetic : the same
        Complete rows.
    test : the same, optional
        Real rows that the generator never saw. They make privacy measurable and are
        the better ceiling. If the real table has holes and these rows have none, they
        are also the complete truth that Shape, Trend, α-precision and β-recall need.
    target : str, optional
        A column to predict, for MLE; takes `test`, and XGBoost.
    schema : Schema, path or mapping, optional
        As for `AugMask.fit`. Columns that are set aside there are not scored.
    seed : int
    subsample : int, optional
        Score at most so many random rows of each table. All rows by default.
    fill : str, Augmenter or None
        The rule that held-out cells of an incomplete table are drawn with; None leaves
        them out.
    n_jobs : int, optional
        Worker processes and threads; all cores by default.
    progress : Progress

    Returns
    -------
    Scores
        Each number with its reference (real rows against other real rows), its floor
        (independent columns) and its meaning. `facts["notes"]` says what was not
        scored, and why.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def people(n):
    ...     age = rng.normal(40, 10, n)
    ...     return pd.DataFrame({"age": age, "pay": age + rng.normal(size=n)})
    >>> scores = evaluate(people(500), people(500))
    >>> entry = scores.entries["trend"]
    >>> [round(x, 1) for x in (entry.value, entry.reference, entry.floor)]
    [1.0, 1.0, 0.5]
    >>> broken = people(500).assign(pay=rng.normal(40, 10, 500))
    >>> evaluate(people(500), broken)["c2st_auc"] > 0.9
    True
    """
    began = time.monotonic()
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise UsageError(f"seed must be a whole number of at least 0, got {seed!r}")
    if fill is not None:
        # An unknown name is better refused before the work than after it.
        resolve_augmenter(fill)
    tables = read_tables(
        real,
        synthetic,
        test,
        target,
        schema=schema,
        subsample=subsample,
        seed=seed,
    )
    run = _Evaluation(tables, target, seed, fill, n_jobs, progress)
    steps = run.steps()
    for i, step in enumerate(steps):
        progress("evaluate", i, len(steps), {})
        step()
    progress("evaluate", len(steps), len(steps), {})
    found = run.found
    frames = {"real": tables.real, "synthetic": tables.synthetic, "test": tables.test}
    shown = {k: tables.shown(f) for k, f in frames.items() if f is not None}
    return Scores(
        found.entries,
        {**found.tables, "references": run.references()},
        run.facts(subsample, time.monotonic() - began),
        {**found.parts, **shown, "schema": tables.shown_schema},
    )
