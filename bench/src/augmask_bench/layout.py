"""The rank table as text for a terminal, Markdown, CSV, and LaTeX as in the paper.

The terminal shows what fits in about eighty columns: average ranks and the Δ of the
summary. Markdown and LaTeX add standard deviations and every Δ, the CSV has all digits
and all tests.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence

import pandas as pd

from augmask_bench.ranks import BLOCK, SUMMARY, TITLES, RankTable
from augmask_bench.significance import Gains

WIDTH = 80
# Titles of metrics in a terminal and in LaTeX.
SHORT = {**TITLES, "alpha_precision": "α-Prec.", "beta_recall": "β-Rec."}
TEX = {
    **TITLES,
    "alpha_precision": r"$\alpha$-Precision",
    "beta_recall": r"$\beta$-Recall",
}
TESTED = ("Method", "gained", "95 % interval", "p blocks, Holm", "p datasets")
_TEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "Δ": r"$\Delta$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "×": r"$\times$",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
}


def tex_escape(text: str) -> str:
    r"""Return a text with LaTeX's special characters escaped.

    Examples
    --------
    >>> tex_escape("50% of A_B & C")
    '50\\% of A\\_B \\& C'
    """
    return "".join(_TEX_SPECIAL.get(sign, sign) for sign in text)


def markdown_escape(text: str) -> str:
    """Return a text with the signs escaped that Markdown reads."""
    return re.sub(r"([\\|*_<`\[\]])", r"\\\1", text)


def scenarios(table: RankTable) -> str:
    """Return the blocks in words: "6 datasets × 5 missing ratios × 3 seeds"."""
    counts = {name: table.ranks.index.unique(name).size for name in BLOCK}
    product = 1
    for count in counts.values():
        product *= count
    if product != table.blocks:
        return f"{table.blocks} blocks of {counts['dataset']} datasets"
    words = {
        "dataset": "dataset",
        "mechanism": "mechanism",
        "ratio": "missing ratio",
        "seed": "seed",
    }
    return " × ".join(
        f"{counts[name]} {word}" + ("s" if counts[name] > 1 else "")
        for name, word in words.items()
        if name != "mechanism" or counts[name] > 1
    )


def heading(table: RankTable) -> str:
    """Return mechanism and blocks of a table in words."""
    name = "All mechanisms" if table.mechanism == "all" else table.mechanism.upper()
    many = "" if table.blocks == 1 else "s"
    return f"{name}, {table.blocks} block{many}: {scenarios(table)}"


def _signed_text(delta: float) -> str:
    """Return "+1.2", or nothing for NaN; no "-0.0"."""
    return "" if pd.isna(delta) else f"{round(delta, 1) + 0.0:+.1f}"


def _notes(table: RankTable, gains: Gains | None) -> list[str]:
    return [*table.notes, *(gains.notes if gains is not None else ())]


def _mark(gains: Gains | None, method: str, metric: str) -> str:
    return "" if gains is None else gains.mark(method, metric)


def _has_daggers(gains: Gains | None) -> bool:
    """Whether some Gain is lost by Holm's correction."""
    if gains is None:
        return False
    tests = gains.tests
    return bool(((tests["mark_plain"] == "gain") & (tests["mark"] != "gain")).any())


def tex_mark(mark: str) -> str:
    r"""Return marks as a superscript of LaTeX.

    Examples
    --------
    >>> tex_mark("*†"), tex_mark("")
    ('$^{*\\dagger}$', '')
    """
    return "$^{" + mark.replace("†", r"\dagger") + "}$" if mark else ""


def _is_bold(table: RankTable, gains: Gains | None) -> pd.DataFrame:
    """Return the cells in bold: Gains as in the paper, the best without tests."""
    mean = table.mean
    if gains is None or gains.tests.empty:
        return mean.eq(mean.min())
    gained = gains.tests["mark"].eq("gain").unstack("metric")
    return gained.reindex(index=mean.index, columns=mean.columns, fill_value=False)


def _bold_means(gains: Gains | None) -> str:
    if gains is None or gains.tests.empty:
        return "Bold: best average rank."
    return "Bold: Gain."


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _tested(gains: Gains) -> list[list[str]]:
    """Return the tests of the summary rank as rows of the columns `TESTED`."""
    return [
        [
            str(method),
            _signed_text(line["difference"]),
            ""
            if pd.isna(line["low"])
            else f"{line['low']:+.1f} to {line['high']:+.1f}",
            _p(line["p_holm"]),
            _p(line["p_datasets"]),
        ]
        for method, line in gains.tests.xs(SUMMARY, level="metric").iterrows()
    ]


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as aligned text, the first column to the left."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def terminal(table: RankTable, gains: Gains | None = None) -> str:
    """Return the table as aligned text."""
    mean, delta = table.mean, table.delta["summary"]
    failed = table.methods["failed"]
    tested = gains is not None and not gains.tests.empty
    has_delta, has_failed = bool(delta.notna().any()), bool((failed > 0).any())
    # padding for marks keeps decimal points aligned
    padding = 2 + int(tested and _has_daggers(gains)) if tested else 0
    head = ["", *(SHORT[metric] for metric in table.metrics)]
    lines = [head + ["Δ"] * has_delta + ["failed"] * has_failed]
    for method in mean.index:
        cells = [
            f"{mean.loc[method, metric]:.1f}{_mark(gains, method, metric):<{padding}}"
            for metric in table.metrics
        ]
        if has_delta:
            cells.append(_signed_text(delta[method]))
        if has_failed:
            cells.append(str(failed[method] or ""))
        lines.append([method, *cells])
    text = [heading(table), "", *aligned(lines), ""]
    if gains is not None and tested:
        text += [f"Summary rank gained over {gains.rival}", ""]
        text += [*aligned([["", *TESTED[1:]], *_tested(gains)]), ""]
    legend = f"Average rank in a block, 1 is best of {len(mean)}."
    if has_delta:
        legend += " Δ: summary rank gained over NoAug of the same generator."
    for note in (legend, *_notes(table, gains)):
        text += textwrap.wrap(note, WIDTH)
    return "\n".join(text) + "\n"


def piped(head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in Markdown, the first column to the left."""
    separator = ["---", *["---:"] * (len(head) - 1)]
    return ["| " + " | ".join(line) + " |" for line in (head, separator, *lines)]


def markdown(table: RankTable, gains: Gains | None = None) -> str:
    """Return the table in Markdown: rank ± standard deviation, mark, (Δ)."""
    mean, sd, delta = table.mean, table.sd, table.delta
    bold = _is_bold(table, gains)
    failed = table.methods["failed"]
    head = ["Method", *(TITLES[metric] for metric in table.metrics), "Failed"]
    lines = []
    for method in mean.index:
        cells = []
        for metric in table.metrics:
            cell = f"{mean.loc[method, metric]:.1f}"
            if pd.notna(sd.loc[method, metric]):
                cell += f" ± {sd.loc[method, metric]:.1f}"
            if bold.loc[method, metric]:
                cell = f"**{cell}**"
            cell += _mark(gains, method, metric).replace("*", r"\*")
            change = _signed_text(delta.loc[method, metric])
            cells.append(f"{cell} ({change})" if change else cell)
        lines.append([markdown_escape(method), *cells, str(failed[method])])
    legend = (
        f"Average rank ± standard deviation over blocks, 1 is best of {len(mean)}; in "
        f"brackets the rank gained over NoAug. {_bold_means(gains)}"
    )
    notes = (legend, *_notes(table, gains))
    text = [f"**{heading(table)}**", "", *piped(head, lines), ""]
    if gains is not None and not gains.tests.empty:
        tests = [[markdown_escape(name), *rest] for name, *rest in _tested(gains)]
        text += [f"Summary rank gained over {markdown_escape(gains.rival)}:", ""]
        text += [*piped(TESTED, tests), ""]
    return "\n".join([*text, *(f"- {markdown_escape(note)}" for note in notes), ""])


def long_table(table: RankTable, gains: Gains | None = None) -> pd.DataFrame:
    """Return one row per method and metric, with unrounded numbers."""
    parts = {"rank": table.mean, "sd": table.sd, "delta": table.delta}
    long = pd.DataFrame({name: part.T.unstack() for name, part in parts.items()})
    about = table.methods.loc[long.index.get_level_values("method")]
    about = about.drop(columns="base").set_axis(long.index)
    frames = [about, long]
    if gains is not None and not gains.tests.empty:
        frames.append(gains.tests.assign(against=gains.rival).reindex(long.index))
    table_of_all = pd.concat(frames, axis=1).reset_index()
    table_of_all.insert(0, "mechanism", table.mechanism)
    table_of_all.insert(1, "blocks", table.blocks)
    return table_of_all


def csv(table: RankTable, gains: Gains | None = None) -> str:
    """Return `long_table` as CSV, with numbers at full precision."""
    return str(long_table(table, gains).to_csv(index=False, lineterminator="\n"))


def tex_name(table: RankTable, method: str) -> str:
    """Return a method's first cell; variants are indented below their NoAug."""
    base = table.methods.loc[method, "base"]
    if base:
        stem = base.removesuffix("NoAug")
        short = method.removeprefix(stem)
        name = tex_escape(("+" if short != method else "") + short)
        if table.methods.loc[method, "strategy"] == "AugMask":
            name = rf"\textbf{{{name}}}"
        return rf"$\quad\llcorner$ {name}"
    if method in set(table.methods["base"]):
        return tex_escape(method.removesuffix(" + NoAug"))
    return tex_escape(method)


def tex_shade(table: RankTable, method: str) -> str:
    """Return the colour of a method's row."""
    if not table.methods.loc[method, "base"]:
        return ""
    ours = table.methods.loc[method, "strategy"] == "AugMask"
    return rf"\rowcolor{{{'blue!7' if ours else 'gray!10'}}} "


def _tex_line(
    table: RankTable, gains: Gains | None, bold: pd.DataFrame, method: str
) -> str:
    cells = [tex_name(table, method)]
    for metric in table.metrics:
        rank, sd, delta = (
            part.loc[method, metric] for part in (table.mean, table.sd, table.delta)
        )
        cell = f"{rank:.1f}"
        if metric != SUMMARY and pd.notna(sd):
            cell += rf" $\pm$ {{\small {sd:.1f}}}"
        cell += tex_mark(_mark(gains, method, metric))
        cells.append(rf"\textbf{{{cell}}}" if bold.loc[method, metric] else cell)
        change = _signed_text(delta)
        colour = "black!40!red" if change.startswith("-") else "black!60!green"
        cells.append(rf"\textcolor{{{colour}}}{{({change})}}" if change else "--")
    return tex_shade(table, method) + " & ".join(cells) + r" \\"


def tex_groups(table: RankTable, span: int, line: Callable[[str], str]) -> list[str]:
    """Return a line per method, missing-aware baselines first, with titles."""
    aware = table.methods["aware"].astype(bool)
    groups = [
        ("(A) Missing-aware baselines", list(aware.index[aware])),
        ("(B) Missing-unaware baselines", list(aware.index[~aware])),
    ]
    lines = []
    for title, methods in groups:
        if not methods:
            continue
        # a single group needs no title
        if aware.any() and not aware.all():
            lines += [
                r"\midrule",
                rf"\multicolumn{{{span}}}{{l}}{{\textbf{{{title}}}}} \\",
            ]
        lines += [r"\midrule", *map(line, methods)]
    return lines


def _tex_body(table: RankTable, gains: Gains | None) -> list[str]:
    bold = _is_bold(table, gains)

    def line(method: str) -> str:
        return _tex_line(table, gains, bold, method)

    return tex_groups(table, 1 + 2 * len(table.metrics), line)


def _tex_head(metrics: Sequence[str]) -> list[str]:
    """Return the three header lines: group, metric, Rank and Δ."""
    quality = sum(metric not in ("mle", SUMMARY) for metric in metrics)
    groups, lines, at = [""], [], 2
    for title, many in (
        ("Generative Quality", quality),
        ("Utility", "mle" in metrics),
    ):
        if many:
            groups.append(rf"\multicolumn{{{2 * many}}}{{c}}{{\textbf{{{title}}}}}")
            lines.append(rf"\cmidrule(lr){{{at}-{at + 2 * many - 1}}}")
            at += 2 * many
    groups.append(r"\multicolumn{2}{c}{}")
    names = [rf"\multicolumn{{2}}{{c}}{{\textbf{{{TEX[name]}}}}}" for name in metrics]
    return [
        " & ".join(groups) + r" \\",
        "".join(lines),
        " & ".join([r"\textbf{Method}", *names]) + r" \\",
        " & ".join(["", *[r"Rank & $\Delta$"] * len(metrics)]) + r" \\",
    ]


def latex(table: RankTable, gains: Gains | None = None) -> str:
    """Return the table as the paper sets it.

    It needs the packages booktabs, graphicx, amssymb and xcolor with the option table.
    """
    failed = table.methods["failed"]
    broken = [f"{name} {count}" for name, count in failed[failed > 0].items()]
    caption = [
        rf"\textbf{{{tex_escape(heading(table))}.}}",
        rf"Average rank ($\downarrow$) $\pm$ {{\small standard deviation}} over blocks "
        f"of {len(failed)} methods; Summary: mean rank over the metrics within a "
        r"block; $\Delta$: rank gained over \texttt{+NoAug}.",
        _bold_means(gains),
        *(tex_escape(note) for note in _notes(table, gains)),
    ]
    if broken:
        caption.append(tex_escape(f"Failed runs, ranked last: {', '.join(broken)}."))
    return "\n".join(
        [
            r"% \usepackage{booktabs,graphicx,amssymb}",
            r"% \usepackage[table]{xcolor}",
            r"\begin{table*}[t]",
            r"\centering",
            r"\small",
            r"\setlength{\tabcolsep}{2.5pt}",
            rf"\caption{{{' '.join(caption)}}}",
            rf"\label{{tab:ranks-{table.mechanism}}}",
            r"\resizebox{\linewidth}{!}{%",
            rf"\begin{{tabular}}{{l *{{{len(table.metrics)}}}{{cc}}}}",
            r"\toprule",
            *_tex_head(table.metrics),
            *_tex_body(table, gains),
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table*}",
            "",
        ]
    )
