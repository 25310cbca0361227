"""What each column is, guessed with a reason, or as the user says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from augmask.errors import SchemaError, did_you_mean
from augmask.table.absence import with_absences
from augmask.table.cells import Cells, read_cells
from augmask.table.frames import read_frame
from augmask.table.identifiers import identifier_form, integer_reason, text_reason
from augmask.table.lattice import lattice_text, learn_lattice
from augmask.table.overrides import check_settings, read_overrides
from augmask.table.recover import (
    MAX_LEVELS,
    decimals_of,
    instants,
    number_share,
    number_suspects,
    numbers_in_text,
    recover,
    refuse_nearly_numbers,
    shared_unit,
    text_suspects,
    to_boolean,
    to_datetime,
    to_float,
    to_integer,
)
from augmask.table.schema import Column, Schema

MAX_INTEGER_LEVELS = 10

Overrides = Schema | str | os.PathLike[str] | Mapping[Any, Any] | None

_CONVERT = {
    "integer": (to_integer, "a whole number"),
    "float": (to_float, "a number"),
    "boolean": (to_boolean, "true, false, 0 or 1"),
    "datetime": (to_datetime, "an ISO date such as 2024-05-31"),
}


def _complete_dtype(cells: Cells, form: str) -> str:
    """Return the dtype of a complete column of `form` that came as `cells`."""
    dtype = cells.dtype
    if cells.categories is not None and form != "datetime":
        return "category"
    if form == "integer":
        if dtype.lower().startswith(("int", "uint")):
            return dtype.lower()
        # Holes make floats of whole numbers; a float column without any is meant so.
        complete = bool(cells.observed.all()) or dtype.startswith("Float")
        return dtype.lower() if "loat" in dtype and complete else "int64"
    if form == "float":
        return dtype.lower() if "loat" in dtype else "float64"
    if form == "boolean":
        return "bool"
    return dtype


def _holed_dtype(cells: Cells, dtype: str) -> str:
    """Return the dtype that holds `dtype` together with holes."""
    if cells.nullable:
        return cells.dtype
    if dtype.startswith(("int", "uint")):
        return "float64"
    return "object" if dtype == "bool" else dtype


def _level_fields(
    cells: Cells, settings: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """Return the fields of a category."""
    counts = pd.Series(cells.seen).value_counts(sort=False)
    count = dict(zip(counts.index.tolist(), counts.tolist(), strict=True))
    given = settings.get("levels") or cells.categories
    if given is None:
        order = sorted(count)
    else:
        named = set(given)
        unnamed = [level for level in count if level not in named]
        if unnamed:
            raise SchemaError(
                f"levels of column {name!r} must name every observed level, "
                f"{unnamed[0]!r} is not among them; add it or declare it as a hole"
            )
        order = [level for level in given if level in count]
    place = {level: i for i, level in enumerate(order)}
    by_count = sorted(order, key=lambda level: (-count[level], place[level]))
    kept, rare = set(by_count[:MAX_LEVELS]), by_count[MAX_LEVELS:]
    fields: dict[str, Any] = {
        "levels": tuple(level for level in order if level in kept),
        "folded": tuple((level, count[level]) for level in rare),
        "ordered": bool(settings.get("ordered", cells.ordered)),
    }
    if cells.categories is not None or fields["ordered"]:
        fields["categories"] = tuple(given or order)
    return fields


def _datetime_fields(cells: Cells) -> dict[str, Any]:
    unit = shared_unit(cells)
    seen = instants(cells, unit)[cells.observed]
    return {
        "unit": unit,
        "tz": cells.tz,
        "low": int(seen.min()),
        "high": int(seen.max()),
    }


def _guess(cells: Cells, name: str, n_distinct: int) -> tuple[str, str]:
    """Return the kind of a column with at least two values, and why."""
    if cells.categories is not None:
        return "category", f"a pandas category with {len(cells.categories)} levels"
    if cells.form == "boolean":
        return "boolean", "true and false"
    if cells.form == "datetime":
        return "datetime", "dates and times"
    if cells.form == "float":
        return "float", "numbers"
    if cells.form == "integer":
        reason = integer_reason(cells, name, n_distinct)
        if reason:
            return "identifier", reason
        if n_distinct <= MAX_INTEGER_LEVELS:
            return "category", f"whole numbers with only {n_distinct} different values"
        return "integer", "whole numbers"
    counts = pd.Series(cells.seen).value_counts()
    n_folded = int(counts.iloc[MAX_LEVELS:].sum())
    reason = text_reason(name, counts.index.tolist(), len(cells.seen), n_folded)
    if reason:
        return "identifier", reason
    return "category", f"text with {n_distinct} different values"


def _force(cells: Cells, raw: Cells, kind: str, name: str) -> Cells:
    """Return the cells in the form that a declared kind needs."""
    if kind in ("identifier", "category"):
        # What was written as text stays as it was written.
        cells = raw if raw.form == "text" else cells
        if kind == "category" and cells.form == "datetime":
            raise SchemaError(
                f"column {name!r} holds dates, which cannot be a category; leave it a "
                "datetime or convert it to text"
            )
        return cells
    convert, expected = _CONVERT[kind]
    converted = convert(raw if raw.form == "text" else cells)
    if converted is None:
        wrong = (v for v in raw.seen if convert(_single(raw, v)) is None)
        raise SchemaError(
            f"column {name!r} cannot be of kind {kind!r}: "
            f"{str(next(wrong, raw.seen[0]))!r} is not {expected}; declare it as a "
            "hole or choose another kind"
        )
    return replace(converted, categories=None)


def _single(cells: Cells, value: Any) -> Cells:
    values = np.array([value], dtype=cells.values.dtype)
    return Cells(cells.form, values, np.ones(1, bool), cells.dtype, cells.tz)


def _recovered_note(raw: Cells, cells: Cells) -> str:
    """Say in which disguise the values came, if in one."""
    if raw.form == "text" and cells.form != "text":
        return ", written as text"
    if cells.dtype == "object" and cells.form in ("boolean", "integer", "float"):
        return ", stored as objects" + (
            "" if cells.observed.all() else " for the holes"
        )
    if cells.form == "integer" and raw.form == "float":
        if cells.observed.all() or cells.dtype.startswith("Float"):
            return ", stored as floats"
        return ", floats only because of the holes"
    return ""


def infer_column(series: pd.Series, label: Any, settings: Mapping[str, Any]) -> Column:
    """Return what one column is; `settings` are the user's, already checked."""
    name = str(label)
    holes = settings.get("na_values", ())
    hole = settings.get("missing_as", "unknown")
    declared = settings.get("kind")
    raw = read_cells(series, name, holes)
    missing = float((~raw.observed).mean())
    common: dict[str, Any] = {
        "label": label.item() if isinstance(label, np.generic) else label,
        "missing_as": hole,
        "na_values": tuple(holes),
        "missing": missing,
    }
    if "follows" in settings:
        asked = settings["follows"]
        common["follows"] = {"column": [] if asked == "nothing" else [asked]}
    if raw.form == "empty":
        dtype = _holed_dtype(raw, raw.dtype)
        if raw.categories:
            common |= {"categories": raw.categories, "ordered": raw.ordered}
        return Column(kind="all-missing", reason="no value", dtype=dtype, **common)
    if declared == "all-missing":
        raise SchemaError(
            f"column {name!r} cannot be of kind 'all-missing': it has "
            f"{int(raw.observed.sum())} values"
        )

    cells = recover(raw)
    if cells.form == "text" and cells.categories is None:
        cells = numbers_in_text(cells, tuple(holes)) or cells
        if cells.form == "text" and declared is None:
            refuse_nearly_numbers(cells, name)
    n_distinct = len(cells.coded[1] if cells.form == "text" else pd.unique(cells.seen))
    if (
        n_distinct == 1
        and not (hole == "level" and missing)
        and declared != "identifier"
    ):
        return _constant(cells, common)
    if declared == "constant":
        raise SchemaError(
            f"column {name!r} cannot be of kind 'constant': it has {n_distinct} "
            "different values"
        )

    kind, reason = _guess(cells, name, n_distinct)
    if kind == "boolean" and n_distinct == 1:
        # One value and the hole: two levels of one category.
        kind = "category"
    reason += _recovered_note(raw, cells)
    if declared and declared != kind:
        kind, reason = declared, f"declared so, looks like {kind}: {reason}"
        cells = _force(cells, raw, kind, name)
    for key in ("levels", "ordered"):
        if settings.get(key) and kind != "category":
            raise SchemaError(
                f"column {name!r} is of kind {kind!r}, and only a category has {key}; "
                "set its kind to 'category' too"
            )
    if settings.get("decimals") is not None and kind != "float":
        raise SchemaError(
            f"column {name!r} is of kind {kind!r}, and only a float has decimals"
        )
    return _column(cells, kind, reason, settings, common)


def _constant(cells: Cells, common: Mapping[str, Any]) -> Column:
    fields = dict(common)
    if cells.form == "datetime":
        fields |= _datetime_fields(cells)
        fields["value"] = fields["low"]
    else:
        fields["value"] = (
            cells.seen[0].item() if cells.form != "text" else cells.seen[0]
        )
    if cells.categories is not None:
        fields |= {"categories": cells.categories, "ordered": cells.ordered}
    if cells.form == "text":
        fields["suspects"] = text_suspects([fields["value"]])
    reason = f"one value only: {str(cells.seen[0])[:40]!r}"
    dtype = _complete_dtype(cells, cells.form)
    return Column(kind="constant", reason=reason, dtype=dtype, **fields)


def _column(
    cells: Cells,
    kind: Any,
    reason: str,
    settings: Mapping[str, Any],
    common: Mapping[str, Any],
) -> Column:
    """Fill in what the kind needs."""
    fields = dict(common)
    name = str(fields["label"])
    form = kind if kind in _CONVERT else cells.form
    dtype = _complete_dtype(cells, form)
    if cells.form in ("integer", "float") and kind != "identifier":
        fields["suspects"] = number_suspects(cells.seen)
    if kind == "identifier":
        if fields["missing_as"] == "level":
            raise SchemaError(
                f"column {name!r} is an identifier, whose holes cannot be kept as a "
                "level; set its kind to 'category' or its hole to 'unknown'"
            )
        fields["form"] = identifier_form(cells, name)
        dtype = _identifier_dtype(cells, fields["form"])
    elif kind == "category":
        levels = _level_fields(cells, settings, name)
        fields |= levels
        if levels["folded"]:
            reason += f", the {len(levels['folded'])} rarest folded into one"
        dtype = "category" if "categories" in levels else dtype
        if cells.form == "text":
            seen = [*levels["levels"], *(level for level, _ in levels["folded"])]
            fields["suspects"] = text_suspects(seen)
            rest = [level for level in seen if level not in fields["suspects"]]
            if fields["suspects"] and rest and number_share(rest).all():
                reason += ", all numbers but for what may stand for a hole"
    elif kind == "boolean":
        fields["levels"] = (False, True)
    elif kind == "datetime":
        fields |= _datetime_fields(cells)
    else:
        fields |= {"low": cells.seen.min().item(), "high": cells.seen.max().item()}
        decimals: int | None = 0
        found: int | None = 0
        if kind == "float":
            found = decimals_of(cells.seen, cells.dtype)
            decimals = settings.get("decimals", found)
            fields["decimals"] = decimals
            if decimals is not None and not reason.startswith("declared"):
                reason += f", decimals: {decimals}"
        # who declares other decimals than those found wants no lattice either
        if decimals == found:
            fields["lattice"] = learn_lattice(cells.seen, found)
            if fields["lattice"] is not None:
                reason += f", {lattice_text(fields['lattice'])}"
    column = Column(kind=kind, reason=reason, dtype=dtype, **fields)
    if column.gated:
        fields["dtype"] = _holed_dtype(cells, dtype)
        return Column(kind=kind, reason=reason, **fields)
    return column


def _identifier_dtype(cells: Cells, form: Mapping[str, Any]) -> str:
    if form["make"] == "number":
        # Numbers go on after the largest one, for which a narrow type has no room.
        floats = _complete_dtype(cells, "integer") == "float64"
        return "float64" if floats else "int64"
    if cells.dtype in ("str", "string", "object"):
        return cells.dtype
    return str(pd.Series(["text"]).dtype)


def missing_mask(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Say of every cell whether it is a hole, declared codes included.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [30, -9, None]})
    >>> missing_mask(frame, infer_schema(frame, {"age": {"na_values": -9}}))["age"].tolist()
    [False, True, True]
    """
    codes = {column.name: column.na_values for column in schema}
    holes = []
    for label in frame.columns:
        name = str(label)
        # of a column that it does not know, the schema itself says so
        found = codes[name] if name in codes else schema[name].na_values
        holes.append(~read_cells(frame[label], name, found).observed)
    return pd.DataFrame(np.stack(holes, axis=1), frame.index, frame.columns)


def infer_schema(frame: Any, overrides: Overrides = None) -> Schema:
    """Decide what every column of a table is.

    Parameters
    ----------
    frame : pandas.DataFrame, or anything that `read_frame` reads
    overrides : Schema, path of a TOML file, or mapping, optional
        What the user knows better, by column name: a kind, or a mapping with any of
        `kind`, `hole`, `holes`, `ordered`, `levels`, `decimals`, `follows`.

    Returns
    -------
    Schema
        One `Column` per column, with the reason in plain words. Where a column is
        missing in exactly the rows where another has certain levels, its holes are
        kept as a level, unless `overrides` says otherwise.

    Examples
    --------
    >>> frame = pd.DataFrame({"smokes": [True, None, False], "kg": [71.5, None, 60.2]})
    >>> schema = infer_schema(frame)
    >>> [(column.name, column.kind, column.dtype) for column in schema]
    [('smokes', 'boolean', 'bool'), ('kg', 'float', 'float64')]
    >>> infer_schema(frame, {"smoke": "category"})
    Traceback (most recent call last):
    augmask.errors.SchemaError: the schema names the unknown column 'smoke'; did you \
mean 'smokes'?
    """
    frame = read_frame(frame)
    if overrides is None:
        given: Mapping[Any, Any] = {}
    elif isinstance(overrides, Schema):
        given = overrides.settings()
    elif isinstance(overrides, Mapping):
        given = overrides
    else:
        given = read_overrides(overrides)
    names = [str(label) for label in frame.columns]
    settings: dict[str, dict[str, Any]] = {}
    for key, value in given.items():
        if str(key) not in names:
            raise SchemaError(
                f"the schema names the unknown column {str(key)!r}"
                + did_you_mean(str(key), names)
            )
        settings[str(key)] = check_settings(str(key), value)
    guessed = Schema(
        tuple(
            infer_column(frame[label], label, settings.get(str(label), {}))
            for label in frame.columns
        )
    )
    declared = [name for name, chosen in settings.items() if "missing_as" in chosen]

    def kept(column: Column) -> Column:
        # kept as a level, the column may be of another kind or dtype
        own = settings.get(column.name, {}) | {"missing_as": "level"}
        return infer_column(frame[column.label], column.label, own)

    return with_absences(frame, guessed, declared, kept)
