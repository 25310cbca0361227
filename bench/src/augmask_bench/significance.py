"""Significance tests of methods against a rival, over the blocks of a grid.

As in the paper, the rival is the best missing-aware baseline of each block and metric,
or one method by name. Differences of scores are tested by Wilcoxon's signed-rank test
with Pratt's treatment of zeros:

* **Gain** (``**``): better, one-sided p < 0.05 after Holm over all methods and metrics;
* **Match** (``*``): no Gain, but not worse: one-sided p >= 0.05, without Holm, which
  would make a Match easier to get;
* no mark: worse;
* a dagger (``†``): a Gain without Holm's correction only. The paper does not say that
  it corrects, so its marks are those with ``**`` or ``†``.

Blocks of one dataset are not independent, so a test over blocks overstates the evidence
across datasets. The same test on the means of datasets and a bootstrap over datasets
are therefore reported too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import rankdata, wilcoxon

from augmask.errors import UsageError, did_you_mean
from augmask_bench.ranks import DECIMALS, RankTable

Floats = npt.NDArray[np.float64]

ALPHA = 0.05
RESAMPLES = 9999
# Up to this many blocks the test is exact; beyond, the normal limit is as good.
MAX_EXACT = 200
MARKS = {"gain": "**", "match": "*", "": ""}
# A Gain that Holm's correction takes away.
UNCORRECTED = "†"


def signed_rank(differences: npt.ArrayLike) -> tuple[float, float]:
    """Return the one-sided p-values of "greater" and of "less" than zero.

    Zeros take part in the ranking and are then dropped (Pratt). The null distribution,
    in which every sign is a fair coin, is computed exactly, ties and zeros included.

    Examples
    --------
    No difference; three differences of one sign, which have probability 1/8:

    >>> signed_rank([0.0, 0.0])
    (1.0, 1.0)
    >>> signed_rank([0.1, 0.3, 0.2])
    (0.125, 1.0)
    """
    d = np.round(np.asarray(differences, dtype=np.float64), DECIMALS)
    if not d.any():
        return 1.0, 1.0
    if len(d) > MAX_EXACT:
        greater, less = (
            float(wilcoxon(d, zero_method="pratt", alternative=side).pvalue)
            for side in ("greater", "less")
        )
        return greater, less
    # twice the average ranks are integers, whose sums index an array
    steps = np.round(2 * rankdata(np.abs(d))[d != 0]).astype(int)
    null = np.zeros(steps.sum() + 1)
    null[0] = 1.0
    for step in steps:
        null = null / 2 + np.concatenate([np.zeros(step), null[:-step]]) / 2
    observed = steps[d[d != 0] > 0].sum()
    greater, less = null[observed:].sum(), null[: observed + 1].sum()
    return min(float(greater), 1.0), min(float(less), 1.0)


def holm(p: npt.ArrayLike) -> Floats:
    """Return p-values adjusted for a family of tests by Holm's method.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    factors = len(p) - np.arange(len(p))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted


def cluster_interval(
    means: npt.ArrayLike, rng: np.random.Generator
) -> tuple[float, float]:
    """Return a 95 % bootstrap interval of the mean over datasets.

    With few datasets such an interval is too short; with one it is NaN.
    """
    means = np.asarray(means, dtype=np.float64)
    if len(means) < 2:
        return np.nan, np.nan
    resampled = rng.choice(means, (RESAMPLES, len(means))).mean(axis=1)
    low, high = np.quantile(resampled, [ALPHA / 2, 1 - ALPHA / 2])
    return float(low), float(high)


@dataclass(frozen=True, eq=False)
class Gains:
    """Tests of every method against a rival; see `gains`.

    Parameters
    ----------
    rival : str
        What the methods were tested against, in words; "" if there was no rival.
    tests : pandas.DataFrame
        One row per method and metric: `mark` ("gain", "match", ""), `mark_plain`, the
        same without Holm, `difference` (mean over datasets), `low` and `high` (its
        bootstrap interval), `p` and `p_less` over blocks, `p_holm`, and `p_datasets`,
        over means of datasets.
    notes : tuple of str
    """

    rival: str
    tests: pd.DataFrame
    notes: tuple[str, ...]

    def mark(self, method: str, metric: str) -> str:
        """Return ``**`` for a Gain, ``*`` for a Match, ``†`` for one without Holm."""
        if (method, metric) not in self.tests.index:
            return ""
        test = self.tests.loc[(method, metric)]
        return as_mark(test["mark"], test["mark_plain"])


def as_mark(corrected: str, plain: str) -> str:
    """Return the sign of a mark with Holm beside that of one without.

    Examples
    --------
    >>> as_mark("gain", "gain"), as_mark("match", "gain"), as_mark("", "")
    ('**', '*†', '')
    """
    lost = plain == "gain" and corrected != "gain"
    return MARKS[corrected] + (UNCORRECTED if lost else "")


def marks_of(tests: pd.DataFrame) -> pd.DataFrame:
    """Return marks with and without Holm over all rows of `p` and `p_less`."""
    adjusted = holm(tests["p"])
    marks = {"p_holm": adjusted}
    for name, p in (("mark", adjusted), ("mark_plain", tests["p"].to_numpy())):
        gain = p < ALPHA
        match = ~gain & (tests["p_less"].to_numpy() >= ALPHA)
        marks[name] = np.select([gain, match], ["gain", "match"], "")
    return pd.DataFrame(marks, tests.index)


def rivals_of(table: RankTable, against: str | None) -> tuple[list[str], str]:
    """Return the methods whose best score is the rival, and its name."""
    known = list(table.methods.index)
    if against is not None:
        if against not in known:
            raise UsageError(
                f"the rival must be a ranked method, got {against!r}"
                + did_you_mean(against, known)
            )
        return [against], against
    aware = list(table.methods.index[table.methods["aware"].astype(bool)])
    if len(aware) < 2:
        return aware, "".join(aware)
    return aware, f"the best of {', '.join(aware)} in each block"


def _notes(table: RankTable, rival: str, n_tests: int) -> tuple[str, ...]:
    n_blocks = table.blocks
    n_datasets = table.ranks.index.unique("dataset").size
    notes = [
        f"** Gain, * Match: Wilcoxon over {n_blocks} blocks against {rival}, Holm over "
        "all methods and metrics. † Gain without Holm only.",
    ]
    if n_datasets < n_blocks:
        notes.append(
            f"The {n_blocks} blocks come from {n_datasets} dataset"
            + ("s" if n_datasets > 1 else "")
            + " and are not independent, so this test finds gains too easily; the p "
            "over datasets and the bootstrap interval use datasets as the unit. With "
            f"{n_datasets}, that p is at least {0.5**n_datasets:.2g}."
        )
    if 0.5**n_blocks * n_tests >= ALPHA:
        notes.append(
            f"With {n_blocks} blocks and {n_tests} tests no Gain is possible, and a "
            "Match is weak evidence."
        )
    if (table.methods["failed"] > 0).any():
        notes.append("A failed run has the score 0 in the test.")
    return tuple(notes)


def gains(
    table: RankTable, rng: np.random.Generator, against: str | None = None
) -> Gains:
    """Test every method against the best missing-aware baseline of each block.

    The best of several noisy scores is biased upwards, so a Gain over it is hard to
    get. In the summary, the rival is the baseline with the best summary rank in the
    block.

    Parameters
    ----------
    table : RankTable
    rng : numpy.random.Generator
        For the bootstrap; the p-values are not random.
    against : str, optional
        A method to test against instead.

    Returns
    -------
    Gains
        Without tests, but with a note, if there is no such baseline.
    """
    rivals, name = rivals_of(table, against)
    if not rivals:
        return Gains(
            "",
            pd.DataFrame({"mark": []}, pd.MultiIndex.from_product([[], []])),
            (
                "No missing-aware baseline was ranked, so there is no Gain or Match; "
                "name a method to test against with --against.",
            ),
        )
    scores = table.scores.replace(-np.inf, 0.0)
    datasets = scores.index.get_level_values("dataset")
    lines = []
    # a baseline that is part of the rival could only lose against it
    tested = [method for method in table.methods.index if method not in rivals]
    for method in tested:
        for metric in table.metrics:
            best = scores[metric][rivals].max(axis=1)
            d = scores[metric][method] - best
            means = d.groupby(datasets).mean()
            greater, less = signed_rank(d)
            low, high = cluster_interval(means, rng)
            lines.append(
                {
                    "method": method,
                    "metric": metric,
                    "difference": means.mean(),
                    "low": low,
                    "high": high,
                    "p": greater,
                    "p_less": less,
                    "p_datasets": signed_rank(means)[0],
                }
            )
    tests = pd.DataFrame(lines).set_index(["method", "metric"])
    marks = marks_of(tests)
    tests = pd.concat([marks[["mark", "mark_plain"]], tests, marks[["p_holm"]]], axis=1)
    return Gains(name, tests, _notes(table, name, len(tests)))
