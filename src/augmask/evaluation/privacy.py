"""Signs that synthetic rows copy the rows that the generator was trained on.

Every measure compares the training rows with as many real rows that the generator never
saw (the holdout). Both come from the same population, so that a difference comes from
training:

* DCR share: how often a synthetic row is nearer to a training row than to a holdout
  row, ties counting half; 0.5 without copying.
* Copies: the share of synthetic rows that equal a training row, and a holdout row.
* NNDR: distance to the nearest real row over distance to the second nearest. A copy
  has 0; the lowest twentieth is compared, training over holdout.
* Membership inference attack (MIA): claim that a record was trained on if a synthetic
  row is near. Its AUC, and its true-positive rate at a false-positive rate of 1 %.
* β-recall excess: covering training rows better than holdout rows do.

Distances are Gower's (see `neighbours`). When the training rows have missing values,
DCR share, copies and MIA are computed on observed cells, because cells that the
generator never saw would hide a copy. Each training row is then paired at random with a
holdout row, both are measured on the cells that both have, and the share counts the
pairs in which the training row is nearer to the synthetic table. This is fair for any
missingness mechanism if the holdout has missing values of the same mechanism; with a
complete holdout it is fair under MCAR.

None of this is a guarantee. A clean result means that these attacks found nothing.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from sklearn.metrics import roc_curve

from augmask.errors import DataError
from augmask.evaluation.alpha_beta import alpha_beta
from augmask.evaluation.neighbours import (
    Bools,
    Neighbours,
    Points,
    gower_points,
    nearest_gower,
)
from augmask.evaluation.results import Score
from augmask.evaluation.tables import Floats, Frames, check_tables, some_rows
from augmask.rng import stream

# Intervals are the usual 95 %. A flag needs three standard errors: there are many
# measures, and synthetic rows that share a neighbour are not independent.
Z_INTERVAL = 1.959964
Z_FLAG = 3.0
LOW_TAIL = 0.05
FALSE_POSITIVE_RATE = 0.01


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One measure, its value without copying, its 95 % interval and its meaning."""

    measure: str
    value: float
    reference: float
    low: float = np.nan
    high: float = np.nan
    flagged: bool
    meaning: str


def wilson(share: float, n: float, z: float = Z_INTERVAL) -> tuple[float, float]:
    """Return Wilson's interval for a share of `n` trials."""
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, float(centre - reach)), min(1.0, float(centre + reach))


def _exceeds(training: float, holdout: float) -> bool:
    """Return whether more counts are on the training side than chance allows."""
    total = training + holdout
    return total > 0 and wilson(training / total, total, Z_FLAG)[0] > 0.5


def _exceeds_alone(training: Bools, holdout: Bools) -> bool:
    # A row that counts on both sides says nothing about training.
    return _exceeds(
        float((training & ~holdout).sum()), float((holdout & ~training).sum())
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _effective_rows(near: Neighbours, other: Neighbours) -> float:
    """Return how many independent synthetic rows would vary as much as these.

    If training and holdout rows were shuffled, a real row that is the neighbour of c
    synthetic rows would carry all c of them to the other side. The share then has
    variance Σ(c - mean c)² / 4 n², where independent rows have 1 / 4 n.
    """
    n = len(near.first)
    tied = (near.first == other.first) / 2
    counts = [
        np.bincount(side.index, weight, len(side.back))
        for side, weight in (
            (near, np.where(near.first < other.first, 1.0, tied)),
            (other, np.where(other.first < near.first, 1.0, tied)),
        )
    ]
    pooled = np.concatenate(counts)
    return n * min(1.0, n / max(float(np.square(pooled - pooled.mean()).sum()), 1.0))


def _share_measure(
    measure: str, share: float, n: float, reference: float, flagged: bool, meaning: str
) -> Measure:
    low, high = wilson(share, n)
    return Measure(
        measure=measure,
        value=share,
        reference=reference,
        low=low,
        high=high,
        flagged=flagged,
        meaning=meaning,
    )


def _dcr_share(training: Floats, holdout: Floats, n: float, meaning: str) -> Measure:
    share = float(np.mean(training < holdout) + np.mean(training == holdout) / 2)
    flagged = wilson(share, n, Z_FLAG)[0] > 0.5
    meaning = f"{_percent(share)} of the {meaning}; without copying, about half."
    return _share_measure("dcr_share", share, n, 0.5, flagged, meaning)


def _copies(training: Floats, holdout: Floats, meaning: str) -> Measure:
    share, reference = float((training == 0).mean()), float((holdout == 0).mean())
    flagged = _exceeds_alone(training == 0, holdout == 0)
    meaning = meaning.format(_percent(share), _percent(reference))
    return _share_measure("copies", share, len(training), reference, flagged, meaning)


def _nndr(training: Floats, holdout: Floats) -> list[Measure]:
    value, reference = (float(np.quantile(x, LOW_TAIL)) for x in (training, holdout))
    # Both zero: equally many copies by chance on either side.
    ratio = value / reference if reference else (1.0 if value == reference else np.inf)
    cut = float(np.quantile(np.concatenate([training, holdout]), LOW_TAIL))
    flagged = _exceeds_alone(training <= cut, holdout <= cut)
    return [
        Measure(
            measure="nndr",
            value=value,
            reference=reference,
            flagged=flagged,
            meaning=f"One synthetic row in twenty is at most {value:.3f} times as far "
            "from its nearest training row as from the second nearest; for unseen "
            f"real rows it is {reference:.3f}. Values near 0 single out one row.",
        ),
        Measure(
            measure="nndr_ratio",
            value=float(ratio),
            reference=1.0,
            flagged=flagged,
            meaning="NNDR of training rows over that of unseen real rows; clearly "
            "below 1 means that synthetic rows follow single training rows.",
        ),
    ]


def _membership_attack(training: Floats, holdout: Floats, cells: str) -> list[Measure]:
    """Return the success of inferring membership from the nearest distance."""
    n, m = len(training), len(holdout)
    score = -np.concatenate([training, holdout])
    auc = float((rankdata(score)[:n].sum() - n * (n + 1) / 2) / (n * m))
    error = float(np.sqrt((n + m + 1) / (12 * n * m)))
    # Interpolation between the steps of the curve decides ties at random.
    false_positive, true_positive, _ = roc_curve(np.repeat([1, 0], [n, m]), score)
    tpr = float(np.interp(FALSE_POSITIVE_RATE, false_positive, true_positive))
    return [
        Measure(
            measure="mia_auc",
            value=auc,
            reference=0.5,
            low=max(0.0, auc - Z_INTERVAL * error),
            high=min(1.0, auc + Z_INTERVAL * error),
            flagged=auc - Z_FLAG * error > 0.5,
            meaning="An attacker who ranks records by how near the closest synthetic "
            f"row is{cells} places a training row above an unseen real row in "
            f"{_percent(auc)} of pairs; guessing gives half.",
        ),
        _share_measure(
            "mia_tpr",
            tpr,
            # Half as many rows, because the threshold varies as much as the share.
            n / 2,
            FALSE_POSITIVE_RATE,
            _exceeds(tpr * n, FALSE_POSITIVE_RATE * m),
            f"The same attack finds {_percent(tpr)} of the training rows at "
            f"{_percent(FALSE_POSITIVE_RATE)} false positives; guessing finds "
            f"{_percent(FALSE_POSITIVE_RATE)}.",
        ),
    ]


def _nndr_values(near: Neighbours) -> Floats:
    """Return first / second distance, 1 for rows with two equal neighbours."""
    one = np.ones_like(near.first)
    return np.divide(near.first, near.second, out=one, where=near.second > 0)


def _beta_excess(beta: Score, holdout: Score, n: int) -> Measure:
    """Return the β-recall of `n` training rows beyond that of the holdout."""
    # The last point of the curve is the share of covered rows, a plain proportion.
    covered = [float(score.table["recall"].iloc[-1]) for score in (beta, holdout)]
    error = np.sqrt(sum(share * (1 - share) for share in covered) / n)
    excess = beta.value - holdout.value
    return Measure(
        measure="beta_excess",
        value=excess,
        reference=0.0,
        flagged=bool(covered[0] - covered[1] > Z_FLAG * error and excess > 0),
        meaning=f"β-recall is {beta.value:.3f}, and {holdout.value:.3f} for unseen "
        "real rows. More than that is not quality: it takes copies.",
    )


def row_measures(synthetic: Points, training: Points, holdout: Points) -> list[Measure]:
    """Return the measures of distances between complete rows."""
    near, other = (nearest_gower(synthetic, base) for base in (training, holdout))
    return [
        _dcr_share(
            near.first,
            other.first,
            _effective_rows(near, other),
            "synthetic rows are nearer to a training row than to an unseen real row",
        ),
        _copies(
            near.first,
            other.first,
            "{} of the synthetic rows equal a training row, and {} equal an unseen "
            "real row, which is what chance alone gives.",
        ),
        *_nndr(_nndr_values(near), _nndr_values(other)),
        *_membership_attack(near.back, other.back, ""),
    ]


def cell_measures(
    synthetic: Points, training: Points, holdout: Points
) -> list[Measure]:
    """Return the measures for incomplete rows, with names ending in ``_observed``.

    Row i of both sides has the same cells, and each real row looks for its nearest
    synthetic row. The other way round, the nearest real rows would be those with
    hardly any cells to differ in.
    """
    near, other = (nearest_gower(synthetic, base).back for base in (training, holdout))
    measures = [
        _dcr_share(
            near,
            other,
            len(near),
            "training rows have a nearer synthetic row, on their observed cells, than "
            "an unseen real row has on the same cells",
        ),
        _copies(
            near,
            other,
            "{} of the training rows have a synthetic row that equals all cells "
            "compared (those that both rows of a pair have), and {} of the unseen real "
            "rows, which is what chance alone gives.",
        ),
        *_membership_attack(near, other, " on the observed cells"),
    ]
    return [replace(m, measure=f"{m.measure}_observed") for m in measures]


@dataclass(frozen=True, eq=False)
class Privacy:
    """Signs of copying.

    Parameters
    ----------
    value : float
        The DCR share, of complete rows or of observed cells; 0.5 without copying.
    table : pandas.DataFrame
        One line per measure: `measure`, `value`, `reference` (the holdout, or the
        value without copies), `low` and `high` (95 % interval, where there is one),
        `flagged`, and `meaning` in plain words.
    rows : dict of str to int
        Rows used of the `real`, `holdout` and `synthetic` table.
    note : str
        Which rows were left out, and what the numbers cannot promise.
    """

    value: float
    table: pd.DataFrame
    rows: dict[str, int]
    note: str

    @property
    def flagged(self) -> list[str]:
        """The measures that point to copying."""
        return list(self.table.loc[self.table["flagged"], "measure"])


def _note(tables: Frames, used: dict[str, int]) -> str:
    cut = [
        f"{used[label]:,} of the {len(frame):,} {label} rows"
        for label, frame in tables.items()
        if used[label] < len(frame)
    ]
    sampled = (
        f"Training and holdout rows are compared in equal number: {' and '.join(cut)} "
        "were sampled at random. "
        if cut
        else ""
    )
    return (
        f"{sampled}These numbers find copying, they do not rule it out: no formal "
        "guarantee such as differential privacy follows from them."
    )


def privacy(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    holdout: pd.DataFrame,
    numeric: Sequence[str],
    categorical: Sequence[str],
    *,
    seed: int,
    cache: MutableMapping[str, Floats] | None = None,
) -> Privacy:
    """Look for copies of training rows among synthetic ones.

    Parameters
    ----------
    real : pandas.DataFrame
        The rows as the generator saw them, complete or not.
    synthetic : pandas.DataFrame
        Complete rows, in any number.
    holdout : pandas.DataFrame
        Real rows that the generator never saw, from the same population. The longer
        of `real` and `holdout` is cut at random to the length of the other; so is the
        synthetic table for β-recall.
    numeric, categorical : sequence of str
        The columns to compare.
    seed : int
        Selects rows, and pairs training rows with holdout rows.
    cache : mutable mapping, optional
        As in `alpha_beta`.

    Returns
    -------
    Privacy
        Measures on complete rows if `real` and `holdout` are complete; otherwise
        measures on observed cells, with names ending in ``_observed``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> real, fresh, other = (
    ...     pd.DataFrame(rng.normal(size=(500, 3)), columns=list("xyz"))
    ...     for _ in range(3)
    ... )
    >>> privacy(real, fresh, other, list("xyz"), [], seed=0).flagged
    []
    >>> copies = real.sample(500, replace=True, random_state=0)
    >>> result = privacy(real, copies, other, list("xyz"), [], seed=0)
    >>> len(result.flagged) == len(result.table)
    True
    """
    tables: Frames = {"real": real, "holdout": holdout, "synthetic": synthetic}
    check_tables(tables, numeric, categorical)
    names = [*numeric, *categorical]
    n = min(len(real), len(holdout))
    if n < 2:
        raise DataError(
            "privacy needs a second nearest row, but the shorter of the real and "
            f"holdout table has {n}; pass at least 2 rows"
        )
    rng = stream(seed, "privacy", "rows")
    chosen = {label: some_rows(tables[label], n, rng) for label in ("real", "holdout")}
    training, held_out, points = gower_points(
        chosen | {"synthetic": synthetic}, numeric, categorical, {"real", "holdout"}
    )
    if not points.observed.all():
        column = names[int((~points.observed).any(axis=0).argmax())]
        raise DataError(
            f"column {column!r} has missing values in the synthetic table; drop or "
            "fill them first"
        )
    if training.observed.all() and held_out.observed.all():
        measures = row_measures(points, training, held_out)
        k = min(n, len(synthetic))
        rivals = [some_rows(frame, k, rng) for frame in (synthetic, chosen["holdout"])]
        cache = {} if cache is None else cache
        beta, of_holdout = (
            alpha_beta(chosen["real"], frame, numeric, categorical, cache=cache)[1]
            for frame in rivals
        )
        measures.append(_beta_excess(beta, of_holdout, n))
    else:
        # Picked rows are in the order of their table; pairs must not be.
        held_out = held_out.take(rng.permutation(n))
        both = training.observed & held_out.observed
        pairs = np.flatnonzero(both.any(axis=1))
        if len(pairs) < 2:
            raise DataError(
                "training and holdout rows are compared on cells that both have, but "
                f"only {len(pairs)} pairs have any; pass more rows"
            )
        sides = [side.hide(both).take(pairs) for side in (training, held_out)]
        measures = cell_measures(points, sides[0], sides[1])
    used = {"real": n, "holdout": n, "synthetic": len(synthetic)}
    return Privacy(measures[0].value, pd.DataFrame(measures), used, _note(tables, used))
