"""`Schema`: what each column of a table is, and why.

A schema is data, not behaviour: `infer` writes it, `encode` follows it, a model file
stores it as JSON, and a user edits it as TOML.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from augmask.errors import SchemaError, did_you_mean
from augmask.notebook import html_table
from augmask.table.absence_facts import check_absence
from augmask.table.identifiers import check_form
from augmask.table.lattice import check_lattice
from augmask.table.link_facts import check_link
from augmask.table.notes import listed, schema_notes
from augmask.table.overrides import (
    KINDS,
    MAX_DECIMALS,
    MISSING_AS,
    Kind,
    read_overrides,
    write_overrides,
)

__all__ = ["KINDS", "UNITS", "Column", "Kind", "Level", "Schema", "read_overrides"]

Level = str | int | float | bool
UNITS = ("D", "h", "min", "s", "ms", "us", "ns")

# Learned columns; the others are set aside and pasted back.
NUMERIC = ("integer", "float", "datetime")
CATEGORICAL = ("category", "boolean")
LEARNED = (*NUMERIC, *CATEGORICAL)


@dataclass(frozen=True)
class Column:
    """What one column is.

    Parameters
    ----------
    label : str, int or float
        The name as the frame has it; `name` is its text.
    kind : str
        integer, float, boolean, category, datetime, constant, all-missing or
        identifier.
    reason : str
        Why, in plain words.
    dtype : str
        The pandas dtype of the output.
    missing_as : "unknown" or "level"
        Whether a hole is a value that nobody knows (integrated out) or a value of its
        own (learned and generated).
    na_values : tuple
        Declared codes that stand for a hole.
    suspects : tuple
        Values that look like such codes and were not declared.
    missing : float
        Share of holes.
    absent : mapping or None
        Where other columns say that this one is missing (see `absence_facts`).
    follows : mapping or None
        The column that this one is nearly a function of (see `links`).
    levels : tuple
        Learned levels, in code order (category, boolean).
    categories : tuple
        All levels of the output when its dtype is `category`.
    ordered : bool
        Whether the levels are ordered.
    folded : tuple of (level, count)
        Rare levels that share one code.
    decimals : int or None
        Decimals of a float column, None at full precision.
    lattice : mapping or None
        What nearly all numbers share, such as a step (see `lattice`).
    low, high : int, float or None
        The observed range; whole `unit`s since 1970 for a datetime.
    unit, tz : str or None
        Coarsest unit that all instants share, and the time zone.
    value : str, int, float, bool or None
        The value of a constant (a datetime as `unit`s).
    form : mapping or None
        How fresh identifiers are made (see `identifiers`).
    """

    label: str | int | float
    kind: Kind
    reason: str
    dtype: str
    missing_as: str = "unknown"
    na_values: tuple[Level, ...] = ()
    suspects: tuple[Level, ...] = ()
    missing: float = 0.0
    absent: Mapping[str, Any] | None = None
    follows: Mapping[str, Any] | None = None
    levels: tuple[Level, ...] = ()
    categories: tuple[Level, ...] = ()
    ordered: bool = False
    folded: tuple[tuple[Level, int], ...] = ()
    decimals: int | None = None
    lattice: Mapping[str, Any] | None = None
    low: int | float | None = None
    high: int | float | None = None
    unit: str | None = None
    tz: str | None = None
    value: Level | None = None
    form: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The label as text."""
        return str(self.label)

    @property
    def learned(self) -> bool:
        """Whether the column is part of what the model learns."""
        return self.kind in LEARNED

    @property
    def gated(self) -> bool:
        """Whether holes are generated: declared as a level, and there were some."""
        return self.missing_as == "level" and self.missing > 0 and self.learned

    @property
    def every_level(self) -> list[Any]:
        """Every observed level: those with a code of their own, then the folded."""
        return [*self.levels, *(level for level, _ in self.folded)]

    @property
    def card(self) -> int:
        """K_j: the levels, one code for all rare ones, one for a kept hole."""
        has_missing_level = self.gated and self.kind == "category"
        return len(self.levels) + bool(self.folded) + has_missing_level

    def settings(self) -> dict[str, Any]:
        """Return the editable settings, as they stand in a schema file."""
        plain: dict[str, Any] = {"kind": self.kind, "missing_as": self.missing_as}
        if self.na_values:
            plain["na_values"] = self.na_values
        if self.kind == "category":
            plain["ordered"] = self.ordered
            # Folded levels are found again by counting.
            if not self.folded:
                plain["levels"] = self.categories or self.levels
        if self.decimals is not None:
            plain["decimals"] = self.decimals
        # a sum is found again
        if self.follows is not None and len(self.follows["column"]) < 2:
            plain["follows"] = (self.follows["column"] or ["nothing"])[0]
        return plain

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe contents; settings at their default are left out."""
        plain: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _REQUIRED or value != field.default:
                plain[field.name] = _as_json(value)
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Column:
        """Rebuild from `to_dict()`; raises `SchemaError` on nonsense."""
        if not isinstance(data, Mapping) or not data.keys() >= _REQUIRED:
            raise SchemaError(f"a stored column must have {sorted(_REQUIRED)}")
        known = [field.name for field in fields(cls)]
        for key, value in data.items():
            if key not in known:
                raise SchemaError(
                    f"a stored column has the unknown field {key!r}"
                    + did_you_mean(str(key), known)
                )
            if not _CHECKS[key](value):
                raise SchemaError(
                    f"stored column {data['label']!r} has an impossible {key}: "
                    f"{str(value)[:60]!r}"
                )
        plain: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in data.items()
        }
        if "folded" in plain:
            plain["folded"] = tuple((level, count) for level, count in plain["folded"])
        column = cls(**plain)
        column._check_whole()
        return column

    def _check_whole(self) -> None:
        """Raise unless the fields that this kind needs are there and agree."""
        numeric = self.kind in ("integer", "float", "datetime")
        ranged = (
            self.low is not None and self.high is not None and self.low <= self.high
        )
        named = set(self.every_level)
        if self.kind == "constant" and self.value is not None:
            named.add(self.value)
        bad = (
            (self.dtype == "category" and not named <= set(self.categories))
            or (numeric and not ranged)
            or (self.kind in ("integer", "datetime") and not _are_64_bits(self))
            or len({isinstance(level, str) for level in named}) > 1
            or (self.kind == "datetime" and self.unit is None)
            or (self.kind == "constant" and self.value is None)
            or (self.kind == "identifier" and self.form is None)
            or (self.kind == "category" and not self.levels)
            or (self.kind == "boolean" and set(self.levels) - {False, True})
            or (self.kind == "boolean" and not self.levels)
        )
        if bad:
            raise SchemaError(f"stored column {self.name!r} is no whole {self.kind}")


_REQUIRED = {"label", "kind", "reason", "dtype"}


def _as_json(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_as_json(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _is_level(value: object) -> bool:
    return isinstance(value, (str, bool)) or _is_number(value)


def _are_levels(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_level, value))


def _are_different(value: Any) -> bool:
    return _are_levels(value) and len(set(value)) == len(value)


def _are_64_bits(column: Column) -> bool:
    bounds = (column.low, column.high)
    return all(type(v) is int and -(2**63) <= v < 2**63 for v in bounds)


def _are_counts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(pair, (list, tuple))
        and len(pair) == 2
        and _is_level(pair[0])
        and type(pair[1]) is int
        and pair[1] > 0
        for pair in value
    )


def _is_dtype(value: object) -> bool:
    try:
        pd.api.types.pandas_dtype(value)
    except (TypeError, ValueError, KeyError):
        return False
    return isinstance(value, str)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "label": lambda v: _is_text(v) or _is_number(v),
    "kind": lambda v: v in KINDS,
    "reason": _is_text,
    "dtype": _is_dtype,
    "missing_as": lambda v: v in MISSING_AS,
    "na_values": _are_levels,
    "suspects": _are_levels,
    "missing": lambda v: _is_number(v) and 0 <= v <= 1,
    "absent": lambda v: v is None or (isinstance(v, Mapping) and check_absence(v)),
    "follows": lambda v: v is None or (isinstance(v, Mapping) and check_link(v)),
    "levels": _are_different,
    "categories": _are_different,
    "ordered": lambda v: isinstance(v, bool),
    "folded": _are_counts,
    "decimals": lambda v: v is None or (type(v) is int and 0 <= v <= MAX_DECIMALS),
    "lattice": lambda v: v is None or (isinstance(v, Mapping) and check_lattice(v)),
    "low": lambda v: v is None or _is_number(v),
    "high": lambda v: v is None or _is_number(v),
    "unit": lambda v: v is None or v in UNITS,
    "tz": lambda v: v is None or _is_text(v),
    "value": lambda v: v is None or _is_level(v),
    "form": lambda v: v is None or (isinstance(v, Mapping) and check_form(v)),
}


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in order.

    Parameters
    ----------
    columns : tuple of Column

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> frame = pd.DataFrame({"age": [30, None, 41], "job": ["?", "b", None]})
    >>> schema = infer_schema(frame)
    >>> schema["age"].kind, schema["age"].dtype
    ('category', 'int64')
    >>> schema["job"].suspects
    ('?',)
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    columns: tuple[Column, ...]

    def __getitem__(self, name: str | int) -> Column:
        for column in self.columns:
            if column.name == str(name):
                return column
        raise SchemaError(
            f"there is no column {name!r}" + did_you_mean(str(name), self.names)
        )

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names as text, in order."""
        return tuple(column.name for column in self.columns)

    def __str__(self) -> str:
        head = ("column", "kind", "missing", "output", "reason")
        rows = [head]
        for column in self.columns:
            text = column.reason
            if column.suspects:
                text += f"; may stand for a hole: {listed(column.suspects)}"
            kept = " (kept)" if column.gated else ""
            share = f"{column.missing:.1%}{kept}" if column.missing else "-"
            rows.append((column.name, column.kind, share, column.dtype, text))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join(
            "  ".join(
                [cell.ljust(w) for cell, w in zip(row[:4], widths, strict=True)]
                + [row[4]]
            )
            for row in rows
        )

    def _repr_html_(self) -> str:
        head = ("column", "kind", "missing", "output", "reason")
        rows = [
            (c.name, c.kind, f"{c.missing:.1%}" if c.missing else "", c.dtype, c.reason)
            for c in self.columns
        ]
        return html_table(f"Schema: {len(self)} columns", head, rows)

    def notes(self) -> list[str]:
        """Return what a user should know before training, one sentence each."""
        return list(schema_notes(self.columns))

    def settings(self) -> dict[str, dict[str, Any]]:
        """Return the editable settings of every column."""
        return {column.name: column.settings() for column in self.columns}

    def to_toml(self, path: str | os.PathLike[str]) -> None:
        """Write the editable settings, each column's reason as a comment."""
        write_overrides(path, {c.name: (c.reason, c.settings()) for c in self.columns})

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe contents, from which `from_dict` rebuilds the schema."""
        return {"columns": [column.to_dict() for column in self.columns]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """Rebuild from `to_dict()`; raises `SchemaError` on nonsense."""
        stored = data.get("columns") if isinstance(data, Mapping) else None
        if not isinstance(stored, (list, tuple)) or not stored:
            raise SchemaError("a stored schema must hold a list of columns")
        columns = tuple(Column.from_dict(column) for column in stored)
        if len({column.name for column in columns}) < len(columns):
            raise SchemaError("a stored schema must not name a column twice")
        levelled = {c.name for c in columns if c.kind in CATEGORICAL}
        for column in columns:
            told = column.absent
            if (
                told is not None
                and told["plain"]
                and told["where"][0][0] not in levelled
            ):
                raise SchemaError(
                    f"stored column {column.name!r} is missing by a column without "
                    f"levels, {told['where'][0][0]!r}"
                )
        return cls(columns)
