"""What every adapter shares; it runs in foreign environments and needs pandas only.

    python ADAPTER.py JOB.json

The job names the table, its kinds, the task and the folder to write to.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

DATES = "datetime"
LEVELS = ("category", "boolean")


@dataclass
class Job:
    """One table for one contender.

    Parameters
    ----------
    task : {"synthesize", "impute"}
    table : str
        Parquet file with the rows to learn from; beside it lies the same as CSV.
    kinds : dict of str to str
    rows, seed, draws : int
    seconds : float
        The limit.
    out : str
        Folder for the result.
    options : dict
    """

    task: str
    table: str
    kinds: dict[str, str]
    rows: int
    seed: int
    draws: int
    seconds: float
    out: str
    options: dict[str, Any] = field(default_factory=dict)

    def frame(self) -> pd.DataFrame:
        """Return the rows to learn from."""
        frame = pd.read_parquet(self.table)
        self.kinds = {str(name): self.kinds[str(name)] for name in frame}
        return frame

    def write(self, frames: list[pd.DataFrame], **said: Any) -> None:
        """Store the result: synthetic rows, or one completion per draw."""
        for i, frame in enumerate(frames):
            made = frame[list(self.kinds)].copy()
            for name, kind in self.kinds.items():
                if kind in LEVELS:
                    values = made[name].astype(object)
                    made[name] = [None if pd.isna(v) else str(v) for v in values]
            made.reset_index(drop=True).to_parquet(Path(self.out) / f"{i}.parquet")
        (Path(self.out) / "said.json").write_text(json.dumps(said, default=str))


def job() -> Job:
    """Return the job of the command line."""
    return Job(**json.loads(Path(sys.argv[1]).read_text()))


def _decimals(values: np.ndarray) -> int:
    """Return how many decimals a column of numbers shows, nine at most."""
    for digits in range(9):
        if np.allclose(values, np.round(values, digits), rtol=0, atol=1e-9):
            return digits
    return 9


@dataclass
class Coded:
    """A table as one matrix of floats, NaN where a value is missing.

    Parameters
    ----------
    values : array [n, d]
    levels : dict of str to array
        Levels by column; a code is their position.
    names : list of str
    dates : set of str
    decimals : dict of str to int
        Of the numbers: nobody leaves more digits than the column had.
    """

    values: np.ndarray
    levels: dict[str, Any]
    names: list[str]
    dates: set[str]
    decimals: dict[str, int]

    @classmethod
    def of(cls, frame: pd.DataFrame, kinds: dict[str, str]) -> Coded:
        """Return the codes of a table; dates become days."""
        columns, levels, dates, decimals = [], {}, set(), {}
        for name in frame:
            column = frame[name]
            if kinds[name] in LEVELS:
                codes, levels[name] = pd.factorize(column, sort=True)
                columns.append(np.where(codes < 0, np.nan, codes.astype(float)))
            elif kinds[name] == DATES:
                dates.add(name)
                days = column.astype("datetime64[us]").astype("int64") / 86_400e6
                columns.append(np.where(column.isna(), np.nan, days))
            else:
                numbers = column.astype(float).to_numpy()
                decimals[name] = _decimals(numbers[~np.isnan(numbers)])
                columns.append(numbers)
        return cls(np.stack(columns, axis=1), levels, list(frame), dates, decimals)

    def frame(self, values: np.ndarray) -> pd.DataFrame:
        """Return a table for complete codes."""
        columns: dict[str, Any] = {}
        for j, name in enumerate(self.names):
            column = values[:, j]
            if name in self.levels:
                last = len(self.levels[name]) - 1
                codes = np.clip(np.round(column), 0, last).astype(int)
                columns[name] = np.asarray(self.levels[name], dtype=object)[codes]
            elif name in self.dates:
                stamps = np.round(column * 86_400e6).astype("int64")
                columns[name] = stamps.astype("datetime64[us]")
            else:
                columns[name] = np.round(column, self.decimals[name])
        return pd.DataFrame(columns)
