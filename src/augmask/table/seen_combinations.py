"""Seen combinations: a level that occurs only beside certain levels of other columns.

Rodents are caught on two days a month, a teacher of eleven years teaches in one school,
a storm name is used in a few years. A network learns how often each level occurs beside
the others, but where each goes with few of many, it also generates combinations that
never occur. So a column y keeps to the values that were seen with one or two other
columns, its parents: in decoding, a value that was never seen with those of the parents
is replaced: a number by the nearest that was, a level by a draw from those that were,
by their frequency.

This is done only where the combinations repeat, so that those that were seen are nearly
all there are (Good-Turing: the share of those that occur once), and where it rules much
out: y drawn by itself would often be impossible. A combination that occurs once is left
out. A parent has levels or few numbers, and a number that keeps to them goes with few
of them: that a range depends on another column is learned. The search is greedy: for
each column the best parent, then the best second one.

What is found is plain data, `Column.seen_with`: the parent `columns`, the share of
independent draws that it `rules_out`, and the `combinations`, each a list of the values
of the parents, the value and the number of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.table.functional_dependencies import (
    Values,
    cell_values,
    level_places,
    parents_of,
    plain_value,
    series_values,
    with_dependencies,
)
from augmask.table.schema import Column, Schema, column_cells

Ints = npt.NDArray[np.int64]

KINDS = ("integer", "category", "boolean")
# Rows, and rows of the search.
FEWEST, MOST_ROWS = 1_000, 8_000
# Columns of the search, the values that each may have, and combinations.
MOST_COLUMNS, MOST_VALUES, MOST_COMBINATIONS = 60, 500, 10_000
FEWEST_VALUES, MOST_NUMBERS = 4, 50
# Parents that are tried on all rows.
MOST_TRIED = 5
# Numbers that go with the same values of the parents, on average.
FEW = 5
# Share of rows whose combination occurs once, loosely on a sample, and rows of each.
UNSEEN, UNSEEN_SAMPLE, PER_COMBINATION = 0.02, 0.1, 5
# Share of independent draws that must be ruled out, and more by a second parent.
RULED_OUT, MORE = 0.3, 0.1


# -- applying them ----------------------------------------------------------------


def keep_to_seen(
    column: Column,
    decoded: pd.Series,
    parents: Sequence[pd.Series],
    rng: np.random.Generator,
) -> pd.Series:
    """Return a decoded column without values that were never seen with its parents.

    Missing cells stay, and cells whose parents were never seen together.
    """
    seen = column.seen_with or {}
    stored = list(zip(*seen["combinations"], strict=True))
    levels = [list(dict.fromkeys(part)) for part in stored[:-1]]
    table = [
        np.array([position[value] for value in part])
        for part, known in zip(stored[:-1], levels, strict=True)
        for position in [{value: i for i, value in enumerate(known)}]
    ]
    rows = [series_values(series) for series in (*parents, decoded)]
    codes = [level_places(v, known) for v, known in zip(rows, levels, strict=True)]
    sizes = [len(known) for known in levels]
    own = sizes[-1]
    context, wanted = table[0], codes[0]
    for more, drawn, size in zip(table[1:-1], codes[1:-1], sizes[1:-1], strict=True):
        context = context * size + more
        wanted = np.where((wanted < 0) | (drawn < 0), -1, wanted * size + drawn)
    groups, group = np.unique(context, return_inverse=True)
    at = np.clip(np.searchsorted(groups, wanted), 0, len(groups) - 1)
    known = groups[at] == wanted
    pairs = np.unique(group * own + table[-1])
    fits = np.isin(at * own + codes[-1], pairs) & (codes[-1] >= 0)
    wrong = np.flatnonzero(known & ~fits & ~np.asarray(decoded.isna()))
    if not len(wrong):
        return decoded
    values, counts = np.array(stored[-2], object), np.array(stored[-1], np.float64)
    chance = rng.random(len(wrong))
    chosen = np.empty(len(wrong), np.int64)
    members_of = np.split(
        np.argsort(group, kind="stable"), np.bincount(group).cumsum()[:-1]
    )
    by_group = np.argsort(at[wrong], kind="stable")
    starts = np.flatnonzero(np.diff(at[wrong][by_group], prepend=-1))
    for cells in np.split(by_group, starts[1:]):
        members = members_of[at[wrong[cells[0]]]]
        if column.kind == "integer":
            known_values = values[members].astype(np.float64)
            own_values = rows[-1][wrong[cells]]
            nearest = np.abs(known_values - own_values[:, None]).argmin(axis=1)
            chosen[cells] = members[nearest]
        else:
            total = counts[members].cumsum()
            chosen[cells] = members[np.searchsorted(total, chance[cells] * total[-1])]
    result = decoded.copy()
    new = pd.Series(list(values[chosen]), index=result.index[wrong])
    result.iloc[wrong] = new.astype(decoded.dtype)
    return result


# -- finding them -----------------------------------------------------------------


def _pair_codes(a: Ints, b: Ints) -> Ints:
    """Return codes of pairs, -1 where one is missing."""
    if not len(a):
        return a
    return np.where((a < 0) | (b < 0), -1, a * (int(b.max()) + 1) + b)


def _ruled_out(parent: Ints, own: Ints, unseen: float, most: float) -> float:
    """Return the share of independent draws that no row has.

    It is 0 if too many combinations occur once, or if more than `most` values go with
    the same parents.
    """
    both = (parent >= 0) & (own >= 0)
    n = int(both.sum())
    if n < FEWEST:
        return 0.0
    x, y = parent[both], own[both]
    size = int(y.max()) + 1
    pairs, counts = np.unique(x * size + y, return_counts=True)
    if (counts == 1).sum() > unseen * n:
        return 0.0
    contexts, in_context = np.unique(x, return_counts=True)
    pairs = pairs[counts > 1]
    share = in_context[np.searchsorted(contexts, pairs // size)] / n
    if share.sum() > most:
        return 0.0
    return float(1 - share @ (np.bincount(y, minlength=size) / n)[pairs % size])


class _Search:
    """Codes of the columns that may be combined, on a sample of rows and on all."""

    def __init__(self, frame: pd.DataFrame, schema: Schema) -> None:
        self.columns: dict[str, Column] = {}
        self.all: dict[str, Ints] = {}
        self.levels: dict[str, Values] = {}
        for column in schema:
            if column.kind not in KINDS or len(self.columns) == MOST_COLUMNS:
                continue
            cells = column_cells(frame[column.label], column)
            codes, levels = pd.factorize(cell_values(cells, column))
            if 2 <= len(levels) <= MOST_VALUES:
                self.columns[column.name] = column
                self.all[column.name] = codes.astype(np.int64)
                self.levels[column.name] = levels
        order = np.random.default_rng(0).permutation(len(frame))[:MOST_ROWS]
        self.some = {name: codes[order] for name, codes in self.all.items()}

    def best(self, name: str, parents: Sequence[str]) -> tuple[list[str], float]:
        """Return the best one or two of the parents, and what they rule out."""
        # Redrawn levels must not say more than what they keep to.
        column, size = self.columns[name], len(self.levels[name])
        moves = column.kind == "integer" or bool(column.rare_levels)
        single = {
            other: self.ruled_out(name, [other], few=False)
            for other in parents
            if moves or len(self.levels[other]) >= size
        }
        order = sorted(single, key=lambda other: -single[other])[:MOST_TRIED]
        order = [other for other in order if single[other]]
        if not order:
            return [], 0.0
        # on all rows a promising parent may turn out to leave too much unseen
        exact = {other: self.ruled_out(name, [other], sample=False) for other in order}
        first = next((o for o in order if exact[o] >= RULED_OUT), order[0])
        double = {
            other: self.ruled_out(name, [first, other])
            for other in parents
            if other != first and single[first] < 1 - MORE
        }
        second = max(double, key=lambda other: double[other], default="")
        if second and double[second] >= single[first] + MORE:
            out = self.ruled_out(name, [first, second], sample=False)
            if out >= RULED_OUT:
                return [first, second], out
        return ([first], exact[first]) if exact[first] >= RULED_OUT else ([], 0.0)

    def ruled_out(
        self, name: str, parents: Sequence[str], sample: bool = True, few: bool = True
    ) -> float:
        """Return the share of independent draws that the parents rule out."""
        codes = self.some if sample else self.all
        context = codes[parents[0]]
        for other in parents[1:]:
            context = _pair_codes(context, codes[other])
        integer = self.columns[name].kind == "integer"
        most = FEW if few and integer else np.inf
        unseen = UNSEEN_SAMPLE if sample else UNSEEN
        return _ruled_out(context, codes[name], unseen, most)

    def can_be_parent(self, name: str) -> bool:
        """Whether a column has levels, or few numbers."""
        few = len(self.levels[name]) <= MOST_NUMBERS
        return few or self.columns[name].kind != "integer"

    def combinations(self, name: str, parents: Sequence[str]) -> list[list[Any]]:
        """Return the combinations that occur more than once, with their rows."""
        members = [*parents, name]
        codes = pd.DataFrame({i: self.all[member] for i, member in enumerate(members)})
        counts = codes[(codes >= 0).all(axis=1)].value_counts(sort=False).sort_index()
        counts = counts[counts > 1]
        if counts.sum() < PER_COMBINATION * len(counts):
            return []
        columns = [
            self.levels[member][counts.index.get_level_values(i)]
            for i, member in enumerate(members)
        ]
        rows = zip(*columns, counts.tolist(), strict=True)
        return [[plain_value(value) for value in row] for row in rows]


def with_seen_combinations(
    frame: pd.DataFrame, schema: Schema, declared: Collection[str] = ()
) -> Schema:
    """Return the schema with the columns that keep to seen combinations.

    Columns that others determine are left out, and `declared` ones. No column keeps to
    one that depends on it, levels only to one of as many levels at least, and a column
    that says where others are not applicable to none.

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> rng = np.random.default_rng(0)
    >>> town, shop = rng.integers(0, 20, 4_000), rng.integers(0, 3, 4_000)
    >>> frame = pd.DataFrame({"town": town, "shop": (7 * town + 11 * shop) % 50})
    >>> shop = with_seen_combinations(frame, infer_schema(frame))["shop"].seen_with
    >>> shop["columns"], len(shop["combinations"])
    (['town'], 60)
    """
    if len(frame) < FEWEST:
        return schema
    search = _Search(frame, schema)
    on = {column.name: set(parents_of(column)) for column in schema}

    def depends(name: str, other: str) -> bool:
        return name == other or any(depends(each, other) for each in on[name])

    def rank(name: str) -> tuple[bool, int]:
        # levels that share a code are drawn regardless of all others
        return not search.columns[name].rare_levels, -len(search.levels[name])

    # What is not applicable follows from the levels as they were generated.
    fixed = {*declared} | {
        column.missing_where["where"][0][0]
        for column in schema
        if column.missing_where is not None and column.missing_where["structural"]
    }
    links: dict[str, dict[str, Any]] = {}
    for name in sorted(search.columns, key=rank):
        column = search.columns[name]
        if column.is_determined or name in fixed or column.kind == "boolean":
            continue
        if len(search.levels[name]) < FEWEST_VALUES:
            continue
        free = [
            other
            for other in search.columns
            if search.can_be_parent(other) and not depends(other, name)
        ]
        parents, out = search.best(name, free)
        if not parents:
            continue
        combinations = search.combinations(name, parents)
        if 0 < len(combinations) <= MOST_COMBINATIONS:
            on[name] |= set(parents)
            links[name] = {
                "columns": parents,
                "rules_out": round(out, 3),
                "combinations": combinations,
            }
    return Schema(tuple(replace(c, seen_with=links.get(c.name)) for c in schema))


def with_links(frame: pd.DataFrame, schema: Schema) -> Schema:
    """Return the schema with dependencies and with seen combinations.

    A column of which you have declared what determines it has only that.
    """
    declared = {column.name for column in schema if column.determined_by is not None}
    linked = with_dependencies(frame, schema)
    return with_seen_combinations(frame, linked, declared)


def without_links(schema: Schema) -> Schema:
    """Return the schema with every column learned independently."""
    return Schema(tuple(replace(c, determined_by=None, seen_with=None) for c in schema))
