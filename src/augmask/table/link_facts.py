"""A link between columns as plain data: its name, its words, its check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from augmask.table.schema import Column

HOW = ("same", "map", "sum", "difference")
_SIGN = {"sum": " + ", "difference": " - "}


def link_name(column: Column) -> str:
    """Return the name of the feature that says whether a column follows another."""
    link = column.follows or {}
    sign = _SIGN.get(link.get("how", ""), "")
    return f"{column.name} follows {sign.join(link.get('column', []))}"


def is_linked(column: Column) -> bool:
    """Say whether the column follows another one, resolved and not only asked for."""
    return column.follows is not None and "how" in column.follows


def needs_flag(column: Column) -> bool:
    """Say whether there are exceptions, so that a feature says where it follows."""
    return is_linked(column) and (column.follows or {})["share"] < 1


def link_text(column: Column) -> str:
    """Say what a column follows, and how often.

    Examples
    --------
    >>> from augmask.table.schema import Column
    >>> link = {"column": ["code"], "how": "map", "share": 1.0, "rows": 900}
    >>> link_text(Column("name", "category", "", "object", follows=link))
    "'name' follows from code in all 900 rows"
    """
    link = column.follows or {}
    parts = _SIGN.get(link["how"], "").join(link["column"])
    words = {"same": "is the same as", "map": "follows from"}
    share = "all" if link["share"] == 1 else f"{link['share']:.1%} of"
    what = f"{column.name!r} {words.get(link['how'], 'is')} {parts}"
    return f"{what} in {share} {link['rows']:,} rows"


def link_notes(columns: Iterable[Column]) -> list[str]:
    """Return one note on the columns that follow others."""
    linked = [column for column in columns if is_linked(column)]
    if not linked:
        return []
    shown = "; ".join(link_text(column) for column in linked[:8])
    more = f"; and {len(linked) - 8} more" if len(linked) > 8 else ""
    return [
        f"generated so that it holds as often: {shown}{more}; to have a column learned "
        f"by itself, declare {{{linked[0].name!r}: {{'follows': 'nothing'}}}}"
    ]


def check_link(stored: Mapping[str, Any]) -> bool:
    """Say whether a stored link is one.

    Examples
    --------
    >>> check_link({"column": ["a"], "how": "same", "share": 0.9, "rows": 40})
    True
    >>> check_link({"column": ["a"], "how": "magic", "share": 0.9, "rows": 40})
    False
    """
    names = stored.get("column")
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        return False
    if stored.keys() == {"column"}:
        return len(names) <= 1
    needed = {"column", "how", "share", "rows"}
    pairs = stored.get("pairs", [])
    if stored.keys() - {"pairs"} != needed or stored["how"] not in HOW:
        return False
    return (
        len(names) == (2 if stored["how"] in _SIGN else 1)
        and type(stored["share"]) is float
        and 0 <= stored["share"] <= 1
        and isinstance(pairs, list)
        and bool(pairs) == (stored["how"] == "map")
        and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
        and len({(type(v) is str) for pair in pairs for v in pair[:1]}) <= 1
        and len({(type(v) is str) for pair in pairs for v in pair[1:]}) <= 1
    )
