"""A number, what it is read against, and the sentence that follows by rule.

With v the value, r what other real rows score (the ceiling) and f what independent
columns score (the floor); v is taken on as many rows as r where that matters:

* short = how far v lies on the wrong side of r (either side, if nearness is good);
* yard = the way from r down to f, or `YARD` when there is no floor or the floor is as
  good as r, as it is for single columns;
* good: short <= `SLACK`, within the noise of v - r, or short / yard <= `GOOD`; fair:
  short / yard <= `FAIR`; poor: all else.
* open, not judged: there is no reference, or short is within a noise so wide that it
  would hide a poor number too. Privacy is judged by the tests that were made with it.

The table as a whole is as good as the worst of its cards: means over columns and pairs
can be high where a few dependences, which are all that a wide table has, are lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from augmask.evaluation.scores import Entry, Scores

SLACK = 0.01
YARD = 0.2
GOOD, FAIR = 0.1, 0.35
# A floor this near to the ceiling, or within twice the noise, is no yardstick.
NEAR = 0.02
# AUC of a guess.
GUESS = 0.5

RULES = (
    f"A number is “good” if it misses what other real rows score by at most {SLACK}, "
    "by no more than chance (two and a half standard errors), or by at most "
    f"{GOOD:.0%} of the way down to independent columns; “fair” up to {FAIR:.0%}; else "
    "“poor”. Where independent columns score as high as real rows, or were not "
    f"measured, the way down counts as {YARD}. Where chance alone could hide a poor "
    "number, it is not judged. Shape and Trend are compared on as many rows as the "
    "reference has. Privacy is “poor” where a test says that the difference is more "
    "than chance. The table as a whole is as good as the worst number above."
)

# The paper's five numbers where they apply, and what says most of the others; then
# those that see what a mean hides.
CARDS = (
    ("shape", "shape_remasked"),
    ("trend", "trend_remasked"),
    ("alpha_precision",),
    ("beta_recall", "dcr_share_observed", "rate_gap"),
    ("mle", "dcr_share", "dcr_share_observed", "held_out_coverage_80"),
    ("c2st_auc",),
    ("trend_worst", "trend_worst_remasked"),
)
# What else is compared with complete test rows when the real table has holes.
ON_TEST = ("fidelity", "coverage")


@dataclass(frozen=True)
class Verdict:
    """One card of the strip.

    Parameters
    ----------
    key, group, title, meaning : str
    value : float
    reference, floor : float or None
    mark : float or None
        The reference as it would be on as many rows as the value has.
    grade : {"good", "fair", "poor", "open"}
    sentence : str
    against : str
        Which rows were compared.
    """

    key: str
    group: str
    title: str
    meaning: str
    value: float
    reference: float | None
    floor: float | None
    mark: float | None
    grade: str
    sentence: str
    against: str


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _alike(entry: Entry) -> float:
    """Return the value on as many rows as the reference has."""
    return entry.value if entry.alike is None else entry.alike


def _mark(entry: Entry) -> float | None:
    """Return the reference on as many rows as the value has."""
    if entry.reference is None or not math.isfinite(entry.reference):
        return None
    return entry.reference + entry.value - _alike(entry)


def _way_down(entry: Entry, mark: float) -> float:
    """Return how far independent columns lie on the wrong side of real rows."""
    f = entry.floor
    if f is None or not math.isfinite(f):
        return YARD
    way = {"higher": mark - f, "lower": f - mark, "reference": abs(mark - f)}
    found = way[entry.better]
    return found if found >= max(NEAR, 2 * entry.noise) else YARD


def grade(entry: Entry) -> str:
    """Return how good a number is by the rules above.

    Examples
    --------
    >>> entry = Entry(0.93, 0.98, 0.60, "fidelity", "higher", "Trend", "")
    >>> grade(entry)
    'fair'
    """
    v, r, mark = _alike(entry), entry.reference, _mark(entry)
    if not math.isfinite(v) or r is None or mark is None:
        return "open"
    short = {"higher": r - v, "lower": v - r, "reference": abs(v - r)}[entry.better]
    if entry.group == "detection":
        # Less than real rows is no fault, unless it is less than a guess.
        short = max(v - max(r, GUESS), min(r, GUESS) - v)
    yard = _way_down(entry, mark)
    if short <= SLACK or short / yard <= GOOD:
        blind = entry.noise > max(SLACK, yard)
        return "open" if blind else "good"
    if short <= entry.noise:
        return "open" if entry.noise / yard > FAIR else "good"
    return "fair" if short / yard <= FAIR else "poor"


def _detection(entry: Entry, graded: str, beside: str) -> str:
    if graded in ("fair", "poor") and entry.value < GUESS:
        return (
            "Below 0.50, a guess: the same rows seem to stand in both tables. See "
            "privacy."
        )
    if graded == "good":
        return (
            "Trees tell it from real rows no better than real rows from each other "
            f"({entry.reference:.2f}); 0.50 is a guess."
        )
    can = "can partly" if graded == "fair" else "can"
    return f"Trees {can} tell it from real rows, where 0.50 is a guess.{beside}"


def _sentence(entry: Entry, graded: str) -> str:
    v, r, f = entry.value, entry.reference, entry.floor
    if r is None or not math.isfinite(r):
        return "It was measured without a reference, so it is not judged."
    if entry.group == "privacy":
        found = "No sign" if graded == "good" else "A sign"
        return f"{found} of copying; without copies it is about {r:.2f}."
    if graded == "open":
        return f"Too few rows to judge: chance alone may move it by {entry.noise:.2f}."
    good = graded == "good"
    beside = "" if good or f is None else f" Independent columns: {f:.2f}."
    if entry.group == "coverage" and entry.better == "reference" and v > r and not good:
        return f"More than the {r:.2f} of unseen real rows: a sign of copying."
    if entry.group == "held-out":
        if good:
            return "Intervals for hidden cells hold what they promise."
        return f"Intervals for hidden cells are too {'narrow' if v < r else 'wide'}."
    if entry.group == "detection":
        return _detection(entry, graded, beside)
    if entry.group == "utility":
        if good:
            return "A model learns as much from it as from real rows."
        less = "somewhat" if graded == "fair" else "much"
        return f"A model learns {less} less from it than from real rows.{beside}"
    scored = f", which score {r:.2f}"
    if entry.alike is not None:
        scored = f": {entry.alike:.2f} against {r:.2f} on as many rows"
    if good:
        return f"As good as other real rows{scored}."
    far = "Somewhat" if graded == "fair" else "Far"
    side = "below" if entry.better != "lower" else "above"
    return f"{far} {side} other real rows{scored}.{beside}"


def _against(scores: Scores, key: str) -> str:
    """Return which rows a number compares."""
    group, facts = scores.entries[key].group, scores.facts
    if group == "held-out":
        return "the fill rule against hidden cells; not about the synthetic rows"
    if group == "privacy":
        cells = ", on observed cells" if key.endswith("_observed") else ""
        return f"training rows against test rows{cells}"
    if group == "utility":
        return "predictions for the test rows"
    if facts.get("complete", True):
        return "synthetic rows against the real table"
    if group in ON_TEST:
        return "synthetic rows against the complete test rows"
    if key.endswith("_complete"):
        return "complete synthetic rows against observed cells"
    return "synthetic rows with holes put in against observed cells"


def judged(scores: Scores, key: str) -> Verdict:
    """Return one number with its grade and sentence."""
    entry = scores.entries[key]
    graded = grade(entry)
    if entry.group == "privacy":
        # Whether these differ by more than chance was tested where they were taken.
        graded = "poor" if key in scores.facts.get("flagged", ()) else "good"
    return Verdict(
        key,
        entry.group,
        entry.title,
        entry.meaning,
        entry.value,
        entry.reference if _known(entry.reference) else None,
        entry.floor if _known(entry.floor) else None,
        _mark(entry),
        graded,
        _sentence(entry, graded),
        _against(scores, key),
    )


def strip(scores: Scores) -> list[Verdict]:
    """Return the numbers that matter most, of those that were measured."""
    chosen: list[str] = []
    for keys in CARDS:
        found = [key for key in keys if key in scores.entries and key not in chosen]
        chosen += found[:1]
    return [judged(scores, key) for key in chosen]


def _about_rows(verdicts: list[Verdict]) -> list[Verdict]:
    """Return the cards that judge synthetic rows.

    A fill rule is no synthetic row; its card says what it found.
    """
    return [v for v in verdicts if v.group != "held-out" and v.grade != "open"]


def overall(verdicts: list[Verdict]) -> str:
    """Return the grade of the table: that of its worst card.

    Examples
    --------
    >>> overall([])
    'open'
    """
    found = {v.grade for v in _about_rows(verdicts)}
    worst_first = ("poor", "fair", "good", "open")
    return next((g for g in worst_first if g in found), "open")


def headline(verdicts: list[Verdict], n_flagged: int = 0) -> str:
    """Return one sentence over all cards, and one more if rows seem to be copied.

    Examples
    --------
    >>> headline([])
    'Nothing was measured.'
    """
    if not verdicts:
        return "Nothing was measured."
    about_rows = _about_rows(verdicts)
    n_good = sum(v.grade == "good" for v in about_rows)
    poor = [v.title for v in verdicts if v.grade == "poor"]
    if not about_rows:
        text = "Nothing here could be judged: there are too few rows, or no reference"
    else:
        are = "is" if n_good == 1 else "are"
        text = (
            f"{overall(verdicts).capitalize()} by its worst number: {n_good} of "
            f"{len(about_rows)} {are} as good as real rows"
        )
    if poor:
        text += f"; look at {', '.join(poor)} first"
    elif about_rows:
        text += "; none is poor"
    if n_flagged:
        checks = "check points" if n_flagged == 1 else "checks point"
        text += f". {n_flagged} privacy {checks} to copied rows"
    return f"{text}."
