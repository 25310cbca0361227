"""Write frames to one file in batches, with constant memory.

The file appears when the last batch is written, or not at all. The calling thread
generates batches and a second thread converts and writes them, one batch behind, so the
total time is that of the slower one.
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
from augmask.files import as_path, atomic_write, check_writable

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".feather")

Item = TypeVar("Item")
Result = TypeVar("Result")

# First characters that some spreadsheet program takes for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")

_END, _ABORT = object(), object()


def check_output(path: str | Path) -> Path:
    """Return `path` if rows can be written there; call it before generating any."""
    path = as_path(path)
    if not path.name.lower().endswith(SUFFIXES):
        raise UsageError(
            f"the output file must end in one of {', '.join(SUFFIXES)}, got {path.name}"
        )
    return check_writable(path)


def _is_formula(text: Any) -> bool:
    return isinstance(text, str) and text.startswith(FORMULA)


def _without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame without text or names that a spreadsheet takes for formulas."""
    safe = {}
    for label in frame.columns:
        column = frame[label]
        if column.dtype.kind not in "biufmM":
            column = column.astype(object)
            column = column.mask(column.map(_is_formula), "'" + column.astype(str))
        safe[f"'{label}" if _is_formula(label) else label] = column
    return pd.DataFrame(safe)


def _has_carriage_return(frame: pd.DataFrame) -> bool:
    """Return whether text has a carriage return, which pandas leaves unquoted."""
    texts = [frame[c] for c in frame.columns if frame[c].dtype.kind not in "biufmM"]
    return any("\r" in str(v) for text in texts for v in text.unique()) or any(
        "\r" in str(label) for label in frame.columns
    )


def _write_csv(frames: Iterator[pd.DataFrame], part: Path, compress: bool) -> int:
    rows = 0
    with part.open("wb") as raw:
        # No time stamp in the gzip header: same rows, same bytes.
        file = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if compress else raw
        for frame in frames:
            text = frame.to_csv(
                index=False,
                header=rows == 0,
                lineterminator="\n",
                quoting=csv.QUOTE_NONNUMERIC
                if _has_carriage_return(frame)
                else csv.QUOTE_MINIMAL,
            )
            file.write(text.encode())
            rows += len(frame)
        if compress:
            file.close()
    return rows


def _write_arrow(frames: Iterator[pd.DataFrame], part: Path, parquet: bool) -> int:
    first = next(frames)
    schema = pa.Schema.from_pandas(first, preserve_index=False)
    open_writer = (
        pa.parquet.ParquetWriter(part, schema)
        if parquet
        else pa.ipc.new_file(str(part), schema)
    )
    rows = 0
    with open_writer as writer:
        for frame in itertools.chain([first], frames):
            writer.write_table(
                pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            )
            rows += len(frame)
    return rows


class _Aborted(Exception):
    """The producer failed."""


class _Channel:
    """A queue of one item between a producer and a consumer thread."""

    def __init__(self) -> None:
        self._queue: Queue[Any] = Queue(1)
        self._closed = Event()

    def put(self, item: Any) -> bool:
        """Pass an item on; False when the consumer has stopped."""
        if not self._closed.is_set():
            self._queue.put(item)
        return not self._closed.is_set()

    def abort(self) -> None:
        """Make the consumer fail instead of waiting for more items."""
        self._discard()
        with suppress(Full):
            self._queue.put_nowait(_ABORT)

    def close(self) -> None:
        """Stop consuming; a producer that waits for room continues."""
        self._closed.set()
        self._discard()

    def _discard(self) -> None:
        with suppress(Empty):
            self._queue.get_nowait()

    def items(self) -> Iterator[Any]:
        """Yield items until the end."""
        while (item := self._queue.get()) is not _END:
            if item is _ABORT:
                raise _Aborted
            yield item


def consume_in_thread(
    items: Iterable[Item], consume: Callable[[Iterator[Item]], Result]
) -> Result:
    """Return `consume(items)`, run in a thread while this one iterates over `items`.

    An error on either side ends both, and no thread is left behind.

    Examples
    --------
    >>> consume_in_thread(range(4), list)
    [0, 1, 2, 3]
    """
    channel = _Channel()

    def run() -> Result:
        try:
            return consume(channel.items())
        finally:
            channel.close()

    with ThreadPoolExecutor(1, "augmask-writes") as thread:
        result = thread.submit(run)
        try:
            for item in items:
                if not channel.put(item):
                    break
            channel.put(_END)
        except BaseException:
            channel.abort()
            raise
        return result.result()


def write_frames(
    batches: Iterable[Item],
    path: str | Path,
    to_frame: Callable[[Item], pd.DataFrame] | None = None,
    csv_safe: bool = False,
) -> int:
    """Write frames of one schema to a file; return the number of rows.

    Parameters
    ----------
    batches : iterable of DataFrame
        At least one; or of anything that `to_frame` converts.
    path : str or Path
        Ends in .csv, .csv.gz, .parquet or .feather.
    to_frame : callable, optional
        Converts a batch to a frame while the next one is generated.
    csv_safe : bool
        Put an apostrophe before text that a spreadsheet would run as a formula.
    """
    path = check_output(path)
    name = path.name.lower()
    if csv_safe and not name.endswith((".csv", ".csv.gz")):
        raise UsageError(
            f"csv_safe applies to CSV files only, got {path.name}; leave it out"
        )
    convert: Callable[[Any], pd.DataFrame] = to_frame or (lambda frame: frame)

    def write(items: Iterator[Item]) -> int:
        frames = (convert(batch).rename(columns=str) for batch in items)
        if name.endswith((".parquet", ".feather")):
            return _write_arrow(frames, part, parquet=name.endswith(".parquet"))
        frames_out = map(_without_formulas, frames) if csv_safe else frames
        return _write_csv(frames_out, part, compress=name.endswith(".gz"))

    with atomic_write(path) as part:
        return consume_in_thread(batches, write)
