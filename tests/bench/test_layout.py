from __future__ import annotations

import io
import re
from csv import DictReader

import numpy as np
import pytest

from augmask_bench.layout import csv, latex, long_table, markdown, terminal
from augmask_bench.ranks import rank_table
from augmask_bench.significance import gains

from .synthetic_results import break_runs, make_results

LIFTS = {
    "MIWAE": 0.0,
    "ForestDiff": 0.01,
    "CDTD + NoAug": -0.1,
    "CDTD + AugFull": 0.01,
    "CDTD + AugMask": 0.1,
    "50%_A & {B} | C^2": -0.05,
}


@pytest.fixture
def table():
    results = make_results(LIFTS, noise=0.005, datasets=3, seeds=3)
    return rank_table(break_runs(results, "CDTD + NoAug", seed=0, ratio=0.1))


@pytest.fixture
def found(table):
    return gains(table, np.random.default_rng(0))


def cells(line):
    """Return the cells of a LaTeX line, one that spans columns as often as it does."""
    assert line.endswith(r"\\")
    parts = re.split(r"(?<!\\)&", line.removesuffix(r"\\"))
    spans = [re.search(r"\\multicolumn\{(\d+)\}", part) for part in parts]
    return [
        part.strip()
        for part, span in zip(parts, spans, strict=True)
        for _ in range(int(span[1]) if span else 1)
    ]


def test_the_terminal_shows_aligned_ranks_with_marks_and_notes(table, found):
    lines = terminal(table, found).splitlines()
    assert lines[0] == "MCAR, 18 blocks: 3 datasets × 2 missing ratios × 3 seeds"
    titles = "α-Prec. β-Rec. Trend Shape ML Task Summary Δ failed"
    assert lines[2].split() == titles.split()
    body = {line[:18].strip(): line for line in lines[3:9]}
    assert list(body) == list(table.methods.index)
    best = body["CDTD + AugMask"]
    assert best.split()[3:9] == ["1.0**"] * 6
    assert body["CDTD + NoAug"].split()[-1] == "3"
    # points of numbers stand below each other
    assert (
        len(
            {
                tuple(m.start() for m in re.finditer(r"\.\d", line))[:6]
                for name, line in body.items()
                if "%" not in name
            }
        )
        == 1
    )
    notes = "\n".join(lines[9:])
    assert max(len(line) for line in lines[22:]) <= 80
    for words in ("** Gain", "not independent", "score 0", "rank gained over NoAug"):
        assert words in notes.replace("\n", " ")


def test_without_tests_and_failures_their_columns_are_omitted():
    table = rank_table(make_results({"A + NoAug": 0, "A + AugMask": 0.1}, datasets=1))
    text = terminal(table, gains(table, np.random.default_rng(0)))
    assert "failed" not in text.splitlines()[2]
    assert "*" not in text
    assert "No missing-aware baseline" in text
    assert "1 dataset × 2" in text


def test_markdown_rows_survive_odd_names_of_methods(table, found):
    text = markdown(table, found)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    ranks, tests = rows[:8], rows[8:]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in ranks} == {9}
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in tests} == {6}
    assert len(tests) == 2 + 4
    assert r"| 50%\_A & {B} \| C^2 |" in text
    line = next(row for row in ranks if "AugMask" in row)
    delta = f"{table.delta.loc['CDTD + AugMask', 'shape']:+.1f}"
    assert rf"**1.0 ± 0.0**\*\* ({delta})" in line


def test_the_csv_has_full_precision(table, found):
    lines = list(DictReader(io.StringIO(csv(table, found))))
    long = long_table(table, found)
    assert len(lines) == len(LIFTS) * 6
    for name in ("rank", "sd", "delta", "difference", "p", "p_holm", "p_datasets"):
        back = [float(line[name] or "nan") for line in lines]
        np.testing.assert_array_equal(back, long[name])
    for line in lines:
        method, metric = line["method"], line["metric"]
        assert float(line["rank"]) == table.mean.loc[method, metric]
        tested = method not in ("MIWAE", "ForestDiff")
        assert (line["p"] != "") == tested
        assert line["against"] == (found.rival if tested else "")


def test_latex_is_balanced(table, found):
    text = latex(table, found)
    bare = re.sub(r"\\[{}%&\\]", "", text)
    depth = np.cumsum([(sign == "{") - (sign == "}") for sign in bare])
    assert depth.min() == 0
    assert depth[-1] == 0
    opened = re.findall(r"\\begin\{(.*?)\}", text)
    assert opened == re.findall(r"\\end\{(.*?)\}", text)[::-1] == ["table*", "tabular"]
    inside = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    lines = [line for line in inside.splitlines() if line.endswith(r"\\")]
    assert {len(cells(line)) for line in lines} == {13}
    assert len(lines) == 3 + 2 + len(LIFTS)
    # nothing outside comments is taken for one
    assert not re.search(r"(?m)^[^%\n].*(?<!\\)%.", text)
    assert all(sign.isascii() for sign in text)


def test_latex_has_the_paper_s_layout(table, found):
    lines = latex(table, found).splitlines()
    start = next(i for i, line in enumerate(lines) if "(A) Missing-aware" in line)
    assert lines[start + 2].startswith("ForestDiff & ")
    assert "(B) Missing-unaware" in lines[start + 5]
    odd, base, full, mask = lines[start + 7 : start + 11]
    assert odd.startswith(r"50\%\_A \& \{B\} | C\textasciicircum{}2 & ")
    assert base.startswith("CDTD & ")
    assert cells(base)[2] == "--"
    assert full.startswith(r"\rowcolor{gray!10} $\quad\llcorner$ +AugFull & ")
    assert mask.startswith(r"\rowcolor{blue!7} $\quad\llcorner$ \textbf{+AugMask} & ")
    assert cells(mask)[1] == r"\textbf{1.0 $\pm$ {\small 0.0}$^{**}$}"
    assert cells(mask)[2].startswith(r"\textcolor{black!60!green}{(+")
    # the paper gives no deviation of the summary
    assert cells(mask)[-2] == r"\textbf{1.0$^{**}$}"


def test_without_a_rival_bold_is_the_best_rank():
    table = rank_table(make_results({"A + NoAug": 0.0, "A + AugMask": 0.1}))
    text = latex(table, gains(table, np.random.default_rng(0)))
    assert text.count(r"\textbf{1.0") == 6
    assert r"\textbf{2.0" not in text
    assert "(A)" not in text
    worse = rank_table(make_results({"A + NoAug": 0.1, "A + AugMask": 0.0}))
    assert r"\textcolor{black!40!red}{(-1.0)}" in latex(worse)


def test_a_metric_that_was_not_measured_has_no_column():
    results = make_results({"A + NoAug": 0.0, "A + AugMask": 0.1}).assign(mle=np.nan)
    table = rank_table(results)
    text = latex(table)
    assert "Utility" not in text
    assert "ML Task was not measured." in text
    assert r"\begin{tabular}{l *{5}{cc}}" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {len(cells(line)) for line in rows} == {11}
    assert "ML Task" not in terminal(table).splitlines()[2]
