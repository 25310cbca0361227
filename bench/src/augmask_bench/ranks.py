"""Average ranks of methods over blocks, as in the paper's main tables.

A block is one (dataset, mechanism, ratio, seed): all its methods are trained on the
same incomplete table. In a block and metric the best method has rank 1, and equal
scores share their average rank. Failed runs tie for the last place, so the ranks of k
methods always add up to k(k+1)/2. A run that could not start here (`unable`) says
nothing about the method and is not ranked.

If methods do not share all blocks, only the common blocks are ranked, and a note says
so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from augmask.config import STRATEGIES
from augmask.errors import DataError, UsageError, did_you_mean

BLOCK = ("dataset", "mechanism", "ratio", "seed")
# In the paper's order and spelling; larger is better in all.
METRICS = {
    "alpha_precision": "α-Precision",
    "beta_recall": "β-Recall",
    "trend": "Trend",
    "shape": "Shape",
    "mle": "ML Task",
}
SUMMARY = "summary"
TITLES = {**METRICS, SUMMARY: "Summary"}
# The generator whose runs score an augmented table; it generates no rows.
FILL = "fill"
# Scores are rounded to this many decimals, so that float noise breaks no tie.
DECIMALS = 6
_ABOUT = ("method", "generator", "strategy", "aware", "status")


@dataclass(frozen=True, eq=False)
class RankTable:
    """Ranks of every method in every block; see `rank_table`.

    Parameters
    ----------
    mechanism : str
        The one mechanism of the blocks, or "all".
    methods : pandas.DataFrame
        One row per method, in the order of the paper's table: `generator`, `strategy`,
        `aware`, `failed` (number of failed runs in these blocks) and `base`, the NoAug
        of its generator, "" if there is none or the method is it.
    scores, ranks : pandas.DataFrame
        One row per block; columns are (metric, method) with "summary" as a metric. The
        score of a failed run is -inf; the summary score is the negative summary rank.
    notes : tuple of str
        Remarks for readers of the table.
    """

    mechanism: str
    methods: pd.DataFrame
    scores: pd.DataFrame
    ranks: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The ranked metrics, then "summary"."""
        return tuple(self.ranks.columns.unique("metric"))

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.ranks)

    def _by_method(self, values: pd.Series) -> pd.DataFrame:
        return values.unstack("metric").loc[self.methods.index, list(self.metrics)]

    @cached_property
    def mean(self) -> pd.DataFrame:
        """Average rank over blocks, method by metric."""
        return self._by_method(self.ranks.mean())

    @cached_property
    def sd(self) -> pd.DataFrame:
        """Standard deviation of the rank over blocks; NaN with one block."""
        return self._by_method(self.ranks.std(ddof=1))

    @cached_property
    def delta(self) -> pd.DataFrame:
        """Rank of the generator's NoAug minus that of the method; NaN without one."""
        mean = self.mean
        base = self.methods["base"]
        return mean.reindex(base).set_axis(mean.index) - mean


def _check_columns(results: pd.DataFrame) -> pd.DataFrame:
    missing = [name for name in (*BLOCK, *_ABOUT, *METRICS) if name not in results]
    if missing:
        raise DataError(
            f"the table of results has no column {missing[0]!r}; pass the table that "
            "`augmask bench run` collects"
        )
    return results


def _select(
    results: pd.DataFrame, mechanism: str | None, methods: Sequence[str] | None
) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows to rank, and notes on those that are excluded."""
    notes = []
    rows = results
    if mechanism is not None:
        rows = rows[rows["mechanism"] == mechanism]
        if rows.empty:
            known = sorted(results["mechanism"].unique())
            raise UsageError(
                f"no run has the mechanism {mechanism!r}"
                + did_you_mean(mechanism, known)
            )
    if methods is not None:
        known = sorted(rows["method"].unique())
        for name in methods:
            if name not in known:
                raise UsageError(f"no method {name!r}" + did_you_mean(name, known))
        rows = rows[rows["method"].isin(methods)]
    else:
        augmented = rows["generator"] == FILL
        if augmented.any():
            notes.append(
                "Augmented tables are not synthetic and are not ranked: "
                + ", ".join(sorted(rows.loc[augmented, "method"].unique()))
                + "."
            )
            rows = rows[~augmented]
    for name, part in rows[rows["status"] == "unable"].groupby("method"):
        why = part["reason"].iloc[0] if "reason" in part else ""
        notes.append(
            f"{name} was not available in {len(part)} blocks and is not ranked there"
            + (f": {str(why).rstrip('.')}." if why else ".")
        )
    return rows[rows["status"] != "unable"], notes


def _order(about: pd.DataFrame) -> list[str]:
    """Return methods in the paper's order: missing-aware, then by generator."""

    def key(name: str) -> tuple[Any, ...]:
        line = about.loc[name]
        strategy = line["strategy"]
        known = strategy in STRATEGIES
        position = list(STRATEGIES).index(strategy) if known else len(STRATEGIES)
        return not line["aware"], str(line["generator"]).lower(), position, name.lower()

    return sorted(about.index, key=key)


def _bases(about: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the NoAug of every method, "" if there is none, and notes."""
    notes = []
    base_of = {}
    for generator, part in about[about["strategy"] == "NoAug"].groupby("generator"):
        if len(part) == 1:
            base_of[generator] = part.index[0]
        else:
            notes.append(
                f"{generator} has {len(part)} NoAug methods, so its Δ is omitted."
            )
    bases = [
        "" if base_of.get(generator, name) == name else base_of[generator]
        for name, generator in about["generator"].items()
    ]
    return bases, notes


def _common(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of common blocks, and a note if there are others."""
    repeated = rows.duplicated(["method", *BLOCK])
    if repeated.any():
        twice = rows[repeated].iloc[0]
        where = ", ".join(str(twice[name]) for name in BLOCK)
        raise DataError(
            f"a method must have one run per block, {twice['method']!r} has several in "
            f"({where}); keep the rows of one setting"
        )
    counts = rows.groupby(list(BLOCK))["method"].transform("count")
    common = rows[counts == rows["method"].nunique()]
    n, total = (len(part[list(BLOCK)].drop_duplicates()) for part in (common, rows))
    if n == total:
        return common, []
    fewest = rows["method"].value_counts().sort_index()
    short = fewest.idxmin()
    if not n:
        raise DataError(
            f"ranks need blocks that all methods have, got none; {short!r} has the "
            f"fewest ({fewest.min()} of {total}): exclude it or complete its runs"
        )
    return common, [
        f"Ranked in the {n} of {total} blocks that all methods have; {short} has the "
        f"fewest ({fewest.min()})."
    ]


def _scores(rows: pd.DataFrame, order: list[str]) -> tuple[pd.DataFrame, list[str]]:
    """Return scores, blocks by (metric, method), failed runs as -inf; and notes."""
    notes, parts = [], {}
    done = rows["status"] == "done"
    for metric, title in METRICS.items():
        known = done & rows[metric].notna()
        if not known.any():
            notes.append(f"{title} was not measured.")
            continue
        lost = int((done & ~known).sum())
        if lost:
            notes.append(f"{title} has no value in {lost} completed runs: last place.")
        score = rows[metric].astype(float).round(DECIMALS).where(known, -np.inf)
        wide = score.set_axis(pd.MultiIndex.from_frame(rows[["method", *BLOCK]]))
        parts[metric] = wide.unstack("method")[order].sort_index()
    if not parts:
        raise DataError(
            f"ranks need scores, but none of the {len(rows)} runs has any; see the "
            "column 'reason'"
        )
    return pd.concat(parts, axis=1, names=["metric", "method"]), notes


def _block_ranks(scores: pd.DataFrame) -> pd.DataFrame:
    """Rank the methods in every block of one metric; 1 is best."""
    k = scores.shape[1]
    ranks = rankdata(-scores.to_numpy(), method="average", axis=1)
    # average ranks are multiples of one half, so sums are exact
    assert np.all(ranks.sum(axis=1) == k * (k + 1) / 2)
    return pd.DataFrame(ranks, scores.index, scores.columns)


def _as_metric(summary: pd.DataFrame) -> pd.DataFrame:
    return pd.concat({SUMMARY: summary}, axis=1, names=["metric", "method"])


def rank_table(
    results: pd.DataFrame,
    mechanism: str | None = None,
    methods: Sequence[str] | None = None,
) -> RankTable:
    """Rank methods in every block and metric.

    The summary rank is the mean over metrics within a block. Scores are rounded to six
    decimals first. A completed run without a value of a metric is last in it.

    Parameters
    ----------
    results : pandas.DataFrame
        One row per run, as `augmask bench run` collects them.
    mechanism : str, optional
        Rank only the blocks of this mechanism, as the paper's MCAR and MAR tables do.
    methods : sequence of str, optional
        Rank only these; default: all that generate rows.

    Examples
    --------
    Two methods with equal scores share ranks 1 and 2, a failed one comes last:

    >>> row = {"dataset": "adult", "mechanism": "mcar", "ratio": 0.5, "seed": 0,
    ...        "generator": "cdtd", "aware": False, "status": "done", "trend": 0.9,
    ...        "alpha_precision": 0.9, "beta_recall": 0.4, "shape": 0.9, "mle": 0.9}
    >>> results = pd.DataFrame([
    ...     {**row, "method": "CDTD + NoAug", "strategy": "NoAug", "status": "failed"},
    ...     {**row, "method": "CDTD + AugFull", "strategy": "AugFull"},
    ...     {**row, "method": "CDTD + AugMask", "strategy": "AugMask"},
    ... ])
    >>> table = rank_table(results)
    >>> table.mean["summary"].to_dict()
    {'CDTD + NoAug': 3.0, 'CDTD + AugFull': 1.5, 'CDTD + AugMask': 1.5}
    >>> float(table.delta.loc["CDTD + AugMask", "summary"])
    1.5
    """
    rows, notes = _select(_check_columns(results), mechanism, methods)
    n = rows["method"].nunique()
    if n < 2:
        raise DataError(f"ranks need at least two methods that ran, got {n}")
    rows, short = _common(rows)
    about = rows.sort_values(["method", *BLOCK]).groupby("method").first()
    about = about.loc[_order(about), ["generator", "strategy", "aware"]]
    failed = (rows["status"] == "failed").groupby(rows["method"]).sum()
    bases, ambiguous = _bases(about)
    about = about.assign(failed=failed.loc[about.index], base=bases)
    scores, unmeasured = _scores(rows, list(about.index))
    ranks = pd.concat(
        {
            metric: _block_ranks(scores[metric])
            for metric in scores.columns.unique("metric")
        },
        axis=1,
        names=["metric", "method"],
    )
    summary = ranks.T.groupby(level="method", sort=False).mean().T[list(about.index)]
    mechanisms = rows["mechanism"].unique()
    return RankTable(
        str(mechanisms[0]) if len(mechanisms) == 1 else "all",
        about,
        pd.concat([scores, _as_metric(-summary)], axis=1),
        pd.concat([ranks, _as_metric(summary)], axis=1),
        (*notes, *short, *ambiguous, *unmeasured),
    )
