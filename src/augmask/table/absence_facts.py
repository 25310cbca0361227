"""Where a column is missing because of what others say: the finding and its words.

`absence` searches for it; a schema stores it as plain data; notes, decoding and the
report read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SIGNS = ("in", "not in", "<=", ">")
NAMED = 4


@dataclass(frozen=True)
class Condition:
    """What one column says where another is missing.

    Parameters
    ----------
    column : str
    sign : str
        `in`, `not in`, `<=` or `>`.
    value : tuple of levels, or number
        What it is compared with.
    """

    column: str
    sign: str
    value: Any

    def to_list(self) -> list[Any]:
        """Return JSON-safe contents."""
        several = isinstance(self.value, tuple)
        return [self.column, self.sign, list(self.value) if several else self.value]


@dataclass(frozen=True)
class Absence:
    """Where a column is missing.

    Parameters
    ----------
    where : tuple of Condition
        One, or two.
    join : str
        `and` or `or`, between two conditions.
    rows : int
        How many rows satisfy them.
    inside, outside : float
        Share of missing cells there, and elsewhere.
    plain : bool
        Whether it is exact and so well supported that the cells are not applicable.
    """

    where: tuple[Condition, ...]
    join: str
    rows: int
    inside: float
    outside: float
    plain: bool

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe contents."""
        return {
            "where": [condition.to_list() for condition in self.where],
            "join": self.join,
            "rows": self.rows,
            "inside": self.inside,
            "outside": self.outside,
            "plain": self.plain,
        }


def condition_text(stored: Sequence[Any]) -> str:
    """Say a stored condition in words.

    Examples
    --------
    >>> condition_text(["smoke", "in", ["No"]]), condition_text(["year", "<=", 2003])
    ("smoke is 'No'", 'year <= 2003')
    """
    name, sign, value = stored
    if sign in ("<=", ">"):
        return f"{name} {sign} {value}"
    shown = " or ".join(repr(level) for level in value[:NAMED])
    more = f" or {len(value) - NAMED} others" if len(value) > NAMED else ""
    return f"{name} is {'not ' if sign == 'not in' else ''}{shown}{more}"


def absence_text(stored: Mapping[str, Any]) -> str:
    """Say where a column is missing, from `Absence.to_dict()`.

    Examples
    --------
    >>> found = {"where": [["smokes", "in", ["no"]]], "join": "and", "rows": 40}
    >>> absence_text(found | {"inside": 1.0, "outside": 0.0, "plain": True})
    "missing in exactly the 40 rows where smokes is 'no'"
    """
    where = f" {stored['join']} ".join(condition_text(c) for c in stored["where"])
    rows = f"{stored['rows']:,} rows where {where}"
    if stored["inside"] == 1 and stored["outside"] == 0:
        return f"missing in exactly the {rows}"
    share = "all" if stored["inside"] == 1 else f"{stored['inside']:.1%} of the"
    return f"missing in {share} {rows}, and in {stored['outside']:.1%} of the others"


def chosen_levels(stored: Mapping[str, Any], levels: Sequence[Any]) -> list[int]:
    """Return the codes of the levels for which a plain absence says missing."""
    _, sign, value = stored["where"][0]
    return [i for i, level in enumerate(levels) if (level in value) == (sign == "in")]


def _is_condition(stored: Any) -> bool:
    if not isinstance(stored, list) or len(stored) != 3 or stored[1] not in SIGNS:
        return False
    several = stored[1] in ("in", "not in")
    value = stored[2]
    return isinstance(stored[0], str) and (
        isinstance(value, list) and bool(value)
        if several
        else isinstance(value, (int, float, str))
    )


def check_absence(stored: Mapping[str, Any]) -> bool:
    """Say whether a stored absence is one.

    Examples
    --------
    >>> check_absence({"where": []})
    False
    """
    needed = {"where", "join", "rows", "inside", "outside", "plain"}
    if not needed <= stored.keys() <= needed | {"counts", "declared"}:
        return False
    where, counts = stored["where"], stored.get("counts", [1])
    return (
        isinstance(where, list)
        and len(where) in (1, 2)
        and all(map(_is_condition, where))
        and not (stored["plain"] and where[0][1] not in ("in", "not in"))
        and all(isinstance(stored.get(k, True), bool) for k in ("plain", "declared"))
        and stored["join"] in ("and", "or")
        and type(stored["rows"]) is int
        and all(0 <= stored[key] <= 1 for key in ("inside", "outside"))
        and isinstance(counts, list)
        and all(type(count) is int and count >= 0 for count in counts)
        and sum(counts) > 0
    )
