"""What figures read: comparable runs of a grid, and the rows that it kept.

The paper plots "sample quality" without defining it; here it is the mean of Shape,
Trend, α-precision and β-recall: all metrics but MLE.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from augmask.errors import DataError
from augmask_bench.ranks import BLOCK, FILL, METRICS
from augmask_bench.results import real_file

QUALITY = tuple(name for name in METRICS if name != "mle")


def with_quality(results: pd.DataFrame) -> pd.DataFrame:
    """Return the completed runs that generated rows, with a column `quality`.

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
    """Return the runs of blocks in which every variant completed.

    Means over different blocks would compare tables, not variants. A variant is a
    combination of values of the columns `variant`.

    Examples
    --------
    >>> block = {"mechanism": "mcar", "ratio": 0.5, "seed": 0}
    >>> runs = [("x", "a"), ("x", "b"), ("y", "a")]
    >>> rows = pd.DataFrame([{"dataset": d, "augmenter": r, **block} for d, r in runs])
    >>> matched(rows, ["augmenter"])[["dataset", "augmenter"]].values.tolist()
    [['x', 'a'], ['x', 'b']]
    """
    names = list(variant)
    rows = rows.drop_duplicates([*BLOCK, *names])
    wanted = len(rows[names].drop_duplicates())
    count = rows.groupby(list(BLOCK))[names[0]].transform("size")
    return rows[count == wanted]


def usual_completions(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with one `completions` setting: `one`, or the most frequent."""
    settings = rows["completions"]
    if settings.empty:
        return rows
    usual = "one" if (settings == "one").any() else settings.mode().iloc[0]
    return rows[settings == usual]


def blocks_of(rows: pd.DataFrame) -> str:
    """Return the blocks over which a figure averages, in words.

    Examples
    --------
    >>> rows = pd.DataFrame({"dataset": ["x", "x"], "mechanism": ["mcar", "mcar"],
    ...                      "ratio": [0.3, 0.7], "seed": [0, 0]})
    >>> blocks_of(rows)
    'MCAR 0.3, 0.7, 1 dataset, 1 seed'
    """
    missingness = [
        f"{str(name).upper()} {', '.join(f'{r:g}' for r in sorted(set(part)))}"
        for name, part in rows.groupby("mechanism")["ratio"]
    ]
    counts = [
        f"{n} {name}{'' if n == 1 else 's'}"
        for name in ("dataset", "seed")
        for n in [rows[name].nunique()]
    ]
    return ", ".join([*missingness, *counts])


def kept_rows(
    out: Path | None, run: pd.Series
) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Return the real and the synthetic table of a run; None if they were not kept.

    Parameters
    ----------
    out : Path
        The grid's folder.
    run : pandas.Series
        A line of the table of results.
    """
    if out is None:
        return None
    real = real_file(out, run["dataset"], run["seed"], run["real"])
    synthetic = out / "samples" / f"{run['run']}.parquet"
    if not (real.exists() and synthetic.exists()):
        return None
    return pd.read_parquet(real), pd.read_parquet(synthetic)


def column_roles(real: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the numeric and the categorical columns of a kept real table.

    Runs store categorical columns with the dtype category, even if they are numbers.
    """
    numeric = list(real.select_dtypes(["number", "datetime", "datetimetz"]).columns)
    return numeric, [name for name in real.columns if name not in numeric]


def no_rows_error(what: str) -> DataError:
    """Return the error of a figure whose rows were not kept."""
    return DataError(
        f"{what} need kept rows, but the folder of the grid has none to compare; set "
        "`keep = true` in the plan and run it again"
    )
