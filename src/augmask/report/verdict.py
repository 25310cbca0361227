"""A grade and a sentence for every metric, by rule.

With v the value, r the reference (what other real rows score) and f the floor (what
independent columns score):

* gap = how far v is worse than r (or off it, where closeness is best);
* scale = the distance from r to f, or `SCALE` if there is no usable floor;
* good: gap <= `SLACK`, gap within the noise of v - r, or gap / scale <= `GOOD`;
  fair: gap / scale <= `FAIR`; poor: all else;
* open (not graded): no reference, or noise so large that it could hide a poor value.
  Privacy metrics are graded by their own significance tests.

The table has the grade of its worst card: means over columns and pairs can be high
although the few dependencies of a wide table are lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from augmask.evaluation.results import Entry, Scores

SLACK = 0.01
SCALE = 0.2
GOOD, FAIR = 0.1, 0.35
# A floor this close to the reference, or within twice the noise, is not usable.
MIN_SCALE = 0.02
# AUC of random guessing.
CHANCE = 0.5

RULES = (
    f"Good: within {SLACK} of what other real rows score, within sampling noise (2.5 "
    f"standard errors), or at most {GOOD:.0%} of the way from there to independent "
    f"columns. Fair: up to {FAIR:.0%} of the way. Poor: worse. If independent columns "
    "were not scored or do no worse than real rows, the whole way counts as "
    f"{SCALE}. A metric is not graded if noise alone could hide a poor value. Shape "
    "and Trend are compared on equal numbers of rows. A privacy metric is poor if a "
    "significance test flags it. The table has the grade of its worst metric above."
)

# A card for each tuple: the first key that was measured. The paper's five metrics or
# what comes closest, then those that show what a mean hides.
CARDS = (
    ("shape", "shape_remasked"),
    ("trend", "trend_remasked"),
    ("alpha_precision",),
    ("beta_recall", "dcr_share_observed", "rate_gap"),
    ("mle", "dcr_share", "dcr_share_observed", "held_out_coverage_80"),
    ("c2st_auc",),
    ("trend_worst", "trend_worst_remasked"),
)
# Groups that are compared with complete test rows if the real table is incomplete.
ON_TEST = ("fidelity", "coverage")


@dataclass(frozen=True)
class Verdict:
    """A metric with its grade: "good", "fair", "poor" or "open".

    `mark` is the reference as it would be on as many rows as the value has, `compared`
    says which rows were compared.
    """

    key: str
    entry: Entry
    mark: float | None
    grade: str
    sentence: str
    compared: str


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _comparable(entry: Entry) -> float:
    """Return the value on as many rows as the reference has."""
    return entry.value if entry.comparable is None else entry.comparable


def _mark(entry: Entry) -> float | None:
    """Return the reference on as many rows as the value has."""
    reference = _finite(entry.reference)
    return None if reference is None else reference + entry.value - _comparable(entry)


def _scale(entry: Entry, mark: float) -> float:
    """Return how much worse independent columns are than real rows."""
    floor = _finite(entry.floor)
    if floor is None:
        return SCALE
    below = mark - floor
    distance = {"higher": below, "lower": -below, "reference": abs(below)}[entry.better]
    return distance if distance >= max(MIN_SCALE, 2 * entry.noise) else SCALE


def grade(entry: Entry) -> str:
    """Return the grade of a metric by the rules above.

    Examples
    --------
    >>> entry = Entry(0.93, 0.98, 0.60, "fidelity", "higher", "Trend", "")
    >>> grade(entry)
    'fair'
    """
    v, r, mark = _comparable(entry), entry.reference, _mark(entry)
    if not math.isfinite(v) or r is None or mark is None:
        return "open"
    gap = {"higher": r - v, "lower": v - r, "reference": abs(v - r)}[entry.better]
    if entry.group == "detection":
        # Being less detectable than real rows is fine, unless it is below chance.
        gap = max(v - max(r, CHANCE), min(r, CHANCE) - v)
    scale = _scale(entry, mark)
    if gap <= SLACK or gap / scale <= GOOD:
        return "open" if entry.noise > max(SLACK, scale) else "good"
    if gap <= entry.noise:
        return "open" if entry.noise / scale > FAIR else "good"
    return "fair" if gap / scale <= FAIR else "poor"


def _sentence(entry: Entry, graded: str) -> str:
    v, r, group = entry.value, _finite(entry.reference), entry.group
    if r is None:
        return "Not graded: there is no reference."
    if group == "privacy":
        sign = "No sign" if graded == "good" else "A sign"
        return f"{sign} of copying; about {r:.2f} is expected without it."
    if graded == "open":
        return f"Too few rows to grade: noise alone may move it by {entry.noise:.2f}."
    good, fair = graded == "good", graded == "fair"
    floor = "" if good or entry.floor is None else f" Independent: {entry.floor:.2f}."
    if group == "coverage" and entry.better == "reference" and v > r and not good:
        return f"Above the {r:.2f} of unseen real rows, a sign of copying."
    if group == "held-out":
        if good:
            return "Intervals for hidden values are calibrated."
        return f"Intervals for hidden values are too {'narrow' if v < r else 'wide'}."
    if group == "detection":
        if good:
            return f"As hard to tell from real rows as other real rows ({r:.2f})."
        if v < CHANCE:
            return "Below chance (0.50): the same rows seem to be in both tables."
        return f"{'Partly' if fair else 'Easily'} told from real rows.{floor}"
    if group == "utility":
        if good:
            return "A model learns as much from it as from real rows."
        less = "somewhat" if fair else "much"
        return f"A model learns {less} less from it than from real rows.{floor}"
    others = f" ({r:.2f})"
    if entry.comparable is not None:
        others = f" ({entry.comparable:.2f} against {r:.2f} on equally many rows)"
    if good:
        return f"As good as other real rows{others}."
    size = "Somewhat" if fair else "Far"
    side = "below" if entry.better != "lower" else "above"
    return f"{size} {side} other real rows{others}.{floor}"


def _compared(scores: Scores, key: str) -> str:
    """Return which rows a metric compares."""
    group, facts = scores.entries[key].group, scores.facts
    if group == "held-out":
        return "augmenter against hidden values; not about the synthetic rows"
    if group == "privacy":
        cells = ", on observed values" if key.endswith("_observed") else ""
        return f"training rows against test rows{cells}"
    if group == "utility":
        return "predictions for the test rows"
    if facts.get("complete", True):
        return "synthetic rows against the real table"
    if group in ON_TEST:
        return "synthetic rows against the complete test rows"
    if key.endswith("_complete"):
        return "complete synthetic rows against observed values"
    return "re-masked synthetic rows against observed values"


def verdict(scores: Scores, key: str) -> Verdict:
    """Return one metric with its grade and sentence."""
    entry = scores.entries[key]
    graded = grade(entry)
    if entry.group == "privacy":
        # Tested for significance where it was measured.
        graded = "poor" if key in scores.facts.get("flagged", ()) else "good"
    sentence = _sentence(entry, graded)
    return Verdict(key, entry, _mark(entry), graded, sentence, _compared(scores, key))


def cards(scores: Scores) -> list[Verdict]:
    """Return the most important of the metrics that were measured."""
    chosen: list[str] = []
    for keys in CARDS:
        measured = [k for k in keys if k in scores.entries and k not in chosen]
        chosen += measured[:1]
    return [verdict(scores, key) for key in chosen]


def _about_rows(verdicts: list[Verdict]) -> list[Verdict]:
    """Return the graded metrics of synthetic rows; held-out ones are not about them."""
    return [v for v in verdicts if v.entry.group != "held-out" and v.grade != "open"]


def overall(verdicts: list[Verdict]) -> str:
    """Return the grade of the table: that of its worst card.

    Examples
    --------
    >>> overall([])
    'open'
    """
    grades = {v.grade for v in _about_rows(verdicts)}
    return next((g for g in ("poor", "fair", "good") if g in grades), "open")


def headline(verdicts: list[Verdict], n_flagged: int = 0) -> str:
    """Return one sentence over all cards, and one more if rows may be copied.

    Examples
    --------
    >>> headline([])
    'Nothing was measured.'
    """
    if not verdicts:
        return "Nothing was measured."
    about_rows = _about_rows(verdicts)
    n_good = sum(v.grade == "good" for v in about_rows)
    poor = [v.entry.title for v in verdicts if v.grade == "poor"]
    text = "Nothing could be graded: too few rows, or no reference"
    if about_rows:
        text = (
            f"{overall(verdicts).capitalize()} by its worst metric: {n_good} of "
            f"{len(about_rows)} metrics on a par with other real rows"
        )
    if poor:
        text += f"; look at {', '.join(poor)} first"
    elif about_rows:
        text += "; none is poor"
    if n_flagged:
        checks = "check points" if n_flagged == 1 else "checks point"
        text += f". {n_flagged} privacy {checks} to copied rows"
    return f"{text}."
