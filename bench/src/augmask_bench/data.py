"""The tables of the benchmark: the paper's by name, your own by path; and the split.

`Source` names a table and `load` reads it. The benchmark compares synthetic rows with a
known truth, so rows that are already incomplete are dropped.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from augmask.errors import AugMaskWarning, DataError, UsageError, did_you_mean
from augmask.rng import stream
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema
from augmask.table.schema import CATEGORICAL, LEARNED, NUMERIC
from augmask_bench.public import known_tables, level_texts, public_table, roles

TASKS = ("classification", "regression")
MIN_ROWS = 50
# Parts of the rows of a shuffled class, in turn: 60 % train, 20 % validation and 20 %
# test of every class, as nearly as its size allows.
PARTS = ("train", "validation", "train", "test", "train")
# Keys of `tables.toml` that do not change the contents of a table.
FILE_KEYS = ("url", "members", "header", "skip", "comment", "rstrip")


@dataclass(frozen=True, eq=False)
class Dataset:
    """A complete table with the roles of its columns.

    Parameters
    ----------
    frame : pandas.DataFrame
        Without missing values, identifiers and constant columns.
    kinds : dict
        The kind of every column, as a schema: integer, float, datetime, category or
        boolean.
    target, task : str
        What MLE predicts, and the kind of prediction.
    """

    frame: pd.DataFrame
    kinds: dict[str, str]
    target: str
    task: str

    @cached_property
    def schema(self) -> dict[str, dict[str, Any]]:
        """Kinds and levels of all columns, as settings of a schema.

        The list of levels is that of the complete table: which levels happen to be
        observed differs from block to block, and so would the networks.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AugMaskWarning)
            inferred = infer_schema(self.frame, self.kinds)
        settings: dict[str, dict[str, Any]] = {}
        for column in inferred:
            settings[column.name] = {"kind": self.kinds[column.name]}
            if column.kind == "category":
                levels = list(column.categories) or sorted(column.all_levels)
                settings[column.name] |= {"levels": levels, "unseen_levels": True}
        return settings

    @property
    def numeric(self) -> list[str]:
        """Columns compared as numbers."""
        return [c for c, kind in self.kinds.items() if kind in NUMERIC]

    @property
    def categorical(self) -> list[str]:
        """Columns compared by level."""
        return [c for c, kind in self.kinds.items() if kind in CATEGORICAL]


@dataclass(frozen=True)
class Source:
    """A table by name or path.

    Parameters
    ----------
    name : str
        A name in `tables.toml`, or the name of your own table in results.
    path : str, optional
        The file of your own table.
    target : str
        The column to predict; known for tables of `tables.toml`.
    task : str
        `classification` or `regression`; inferred from the target if empty.
    drop : tuple of str
        Columns to drop.
    kinds : tuple of (column, kind)
        Kinds of columns that override the inferred ones.
    rows : int, optional
        Number of rows of a random subset, always the same one.

    Examples
    --------
    >>> Source("clinic", rows=400).load().frame.shape
    (400, 18)
    >>> Source("magik").load()
    Traceback (most recent call last):
    augmask.errors.UsageError: there is no table 'magik'; did you mean 'magic'?
    """

    name: str
    path: str | None = None
    target: str = ""
    task: str = ""
    drop: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()
    rows: int | None = None

    def __post_init__(self) -> None:
        if self.path is None and self.name not in known_tables():
            hint = did_you_mean(self.name, known_tables())
            raise UsageError(f"there is no table {self.name!r}{hint}")
        if self.path is not None and not self.target:
            raise UsageError(f"the table {self.path} needs a target: target = COLUMN")
        if self.task and self.task not in TASKS:
            hint = did_you_mean(self.task, TASKS)
            raise UsageError(f"there is no task {self.task!r}{hint}")
        if self.rows is not None and self.rows < MIN_ROWS:
            raise UsageError(
                f"rows of the table {self.name!r} must be at least {MIN_ROWS}, "
                f"got {self.rows}"
            )

    def digest(self) -> str:
        """Return a hash of the contents, not of the file.

        Your own tables and generated ones are read for it. Public tables need not be
        downloaded: their entry is hashed, with the fingerprint that is compared with
        the contents whenever they are read. (The entry of the full News table has a
        size only.)
        """
        if self.path is not None:
            file = Path(self.path)
            if not file.is_file():
                raise DataError(f"no such file: {file}")
            stat = file.stat()
            return _digest_of_file(self, stat.st_mtime_ns, stat.st_size)
        entry = known_tables()[self.name]
        if "made_by" in entry:
            return _digest_of_file(self, 0, 0)
        facts: dict[str, Any] = {
            key: getattr(self, key) for key in ("target", "task", "drop", "rows")
        }
        facts["kinds"] = sorted(self.kinds)
        used = {k: v for k, v in entry.items() if k not in FILE_KEYS}
        facts |= {"table": self.name, "entry": used}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def load(self) -> Dataset:
        """Read the table."""
        entry: Mapping[str, Any] = {}
        if self.path is None:
            entry = known_tables()[self.name]
            frame = public_table(self.name)
        else:
            frame = read_frame(self.path)
        target = self.target or str(entry["target"])
        frame = frame.drop(columns=_check_columns(frame, self.drop, self.name))
        _check_columns(frame, [target], self.name)
        kinds = _kinds(frame, entry, dict(self.kinds))
        task = self.task or entry.get("task") or _task_of(kinds[target])
        if task == "classification" and kinds[target] in NUMERIC:
            kinds[target] = "category"
        if task == "regression" and kinds[target] in CATEGORICAL:
            raise DataError(
                f"regression needs a numeric target, but {target!r} of the table "
                f"{self.name!r} is {kinds[target]}; set its kind or the task"
            )
        used = [c for c, kind in kinds.items() if kind in LEARNED]
        if target not in used:
            raise DataError(
                f"the target {target!r} of the table {self.name!r} is {kinds[target]} "
                "and cannot be predicted; choose another"
            )
        frame = _complete(frame[used], self.name)
        if self.rows is not None and self.rows < len(frame):
            chosen = stream(0, "rows").choice(len(frame), self.rows, replace=False)
            frame = frame.iloc[np.sort(chosen)].reset_index(drop=True)
        return Dataset(frame, {c: kinds[c] for c in used}, target, task)


def _exact(column: pd.Series, kind: str) -> bytes:
    """Return the values of a column as bytes that do not depend on the file format."""
    if kind == "datetime":
        return json.dumps([str(pd.Timestamp(value)) for value in column]).encode()
    if kind in CATEGORICAL or not pd.api.types.is_numeric_dtype(column):
        return json.dumps(level_texts(column)).encode()
    values = column.to_numpy("<i8" if kind == "integer" else "<f8")
    return bytes(values.tobytes())


def _digest(source: Source) -> str:
    """Return the hash of a table as it is used, with the roles of its columns."""
    with warnings.catch_warnings():
        # they are shown when the table is loaded
        warnings.simplefilter("ignore", AugMaskWarning)
        data = source.load()
    roles_of = [data.target, data.task, list(data.kinds.items())]
    digest = hashlib.sha256(json.dumps(roles_of).encode())
    for name, kind in data.kinds.items():
        digest.update(_exact(data.frame[name], kind))
    return digest.hexdigest()


@lru_cache(maxsize=64)
def _digest_of_file(source: Source, changed: int, size: int) -> str:
    """Return the hash of a table; a file is read again if it changed."""
    del changed, size
    return _digest(source)


def _check_columns(
    frame: pd.DataFrame, names: list[str] | tuple[str, ...], table: str
) -> list[str]:
    """Return the names if the table has all of them."""
    for name in names:
        if name not in frame.columns:
            hint = did_you_mean(name, map(str, frame.columns))
            raise DataError(f"the table {table!r} has no column {name!r}{hint}")
    return list(names)


def _kinds(
    frame: pd.DataFrame, entry: Mapping[str, Any], overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return the kind of every column: by its role if that is known, else inferred."""
    known = roles(frame, entry)
    kinds = dict(overrides)
    if known is not None:
        numeric, categorical = known
        for name in numeric:
            integer = bool((frame[name] == frame[name].round()).all())
            kinds.setdefault(name, "integer" if integer else "float")
        for name in categorical:
            kinds.setdefault(name, "category")
    return {c.name: c.kind for c in infer_schema(frame, kinds)}


def _task_of(kind: str) -> str:
    return "regression" if kind in NUMERIC else "classification"


def _complete(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the complete rows; warn if any were dropped."""
    complete = frame.dropna().reset_index(drop=True)
    if len(complete) < MIN_ROWS:
        raise DataError(
            f"the benchmark needs at least {MIN_ROWS} complete rows, the table "
            f"{name!r} has {len(complete)}; drop incomplete columns with `drop`"
        )
    if len(complete) < len(frame):
        warnings.warn(
            f"dropping {len(frame) - len(complete):,} of {len(frame):,} rows of the "
            f"table {name!r}: they have missing values, whose truth is not known",
            AugMaskWarning,
            stacklevel=3,
        )
    return complete


def split(
    frame: pd.DataFrame, by: str | None, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return 60 % of the rows for training and 20 % for testing.

    The other 20 % are for validation and are not used.

    Parameters
    ----------
    frame : pandas.DataFrame
    by : str, optional
        A categorical column to stratify by; a class may have a single row.
    seed : int

    Examples
    --------
    >>> frame = pd.DataFrame({"y": ["a", "b"] * 50})
    >>> train, test = split(frame, "y", seed=0)
    >>> len(train), len(test), int((train["y"] == "a").sum())
    (60, 20, 30)
    """
    shuffled = stream(seed, "split").permutation(len(frame))
    if by is not None:
        classes, _ = pd.factorize(frame[by].iloc[shuffled])
        shuffled = shuffled[np.argsort(classes, kind="stable")]
    part = np.empty(len(frame), dtype=object)
    part[shuffled] = np.resize(PARTS, len(frame))
    train, test = (frame[part == name] for name in ("train", "test"))
    return train.reset_index(drop=True), test.reset_index(drop=True)
