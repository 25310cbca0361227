"""The ten tables of the paper's appendix: a metric by data set, for MCAR and for MAR.

A cell has the mean score × 100 and its standard deviation over the blocks of the data
set, the gain over NoAug of the same generator in percent of NoAug's score, and marks:
Wilcoxon over the blocks of the data set against the best missing-aware baseline of each
block, Holm over the cells of the table (see `significance`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from augmask_bench.layout import (
    TEX,
    WIDTH,
    aligned,
    markdown_escape,
    piped,
    tex_escape,
    tex_groups,
    tex_mark,
    tex_name,
    tex_shade,
)
from augmask_bench.ranks import SUMMARY, TITLES, RankTable
from augmask_bench.significance import as_mark, marks_of, rivals_of, signed_rank


@dataclass(frozen=True, eq=False)
class DatasetTable:
    """One metric by method and data set; see `dataset_tables`.

    Parameters
    ----------
    ranks : RankTable
        The blocks and methods.
    metric : str
    cells : pandas.DataFrame
        One row per method and data set: `mean`, `sd`, `blocks`, `failed`, `gain` in
        percent, `mark` and `mark_plain`, empty for rivals and without rivals.
    notes : tuple of str
    """

    ranks: RankTable
    metric: str
    cells: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def datasets(self) -> list[str]:
        """The data sets, in the order of the results."""
        return list(self.cells.index.unique("dataset"))

    def mark(self, method: str, dataset: str) -> str:
        """Return the marks of a cell."""
        line = self.cells.loc[(method, dataset)]
        return as_mark(line["mark"], line["mark_plain"])


def _marks(scores: pd.DataFrame, rivals: Sequence[str]) -> pd.DataFrame:
    """Return p-values and marks by method and data set, for methods but the rivals."""
    best = scores[list(rivals)].max(axis=1)
    lines = {}
    for method in scores:
        if method in rivals:
            continue
        for dataset, d in (scores[method] - best).groupby(level="dataset", sort=False):
            greater, less = signed_rank(d)
            lines[(method, dataset)] = {"p": greater, "p_less": less}
    tests = pd.DataFrame.from_dict(lines, orient="index")
    tests.index = pd.MultiIndex.from_tuples(lines, names=["method", "dataset"])
    return pd.concat([tests, marks_of(tests)], axis=1)


def _cells(ranks: RankTable, metric: str, rivals: Sequence[str]) -> pd.DataFrame:
    scores = ranks.scores[metric]
    done = scores.replace(-np.inf, np.nan)
    by_dataset = done.groupby(level="dataset", sort=False)
    parts = {
        "mean": by_dataset.mean(),
        "sd": by_dataset.std(ddof=1),
        "blocks": by_dataset.count(),
        "failed": done.isna().groupby(level="dataset", sort=False).sum(),
    }
    base = {m: b for m, b in ranks.methods["base"].items() if b}
    parts["gain"] = pd.DataFrame(
        {m: 100 * (parts["mean"][m] / parts["mean"][b] - 1) for m, b in base.items()}
    ).reindex(columns=scores.columns)
    cells = pd.concat(
        {k: v.T.stack(future_stack=True) for k, v in parts.items()}, axis=1
    )
    cells.index.names = ["method", "dataset"]
    if rivals:
        marks = _marks(scores.replace(-np.inf, 0.0), rivals).reindex(cells.index)
        cells = pd.concat([cells, marks], axis=1)
    else:
        cells = cells.assign(p=np.nan, p_less=np.nan, p_holm=np.nan)
    for name in ("mark", "mark_plain"):
        cells[name] = cells[name].fillna("") if name in cells else ""
    return cells


def dataset_tables(ranks: RankTable, against: str | None = None) -> list[DatasetTable]:
    """Return the table of every metric.

    Parameters
    ----------
    ranks : RankTable
        Its blocks and methods are used.
    against : str, optional
        A method to test against instead of the best missing-aware baseline.
    """
    rivals, name = rivals_of(ranks, against)
    notes = [
        "Mean score × 100 ± standard deviation over the blocks of a data set; in "
        "brackets the gain over NoAug of the same generator, in percent of its score."
    ]
    if rivals:
        notes.append(
            f"** Gain, * Match: Wilcoxon over the blocks of a data set against {name}, "
            "Holm over the cells of the table. † Gain without Holm only."
        )
        fewest = ranks.ranks.groupby(level="dataset").size().min()
        if 0.5**fewest >= 0.05:
            notes.append(f"With {fewest} blocks of a data set no Gain is possible.")
    failed = ranks.methods["failed"]
    if (failed > 0).any():
        notes.append("Failed runs are not part of a mean; in the test they score 0.")
    return [
        DatasetTable(ranks, metric, _cells(ranks, metric, rivals), tuple(notes))
        for metric in ranks.metrics
        if metric != SUMMARY
    ]


def _heading(table: DatasetTable) -> str:
    mechanism = table.ranks.mechanism
    name = "all mechanisms" if mechanism == "all" else mechanism.upper()
    return f"{TITLES[table.metric]} ({name}), {table.ranks.blocks} blocks"


def _score(table: DatasetTable, method: str, dataset: str, pm: str = " ± ") -> str:
    """Return "98.1 ± 0.3", without a deviation if there is one block, or "–"."""
    line = table.cells.loc[(method, dataset)]
    if pd.isna(line["mean"]):
        return "–"
    text = f"{100 * line['mean']:.1f}"
    return text if pd.isna(line["sd"]) else f"{text}{pm}{100 * line['sd']:.1f}"


def _gain(table: DatasetTable, method: str, dataset: str) -> str:
    gain = table.cells.loc[(method, dataset), "gain"]
    return "" if not np.isfinite(gain) else f"{round(gain, 1) + 0.0:+.1f}%"


def terminal(table: DatasetTable) -> str:
    """Return the table as aligned text."""
    lines = [["", *table.datasets]]
    for method in table.ranks.methods.index:
        cells = [
            f"{_score(table, method, d, '±')}{table.mark(method, d):<2}"
            f" {_gain(table, method, d):>7}"
            for d in table.datasets
        ]
        lines.append([method, *cells])
    text = [_heading(table), "", *aligned(lines), ""]
    for note in table.notes:
        text += textwrap.wrap(note, WIDTH)
    return "\n".join(text) + "\n"


def markdown(table: DatasetTable) -> str:
    """Return the table in Markdown."""
    lines = []
    for method in table.ranks.methods.index:
        cells = []
        for dataset in table.datasets:
            cell = _score(table, method, dataset)
            if table.cells.loc[(method, dataset), "mark"] == "gain":
                cell = f"**{cell}**"
            cell += table.mark(method, dataset).replace("*", r"\*")
            gain = _gain(table, method, dataset)
            cells.append(f"{cell} ({gain})" if gain else cell)
        lines.append([markdown_escape(method), *cells])
    head = ["Method", *map(markdown_escape, table.datasets)]
    notes = [f"- {markdown_escape(note)}" for note in table.notes]
    text = [f"**{_heading(table)}**", "", *piped(head, lines), "", *notes, ""]
    return "\n".join(text)


def csv(tables: Sequence[DatasetTable]) -> str:
    """Return all metrics as CSV, one line per method, data set and metric."""
    parts = [
        table.cells.reset_index().assign(
            mechanism=table.ranks.mechanism, metric=table.metric
        )
        for table in tables
    ]
    names = ["mechanism", "metric", "dataset", "method"]
    frame = pd.concat(parts, ignore_index=True)
    frame = frame[[*names, *(c for c in frame if c not in names)]]
    return str(frame.to_csv(index=False, lineterminator="\n"))


def latex(table: DatasetTable) -> str:
    """Return the table as the paper sets its rank tables; same packages."""

    def line(method: str) -> str:
        cells = [tex_name(table.ranks, method)]
        for dataset in table.datasets:
            score = _score(table, method, dataset)
            mean, _, sd = score.partition(" ± ")
            cell = mean + (rf" $\pm$ {{\small {sd}}}" if sd else "")
            cell += tex_mark(table.mark(method, dataset))
            if table.cells.loc[(method, dataset), "mark"] == "gain":
                cell = rf"\textbf{{{cell}}}"
            gain = _gain(table, method, dataset)
            colour = "black!40!red" if gain.startswith("-") else "black!60!green"
            shown = tex_escape(f"({gain})")
            cells += [cell, rf"\textcolor{{{colour}}}{{{shown}}}" if gain else "--"]
        return tex_shade(table.ranks, method) + " & ".join(cells) + r" \\"

    n = len(table.datasets)
    names = [
        rf"\multicolumn{{2}}{{c}}{{\textbf{{{tex_escape(d)}}}}}" for d in table.datasets
    ]
    mechanism = table.ranks.mechanism.upper()
    notes = " ".join(map(tex_escape, table.notes))
    return "\n".join(
        [
            r"% \usepackage{booktabs,graphicx,amssymb}",
            r"% \usepackage[table]{xcolor}",
            r"\begin{table*}[t]",
            r"\centering",
            r"\small",
            r"\setlength{\tabcolsep}{2.5pt}",
            rf"\caption{{\textbf{{{TEX[table.metric]}}} ({mechanism}). {notes}}}",
            rf"\label{{tab:{table.metric}-{table.ranks.mechanism}}}",
            r"\resizebox{\linewidth}{!}{%",
            rf"\begin{{tabular}}{{l *{{{n}}}{{cc}}}}",
            r"\toprule",
            " & ".join([r"\textbf{Method}", *names]) + r" \\",
            *tex_groups(table.ranks, 1 + 2 * n, line),
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table*}",
            "",
        ]
    )
