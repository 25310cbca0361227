"""Check that Shape and Trend equal those of sdmetrics, and measure the speed-up.

    AUGMASK_DATA=... python benchmarks/against_sdmetrics.py

This needs an environment with sdmetrics, hence pandas < 3; `make bench-sdmetrics`
creates one. sdmetrics runs with both thresholds at 0 and without subsampling. Complete
tables are compared with a holdout, a bootstrap sample and independent columns;
incomplete tables with their other half, which is incomplete too, and with complete
independent columns.

The exit code is 1 if a difference exceeds 1e-12. Two known ones are accounted for:

* sdmetrics drops numeric pairs in which a column is constant; we score them with
  correlation 0. They are counted, and all other pairs are compared.
* In Shape, sdmetrics adds a millionth of a row to each level that only the synthetic
  table has. The effect on such a column is computed, printed, and subtracted.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

# One thread for both, because CPU seconds would include waiting threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from real_tables import load

from augmask.evaluation.fidelity import shape, trend
from augmask.evaluation.references import independent
from augmask.evaluation.results import Score

COMPLETE = ("adult", "magic")
LIMIT = 1e-12
PSEUDO_COUNT = 1e-6
REPEATS = 3
# A numeric column with at most this many values is compared as categorical.
FEW = 10

Case = tuple[str, pd.DataFrame, pd.DataFrame, list[str], list[str]]


def halves(frame: pd.DataFrame, rng: np.random.Generator) -> list[pd.DataFrame]:
    """Return two disjoint halves of the rows, in random order."""
    order = rng.permutation(len(frame))
    n = len(frame) // 2
    return [
        frame.iloc[rows].reset_index(drop=True)
        for rows in (order[:n], order[n : 2 * n])
    ]


def cases(folder: Path) -> Iterator[Case]:
    """Yield name, real and synthetic table, numeric and categorical columns."""
    rng = np.random.default_rng(0)
    for name in COMPLETE:
        frame, role = load(name)
        numeric = list(role["numeric"])
        categorical = [c for c, k in role["kinds"].items() if k == "category"]
        real, holdout = halves(frame, rng)
        rows = rng.integers(len(real), size=len(real))
        for kind, synthetic in {
            "holdout": holdout,
            "bootstrap": real.iloc[rows].reset_index(drop=True),
            "independent": independent(real, rng),
        }.items():
            yield f"{name}, {kind}", real, synthetic, numeric, categorical
    for path in sorted(folder.glob("incomplete-*.csv.gz")):
        frame = pd.read_csv(path)
        numeric = [
            c
            for c in frame.select_dtypes("number")
            if frame[c].nunique() > FEW or frame[c].nunique() == 1
        ]
        categorical = [c for c in frame if c not in numeric]
        name = path.name.removesuffix(".csv.gz")
        real, holdout = halves(frame, rng)
        for kind, synthetic in {
            "other half, incomplete": holdout,
            "independent, complete": independent(real, rng),
        }.items():
            yield f"{name}, {kind}", real, synthetic, numeric, categorical


def by_sdmetrics(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    numeric: list[str],
    categorical: list[str],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the scores of sdmetrics per column and per pair."""
    from sdmetrics.reports import QualityReport

    kinds = dict.fromkeys(numeric, "numerical") | dict.fromkeys(
        categorical, "categorical"
    )
    columns = {name: {"sdtype": kind} for name, kind in kinds.items()}
    report = QualityReport()
    report.real_correlation_threshold = 0
    report.real_association_threshold = 0
    report.num_rows_subsample = None
    names = list(kinds)
    report.generate(
        {"table": real[names]},
        {"table": synthetic[names]},
        {"tables": {"table": {"columns": columns}}},
        verbose=False,
    )
    return (
        report.get_details("Column Shapes"),
        report.get_details("Column Pair Trends"),
    )


def by_us(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    numeric: list[str],
    categorical: list[str],
) -> tuple[Score, Score]:
    """Return our Shape, and Trend in sdmetrics mode."""
    names = numeric, categorical
    return (
        shape(real, synthetic, *names, allow_missing=True),
        trend(real, synthetic, *names, edges="sdmetrics", allow_missing=True),
    )


def timed(compute: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Return CPU seconds and the result."""
    began = time.process_time()
    result = compute(*arguments)
    return time.process_time() - began, result


def pseudo_count_effect(real: pd.Series, synthetic: pd.Series) -> float:
    """Return how sdmetrics changes the score of a column with unseen levels."""
    r, s = real.value_counts(), synthetic.value_counts()
    levels = r.index.union(s.index)
    r, s = r.reindex(levels, fill_value=0.0), s.reindex(levels, fill_value=0.0)
    with_counts = r.mask(r == 0, PSEUDO_COUNT)
    plain, moved = (
        (x / x.sum() - s / s.sum()).abs().sum() / 2 for x in (r, with_counts)
    )
    return float(plain - moved)


def differences(merged: pd.DataFrame, names: list[str]) -> tuple[str, bool]:
    """Return text on the largest differences, and whether any exceeds the limit."""
    scored = merged[merged["Score"].notna()]
    gap = (scored["score"] - scored["Score"]).abs()
    of_means = abs(scored["score"].mean() - scored["Score"].mean())
    by_kind = gap.groupby(scored["kind"], sort=False).max()
    parts = [f"{kind} {most:.1e}" for kind, most in by_kind.items()]
    line = ", ".join([*parts, f"mean {of_means:.1e}"])
    if len(scored) < len(merged):
        line += f"; {len(merged) - len(scored)} constant, not scored by sdmetrics"
    over = scored[gap > LIMIT]
    for _, row in over.head().iterrows():
        line += f"\n    ABOVE THE LIMIT: {' & '.join(map(str, row[names]))}: "
        line += f"{row['score']!r} against {row['Score']!r}"
    return line, bool(len(over) or of_means > LIMIT)


def compare(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    numeric: list[str],
    categorical: list[str],
) -> tuple[bool, float]:
    """Print one case; return whether it differs, and the speed-up."""
    case = real, synthetic, numeric, categorical
    theirs, ours = [], []
    for _ in range(REPEATS):
        seconds, (columns, pairs) = timed(by_sdmetrics, *case)
        theirs.append(seconds)
        seconds, (shapes, trends) = timed(by_us, *case)
        ours.append(seconds)

    merged = shapes.table.merge(columns, left_on="column", right_on="Column")
    effect = {
        name: pseudo_count_effect(real[name], synthetic[name])
        for name in categorical
        if not synthetic[name].dropna().isin(real[name]).all()
    }
    merged["Score"] -= merged["column"].map(effect).fillna(0.0)
    line, columns_differ = differences(merged, ["column"])
    print(f"  Shape {shapes.value:.6f}, {len(merged)} columns, differ by {line}")
    if effect:
        most = max(map(abs, effect.values()))
        print(f"    subtracted for unseen levels in {len(effect)}: up to {most:.1e}")

    merged = trends.table.merge(
        pairs, left_on=["first", "second"], right_on=["Column 1", "Column 2"]
    )
    line, pairs_differ = differences(merged, ["first", "second"])
    print(f"  Trend {trends.value:.6f}, {len(merged)} pairs, differ by {line}")
    # sdmetrics may only drop pairs with a constant column.
    dropped = merged[merged["Score"].isna()]
    rho = dropped[["real", "synthetic"]]
    constant = (rho.isin([0.0]) | rho.isna()).any(axis=1)
    expected = (dropped["kind"] == "numeric") & constant
    if not expected.all():
        unexpected = dropped.loc[~expected, "first"].tolist()
        print(f"    NOT CONSTANT, yet dropped by sdmetrics: {unexpected}")
    ratio = median(theirs) / median(ours)
    print(
        f"  CPU seconds: sdmetrics {median(theirs):.3f}, ours {median(ours):.3f}; "
        f"{ratio:.0f} times faster"
    )
    return columns_differ or pairs_differ or not expected.all(), ratio


def main() -> None:
    """Compare all cases."""
    failed, ratios = [], []
    for label, real, synthetic, numeric, categorical in cases(
        Path(os.environ["AUGMASK_DATA"])
    ):
        print(
            f"{label}: {len(real)} rows, {len(numeric)} numeric and "
            f"{len(categorical)} categorical columns, "
            f"{real.isna().mean().mean():.1%} of the real cells missing",
            flush=True,
        )
        differs, ratio = compare(real, synthetic, numeric, categorical)
        failed += [label] * differs
        ratios.append(ratio)
    print(
        f"{len(ratios)} cases, {len(failed)} above the limit of {LIMIT:g}; "
        f"{min(ratios):.0f} to {max(ratios):.0f} times faster, "
        f"median {median(ratios):.0f}"
    )
    if failed:
        sys.exit(f"different scores: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
