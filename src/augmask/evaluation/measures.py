"""Each metric with the numbers that it is to be read against.

A metric compares two tables, so it can be given other pairs of tables than the real and
the synthetic one. `Pairs` names them by what they are good for:

* `value`: the real table and the synthetic one;
* `reference`: real rows and other real rows, the ceiling;
* `floor`: the real table and independent columns;
* `filled`: complete test rows and the real rows with means and modes in their holes.

`Found` collects what comes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd

from augmask.evaluation.columns import Floats
from augmask.evaluation.coverage import alpha_beta
from augmask.evaluation.detect import Holes, detection
from augmask.evaluation.fidelity import shape, trend
from augmask.evaluation.meanings import make_entry, privacy_key
from augmask.evaluation.nearest import nearest_rows
from augmask.evaluation.privacy import privacy
from augmask.evaluation.scores import Entry
from augmask.evaluation.tables import Tables
from augmask.evaluation.utility import utility
from augmask.rng import stream

Role = Literal["value", "reference", "floor", "filled"]
Pair = tuple[pd.DataFrame, pd.DataFrame]
Pairs = Mapping[Role, Pair]
Result = TypeVar("Result")


@dataclass(eq=False)
class Found:
    """What an evaluation has found so far; see `Scores`."""

    entries: dict[str, Entry] = field(default_factory=dict)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    filled: dict[str, float] = field(default_factory=dict)

    def add(
        self, key: str, numbers: Mapping[Role, float | None], **presented: Any
    ) -> None:
        """Add a number with its references; one that does not exist is left out."""
        value, reference, floor, filled = (
            None if number is None or math.isnan(number) else float(number)
            for number in (
                numbers.get(role) for role in ("value", "reference", "floor", "filled")
            )
        )
        if value is None:
            return
        self.entries[key] = make_entry(key, value, reference, floor, **presented)
        if filled is not None:
            self.filled[key] = filled


def _each(measure: Callable[..., Result], pairs: Pairs) -> dict[Role, Result]:
    return {role: measure(*pair) for role, pair in pairs.items()}


def beside(table: pd.DataFrame, other: pd.DataFrame, score: str) -> pd.DataFrame:
    """Return a table of columns or pairs with the reference of each line."""
    names = [name for name in ("column", "first", "second") if name in table]
    references = other[[*names, score]].rename(columns={score: "reference"})
    return table.merge(references, "left", on=names)


def add_fidelity(found: Found, pairs: Pairs, tables: Tables, ending: str = "") -> None:
    """Add Shape and both kinds of Trend; `ending` sets their tables apart."""
    numeric, categorical = tables.numeric, tables.categorical
    shapes = _each(partial(shape, numeric=numeric, categorical=categorical), pairs)
    compare = partial(trend, numeric=numeric, categorical=categorical)
    trends = _each(compare, pairs)
    published = _each(partial(compare, edges="sdmetrics"), pairs)
    for key, scores in (
        ("shape", shapes),
        ("trend", trends),
        ("trend_sdmetrics", published),
    ):
        found.add(key, {role: score.value for role, score in scores.items()})
        found.parts[key] = scores["value"]
    for name, scores in (("columns", shapes), ("pairs", trends)):
        found.tables[name + ending] = beside(
            scores["value"].table, scores["reference"].table, "score"
        )


def equally_long(pair: Pair, seed: int, role: str) -> Pair:
    """Return both tables cut at random to the length of the shorter one.

    β-recall asks whether a synthetic or a real row is nearer, and the longer table
    would win by its length.
    """
    n = min(map(len, pair))
    cut = []
    for i, frame in enumerate(pair):
        rng = stream(seed, "coverage", role, i)
        rows = np.sort(rng.permutation(len(frame))[:n])
        cut.append(frame if len(frame) == n else frame.iloc[rows])
    return cut[0], cut[1]


def add_coverage(
    found: Found,
    pairs: Pairs,
    tables: Tables,
    seed: int,
    cache: MutableMapping[str, Floats],
    n_jobs: int | None,
) -> None:
    """Add α-precision and β-recall."""
    real, synthetic = pairs["value"]
    if len(real) != len(synthetic):
        n = min(len(real), len(synthetic))
        found.notes.append(
            f"α-precision and β-recall compare {n:,} rows of each table, drawn at "
            "random: they need equally many."
        )
    # "value" for all: the real table must be cut in one way to be searched once.
    equal: Pairs = {
        role: equally_long(pair, seed, "value" if pair[0] is real else role)
        for role, pair in pairs.items()
    }
    measure = partial(
        alpha_beta,
        numeric=tables.numeric,
        categorical=tables.categorical,
        cache=cache,
        nearest=partial(nearest_rows, n_jobs=n_jobs),
    )
    both = _each(measure, equal)
    for i, key in enumerate(("alpha_precision", "beta_recall")):
        found.add(key, {role: scores[i].value for role, scores in both.items()})
        found.parts[key] = both["value"][i]


def add_detection(
    found: Found,
    pairs: Pairs,
    tables: Tables,
    seed: int,
    n_jobs: int,
    holes: Holes = "refuse",
) -> None:
    """Add the C2ST AUC and the columns that give the synthetic table away."""
    measure = partial(
        detection,
        numeric=tables.numeric,
        categorical=tables.categorical,
        seed=seed,
        n_jobs=n_jobs,
        holes=holes,
    )
    results = _each(measure, pairs)
    meaning = "c2st_auc" if holes == "refuse" else "c2st_auc_remasked"
    numbers = {role: result.value for role, result in results.items()}
    found.add("c2st_auc", numbers, meaning=meaning)
    found.tables["features"] = results["value"].table
    found.parts["detection"] = results["value"]


def add_privacy(
    found: Found,
    real: pd.DataFrame,
    holdout: pd.DataFrame,
    tables: Tables,
    seed: int,
    cache: MutableMapping[str, Floats],
) -> None:
    """Add the signs of copying."""
    result = privacy(
        real,
        tables.synthetic,
        holdout,
        tables.numeric,
        tables.categorical,
        seed=seed,
        cache=cache,
    )
    table = result.table.assign(measure=[privacy_key(m) for m in result.table.measure])
    for line in table.itertuples():
        numbers: dict[Role, float | None] = {
            "value": line.value,
            "reference": line.reference,
        }
        found.add(line.measure, numbers, says=line.meaning)
    found.notes.append(result.note)
    found.tables["privacy"] = table
    found.parts["privacy"] = result


def add_utility(
    found: Found,
    pairs: Pairs,
    test: pd.DataFrame,
    tables: Tables,
    target: str,
    seed: int,
) -> None:
    """Add MLE and its two parts; the first table of each pair is trained on too.

    With a real table that has holes the pairs have only a `filled` side to compare
    with, and there is no MLE.
    """
    measure = partial(
        utility,
        test=test,
        numeric=tables.numeric,
        categorical=tables.categorical,
        target=target,
        seed=seed,
    )
    results = _each(measure, pairs)
    result = results["value"]
    said: dict[str, Any] = {
        "smaller": result.measure != "auroc",
        "says": f"Measured as {result.measure}.",
    }
    tstr = {role: other.tstr for role, other in results.items()}
    if tables.complete:
        ratios = {role: other.value for role, other in results.items()}
        found.add("mle", ratios | {"reference": 1.0})
        found.add("tstr", tstr | {"reference": result.trtr}, **said)
        found.add("trtr", {"value": result.trtr}, **said)
    else:
        found.add("tstr", tstr | {"filled": result.trtr}, **said)
    found.tables["utility"] = result.table.rename_axis("measure").reset_index()
    found.parts["utility"] = result
