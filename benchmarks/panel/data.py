"""Tables of the panel: read, cleaned, split, and stored for every contender alike."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
FOLDERS = ("AUGMASK_DATA", "AUGMASK_PANEL")
NUMERIC = ("integer", "float", "datetime")
CATEGORICAL = ("category", "boolean")
DAY = 86_400e9


@dataclass(frozen=True)
class Kinds:
    """How columns are scored: numbers, dates as numbers, and levels.

    Parameters
    ----------
    kinds : dict of str to str
        The inferred kind of each column, in the order of the table.
    """

    kinds: dict[str, str]

    @property
    def numeric(self) -> list[str]:
        """Columns with an order: numbers and dates."""
        return [name for name, kind in self.kinds.items() if kind in NUMERIC]

    @property
    def categorical(self) -> list[str]:
        """Columns of levels."""
        return [name for name, kind in self.kinds.items() if kind in CATEGORICAL]


def panel() -> dict[str, Any]:
    """Return the panel file: AUGMASK_PANEL_FILE, or the one beside this module."""
    file = os.environ.get("AUGMASK_PANEL_FILE") or HERE / "panel.toml"
    return tomllib.loads(Path(file).read_text())


def source_file(entry: dict[str, Any], sources: dict[str, Any]) -> Path | str:
    """Return where a table lies, or why it cannot be had."""
    for variable in FOLDERS:
        folder = os.environ.get(variable)
        if folder and (Path(folder) / entry["file"]).exists():
            return Path(folder) / entry["file"]
    return f"{entry['file']} is absent; get it: {sources[entry['source']]['get']}"


def _level(value: object) -> str:
    """Return a level as text, the same for 1, 1.0 and "1"."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    try:
        return f"{float(str(value)):.12g}"
    except ValueError:
        return str(value)


def plain(frame: pd.DataFrame, kinds: Kinds) -> pd.DataFrame:
    """Return a table as it is scored: floats (dates in days) and text, NaN or None.

    Examples
    --------
    >>> kinds = Kinds({"day": "datetime", "code": "category"})
    >>> frame = pd.DataFrame({"day": ["1970-01-02"], "code": [1.0]})
    >>> plain(frame, kinds).iloc[0].tolist()
    [1.0, '1']
    """
    columns: dict[str, Any] = {}
    for name, kind in kinds.kinds.items():
        column = frame[name]
        if kind == "datetime":
            dates = pd.to_datetime(column, utc=True).astype("datetime64[ns, UTC]")
            days = dates.astype("int64").to_numpy() / DAY
            columns[name] = np.where(dates.isna(), np.nan, days)
        elif kind in NUMERIC:
            columns[name] = pd.to_numeric(column).to_numpy(np.float64, na_value=np.nan)
        else:
            values = column.astype(object)
            columns[name] = pd.Series(
                [None if pd.isna(v) else _level(v) for v in values], dtype=object
            )
    return pd.DataFrame(columns)


def read(
    path: Path, entry: dict[str, Any], seed: int
) -> tuple[pd.DataFrame, Kinds, list[str]]:
    """Return a table, the kinds of its columns, and those that were dropped."""
    import augmask as am

    frame = pd.read_csv(
        path, na_values=entry.get("missing", []), low_memory=False
    ).rename(columns=str.strip)
    frame = frame.drop(columns=entry.get("drop", []))
    for code, level in entry.get("replace", {}).items():
        frame = frame.replace(code, level)
    if "rows" in entry and len(frame) > entry["rows"]:
        frame = frame.sample(entry["rows"], random_state=seed)
    found = {column.name: column.kind for column in am.infer_schema(frame)}
    kept = {n: k for n, k in found.items() if k in (*NUMERIC, *CATEGORICAL)}
    dropped = [f"{n} ({k})" for n, k in found.items() if n not in kept]
    return frame[list(kept)].reset_index(drop=True), Kinds(kept), dropped


def _hide(frame: pd.DataFrame, settings: dict[str, Any], seed: int) -> pd.DataFrame:
    """Return part of a table with observed cells hidden, beside the truth."""
    from augmask.evaluation.held_out import hide

    rng = np.random.default_rng(seed)
    if len(frame) > settings["impute_rows"]:
        rows = np.sort(rng.permutation(len(frame))[: settings["impute_rows"]])
        frame = frame.iloc[rows].reset_index(drop=True)
    # A column with fewer than three values has none to spare.
    frame = frame[[c for c in frame if frame[c].notna().sum() > 2]]
    holed, _ = hide(frame, settings["hidden"], rng)
    return pd.concat({"true": frame, "holed": holed}, axis=1)


def _stored(frame: pd.DataFrame, kinds: Kinds) -> pd.DataFrame:
    """Return a table in types that every parquet reader knows: text, floats, dates."""
    columns = {}
    for name in frame:
        kind = kinds.kinds[str(name)]
        if kind == "datetime":
            dates = pd.to_datetime(frame[name], utc=True)
            columns[name] = dates.dt.tz_localize(None).astype("datetime64[us]")
        elif kind in CATEGORICAL:
            columns[name] = plain(frame[[name]], Kinds({str(name): kind}))[name]
        else:
            columns[name] = pd.to_numeric(frame[name])
    return pd.DataFrame(columns)


def prepare(name: str, work: Path, seed: int, again: bool = False) -> str:
    """Store one table for all contenders; return what was done, or why nothing was."""
    import augmask as am

    whole = panel()
    entry, settings = whole["tables"][name], whole["settings"]
    folder = work / "tables" / name
    if (folder / "facts.json").exists() and not again:
        return "is prepared"
    path = source_file(entry, whole["sources"])
    if isinstance(path, str):
        return path
    frame, kinds, dropped = read(path, entry, seed)
    frame = _stored(frame, kinds)
    order = np.random.default_rng(seed).permutation(len(frame))
    n_test = round(settings["test"] * len(frame))
    test = frame.iloc[np.sort(order[:n_test])].reset_index(drop=True)
    train = frame.iloc[np.sort(order[n_test:])].reset_index(drop=True)
    folder.mkdir(parents=True, exist_ok=True)
    if "ampute" in entry:
        train.to_parquet(folder / "truth.parquet")
        train = am.ampute(train, **entry["ampute"], seed=seed)
        frame = train
    # A level or value may be in the test rows only; a column must be in both.
    train.to_parquet(folder / "train.parquet")
    # What a user would have: a file, and no word about its columns.
    train.to_csv(folder / "train.csv", index=False)
    test.to_parquet(folder / "test.parquet")
    both = _hide(frame, settings, seed)
    both["true"].to_parquet(folder / "impute-true.parquet")
    both["holed"].to_parquet(folder / "impute-holed.parquet")
    both["holed"].to_csv(folder / "impute-holed.csv", index=False)
    facts = {
        "kinds": kinds.kinds,
        "dropped": dropped,
        "rows": len(train),
        "missing": float(train.isna().to_numpy().mean()),
        "seed": seed,
    }
    (folder / "facts.json").write_text(json.dumps(facts, indent=1))
    return (
        f"{len(train):,} x {train.shape[1]} rows to learn from, "
        f"{facts['missing']:.0%} missing; dropped: {', '.join(dropped) or 'none'}"
    )


def facts(work: Path, name: str) -> dict[str, Any]:
    """Return what `prepare` wrote about a table."""
    text = (work / "tables" / name / "facts.json").read_text()
    return dict(json.loads(text))
