"""A number, what it is read against, and the sentence that follows by rule.

With v the value, r what other real rows score (the ceiling) and f what independent
columns score (the floor):

* short = how far v lies on the wrong side of r (either side, if nearness is good);
* yard = |r - f|, or `YARD` when there is no floor or the floor is as good as r, as it
  is for single columns;
* good: short <= `SLACK`, or short / yard <= `GOOD`; fair: short / yard <= `FAIR`;
  poor: all else. A number without a reference is not judged. Privacy is judged by the
  tests that were made with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from augmask.evaluation.scores import Entry, Scores

SLACK = 0.01
YARD = 0.2
GOOD, FAIR = 0.1, 0.35
# A floor this near to the ceiling cannot serve as a yardstick.
NEAR = 0.05
# AUC of a guess.
GUESS = 0.5

RULES = (
    f"A number is “good” if it misses what other real rows score by at most {SLACK}, "
    f"or by at most {GOOD:.0%} of the way down to independent columns; “fair” up to "
    f"{FAIR:.0%}; else “poor”. Where independent columns score as high as real rows, "
    f"or were not measured, the way down counts as {YARD}. Privacy is “poor” where a "
    "test says that the difference is more than chance."
)

# The paper's five numbers where they apply, and what says most of the others.
FIVE = (
    ("shape", "shape_remasked"),
    ("trend", "trend_remasked"),
    ("alpha_precision", "c2st_auc"),
    ("beta_recall", "held_out_coverage_80"),
    ("mle", "dcr_share", "dcr_share_observed", "c2st_auc", "rate_gap"),
)


@dataclass(frozen=True)
class Verdict:
    """One card of the strip.

    Parameters
    ----------
    key, title, meaning : str
    value : float
    reference, floor : float or None
    grade : {"good", "fair", "poor", "open"}
    sentence : str
    """

    key: str
    title: str
    meaning: str
    value: float
    reference: float | None
    floor: float | None
    grade: str
    sentence: str


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def grade(entry: Entry) -> str:
    """Return how good a number is by the rules above.

    Examples
    --------
    >>> entry = Entry(0.93, 0.98, 0.60, "fidelity", "higher", "Trend", "")
    >>> grade(entry)
    'fair'
    """
    v, r, f = entry.value, entry.reference, entry.floor
    if not math.isfinite(v) or r is None or not math.isfinite(r):
        return "open"
    signed = {"higher": r - v, "lower": v - r, "reference": abs(v - r)}[entry.better]
    if entry.group == "detection":
        # Less than real rows is no fault, unless it is less than a guess.
        signed = max(v - r, GUESS - v)
    yard = abs(r - f) if f is not None and math.isfinite(f) else YARD
    if yard < NEAR:
        yard = YARD
    if signed <= SLACK or signed / yard <= GOOD:
        return "good"
    return "fair" if signed / yard <= FAIR else "poor"


def _sentence(entry: Entry, graded: str) -> str:
    v, r, f = entry.value, entry.reference, entry.floor
    if r is None or graded == "open":
        return "It was measured without a reference, so it is not judged."
    floor = f is not None and math.isfinite(f) and abs(r - f) >= NEAR
    beside = f" Independent columns: {f:.2f}." if floor and graded != "good" else ""
    good = graded == "good"
    some = {"good": "no", "fair": "somewhat", "poor": "far"}[graded]
    if entry.group == "privacy":
        found = "No sign of copying" if good else "A sign of copying"
        return f"{found}; without copies it is about {r:.2f}."
    if entry.group == "coverage" and entry.better == "reference" and v > r and not good:
        return f"More than the {r:.2f} of unseen real rows: a sign of copying."
    if entry.group == "held-out":
        if good:
            return "Intervals for hidden cells hold what they promise."
        return f"Intervals for hidden cells are too {'narrow' if v < r else 'wide'}."
    if entry.group == "detection":
        can = {"good": "cannot", "fair": "can partly", "poor": "can"}[graded]
        return f"Trees {can} tell it from real rows, where 0.50 is a guess.{beside}"
    if entry.group == "utility":
        if good:
            return "A model learns as much from it as from real rows."
        less = "somewhat" if graded == "fair" else "much"
        return f"A model learns {less} less from it than from real rows.{beside}"
    if good:
        return f"As good as other real rows, which score {r:.2f}."
    side = "below" if entry.better != "lower" else "above"
    return f"{some.capitalize()} {side} other real rows, which score {r:.2f}.{beside}"


def judged(scores: Scores, key: str) -> Verdict:
    """Return one number with its grade and sentence."""
    entry = scores.entries[key]
    graded = grade(entry)
    if entry.group == "privacy":
        # Whether these differ by more than chance was tested where they were taken.
        graded = "poor" if key in scores.facts.get("flagged", ()) else "good"
    return Verdict(
        key,
        entry.title,
        entry.meaning,
        entry.value,
        entry.reference if _known(entry.reference) else None,
        entry.floor if _known(entry.floor) else None,
        graded,
        _sentence(entry, graded),
    )


def strip(scores: Scores) -> list[Verdict]:
    """Return the five numbers that matter most, of those that were measured."""
    chosen: list[str] = []
    for keys in FIVE:
        found = [key for key in keys if key in scores.entries and key not in chosen]
        chosen += found[:1]
    return [judged(scores, key) for key in chosen]


def headline(verdicts: list[Verdict], n_flagged: int = 0) -> str:
    """Return one sentence over all cards, and one more if rows seem to be copied.

    Examples
    --------
    >>> headline([])
    'Nothing was measured.'
    """
    if not verdicts:
        return "Nothing was measured."
    counted = {g: [v.title for v in verdicts if v.grade == g] for g in ("good", "poor")}
    n_judged = sum(v.grade != "open" for v in verdicts)
    if not n_judged:
        return "Nothing here could be judged against a reference."
    n_good = len(counted["good"])
    are = "is" if n_good == 1 else "are"
    text = f"{n_good} of {n_judged} numbers {are} as good as real rows"
    text += (
        f"; look at {', '.join(poor)} first."
        if (poor := counted["poor"])
        else ("; none is poor.")
    )
    if n_flagged:
        text += f" {n_flagged} privacy checks point to copied rows."
    return text
