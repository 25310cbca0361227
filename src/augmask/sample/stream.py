"""Frames to one file, batch after batch, with constant memory.

The file appears when the last batch is written, or not at all.
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from augmask.errors import UsageError
from augmask.files import check_writable, written_whole

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".feather")


def check_output(path: str | Path) -> Path:
    """Return `path` if rows can be written there, before any are generated."""
    path = Path(path)
    if not path.name.lower().endswith(SUFFIXES):
        raise UsageError(
            f"the output file must end in one of {', '.join(SUFFIXES)}, got {path.name}"
        )
    return check_writable(path)


def _write_csv(frames: Iterator[pd.DataFrame], part: Path, packed: bool) -> int:
    rows = 0
    with part.open("wb") as raw:
        # no time stamp in the gzip header: same rows, same bytes
        file = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if packed else raw
        for frame in frames:
            text = frame.to_csv(index=False, header=rows == 0, lineterminator="\n")
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


def write_frames(frames: Iterable[pd.DataFrame], path: str | Path) -> int:
    """Write frames of one schema below each other; return how many rows went out.

    Parameters
    ----------
    frames : iterable of DataFrame
        At least one.
    path : str or Path
        Ends in .csv, .csv.gz, .parquet or .feather.
    """
    path = check_output(path)
    name = path.name.lower()
    named = (frame.rename(columns=str) for frame in frames)
    with written_whole(path) as part:
        if name.endswith((".parquet", ".feather")):
            return _write_arrow(named, part, parquet=name.endswith(".parquet"))
        return _write_csv(named, part, packed=name.endswith(".gz"))
