"""Comparisons of like with like: quality of runs, in blocks that all variants finished.

The paper draws "sample quality" and does not define it; here it is the mean of Shape,
Trend, α-precision and β-recall, all that is measured of a table but its use.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from augmask_bench.ranks import BLOCK, FILL, METRICS

QUALITY = tuple(name for name in METRICS if name != "mle")


def with_quality(results: pd.DataFrame) -> pd.DataFrame:
    """Return the finished runs that generated rows, with a column `quality`.

    Examples
    --------
    >>> scores = {"shape": 0.9, "trend": 0.8, "alpha_precision": 0.7, "mle": 0.5}
    >>> run = {"status": "done", "generator": "cdtd", "beta_recall": 0.4, **scores}
    >>> with_quality(pd.DataFrame([run]))["quality"].round(3).tolist()
    [0.7]
    """
    done = (results["status"] == "done") & (results["generator"] != FILL)
    rows = results[done]
    return rows.assign(quality=rows[list(QUALITY)].mean(axis=1, skipna=False))


def matched(rows: pd.DataFrame, variant: Sequence[str]) -> pd.DataFrame:
    """Return the runs of blocks in which every variant finished.

    A mean over different blocks would compare tables, not variants. A variant is a
    combination of values of the columns `variant`.

    Examples
    --------
    >>> block = {"mechanism": "mcar", "ratio": 0.5, "seed": 0}
    >>> runs = [("x", "a"), ("x", "b"), ("y", "a")]
    >>> rows = pd.DataFrame([{"dataset": d, "rule": r, **block} for d, r in runs])
    >>> matched(rows, ["rule"])[["dataset", "rule"]].values.tolist()
    [['x', 'a'], ['x', 'b']]
    """
    names = list(variant)
    rows = rows.drop_duplicates([*BLOCK, *names])
    wanted = len(rows[names].drop_duplicates())
    found = rows.groupby(list(BLOCK))[names[0]].transform("size")
    return rows[found == wanted]


def usual_draws(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with one policy of draws: the paper's, or the most frequent."""
    kinds = rows["completions"]
    if kinds.empty:
        return rows
    policy = "one" if (kinds == "one").any() else kinds.mode().iloc[0]
    return rows[kinds == policy]


def blocks_of(rows: pd.DataFrame) -> str:
    """Return what a figure's means are over, in words.

    Examples
    --------
    >>> rows = pd.DataFrame({"dataset": ["x", "x"], "mechanism": ["mcar", "mcar"],
    ...                      "ratio": [0.3, 0.7], "seed": [0, 0]})
    >>> blocks_of(rows)
    'MCAR 0.3, 0.7, 1 dataset, 1 seed'
    """
    holes = [
        f"{str(name).upper()} {', '.join(f'{r:g}' for r in sorted(set(part)))}"
        for name, part in rows.groupby("mechanism")["ratio"]
    ]
    counts = [
        f"{n} {name}{'' if n == 1 else 's'}"
        for name in ("dataset", "seed")
        for n in [rows[name].nunique()]
    ]
    return ", ".join([*holes, *counts])
