"""Notes: what you should know about a schema before training, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from augmask.table.dtype_recovery import na_flags
from augmask.table.personal import EXTRA, faker_installed
from augmask.table.schema_file import toml_value

if TYPE_CHECKING:
    from augmask.table.schema import Column

# Whole numbers up to here are exact as floats.
EXACT = 2**53
MOST_LEVELS, MOST_COLUMNS = 4, 8
# How the reason of a group code begins.
CODES = "codes of "
OPERATORS = {"sum": " + ", "difference": " - "}


def listed(values: Sequence[Any], most: int = 5) -> str:
    """Return the first few values as text, and how many there are."""
    text = ", ".join(repr(value) for value in values[:most])
    return text + (f", ... ({len(values)} in all)" if len(values) > most else "")


def _subject(columns: list[Column]) -> str:
    names = ", ".join(repr(column.name) for column in columns)
    return f"column {names}" if len(columns) == 1 else f"columns {names}"


# -- structural missingness -------------------------------------------------------


def condition_text(condition: Sequence[Any]) -> str:
    """Return a stored condition (column, operator, value) in words.

    Examples
    --------
    >>> condition_text(["smoke", "in", ["No"]]), condition_text(["year", "<=", 2003])
    ("smoke is 'No'", 'year <= 2003')
    """
    name, operator, value = condition
    if operator in ("<=", ">"):
        return f"{name} {operator} {value}"
    levels = " or ".join(repr(level) for level in value[:MOST_LEVELS])
    more = f" or {len(value) - MOST_LEVELS} others" if len(value) > MOST_LEVELS else ""
    return f"{name} is {'not ' if operator == 'not in' else ''}{levels}{more}"


def missingness_text(finding: Mapping[str, Any]) -> str:
    """Return in words where a column is missing (`Column.missing_where`).

    Examples
    --------
    >>> finding = {"where": [["smokes", "in", ["no"]]], "join": "and", "rows": 40}
    >>> missingness_text(finding | {"inside": 1.0, "outside": 0.0})
    "missing in exactly the 40 rows where smokes is 'no'"
    """
    where = f" {finding['join']} ".join(condition_text(c) for c in finding["where"])
    rows = f"{finding['rows']:,} rows where {where}"
    if finding["inside"] == 1 and finding["outside"] == 0:
        return f"missing in exactly the {rows}"
    share = "all" if finding["inside"] == 1 else f"{finding['inside']:.1%} of the"
    return f"missing in {share} {rows}, and in {finding['outside']:.1%} of the others"


def missingness_findings(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Return the columns whose missing values other columns determine.

    Columns whose `missing_as` you have declared are left out.

    Returns
    -------
    list of dict
        `columns`, the names that share the finding; `text`, where they are missing;
        `applied`, whether generated rows are missing there too; `schema` and `toml`,
        the declaration that reverses this.
    """
    groups: dict[tuple[str, bool], list[str]] = {}
    for column in columns:
        if column.missing_where is not None and "declared" not in column.missing_where:
            key = missingness_text(column.missing_where), column.missing_is_level
            groups.setdefault(key, []).append(column.name)
    findings = []
    for (text, applied), names in groups.items():
        missing_as = "unknown" if applied else "level"
        tables = [
            f"[columns.{toml_value(name)}]\nmissing_as = {toml_value(missing_as)}"
            for name in names
        ]
        findings.append(
            {
                "columns": names,
                "text": text,
                "applied": applied,
                "schema": {name: {"missing_as": missing_as} for name in names},
                "toml": "\n\n".join(tables),
            }
        )
    return findings


def _missingness_notes(columns: Iterable[Column]) -> Iterator[str]:
    for finding in missingness_findings(columns):
        names = ", ".join(map(repr, finding["columns"]))
        name, settings = next(iter(finding["schema"].items()))
        section, _, setting = finding["toml"].split("\n\n")[0].partition("\n")
        declare = f"declare {{{name!r}: {settings!r}}}"
        declare += f" (in a schema file: {section} {setting})"
        if finding["applied"]:
            yield (
                f"not applicable: {names}, {finding['text']}; generated rows are "
                f"missing there too; to fill such cells, {declare}"
            )
        else:
            yield (
                f"{names}: {finding['text']}; if this means 'not applicable', "
                f"{declare} to have generated rows missing there too"
            )


# -- functional dependencies ------------------------------------------------------


def dependency_text(column: Column) -> str:
    """Return in words what determines a column, and in how many rows.

    Examples
    --------
    >>> from augmask.table.schema import Column
    >>> code = {"columns": ["code"], "how": "map", "share": 1.0, "rows": 900}
    >>> dependency_text(Column("name", "category", "", "object", determined_by=code))
    "'name' is a function of code in all 900 rows"
    """
    dependency = column.determined_by or {}
    how = dependency["how"]
    expression = OPERATORS.get(how, "").join(dependency["columns"])
    verb = {"same": "equals", "map": "is a function of"}.get(how, "is")
    share = "all" if dependency["share"] == 1 else f"{dependency['share']:.1%} of"
    return f"{column.name!r} {verb} {expression} in {share} {dependency['rows']:,} rows"


def dependency_notes(columns: Iterable[Column]) -> list[str]:
    """Return one note about the columns that others determine, if there are any."""
    determined = [column for column in columns if column.is_determined]
    if not determined:
        return []
    texts = "; ".join(dependency_text(column) for column in determined[:MOST_COLUMNS])
    left = len(determined) - MOST_COLUMNS
    more = f"; and {left} more" if left > 0 else ""
    return [
        f"generated rows keep these relations at the same rate: {texts}{more}; to "
        "learn a column independently, declare "
        f"{{{determined[0].name!r}: {{'determined_by': 'nothing'}}}}"
    ]


# -- seen combinations and group codes ---------------------------------------------


def combination_notes(columns: Iterable[Column]) -> list[str]:
    """Return one note about the columns that keep to seen combinations, if any do."""
    kept = [column for column in columns if column.seen_with is not None]
    if not kept:
        return []
    texts = ", ".join(
        f"{column.name!r} with {' and '.join((column.seen_with or {})['columns'])}"
        for column in kept[:MOST_COLUMNS]
    )
    more = f", and {len(kept) - MOST_COLUMNS} more" if len(kept) > MOST_COLUMNS else ""
    return [
        f"generated rows keep to combinations that occur: {texts}{more}; to allow "
        f"others, declare {{{kept[0].name!r}: {{'determined_by': 'nothing'}}}}"
    ]


def is_group_code(column: Column) -> bool:
    """Whether a column is a category because its numbers were found to be codes."""
    return column.kind == "category" and column.reason.startswith(CODES)


def group_code_notes(columns: Iterable[Column]) -> list[str]:
    """Return one note about whole numbers that are learned as levels, if any are."""
    codes = [column for column in columns if is_group_code(column)]
    if not codes:
        return []
    return [
        f"learned as levels, because their order means little: {_subject(codes)}; to "
        f"learn a number, declare {{{codes[0].name!r}: 'integer'}}"
    ]


def informative_notes(columns: Iterable[Column]) -> list[str]:
    """Return the notes that need no action: the relation is kept."""
    columns = list(columns)
    return [
        *dependency_notes(columns),
        *combination_notes(columns),
        *group_code_notes(columns),
    ]


# -- all of them ------------------------------------------------------------------


def schema_notes(columns: Sequence[Column]) -> Iterator[str]:
    """Yield everything that is worth knowing before training."""
    keys = [column for column in columns if column.kind == "identifier"]
    if keys:
        why = "; ".join(f"{column.name!r}: {column.reason}" for column in keys)
        kind = "category" if (keys[0].form or {}).get("make") != "number" else "integer"
        yield (
            f"not learned, because taken for identifiers: {why}; generated rows get "
            "new values; to learn such a column, set its kind in the schema, e.g. "
            f"{{{keys[0].name!r}: {kind!r}}}"
        )
    fakes = [column for column in keys if column.fake not in (None, "nothing")]
    if fakes and not faker_installed():
        yield (
            f"placeholders stand for the values of {_subject(fakes)}; for realistic "
            f"fakes, {EXTRA}"
        )
    for column in columns:
        if column.rare_levels:
            rare = tuple(level for level, _ in column.rare_levels)
            cells = sum(count for _, count in column.rare_levels)
            yield (
                f"column {column.name!r} has {len(column.all_levels)} levels: the "
                f"{len(rare)} rarest ({cells} cells) are learned as one and sampled by "
                f"their frequency: {listed(rare)}"
            )
    suspected: dict[tuple[Any, ...], list[Column]] = {}
    for column in columns:
        if column.suspected_na_values:
            suspected.setdefault(column.suspected_na_values, []).append(column)
    for codes, members in suspected.items():
        taken = set(codes) <= set(members[0].na_values)
        verb = "is taken for" if taken else "may encode"
        yield (
            f"{listed(codes)} {verb} a missing value in {_subject(members)}; if so, "
            f"declare it in the schema, e.g. {{{members[0].name!r}: "
            f"{{'na_values': {list(codes)!r}}}}}, or for a file add "
            f"{na_flags(members[0].name, codes)}"
        )
    yield from (column.format_note for column in columns if column.format_note)
    yield from _missingness_notes(columns)
    yield from informative_notes(columns)
    constant = [column for column in columns if column.kind == "constant"]
    if constant:
        yield f"not learned, because constant: {_subject(constant)}"
    empty = [column for column in columns if column.kind == "all-missing"]
    if empty:
        yield f"returned empty, because nothing was observed: {_subject(empty)}"
    wide = [
        column
        for column in columns
        if column.kind in ("integer", "datetime")
        and column.low is not None
        and column.high is not None
        and column.high - column.low >= EXACT
    ]
    if wide:
        yield (
            f"spans more than 2**53 steps: {_subject(wide)}; generated values are "
            "exact to about 15 digits"
        )
