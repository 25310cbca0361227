"""Rows that a grid kept: real and synthetic tables side by side."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from augmask.errors import DataError
from augmask_bench.results import real_file


def kept_rows(
    out: Path | None, run: pd.Series
) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Return the complete real table of a run and its synthetic one; None if not kept.

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


def kinds(real: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the numeric and the categorical columns of a kept real table.

    Runs keep levels as categories, also those that are written as numbers.
    """
    numeric = list(real.select_dtypes(["number", "datetime", "datetimetz"]).columns)
    return numeric, [name for name in real.columns if name not in numeric]


def nothing_kept(what: str) -> DataError:
    """Return the error of a figure whose rows are not there."""
    return DataError(
        f"{what} are drawn from kept rows, and the folder of the grid has none that "
        "can be compared; put `keep = true` into the plan and run it again."
    )
