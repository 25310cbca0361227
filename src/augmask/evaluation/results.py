"""Results: the `Score` of one metric, the worst pairs, and the `Scores` of all.

`trend_worst` is the mean of the lowest tenth of pairs. In a wide table most pairs
hardly depend on each other, so a generator that loses the few that do loses next to
nothing in the mean over all pairs.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from augmask.files import atomic_write
from augmask.notebook import html_table

Group = Literal[
    "fidelity", "coverage", "utility", "detection", "privacy", "incomplete", "held-out"
]
Better = Literal["higher", "lower", "reference"]

WORST_SHARE = 0.1
# A correlation or contingency table of fewer rows is mostly chance.
MIN_ROWS_PER_PAIR = 50
N_WORST_SHOWN = 5
WIDTH = 10
# A floor this close to the reference, or within the noise, tells nothing.
MIN_SCALE = 0.02

CANNOT_TELL = "independent columns score like real rows here, so not judged"


@dataclass(frozen=True, eq=False)
class Score:
    """The result of a metric.

    Parameters
    ----------
    value : float
        The metric itself; 1 is best.
    table : pandas.DataFrame
        What the value summarises, with one line per column, pair or quantile.
    """

    value: float
    table: pd.DataFrame


def score_column(table: pd.DataFrame) -> str:
    """Return the name of the score in a table of columns or pairs."""
    return "remasked" if "remasked" in table else "score"


def _reliable_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs that enough real rows show together; all pairs if none is."""
    if "rows" not in pairs:
        return pairs
    reliable = pairs[pairs["rows"] >= MIN_ROWS_PER_PAIR]
    return pairs if reliable.empty else reliable


def worst_tenth(pairs: pd.DataFrame, select: pd.DataFrame | None = None) -> float:
    """Return the mean score of the lowest tenth of pairs, at least one.

    Parameters
    ----------
    pairs : pandas.DataFrame
        From `fidelity.trend` or `incomplete.compare_remasked`. Pairs without a score
        are left out, and so are those that fewer than 50 real rows show together.
    select : pandas.DataFrame, optional
        Pairs of the same columns on more rows, to decide which of them count.

    Examples
    --------
    >>> names = [f"c{i}" for i in range(20)]
    >>> scores = [1 - i / 100 for i in range(20)]
    >>> pairs = pd.DataFrame({"first": names, "second": "x", "score": scores})
    >>> round(worst_tenth(pairs), 3)
    0.815
    """
    keys = ["first", "second"]
    selected = _reliable_pairs(pairs if select is None else select)[keys]
    scores = pairs.merge(selected, on=keys)[score_column(pairs)].dropna()
    return float(scores.nsmallest(math.ceil(WORST_SHARE * len(scores))).mean())


def worst_pairs(pairs: pd.DataFrame, n: int) -> pd.DataFrame:
    """Return the `n` pairs that are farthest below what real rows score, worst first.

    The difference counts because a pair of columns with many levels scores low among
    real rows too. An unknown `reference` counts as 1.

    Examples
    --------
    >>> pairs = pd.DataFrame({"first": ["a", "b"], "second": ["x", "y"]})
    >>> pairs = pairs.assign(score=[0.60, 0.70], reference=[0.61, 0.99])
    >>> worst_pairs(pairs, 1)["first"].tolist()
    ['b']
    """
    score = score_column(pairs)
    scored = _reliable_pairs(pairs).dropna(subset=[score])
    gap = scored["reference"].fillna(1.0) - scored[score]
    return scored.loc[gap.sort_values(ascending=False, kind="stable").index[:n]]


def pair_names(pairs: pd.DataFrame) -> pd.Series:
    """Return a name for each pair, such as "age with pay"."""
    return pairs["first"].astype(str) + " with " + pairs["second"].astype(str)


@dataclass(frozen=True)
class Entry:
    """One number of an evaluation.

    Parameters
    ----------
    value : float
    reference : float, optional
        What real rows that nobody trained on score: the ceiling.
    floor : float, optional
        What independent columns score, if that is a floor: scores of single columns
        have none.
    group : str
        The aspect that the number measures.
    better : {"higher", "lower", "reference"}
        Which direction is good; with `reference`, the nearer to it the better.
    title, meaning : str
        A name, and what the number can and cannot tell.
    comparable : float, optional
        The value on as many rows as the reference has, where that differs: Shape and
        Trend are lower on fewer rows. Compare this one with the reference.
    noise : float
        How far chance alone may move the value from the reference: 2.5 standard
        errors; 0 if unknown.
    error : float, optional
        Standard error of the value, if it is that of a sample of a larger table.
    """

    value: float
    reference: float | None
    floor: float | None
    group: Group
    better: Better
    title: str
    meaning: str
    comparable: float | None = None
    noise: float = 0.0
    error: float | None = None

    @property
    def mark(self) -> float | None:
        """What other real rows would score on as many rows as the value."""
        if self.reference is None or not math.isfinite(self.reference):
            return None
        alike = self.value if self.comparable is None else self.comparable
        return self.reference + self.value - alike

    @property
    def scale(self) -> float | None:
        """How much worse independent columns are than real rows; None if unknown."""
        if self.mark is None or self.floor is None or not math.isfinite(self.floor):
            return None
        below = self.mark - self.floor
        rises = self.better == "lower" or self.group == "detection"
        return -below if rises else below

    @property
    def tells(self) -> bool:
        """Whether the score can tell independent columns from real rows here."""
        return self.scale is None or self.scale >= max(MIN_SCALE, self.noise)

    @property
    def shown_floor(self) -> float | None:
        """The floor, which is never above the reference; None if it is no floor."""
        return self.floor if self.tells else None

    @property
    def shown(self) -> dict[str, float | None]:
        """The value, and the numbers to compare it with."""
        return {
            "value": self.value,
            "reference": self.mark,
            "floor": self.shown_floor,
        }


def _plain_json(value: Any) -> Any:
    """Return what JSON can hold: no NaN, no numpy."""
    if isinstance(value, Mapping):
        return {str(k): _plain_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_json(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@dataclass(frozen=True, eq=False)
class Scores:
    """The result of `evaluate`.

    Print it, display it in a notebook, or index it by key: ``scores["trend"]``.

    Parameters
    ----------
    entries : mapping of key to Entry
        Keys are stable: `shape`, `trend`, `trend_worst`, `trend_sdmetrics`,
        `alpha_precision`, `beta_recall`, `mle`, `tstr`, `trtr`, `c2st_auc`,
        `dcr_share`, ...
    tables : mapping of name to DataFrame
        What the numbers summarise: `columns`, `pairs`, `features`, `privacy`, ...
    facts : mapping
        Rows, columns, seed, subsample, the origin of the references, seconds, notes.
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

    @property
    def verdict(self) -> str:
        """One sentence over all scores."""
        return str(self.facts.get("verdict", {}).get("sentence", ""))

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
                    "" if x is None else f"{x:.4f}" + (with_error(entry) * (i == 0))
                    for i, x in enumerate(entry.shown.values())
                ),
                entry.meaning,
            )
            for entry in self.entries.values()
        ]
        head = ("score", "value", "real rows", "independent", "what it tells")
        return html_table(self.verdict or "Scores", head, rows)

    def to_frame(self) -> pd.DataFrame:
        """Return one line per number, indexed by key.

        Scores of samples of larger tables have a column `error`, their standard error.
        """
        numbers = ["value", "reference", "floor"]
        lines = {
            key: {
                **entry.shown,
                "group": entry.group,
                "better": entry.better,
                "meaning": entry.meaning,
            }
            for key, entry in self.entries.items()
        }
        frame = pd.DataFrame.from_dict(lines, orient="index").rename_axis("score")
        if _have_errors(self.entries):
            errors = [entry.error for entry in self.entries.values()]
            frame.insert(1, "error", errors)
            numbers.append("error")
        return frame.astype(dict.fromkeys(numbers, "float64"))

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, tables and facts as plain data."""
        numbers = {
            key: {**entry.shown, "better": entry.better, "noise": entry.noise}
            | ({} if entry.error is None else {"error": entry.error})
            for key, entry in self.entries.items()
        }
        tables = {
            name: json.loads(table.to_json(orient="records", date_format="iso"))
            for name, table in self.tables.items()
        }
        plain: dict[str, Any] = _plain_json(
            {**numbers, "tables": tables, "facts": self.facts}
        )
        return plain

    def to_json(self, path: str | Path | None = None) -> str:
        """Return `to_dict` as JSON text, and write it if you pass a path."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False)
        if path is not None:
            with atomic_write(Path(path)) as part:
                part.write_text(text + "\n", encoding="utf-8")
        return text

    def to_html(self, path: str | Path) -> None:
        """Write a report as one HTML file that needs no network."""
        # Imported by name: imports point one way, and the report comes after the
        # evaluation. Without a report it is never loaded.
        importlib.import_module("augmask.report.page").write_report(path, self)


def _number(value: float | None) -> str:
    text = "-" if value is None or value != value else f"{value:.4f}"
    return text.rjust(WIDTH)


def _have_errors(entries: Mapping[str, Entry]) -> bool:
    return any(entry.error is not None for entry in entries.values())


def with_error(entry: Entry) -> str:
    """Return the standard error behind a value, empty if there is none.

    Examples
    --------
    >>> entry = Entry(0.93, None, None, "fidelity", "higher", "Trend", "", error=0.002)
    >>> with_error(entry)
    ' ± 0.0020'
    """
    return "" if entry.error is None else f" ± {entry.error:.4f}"


def _entry_lines(entries: Mapping[str, Entry]) -> Iterator[str]:
    wide = 2 + max(len("score"), *(len(entry.title) for entry in entries.values()))
    names = ["value", "reference", "floor"]
    errors = _have_errors(entries)
    if errors:
        names.insert(1, "± error")
    yield f"{'score':{wide}}{''.join(name.rjust(WIDTH) for name in names)}"
    for i, (_, group) in enumerate(groupby(entries.values(), lambda e: e.group)):
        if i:
            yield ""
        for entry in group:
            cells = [*map(_number, entry.shown.values())]
            if errors:
                cells.insert(1, _number(entry.error))
            short = entry.meaning.split(". ")[0].rstrip(".")
            yield f"{entry.title:{wide}}{''.join(cells)}  {short}"


def _worst_lines(table: pd.DataFrame, what: str) -> Iterator[str]:
    """Yield the worst lines of a table of columns or pairs."""
    score = score_column(table)
    if what == "columns":
        scored = table.dropna(subset=[score]).sort_values(score, kind="stable")
        worst = scored[:N_WORST_SHOWN]
        names = worst["column"].astype(str)
    else:
        worst = worst_pairs(table, N_WORST_SHOWN)
        names = pair_names(worst)
    if worst.empty:
        return
    wide = 2 + max(len(f"worst {what}"), *names.map(len))
    yield f"\n{f'worst {what}':{wide}}{'value':>{WIDTH}}{'reference':>{WIDTH}}"
    for name, value, other in zip(names, worst[score], worst["reference"], strict=True):
        yield f"{name:{wide}}{_number(value)}{_number(other)}"


def as_text(scores: Scores) -> str:
    """Return the scores as text for a terminal, the worst columns and pairs below.

    Examples
    --------
    >>> entry = Entry(0.93, 0.98, 0.6, "fidelity", "higher", "Trend", "Pairs.")
    >>> print(as_text(Scores({"trend": entry}, {}, {})))
    score       value reference     floor
    Trend      0.9300    0.9800    0.6000  Pairs
    """
    lines = [scores.verdict, ""] if scores.verdict else []
    lines += _entry_lines(scores.entries) if scores.entries else []
    for what in ("columns", "pairs"):
        if what in scores.tables:
            lines += _worst_lines(scores.tables[what], what)
    facts = scores.facts
    if facts.get("flagged"):
        flagged = ", ".join(scores.entries[key].title for key in facts["flagged"])
        lines.append(f"\nsigns of copying: {flagged}")
    if "reference" in facts:
        lines.append(f"\nreference: {facts['reference']}\nfloor: {facts['floor']}")
    blind = [entry.title for entry in scores.entries.values() if not entry.tells]
    if blind:
        lines.append(f"{CANNOT_TELL}: {', '.join(blind)}")
    return "\n".join(lines)
