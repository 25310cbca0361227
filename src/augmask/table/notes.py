"""What a user should know about the columns of a table before training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from augmask.table.schema import Column, Level

# A float holds so many whole numbers and no more.
EXACT = 2**53


def listed(values: tuple[Any, ...], most: int = 5) -> str:
    """Return the first values of a list, and how many there are."""
    shown = ", ".join(repr(value) for value in values[:most])
    return shown + (f", ... ({len(values)} in all)" if len(values) > most else "")


def _named(columns: list[Column]) -> str:
    """Return the subject of a sentence about some columns."""
    names = ", ".join(repr(column.name) for column in columns)
    return f"column {names}" if len(columns) == 1 else f"columns {names}"


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
    suspected: dict[tuple[Level, ...], list[Column]] = {}
    for column in columns:
        if column.suspects:
            suspected.setdefault(column.suspects, []).append(column)
    for codes, found in suspected.items():
        yield (
            f"{listed(codes)} may stand for a hole in {_named(found)}; if so, declare "
            f"it in the schema, e.g. {{{found[0].name!r}: "
            f"{{'holes': {list(codes)!r}}}}}"
        )
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
