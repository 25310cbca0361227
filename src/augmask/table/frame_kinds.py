"""Give a table back as what it came as: a pandas or polars frame, or an Arrow table.

Everything between is done with pandas. `give_back` returns a user's own table with some
columns replaced, so that all others are the very same; `FrameKind` remembers what a
model was fitted to, and builds new rows like it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import util
from typing import Any

import pandas as pd
import pyarrow as pa

from augmask.errors import UsageError, brief_repr
from augmask.validation import ValueSpec

KINDS = ("pandas", "polars", "arrow")
_DECIMAL = re.compile(r"decimal128\((\d{1,3}), (\d{1,3})\)")
# How the type of a polars Enum is remembered, which Arrow has no name for.
ENUM = "enum"


def _is_polars(source: Any) -> bool:
    # polars is no dependency: recognise its frames by their module
    named = type(source).__module__.split(".")[0] == "polars"
    # a lazy frame warns if asked for its columns
    return named and any(hasattr(type(source), a) for a in ("collect", "columns"))


def collected(source: Any) -> Any:
    """Return a lazy polars frame as a frame, and anything else as it is."""
    return (
        source.collect()
        if _is_polars(source) and hasattr(source, "collect")
        else source
    )


def kind_name(source: Any) -> str:
    """Return what a table is, as one of `KINDS`; a path is read as a pandas frame.

    Examples
    --------
    >>> kind_name(pa.table({"a": [1]})), kind_name("rows.csv")
    ('arrow', 'pandas')
    """
    if _is_polars(source):
        return "polars"
    return "arrow" if isinstance(source, pa.Table | pa.RecordBatch) else "pandas"


def _arrow_schema(source: Any) -> pa.Schema:
    if not _is_polars(source):
        return source.schema
    import polars as pl

    lazy = hasattr(source, "collect_schema")
    schema = source.collect_schema() if lazy else source.schema
    return pl.DataFrame(schema=schema).to_arrow().schema


def _type_name(kind: pa.Field) -> str | None:
    """Return the name that Arrow parses as this type; None if there is none."""
    if b"_PL_ENUM_VALUES2" in (kind.metadata or {}):
        return ENUM
    return str(kind.type) if _named_type(str(kind.type)) is not None else None


def _named_type(name: str) -> pa.DataType | None:
    try:
        # Arrow writes this type, and has no parser for it.
        if decimal := _DECIMAL.fullmatch(name):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        return pa.type_for_alias(name)
    except ValueError:
        return None


def _to_arrow(frame: pd.DataFrame) -> pa.Table:
    table = pa.Table.from_pandas(frame.rename(columns=str), preserve_index=False)
    return table.replace_schema_metadata(None)


def _family(kind: pa.DataType) -> str:
    """Return what types must share for a cast to keep the meaning of values."""
    test = pa.types
    if test.is_integer(kind) or test.is_floating(kind) or test.is_decimal(kind):
        return "number"
    if test.is_timestamp(kind) or test.is_date(kind):
        return "date"
    if test.is_string(kind) or test.is_large_string(kind):
        return "text"
    # text as such is no number, and a number no boolean: Arrow would convert both
    return "levels" if test.is_dictionary(kind) else str(kind)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the column in a type, or as it is if a value would change."""
    if _family(column.type) != _family(kind):
        return column
    try:
        typed = column.cast(kind)
        # The time of a day and further decimals are cut off without an error.
        cuts = pa.types.is_date(kind) or pa.types.is_decimal(kind)
        kept = not cuts or typed.cast(column.type).equals(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return column
    return typed if kept else column


def check_output(output: Any) -> None:
    """Raise unless `output` is None or a kind of frame that can be made here."""
    ValueSpec(str, KINDS, optional=True).checked("output", output)
    if output == "polars" and util.find_spec("polars") is None:
        raise UsageError(
            "polars is not installed; install it, or pass output='pandas' or 'arrow'"
        )


@dataclass(frozen=True)
class FrameKind:
    """The kind of a table and the types of its columns.

    Parameters
    ----------
    name : {"pandas", "polars", "arrow"}
    types : mapping of str to str
        Of the columns of a polars frame or an Arrow table, in the words of Arrow.

    Examples
    --------
    >>> table = pa.table({"day": pa.array([0], pa.date32())})
    >>> kind = FrameKind.of(table)
    >>> kind.build(table.to_pandas(date_as_object=False)).schema == table.schema
    True
    """

    name: str = "pandas"
    types: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Any) -> FrameKind:
        """Return the kind of a table."""
        name = kind_name(source)
        if name == "pandas":
            return cls()
        fields = {str(each.name): _type_name(each) for each in _arrow_schema(source)}
        return cls(name, {k: v for k, v in fields.items() if v is not None})

    def build(self, frame: pd.DataFrame, output: str | None = None) -> Any:
        """Return new rows as a frame of this kind, or of the kind `output`.

        Columns get their remembered types where no value changes by that.
        """
        output = self.name if output is None else output
        check_output(output)
        if output == "pandas":
            return frame
        table = _to_arrow(frame)
        for i, name in enumerate(table.column_names):
            kind = _named_type(self.types.get(name, ""))
            if kind is not None:
                table = table.set_column(i, name, _cast(table.column(i), kind))
        if output == "arrow":
            return table
        import polars as pl

        rows: Any = pl.from_arrow(table)
        enums = [name for name in frame if self.types.get(str(name)) == ENUM]
        return rows.with_columns(
            rows[str(name)].cast(pl.Enum(frame[name].cat.categories.tolist()))
            for name in enums
            if isinstance(frame[name].dtype, pd.CategoricalDtype)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {"kind": self.name, "types": dict(self.types)}

    @classmethod
    def from_dict(cls, data: Any) -> FrameKind:
        """Rebuild from `to_dict()`; invalid contents raise `ValueError`."""
        if not isinstance(data, Mapping) or data.get("kind") not in KINDS:
            raise ValueError(f"it was fitted to {brief_repr(data)}")
        types = data.get("types")
        if not isinstance(types, Mapping) or not all(
            isinstance(name, str) and (name == ENUM or _named_type(name) is not None)
            for name in types.values()
        ):
            raise ValueError("it names types that do not exist")
        return cls(data["kind"], dict(types))


def give_back(source: Any, frame: pd.DataFrame, changed: Collection[Any]) -> Any:
    """Return a user's table with some columns replaced by those of a pandas frame.

    Parameters
    ----------
    source : DataFrame, polars frame, Arrow table or path
        As the user passed it; `frame` itself is returned for pandas and for a path.
    frame : pandas.DataFrame
        With the columns of `source`, perhaps fewer.
    changed : collection of labels
        The columns that differ; the others are taken from `source`.
    """
    name = kind_name(source)
    if name == "pandas":
        return frame
    new = _to_arrow(frame[list(changed)])
    schema = _arrow_schema(source)
    for i, label in enumerate(new.column_names):
        new = new.set_column(i, label, _cast(new.column(i), schema.field(label).type))
    if name == "arrow":
        table = pa.table(source) if isinstance(source, pa.RecordBatch) else source
        for label in new.column_names:
            place = table.column_names.index(label)
            table = table.set_column(place, label, new.column(label))
        return table
    import polars as pl

    if not new.num_columns:
        return source
    rows: Any = pl.from_arrow(new)
    named = (pl.Categorical, pl.Enum)
    return source.with_columns(
        rows[label].cast(source.schema[label])
        if isinstance(source.schema[label], named) and isinstance(kind, named)
        else rows[label]
        for label, kind in rows.schema.items()
    )


def numbered(tables: Sequence[Any], name: str) -> Any:
    """Return tables of one kind below each other, numbered from 1 in a first column.

    Examples
    --------
    >>> tables = [pa.table({"x": [5, 6]}), pa.table({"x": [5, 7]})]
    >>> numbered(tables, "draw").to_pydict()
    {'draw': [1, 1, 2, 2], 'x': [5, 6, 5, 7]}
    """
    kind = kind_name(tables[0])
    if kind == "arrow":
        parts = [
            table.add_column(0, name, [pa.array([k] * len(table), pa.int64())])
            for k, table in enumerate(tables, 1)
        ]
        return pa.concat_tables(parts, promote_options="permissive")
    if kind == "polars":
        import polars as pl

        return pl.concat(
            [
                table.select(pl.lit(k, pl.Int64).alias(name), pl.all())
                for k, table in enumerate(tables, 1)
            ],
            how="vertical_relaxed",
        )
    for k, table in enumerate(tables, 1):
        table.insert(0, name, k)
    return pd.concat(tables)
