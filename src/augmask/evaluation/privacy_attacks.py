"""The measures behind `privacy`: what each says of two sets of distances.

Each compares the training side with the holdout side and decides whether the training
side has more than chance allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics import roc_curve

from augmask.evaluation.columns import Floats
from augmask.evaluation.gower import Neighbours, Points, nearest_gower
from augmask.evaluation.score import Score

# The interval shown is the usual 95 %. Flags ask for three standard errors: there are
# many measures, and synthetic rows that share a neighbour are not independent.
Z_INTERVAL = 1.959964
Z_FLAG = 3.0
LOW_TAIL = 0.05
ACCUSED = 0.01


@dataclass(frozen=True)
class Measure:
    """One number, what it would be without copying, and what it means."""

    measure: str
    value: float
    reference: float
    low: float
    high: float
    flagged: bool
    meaning: str


def wilson(share: float, n: float, z: float = Z_INTERVAL) -> tuple[float, float]:
    """Return Wilson's interval for a share of `n` trials.

    Examples
    --------
    >>> [round(end, 3) for end in wilson(0.5, 100)]
    [0.404, 0.596]
    >>> wilson(0.0, 10)[0]
    0.0
    """
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, float(centre - reach)), min(1.0, float(centre + reach))


def _leans(training: float, holdout: float) -> bool:
    """Return whether more counts fell on the training side than chance allows."""
    total = training + holdout
    return total > 0 and wilson(training / total, total, Z_FLAG)[0] > 0.5


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _independent_rows(near: Neighbours, other: Neighbours) -> float:
    """Return how many independent synthetic rows would vary as much as these.

    Were training and holdout rows shuffled, a real row that is the neighbour of c
    synthetic rows would carry all c of them to the other side. That adds up to the
    variance Σ(c - mean c)² / 4 n² of the share, where independent rows have 1 / 4 n.
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


def _dcr_share(training: Floats, holdout: Floats, n: float, meaning: str) -> Measure:
    share = float(np.mean(training < holdout) + np.mean(training == holdout) / 2)
    low, high = wilson(share, n)
    return Measure(
        "dcr_share",
        share,
        0.5,
        low,
        high,
        wilson(share, n, Z_FLAG)[0] > 0.5,
        f"{_percent(share)} of the {meaning}; without copying it is about half.",
    )


def _copies(training: Floats, holdout: Floats, meaning: str) -> Measure:
    here, there = training == 0, holdout == 0
    value, reference = float(here.mean()), float(there.mean())
    low, high = wilson(value, len(here))
    return Measure(
        "copies",
        value,
        reference,
        low,
        high,
        # A row that equals rows on both sides says nothing about training.
        _leans(float((here & ~there).sum()), float((there & ~here).sum())),
        meaning.format(_percent(value), _percent(reference)),
    )


def _nndr(training: Floats, holdout: Floats) -> list[Measure]:
    tails = [float(np.quantile(ratio, LOW_TAIL)) for ratio in (training, holdout)]
    value, reference = tails
    # Both zero: equally many copies by chance on either side.
    over = value / reference if reference else (1.0 if value == reference else np.inf)
    cut = float(np.quantile(np.concatenate([training, holdout]), LOW_TAIL))
    here, there = training <= cut, holdout <= cut
    leans = _leans(float((here & ~there).sum()), float((there & ~here).sum()))
    return [
        Measure(
            "nndr",
            value,
            reference,
            np.nan,
            np.nan,
            leans,
            f"One synthetic row in twenty is at most {value:.3f} times as far from its "
            f"nearest training row as from the next one; with real rows that "
            f"were never seen it is {reference:.3f}. Values near 0 single out one row.",
        ),
        Measure(
            "nndr_ratio",
            float(over),
            1.0,
            np.nan,
            np.nan,
            leans,
            "The first of these over the second; clearly below 1 means that synthetic "
            "rows cling to single training rows.",
        ),
    ]


def _attack(training: Floats, holdout: Floats, cells: str) -> list[Measure]:
    """Return the success of guessing who was trained on from the nearest distance."""
    n, m = len(training), len(holdout)
    score = -np.concatenate([training, holdout])
    auc = float((rankdata(score)[:n].sum() - n * (n + 1) / 2) / (n * m))
    spread = float(np.sqrt((n + m + 1) / (12 * n * m)))
    # Between the steps of the curve a coin decides about tied records.
    accused, found, _ = roc_curve(np.repeat([1, 0], [n, m]), score)
    tpr = float(np.interp(ACCUSED, accused, found))
    # Half as many rows, because the cut that accuses 1 % varies as much as the share.
    low, high = wilson(tpr, n / 2)
    return [
        Measure(
            "attack_auc",
            auc,
            0.5,
            max(0.0, auc - Z_INTERVAL * spread),
            min(1.0, auc + Z_INTERVAL * spread),
            auc - Z_FLAG * spread > 0.5,
            "Who guesses that a record was trained on because a synthetic row is near "
            f"it{cells} ranks a training row above another real row in "
            f"{_percent(auc)} of pairs; half is pure guessing.",
        ),
        Measure(
            "attack_tpr",
            tpr,
            ACCUSED,
            low,
            high,
            _leans(tpr * n, ACCUSED * m),
            f"The same guess finds {_percent(tpr)} of the training rows while it "
            f"accuses {_percent(ACCUSED)} of the others wrongly; pure guessing finds "
            "as many as it accuses.",
        ),
    ]


def _ratio(first: Floats, second: Floats) -> Floats:
    """Return first / second; rows with two equal neighbours single out neither."""
    one = np.ones_like(first)
    return np.divide(first, second, out=one, where=second > 0)


def beta_excess(beta: Score, plain: Score, n: int) -> Measure:
    """Return the β-recall of `n` training rows beyond that of the holdout."""
    # At the last level the curve is the share of covered rows, a plain proportion.
    covered = [float(score.table["recall"].iloc[-1]) for score in (beta, plain)]
    spread = np.sqrt(sum(share * (1 - share) for share in covered) / n)
    excess = beta.value - plain.value
    return Measure(
        "beta_excess",
        excess,
        0.0,
        np.nan,
        np.nan,
        bool(covered[0] - covered[1] > Z_FLAG * spread and excess > 0),
        f"β-recall is {beta.value:.3f}, and {plain.value:.3f} for real rows that were "
        "never seen. More than those reach is no quality: it takes copies.",
    )


def of_rows(synthetic: Points, training: Points, holdout: Points) -> list[Measure]:
    """Return every measure that comes from distances between complete rows."""
    near, other = (nearest_gower(synthetic, base) for base in (training, holdout))
    return [
        _dcr_share(
            near.first,
            other.first,
            _independent_rows(near, other),
            "synthetic rows are nearer to a training row than to a real row that was "
            "never seen",
        ),
        _copies(
            near.first,
            other.first,
            "{} of the synthetic rows equal a training row, and {} equal a real row "
            "that was never seen: the second is what chance alone gives.",
        ),
        *_nndr(_ratio(near.first, near.second), _ratio(other.first, other.second)),
        *_attack(near.back, other.back, ""),
    ]


def of_cells(synthetic: Points, training: Points, holdout: Points) -> list[Measure]:
    """Return the measures for rows with holes, names ending in ``_observed``.

    Row i of both sides has the same cells, and it is the real rows that look for a
    synthetic neighbour. Seen from a synthetic row, the nearest real rows would be those
    with hardly a cell to differ in, on either side.
    """
    near, other = (nearest_gower(synthetic, base).back for base in (training, holdout))
    found = [
        _dcr_share(
            near,
            other,
            len(near),
            "training rows have a nearer synthetic row, on the cells that were "
            "observed, than a real row that was never seen has on the same cells",
        ),
        _copies(
            near,
            other,
            "{} of the training rows have a synthetic row that equals all the cells "
            "compared, those that both rows of a pair show, and {} of the real rows "
            "that were never seen: the second is what chance alone gives.",
        ),
        *_attack(near, other, " on the cells that were observed"),
    ]
    return [replace(m, measure=f"{m.measure}_observed") for m in found]
