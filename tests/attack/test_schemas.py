"""Random tables through files, codes and back: observed cells come back exactly.

Integers, dates and levels are decoded to the very cell as long as a column spans
fewer than 2**40 steps; beyond, a score of 53 bits stands for several, and the error is
bounded. `impute` takes observed cells from the table, so there nothing is ever changed.
"""

from __future__ import annotations

import string
import tempfile
import warnings
from collections import Counter
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from augmask.config import Settings
from augmask.errors import AugMaskError
from augmask.sample import impute as imputing
from augmask.sample.row_generator import RowGenerator
from augmask.table.codec import Codec
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema

from .budget import budget, report

pytestmark = pytest.mark.slow

EXACT_SPAN = 2**40
# of the span of a column that is wider, or of floats at full precision
NEARLY = 1e-8


def _whole(rng: np.random.Generator, n: int) -> pd.Series:
    bits = int(rng.integers(1, 63))
    low = int(rng.integers(-(2**62), 2**62)) if rng.random() < 0.5 else 0
    low = min(low, 2**63 - 1 - 2**bits)
    return pd.Series([low + int(v) for v in rng.integers(0, 2**bits, n)], dtype="Int64")


def _small(rng: np.random.Generator, n: int) -> pd.Series:
    dtype = ["int8", "int16", "int32", "uint8", "Int32", "int64"][rng.integers(6)]
    return pd.Series(rng.integers(0, 100, n)).astype(dtype)


def _floats(rng: np.random.Generator, n: int) -> pd.Series:
    return pd.Series(rng.normal(size=n) * 10.0 ** int(rng.integers(-300, 290)))


def _rounded(rng: np.random.Generator, n: int) -> pd.Series:
    return pd.Series(rng.normal(size=n) * 10.0 ** int(rng.integers(0, 6))).round(
        int(rng.integers(1, 5))
    )


def _decimals(rng: np.random.Generator, n: int) -> pd.Series:
    scale = 10 ** int(rng.integers(1, 5))
    values = [Decimal(int(v)) / scale for v in rng.integers(-(10**9), 10**9, n)]
    return pd.Series(values, dtype=object)


def _dates(rng: np.random.Generator, n: int) -> pd.Series:
    unit = ["D", "s", "ms", "us", "ns"][rng.integers(5)]
    step = {"D": 86400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    span = min(2 ** int(rng.integers(3, 60)), 2**60 // step)
    whole = rng.integers(0, max(span, 3), n) * step
    series = pd.Series(pd.to_datetime(whole + 10**18 // step * step))
    if rng.random() < 0.4:
        zone = ["UTC", "Europe/Berlin", "Asia/Kolkata"][rng.integers(3)]
        series = series.dt.tz_localize("UTC").dt.tz_convert(zone)
    return series


def _words(rng: np.random.Generator, n: int) -> pd.Series:
    letters = [*string.printable, "ü", "漢", "🂡", "\u2028"]
    levels = [
        "w"
        + "".join(letters[i] for i in rng.integers(0, len(letters), rng.integers(6)))
        for _ in range(int(rng.integers(1, 30)))
    ]
    return pd.Series([levels[i] for i in rng.integers(0, len(levels), n)], dtype="str")


def _codes(rng: np.random.Generator, n: int) -> pd.Series:
    # of two digits some would be numbers
    width = int(rng.integers(3, 9))
    return pd.Series([f"{v:0{width}d}" for v in rng.integers(0, 60, n)], dtype="str")


def _flags(rng: np.random.Generator, n: int) -> pd.Series:
    return pd.Series(rng.random(n) < 0.5).astype("boolean")


def _levels(rng: np.random.Generator, n: int) -> pd.Series:
    return pd.Series(
        pd.Categorical(rng.choice(["b", "a", "c"], n), ["c", "b", "a", "d"])
    )


def _few(rng: np.random.Generator, n: int) -> pd.Series:
    base = int(rng.integers(2**53, 2**62))
    return pd.Series([base + int(v) for v in rng.integers(0, 5, n)], dtype="Int64")


KINDS = [_whole, _small, _floats, _rounded, _decimals, _dates, _words, _codes]
KINDS += [_flags, _levels, _few]


def make(seed: int, kinds: list[int], rows: int, missing: float) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns = {
        f"c{i} {KINDS[k].__name__}": KINDS[k](rng, rows) for i, k in enumerate(kinds)
    }
    frame = pd.DataFrame(columns)
    for name in frame.columns:
        gone = rng.random(rows) < missing
        if gone.any():
            if frame[name].dtype.kind in "iu" and frame[name].dtype.name[0].islower():
                frame[name] = frame[name].astype(
                    frame[name].dtype.name.replace("int", "Int").replace("uI", "UI")
                )
            frame[name] = frame[name].mask(gone)
    return frame


def through(frame: pd.DataFrame, how: str) -> pd.DataFrame:
    """Return the frame after a file of some kind."""
    if how == "memory":
        return read_frame(frame)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t.{how}"
        if how == "csv":
            frame.to_csv(path, index=False, quoting=2)
        elif how == "parquet":
            frame.to_parquet(path)
        else:
            frame.to_feather(path)
        return read_frame(path)


def plain(value: Any) -> Any:
    """Return a cell so that equal ones are equal, whatever they are stored as."""
    if isinstance(value, pd.Timestamp):
        return value.tz_convert("UTC").tz_localize(None) if value.tz else value
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return Decimal(int(value))
    if isinstance(value, float | np.floating):
        return Decimal(repr(float(value)))
    if isinstance(value, str):
        try:
            return plain(pd.Timestamp(value)) if value[4:5] == "-" else value
        except ValueError:
            return value
    return value


def same(a: pd.Series, b: pd.Series) -> bool:
    pairs = list(zip(map(plain, a.tolist()), map(plain, b.tolist()), strict=True))
    return all(x == y for x, y in pairs)


def as_numbers(series: pd.Series) -> np.ndarray:
    if series.dtype.kind == "M" or isinstance(series.dtype, pd.DatetimeTZDtype):
        if getattr(series.dt, "tz", None) is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return np.array([v.value for v in series], dtype=object)
    return np.array([Decimal(str(v)) for v in series], dtype=object)


def stub(_backbone, num, cat, _observed, _generator, believe=False, **_):
    return num, cat, np.ones((len(num), 4000), np.float32)


FOUND: Counter[str] = Counter()


def check(frame: pd.DataFrame, how: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = through(frame, how)
        for name in frame.columns:
            seen = frame[name].notna()
            assert (read[name].notna() == seen).all(), name
            # CSV knows no decimals and no nanoseconds of its own: as text, or as floats
            assert same(read[name][seen], frame[name][seen]), (name, how)
        try:
            schema = infer_schema(read)
            codec = Codec.fit(read, schema)
        except AugMaskError:
            FOUND["refused"] += 1
            return
        table = codec.encode(read)
        back = codec.decode(table.num, table.cat, np.random.default_rng(0))
        for column in schema:
            if not column.learned:
                continue
            FOUND[column.kind] += 1
            seen = frame[column.label].notna().to_numpy()
            one, two = back[column.label][seen], read[column.label][seen]
            if column.kind in ("boolean", "category"):
                if not column.rare_levels:
                    assert same(one, two), (column.name, how)
                continue
            a, b = as_numbers(one), as_numbers(_typed(two, column))
            span = max(b) - min(b)
            steps = int(span)
            if column.kind == "datetime":
                steps = int(column.high) - int(column.low)
            elif column.kind == "float":
                digits = column.decimals
                steps = 2**99 if digits is None else int(span * 10**digits)
            if steps < EXACT_SPAN:
                assert (a == b).all(), (column.name, how)
                FOUND["exact"] += 1
            else:
                worst = max(abs(x - y) for x, y in zip(a, b, strict=True))
                assert float(worst) <= NEARLY * float(span), (column.name, how, worst)
                FOUND["nearly"] += 1
        source = RowGenerator(
            SimpleNamespace(), codec, Settings(), torch.device("cpu"), 0
        )
        if codec.layout.n_features:
            filled = imputing.impute(read, source)[0]
            for name in frame.columns:
                seen = frame[name].notna()
                assert same(filled[name][seen], frame[name][seen]), (name, how)


def _typed(series: pd.Series, column: Any) -> pd.Series:
    """Return numbers and dates that came as text as what they are."""
    if series.dtype.kind in "iufM" or isinstance(series.dtype, pd.DatetimeTZDtype):
        return series
    if column.kind == "datetime":
        return pd.to_datetime(series, format="ISO8601", utc=column.tz is not None)
    return series


def test_random_schemas(monkeypatch):
    monkeypatch.setattr(imputing, "complete_rows", stub)

    @settings(
        max_examples=budget("schemas"),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.integers(0, 2**32),
        st.lists(st.integers(0, len(KINDS) - 1), min_size=1, max_size=5),
        st.integers(2, 40),
        st.sampled_from([0.0, 0.1, 0.5]),
        st.sampled_from(["memory", "csv", "parquet", "feather"]),
    )
    def one(seed, kinds, rows, missing, how):
        FOUND["tables"] += 1
        check(make(seed, kinds, rows, missing), how)

    one()
    report("random schemas", **dict(sorted(FOUND.items())))
