"""What every score is called, which way is good, and what it can and cannot tell.

The first sentence of a meaning is short enough for a line on a screen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from augmask.evaluation.scores import Better, Entry, Group


@dataclass(frozen=True)
class Meaning:
    """How a score is presented; see `Entry`."""

    title: str
    group: Group
    better: Better
    says: str


_MEANINGS = {
    "shape": Meaning(
        "Shape",
        "fidelity",
        "higher",
        "How alike single columns are. 1 is equal. It says nothing about how columns "
        "hang together: independent columns score 1.",
    ),
    "trend": Meaning(
        "Trend",
        "fidelity",
        "higher",
        "How alike pairs of columns are. 1 is equal. Numbers are cut at ten bins of "
        "the real table; what takes three columns to see is not seen.",
    ),
    "trend_worst": Meaning(
        "Trend, worst tenth",
        "fidelity",
        "higher",
        "Mean over the tenth of pairs that are least alike. Lost dependence stands "
        "here, where the mean over all pairs hides it; pairs of many levels score low "
        "among real rows too, so read it beside them.",
    ),
    "trend_sdmetrics": Meaning(
        "Trend, sdmetrics bins",
        "fidelity",
        "higher",
        "Trend as published tables have it. Each table is cut at its own range, so one "
        "outlier can move it; for comparison with papers only.",
    ),
    "alpha_precision": Meaning(
        "α-precision",
        "coverage",
        "higher",
        "How typical synthetic rows are of real ones. It sees only distances from the "
        "centre: independent columns can score above 0.95.",
    ),
    "beta_recall": Meaning(
        "β-recall",
        "coverage",
        "reference",
        "How well synthetic rows cover real ones. Fresh real rows reach about 0.5, not "
        "1; clearly more than the reference means copying.",
    ),
    "c2st_auc": Meaning(
        "C2ST AUC",
        "detection",
        "reference",
        "How well trees tell synthetic rows from real ones. 0.5 cannot tell, 1 always "
        "can; well below 0.5 means rows that stand in both tables.",
    ),
    "mle": Meaning(
        "MLE",
        "utility",
        "higher",
        "Skill of a model trained on synthetic rows, as a share of real ones. 1: "
        "nothing was lost. It concerns this one target.",
    ),
    "tstr": Meaning(
        "TSTR",
        "utility",
        "higher",
        "Score on real test rows after training on synthetic rows.",
    ),
    "trtr": Meaning(
        "TRTR",
        "utility",
        "higher",
        "Score on real test rows after training on real rows. It is what TSTR is "
        "measured against.",
    ),
    "shape_remasked": Meaning(
        "Shape, re-masked",
        "incomplete",
        "higher",
        "Single columns: observed values against synthetic ones with the same holes "
        "put in. 1 is agreement. It cannot see cells that are always hidden, nor holes "
        "that depend on the hidden value itself.",
    ),
    "trend_remasked": Meaning(
        "Trend, re-masked",
        "incomplete",
        "higher",
        "The same for pairs of columns, on rows that show both. 1 is agreement. Pairs "
        "that are never seen together are not scored.",
    ),
    "trend_worst_remasked": Meaning(
        "Trend, worst tenth, re-masked",
        "incomplete",
        "higher",
        "Mean over the tenth of pairs that are least alike, on rows that show both. "
        "Lost dependence stands here, where the mean over all pairs hides it. Pairs "
        "that few rows show together are left out.",
    ),
    "shape_complete": Meaning(
        "Shape, complete",
        "incomplete",
        "reference",
        "Observed values against all synthetic ones: not a score. A correct table "
        "differs here whenever holes depend on other columns; the difference to the "
        "re-masked Shape is the correction for that.",
    ),
    "trend_complete": Meaning(
        "Trend, complete",
        "incomplete",
        "reference",
        "Observed pairs against all synthetic rows: not a score. As for Shape, "
        "complete.",
    ),
    "rate_gap": Meaning(
        "Rate gap",
        "incomplete",
        "lower",
        "Largest difference in a column's share of holes after re-masking. Large if "
        "synthetic rows differ in the columns that decide about holes; small says "
        "little else.",
    ),
    "c2st_auc_remasked": Meaning(
        "C2ST AUC, re-masked",
        "detection",
        "reference",
        "How well trees tell re-masked synthetic rows from real ones. 0.5 cannot tell, "
        "1 always can. Rows are paired and hide the same cells, so that only values "
        "tell; holes that hang on values in a way that was not learned still count.",
    ),
    "held_out_coverage_80": Meaning(
        "Held-out coverage at 80 %",
        "held-out",
        "reference",
        "Share of hidden cells inside 80 % intervals of the fill rule. Below 0.8 its "
        "draws are too sure of themselves. It judges the rule and the table, not the "
        "synthetic rows.",
    ),
    "held_out_skill": Meaning(
        "Held-out skill",
        "held-out",
        "higher",
        "What the rest of a row tells the fill rule about a hidden cell. 0: nothing; 1 "
        "is out of reach unless it tells the cell exactly. It judges the rule and the "
        "table, not the synthetic rows.",
    ),
    "dcr_share": Meaning(
        "DCR share",
        "privacy",
        "lower",
        "How often training rows are nearer than fresh real rows.",
    ),
    "copies": Meaning(
        "Exact copies",
        "privacy",
        "lower",
        "Share of rows that equal a training row.",
    ),
    "nndr": Meaning(
        "NNDR",
        "privacy",
        "higher",
        "Nearest over second nearest distance, lowest twentieth.",
    ),
    "nndr_ratio": Meaning(
        "NNDR over holdout",
        "privacy",
        "higher",
        "The same over that of fresh real rows.",
    ),
    "mia_auc": Meaning(
        "Attack AUC",
        "privacy",
        "lower",
        "How well nearness betrays who was trained on.",
    ),
    "mia_tpr": Meaning(
        "Attack at 1 %",
        "privacy",
        "lower",
        "Training rows found while accusing 1 % of the others.",
    ),
    "beta_excess": Meaning(
        "β-recall excess",
        "privacy",
        "lower",
        "β-recall beyond that of fresh real rows.",
    ),
}
MEANINGS: Mapping[str, Meaning] = MappingProxyType(_MEANINGS)

_OBSERVED = "_observed"
# The attack of `privacy` under the name that the field gives it.
_FIELD_NAMES = {"attack_auc": "mia_auc", "attack_tpr": "mia_tpr"}


def privacy_key(measure: str) -> str:
    """Return the stable key of a measure of `privacy`.

    Examples
    --------
    >>> privacy_key("attack_auc_observed"), privacy_key("copies")
    ('mia_auc_observed', 'copies')
    """
    name = measure.removesuffix(_OBSERVED)
    return _FIELD_NAMES.get(name, name) + measure[len(name) :]


def make_entry(
    key: str,
    value: float,
    reference: float | None = None,
    floor: float | None = None,
    *,
    alike: float | None = None,
    noise: float = 0.0,
    meaning: str | None = None,
    smaller: bool = False,
    says: str = "",
) -> Entry:
    """Return the entry of a key.

    Parameters
    ----------
    key : str
    value, reference, floor, alike, noise : float
    meaning : str, optional
        The key in `MEANINGS` when it is not `key` itself.
    smaller : bool
        Whether smaller is better although the key does not say so (an error).
    says : str
        More sentences, which depend on the numbers.

    Examples
    --------
    >>> make_entry("tstr", 0.4, smaller=True).better
    'lower'
    >>> make_entry("copies_observed", 0.1, says="One in ten.").title
    'Exact copies, observed cells'
    """
    name = (meaning or key).removesuffix(_OBSERVED)
    found = MEANINGS[name]
    return Entry(
        value,
        reference,
        floor,
        found.group,
        "lower" if smaller else found.better,
        found.title + (", observed cells" if key.endswith(_OBSERVED) else ""),
        f"{found.says} {says}".strip(),
        alike,
        noise,
    )
