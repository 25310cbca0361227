"""Each metric with the numbers that it is to be read against.

A metric compares two tables, so it can be given other pairs of tables than the real and
the synthetic one. `Pairs` names them by what they are good for:

* `value`: the real table and the synthetic one;
* `reference`: real rows and other real rows, the ceiling;
* `floor`: the real table and independent columns;
* `filled`: complete test rows and the real rows with means and modes in their holes;
* `alike`: the real rows of the reference and as many synthetic ones, for numbers that
  get worse with fewer rows.

`Found` collects what comes out. A number is given with its noise, `Z` standard
errors of its difference to the reference, so that chance is not taken for a fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar, get_args

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
from augmask.evaluation.utility import Utility, utility
from augmask.evaluation.worst import worst_tenth
from augmask.rng import stream

Role = Literal["value", "reference", "floor", "filled", "alike"]
Pair = tuple[pd.DataFrame, pd.DataFrame]
Pairs = Mapping[Role, Pair]
Result = TypeVar("Result")

# Standard errors that chance may reach; there are many numbers.
Z = 2.5
# What real rows miss to 1 varies by so much of itself over the root of the number of
# columns; found by halving six tables of 60 to 5,000 rows again and again. Cells of two
# columns are many and steady, correlations are few and not.
SHAPE_SPREAD = 0.4
TREND_SPREAD = 0.17
CORRELATION_SPREAD = 0.9
# How much more than their textbook errors these vary in fresh draws of 100 to 400 rows:
# β-recall sums over levels, and trees that overfit few rows vary among themselves.
BETA_SPREAD = 1.4
AUC_SPREAD = 1.5


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
        value, reference, floor, filled, alike = (
            None if number is None or math.isnan(number) else float(number)
            for number in (numbers.get(role) for role in get_args(Role))
        )
        if value is None:
            return
        self.entries[key] = make_entry(
            key, value, reference, floor, alike=alike, **presented
        )
        if filled is not None:
            self.filled[key] = filled


def _each(measure: Callable[..., Result], pairs: Pairs) -> dict[Role, Result]:
    return {role: measure(*pair) for role, pair in pairs.items()}


def as_many_rows(pairs: Pairs, seed: int) -> Pair | None:
    """Return the pair `alike`; None if all pairs have as many rows anyway."""
    synthetic, (real, other) = pairs["value"][1], pairs["reference"]
    if [len(frame) for frame in pairs["value"]] == [len(real), len(other)]:
        return None
    rows = stream(seed, "alike").permutation(len(synthetic))[: len(other)]
    return real, synthetic.iloc[np.sort(rows)].reset_index(drop=True)


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
        # pairs (found in the same way on eight tables of 60 to 1,000 rows).
        spread = max(spread, SHAPE_SPREAD)
    missed = 0.0 if math.isnan(reference) else 1 - reference
    return Z * spread * missed * math.sqrt(2 / (len(numeric) + len(categorical)))


def noise_of_shares(share: float, *counts: float) -> float:
    """Return the noise of a difference of shares of so many trials.

    Examples
    --------
    >>> noise_of_shares(0.5, 200, 200)
    0.125
    """
    return Z * math.sqrt(sum(share * (1 - share) / n for n in counts))


def beside(table: pd.DataFrame, other: pd.DataFrame, score: str) -> pd.DataFrame:
    """Return a table of columns or pairs with the reference of each line."""
    names = [name for name in ("column", "first", "second") if name in table]
    references = other[[*names, score]].rename(columns={score: "reference"})
    return table.merge(references, "left", on=names)


def add_worst(
    found: Found, key: str, pairs: Mapping[Role, pd.DataFrame], tables: Tables
) -> None:
    """Add the mean of the lowest tenth of pairs."""
    tenths = {role: worst_tenth(t, pairs["value"]) for role, t in pairs.items()}
    noise = noise_of_means(key, tenths["reference"], tables.numeric, tables.categorical)
    found.add(key, tenths, noise=noise)


def add_fidelity(
    found: Found, pairs: Pairs, tables: Tables, seed: int, ending: str = ""
) -> None:
    """Add Shape and both kinds of Trend; `ending` sets their tables apart."""
    numeric, categorical = tables.numeric, tables.categorical
    alike = as_many_rows(pairs, seed)
    if alike is not None:
        pairs = {**pairs, "alike": alike}
    shapes = _each(partial(shape, numeric=numeric, categorical=categorical), pairs)
    compare = partial(trend, numeric=numeric, categorical=categorical)
    trends = _each(compare, pairs)
    published = _each(partial(compare, edges="sdmetrics"), pairs)
    for key, scores in (
        ("shape", shapes),
        ("trend", trends),
        ("trend_sdmetrics", published),
    ):
        found.add(
            key,
            {role: score.value for role, score in scores.items()},
            noise=noise_of_means(key, scores["reference"].value, numeric, categorical),
        )
        found.parts[key] = scores["value"]
    pair_tables = {role: score.table for role, score in trends.items()}
    add_worst(found, "trend_worst", pair_tables, tables)
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
    rows = [len(equal[role][0]) for role in ("value", "reference")]
    noises = (
        # The shape of one column, that of distances from the centre.
        noise_of_means("shape", both["reference"][0].value, ["distance"], []),
        # Whether a synthetic or a real row is the nearer one is a coin toss.
        BETA_SPREAD * noise_of_shares(0.5, *rows),
    )
    for i, key in enumerate(("alpha_precision", "beta_recall")):
        numbers = {role: scores[i].value for role, scores in both.items()}
        found.add(key, numbers, noise=noises[i])
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
    # The variance of an AUC of n against n rows that cannot be told apart.
    rows = [results[role].rows for role in ("value", "reference")]
    error = math.sqrt(sum((2 * n + 1) / (12 * n**2) for n in rows))
    noise = AUC_SPREAD * Z * error
    found.add("c2st_auc", numbers, meaning=meaning, noise=noise)
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


def _utility_noise(result: Utility, truth: pd.Series) -> float:
    """Return the noise of MLE: the relative error of a score on the test rows.

    Both models meet the same rows, so this is rather too much than too little.
    """
    if result.measure != "auroc":
        return Z / math.sqrt(len(truth))
    # An AUC is no better known than the share it is among the rows of the rarer side.
    rarer = len(truth) - int(truth.value_counts().max())
    return noise_of_shares(result.trtr, rarer) / max(result.trtr, 0.5)


def add_utility(
    found: Found,
    pairs: Pairs,
    test: pd.DataFrame,
    tables: Tables,
    target: str,
    seed: int,
    cache: MutableMapping[str, Floats],
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
        cache=cache,
    )
    results = _each(measure, pairs)
    result = results["value"]
    noise = _utility_noise(result, test[target])
    said: dict[str, Any] = {
        "smaller": result.measure != "auroc",
        "says": f"Measured as {result.measure}.",
    }
    tstr = {role: other.tstr for role, other in results.items()}
    if tables.complete:
        ratios = {role: other.value for role, other in results.items()}
        found.add("mle", ratios | {"reference": 1.0}, noise=noise)
        found.add(
            "tstr", tstr | {"reference": result.trtr}, noise=noise * result.trtr, **said
        )
        found.add("trtr", {"value": result.trtr}, **said)
    else:
        found.add("tstr", tstr | {"filled": result.trtr}, **said)
    found.tables["utility"] = result.table.rename_axis("measure").reset_index()
    found.parts["utility"] = result
