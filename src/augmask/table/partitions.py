"""A table of many Parquet files: which rows lie where, and how to read some of them.

A folder, a pattern, a list of files or a Dask frame is one table. Its parts are runs of
row groups of about `PART_ROWS` rows, in the order of the sorted files; a part is read
alone, in whatever process works on it, and all parts are read in the same types.
"""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from augmask.engine import connected
from augmask.errors import DataError
from augmask.rng import stream
from augmask.table.frames import READ_ERRORS, from_arrow

# Rows of a part: as many as keep a process that works on one below a gigabyte.
PART_ROWS = 250_000
PATTERN = "*?["
INDEX = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True)
class Piece:
    """Row groups of one file; `keys` are the columns that its folders name."""

    path: str
    row_groups: tuple[int, ...]
    rows: int
    keys: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Part:
    """Rows that are worked on together.

    Parameters
    ----------
    start : int
        Number of its first row in the whole table.
    pieces : tuple of Piece
    schema : pyarrow.Schema
        Of the whole table.
    """

    start: int
    pieces: tuple[Piece, ...]
    schema: pa.Schema

    @cached_property
    def rows(self) -> int:
        """Number of rows."""
        return sum(piece.rows for piece in self.pieces)

    def arrow(self) -> pa.Table:
        """Read the part as an Arrow table."""
        return pa.concat_tables(
            _read_piece(piece, self.schema) for piece in self.pieces
        )

    def head(self, rows: int) -> pa.Table:
        """Read the first rows of the part, or those of its first file if it has fewer.

        No more of the file is decoded than that.
        """
        return _read_piece(self.pieces[0], self.schema, rows)

    def read(self) -> pd.DataFrame:
        """Read the part as a frame."""
        return from_arrow(self.arrow(), self.name, consume=True)

    @property
    def name(self) -> str:
        """The files, for messages."""
        others = len(self.pieces) - 1
        return self.pieces[0].path + (f" and {others} more files" if others else "")


def _read_piece(piece: Piece, schema: pa.Schema, first: int | None = None) -> pa.Table:
    """Read the rows of a piece, or the first of them."""
    from pyarrow import parquet

    keys = dict(piece.keys)
    own = [name for name in schema.names if name not in keys]
    try:
        groups = list(piece.row_groups)
        with parquet.ParquetFile(piece.path) as file:
            if first is None:
                table = file.read_row_groups(groups, columns=own)
            else:
                batches = file.iter_batches(first, groups, own)
                table = pa.Table.from_batches([next(batches)])
        columns = [
            pa.array([keys[field.name]] * len(table)).cast(field.type)
            if field.name in keys
            else table[field.name].cast(field.type)
            for field in schema
        ]
    except FileNotFoundError as error:
        raise DataError(f"no such file: {piece.path}; it was there before") from error
    except READ_ERRORS as error:
        raise DataError(f"{piece.path} cannot be read as Parquet: {error}") from error
    return pa.table(columns, schema=schema)


@dataclass(frozen=True)
class PartitionedTable:
    """A table in many files.

    Parameters
    ----------
    parts : tuple of Part
    source : str
        What the user passed, for messages.
    """

    parts: tuple[Part, ...]
    source: str

    def __len__(self) -> int:
        return self.parts[-1].start + self.parts[-1].rows

    @property
    def schema(self) -> pa.Schema:
        """The types of the columns."""
        return self.parts[0].schema

    @cached_property
    def digest(self) -> str:
        """Identify the files by name, size and time of change, and the types."""
        facts = hashlib.sha256(str(self.schema).encode())
        for part in self.parts:
            for piece in part.pieces:
                stat = Path(piece.path).stat()
                facts.update(
                    f"{piece.path}\0{piece.row_groups}\0{piece.rows}\0"
                    f"{stat.st_size}\0{stat.st_mtime_ns}\n".encode()
                )
        return facts.hexdigest()

    def sample_places(
        self, n: int, seed: int, *name: str | int
    ) -> list[npt.NDArray[np.int64]]:
        """Choose `n` rows of the whole table; return where they lie in each part.

        Every part gives its share of the rows, and the choice depends on the numbers
        of rows and the seed only.
        """
        n = min(n, len(self))
        ends = np.cumsum([part.rows for part in self.parts])
        quotas = np.diff(ends * n // ends[-1], prepend=0)
        return [
            np.sort(stream(seed, *name, i).choice(part.rows, int(quota), replace=False))
            for i, (part, quota) in enumerate(zip(self.parts, quotas, strict=True))
        ]

    def places(self, rows: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
        """Return where rows of the whole table, in order, lie in each part."""
        starts = np.array([part.start for part in self.parts])
        cuts = np.searchsorted(rows, starts[1:])
        return [
            own - start for own, start in zip(np.split(rows, cuts), starts, strict=True)
        ]

    def take(self, *choices: Sequence[npt.NDArray[np.int64]]) -> list[pa.Table]:
        """Read rows by their places in each part; each part is read at most once.

        Parameters
        ----------
        *choices : sequence of arrays
            As `sample_places` and `places` return them.

        Returns
        -------
        list of pyarrow.Table
            One for each choice.
        """
        tables: list[list[pa.Table]] = [[self.schema.empty_table()] for _ in choices]
        for i, part in enumerate(self.parts):
            if any(len(choice[i]) for choice in choices):
                rows = part.arrow()
                for taken, choice in zip(tables, choices, strict=True):
                    taken.append(rows.take(choice[i]))
        return [pa.concat_tables(taken) for taken in tables]

    def read(self) -> pd.DataFrame:
        """Read all parts as one frame."""
        whole = pa.concat_tables(part.arrow() for part in self.parts)
        return from_arrow(whole, self.source, consume=True)


# -- finding the files ----------------------------------------------------------------


def is_partitioned(source: Any) -> bool:
    """Whether a source is a table of many files.

    Examples
    --------
    >>> is_partitioned("lake/*.parquet"), is_partitioned("rows.csv")
    (True, False)
    """
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        return path.is_dir() or (
            any(sign in str(source) for sign in PATTERN) and not path.exists()
        )
    if isinstance(source, list | tuple):
        return bool(source) and all(isinstance(each, str | Path) for each in source)
    return is_dask(source)


def is_dask(source: Any) -> bool:
    """Whether a source is a Dask frame, without importing Dask."""
    return type(source).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(
        source, "to_parquet"
    )


def _matches(pattern: str) -> list[str]:
    """Return the paths that match a pattern, which may be absolute."""
    return glob.glob(pattern, recursive=True)  # noqa: PTH207


def _files_and_root(source: Any) -> tuple[list[Path], Path | None]:
    """Return the files in order, and the folder that hive keys are relative to."""
    if isinstance(source, list | tuple):
        return [Path(each).expanduser() for each in source], None
    root = Path(source).expanduser()
    if not root.is_dir():
        return sorted(map(Path, _matches(str(root)))), None
    visible = [
        path
        for path in root.rglob("*")
        if path.is_file()
        and not any(
            part.startswith((".", "_")) for part in path.relative_to(root).parts
        )
    ]
    return sorted(path for path in visible if path.suffix == ".parquet") or sorted(
        visible
    ), root


def _keys(path: Path, root: Path | None) -> tuple[tuple[str, str], ...]:
    """Return the columns in the names of folders such as `year=2024`.

    Examples
    --------
    >>> _keys(Path("lake/year=2024/a.parquet"), Path("lake"))
    (('year', '2024'),)
    """
    if root is None:
        return ()
    folders = path.relative_to(root).parts[:-1]
    pairs = (folder.split("=", 1) for folder in folders if "=" in folder)
    return tuple((name, value) for name, value in pairs)


def _key_type(values: Iterable[str]) -> pa.DataType:
    """Return the type of a column that folders name: whole numbers or text."""
    plain = all(v.isdecimal() and (v == "0" or v[0] != "0") for v in values)
    return pa.int64() if plain else pa.string()


def _own_columns(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the nameless index that pandas adds."""
    return pa.schema([field for field in schema if not INDEX.fullmatch(field.name)])


def _common_schema(schemas: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """Return types that hold the columns of all files."""
    first_path, first = schemas[0]
    plain = [first]
    for path, schema in schemas[1:]:
        odd = set(schema.names) ^ set(first.names)
        if odd:
            name = min(odd)
            has, lacks = (
                (path, first_path) if name in schema.names else (first_path, path)
            )
            raise DataError(
                f"all files of a table must have the same columns, but {name!r} is in "
                f"{has} and not in {lacks}; rewrite one of them or pass a list of files"
            )
        if not schema.equals(first):
            plain.append(schema)
    try:
        common = pa.unify_schemas(plain, promote_options="permissive")
    except pa.ArrowTypeError as error:
        for (one, a), (other, b) in pairwise(schemas):
            for field in a:
                kind = b.field(field.name).type
                if kind != field.type:
                    raise DataError(
                        f"column {field.name!r} is {field.type} in {one} and {kind} in "
                        f"{other}; rewrite one of them"
                    ) from error
        raise DataError(f"the files differ in their types: {error}") from error
    return pa.schema([_plain_field(common.field(name)) for name in first.names])


def _plain_field(field: pa.Field) -> pa.Field:
    """Return a field whose levels are text: every file may list other levels."""
    kind = field.type
    if pa.types.is_dictionary(kind) and not kind.ordered:
        kind = kind.value_type
    return pa.field(field.name, kind)


def _pieces(path: Path, sizes: list[int], keys: Any) -> list[Piece]:
    """Return runs of row groups of a file, of at most `PART_ROWS` rows if possible."""
    pieces: list[Piece] = []
    run: list[int] = []
    for i, size in enumerate(sizes):
        if run and sum(sizes[g] for g in run) + size > PART_ROWS:
            pieces.append(
                Piece(str(path), tuple(run), sum(sizes[g] for g in run), keys)
            )
            run = []
        run.append(i)
    if run:
        pieces.append(Piece(str(path), tuple(run), sum(sizes[g] for g in run), keys))
    return pieces


def partitioned_table(source: Any) -> PartitionedTable:
    """Find the files of a table and how many rows they have; no row is read.

    Parameters
    ----------
    source : str, Path or sequence of them
        A folder (with all Parquet files in and below it, but for names that begin with
        a dot or an underscore), a pattern such as ``"lake/2024-*.parquet"``, or files.
        Folders named `year=2024` add a column.
    """
    from pyarrow import parquet

    name = str(source) if isinstance(source, str | Path) else f"{len(source)} files"
    paths, root = _files_and_root(source)
    if not paths:
        raise DataError(f"no Parquet file in {name}; check the path")
    schemas, footers = [], []
    for path in paths:
        if path.suffix != ".parquet":
            raise DataError(
                f"a table of many files must consist of Parquet files, got {path}; "
                "convert it or pass it alone"
            )
        if not path.is_file():
            raise DataError(f"no such file: {path}")
        try:
            with parquet.ParquetFile(path) as file:
                footers.append(file.metadata)
                schemas.append((str(path), _own_columns(file.schema_arrow)))
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path} cannot be read as Parquet: {error}") from error
    keys = [_keys(path, root) for path in paths]
    schema = _common_schema(schemas)
    key_names = [key for key, _ in keys[0]]
    if any([key for key, _ in each] != key_names for each in keys):
        raise DataError(
            f"the folders of {name} name different columns; pass a list of files"
        )
    for key in key_names:
        if key in schema.names:
            raise DataError(
                f"column {key!r} is in the files and in the names of their folders; "
                "rename the folders or pass a list of files"
            )
        schema = schema.append(
            pa.field(key, _key_type(dict(each)[key] for each in keys))
        )
    pieces: list[Piece] = []
    for path, footer, own in zip(paths, footers, keys, strict=True):
        sizes = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
        # absolute: a worker may run in another folder
        pieces += _pieces(path.absolute(), sizes, own)
    parts: list[Part] = []
    run: list[Piece] = []
    start = 0
    for piece in [piece for piece in pieces if piece.rows]:
        if run and sum(each.rows for each in run) + piece.rows > PART_ROWS:
            parts.append(Part(start, tuple(run), schema))
            start, run = start + parts[-1].rows, []
        run.append(piece)
    if not run:
        raise DataError(f"a table needs at least one row, {name} has none")
    parts.append(Part(start, tuple(run), schema))
    return PartitionedTable(tuple(parts), name)


def write_dask(frame: Any, folder: Path, scheduler: str | None) -> None:
    """Write a Dask frame as Parquet files."""
    if scheduler is None:
        frame.to_parquet(str(folder), write_index=False)
        return
    with connected(scheduler) as client, client.as_current():
        frame.to_parquet(str(folder), write_index=False)
