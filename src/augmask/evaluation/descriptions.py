"""The name, direction and meaning of every score, in one place.

The first sentence of a meaning is short enough for a line in a terminal.
"""

from __future__ import annotations

from typing import NamedTuple

from augmask.evaluation.results import Better, Entry, Group


class Description(NamedTuple):
    """How a score is presented; see `Entry`."""

    title: str
    group: Group
    better: Better
    meaning: str


DESCRIPTIONS = {
    "shape": Description(
        "Shape",
        "fidelity",
        "higher",
        "How similar single columns are. 1 is equal. It says nothing about dependence: "
        "independent columns score 1.",
    ),
    "trend": Description(
        "Trend",
        "fidelity",
        "higher",
        "How similar pairs of columns are. 1 is equal. Numbers are cut into ten bins "
        "of the real table; interactions of three columns are not measured.",
    ),
    "trend_worst": Description(
        "Worst tenth of pairs",
        "fidelity",
        "higher",
        "Mean over the least similar tenth of pairs. It shows lost dependence that the "
        "mean over all pairs hides. Pairs with many levels score low among real rows "
        "too, so compare with the reference.",
    ),
    "dependence": Description(
        "Dependence kept",
        "fidelity",
        "higher",
        "Share of the dependence between columns that synthetic rows have. 1 is all of "
        "it, 0 is what independent columns have. It sees pairs of columns in five bins "
        "or eight levels, and also works on few rows.",
    ),
    "trend_sdmetrics": Description(
        "Trend, sdmetrics bins",
        "fidelity",
        "higher",
        "Trend as published tables have it. Each table is binned by its own range, so "
        "that one outlier can move it; use it to compare with papers only.",
    ),
    "alpha_precision": Description(
        "α-precision",
        "coverage",
        "higher",
        "How typical synthetic rows are of real ones. It depends only on distances "
        "from the centre: independent columns can score above 0.95.",
    ),
    "beta_recall": Description(
        "β-recall",
        "coverage",
        "reference",
        "How well synthetic rows cover real ones. Fresh real rows reach about 0.5, not "
        "1; clearly more than the reference means copying.",
    ),
    "c2st_auc": Description(
        "C2ST AUC",
        "detection",
        "reference",
        "How well trees tell synthetic rows from real ones. 0.5: not at all, 1: "
        "always; well below 0.5 means that rows are in both tables.",
    ),
    "mle": Description(
        "MLE",
        "utility",
        "higher",
        "Test score after training on synthetic rows, relative to real rows. 1 means "
        "that nothing was lost. It is about this one target.",
    ),
    "tstr": Description(
        "TSTR",
        "utility",
        "higher",
        "Score on real test rows after training on synthetic rows.",
    ),
    "trtr": Description(
        "TRTR",
        "utility",
        "higher",
        "Score on real test rows after training on real rows. Compare TSTR with it.",
    ),
    "shape_remasked": Description(
        "Shape, re-masked",
        "incomplete",
        "higher",
        "Single columns: observed values against re-masked synthetic ones. 1 is equal. "
        "It cannot score cells that are always missing, nor missingness that depends "
        "on the missing value itself.",
    ),
    "trend_remasked": Description(
        "Trend, re-masked",
        "incomplete",
        "higher",
        "Pairs of columns, on rows that show both. 1 is equal. Pairs that are never "
        "observed together are not scored.",
    ),
    "trend_worst_remasked": Description(
        "Worst tenth of pairs, re-masked",
        "incomplete",
        "higher",
        "Mean over the least similar tenth of pairs, on rows that show both. It shows "
        "lost dependence that the mean over all pairs hides. Pairs that few rows show "
        "together are left out.",
    ),
    "shape_complete": Description(
        "Shape, complete",
        "incomplete",
        "reference",
        "Observed values against all synthetic ones: not a score. A correct table "
        "differs here whenever missingness depends on other columns; the difference "
        "to the re-masked Shape is the correction for that.",
    ),
    "trend_complete": Description(
        "Trend, complete",
        "incomplete",
        "reference",
        "Observed pairs against all synthetic rows: not a score. Read it as Shape, "
        "complete.",
    ),
    "rate_gap": Description(
        "Rate gap",
        "incomplete",
        "lower",
        "Largest difference in a column's missing rate after re-masking. Large if "
        "synthetic rows differ in the columns that missingness depends on; a small "
        "value says little else.",
    ),
    "c2st_auc_remasked": Description(
        "C2ST AUC, re-masked",
        "detection",
        "reference",
        "How well trees tell re-masked synthetic rows from real ones. 0.5: not at all, "
        "1: always. Rows are paired with the same cells missing, so that only values "
        "differ; missingness that depends on values in a way that was not learned "
        "still counts.",
    ),
    "held_out_coverage_80": Description(
        "Held-out coverage at 80 %",
        "held-out",
        "reference",
        "Share of held-out cells inside the augmenter's 80 % intervals. Below 0.8 its "
        "draws are overconfident. It scores the augmenter on this table, not the "
        "synthetic rows.",
    ),
    "held_out_skill": Description(
        "Held-out skill",
        "held-out",
        "higher",
        "How much the rest of a row tells the augmenter about a held-out cell. 0: "
        "nothing; 1 only if it determines the cell. It scores the augmenter on this "
        "table, not the synthetic rows.",
    ),
    "dcr_share": Description(
        "DCR share",
        "privacy",
        "lower",
        "How often training rows are nearer than unseen real rows.",
    ),
    "copies": Description(
        "Exact copies", "privacy", "lower", "Share of rows that equal a training row."
    ),
    "nndr": Description(
        "NNDR",
        "privacy",
        "higher",
        "Nearest over second nearest distance, lowest twentieth.",
    ),
    "nndr_ratio": Description(
        "NNDR over holdout", "privacy", "higher", "NNDR relative to unseen real rows."
    ),
    "mia_auc": Description(
        "Attack AUC",
        "privacy",
        "lower",
        "How well a near synthetic row reveals a training row.",
    ),
    "mia_tpr": Description(
        "Attack at 1 %",
        "privacy",
        "lower",
        "Training rows that the attack finds at 1 % false positives.",
    ),
    "beta_excess": Description(
        "β-recall excess",
        "privacy",
        "lower",
        "β-recall beyond that of unseen real rows.",
    ),
}

_OBSERVED = "_observed"
# Independent columns keep every single column, so they are no floor of these.
NO_FLOOR = ("shape", "shape_remasked", "shape_complete", "rate_gap")


def make_entry(
    key: str,
    value: float,
    reference: float | None = None,
    floor: float | None = None,
    *,
    comparable: float | None = None,
    noise: float = 0.0,
    description: str | None = None,
    lower_is_better: bool = False,
    detail: str = "",
) -> Entry:
    """Return the entry of a key.

    Parameters
    ----------
    key : str
    value, reference, floor, comparable, noise : float
    description : str, optional
        The key in `DESCRIPTIONS` if it is not `key` itself.
    lower_is_better : bool
        Whether the value is an error although the description says otherwise.
    detail : str
        Sentences to append to the meaning.

    Examples
    --------
    >>> make_entry("tstr", 0.4, lower_is_better=True).better
    'lower'
    >>> make_entry("copies_observed", 0.1, detail="One in ten.").title
    'Exact copies, observed cells'
    """
    text = DESCRIPTIONS[(description or key).removesuffix(_OBSERVED)]
    return Entry(
        value,
        reference,
        None if key in NO_FLOOR else floor,
        text.group,
        "lower" if lower_is_better else text.better,
        text.title + (", observed cells" if key.endswith(_OBSERVED) else ""),
        f"{text.meaning} {detail}".strip(),
        comparable,
        noise,
    )
