"""The metrics for a real table with holes, each with its references.

Where complete tables are compared row by row, here holes come first: synthetic rows are
re-masked, other real rows bring their own holes. See `incomplete` and `held_out`, and
`measures` for what the roles mean.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from augmask.augmentation import resolve_augmenter
from augmask.augmentation.base import Augmenter
from augmask.errors import UsageError
from augmask.evaluation.held_out import Calibration, calibration, hide
from augmask.evaluation.incomplete import Remasked, remasked
from augmask.evaluation.measures import (
    Found,
    Pair,
    Pairs,
    Role,
    add_worst,
    as_many_rows,
    beside,
    noise_of_means,
    noise_of_shares,
)
from augmask.evaluation.references import mean_mode_fill
from augmask.evaluation.tables import Tables
from augmask.missing.model import MissingModel, with_holes
from augmask.progress import Progress
from augmask.rng import stream
from augmask.table.encode import Codec
from augmask.table.table import BoolArray

# Cells that are hidden to judge a fill rule, and how often each of them is drawn.
HIDDEN_SHARE = 0.1
N_DRAWS = 20
NOMINAL = 0.8


class OwnHoles(MissingModel):
    """The holes that rows have, in place of holes that were learned.

    Parameters
    ----------
    rows : pandas.DataFrame
        The rows before they were filled.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self.columns_ = rows.columns
        self.seen = rows.notna().to_numpy()

    def observed(self, rows: pd.DataFrame, rng: np.random.Generator) -> BoolArray:
        """Return which cells the rows had; nothing is drawn."""
        del rng
        if len(rows) != len(self.seen):
            raise ValueError(f"{len(rows)=} differs from {len(self.seen)=}")
        return np.asarray(self.seen)


def _with_own_holes(pair: Pair, tables: Tables, seed: int) -> Remasked:
    """Return how alike the observed cells of two tables with holes are."""
    real, other = pair
    # A column with few values may have none among the rows of one side.
    shared = [name for name in real if all(f[name].notna().any() for f in pair)]
    numeric = [name for name in tables.numeric if name in shared]
    categorical = [name for name in tables.categorical if name in shared]
    other = other[[*numeric, *categorical]]
    return remasked(
        real,
        # What stands in the holes is hidden again and never read.
        mean_mode_fill(other, numeric, categorical),
        numeric,
        categorical,
        rng=stream(seed, "remask"),
        model=OwnHoles(other),
    )


def add_remasked(
    found: Found, pairs: Pairs, tables: Tables, seed: int
) -> dict[Role, Pair]:
    """Add Shape and Trend after re-masking; return the pairs with holes in both."""
    names = [*tables.numeric, *tables.categorical]
    model = MissingModel().fit(tables.real[names], tables.numeric)
    results: dict[Role, Remasked] = {}
    holed: dict[Role, Pair] = {}
    for role, (real, other) in pairs.items():
        if role == "reference":
            results[role] = _with_own_holes((real, other), tables, seed)
            holed[role] = (real, other)
            continue
        results[role] = remasked(
            real,
            other,
            tables.numeric,
            tables.categorical,
            rng=stream(seed, "remask"),
            model=model,
        )
        holed[role] = (real, results[role].frame)
    alike = as_many_rows(holed, seed)
    if alike is not None:
        results["alike"] = _with_own_holes(alike, tables, seed)
    for key, name in (
        ("shape_remasked", "shape"),
        ("trend_remasked", "trend"),
        ("shape_complete", "shape_complete"),
        ("trend_complete", "trend_complete"),
        ("rate_gap", "rate_gap"),
    ):
        numbers = {role: float(getattr(r, name)) for role, r in results.items()}
        noise = 0.0
        if key.endswith("_complete"):
            # Whatever stood in the holes of other real rows was made up.
            numbers = {role: numbers[role] for role in ("value", "floor")}
        elif key.endswith("_remasked"):
            noise = noise_of_means(
                key, numbers["reference"], tables.numeric, tables.categorical
            )
        else:
            # The largest of all columns: what is true of half the rows is chance.
            numbers.pop("alike", None)
            noise = numbers["reference"]
        found.add(key, numbers, noise=noise)
    pair_tables = {role: result.pairs for role, result in results.items()}
    add_worst(found, "trend_worst_remasked", pair_tables, tables)
    result = results["value"]
    for name in ("columns", "pairs"):
        other = getattr(results["reference"], name)
        found.tables[name] = beside(getattr(result, name), other, "remasked")
    found.parts["remasked_scores"] = result
    found.parts["remasked"] = tables.shown(result.frame)
    return holed


def rule_name(fill: str | Augmenter) -> str:
    """Return what a fill rule is called; an object's address tells nobody anything.

    Examples
    --------
    >>> rule_name("ecdf"), rule_name(resolve_augmenter("ecdf"))
    ('ecdf', 'Ecdf')
    """
    return fill if isinstance(fill, str) else type(fill).__name__


def held_out_cells(
    tables: Tables, fill: str | Augmenter, seed: int, progress: Progress
) -> Calibration | None:
    """Hide observed cells, let a rule draw them, and score the draws.

    Only columns with holes are hidden from: no other column is ever filled. None if
    there is nothing to hide.
    """
    holed = [name for name in tables.real if tables.real[name].isna().any()]
    truth = tables.real[holed]
    rng = stream(seed, "held-out")
    _, hidden = hide(truth, HIDDEN_SHARE, rng)
    if not hidden.to_numpy().any():
        return None
    observed = pd.DataFrame(True, tables.source.index, tables.source.columns)
    for column in tables.schema:
        if column.name in holed:
            observed[column.label] = ~hidden[column.name].to_numpy()
    source = with_holes(tables.source, observed.to_numpy(dtype=bool))
    codec = Codec.fit(source, tables.schema)
    rule = resolve_augmenter(fill).fit(codec.encode(source), rng, progress)
    draws = []
    for i in range(N_DRAWS):
        drawn = rule.draw(rng)
        if drawn.layout.reserved:
            raise UsageError(
                "Held-out cells need a rule that fills categories with levels, and "
                f"{rule_name(fill)!r} fills them with a placeholder; choose another or "
                "None."
            )
        frame = codec.decode(drawn.num, drawn.cat, rng, derive=False)
        draws.append(tables.as_read(frame, "filled", holed))
        progress("held-out", i + 1, N_DRAWS, {})
    numeric = [name for name in tables.numeric if name in holed]
    categorical = [name for name in tables.categorical if name in holed]
    return calibration(truth, hidden, draws, numeric, categorical, rng=rng)


def add_held_out(
    found: Found,
    tables: Tables,
    fill: str | Augmenter,
    seed: int,
    progress: Progress,
) -> None:
    """Add how honest and how sharp a fill rule's draws are."""
    result = held_out_cells(tables, fill, seed, progress)
    if result is None:
        found.notes.append(
            "Held-out cells are left out: the columns with holes have too few values "
            "to hide any."
        )
        return
    lines = result.coverage[result.coverage["nominal"] == NOMINAL]
    covered = float(np.average(lines["found"], weights=lines["cells"]))
    found.add(
        "held_out_coverage_80",
        {"value": covered, "reference": NOMINAL},
        noise=noise_of_shares(NOMINAL, int(lines["cells"].sum())),
    )
    found.add("held_out_skill", {"value": result.skill, "floor": 0.0})
    cells = int(result.columns["cells"].sum())
    found.notes.append(
        f"Held-out cells: {cells:,} observed cells, {HIDDEN_SHARE:.0%} of each column "
        f"with holes, were hidden and drawn {N_DRAWS} times by the fill rule "
        f"{rule_name(fill)!r}. They judge the rule and the table, not the synthetic "
        "rows."
    )
    found.tables["held_out"] = result.columns
    found.tables["held_out_coverage"] = result.coverage
    found.tables["held_out_ranks"] = result.pit.rename_axis("column").reset_index()
    found.parts["calibration"] = result
