"""Signs that synthetic rows copy the rows they were learned from.

Every number sets the training rows against as many real rows that the generator never
saw (the holdout). Both come from the same population, so whatever differs between them
comes from training:

* DCR share: how often a synthetic row is nearer to a training row than to a holdout
  row, ties counting half; 0.5 without copying.
* Copies: the share of synthetic rows that equal a training row, and a holdout row.
* NNDR: distance to the nearest real row over distance to the second nearest. A copy
  has 0; the lowest twentieth is compared, training over holdout.
* Membership attack: guess that a record was trained on when a synthetic row is near.
  Its AUC, and the training rows it finds when it may accuse 1 % of the holdout.
* β-recall beyond that of the holdout: covering training rows better than other real
  rows do.

Distances are Gower's (see `gower`). When cells were hidden from the generator, DCR
share, copies and attack are also taken on the cells that it saw, because unseen cells
are noise that hides a copy. Each training row is then paired at random with a holdout
row, both are measured on the cells that both have, and the share counts the pairs in
which the training row is nearer to the synthetic table. With a holdout that has holes
of its own, made as those of the training rows, this is fair whatever made them; with a
complete holdout it is fair for holes that do not depend on the values.

None of this is a guarantee. A clean result means that these attacks found nothing.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from augmask.errors import DataError, UsageError
from augmask.evaluation.columns import Codes, Floats, Frames, check_tables
from augmask.evaluation.coverage import alpha_beta
from augmask.evaluation.gower import Bools, line_up
from augmask.evaluation.privacy_attacks import Measure, beta_excess, of_cells, of_rows
from augmask.rng import stream


@dataclass(frozen=True, eq=False)
class Privacy:
    """Signs of copying.

    Parameters
    ----------
    value : float
        The DCR share: of complete rows, or of observed cells if there are no complete
        rows; 0.5 without copying.
    table : pandas.DataFrame
        One line per measure: `measure`, `value`, `reference` (what the holdout has, or
        what a table without copies would have), `low` and `high` (95 % interval of the
        value, where there is one), `flagged`, and `meaning` in plain words.
    rows : dict of str to int
        Rows used of the `real`, `holdout` and `synthetic` table.
    note : str
        What was left out, and what the numbers cannot promise.
    """

    value: float
    table: pd.DataFrame
    rows: dict[str, int]
    note: str

    @property
    def flagged(self) -> list[str]:
        """The measures that point to copying."""
        return list(self.table.loc[self.table["flagged"], "measure"])


def _pick(frame: pd.DataFrame, rows: int, rng: np.random.Generator) -> Codes:
    if len(frame) <= rows:
        return np.arange(len(frame))
    return np.sort(rng.choice(len(frame), rows, replace=False))


def _seen_cells(
    real: pd.DataFrame, names: Sequence[str], observed: pd.DataFrame | None
) -> Bools:
    """Return which cells of the training rows the generator saw."""
    present: Bools = real[list(names)].notna().to_numpy(dtype=bool)
    if observed is None:
        return present
    absent = [name for name in names if name not in observed.columns]
    if absent or len(observed) != len(real):
        raise UsageError(
            "`observed` has the rows and columns of the real table, but it has "
            f"{len(observed)} of {len(real)} rows and lacks the columns {absent}; pass "
            "`.notna()` of the table that the generator saw."
        )
    seen: Bools = observed[list(names)].to_numpy(dtype=bool)
    return present & seen


def _note(tables: Frames, used: dict[str, int]) -> str:
    cut = [
        f"{used[label]:,} of the {len(frame):,} {label} rows"
        for label, frame in tables.items()
        if used[label] < len(frame)
    ]
    drawn = (
        f"Training rows and holdout are compared in equal number: {' and '.join(cut)} "
        "were drawn at random. "
        if cut
        else ""
    )
    return (
        f"{drawn}These numbers find copying, they do not rule it out: no formal "
        "guarantee such as differential privacy follows from them."
    )


def privacy(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    holdout: pd.DataFrame,
    numeric: Sequence[str],
    categorical: Sequence[str],
    *,
    seed: int,
    observed: pd.DataFrame | None = None,
    cache: MutableMapping[str, Floats] | None = None,
) -> Privacy:
    """Look for copies of training rows among synthetic ones.

    Parameters
    ----------
    real : pandas.DataFrame
        The training rows; holes are allowed.
    synthetic : pandas.DataFrame
        Complete rows, in any number.
    holdout : pandas.DataFrame
        Real rows that the generator never saw, drawn like the training rows. The
        longer of the two is cut at random to the length of the other; so is the
        synthetic table for β-recall.
    numeric, categorical : sequence of str
        The columns to compare.
    seed : int
        Draws the rows that stay, and pairs training rows with holdout rows.
    observed : pandas.DataFrame of bool, optional
        Which cells of `real` the generator saw, when `real` is more complete than what
        it was trained on: `.notna()` of that table.
    cache : mutable mapping, optional
        As in `alpha_beta`.

    Returns
    -------
    Privacy
        Measures on complete rows when `real` and `holdout` are complete. Measures on
        observed cells, their names ending in ``_observed``, when cells were hidden.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> real, fresh, other = (
    ...     pd.DataFrame(rng.normal(size=(500, 3)), columns=list("xyz"))
    ...     for _ in range(3)
    ... )
    >>> privacy(real, fresh, other, list("xyz"), [], seed=0).flagged
    []
    >>> copies = real.sample(500, replace=True, random_state=0)
    >>> found = privacy(real, copies, other, list("xyz"), [], seed=0)
    >>> len(found.flagged) == len(found.table)
    True
    """
    tables: Frames = {"real": real, "holdout": holdout, "synthetic": synthetic}
    check_tables(tables, numeric, categorical)
    names = [*numeric, *categorical]
    seen = _seen_cells(real, names, observed)
    n = min(len(real), len(holdout))
    if n < 2:
        raise DataError(
            "Nearest and second nearest rows take two rows, but the shorter of the "
            f"real and holdout table has {n}; pass at least 2."
        )
    rng = stream(seed, "privacy", "rows")
    picked = {label: _pick(tables[label], n, rng) for label in ("real", "holdout")}
    chosen = {label: tables[label].iloc[rows] for label, rows in picked.items()}
    seen = seen[picked["real"]]
    training, held_out, drawn = line_up(
        chosen | {"synthetic": synthetic}, numeric, categorical, {"real", "holdout"}
    )
    if not drawn.observed.all():
        column = names[int((~drawn.observed).any(axis=0).argmax())]
        raise DataError(
            f"Synthetic rows are complete, but column {column!r} has holes in the "
            "synthetic table; drop or fill them first."
        )
    complete = bool(training.observed.all() and held_out.observed.all())
    measures: list[Measure] = []
    if complete:
        measures += of_rows(drawn, training, held_out)
        k = min(n, len(synthetic))
        rivals = [
            frame.iloc[_pick(frame, k, rng)] for frame in (synthetic, chosen["holdout"])
        ]
        cache = {} if cache is None else cache
        beta, plain = (
            alpha_beta(chosen["real"], frame, numeric, categorical, cache=cache)[1]
            for frame in rivals
        )
        measures.append(beta_excess(beta, plain, n))
    if not (complete and seen.all()):
        # Picked rows stand in the order of their table; pairs must not.
        held_out = held_out.take(rng.permutation(n))
        both = seen & held_out.observed
        pairs = np.flatnonzero(both.any(axis=1))
        if len(pairs) < 2:
            raise DataError(
                "A training row and a holdout row are compared on cells that both "
                f"have, but only {len(pairs)} pairs have any; pass more rows."
            )
        sides = [side.hide(both).take(pairs) for side in (training, held_out)]
        measures += of_cells(drawn, sides[0], sides[1])
    used = {"real": n, "holdout": n, "synthetic": len(synthetic)}
    return Privacy(measures[0].value, pd.DataFrame(measures), used, _note(tables, used))
