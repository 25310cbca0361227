from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from augmask.evaluation.evaluate import evaluate
from augmask.evaluation.scores import Entry, Scores
from augmask.report.verdict import grade, headline, judged, overall, strip
from augmask.table.frames import read_frame

HERE = Path(__file__).parents[2]
DATA = Path(os.environ.get("AUGMASK_DATA", HERE.parent / "shared" / "data"))


def scores(entries, **facts):
    return Scores(entries, {}, facts)


@pytest.mark.parametrize(
    ("value", "reference", "floor", "better", "expected"),
    [
        (0.98, 0.98, 0.6, "higher", "good"),
        (0.95, 0.98, 0.6, "higher", "good"),  # 8 % of the way down
        (0.90, 0.98, 0.6, "higher", "fair"),
        (0.70, 0.98, 0.6, "higher", "poor"),
        (0.965, 0.98, 0.99, "higher", "good"),  # the floor is no yardstick here
        (0.93, 0.98, None, "higher", "fair"),
        (0.62, 0.50, 0.1, "reference", "fair"),
        (0.90, 0.50, 0.1, "reference", "poor"),
        (0.02, 0.01, 0.3, "lower", "good"),
        (0.30, 0.01, 0.3, "lower", "poor"),
        (0.90, None, 0.1, "higher", "open"),
    ],
)
def test_grades_follow_the_rule(value, reference, floor, better, expected):
    entry = Entry(value, reference, floor, "fidelity", better, "Shape", "")
    assert grade(entry) == expected


def test_an_auc_below_a_guess_is_a_fault_and_below_real_rows_is_none():
    def auc(value, reference):
        return grade(
            Entry(value, reference, 0.98, "detection", "reference", "C2ST AUC", "")
        )

    assert auc(0.6, 0.7) == "good"
    assert auc(0.52, 0.5) == "good"
    assert auc(0.2, 0.5) == "poor"


def test_more_recall_than_real_rows_reach_is_called_copying():
    entry = Entry(0.9, 0.5, 0.1, "coverage", "reference", "β-recall", "")
    assert "copying" in judged(scores({"beta_recall": entry}), "beta_recall").sentence


def test_privacy_is_judged_by_its_tests():
    found = {"dcr_share": Entry(0.515, 0.5, None, "privacy", "lower", "DCR", "")}
    assert judged(scores(found, flagged=[]), "dcr_share").grade == "good"
    assert judged(scores(found, flagged=["dcr_share"]), "dcr_share").grade == "poor"


def test_the_strip_prefers_the_papers_numbers_and_shows_the_worst_beside_them():
    def one(name):
        return Entry(0.9, 0.95, 0.5, "fidelity", "higher", name, "")

    keys = ("shape_remasked", "c2st_auc", "shape", "trend", "alpha_precision")
    more = ("beta_recall", "mle", "dcr_share", "trend_worst")
    chosen = strip(scores({key: one(key) for key in (*keys, *more)}))
    assert [v.key for v in chosen] == [
        *("shape", "trend", "alpha_precision", "beta_recall", "mle"),
        *("c2st_auc", "trend_worst"),
    ]
    few = strip(scores({key: one(key) for key in keys[:2]}))
    assert [v.key for v in few] == ["shape_remasked", "c2st_auc"]
    assert "as good as real rows" in headline(chosen)
    assert "copied" in headline(chosen, 2)


@pytest.mark.parametrize(
    ("value", "floor", "noise", "expected"),
    [
        (0.88, 0.60, 0.04, "good"),  # chance explains it
        (0.80, 0.60, 0.04, "poor"),  # chance does not
        (0.88, 0.60, 0.20, "open"),  # chance would explain a poor one too
        (0.91, 0.60, 0.50, "open"),  # nothing can be seen in so few rows
    ],
)
def test_what_chance_explains_is_no_fault(value, floor, noise, expected):
    entry = Entry(
        value, 0.91, floor, "fidelity", "higher", "Trend", "", None, noise=noise
    )
    assert grade(entry) == expected
    sentence = judged(scores({"trend": entry}), "trend").sentence
    assert ("Too few rows" in sentence) == (expected == "open")


def test_fewer_rows_of_the_reference_are_no_excuse():
    # 0.94 seems better than 0.93, but on as many rows it is 0.89: at the floor.
    entry = Entry(
        0.94, 0.93, 0.94, "fidelity", "higher", "Trend", "", alike=0.89, noise=0.01
    )
    found = judged(scores({"trend": entry}), "trend")
    assert found.grade == "poor"
    assert "0.89 against 0.93 on as many rows" in found.sentence
    assert found.mark == pytest.approx(0.98)


def test_an_auc_below_a_guess_is_said_to_come_from_rows_in_both_tables():
    def said(value, reference):
        entry = Entry(value, reference, 0.9, "detection", "reference", "C2ST", "")
        return judged(scores({"c2st_auc": entry}), "c2st_auc").sentence

    assert "in both tables" in said(0.2, 0.5)
    # Good only because real rows are as easy to tell apart.
    assert "cannot" not in said(0.68, 0.7)
    assert "no better than real rows from each other (0.70)" in said(0.68, 0.7)


def test_a_floor_on_the_right_side_is_no_way_down():
    # Independent columns have better single columns than half of the real rows.
    entry = Entry(0.88, 0.92, 0.99, "fidelity", "higher", "Shape", "")
    assert grade(entry) == "fair"


def test_a_fill_rule_does_not_count_as_synthetic_rows():
    rows = Entry(0.95, 0.95, 0.5, "incomplete", "higher", "Shape", "")
    rule = Entry(0.5, 0.8, None, "held-out", "reference", "Held-out coverage", "")
    cards = strip(scores({"shape_remasked": rows, "held_out_coverage_80": rule}))
    assert headline(cards) == (
        "Good by its worst number: 1 of 1 is as good as real rows; look at Held-out "
        "coverage first."
    )
    assert "not about the synthetic rows" in cards[1].against
    assert "1 privacy check points" in headline(cards, 1)


@pytest.mark.parametrize(
    ("key", "group", "complete", "expected"),
    [
        ("shape", "fidelity", True, "the real table"),
        ("shape", "fidelity", False, "the complete test rows"),
        ("c2st_auc", "detection", False, "with holes put in against observed cells"),
        ("dcr_share_observed", "privacy", False, "test rows, on observed cells"),
    ],
)
def test_every_number_says_what_it_was_compared_with(key, group, complete, expected):
    entry = Entry(0.9, 0.9, 0.5, group, "higher", "", "")
    found = judged(scores({key: entry}, complete=complete), key)
    assert found.against.endswith(expected)


@pytest.mark.parametrize("holes", [0.0, 0.3])
def test_fresh_rows_of_a_small_table_are_never_called_poor(holes):
    graded = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        drawn = []
        for _ in range(2):
            x = rng.normal(size=(200, 1))
            frame = pd.DataFrame(x + rng.normal(size=(200, 3)), columns=list("xyz"))
            drawn.append(frame.assign(word=np.where(x[:, 0] > 0, "up", "down")))
        real = drawn[0].mask(rng.random(drawn[0].shape) < holes)
        found = evaluate(real, drawn[1], seed=seed, fill=None, n_jobs=1)
        graded += [judged(found, key).grade for key in found.entries]
    assert "poor" not in graded
    assert graded.count("good") > len(graded) / 3


def clusters(seed, n, columns, holes=0.0):
    """Return a table of which one column in five depends on another."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, columns))
    x[:, 1::5] = x[:, 0::5][:, : x[:, 1::5].shape[1]] + 0.2 * x[:, 1::5]
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(columns)])
    for j in range(2, columns, 5):
        frame[f"x{j}"] = np.where(frame[f"x{j - 1}"] > 0, "up", "down")
    return frame.mask(rng.random(frame.shape) < holes)


def shuffled(frame, seed=1):
    """Return columns that are right one by one, and nothing else."""
    rng = np.random.default_rng(seed)
    drawn = {name: rng.choice(frame[name].dropna(), len(frame)) for name in frame}
    return pd.DataFrame(drawn)


@pytest.mark.parametrize("holes", [0.0, 0.3])
@pytest.mark.parametrize(("n", "columns"), [(400, 5), (800, 30)])
def test_independent_columns_are_poor(n, columns, holes):
    real = clusters(0, n, columns, holes)
    found = evaluate(real, shuffled(real), fill=None, n_jobs=1)
    cards = strip(found)
    assert overall(cards) == "poor"
    assert headline(cards).startswith("Poor")
    assert "fair" not in {v.grade for v in cards if v.key.startswith("trend_worst")}


@pytest.mark.parametrize("holes", [0.0, 0.3])
def test_fresh_rows_of_a_wide_table_are_not_poor(holes):
    found = evaluate(clusters(0, 800, 30, holes), clusters(1, 800, 30), fill=None)
    assert overall(strip(found)) == "good"


def test_the_worst_number_is_the_verdict():
    def card(value, title="Trend"):
        return Entry(value, 0.98, 0.6, "fidelity", "higher", title, "")

    good = strip(scores({"shape": card(0.98), "trend": card(0.98)}))
    fair = strip(scores({"shape": card(0.98), "trend": card(0.9)}))
    poor = strip(scores({"shape": card(0.9), "trend": card(0.7)}))
    assert [overall(cards) for cards in (good, fair, poor)] == ["good", "fair", "poor"]
    rule = Entry(0.5, 0.8, None, "held-out", "reference", "Held-out coverage", "")
    held = strip(scores({"shape": card(0.98), "held_out_coverage_80": rule}))
    assert overall(held) == "good"  # a fill rule is no synthetic row
    assert overall([]) == "open"


@pytest.mark.parametrize("name", ["airquality", "pbc", "smoking", "flchain", "star"])
def test_independent_columns_of_real_tables_are_poor(name):
    path = DATA / f"incomplete-{name}.csv.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there; set AUGMASK_DATA to its folder")
    real = read_frame(path)
    real = real.sample(min(len(real), 800), random_state=0, ignore_index=True)
    found = evaluate(real, shuffled(real), fill=None)
    assert overall(strip(found)) == "poor"
