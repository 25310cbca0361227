"""The page of the panel, written from its results and nothing else."""

from __future__ import annotations

from pathlib import Path

import data
import numpy as np
import pandas as pd
from scoring import REAL

from augmask.evaluation.scoring import AUC_SPREAD, Z

OURS = "augmask"
FLOORS = ("independent", "mean-mode")
# The bar on imputation: against whom, and on which tables.
BARS = ("iterative", "iterative-all-levels", "miceforest")
SMALL = 1500
HEAD = """# The panel

Public tables with missing values that nobody tuned to, ours and others on them, scored
alike. This page is written by `make bench-panel` from `benchmarks/results/panel.csv`
and the panel file; change those, not the page. What counts is the worst case, not the
mean.

```
make bench-panel                       # tables, environments, runs, scores, this page
python benchmarks/panel tables         # what is here, and how to get what is not
python benchmarks/panel run WORK --methods ours --tables star pbc
python benchmarks/panel run WORK --methods ours --set preset=fast backbone=tabddpm
python benchmarks/panel score WORK && python benchmarks/panel page
```

Every step goes on where it was. Nothing that was fetched is in the repository.

## How it is measured

A fifth of the rows is kept from every contender. Ours get the path of a CSV file and
nothing else; others are told the kinds of columns. Each runs in a process of its own on
one thread, at most {limit} s, or longer by as much as the machine was shared; so CPU
seconds are given. Where several contenders are compared the best is bold.

- **C2ST**: AUC of trees that tell synthetic from real rows; .5 is best, and well below
  it means copied rows. Where the table is incomplete, synthetic cells are hidden like
  real ones, and rows are paired that hide the same cells, so that missing values give
  nothing away. At most {score_rows:,} rows; the mean of five under 2,500.
- **Worst tenth**: mean score of the tenth of pairs of columns that are least alike.
  Fewer rows agree less: the real rows kept aside, a quarter as many, may score below
  others.
- **MLE**: skill on unseen real rows of a model that learned from synthetic rows, over
  that of one that learned from real rows.
- **Imputation**: a share of {hidden} of the observed cells of at most {impute_rows:,}
  rows is hidden. RMSE over the column's standard deviation, accuracy on levels, and
  how many hidden cells the 80 % intervals of {draws} draws hold.
"""


def _latest(result: Path) -> pd.DataFrame:
    """Return the last line of every table, task and method."""
    lines = pd.read_csv(result, keep_default_na=True)
    return lines.drop_duplicates(["table", "task", "method"], keep="last")


def given_away(c2st: pd.Series, rows: pd.Series) -> pd.Series:
    """Return how well rows are told from real ones, copies counting as much.

    An AUC below a half by more than chance comes from rows that stand in both tables;
    by less it is as good as a half.

    Examples
    --------
    >>> c2st, rows = pd.Series([0.7, 0.45, 0.2]), pd.Series([500, 500, 500])
    >>> given_away(c2st, rows).round(2).tolist()
    [0.7, 0.5, 0.8]
    """
    chance = AUC_SPREAD * Z * np.sqrt((2 * rows + 1) / (6 * rows**2))
    return c2st.clip(lower=0.5).where(c2st >= 0.5 - chance, 1 - c2st)


def _is_ours(method: str) -> bool:
    return method.split(" ")[0] == OURS


def _number(value: float | None, mark: bool = False) -> str:
    if value is None or pd.isna(value):
        return ""
    text = f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.2f}"
    return f"**{text}**" if mark else text


def _grid(
    lines: pd.DataFrame, column: str, tables: list[str], best: str = "higher"
) -> list[str]:
    """Return a Markdown table of one number: tables down, methods across."""
    wide = lines.pivot(index="table", columns="method", values=column)
    wide = wide.dropna(axis=1, how="all")
    methods = sorted(wide, key=lambda m: (m != REAL, not _is_ours(m), m in FLOORS, m))
    rows = [f"| | {' | '.join(methods)} |", "|---" * (len(methods) + 1) + "|"]
    for table in [t for t in tables if t in wide.index]:
        values = wide.loc[table, methods]
        seen = values.drop([m for m in (REAL, *FLOORS) if m in values]).dropna()
        if column == "c2st":
            rows_of = lines[lines["table"] == table].set_index("method")["rows"]
            seen = given_away(seen, rows_of[seen.index])
        at = (
            "" if seen.empty else (seen.idxmax() if best == "higher" else seen.idxmin())
        )
        cells = [_number(values[m], m == at) for m in methods]
        rows.append(f"| {table} | {' | '.join(cells)} |")
    return [*rows, ""]


def _tables(whole: dict, lines: pd.DataFrame) -> list[str]:
    """Return the list of tables."""
    rows = ["| table | rows | traits | source | licence |", "|---|---|---|---|---|"]
    counts = lines[lines["task"] == "synthesize"].query("method != @REAL")
    for name, entry in whole["tables"].items():
        found = counts.loc[counts["table"] == name, "rows"].max()
        many = "absent" if pd.isna(found) else f"{int(found):,}"
        made = entry.get("ampute")
        traits = list(entry["traits"])
        if made:
            traits.append(f"{made['mechanism'].upper()} {made['ratio']}")
        where = f"{entry['source']}: {entry['file']}"
        rows.append(
            f"| {name} | {many} | {', '.join(traits)} | {where} | {entry['licence']} |"
        )
    return [*rows, ""]


def _behind(lines: pd.DataFrame, ours: str) -> list[str]:
    """Return where one of ours stands against the best rival of each table."""
    rows = [
        f"### `{ours}` against the best rival",
        "",
        "| table | C2ST ours | best rival | behind | worst tenth ours | best rival |",
        "|---|---|---|---|---|---|",
    ]
    made = lines[lines["task"] == "synthesize"]
    made = made.assign(away=given_away(made["c2st"], made["rows"]))
    rivals = made[~made["method"].map(_is_ours) & ~made["method"].isin([REAL, *FLOORS])]
    mine = made[made["method"] == ours].set_index("table")
    behind: dict[str, float] = {}
    for table in mine.index:
        own, others = mine.loc[table], rivals[rivals["table"] == table]
        others = others.dropna(subset=["c2st"])
        if pd.isna(own["c2st"]):
            rows.append(f"| {table} | {own['why']} | | | | |")
            behind[table] = np.inf
            continue
        if others.empty:
            continue
        first = others.loc[others["away"].idxmin()]
        behind[table] = own["away"] - first["away"]
        worst = others.loc[others["worst_tenth"].idxmax()]
        rows.append(
            f"| {table} | {_number(own['c2st'])} | {_number(first['c2st'])} "
            f"({first['method']}) | {behind[table]:+.3f} | "
            f"{_number(own['worst_tenth'])} | {_number(worst['worst_tenth'])} "
            f"({worst['method']}) |"
        )
    good = sum(value <= 0 for value in behind.values())
    far = sorted(t for t, v in behind.items() if v > 0.03)
    rows += [
        "",
        f"C2ST is no worse than the best rival's on {good} of {len(behind)} tables (an "
        "AUC below a half by no more than chance counts as a half); "
        + (
            f"more than .03 behind on {', '.join(far)}."
            if far
            else "never more than .03 behind."
        ),
    ]
    for rival, part in rivals.dropna(subset=["worst_tenth"]).groupby("method"):
        both = part.set_index("table")["worst_tenth"].to_frame("rival")
        both["ours"] = mine["worst_tenth"]
        both = both.dropna()
        if len(both):
            a, b = both["ours"].mean(), both["rival"].mean()
            rows.append(
                f"Worst tenth against {rival}, mean over {len(both)} tables: "
                f"{_number(a)} and {_number(b)}."
            )
    return [*rows, ""]


def _imputation(lines: pd.DataFrame, ours: str) -> list[str]:
    """Return how one of ours fills cells of small tables."""
    made = lines[(lines["task"] == "impute") & (lines["rows"] < SMALL)]
    wins, pairs, told = 0, 0, []
    for table, part in made.groupby("table"):
        part = part.set_index("method")
        for column, sign in (("rmse", -1), ("accuracy", 1)):
            names = [m for m in BARS if m in part.index]
            rivals = part.loc[names, column].dropna()
            if (
                ours not in part.index
                or rivals.empty
                or pd.isna(part.loc[ours, column])
            ):
                continue
            pairs += 1
            ahead = sign * part.loc[ours, column] >= (sign * rivals).max()
            wins += ahead
            if not ahead:
                told.append(f"{table} {column}")
    if not pairs:
        return []
    text = (
        f"`{ours}` on tables under {SMALL:,} rows: at least as good as the best of "
        "IterativeImputer, in either coding, and miceforest in "
        f"{wins} of {pairs} (table, number) pairs"
    )
    return [text + (f"; behind in {', '.join(told)}." if told else "."), ""]


def _without(lines: pd.DataFrame) -> list[str]:
    """Return who has no numbers, and why."""
    lost = lines[lines["why"].notna()]
    if lost.empty:
        return []
    rows = ["## Without a number", ""]
    for (method, task, why), part in lost.groupby(["method", "task", "why"], sort=True):
        rows.append(f"- {method}, {task}: {', '.join(part['table'])}: {why}")
    return [*rows, ""]


def page(result: Path) -> str:
    """Return the page as Markdown."""
    whole, lines = data.panel(), _latest(result)
    tables = list(whole["tables"])
    made = lines[lines["task"] == "synthesize"]
    filled = lines[lines["task"] == "impute"]
    ours = sorted(m for m in lines["method"].unique() if _is_ours(m))
    parts = [HEAD.format(**whole["settings"]), "## Contenders", ""]
    for name, entry in whole["methods"].items():
        if "says" in entry:
            parts.append(f"- `{name}`: {entry['says']}")
    parts += [f"- `{REAL}`: the rows that were kept from everybody, with their own"]
    parts += ["  missing values: the ceiling", "", "## Tables", ""]
    parts += _tables(whole, lines)
    parts += ["## Where ours stand", ""]
    if not ours:
        parts += ["Ours have not been run yet.", ""]
    for method in ours:
        parts += _behind(lines, method) + _imputation(lines, method)
    for title, column, best in (
        ("C2ST AUC", "c2st", "lower"),
        ("Worst tenth of pairs", "worst_tenth", "higher"),
        ("MLE", "mle", "higher"),
        ("Shape", "shape", "higher"),
        ("Trend", "trend", "higher"),
        ("CPU seconds of synthesis", "cpu_seconds", "lower"),
    ):
        parts += [f"## {title}", "", *_grid(made, column, tables, best)]
    for title, column, best in (
        ("Imputation: RMSE over the standard deviation", "rmse", "lower"),
        ("Imputation: accuracy", "accuracy", "higher"),
        ("Imputation: 80 % intervals hold", "coverage_80", "higher"),
        ("CPU seconds of imputation", "cpu_seconds", "lower"),
    ):
        parts += [f"## {title}", "", *_grid(filled, column, tables, best)]
    parts += _without(lines)
    return "\n".join(parts).rstrip() + "\n"
