"""`inspect`: what augmask sees in a table, before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd

from augmask.missing.describe import Missingness, describe
from augmask.notebook import html_table
from augmask.sample.constraints import suggest_constraints, suggestion_notes
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema, missing_mask
from augmask.table.notes import missingness_findings
from augmask.table.partitions import is_partitioned, partitioned_table
from augmask.table.schema import Schema
from augmask.table.seen_combinations import with_links

MAX_PATTERNS = 5
# Rows of a table of many files that are looked at.
SAMPLE_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class Inspection:
    """The inferred schema of a table, its missing values, and what stands out.

    Parameters
    ----------
    schema : Schema
        The kind of each column, and why.
    missing : Missingness
        Rates, patterns and columns that are missing together.
    constraints : list of str
        Orders of columns that every row satisfies, for ``fit(constraints=...)``.
    sampled_from : int, optional
        Rows of the table, if it is in many files and a sample was looked at.
    """

    schema: Schema
    missing: Missingness
    constraints: list[str]
    sampled_from: int | None = None

    @property
    def notes(self) -> list[str]:
        """What to know before training, one sentence each."""
        return self.schema.notes()

    @property
    def suggestions(self) -> list[str]:
        """The notes, and how to keep what every row satisfies."""
        return [*self.notes, *suggestion_notes(self.constraints, in_python=True)]

    def to_frame(self) -> pd.DataFrame:
        """Return one line per column: kind, missing share, output type and reason."""
        lines = [
            (c.label, c.kind, c.missing_rate, c.dtype, len(c.all_levels), c.reason)
            for c in self.schema
        ]
        names = ["column", "kind", "missing", "output", "levels", "reason"]
        return pd.DataFrame(lines, columns=names)

    def to_dict(self) -> dict[str, Any]:
        """Return everything ready for JSON."""
        return {
            "columns": [column.to_dict() for column in self.schema],
            "missing": self.missing.to_dict(),
            "not_applicable": missingness_findings(self.schema),
            "constraints": self.constraints,
            "notes": self.notes,
        } | ({} if self.sampled_from is None else {"sampled_from": self.sampled_from})

    @property
    def _size(self) -> str:
        rows = f"{self.missing.n_rows:,} rows"
        if self.sampled_from is not None:
            rows = f"a sample of {self.missing.n_rows:,} of {self.sampled_from:,} rows"
        return f"{rows}, {len(self.schema)} columns"

    def __str__(self) -> str:
        """Return what `augmask inspect` prints to standard output."""
        facts = self.missing
        lines = [
            self._size,
            f"missing: {self._missing_line()}",
            "",
            str(self.schema),
        ]
        if facts.rate:
            lines += ["", "most frequent patterns (rows: columns missing together)"]
            lines += [
                f"{count:>9,}: {', '.join(map(str, names)) or '(none)'}"
                for names, count in facts.patterns[:MAX_PATTERNS]
            ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return "\n".join([str(self), *(f"note: {text}" for text in self.suggestions)])

    def _missing_line(self) -> str:
        facts, columns = self.missing, self.schema
        kept = sum(column.missing_rate for column in columns if column.missing_is_level)
        kept /= max(len(columns), 1)
        not_applicable = f" ({kept:.1%} not applicable, kept missing)" if kept else ""
        return (
            f"{facts.rate:.1%} of all cells{not_applicable}, "
            f"{facts.complete_rows:,} complete rows, {facts.n_patterns:,} patterns"
        )

    def _repr_html_(self) -> str:
        facts = self.missing
        frame = self.to_frame()
        frame["missing"] = [f"{x:.1%}" if x else "" for x in frame["missing"]]
        frame["levels"] = [n or "" for n in frame["levels"]]
        parts = [
            html_table(
                f"{self._size}; missing: {self._missing_line()}",
                list(frame),
                frame.itertuples(index=False),
            )
        ]
        if facts.rate:
            patterns = [
                (f"{count:,}", ", ".join(map(str, names)) or "(none)")
                for names, count in facts.patterns[:MAX_PATTERNS]
            ]
            head = ("rows", "columns missing together")
            parts.append(html_table("Most frequent patterns", head, patterns))
        notes = "".join(f"<li>{escape(text)}</li>" for text in self.suggestions)
        return "".join(parts) + (f"<ul>{notes}</ul>" if notes else "")


def inspect(data: Any, *, schema: Any = None) -> Inspection:
    """Show what augmask sees in a table: kinds, missing values and suggestions.

    Nothing is trained; `fit` infers the same. The command line has the same as
    `augmask inspect`.

    Parameters
    ----------
    data : DataFrame, polars frame, Arrow table or path
        Of a table of many files (a folder, a pattern or a list of Parquet files), a
        sample of 100,000 rows is looked at, and levels that it lacks are not shown.
    schema : Schema, path or mapping, optional
        As for `AugMask.fit`.

    Returns
    -------
    Inspection
        With `schema`, `missing`, `constraints`, `suggestions` and `to_frame()`; it
        shows itself in a terminal and in a notebook.

    Examples
    --------
    >>> ages = [*range(30, 60), *range(40, 45), None]
    >>> df = pd.DataFrame({"age": ages, "sex": list("fmmf") * 9})
    >>> facts = inspect(df)
    >>> facts.schema["age"].kind, facts.missing.complete_rows
    ('integer', 35)
    >>> print(str(facts).splitlines()[1])
    missing: 1.4% of all cells, 35 complete rows, 2 patterns
    """
    total = None
    if is_partitioned(data):
        table = partitioned_table(data)
        total = len(table)
        data = table.take(table.sample_places(SAMPLE_ROWS, 0, "inspect"))[0]
    frame = read_frame(data)
    inferred = infer_schema(frame, schema, suggest=True, group_codes=True)
    linked = with_links(frame, inferred)
    return Inspection(
        linked,
        describe(frame, missing_mask(frame, linked)),
        suggest_constraints(frame, linked),
        total,
    )
