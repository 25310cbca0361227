"""What the page shows, as plain aggregates without any real row.

`gather` turns `Scores`, and a fitted model if there is one, into `Facts`; figures and
template read nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from augmask.evaluation.detection import Detection
from augmask.evaluation.held_out import Calibration
from augmask.evaluation.privacy import Privacy
from augmask.evaluation.results import Scores, score_column
from augmask.evaluation.tables import Frames
from augmask.evaluation.utility import Utility
from augmask.evaluation.verdict import Verdict, cards, verdict
from augmask.progress import Progress, silent
from augmask.report.aggregates import (
    MIN_COUNT,
    Bars,
    Dependence,
    Histogram,
    Joint,
    MissingPatterns,
    Projection,
    bars,
    dependence,
    histogram,
    joint,
    missing_patterns,
    project,
)
from augmask.report.imputation import Imputation, measure_imputation
from augmask.rng import stream
from augmask.table.schema import Column, Schema

WORST_PAIRS = 6
ONE_VALUE = re.compile(r"(one value only): .*")


@dataclass(frozen=True, eq=False)
class Marginal:
    """The distribution of one column; `column` is None if it has too few values."""

    name: str
    kind: str
    score: float
    missing: float
    column: Histogram | Bars | None


@dataclass(frozen=True)
class SchemaLine:
    """One column of the schema, without its values."""

    name: str
    kind: str
    dtype: str
    missing: float
    reason: str


@dataclass(frozen=True, eq=False)
class Facts:
    """Everything on the page. Columns and pairs are sorted worst first."""

    rows: Mapping[str, int]
    n_columns: int
    incomplete: bool
    cards: list[Verdict]
    metrics: dict[str, Verdict]
    missing: MissingPatterns | None
    marginals: list[Marginal]
    dependence: Dependence | None
    joints: list[Joint]
    calibration: Calibration | None
    imputation: Imputation | None
    projection: Projection | None
    detection: Detection | None
    utility: Utility | None
    privacy: Privacy | None
    privacy_measures: pd.DataFrame | None
    history: pd.DataFrame | None
    training: Mapping[str, Any]
    settings: Mapping[str, Any]
    schema: list[SchemaLine]
    run: Mapping[str, Any]


def _score_table(scores: Scores, name: str, keys: list[str]) -> pd.DataFrame:
    """Return the names and scores of columns or pairs, worst first."""
    table = scores.tables.get(name)
    if table is None:
        return pd.DataFrame(columns=[*keys, "score"])
    plain = table[[*keys, score_column(table)]].set_axis([*keys, "score"], axis=1)
    return plain.dropna().sort_values("score", kind="stable", ignore_index=True)


def _schema_line(column: Column, real: pd.DataFrame) -> SchemaLine:
    """Return a line of the schema; a value is named only if enough rows have it."""
    # Also if another kind was declared for a column that looks constant.
    reason = ONE_VALUE.sub(r"\1", column.reason)
    values = real.get(column.name)
    suspected_na_values = [
        repr(value)
        for value in column.suspected_na_values
        if values is not None and (values == value).sum() >= MIN_COUNT
    ]
    if suspected_na_values:
        reason += (
            f"; may be a code for missing values: {', '.join(suspected_na_values)}"
        )
    return SchemaLine(
        column.name, column.kind, column.dtype, column.missing_rate, reason
    )


def _marginals(
    tables: Frames,
    numeric: Sequence[str],
    categorical: Sequence[str],
    scores: Mapping[str, float],
) -> list[Marginal]:
    marginals = [
        Marginal(
            name,
            "numeric" if name in numeric else "categorical",
            float(scores.get(str(name), np.nan)),
            float(tables["real"][name].isna().mean()),
            histogram(tables, name) if name in numeric else bars(tables, name),
        )
        for name in [*numeric, *categorical]
    ]
    # Columns without a score come last.
    return sorted(marginals, key=lambda m: (np.isnan(m.score), m.score))


def _worst_joints(
    tables: Frames, pairs: pd.DataFrame, numeric: Sequence[str]
) -> list[Joint]:
    joints: list[Joint] = []
    for pair in pairs.itertuples():
        counts = joint(tables, pair.first, pair.second, pair.score, numeric)
        if counts is not None:
            joints.append(counts)
        if len(joints) == WORST_PAIRS:
            break
    return joints


def _safe_utility(
    utility: Utility | None, real: pd.DataFrame, target: str | None
) -> Utility | None:
    """Return utility without the lines of classes that few real rows have."""
    if utility is None or target not in real.columns:
        return utility
    counts = real[target].value_counts()
    rare = {f"auroc of {level}" for level, n in counts.items() if n < MIN_COUNT}
    table = utility.table[~utility.table.index.isin(rare)]
    return replace(utility, table=table)


def gather(
    scores: Scores, model: Any = None, seed: int = 0, progress: Progress = silent
) -> Facts:
    """Return everything that the page shows.

    Parameters
    ----------
    scores : Scores
        From `evaluate`; its `parts` hold the tables, the schema and the results.
    model : AugMask, optional
        A fitted model, for its training curves and settings, and to impute.
    seed : int
        Splits the real table for the reference overlap, hides values.
    progress : Progress
    """
    parts = scores.parts
    schema: Schema = parts["schema"]
    real, synthetic = parts["real"], parts["synthetic"]
    numeric = list(scores.facts["columns"]["numeric"])
    categorical = list(scores.facts["columns"]["categorical"])
    names = [*numeric, *categorical]
    incomplete = not scores.facts["complete"]
    # Missing values that the schema declares to be a value are not missing here.
    unknown = [c.name for c in schema if c.learned and not c.missing_is_level]
    tables = {"real": real[names], "synthetic": synthetic[names]}
    alike = dict(tables)
    if incomplete:
        tables["remasked"] = alike["synthetic"] = parts["remasked"][names]
    columns = _score_table(scores, "columns", ["column"])
    by_column = dict(zip(columns["column"].astype(str), columns["score"], strict=True))
    pairs = _score_table(scores, "pairs", ["first", "second"])
    settings = getattr(model, "settings_", None)
    return Facts(
        rows={"real": len(real), "synthetic": len(synthetic)},
        n_columns=len(schema),
        incomplete=incomplete,
        cards=cards(scores),
        metrics={key: verdict(scores, key) for key in scores.entries},
        missing=missing_patterns(real[unknown]) if incomplete else None,
        marginals=_marginals(tables, numeric, categorical, by_column),
        dependence=dependence(alike, numeric, categorical) if len(names) > 1 else None,
        joints=_worst_joints(alike, pairs, numeric),
        calibration=parts.get("calibration"),
        imputation=measure_imputation(parts, model, unknown, numeric, seed, progress),
        projection=project(
            alike["real"],
            alike["synthetic"],
            numeric,
            categorical,
            stream(seed, "map"),
        ),
        detection=parts.get("detection"),
        utility=_safe_utility(parts.get("utility"), real, scores.facts.get("target")),
        privacy=parts.get("privacy"),
        privacy_measures=scores.tables.get("privacy"),
        history=getattr(model, "history_", None),
        training=getattr(model, "training_", None) or {},
        settings={} if settings is None else dict(vars(settings)),
        schema=[_schema_line(c, real) for c in schema],
        run=scores.facts,
    )
