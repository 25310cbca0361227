"""`evaluate`: every score that applies to two tables, and what to compare it with.

A complete real table is compared directly. An incomplete one has no complete truth, so
synthetic rows are re-masked first. Test rows, which the generator never saw, add
privacy and a better reference; a target adds utility.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd

from augmask.augmentation import AUGMENTERS, Augmenter, resolve_augmenter
from augmask.errors import AugMaskError, DataError, UsageError, brief_repr
from augmask.evaluation.advice import advice
from augmask.evaluation.held_out import augmenter_name
from augmask.evaluation.references import (
    RealPair,
    independent,
    mean_mode_fill,
    real_pair,
)
from augmask.evaluation.results import Entry, Scores
from augmask.evaluation.samples import SAMPLE_ROWS, SUBSAMPLES, Samples, with_errors
from augmask.evaluation.scoring import Pair, Pairs, Scorer
from augmask.evaluation.tables import (
    Tables,
    check_subsample,
    first_permuted,
    read_tables,
)
from augmask.evaluation.utility import Learner, check_learner
from augmask.evaluation.verdict import judge
from augmask.missing.model import MissingModel, with_missing
from augmask.packages import library_versions
from augmask.progress import Progress, ProgressOption, reporting, silent
from augmask.rng import stream
from augmask.table.frames import read_frame
from augmask.table.holdout import Holdout
from augmask.table.partitions import is_partitioned
from augmask.table.read_options import TableFile
from augmask.table.schema import Schema
from augmask.validation import SEED

Step = Callable[[], None]

LIBRARIES = ("augmask", "numpy", "pandas", "scipy", "scikit-learn", "lightgbm")


class _Evaluation(Scorer):
    """Chooses and runs the steps that apply to the tables."""

    def __init__(
        self,
        tables: Tables,
        target: str | None,
        seed: int,
        augmenter: str | Augmenter | None,
        learner: Learner,
        held_out: bool,
        n_jobs: int | None,
        progress: Progress,
    ) -> None:
        super().__init__(tables, seed, n_jobs)
        self.target = target
        self.learner: Learner = learner
        self.held_out = held_out
        self.files: dict[str, str] = {}
        # Rows of the tables of many files, of which a sample is scored.
        self.sampled: dict[str, int] = {}
        self.reading: list[str] = []
        self.model: dict[str, Any] | None = None
        self.augmenter = augmenter
        self.progress = progress
        self.compared_with = "real" if tables.complete else "observed cells of real"
        # The few rows that `fit` held out are no truth for an incomplete table.
        few = held_out and not tables.complete
        self.truth = None if few else tables.complete_test
        holdout = self.truth
        if not tables.complete:
            # Complete test rows are not comparable with incomplete real rows.
            holdout = tables.test if holdout is None else None
        if holdout is not None and len(holdout) < len(tables.real) // 2:
            # Halves of the real table have more rows, and vary less.
            holdout = None
        self.pair = real_pair(tables.real, holdout, stream(seed, "reference"))
        self.floor = independent(tables.real, stream(seed, "independent"))

    def _pairs(self, real: pd.DataFrame, pair: RealPair) -> Pairs:
        """Return the synthetic rows, and at most as many to compare them with.

        Fewer rows agree less with a table, whatever they are.
        """
        synthetic = self.tables.synthetic

        def as_many(frame: pd.DataFrame, role: str) -> pd.DataFrame:
            if len(frame) <= len(synthetic):
                return frame
            rng = stream(self.seed, "as many", role)
            return first_permuted(frame, len(synthetic), rng)

        return {
            "value": (real, synthetic),
            "reference": (pair.real, as_many(pair.other, "reference")),
            "floor": (real, as_many(self.floor, "floor")),
        }

    def steps(self) -> list[Step]:
        """Return the steps that apply, in order; note those that do not."""
        tables = self.tables
        pairs = self._pairs(tables.real, self.pair)
        if tables.incomplete_synthetic is not None:
            return self._on_observed_cells(pairs)
        steps: list[Step]
        if tables.complete:
            steps = [
                partial(self.add_fidelity, pairs),
                partial(self.add_coverage, pairs),
                partial(self.add_detection, pairs),
            ]
        else:
            steps = [partial(self.add_remasked, pairs)]
            if self.truth is not None:
                steps += self._against_test(self.truth)
            else:
                self.notes.append(
                    "α-precision and β-recall are not scored: they compare complete "
                    "rows, and the real table has missing values; pass complete test "
                    "rows."
                )
            if self.augmenter is not None:
                steps.append(partial(self.add_held_out, self.augmenter, self.progress))
        if tables.test is None:
            self.notes.append(
                "Privacy is not scored: it needs real rows that the generator never "
                "saw; pass them as test rows."
            )
        else:
            steps.append(partial(self._privacy, tables.test))
        if self.target is not None:
            steps.append(partial(self._utility, self.target))
        return steps

    def _on_observed_cells(self, pairs: Pairs) -> list[Step]:
        """Return the steps for synthetic rows that have missing values themselves."""
        self.notes.append(
            "The synthetic rows have missing values, so their observed cells are "
            "compared with those of the real table; α-precision, β-recall, privacy and "
            "utility are not scored: they need complete synthetic rows."
        )
        steps: list[Step] = [partial(self.add_remasked, pairs)]
        if self.augmenter is not None:
            steps.append(partial(self.add_held_out, self.augmenter, self.progress))
        return steps

    def _against_test(self, test: pd.DataFrame) -> list[Step]:
        """Return the steps that compare with test rows, the only complete truth."""
        tables, self.compared_with = self.tables, "test"
        halves = real_pair(test, None, stream(self.seed, "reference", "test"))
        self.notes.append(
            "The real table has missing values, so that Shape, Trend, α-precision and "
            f"β-recall compare with the complete test rows; their reference is "
            f"{halves.description}, with the test rows as the real table."
        )
        filled = mean_mode_fill(tables.real, **tables.columns)
        pairs: Pairs = {**self._pairs(test, halves), "filled": (test, filled)}
        return [
            partial(self.add_fidelity, pairs, "_test"),
            partial(self.add_coverage, pairs),
        ]

    def _mask_complete_side(self, test: pd.DataFrame) -> Pair:
        """Return real and test rows, the complete side masked like the other.

        Missingness that depends on values selects the observed ones: incomplete rows
        would be nearer, or farther, for that reason alone.
        """
        tables = self.tables
        names = [*tables.numeric, *tables.categorical]
        real, test = tables.real[names], test[names]
        masked, full = (test, real) if tables.complete else (real, test)
        model = MissingModel().fit(masked, tables.numeric)
        observed = model.draw_mask(full, stream(self.seed, "privacy", "holes"))
        full = with_missing(full, observed)
        which = "real" if tables.complete else "test"
        self.notes.append(
            f"For privacy, the complete {which} rows were masked like the other real "
            "rows, so that both are comparable."
        )
        return (full, masked) if tables.complete else (masked, full)

    def _privacy(self, test: pd.DataFrame) -> None:
        real, holdout = self.tables.real, test
        if self.pair.source == "holdout":
            # The same rows as for the reference, so that their distances are cached.
            real, holdout = self.pair.real, self.pair.other
            self.notes.append(
                f"Privacy compares {len(real):,} real rows with {len(holdout):,} test "
                "rows, as many of each as the shorter table has."
            )
        elif self.tables.complete != (self.tables.complete_test is not None):
            real, holdout = self._mask_complete_side(holdout)
        try:
            self.add_privacy(real, holdout)
        except AugMaskError as error:
            self.notes.append(f"Privacy is not scored: {error}.")

    def _utility(self, target: str) -> None:
        tables, test = self.tables, self.truth
        train, synthetic, floor = tables.real, tables.synthetic, self.floor
        takes_missing = self.learner == "lightgbm" and not tables.complete
        if tables.test is None or (test is None and not takes_missing):
            kind = "real rows" if tables.test is None else "complete real rows"
            self.notes.append(
                f"Utility for {target!r} is not scored: it needs {kind} to test on; "
                "pass them as test rows."
            )
            return
        if test is None:
            # Both learners see rows with values missing alike, as the test rows have.
            test = tables.test
            synthetic, floor = (self.incomplete[role][1] for role in ("value", "floor"))
            self.notes.append(
                "MLE learns from incomplete real rows and from re-masked synthetic "
                "ones, and is tested on incomplete test rows."
            )
        elif not tables.complete:
            self.notes.append(
                "MLE and TRTR are not scored: there are no complete real rows to train "
                "on. Compare TSTR with `filled`, training on the real table with means "
                "and modes imputed."
            )
            labelled = train[train[target].notna()]
            train = mean_mode_fill(labelled, **tables.columns)
        imputed = not tables.complete and test is self.truth
        pairs: Pairs = {"value": (train, synthetic), "floor": (train, floor)}
        try:
            self.add_utility(pairs, test, target, self.learner, imputed)
        except AugMaskError as error:
            # A test without a second class, a table without another column: the other
            # scores are still valid.
            self.notes.append(f"Utility is not scored: {error}.")

    def references(self) -> pd.DataFrame:
        """Return one line per score with everything to compare it with."""
        lines = [
            {"score": key, **entry.shown, "filled": self.filled.get(key)}
            for key, entry in self.entries.items()
        ]
        columns = ["score", "value", "reference", "floor", "filled"]
        table = pd.DataFrame(lines, columns=columns)
        return table.astype(dict.fromkeys(columns[1:], "float64"))

    def scores(self, subsample: int | None, seconds: float) -> Scores:
        """Return the collected results."""
        tables, augmenter = self.tables, self.augmenter
        frames = {"real": tables.real, "synthetic": tables.synthetic}
        if tables.test is not None:
            frames["test"] = tables.test
        flagged = []
        if "privacy" in self.details:
            table = self.details["privacy"]
            flagged = table.loc[table["flagged"], "measure"].tolist()
        facts = {
            "rows": {label: len(frame) for label, frame in frames.items()},
            "columns": tables.columns,
            "left_out": dict(tables.left_out),
            "complete": tables.complete,
            "compared_with": self.compared_with,
            "reference": self.pair.description,
            "floor": "independent columns, each with the values of the real table",
            "filled": "the real rows with means and modes imputed",
            "target": self.target,
            "augmenter": None if augmenter is None else augmenter_name(augmenter),
            "seed": self.seed,
            "subsample": subsample,
            "learner": self.learner,
            "files": self.files,
            "reading": self.reading,
            "model": self.model,
            "held_out": self.held_out,
            "flagged": flagged,
            "versions": library_versions(*LIBRARIES),
            "seconds": round(seconds, 1),
            "notes": [*tables.notes, *self.notes],
        }
        if self.sampled:
            facts["sampled"] = self.sampled
        display = {label: tables.for_display(frame) for label, frame in frames.items()}
        scores = Scores(
            self.entries,
            {**self.details, "references": self.references()},
            facts,
            {**self.parts, **display, "schema": tables.display_schema},
        )
        judged = {**facts, "verdict": judge(scores), "advice": advice(scores)}
        return replace(scores, facts=judged)


def _kinds(schema: Schema) -> dict[str, dict[str, Any]]:
    """Return how a model read the columns that it learned.

    Not their levels: rows that it did not learn from, or that `private_extremes` has
    changed, may have others.
    """
    return {
        column.name: {
            key: value
            for key, value in column.settings().items()
            if key in ("kind", "missing_as", "na_values")
        }
        for column in schema
        if column.kind not in ("constant", "all-missing")
    }


def _facts_of(model: Any) -> dict[str, Any]:
    """Return how a model was made."""
    backbone, augmenter = model.backbone, model.augmenter_
    return {
        "backbone": backbone if isinstance(backbone, str) else "your own",
        "augmenter": augmenter if isinstance(augmenter, str) else "your own",
        "preset": model.preset_,
        "steps": int(model.settings_.steps),
        "members": int(model.ensemble_),
        "seed": int(model.seed),
    }


def _held_out_rows(
    real: Any, model: Any, samples: Samples
) -> tuple[Any, Any | None, str]:
    """Return the rows that a model learned from, those held out, and a note on them.

    Of a table of many files, the rows that it learned from are a sample.
    """
    facts = model.training_.get("holdout")
    if facts is None:
        return real, None, "The model learned from all rows: `fit` held none out."
    held_out = Holdout.from_dict(facts)
    if is_partitioned(real):
        learned, other = samples.open_without(real, "real", held_out, model.seed)
    else:
        learned, other = read_frame(real), None
        if held_out.matches(learned):
            learned, other = held_out.split(learned, model.seed)
    if other is None:
        return (
            learned,
            None,
            "Privacy and utility are not measured on the rows that `fit` held out: the "
            "real table is another table than the model was fitted to.",
        )
    note = (
        f"The test rows are the {held_out.held_out:,} of {held_out.rows:,} rows that "
        "`fit` held out."
    )
    return learned, other, note


def _entries_of_subsample(part: Tables, whole: _Evaluation) -> Mapping[str, Entry]:
    """Return the scores of a part of the rows, but for those of the augmenter."""
    run = _Evaluation(
        part,
        whole.target,
        whole.seed,
        None,
        whole.learner,
        whole.held_out,
        whole.n_jobs,
        silent,
    )
    for step in run.steps():
        # what the whole table has, a part of it may have too little of
        with suppress(AugMaskError, ArithmeticError):
            step()
    return run.entries


def evaluate(
    real: Any,
    synthetic: Any,
    *,
    test: Any = None,
    target: str | None = None,
    model: Any = None,
    schema: Any = None,
    seed: int = 0,
    subsample: int | None = None,
    augmenter: str | Augmenter | None = "auto",
    learner: Learner = "lightgbm",
    n_jobs: int | None = None,
    progress: ProgressOption = False,
) -> Scores:
    """Compare synthetic rows with the real table that they were learned from.

    Parameters
    ----------
    real : DataFrame, polars frame, Arrow table or path
        The table that was learned from, complete or not. Of a table of many files (a
        folder, a pattern or a list of Parquet files), real or not, a stratified sample
        of 100,000 rows is scored, and every score comes with its standard error.
    synthetic : DataFrame, polars frame, Arrow table or path
        Complete rows, or rows of ``sample(missing="learned")``: of these, observed
        cells are compared, and scores that need complete rows are left out.
    test : DataFrame, polars frame, Arrow table or path, optional
        Real rows that the generator never saw. They make privacy measurable and give
        a better reference. If the real table is incomplete and these rows are
        complete, they are also the truth for Shape, Trend, α-precision and β-recall.
    target : str, optional
        A column to predict, for MLE; needs test rows.
    model : AugMask, optional
        The model that was fitted to `real`. Without `test`, the rows that its `fit`
        held out are the test rows. Its schema and its augmenter are used if you pass
        none.
    schema : Schema, path or mapping, optional
        As for `AugMask.fit`. Columns that it sets aside are not scored.
    seed : int
    subsample : int, optional
        Score at most this many random rows of each table. All rows by default, or
        100,000 of a table of many files.
    augmenter : str, Augmenter or None
        What draws the held-out cells of an incomplete table; None skips them.
    learner : {"lightgbm", "xgboost"}
        What learns for MLE. XGBoost, as in published tables, is in the extra
        `utility` and needs complete test rows.
    n_jobs : int, optional
        Worker processes and threads; all cores by default.
    progress : bool or callable, default=False
        As in `AugMask.fit`.

    Returns
    -------
    Scores
        Each number with its reference (real rows against other real rows), its floor
        (independent columns) and its meaning. `facts["notes"]` says what was not
        scored, and why.

    Examples
    --------
    >>> import numpy as np
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
    seed = SEED.checked("seed", seed)
    check_learner(learner)
    if model is not None and not hasattr(model, "schema_"):
        raise UsageError(
            f"model must be a fitted AugMask or None, got {brief_repr(model)}"
        )
    files = {"real": real, "synthetic": synthetic, "test": test}
    subsample = check_subsample(subsample)
    samples = Samples(SAMPLE_ROWS if subsample is None else subsample, seed)
    notes: list[str] = []
    held_out = False
    if model is not None:
        schema = _kinds(model.schema_) if schema is None else schema
        # A custom augmenter is not in a file, and a placeholder cannot be scored.
        own = model.augmenter_
        if isinstance(augmenter, str) and augmenter == "auto" and own != "zero":
            augmenter = own if not isinstance(own, str) or own in AUGMENTERS else "auto"
        if test is None:
            real, test, note = _held_out_rows(real, model, samples)
            held_out = test is not None
            notes.append(note)
    if augmenter is not None:
        # Refuse an unknown name before the work rather than after it.
        resolve_augmenter(augmenter)
    real, synthetic, test = (
        samples.open(source, label)
        for label, source in (("real", real), ("synthetic", synthetic), ("test", test))
    )
    if samples.sizes:
        notes.append(samples.note)
    read = partial(
        read_tables, target=target, schema=schema, subsample=subsample, seed=seed
    )
    try:
        tables = read(real, synthetic, test)
    except DataError as error:
        if not held_out:
            raise
        # One odd cell among the rows that nothing was learned from.
        tables, held_out = read(real, synthetic), False
        notes = [f"The rows that `fit` held out cannot be compared: {error}."]
    with reporting(progress) as report:
        run = _Evaluation(
            tables, target, seed, augmenter, learner, held_out, n_jobs, report
        )
        run.notes += notes
        run.model = None if model is None else _facts_of(model)
        paths = {
            label: source.path if isinstance(source, TableFile) else source
            for label, source in files.items()
        }
        run.files = {
            label: str(path)
            for label, path in paths.items()
            if isinstance(path, str | Path)
        }
        if isinstance(files["real"], TableFile):
            run.reading = files["real"].options.flags()
        steps = run.steps()
        for i, step in enumerate(steps):
            report("evaluate", i, len(steps), {})
            step()
        if samples.sizes:

            def score(part: Tables) -> Mapping[str, Entry]:
                report("errors", next(turn), SUBSAMPLES, {})
                return _entries_of_subsample(part, run)

            turn = count()
            run.entries = with_errors(run.entries, tables, score)
            run.sampled = {label: total for label, (_, total) in samples.sizes.items()}
            report("errors", SUBSAMPLES, SUBSAMPLES, {})
        report("evaluate", len(steps), len(steps), {})
    return run.scores(subsample, time.monotonic() - began)
