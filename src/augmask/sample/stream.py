"""Frames to one file, batch after batch, with constant memory.

The file appears when the last batch is written, or not at all. Batches come from the
calling thread; a second one makes frames of them and writes, a batch behind, so that
generating and writing take the time of the slower one.
"""

from __future__ import annotations

import csv
import gzip
import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Event
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from augmask.errors import UsageError
from augmask.files import as_path, check_writable, written_whole

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".feather")

Item = TypeVar("Item")
Result = TypeVar("Result")

# What makes a formula of a cell, in one spreadsheet program or another.
FORMULA = ("=", "+", "-", "@", "\t", "\r")

_END, _DROPPED = object(), object()


def check_output(path: str | Path) -> Path:
    """Return `path` if rows can be written there, before any are generated."""
    path = as_path(path)
    if not path.name.lower().endswith(SUFFIXES):
        raise UsageError(
            f"the output file must end in one of {', '.join(SUFFIXES)}, got {path.name}"
        )
    return check_writable(path)


def _is_formula(text: Any) -> bool:
    return isinstance(text, str) and text.startswith(FORMULA)


def _without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose texts and names no spreadsheet takes for formulas."""
    safe = {}
    for label in frame.columns:
        column = frame[label]
        if column.dtype.kind not in "biufmM":
            column = column.astype(object)
            column = column.mask(column.map(_is_formula), "'" + column.astype(str))
        safe[f"'{label}" if _is_formula(label) else label] = column
    return pd.DataFrame(safe)


def _returns(frame: pd.DataFrame) -> bool:
    """Say whether a text has a carriage return, which Python leaves unquoted."""
    texts = [frame[c] for c in frame.columns if frame[c].dtype.kind not in "biufmM"]
    return any("\r" in str(v) for text in texts for v in text.unique()) or any(
        "\r" in str(label) for label in frame.columns
    )


def _write_csv(frames: Iterator[pd.DataFrame], part: Path, packed: bool) -> int:
    rows = 0
    with part.open("wb") as raw:
        # no time stamp in the gzip header: same rows, same bytes
        file = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if packed else raw
        for frame in frames:
            text = frame.to_csv(
                index=False,
                header=rows == 0,
                lineterminator="\n",
                quoting=csv.QUOTE_NONNUMERIC if _returns(frame) else csv.QUOTE_MINIMAL,
            )
            file.write(text.encode())
            rows += len(frame)
        if packed:
            file.close()
    return rows


def _write_arrow(frames: Iterator[pd.DataFrame], part: Path, parquet: bool) -> int:
    first = next(frames)
    schema = pa.Schema.from_pandas(first, preserve_index=False)
    opened = (
        pa.parquet.ParquetWriter(part, schema)
        if parquet
        else pa.ipc.new_file(str(part), schema)
    )
    rows = 0
    with opened as writer:
        for frame in itertools.chain([first], frames):
            writer.write_table(
                pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            )
            rows += len(frame)
    return rows


class _Dropped(Exception):
    """Whoever made the items gave up."""


class _Belt:
    """Items on their way from one thread to another, one at a time."""

    def __init__(self) -> None:
        self._queue: Queue[Any] = Queue(1)
        self._closed = Event()

    def put(self, item: Any) -> bool:
        """Hand an item over; False when nobody takes items any more."""
        if not self._closed.is_set():
            self._queue.put(item)
        return not self._closed.is_set()

    def drop(self) -> None:
        """Let the taker fail instead of waiting for items that never come."""
        self.empty()
        with suppress(Full):
            self._queue.put_nowait(_DROPPED)

    def empty(self) -> None:
        """Forget what was not taken."""
        with suppress(Empty):
            self._queue.get_nowait()

    def close(self) -> None:
        """Take nothing any more; a maker who waits for room goes on."""
        self._closed.set()
        self.empty()

    def items(self) -> Iterator[Any]:
        """Take items until the last."""
        while (item := self._queue.get()) is not _END:
            if item is _DROPPED:
                raise _Dropped
            yield item


def run_behind(
    items: Iterable[Item], work: Callable[[Iterator[Item]], Result]
) -> Result:
    """Return `work(items)`, done by a thread while this one makes the items.

    An error on either side ends both, and no thread is left behind.

    Parameters
    ----------
    items : iterable
        Is gone through here.
    work : callable
        Takes an iterator.

    Examples
    --------
    >>> run_behind(range(4), list)
    [0, 1, 2, 3]
    """
    belt = _Belt()

    def do() -> Result:
        try:
            return work(belt.items())
        finally:
            belt.close()

    with ThreadPoolExecutor(1, "augmask-writes") as thread:
        done = thread.submit(do)
        try:
            for item in items:
                if not belt.put(item):
                    break
            belt.put(_END)
        except BaseException:
            belt.drop()
            raise
        return done.result()


def _unchanged(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def write_frames(
    batches: Iterable[Item],
    path: str | Path,
    frame_of: Callable[[Item], pd.DataFrame] | None = None,
    csv_safe: bool = False,
) -> int:
    """Write frames of one schema below each other; return how many rows went out.

    Parameters
    ----------
    batches : iterable of DataFrame
        At least one; or of what `frame_of` makes frames of.
    path : str or Path
        Ends in .csv, .csv.gz, .parquet or .feather.
    frame_of : callable, optional
        Makes the frame of a batch, e.g. decodes it, while the next one is generated.
    csv_safe : bool
        Put an apostrophe before texts that a spreadsheet would run as formulas.
    """
    path = check_output(path)
    name = path.name.lower()
    if csv_safe and not name.endswith((".csv", ".csv.gz")):
        raise UsageError(f"csv_safe is for CSV files, got {path.name}; leave it out")
    make: Callable[[Any], pd.DataFrame] = frame_of or _unchanged

    def write(taken: Iterator[Item]) -> int:
        named = (make(batch).rename(columns=str) for batch in taken)
        if name.endswith((".parquet", ".feather")):
            return _write_arrow(named, part, parquet=name.endswith(".parquet"))
        rows = map(_without_formulas, named) if csv_safe else named
        return _write_csv(rows, part, packed=name.endswith(".gz"))

    with written_whole(path) as part:
        return run_behind(batches, write)
