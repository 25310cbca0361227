"""Scores as lines on a screen: each number beside its references, the worst below."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import pandas as pd

from augmask.evaluation.worst import pair_names, score_name, worst_pairs

if TYPE_CHECKING:
    from augmask.evaluation.scores import Entry, Scores

WORST = 5
NUMBER = 10


def _number(value: float | None) -> str:
    text = "-" if value is None or value != value else f"{value:.4f}"
    return text.rjust(NUMBER)


def _numbers(entries: dict[str, Entry]) -> Iterator[str]:
    wide = 2 + max(len("score"), *(len(entry.title) for entry in entries.values()))
    head = "".join(name.rjust(NUMBER) for name in ("value", "reference", "floor"))
    yield f"{'score':{wide}}{head}"
    for i, (_, group) in enumerate(groupby(entries.values(), lambda e: e.group)):
        if i:
            yield ""
        for entry in group:
            cells = (entry.value, entry.reference, entry.floor)
            short = entry.meaning.split(". ")[0].rstrip(".")
            numbers = "".join(map(_number, cells))
            yield f"{entry.title:{wide}}{numbers}  {short}"


def _worst(table: pd.DataFrame, what: str) -> Iterator[str]:
    """Yield the lowest lines of a table of columns or pairs."""
    score = score_name(table)
    if what == "columns":
        lowest = table.dropna(subset=[score]).sort_values(score, kind="stable")[:WORST]
        names = lowest["column"].astype(str)
    else:
        lowest = worst_pairs(table, WORST)
        names = pair_names(lowest)
    if lowest.empty:
        return
    wide = 2 + max(len(f"worst {what}"), *names.map(len))
    yield f"\n{f'worst {what}':{wide}}{'value':>{NUMBER}}{'reference':>{NUMBER}}"
    for name, value, other in zip(
        names, lowest[score], lowest["reference"], strict=True
    ):
        yield f"{name:{wide}}{_number(value)}{_number(other)}"


def as_text(scores: Scores) -> str:
    """Return the scores as text.

    Examples
    --------
    >>> from augmask.evaluation.scores import Entry, Scores
    >>> entry = Entry(0.93, 0.98, 0.6, "fidelity", "higher", "Trend", "Pairs.")
    >>> print(as_text(Scores({"trend": entry}, {}, {})))
    score       value reference     floor
    Trend      0.9300    0.9800    0.6000  Pairs
    """
    lines = list(_numbers(dict(scores.entries))) if scores.entries else []
    for what in ("columns", "pairs"):
        if what in scores.tables:
            lines += _worst(scores.tables[what], what)
    facts = scores.facts
    if facts.get("flagged"):
        flagged = ", ".join(scores.entries[key].title for key in facts["flagged"])
        lines.append(f"\nsigns of copying: {flagged}")
    alike = [e for e in scores.entries.values() if e.alike is not None]
    if "reference" in facts:
        lines.append(f"\nreference: {facts['reference']}\nfloor: {facts['floor']}")
    if alike:
        numbers = ", ".join(f"{entry.title} {entry.alike:.4f}" for entry in alike)
        lines.append(f"on as many rows as the reference: {numbers}")
    return "\n".join(lines)
