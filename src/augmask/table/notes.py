"""What a user should know about a schema before training, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from augmask.table.absence_facts import absence_text
from augmask.table.link_facts import link_notes
from augmask.table.overrides import toml_value

if TYPE_CHECKING:
    from augmask.table.schema import Column

# A float holds so many whole numbers and no more.
EXACT = 2**53


def listed(values: tuple[Any, ...], most: int = 5) -> str:
    """Return the first few values as text, and how many there are."""
    shown = ", ".join(repr(value) for value in values[:most])
    return shown + (f", ... ({len(values)} in all)" if len(values) > most else "")


def _named(columns: list[Column]) -> str:
    """Return the subject of a sentence about some columns."""
    names = ", ".join(repr(column.name) for column in columns)
    return f"column {names}" if len(columns) == 1 else f"columns {names}"


def absence_findings(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Return the columns whose missing cells other columns determine.

    Columns of which the user has declared what a hole is are left out.

    Returns
    -------
    list of dict
        `columns`, names that share the finding; `text`, where they are missing;
        `applied`, whether generated rows keep them so; `schema` and `toml`, what to
        declare for the opposite.
    """
    groups: dict[tuple[str, bool], list[Column]] = {}
    for column in columns:
        # who declared what a hole is has decided
        if column.absent is not None and "declared" not in column.absent:
            key = absence_text(column.absent), column.gated
            groups.setdefault(key, []).append(column)
    found = []
    for (text, applied), members in groups.items():
        hole = "unknown" if applied else "level"
        names = [column.name for column in members]
        found.append(
            {
                "columns": names,
                "text": text,
                "applied": applied,
                "schema": {name: {"missing_as": hole} for name in names},
                "toml": "\n\n".join(
                    f"[columns.{toml_value(name)}]\nhole = {toml_value(hole)}"
                    for name in names
                ),
            }
        )
    return found


def _absence_notes(columns: Iterable[Column]) -> Iterator[str]:
    for found in absence_findings(columns):
        names = ", ".join(map(repr, found["columns"]))
        name, declared = next(iter(found["schema"].items()))
        line = f"{{{name!r}: {declared!r}}}"
        section, _, setting = found["toml"].split("\n\n")[0].partition("\n")
        paste = f"declare {line} (in a schema file: {section} {setting})"
        if found["applied"]:
            yield (
                f"not applicable: {names}, {found['text']}; generated rows keep that; "
                f"to have such cells filled, {paste}"
            )
        else:
            yield (
                f"{names}: {found['text']}; if this means 'not applicable', {paste}, "
                "and generated rows keep it"
            )


def schema_notes(columns: tuple[Column, ...]) -> Iterator[str]:
    """Yield what a user should know before training."""
    keys = [column for column in columns if column.kind == "identifier"]
    if keys:
        why = "; ".join(f"{column.name!r}: {column.reason}" for column in keys)
        kind = "category" if (keys[0].form or {}).get("make") != "number" else "integer"
        yield (
            f"not learned, because taken for identifiers: {why}; fresh placeholder "
            "values are made instead; to learn one, set its kind in the schema, e.g. "
            f"{{{keys[0].name!r}: {kind!r}}}"
        )
    for column in columns:
        if column.folded:
            rare = tuple(level for level, _ in column.folded)
            cells = sum(count for _, count in column.folded)
            yield (
                f"column {column.name!r} has {len(rare) + len(column.levels)} levels: "
                f"the {len(rare)} rarest ({cells} cells) are learned as one and drawn "
                f"by their frequency: {listed(rare)}"
            )
    suspected: dict[tuple[Any, ...], list[Column]] = {}
    for column in columns:
        if column.suspects:
            suspected.setdefault(column.suspects, []).append(column)
    for codes, found in suspected.items():
        yield (
            f"{listed(codes)} may stand for a hole in {_named(found)}; if so, declare "
            f"it in the schema, e.g. {{{found[0].name!r}: "
            f"{{'na_values': {list(codes)!r}}}}}"
        )
    yield from _absence_notes(columns)
    yield from link_notes(columns)
    constant = [column for column in columns if column.kind == "constant"]
    if constant:
        yield f"set aside and pasted back, because constant: {_named(constant)}"
    empty = [column for column in columns if column.kind == "all-missing"]
    if empty:
        yield f"returned empty, because nothing was observed: {_named(empty)}"
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
            f"spread over more than 2**53 steps: {_named(wide)}; generated values are "
            "right in about 15 digits, those after them are rounded"
        )
