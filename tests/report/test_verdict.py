from __future__ import annotations

import pytest

from augmask.evaluation.scores import Entry, Scores
from augmask.report.verdict import grade, headline, judged, strip


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


def test_the_strip_takes_five_and_prefers_the_papers_numbers():
    def one(name):
        return Entry(0.9, 0.95, 0.5, "fidelity", "higher", name, "")

    keys = ("shape_remasked", "c2st_auc", "shape", "trend", "alpha_precision")
    more = ("beta_recall", "mle", "dcr_share")
    chosen = strip(scores({key: one(key) for key in (*keys, *more)}))
    assert [v.key for v in chosen] == [
        *("shape", "trend", "alpha_precision", "beta_recall", "mle")
    ]
    few = strip(scores({key: one(key) for key in keys[:2]}))
    assert [v.key for v in few] == ["shape_remasked", "c2st_auc"]
    assert "as good as real rows" in headline(chosen)
    assert "copied" in headline(chosen, 2)
