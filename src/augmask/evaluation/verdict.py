"""A grade and a sentence for every score, and one sentence for the table, by rule.

With v the value, r what other real rows score on as many rows, and f the floor (what
independent columns score):

* gap = how far v is worse than r (or off it, where closeness is best);
* scale = the distance from r to f, or `SCALE` if there is no floor;
* open (not judged): no reference; noise could hide a poor value; or f is no worse than
  r, so that the score cannot tell independent columns from real rows;
* good: gap <= `SLACK`, gap within the noise, or gap / scale <= `GOOD`;
  fair: gap / scale <= `FAIR`; poor: nearer to independent columns than to real rows.

Privacy is judged by its own significance tests.

The table has the grade of its worst card: means over columns and pairs can be high
although the few dependencies of a wide table are lost. It is not good unless a score
that sees dependence is. Scores of the augmenter are no cards: they are not about the
synthetic rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from augmask.evaluation.results import MIN_SCALE, Entry, Scores

SLACK = 0.01
SCALE = 0.2
GOOD, FAIR = 0.15, 0.5
# AUC of random guessing.
CHANCE = 0.5

RULES = (
    f"Good: within {SLACK} of what other real rows score, within sampling noise, or at "
    f"most {GOOD:.0%} of the way from there to independent columns. Fair: at most half "
    "of the way. Poor: nearer to independent columns than to real rows. Without a "
    f"floor the whole way counts as {SCALE}. Not judged: noise could hide a poor "
    "value, or independent columns score like real rows. Privacy is poor if a "
    "significance test flags it. The table has the grade of its worst card, and is "
    "good only if a score that sees dependence between columns is."
)

# A card for each tuple: the first key that was measured. The paper's five metrics or
# what comes closest, and those that show what a mean hides.
CARDS = (
    ("shape", "shape_remasked"),
    ("trend", "trend_remasked"),
    ("trend_worst", "trend_worst_remasked"),
    ("dependence",),
    ("c2st_auc",),
    ("alpha_precision",),
    ("beta_recall",),
    ("mle",),
    ("dcr_share", "dcr_share_observed"),
)
# Without one of these that is judged, a table may be independent columns.
SEE_DEPENDENCE = {
    *("trend", "trend_remasked", "trend_worst", "trend_worst_remasked"),
    *("dependence", "c2st_auc"),
}
# Groups that are compared with complete test rows if the real table is incomplete.
ON_TEST = ("fidelity", "coverage")
GRADES = ("poor", "fair", "good")


@dataclass(frozen=True)
class Verdict:
    """A score with its grade: "good", "fair", "poor" or "open".

    `compared` says which rows were compared.
    """

    key: str
    entry: Entry
    grade: str
    sentence: str
    compared: str


def _gap(entry: Entry, mark: float) -> float:
    """Return how much worse a value is than real rows."""
    v = entry.value
    if entry.group == "detection":
        # Being less detectable than real rows is fine, unless it is below chance.
        return max(v - max(mark, CHANCE), min(mark, CHANCE) - v)
    return {"higher": mark - v, "lower": v - mark, "reference": abs(v - mark)}[
        entry.better
    ]


def grade(entry: Entry) -> str:
    """Return the grade of a score by the rules above.

    Examples
    --------
    >>> entry = Entry(0.85, 0.98, 0.60, "fidelity", "higher", "Trend", "")
    >>> grade(entry)
    'fair'
    """
    mark = entry.mark
    if mark is None or not math.isfinite(entry.value):
        return "open"
    gap, scale = _gap(entry, mark), SCALE if entry.scale is None else entry.scale
    if entry.group == "detection" and entry.value < CHANCE:
        # Rows in both tables, which no floor measures.
        scale = SCALE
    elif not entry.tells:
        return "open"
    if gap <= max(SLACK, GOOD * scale, entry.noise):
        return "open" if entry.noise > max(SLACK, FAIR * scale) else "good"
    return "fair" if gap / scale <= FAIR else "poor"


def _number(value: float) -> str:
    """Format a number of a sentence; one that rounds to zero has no sign.

    Examples
    --------
    >>> _number(-0.001), _number(0.987)
    ('0.00', '0.99')
    """
    return f"{round(value, 2) + 0.0:.2f}"


def _not_judged(entry: Entry) -> str:
    if entry.mark is None:
        return "Not judged: there is no reference."
    if not entry.tells and (entry.scale or 0) < MIN_SCALE:
        return "Cannot tell: independent columns score like real rows here."
    return f"Too few rows to judge: chance may move it by {_number(entry.noise)}."


def _sentence(entry: Entry, graded: str) -> str:
    v, mark, group = entry.value, entry.mark, entry.group
    if group == "privacy" and mark is not None:
        sign = "No sign" if graded == "good" else "A sign"
        return f"{sign} of copying; {_number(mark)} is expected without it."
    if mark is None or graded == "open":
        return _not_judged(entry)
    good, fair = graded == "good", graded == "fair"
    floor = "" if good or entry.floor is None else f" Independent: {entry.floor:.2f}."
    if group == "coverage" and entry.better == "reference" and v > mark and not good:
        return f"Above the {_number(mark)} of unseen real rows, a sign of copying."
    if group == "held-out":
        if good:
            return "Intervals for hidden values are calibrated."
        return (
            f"Intervals for hidden values are too {'narrow' if v < mark else 'wide'}."
        )
    if group == "detection":
        if good:
            return f"As hard to tell from real rows as other real rows ({mark:.2f})."
        if v < CHANCE:
            return "Below chance (0.50): the same rows seem to be in both tables."
        return f"{'Partly' if fair else 'Easily'} told from real rows.{floor}"
    if group == "utility":
        if good:
            return "A model learns as much from it as from real rows."
        less = "somewhat" if fair else "much"
        return f"A model learns {less} less from it than from real rows.{floor}"
    if good:
        return f"As good as other real rows ({_number(mark)})."
    size = "Somewhat" if fair else "Far"
    side = "below" if entry.better != "lower" else "above"
    return f"{size} {side} other real rows ({_number(mark)}).{floor}"


def _compared_rows(scores: Scores, key: str) -> str:
    """Return which rows a score compares."""
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
    if group in ON_TEST and key != "dependence":
        return "synthetic rows against the complete test rows"
    if key.endswith("_complete"):
        return "complete synthetic rows against observed values"
    return "re-masked synthetic rows against observed values"


def verdict(scores: Scores, key: str) -> Verdict:
    """Return one score with its grade and sentence."""
    entry = scores.entries[key]
    graded = grade(entry)
    if entry.group == "privacy":
        # Tested for significance where it was measured.
        graded = "poor" if key in scores.facts.get("flagged", ()) else "good"
    return Verdict(
        key, entry, graded, _sentence(entry, graded), _compared_rows(scores, key)
    )


def cards(scores: Scores) -> list[Verdict]:
    """Return the most important of the scores that were measured.

    Privacy checks that fail are always among them.
    """
    flagged = [key for key in scores.facts.get("flagged", ()) if key in scores.entries]
    chosen: list[str] = []
    for keys in CARDS:
        measured = [key for key in keys if key in scores.entries]
        is_privacy = bool(measured) and scores.entries[measured[0]].group == "privacy"
        chosen += flagged if is_privacy and flagged else measured[:1]
    return [verdict(scores, key) for key in chosen]


def overall(verdicts: Sequence[Verdict]) -> str:
    """Return the grade of the table: that of its worst card.

    Examples
    --------
    >>> overall([])
    'open'
    """
    grades = {v.grade for v in verdicts}
    worst = next((g for g in GRADES if g in grades), "open")
    seen = [v.grade for v in verdicts if v.key in SEE_DEPENDENCE]
    if worst == "good" and seen and set(seen) == {"open"}:
        return "open"
    return worst


def _listed_titles(verdicts: Sequence[Verdict]) -> str:
    names = [v.entry.title.split(", ")[0] for v in verdicts]
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])


def headline(verdicts: Sequence[Verdict]) -> str:
    """Return one sentence over all cards.

    Examples
    --------
    >>> headline([])
    'Nothing was measured.'
    """
    if not verdicts:
        return "Nothing was measured."
    table = overall(verdicts)
    about = [v for v in verdicts if v.entry.group != "privacy"]
    by_grade = {g: [v for v in about if v.grade == g] for g in GRADES}
    good = by_grade["good"]
    if table == "open":
        return (
            "Not judged: there are too few rows, or no reference, to tell these rows "
            "from independent columns."
        )
    copying = [v for v in verdicts if v.entry.group == "privacy" and v.grade == "poor"]
    if copying:
        point = "points" if len(copying) == 1 else "point"
        rest = overall(about)
        quality = "" if rest == "open" else f"; otherwise the synthetic table is {rest}"
        titles = _listed_titles(copying)
        return f"Poor: {titles} {point} to copies of training rows{quality}."
    if table == "good":
        n = len(good)
        which = "the one score that tells" if n == 1 else f"all {n} scores that tell"
        return f"Good: on a par with other real rows by {which}."
    bad = by_grade[table]
    kept = next((v for v in bad if v.key == "dependence"), None)
    share = ""
    if kept is not None:
        bad = [v for v in bad if v is not kept]
        percent = f"{max(0.0, kept.entry.value):.0%}"
        share = f"keeps {percent} of the dependence between columns"
    where = ""
    if bad:
        far = "far from" if table == "poor" else "somewhat off"
        where = f"is {far} other real rows in {_listed_titles(bad)}"
    text = " and ".join(part for part in (share, where) if part)
    return f"{table.capitalize()}: the synthetic table {text}."


def judge(scores: Scores) -> dict[str, object]:
    """Return the grade of the table, its sentence, and the grades of all scores."""
    verdicts = cards(scores)
    return {
        "grade": overall(verdicts),
        "sentence": headline(verdicts),
        "grades": {key: verdict(scores, key).grade for key in scores.entries},
    }
