"""Infer the schema of a frame: each column's kind with a reason, or as declared."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from augmask.errors import SchemaError, did_you_mean
from augmask.table.cells import Cells, parse_format, read_cells
from augmask.table.dtype_recovery import (
    MAX_INTEGER_LEVELS,
    MAX_LEVELS,
    TO_FORM,
    are_numbers,
    check_almost_numeric,
    decimals_of,
    hidden_kind,
    instants,
    numbers_in_text,
    recognise_values,
    recover,
    shared_unit,
    suspected_numbers,
    suspected_texts,
)
from augmask.table.fakes import fake_fields
from augmask.table.formats import DateFormat, read_format
from augmask.table.frames import INFERRED, codes_taken_in_reading, read_frame
from augmask.table.group_codes import with_group_codes
from augmask.table.identifiers import identifier_form, integer_reason, text_reason
from augmask.table.lattice import lattice_text, learn_lattice
from augmask.table.notes import is_group_code
from augmask.table.schema import NUMERIC, Column, Schema, column_cells
from augmask.table.schema_file import check_settings, read_overrides
from augmask.table.structural_missingness import with_structural_missingness

Overrides = Schema | str | os.PathLike[str] | Mapping[Any, Any] | None

# What a value of a kind that has its own form must be, see `TO_FORM`.
_EXPECTED = {
    "integer": "a whole number",
    "float": "a number",
    "boolean": "true, false, 0 or 1",
    "datetime": "an ISO date such as 2024-05-31",
}


def _complete_dtype(cells: Cells, form: str) -> str:
    """Return the dtype of a complete column of `form` that was read as `cells`."""
    dtype = cells.dtype
    if cells.categories is not None and form != "datetime":
        return "category"
    if form == "integer":
        if dtype.lower().startswith(("int", "uint")):
            return dtype.lower()
        # Missing values make floats of whole numbers; complete floats are meant so.
        complete = bool(cells.observed.all()) or dtype.startswith("Float")
        return dtype.lower() if "loat" in dtype and complete else "int64"
    if form == "float":
        return dtype.lower() if "loat" in dtype else "float64"
    if form == "boolean":
        return "bool"
    return dtype


def _incomplete_dtype(cells: Cells, dtype: str) -> str:
    """Return the dtype that represents `dtype` with missing values."""
    if cells.nullable:
        return cells.dtype
    if dtype.startswith(("int", "uint")):
        return "float64"
    return "object" if dtype == "bool" else dtype


def _level_fields(
    cells: Cells, settings: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """Return the fields of a category."""
    counts = pd.Series(cells.observed_values).value_counts(sort=False)
    count = dict(zip(counts.index.tolist(), counts.tolist(), strict=True))
    declared = settings.get("levels") or cells.categories
    if settings.get("unseen_levels"):
        count = dict.fromkeys(settings.get("levels", ()), 0) | count
    if declared is None:
        order = sorted(count)
    else:
        known = set(declared)
        unknown = [level for level in count if level not in known]
        if unknown:
            raise SchemaError(
                f"levels of column {name!r} must name every observed level, "
                f"{unknown[0]!r} is not among them; add it or declare it in na_values"
            )
        order = [level for level in declared if level in count]
    position = {level: i for i, level in enumerate(order)}
    by_count = sorted(order, key=lambda level: (-count[level], position[level]))
    frequent, rare = set(by_count[:MAX_LEVELS]), by_count[MAX_LEVELS:]
    fields: dict[str, Any] = {
        "levels": tuple(level for level in order if level in frequent),
        # a level that no row has is drawn as rarely as the rarest
        "rare_levels": tuple((level, max(count[level], 1)) for level in rare),
        "ordered": bool(settings.get("ordered", cells.ordered)),
    }
    if cells.categories is not None or fields["ordered"]:
        fields["categories"] = tuple(declared or order)
    return fields


def _datetime_fields(cells: Cells) -> dict[str, Any]:
    unit = shared_unit(cells)
    whole = instants(cells, unit)[cells.observed]
    low, high = int(whole.min()), int(whole.max())
    return {"unit": unit, "tz": cells.tz, "low": low, "high": high}


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
            return "category", f"whole numbers with only {n_distinct} distinct values"
        return "integer", "whole numbers"
    counts = pd.Series(cells.observed_values).value_counts()
    n_rare = int(counts.iloc[MAX_LEVELS:].sum())
    n_observed = len(cells.observed_values)
    reason = text_reason(name, counts.index.tolist(), n_observed, n_rare)
    if reason:
        return "identifier", reason
    return "category", f"text with {n_distinct} distinct values"


def _force(cells: Cells, raw: Cells, kind: str, name: str) -> Cells:
    """Return the cells in the form that a declared kind needs."""
    if kind in ("identifier", "category"):
        # Text stays as it was written.
        cells = raw if raw.form == "text" else cells
        if kind == "category" and cells.form == "datetime":
            raise SchemaError(
                f"column {name!r} holds dates, which cannot be a category; leave it a "
                "datetime or convert it to text"
            )
        return cells
    convert = TO_FORM[kind]
    converted = convert(raw if raw.form == "text" else cells)
    if converted is None:
        values = raw.observed_values
        wrong = (value for value in values if convert(_single_cell(raw, value)) is None)
        raise SchemaError(
            f"column {name!r} cannot be of kind {kind!r}: "
            f"{str(next(wrong, values[0]))!r} is not {_EXPECTED[kind]}; declare "
            "it in na_values or choose another kind"
        )
    return replace(converted, categories=None)


def _single_cell(cells: Cells, value: Any) -> Cells:
    values = np.array([value], dtype=cells.values.dtype)
    return Cells(cells.form, values, np.ones(1, bool), cells.dtype, cells.tz)


def _recovered_note(raw: Cells, cells: Cells) -> str:
    """Return how the values were stored, if not as what they are."""
    if raw.form == "text" and cells.form != "text":
        return ", written as text"
    if cells.dtype == "object" and cells.form in ("boolean", "integer", "float"):
        incomplete = not cells.observed.all()
        return ", stored as objects" + (" for missing values" if incomplete else "")
    if cells.form == "integer" and raw.form == "float":
        if cells.observed.all() or cells.dtype.startswith("Float"):
            return ", stored as floats"
        return ", floats only because of missing values"
    return ""


# -- formats ----------------------------------------------------------------------


def _format_note(name: str, text: str, used: str, other: str) -> str:
    """Return what to declare if a column of an uncertain format was read wrong."""
    declare = f"{{{name!r}: {{'format': {other!r}}}}}"
    return (
        f"column {name!r} is read in the format {used!r}, so that {text!r} is "
        f"{_text_as_read(text, used)}; if it is {_text_as_read(text, other)}, "
        f"declare {declare}"
    )


def _text_as_read(text: str, pattern: str) -> str:
    form = read_format(pattern)
    value = form.parse([text])[0]
    return str(value.astype("M8[D]")) if form.kind == "datetime" else f"{value:g}"


def _spelled_values(
    cells: Cells, settings: Mapping[str, Any], name: str
) -> tuple[Cells, dict[str, Any], str]:
    """Return text as the values that it spells, the fields of its format, and why."""
    declared, pattern = settings.get("kind"), settings.get("format")
    unread: tuple[Cells, dict[str, Any], str] = cells, {}, ""
    if pattern is not None and declared not in (None, *NUMERIC):
        raise SchemaError(
            f"column {name!r} is of kind {declared!r}, and only numbers and dates have "
            "a format; leave out one of the two"
        )
    if cells.form != "text" or declared not in (None, *NUMERIC):
        return unread
    levels = cells.factorized[1].tolist()
    fields: dict[str, Any] = {}
    reason = ""
    if pattern is None:
        best = recognise_values(levels) if cells.categories is None else None
        if best is None:
            return unread
        pattern = best.format.pattern
        if best.told:
            reason = f" ({best.told})"
        if best.other is not None:
            example = next(
                level
                for level in levels
                if best.format.parse([level])[0] != best.other.parse([level])[0]
            )
            fields["format_note"] = _format_note(
                name, example, pattern, best.other.pattern
            )
        elif "%y" in pattern:
            fields["format_note"] = f"column {name!r}: {best.told}"
    parsed = parse_format(cells, pattern, name)
    if len(pd.unique(parsed.observed_values)) < 2:
        return unread
    form = read_format(pattern)
    what = "numbers"
    if isinstance(form, DateFormat):
        what = "times of day" if form.is_time else "dates"
    reason = f"{what} in the format {pattern}, such as {levels[0]!r}{reason}"
    return parsed, fields | {"format": pattern}, reason


def _order_of_day(pattern: str | None) -> str:
    """Return "dm" or "md", which comes first, and "" for other formats."""
    form = read_format(pattern) if pattern is not None else None
    if not isinstance(form, DateFormat):
        return ""
    return "".join(field for field in form.fields[:2] if field in "dm")


def _agreeing_formats(
    frame: pd.DataFrame, schema: Schema, settings: Mapping[str, Mapping[str, Any]]
) -> Schema:
    """Return the schema with uncertain dates read in the order of the certain ones."""
    orders = {
        _order_of_day(column.format)
        for column in schema
        if column.format_note is None and len(_order_of_day(column.format)) == 2
    }
    if len(orders) != 1:
        return schema
    (order,) = orders
    columns = []
    for column in schema:
        own = _order_of_day(column.format)
        if (
            column.format_note is not None
            and len(own) == 2
            and "%y" not in (column.format or "")
        ):
            pattern = str(column.format)
            if own != order:
                pattern = pattern.translate(str.maketrans("dm", "md"))
            declared = {**settings.get(column.name, {}), "format": pattern}
            column = infer_column(frame[column.label], column.label, declared)
            column = replace(
                column, reason=f"{column.reason} (ordered as in the other columns)"
            )
        columns.append(column)
    return Schema(tuple(columns))


# -- one column -------------------------------------------------------------------


def _with_suggested_codes(
    series: pd.Series, label: Any, settings: Mapping[str, Any], cells: Cells
) -> Column | None:
    """Return a column without the codes that hide what it holds, or None."""
    hidden = hidden_kind(cells)
    if hidden is None:
        return None
    what, codes = hidden
    own = {**settings, "na_values": (*settings.get("na_values", ()), *codes)}
    column = infer_column(series, label, own)
    listed = ", ".join(map(repr, codes))
    return replace(
        column,
        suspected_na_values=codes,
        reason=f"{column.reason}; {what} but for {listed}",
    )


def infer_column(
    series: pd.Series, label: Any, settings: Mapping[str, Any], suggest: bool = False
) -> Column:
    """Return one column of the schema, given its declared settings.

    With `suggest`, text that hides numbers is declared missing instead of an error.
    """
    name = str(label)
    na_values = settings.get("na_values", ())
    missing_as = settings.get("missing_as", "unknown")
    declared = settings.get("kind")
    raw = read_cells(series, name, na_values)
    missing_rate = float((~raw.observed).mean())
    common: dict[str, Any] = {
        "label": label.item() if isinstance(label, np.generic) else label,
        "missing_as": missing_as,
        "na_values": tuple(na_values),
        "missing_rate": missing_rate,
    }
    if "determined_by" in settings:
        parent = settings["determined_by"]
        common["determined_by"] = {"columns": [] if parent == "nothing" else [parent]}
    if raw.form == "empty":
        dtype = _incomplete_dtype(raw, raw.dtype)
        if raw.categories:
            common |= {"categories": raw.categories, "ordered": raw.ordered}
        return Column(kind="all-missing", reason="no value", dtype=dtype, **common)
    if declared == "all-missing":
        raise SchemaError(
            f"column {name!r} cannot be of kind 'all-missing': it has "
            f"{int(raw.observed.sum())} values"
        )

    cells = raw if settings.get("format") else recover(raw)
    if cells.form == "text" and cells.categories is None and not settings.get("format"):
        cells = numbers_in_text(cells, bool(na_values)) or cells
    cells, spelling, why = _spelled_values(cells, settings, name)
    common |= spelling
    if cells.form == "text" and cells.categories is None and declared is None:
        suggested = None
        if suggest:
            suggested = _with_suggested_codes(series, label, settings, cells)
        if suggested is not None:
            return suggested
        check_almost_numeric(cells, name)
    levels = cells.factorized[1] if cells.form == "text" else None
    n_distinct = len(pd.unique(cells.observed_values) if levels is None else levels)
    if (
        n_distinct == 1
        and not (missing_as == "level" and missing_rate)
        and not settings.get("unseen_levels")
        and declared != "identifier"
    ):
        return _constant_column(cells, common)
    if declared == "constant":
        raise SchemaError(
            f"column {name!r} cannot be of kind 'constant': it has {n_distinct} "
            "distinct values"
        )

    kind, reason = (cells.form, why) if why else _guess(cells, name, n_distinct)
    if kind == "boolean" and n_distinct == 1:
        # One value and missing as a level: a category of two levels.
        kind = "category"
    reason += "" if why else _recovered_note(raw, cells)
    if declared and declared != kind:
        kind, reason = declared, f"declared, looks like {kind}: {reason}"
        cells = _force(cells, cells if why else raw, kind, name)
    for key in ("levels", "unseen_levels", "ordered"):
        if settings.get(key) and kind != "category":
            raise SchemaError(
                f"column {name!r} is of kind {kind!r}, and only a category has {key}; "
                "set its kind to 'category' too"
            )
    if settings.get("decimals") is not None and kind != "float":
        raise SchemaError(
            f"column {name!r} is of kind {kind!r}, and only a float has decimals"
        )
    if settings.get("locale") is not None and kind != "identifier":
        raise SchemaError(
            f"column {name!r} is of kind {kind!r}, and only an identifier has a "
            "locale; declare fake too, e.g. 'name'"
        )
    return _column(cells, kind, reason, settings, common)


def _constant_column(cells: Cells, common: Mapping[str, Any]) -> Column:
    fields = dict(common)
    if cells.form == "datetime":
        fields |= _datetime_fields(cells)
        fields["value"] = fields["low"]
    else:
        first = cells.observed_values[0]
        fields["value"] = first if cells.form == "text" else first.item()
    if cells.categories is not None:
        fields |= {"categories": cells.categories, "ordered": cells.ordered}
    if cells.form == "text":
        fields["suspected_na_values"] = suspected_texts([fields["value"]])
    reason = f"one value only: {str(cells.observed_values[0])[:40]!r}"
    dtype = _complete_dtype(cells, cells.form)
    return Column(kind="constant", reason=reason, dtype=dtype, **fields)


def _column(
    cells: Cells,
    kind: Any,
    reason: str,
    settings: Mapping[str, Any],
    common: Mapping[str, Any],
) -> Column:
    """Return a column with the fields that its kind needs."""
    fields = dict(common)
    name = str(fields["label"])
    form = kind if kind in TO_FORM else cells.form
    values = cells.observed_values
    dtype = _complete_dtype(cells, form)
    pattern = fields.get("format")
    if pattern is not None:
        dtype = cells.dtype
    elif cells.form in ("integer", "float") and kind != "identifier":
        fields["suspected_na_values"] = suspected_numbers(values)
    if kind == "identifier":
        if fields["missing_as"] == "level":
            raise SchemaError(
                f"column {name!r} is an identifier, whose missing values cannot be a "
                "level; set its kind to 'category' or missing_as to 'unknown'"
            )
        fields["form"] = identifier_form(cells, name)
        fakes, note = fake_fields(cells, name, settings)
        fields, reason = fields | fakes, reason + note
        dtype = _identifier_dtype(cells, fields["form"])
    elif kind == "category":
        levels = _level_fields(cells, settings, name)
        fields |= levels
        if levels["rare_levels"]:
            reason += f", the {len(levels['rare_levels'])} rarest learned as one"
        dtype = "category" if "categories" in levels else dtype
        if cells.form == "text":
            rare = (level for level, _ in levels["rare_levels"])
            texts = [*levels["levels"], *rare]
            suspected = fields["suspected_na_values"] = suspected_texts(texts)
            rest = [level for level in texts if level not in suspected]
            if suspected and rest and are_numbers(rest).all():
                reason += ", all numbers except what may encode a missing value"
    elif kind == "boolean":
        fields["levels"] = (False, True)
    elif kind == "datetime":
        fields |= _datetime_fields(cells)
    else:
        fields |= {"low": values.min().item(), "high": values.max().item()}
        decimals: int | None = 0
        inferred: int | None = 0
        if kind == "float":
            inferred = decimals_of(values, cells.dtype)
            if pattern is not None:
                inferred = getattr(read_format(pattern), "decimals", 0)
            decimals = settings.get("decimals", inferred)
            fields["decimals"] = decimals
            if decimals is not None and not reason.startswith("declared"):
                reason += f", decimals: {decimals}"
        # Declared decimals other than the inferred ones also overrule the lattice.
        if decimals == inferred:
            fields["lattice"] = learn_lattice(values, inferred)
            if fields["lattice"] is not None:
                reason += f", {lattice_text(fields['lattice'])}"
    column = Column(kind=kind, reason=reason, dtype=dtype, **fields)
    if column.missing_is_level:
        fields["dtype"] = _incomplete_dtype(cells, dtype)
        return Column(kind=kind, reason=reason, **fields)
    return column


def _identifier_dtype(cells: Cells, form: Mapping[str, Any]) -> str:
    if form["make"] == "number":
        # Numbers continue after the largest one, beyond the range of a narrow type.
        floats = _complete_dtype(cells, "integer") == "float64"
        return "float64" if floats else "int64"
    if cells.dtype in ("str", "string", "object"):
        return cells.dtype
    return str(pd.Series(["text"]).dtype)


def _with_nullable_types(frame: pd.DataFrame, schema: Schema) -> Schema:
    """Return the schema with the nullable types that the frame's owner chose."""
    columns = []
    for column in schema:
        dtype = frame[column.label].dtype
        chosen = isinstance(dtype, pd.BooleanDtype) or (
            str(dtype).startswith(("Int", "UInt"))
            and column.dtype == str(dtype).lower()
        )
        if chosen and column.dtype in ("bool", str(dtype).lower()):
            column = replace(column, dtype=str(dtype))
        columns.append(column)
    return Schema(tuple(columns))


def missing_mask(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return for every cell whether it is missing, declared codes included.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [30, -9, None]})
    >>> schema = infer_schema(frame, {"age": {"na_values": -9}})
    >>> missing_mask(frame, schema)["age"].tolist()
    [False, True, True]
    """
    columns = {column.name: column for column in schema}
    masks = []
    for label in frame.columns:
        name = str(label)
        # `schema[name]` searches, and raises for an unknown column.
        column = columns.get(name) or schema[name]
        masks.append(~column_cells(frame[label], column).observed)
    return pd.DataFrame(np.stack(masks, axis=1), frame.index, frame.columns)


def declared_settings(
    overrides: Overrides, names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the checked settings that a user declares, by column.

    Parameters
    ----------
    overrides : Schema, path of a TOML file, or mapping, optional
    names : sequence of str
        The columns of the table.
    """
    declared: Mapping[Any, Any] = {}
    if isinstance(overrides, Schema):
        declared = overrides.settings()
    elif isinstance(overrides, Mapping):
        declared = overrides
    elif overrides is not None:
        declared = read_overrides(overrides)
    settings: dict[str, dict[str, Any]] = {}
    for key, value in declared.items():
        if str(key) not in names:
            raise SchemaError(
                f"the schema names the unknown column {str(key)!r}"
                + did_you_mean(str(key), names)
            )
        settings[str(key)] = check_settings(str(key), value)
    return settings


def infer_schema(
    frame: Any,
    overrides: Overrides = None,
    *,
    suggest: bool = False,
    group_codes: bool = False,
) -> Schema:
    """Infer the schema of a table.

    Parameters
    ----------
    frame : pandas.DataFrame, or anything that `read_frame` reads
    overrides : Schema, path of a TOML file, or mapping, optional
        What you declare, by column name: a kind, or a mapping with any of `kind`,
        `missing_as`, `na_values`, `ordered`, `levels`, `decimals`, `format`,
        `determined_by`, `fake`, `locale`, and `unseen_levels`, whether to learn also
        those of `levels` that no row has.
    suggest : bool, default=False
        Whether to take text such as "?" among numbers for a missing value, and say so;
        by default such a column is an error, because you should decide.
    group_codes : bool
        Whether whole numbers whose order means little become categories (see
        `group_codes`): in `inspect`, and in `fit` with `links="keep"`.

    Returns
    -------
    Schema
        One `Column` per column, with the reason in plain words. If a column is missing
        in exactly the rows where another has certain levels, its missing values become
        a level, unless you declare `missing_as`.

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
    settings = declared_settings(overrides, [str(label) for label in frame.columns])
    for name, codes in codes_taken_in_reading(frame).items():
        own = settings.setdefault(name, {})
        more = [code for code in codes if code not in own.get("na_values", ())]
        own["na_values"] = (*own.get("na_values", ()), *more)
    schema = Schema(
        tuple(
            infer_column(frame[label], label, settings.get(str(label), {}), suggest)
            for label in frame.columns
        )
    )
    schema = _agreeing_formats(frame, schema, settings)

    def as_category(column: Column, reason: str, **own: Any) -> Column:
        own = settings.get(column.name, {}) | {"kind": "category"} | own
        again = infer_column(frame[column.label], column.label, own, suggest)
        return replace(again, reason=reason)

    if group_codes:
        decided = [name for name, chosen in settings.items() if "kind" in chosen]
        schema = with_group_codes(frame, schema, decided, as_category)

    def as_level(column: Column) -> Column:
        if is_group_code(column):
            return as_category(column, column.reason, missing_as="level")
        # With a level for missing values, the kind or dtype may differ.
        own = settings.get(column.name, {}) | {"missing_as": "level"}
        if column.format is not None:
            own["format"] = column.format
        return infer_column(frame[column.label], column.label, own, suggest)

    decided = [name for name, chosen in settings.items() if "missing_as" in chosen]
    schema = with_structural_missingness(frame, schema, decided, as_level)
    return schema if INFERRED in frame.attrs else _with_nullable_types(frame, schema)
