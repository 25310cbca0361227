"""What the page says, as plain aggregates: no real row is in here.

`gather` turns `Scores` (and a model, if there is one) into `Facts`; the plots and the
template read nothing else. Everything is sorted worst first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.evaluation.detect import Detection
from augmask.evaluation.held_out import Calibration
from augmask.evaluation.privacy import Privacy
from augmask.evaluation.scores import Scores
from augmask.evaluation.utility import Utility
from augmask.missing.describe import Missingness, describe
from augmask.missing.gap import Gap, factorisation_gap
from augmask.progress import Progress, silent
from augmask.report.counts import FEWEST, Bars, Histogram, bars, histogram
from augmask.report.dependence import Dependence, Joint, dependence, joint
from augmask.report.filled import Filling, fill_missing
from augmask.report.map2d import Map, map_rows
from augmask.report.verdict import Verdict, judged, strip
from augmask.rng import stream
from augmask.table.schema import Column, Schema

Floats = npt.NDArray[np.float64]

WORST_PAIRS = 6
ONE_VALUE = re.compile(r"(one value only): .*")
BANDS = 120


@dataclass(frozen=True, eq=False)
class Holes:
    """The holes of the real table.

    Parameters
    ----------
    missing : Missingness
    gap : Gap
    bands : float array [bands, columns]
        Rows sorted by pattern and cut into bands of at least 5 rows; the share of
        holes in each. Columns in the order of `names`, most holes first.
    names : tuple of str
    patterns : list of (tuple of str, int)
        Columns missing together, and in how many rows; rare patterns left out.
    rest : int
        Rows whose pattern is not listed.
    """

    missing: Missingness
    gap: Gap
    bands: Floats
    names: tuple[str, ...]
    patterns: list[tuple[tuple[str, ...], int]]
    rest: int


@dataclass(frozen=True, eq=False)
class Marginal:
    """One column in two or three series."""

    name: str
    kind: str
    score: float
    missing: float
    picture: Histogram | Bars | None


@dataclass(frozen=True)
class Line:
    """One column of the schema, without its values."""

    name: str
    kind: str
    dtype: str
    missing: float
    reason: str


@dataclass(frozen=True, eq=False)
class Facts:
    """Everything on the page."""

    rows: Mapping[str, int]
    n_columns: int
    incomplete: bool
    verdicts: list[Verdict]
    numbers: list[Verdict]
    holes: Holes | None
    marginals: list[Marginal]
    dependence: Dependence | None
    joints: list[Joint]
    calibration: Calibration | None
    filling: Filling | None
    map: Map | None
    detection: Detection | None
    utility: Utility | None
    privacy: Privacy | None
    measures: pd.DataFrame | None
    history: pd.DataFrame | None
    training: Mapping[str, Any]
    settings: Mapping[str, Any]
    schema: list[Line]
    run: Mapping[str, Any]


def _bands(missing: npt.NDArray[np.bool_]) -> Floats:
    """Return shares of holes in bands of rows with like patterns."""
    n = len(missing)
    ordered = missing[np.lexsort([*missing.T[::-1], missing.sum(axis=1)])]
    count = max(1, min(BANDS, n // FEWEST))
    starts = np.linspace(0, n, count + 1).astype(np.int64)
    sums = np.add.reduceat(ordered, starts[:-1], axis=0, dtype=np.float64)
    return np.asarray(sums / np.diff(starts)[:, None], dtype=np.float64)


def _holes(real: pd.DataFrame) -> Holes:
    found = describe(real)
    names = found.column_rates.sort_values(ascending=False, kind="stable").index
    shown = [
        (tuple(map(str, missing)), count)
        for missing, count in found.patterns
        if count >= FEWEST
    ]
    return Holes(
        found,
        factorisation_gap(real),
        _bands(real[names].isna().to_numpy()),
        tuple(map(str, names)),
        shown,
        len(real) - sum(count for _, count in shown),
    )


def _column_scores(scores: Scores) -> dict[str, float]:
    table = scores.tables.get("columns")
    if table is None:
        return {}
    score = "remasked" if "remasked" in table else "score"
    return dict(zip(table["column"].astype(str), table[score], strict=True))


def _pair_scores(scores: Scores) -> pd.DataFrame | None:
    table = scores.tables.get("pairs")
    if table is None or not len(table):
        return None
    score = "remasked" if "remasked" in table else "score"
    plain = table[["first", "second", score]].set_axis(
        ["first", "second", "score"], axis=1
    )
    return plain.dropna().sort_values("score", kind="stable", ignore_index=True)


def _safe_line(column: Column, real: pd.DataFrame) -> Line:
    """Return a column's line; a value is named only if enough rows have it."""
    # Also where another kind was declared for what looks constant.
    reason = ONE_VALUE.sub(r"\1", column.reason)
    values = real.get(column.name)
    suspects = [
        repr(value)
        for value in column.suspects
        if values is not None and (values == value).sum() >= FEWEST
    ]
    if suspects:
        reason += f"; may stand for a hole: {', '.join(suspects)}"
    return Line(column.name, column.kind, column.dtype, column.missing, reason)


def _marginals(
    tables: Mapping[str, pd.DataFrame],
    numeric: Sequence[str],
    categorical: Sequence[str],
    known: Mapping[str, float],
) -> list[Marginal]:
    found = []
    for name in [*numeric, *categorical]:
        is_number = name in numeric
        picture = histogram(tables, name) if is_number else bars(tables, name)
        found.append(
            Marginal(
                name,
                "numeric" if is_number else "categorical",
                float(known.get(str(name), np.nan)),
                float(tables["real"][name].isna().mean()),
                picture,
            )
        )
    # A column without a score comes last.
    return sorted(found, key=lambda m: (np.isnan(m.score), m.score))


def _safe_utility(found: Utility | None, real: pd.DataFrame, run: Any) -> Any:
    """Return utility without the lines of classes that few real rows have."""
    target = run.get("target")
    if found is None or target not in real.columns:
        return found
    counts = real[target].value_counts()
    rare = {f"auroc of {level}" for level, n in counts.items() if n < FEWEST}
    kept = found.table[~found.table.index.isin(rare)]
    return Utility(found.value, found.tstr, found.trtr, found.measure, kept)


def gather(
    scores: Scores, model: Any = None, seed: int = 0, progress: Progress = silent
) -> Facts:
    """Return everything that the page shows.

    Parameters
    ----------
    scores : Scores
        From `evaluate`; its `parts` hold the tables, the schema and the results.
    model : AugMask, optional
        A fitted model, for its training curves and settings, and to fill holes.
    seed : int
        Splits the real table for the reference of the map, hides cells.
    progress : Progress
    """
    parts = scores.parts
    schema: Schema = parts["schema"]
    real, synthetic = parts["real"], parts["synthetic"]
    numeric = list(scores.facts["columns"]["numeric"])
    categorical = list(scores.facts["columns"]["categorical"])
    names = [*numeric, *categorical]
    incomplete = not scores.facts["complete"]
    # A hole that the schema declares a value is none here.
    unknown = [c.name for c in schema if c.learned and not c.gated]
    tables = {"real": real[names], "synthetic": synthetic[names]}
    alike = dict(tables)
    if incomplete:
        tables["remasked"] = parts["remasked"][names]
        alike["synthetic"] = tables["remasked"]
    pairs = _pair_scores(scores)
    joints = []
    for pair in () if pairs is None else pairs.itertuples():
        found = joint(alike, pair.first, pair.second, pair.score, numeric)
        if found is not None:
            joints.append(found)
        if len(joints) == WORST_PAIRS:
            break
    settings = getattr(model, "settings_", None)
    return Facts(
        rows={"real": len(real), "synthetic": len(synthetic)},
        n_columns=len(schema),
        incomplete=incomplete,
        verdicts=strip(scores),
        numbers=[judged(scores, key) for key in scores.entries],
        holes=_holes(real[unknown]) if incomplete else None,
        marginals=_marginals(tables, numeric, categorical, _column_scores(scores)),
        dependence=dependence(alike, numeric, categorical) if len(names) > 1 else None,
        joints=joints,
        calibration=parts.get("calibration"),
        filling=fill_missing(parts, model, unknown, numeric, seed, progress),
        map=map_rows(
            alike["real"],
            alike["synthetic"],
            numeric,
            categorical,
            stream(seed, "map"),
        ),
        detection=parts.get("detection"),
        utility=_safe_utility(parts.get("utility"), real, scores.facts),
        privacy=parts.get("privacy"),
        measures=scores.tables.get("privacy"),
        history=getattr(model, "history_", None),
        training=getattr(model, "training_", None) or {},
        settings={} if settings is None else dict(vars(settings)),
        schema=[_safe_line(c, real) for c in schema],
        run=scores.facts,
    )
