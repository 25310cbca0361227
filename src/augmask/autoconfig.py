"""What `auto` changes in a preset once the table is known: rules over its size.

A rule looks at the size of the encoded table and returns what it would change, and why
in half a sentence, or nothing. All rules of `RULES` are asked in order; what a later
one says wins, and what the user has set wins over all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from augmask.table.table import Table

# A table of fewer rows is overfitted by one long run: see docs/presets.md.
SMALL_ROWS = 1_500
# Below this, what columns have to do with each other can hardly be learned.
FEW_ROWS = 100
SMALL_MEMBERS = 4
SMALL_BATCH = 256
# Up to so many observed cells, so many steps of each member: few cells are soon known
# by heart.
SMALL_STEPS = ((8_000, 600), (16_000, 1_000))
MOST_SMALL_STEPS = 1_500
# On a CPU, CDTD starts from what correlations and frequencies of the table say: it has
# less to learn, and of few cells it knows the rest by heart soon after.
STARTED_STEPS = ((3_000, 100), (8_000, 200))


@dataclass(frozen=True)
class Size:
    """What rules go by.

    Parameters
    ----------
    rows, columns : int
        Of the encoded table: columns that are not learned are left out.
    observed : int
        Cells that are not missing.
    levels : int
        Of all categorical columns together.
    device : str
        `cpu`, `cuda` or `mps`.
    backbone : str, optional
        Its name; None for a user's own.
    """

    rows: int
    columns: int
    observed: int
    levels: int
    device: str
    backbone: str | None

    @classmethod
    def of(cls, table: Table, device: str, backbone: str | None) -> Size:
        """Measure a table."""
        layout = table.layout
        return cls(
            len(table),
            layout.n_features,
            int(table.observed.sum()),
            sum(layout.cards),
            device,
            backbone,
        )


@dataclass(frozen=True)
class Choice:
    """What is changed, and why.

    Parameters
    ----------
    settings : mapping
        Settings and keywords of the backbone, as in `Settings.replace`. `ties` is not
        among them: the table has been encoded by then.
    ensemble : int, optional
        How many members; None for no opinion.
    augmenter : str, optional
        What fills missing values; None for no opinion.
    reasons, warnings : tuple of str
        Half a sentence for each rule that had a say, and what a user must know.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    ensemble: int | None = None
    augmenter: str | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def then(self, other: Choice) -> Choice:
        """Return both choices; where they differ, the other's."""
        return Choice(
            {**self.settings, **other.settings},
            self.ensemble if other.ensemble is None else other.ensemble,
            self.augmenter if other.augmenter is None else other.augmenter,
            self.reasons + other.reasons,
            self.warnings + other.warnings,
        )

    @property
    def told(self) -> str:
        """One line for a log, a command line or a report; empty if nothing is new."""
        return "; ".join(self.reasons)


Rule = Callable[[Size], Choice | None]


def small(size: Size) -> Choice | None:
    """Several short runs instead of a long one for a small table."""
    if size.rows >= SMALL_ROWS:
        return None
    started = size.backbone == "cdtd" and size.device == "cpu"
    bounds = (STARTED_STEPS if started else ()) + SMALL_STEPS
    steps = next((n for cells, n in bounds if size.observed <= cells), MOST_SMALL_STEPS)
    few = (
        f"a table of {size.rows} rows is very small: expect each column by itself to "
        "come out well, and of what columns have to do with each other only what is "
        "strong; compare several seeds before you rely on it",
    )
    changes: dict[str, Any] = {
        "steps": steps,
        "warmup": steps // 10,
        "batch_size": SMALL_BATCH,
        # every cell counts here, and so few would say nothing about the rest
        "holdout": 0.0,
    }
    return Choice(
        changes,
        SMALL_MEMBERS,
        reasons=(
            f"{size.rows:,} rows with {size.observed:,} observed cells: "
            f"{SMALL_MEMBERS} members of {steps:,} steps each",
        ),
        warnings=few if size.rows < FEW_ROWS else (),
    )


RULES: tuple[Rule, ...] = (small,)


def choose(
    size: Size, taken: Collection[str] = (), rules: tuple[Rule, ...] = RULES
) -> Choice:
    """Return what all rules together change.

    Parameters
    ----------
    size : Size
    taken : collection of str
        Settings that the user has set; they stay. Who sets `steps` has set the budget:
        the number of members, which goes with it, is left alone as well.
    rules : tuple of callable

    Examples
    --------
    >>> choice = choose(Size(200, 5, 950, 4, "cpu", "cdtd"))
    >>> choice.ensemble, choice.settings["steps"]
    (4, 100)
    >>> choose(Size(20_000, 5, 95_000, 4, "cpu", "cdtd")) == Choice()
    True
    """
    if "steps" in taken:
        return Choice()
    every = Choice()
    for rule in rules:
        every = every.then(rule(size) or Choice())
    kept = {k: v for k, v in every.settings.items() if k not in taken}
    return Choice(kept, every.ensemble, every.augmenter, every.reasons, every.warnings)
