"""`Scores`: every number with what it is to be read against, and what it means."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from augmask.evaluation.screen import as_text
from augmask.files import written_whole
from augmask.notebook import html_table

Group = Literal[
    "fidelity", "coverage", "utility", "detection", "privacy", "incomplete", "held-out"
]
Better = Literal["higher", "lower", "reference"]


@dataclass(frozen=True)
class Entry:
    """One number of an evaluation.

    Parameters
    ----------
    value : float
    reference : float, optional
        What real rows that nobody trained on score, or what the number is without a
        fault: the ceiling.
    floor : float, optional
        What independent columns score.
    group : str
        What the number is about.
    better : {"higher", "lower", "reference"}
        Which way is good; `reference` when nearness to the reference is.
    title, meaning : str
        Its name for people, and in a sentence what it can and cannot tell.
    alike : float, optional
        The value on as many rows as the reference has, if that makes a difference:
        Shape and Trend come out lower for fewer rows.
    noise : float
        How far chance alone may take such a value from its reference: two and a half
        standard errors; 0 if that is not known.
    """

    value: float
    reference: float | None
    floor: float | None
    group: Group
    better: Better
    title: str
    meaning: str
    alike: float | None = None
    noise: float = 0.0


def _plain(value: Any) -> Any:
    """Return what JSON can hold: no NaN, no numpy."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@dataclass(frozen=True, eq=False)
class Scores:
    """The result of `evaluate`.

    Parameters
    ----------
    entries : mapping of key to Entry
        Keys are stable: `shape`, `trend`, `trend_worst`, `trend_sdmetrics`,
        `alpha_precision`, `beta_recall`, `mle`, `tstr`, `trtr`, `c2st_auc`,
        `dcr_share`, ...
    tables : mapping of name to DataFrame
        What the numbers summarise: `columns`, `pairs`, `features`, `privacy`, ...
    facts : mapping
        Rows, columns, seed, subsample, where the references come from, seconds.
    parts : mapping
        The results of single metrics, for a report.
    """

    entries: Mapping[str, Entry]
    tables: Mapping[str, pd.DataFrame]
    facts: Mapping[str, Any]
    parts: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: str) -> float:
        """Return the value of a key."""
        return self.entries[key].value

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        # Tables and frames at full length would bury the numbers.
        return as_text(self)

    def _repr_html_(self) -> str:
        rows = [
            (
                entry.title,
                *(
                    "" if x is None else f"{x:.4f}"
                    for x in (entry.value, entry.reference, entry.floor)
                ),
                entry.meaning,
            )
            for entry in self.entries.values()
        ]
        head = ("score", "value", "real rows", "independent", "what it tells")
        return html_table("Scores", head, rows)

    def to_frame(self) -> pd.DataFrame:
        """Return one line per number, by key."""
        lines = {
            key: {
                "value": entry.value,
                "reference": entry.reference,
                "floor": entry.floor,
                "group": entry.group,
                "better": entry.better,
                "meaning": entry.meaning,
            }
            for key, entry in self.entries.items()
        }
        frame = pd.DataFrame.from_dict(lines, orient="index").rename_axis("score")
        numbers = ["value", "reference", "floor"]
        return frame.astype(dict.fromkeys(numbers, "float64"))

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, tables and facts as plain data."""
        numbers = {
            key: {
                "value": entry.value,
                "reference": entry.reference,
                "floor": entry.floor,
                "better": entry.better,
                "alike": entry.alike,
                "noise": entry.noise,
            }
            for key, entry in self.entries.items()
        }
        tables = {
            name: json.loads(table.to_json(orient="records", date_format="iso"))
            for name, table in self.tables.items()
        }
        plain: dict[str, Any] = _plain(
            {**numbers, "tables": tables, "facts": self.facts}
        )
        return plain

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the same as JSON text, and write it if a path is given."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False)
        if path is not None:
            with written_whole(Path(path)) as part:
                part.write_text(text + "\n", encoding="utf-8")
        return text

    def to_html(self, path: str | Path) -> None:
        """Write one page that shows everything, without a network."""
        # By name, because the report comes after the evaluation on the way of the data
        # and imports point one way; whoever only scores never loads it.
        importlib.import_module("augmask.report.page").write_report(path, self)
