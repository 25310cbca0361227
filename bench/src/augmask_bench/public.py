"""The paper's public tables: finding, downloading, parsing and verifying them.

A table is searched in the folder `AUGMASK_DATA`, in the user's cache and in the public
archive, in this order. Its contents are always checked against `tables.toml` before
use.
"""

from __future__ import annotations

import hashlib
import io
import os
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from augmask.errors import DataError, UsageError
from augmask.files import atomic_write

TIMEOUT_SECONDS = 60


@cache
def known_tables() -> dict[str, dict[str, Any]]:
    """Return the entries of `tables.toml` by name.

    Examples
    --------
    >>> known_tables()["magic"]["target"]
    'class'
    """
    text = (resources.files("augmask_bench") / "tables.toml").read_text("utf-8")
    return tomllib.loads(text)


def cache_folder() -> Path:
    """Return the folder of downloaded archives."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "augmask" / "tables"


def level_texts(column: pd.Series) -> list[str]:
    """Return levels as text; 1 and 1.0 are the same level, whatever the reader."""
    if column.dtype.kind == "f" and (column == column.round()).all():
        column = column.astype("int64")
    return [str(value) for value in column]


def fingerprint(frame: pd.DataFrame, numeric: Sequence[str]) -> str:
    """Return the SHA-256 of a table's contents: names, numbers as float32, levels.

    Rounding to float32 ignores the last digits, in which parsers of decimals differ.

    Examples
    --------
    >>> one = pd.DataFrame({"x": [0.5, 1.0], "c": [1, 2]})
    >>> two = pd.DataFrame({"x": [0.5, 1], "c": [1.0, 2.0]})
    >>> fingerprint(one, ["x"]) == fingerprint(two, ["x"])
    True
    >>> fingerprint(one, ["x"]) == fingerprint(one[::-1], ["x"])
    False
    """
    digest = hashlib.sha256()
    for name in frame.columns:
        digest.update(f"\n{name}\n".encode())
        if name in numeric:
            digest.update(frame[name].to_numpy(dtype="<f4").tobytes())
        else:
            digest.update("\n".join(level_texts(frame[name])).encode())
    return digest.hexdigest()


def roles(
    frame: pd.DataFrame, entry: Mapping[str, Any]
) -> tuple[list[str], list[str]] | None:
    """Return numeric and categorical columns; None if the entry lists neither."""
    if "numeric" in entry:
        numeric = list(entry["numeric"])
    elif "categorical" in entry:
        numeric = [c for c in frame.columns if c not in entry["categorical"]]
    else:
        return None
    return numeric, [c for c in frame.columns if c not in numeric]


def _join_indicators(
    frame: pd.DataFrame, flags: Mapping[str, Mapping[str, str]]
) -> pd.DataFrame:
    """Replace each group of 0/1 indicators by one categorical column."""
    for name, group in flags.items():
        columns = [c for c in frame.columns if c.startswith(group["prefix"])]
        hot = frame[columns].to_numpy(dtype=float)
        levels = np.array([*(c.removeprefix(group["prefix"]) for c in columns)])
        level = np.where(hot.any(axis=1), levels[hot.argmax(axis=1)], group["else"])
        position = frame.columns.get_loc(columns[0])
        frame = frame.drop(columns=columns)
        frame.insert(position, name, level)
    return frame


def tidy(frame: pd.DataFrame, entry: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table that is trained on: no identifiers, complete rows only."""
    frame = frame.drop(columns=[c for c in entry.get("drop", ()) if c in frame.columns])
    frame = _join_indicators(frame, entry.get("joined", {}))
    return frame.dropna().reset_index(drop=True)


def _check(name: str, frame: pd.DataFrame, entry: Mapping[str, Any], of: str) -> None:
    """Raise unless the table is the one that the paper uses."""
    if list(frame.shape) != entry["size"]:
        raise DataError(
            f"the table {name!r} must have {entry['size'][0]} complete rows and "
            f"{entry['size'][1]} columns, the one from {of} has {frame.shape[0]} and "
            f"{frame.shape[1]}; download it again"
        )
    columns = roles(frame, entry)
    expected = entry.get("fingerprint")
    if expected and columns and fingerprint(frame, columns[0]) != expected:
        raise DataError(
            f"the table {name!r} from {of} differs from the published one (another "
            "fingerprint); download it again, or set `path` to use your own"
        )


def _read_original(content: bytes, entry: Mapping[str, Any], name: str) -> pd.DataFrame:
    """Return the concatenated tables of a public archive."""
    parts = []
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in entry["members"]:
            inside = next(n for n in archive.namelist() if n.split("/")[-1] == member)
            file = io.BytesIO(archive.read(inside))
            if member.endswith(".xls"):
                if find_spec("xlrd") is None:
                    raise UsageError(
                        f"the public copy of the table {name!r} is an .xls file; run "
                        "`pip install xlrd` to read it"
                    )
                parts.append(pd.read_excel(file, skiprows=entry.get("skip", 0)))
                continue
            parts.append(
                pd.read_csv(
                    file,
                    header=None if "header" in entry else "infer",
                    names=entry.get("header"),
                    comment=entry.get("comment"),
                    skiprows=entry.get("skip", 0),
                    skipinitialspace=True,
                )
            )
    frame = pd.concat(parts, ignore_index=True)
    frame.columns = [str(c).strip() for c in frame.columns]
    for column in frame.columns:
        if not pd.api.types.is_numeric_dtype(frame[column]):
            frame[column] = frame[column].str.strip()
    for column, mark in entry.get("rstrip", {}).items():
        frame[column] = frame[column].str.rstrip(mark)
    return frame


def _download(name: str, url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
            content: bytes = answer.read()
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"cannot download the table {name!r} from {url} ({reason}); connect to a "
            f"network, or put {name}.csv.gz in a folder and set AUGMASK_DATA to it"
        ) from error
    return content


def _from_archive(name: str, entry: Mapping[str, Any]) -> pd.DataFrame:
    cached = cache_folder() / f"{name}.zip"
    content = cached.read_bytes() if cached.exists() else _download(name, entry["url"])
    source = str(cached) if cached.exists() else entry["url"]
    try:
        frame = tidy(_read_original(content, entry, name), entry)
    except (zipfile.BadZipFile, StopIteration, ValueError, KeyError) as error:
        if isinstance(error, UsageError):
            raise
        raise DataError(
            f"cannot read the archive of the table {name!r} from {source} "
            f"({type(error).__name__}: {error}); download it again"
        ) from error
    _check(name, frame, entry, source)
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(cached) as part:
            part.write_bytes(content)
    return frame


def _generate(maker: str, settings: Mapping[str, Any]) -> pd.DataFrame:
    module, _, function = maker.partition(":")
    frame: pd.DataFrame = getattr(import_module(module), function)(**settings)
    return frame


def public_table(name: str) -> pd.DataFrame:
    """Return a table of `tables.toml`, complete and verified.

    Examples
    --------
    >>> public_table("clinic").shape
    (5000, 18)
    """
    entry = known_tables()[name]
    if "made_by" in entry:
        frame = tidy(_generate(entry["made_by"], entry["made_with"]), entry)
        _check(name, frame, entry, entry["made_by"])
        return frame
    folder = os.environ.get("AUGMASK_DATA")
    file = Path(folder or ".") / f"{name}.csv.gz"
    if folder and file.exists():
        frame = tidy(pd.read_csv(file), entry)
        _check(name, frame, entry, str(file))
        return frame
    if "url" not in entry:
        raise DataError(
            f"the table {name!r} has no public source; put {name}.csv.gz in a folder "
            "and set AUGMASK_DATA to it"
        )
    return _from_archive(name, entry)
