"""`Schema`: the kind, levels, range and missingness of each column, and why.

A schema is data without behaviour: `infer` writes it, `codec` follows it, a model file
stores it as JSON, and you edit it as TOML.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from augmask.errors import SchemaError, brief_repr, did_you_mean
from augmask.notebook import html_table
from augmask.table.cells import Cells, read_cells
from augmask.table.formats import MAX_DECIMALS, is_pattern, read_format
from augmask.table.identifiers import FORM_SPEC
from augmask.table.lattice import LATTICE_SPEC
from augmask.table.notes import listed, schema_notes
from augmask.table.schema_file import (
    BOOLEAN,
    FAKE,
    KINDS,
    LEVEL,
    LOCALE,
    MISSING_AS,
    NUMBER,
    TEXT,
    Kind,
    read_overrides,
    write_overrides,
)
from augmask.validation import AnyOf, ListSpec, RecordSpec, Refined, Spec, ValueSpec

__all__ = ["KINDS", "UNITS", "Column", "Kind", "Level", "Schema", "read_overrides"]

Level = str | int | float | bool
UNITS = ("D", "h", "min", "s", "ms", "us", "ns")

# The kinds that a model learns; the other columns are restored in decoding.
NUMERIC = ("integer", "float", "datetime")
CATEGORICAL = ("category", "boolean")
LEARNED = (*NUMERIC, *CATEGORICAL)


@dataclass(frozen=True)
class Column:
    """What one column is.

    Parameters
    ----------
    label : str, int or float
        The name as in the frame; `name` is its text.
    kind : str
        integer, float, boolean, category, datetime, constant, all-missing or
        identifier.
    reason : str
        Why, in plain words.
    dtype : str
        The pandas dtype of the output.
    missing_as : "unknown" or "level"
        Whether a missing value is an unknown value (integrated out) or a level like
        any other (learned and generated).
    na_values : tuple
        Declared values that encode a missing value.
    suspected_na_values : tuple
        Values that look like such codes but were not declared.
    missing_rate : float
        Share of missing values.
    missing_where : mapping or None
        Where other columns imply that this one is missing (see
        `structural_missingness`).
    determined_by : mapping or None
        The columns that this one is nearly a function of (see
        `functional_dependencies`).
    seen_with : mapping or None
        The columns beside which only some values of this one occur (see
        `seen_combinations`).
    levels : tuple
        Levels with a code of their own, in code order (category, boolean).
    categories : tuple
        All levels of the output if its dtype is `category`.
    ordered : bool
        Whether the levels are ordered.
    rare_levels : tuple of (level, count)
        Levels that share one code.
    decimals : int or None
        Decimals of a float column, None at full precision.
    format : str or None
        How text spells the numbers or dates (see `formats`); they are learned as values
        and written as text.
    format_note : str or None
        What is not certain about the format.
    lattice : mapping or None
        The grid that nearly all numbers lie on (see `lattice`).
    low, high : int, float or None
        The observed range; in whole steps of `unit` since 1970 for a datetime.
    unit, tz : str or None
        The coarsest unit that expresses all instants, and the time zone.
    value : str, int, float, bool or None
        The value of a constant (a datetime in steps of `unit`).
    form : mapping or None
        How new identifiers are made (see `identifiers`).
    fake : str or None
        What stands for the values of an identifier (see `fakes`), or "nothing".
    locale : str or None
        The language and country of the fakes.
    """

    label: str | int | float
    kind: Kind
    reason: str
    dtype: str
    missing_as: str = "unknown"
    na_values: tuple[Level, ...] = ()
    suspected_na_values: tuple[Level, ...] = ()
    missing_rate: float = 0.0
    missing_where: Mapping[str, Any] | None = None
    determined_by: Mapping[str, Any] | None = None
    seen_with: Mapping[str, Any] | None = None
    levels: tuple[Level, ...] = ()
    categories: tuple[Level, ...] = ()
    ordered: bool = False
    rare_levels: tuple[tuple[Level, int], ...] = ()
    decimals: int | None = None
    format: str | None = None
    format_note: str | None = None
    lattice: Mapping[str, Any] | None = None
    low: int | float | None = None
    high: int | float | None = None
    unit: str | None = None
    tz: str | None = None
    value: Level | None = None
    form: Mapping[str, Any] | None = None
    fake: str | None = None
    locale: str | None = None

    @property
    def name(self) -> str:
        """The label as text."""
        return str(self.label)

    @property
    def learned(self) -> bool:
        """Whether the column is part of what the model learns."""
        return self.kind in LEARNED

    @property
    def missing_is_level(self) -> bool:
        """Whether missing values are learned and generated like a level."""
        return self.missing_as == "level" and self.missing_rate > 0 and self.learned

    @property
    def is_determined(self) -> bool:
        """Whether other columns determine this one: searched for, and true."""
        return self.determined_by is not None and "how" in self.determined_by

    @property
    def all_levels(self) -> list[Any]:
        """All observed levels: those with a code of their own, then the rare ones."""
        return [*self.levels, *(level for level, _ in self.rare_levels)]

    @property
    def has_text_levels(self) -> bool:
        """Whether it is a category of text, not of numbers."""
        return self.kind == "category" and isinstance(self.all_levels[0], str)

    @property
    def n_codes(self) -> int:
        """K_j: the levels, one code for all rare ones, one for missing as a level."""
        missing_code = self.missing_is_level and self.kind == "category"
        return len(self.levels) + bool(self.rare_levels) + missing_code

    @property
    def value_dtype(self) -> str:
        """The dtype of decoded values, which differs from `dtype` for a format."""
        if self.format is None:
            return self.dtype
        if self.kind == "integer":
            return "Int64" if self.missing_is_level else "int64"
        return "datetime64[s]" if self.kind == "datetime" else "float64"

    def settings(self) -> dict[str, Any]:
        """Return the editable settings, as a schema file has them."""
        plain: dict[str, Any] = {"kind": self.kind, "missing_as": self.missing_as}
        if self.na_values:
            plain["na_values"] = self.na_values
        if self.kind == "category":
            plain["ordered"] = self.ordered
            # Rare levels are found again by counting, and what may be a missing value
            # must not become a level for good.
            undecided = bool(self.suspected_na_values) and not self.categories
            if not self.rare_levels and not undecided:
                plain["levels"] = self.categories or self.levels
        if self.format is not None:
            plain["format"] = self.format
        if self.decimals is not None and self.format is None:
            plain["decimals"] = self.decimals
        if self.fake is not None:
            plain["fake"] = self.fake
        if self.locale is not None:
            plain["locale"] = self.locale
        # Sums of two columns are found again.
        if self.determined_by is not None and len(self.determined_by["columns"]) < 2:
            plain["determined_by"] = (self.determined_by["columns"] or ["nothing"])[0]
        return plain

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe contents without the fields at their default."""
        plain: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _REQUIRED or value != field.default:
                plain[field.name] = _as_json(value)
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Column:
        """Rebuild from `to_dict()`; raises `SchemaError` on invalid contents."""
        label = data.get("label") if isinstance(data, Mapping) else data
        plain = _COLUMN_SPEC.checked(
            f"stored column {brief_repr(label)}", data, SchemaError
        )
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
        if "rare_levels" in plain:
            plain["rare_levels"] = tuple(map(tuple, plain["rare_levels"]))
        column = cls(**plain)
        column._check_consistency()
        return column

    def _check_consistency(self) -> None:
        """Raise unless the fields that this kind needs exist and agree."""
        ranged = (
            self.low is not None and self.high is not None and self.low <= self.high
        )
        named = set(self.all_levels)
        if self.kind == "constant" and self.value is not None:
            named.add(self.value)
        invalid = (
            (self.dtype == "category" and not named <= set(self.categories))
            or (self.kind in NUMERIC and not ranged)
            or (self.kind in ("integer", "datetime") and not _are_64_bits(self))
            or len({isinstance(level, str) for level in named}) > 1
            or (self.kind == "datetime" and self.unit is None)
            or (self.kind == "constant" and self.value is None)
            or (self.kind == "identifier" and self.form is None)
            or (self.kind == "category" and not self.levels)
            or (self.kind == "boolean" and set(self.levels) - {False, True})
            or (self.kind == "boolean" and not self.levels)
            or (self.format is not None and self.kind not in NUMERIC)
            or (
                self.format is not None
                and (read_format(self.format).kind == "datetime")
                != (self.kind == "datetime")
            )
        )
        if invalid:
            raise SchemaError(
                f"the fields of stored column {self.name!r} do not describe a column "
                f"of kind {self.kind!r}"
            )


# -- what a stored column may hold ------------------------------------------------

_REQUIRED = {"label", "kind", "reason", "dtype"}
_SHARE = ValueSpec(float, lowest=0, highest=1)
_LEVELS = ListSpec(LEVEL)
_DISTINCT = ListSpec(LEVEL, distinct=True)


def _is_dtype(value: str) -> bool:
    try:
        pd.api.types.pandas_dtype(value)
    except (TypeError, ValueError, KeyError):
        return False
    return True


_CONDITION = Refined(
    ListSpec(
        (
            TEXT,
            ValueSpec(None, ("in", "not in", "<=", ">")),
            AnyOf(ListSpec(LEVEL, shortest=1), LEVEL),
        )
    ),
    lambda c: isinstance(c[2], list) == (c[1] in ("in", "not in")),
    "a column, an operator and levels or a bound",
)

_MISSING_WHERE = Refined(
    RecordSpec(
        {
            "where": ListSpec(_CONDITION, shortest=1),
            "join": ValueSpec(None, ("and", "or")),
            "rows": ValueSpec(int),
            "inside": _SHARE,
            "outside": _SHARE,
            "structural": BOOLEAN,
            "counts": ListSpec(ValueSpec(int, lowest=0)),
            "declared": BOOLEAN,
        },
        required=("where", "join", "rows", "inside", "outside", "structural"),
        optional=True,
    ),
    lambda d: (
        len(d["where"]) <= 2
        and not (d["structural"] and d["where"][0][1] not in ("in", "not in"))
        and sum(d.get("counts", [1])) > 0
    ),
    "one or two conditions, on levels if structural, with positive counts",
)


def _is_dependency(d: dict[str, Any]) -> bool:
    if d.keys() == {"columns"}:
        return len(d["columns"]) <= 1
    if not d.keys() >= {"how", "share", "rows"}:
        return False
    pairs = d.get("pairs", [])
    return (
        len(d["columns"]) == (2 if d["how"] in ("sum", "difference") else 1)
        and bool(pairs) == (d["how"] == "map")
        and all(len({type(p[i]) is str for p in pairs}) <= 1 for i in (0, 1))
    )


_DETERMINED_BY = Refined(
    RecordSpec(
        {
            "columns": ListSpec(TEXT),
            "how": ValueSpec(None, ("same", "map", "sum", "difference")),
            "share": _SHARE,
            "rows": ValueSpec(int),
            "pairs": ListSpec(ListSpec((AnyOf(TEXT, NUMBER), AnyOf(TEXT, NUMBER)))),
        },
        required=("columns",),
        optional=True,
    ),
    _is_dependency,
    "one or two columns, and how they determine this one",
)

_SEEN_WITH = Refined(
    RecordSpec(
        {
            "columns": ListSpec(TEXT, shortest=1),
            "rules_out": _SHARE,
            "combinations": ListSpec(ListSpec(AnyOf(TEXT, NUMBER)), shortest=1),
        },
        required=("columns", "rules_out", "combinations"),
        optional=True,
    ),
    lambda d: (
        all(len(c) == len(d["columns"]) + 2 and c[-1] > 0 for c in d["combinations"])
        and all(
            len({type(c[i]) is str for c in d["combinations"]}) == 1
            for i in range(len(d["columns"]) + 2)
        )
    ),
    "columns, and combinations of their values, a value and a number of rows",
)

_FIELDS: dict[str, Spec] = {
    "label": AnyOf(TEXT, NUMBER),
    "kind": ValueSpec(None, KINDS),
    "reason": TEXT,
    "dtype": Refined(TEXT, _is_dtype, "a pandas dtype"),
    "missing_as": ValueSpec(None, MISSING_AS),
    "na_values": _LEVELS,
    "suspected_na_values": _LEVELS,
    "missing_rate": _SHARE,
    "missing_where": _MISSING_WHERE,
    "determined_by": _DETERMINED_BY,
    "seen_with": _SEEN_WITH,
    "levels": _DISTINCT,
    "categories": _DISTINCT,
    "ordered": BOOLEAN,
    "rare_levels": ListSpec(ListSpec((LEVEL, ValueSpec(int, lowest=1)))),
    "decimals": ValueSpec(int, optional=True, lowest=0, highest=MAX_DECIMALS),
    "format": Refined(
        ValueSpec(str, optional=True),
        lambda pattern: pattern is None or is_pattern(pattern),
        "a pattern such as %d/%m/%Y or #,##0",
    ),
    "format_note": ValueSpec(str, optional=True),
    "lattice": LATTICE_SPEC,
    "low": ValueSpec(NUMBER.plain, optional=True),
    "high": ValueSpec(NUMBER.plain, optional=True),
    "unit": ValueSpec(None, UNITS, optional=True),
    "tz": ValueSpec(str, optional=True),
    "value": AnyOf(ValueSpec(str, optional=True), NUMBER, BOOLEAN),
    "form": FORM_SPEC,
    "fake": FAKE,
    "locale": LOCALE,
}
_COLUMN_SPEC = RecordSpec(_FIELDS, _REQUIRED, noun="field")


def _as_json(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_as_json(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _are_64_bits(column: Column) -> bool:
    bounds = (column.low, column.high)
    return all(type(v) is int and -(2**63) <= v < 2**63 for v in bounds)


def column_cells(series: pd.Series, column: Column) -> Cells:
    """Return the cells of a column, read as its schema says."""
    return read_cells(series, column.name, column.na_values, column.format)


def searched_rows(frame: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return at most `most` rows for a search, always the same, numbered anew."""
    if len(frame) > most:
        order = np.random.default_rng(0).permutation(len(frame))
        frame = frame.iloc[np.sort(order[:most])]
    return frame.reset_index(drop=True)


# -- the schema -------------------------------------------------------------------


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
    >>> schema["job"].suspected_na_values
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
        rows = [("column", "kind", "missing", "output", "reason")]
        for column in self.columns:
            text = column.reason
            if column.suspected_na_values:
                codes = listed(column.suspected_na_values)
                text += f"; may encode a missing value: {codes}"
            generated = " (generated)" if column.missing_is_level else ""
            rate = column.missing_rate
            share = f"{rate:.1%}{generated}" if rate else "-"
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
        rows = []
        for c in self.columns:
            share = f"{c.missing_rate:.1%}" if c.missing_rate else ""
            rows.append((c.name, c.kind, share, c.dtype, c.reason))
        return html_table(f"Schema: {len(self)} columns", head, rows)

    def notes(self) -> list[str]:
        """Return what you should know before training, one sentence each."""
        return list(schema_notes(self.columns))

    def settings(self) -> dict[str, dict[str, Any]]:
        """Return the editable settings of every column."""
        return {column.name: column.settings() for column in self.columns}

    def to_toml(self, path: str | os.PathLike[str]) -> None:
        """Write the editable settings, with each column's reason as a comment."""
        columns = {}
        for column in self.columns:
            settings = column.settings()
            undeclared = [
                code
                for code in column.suspected_na_values
                if code not in column.na_values
            ]
            hint = {"na_values": undeclared} if undeclared else {}
            columns[column.name] = (column.reason, settings, hint)
        write_overrides(path, columns)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe contents, from which `from_dict` rebuilds the schema."""
        return {"columns": [column.to_dict() for column in self.columns]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """Rebuild from `to_dict()`; raises `SchemaError` on invalid contents."""
        stored = data.get("columns") if isinstance(data, Mapping) else None
        if not isinstance(stored, (list, tuple)) or not stored:
            raise SchemaError("a stored schema must hold a list of columns")
        columns = tuple(Column.from_dict(column) for column in stored)
        if len({column.name for column in columns}) < len(columns):
            raise SchemaError("a stored schema must not name a column twice")
        categorical = {c.name for c in columns if c.kind in CATEGORICAL}
        for column in columns:
            finding = column.missing_where
            if finding is not None and finding["structural"]:
                parent = finding["where"][0][0]
                if parent not in categorical:
                    raise SchemaError(
                        f"the missing values of stored column {column.name!r} must "
                        f"depend on a column with levels, got {parent!r}"
                    )
        return cls(columns)
