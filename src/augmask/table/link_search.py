"""Find columns that are (nearly) functions of others.

Three forms are looked for: the same value in both columns, a level that follows from
another column's level, a number that is the sum of two others. All on a sample of rows
and of columns, so that wide tables take seconds; what is found is counted on all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import SchemaError, did_you_mean
from augmask.table.cells import read_cells
from augmask.table.links import LINKED, agrees, cell_values, implied
from augmask.table.schema import Column, Schema

MOST_ROWS = 2_000
# Columns that are compared with each other: for equal values, for maps, for sums.
MOST_SAME, MOST_MAPPED, MOST_SUMMED = 400, 150, 60
# Rows that have both cells.
FEWEST = 100
# Levels that a map may be from, and rows that each needs.
MOST_LEVELS, PER_LEVEL = 1_000, 3
# Agreement beyond chance: of values that are equal, of a map with exceptions, and of
# one to few levels, which a network learns by itself unless it is nearly exact.
SAME, MAPPED, EXACT, SUM = 0.9, 0.9, 0.98, 0.98
MANY = 8
MOST_GUESSES = 400


class _Values:
    """The values of all linkable columns, and codes of a sample of rows."""

    def __init__(self, frame: pd.DataFrame, schema: Schema) -> None:
        self.columns = {c.name: c for c in schema if c.kind in LINKED}
        self.frame = frame
        self.rows: Any = slice(None)
        if len(frame) > MOST_ROWS:
            order = np.random.default_rng(0).permutation(len(frame))
            self.rows = np.sort(order[:MOST_ROWS])
        self.whole: dict[str, npt.NDArray[Any]] = {}
        self.codes: dict[str, npt.NDArray[np.int64]] = {}
        self.levels: dict[str, Any] = {}
        some = frame.iloc[self.rows].reset_index(drop=True)
        for name, column in self.columns.items():
            cells = read_cells(some[column.label], name, column.na_values)
            codes, levels = pd.factorize(cell_values(cells, column))
            self.codes[name] = codes.astype(np.int64)
            self.levels[name] = levels

    def all_of(self, name: str) -> npt.NDArray[Any]:
        """Return the values of every row."""
        if name not in self.whole:
            column = self.columns[name]
            cells = read_cells(self.frame[column.label], name, column.na_values)
            self.whole[name] = cell_values(cells, column)
        return self.whole[name]


def _beyond_chance(
    same: npt.NDArray[np.bool_], x: npt.NDArray[Any], y: npt.NDArray[Any]
) -> float:
    """Return how much of the agreement chance does not make, and common values."""
    _, cx, nx = np.unique(x, return_inverse=True, return_counts=True)
    values = np.unique(x)
    share_y = np.array([(y == v).mean() for v in values[np.argsort(-nx)[:50]]])
    share_x = np.sort(nx)[::-1][:50] / len(x)
    chance = float(share_x @ share_y)
    kappa = (float(same.mean()) - chance) / max(1 - chance, 1e-9)
    # two columns of zeros agree in them; the others count
    other = cx != np.argmax(nx)
    return min(kappa, float(same[other].mean()) if other.sum() >= PER_LEVEL else 0.0)


def _same(values: _Values) -> list[tuple[str, str]]:
    """Return pairs (earlier, later) of columns with equal values."""
    many = [n for n in values.columns if len(values.levels[n]) >= MANY][:MOST_SAME]
    found = []
    for textual in (False, True):
        names = [n for n in many if (values.levels[n].dtype == object) == textual]
        if len(names) < 2:
            continue
        shared: dict[Any, int] = {}
        table = np.full((len(next(iter(values.codes.values()))), len(names)), -1)
        for j, name in enumerate(names):
            place = [shared.setdefault(v, len(shared)) for v in values.levels[name]]
            codes = values.codes[name]
            table[:, j] = np.append(np.array(place, np.int64), -1)[codes]
        seen = table >= 0
        for i, name in enumerate(names[:-1]):
            both = seen[:, i + 1 :] & seen[:, [i]]
            equal = (table[:, i + 1 :] == table[:, [i]]) & both
            n = both.sum(axis=0)
            share = equal.sum(axis=0) / np.maximum(n, 1)
            for k in np.flatnonzero((n >= FEWEST) & (share >= SAME)).tolist():
                rows, j = both[:, k], i + 1 + k
                score = _beyond_chance(equal[rows, k], table[rows, i], table[rows, j])
                if score >= SAME:
                    found.append((name, names[j]))
    return found


def _mapped(values: _Values) -> list[tuple[str, str]]:
    """Return (from, to) of columns whose levels follow from another's."""
    names = [
        name
        for name, column in values.columns.items()
        if column.kind != "float" and 2 <= len(values.levels[name]) <= MOST_LEVELS
    ][:MOST_MAPPED]
    found = []
    for x in names:
        n_x = len(values.levels[x])
        for y in names:
            n_y = len(values.levels[y])
            # a column of many values does not follow from one of few
            if x == y or n_x < 3 or 2 * n_y > 3 * n_x:
                continue
            cx, cy = values.codes[x], values.codes[y]
            both = (cx >= 0) & (cy >= 0)
            n = int(both.sum())
            if n < FEWEST or n < 2 * n_x:
                continue
            counts = np.bincount(cx[both] * n_y + cy[both], minlength=n_x * n_y)
            counts = counts.reshape(n_x, n_y)
            rows = counts.sum(axis=1)
            # judged by the other rows of its level
            right = counts.max(axis=1)[rows >= PER_LEVEL].sum() / n
            base = counts.sum(axis=0).max() / n
            score = (right - base) / max(1 - base, 1e-9)
            if score >= (MAPPED if n_y >= MANY else EXACT):
                found.append((x, y))
    return found


def _sums(values: _Values) -> list[tuple[str, list[str], str]]:
    """Return (how, from, to) of numbers that add up.

    A round total is not the sum of any two parts: then a part is derived.
    """
    names = [
        name
        for name, column in values.columns.items()
        if column.kind in ("integer", "float") and len(values.levels[name]) > MANY
    ][:MOST_SUMMED]
    if len(names) < 3:
        return []
    numbers = np.stack(
        [
            np.append(values.levels[n].astype(np.float64), np.nan)[values.codes[n]]
            for n in names
        ],
        axis=1,
    )
    found = []
    for i, j in combinations(range(len(names)), 2):
        total = numbers[:, [i]] + numbers[:, [j]]
        near = np.abs(numbers - total) <= 1e-9 * np.maximum(np.abs(total), 1)
        known = ~np.isnan(numbers - total)
        # a part that is 0 makes any sum; both must matter
        matter = known & (numbers[:, [i]] != 0) & (numbers[:, [j]] != 0)
        n = matter.sum(axis=0)
        share = (near & matter).sum(axis=0) / np.maximum(n, 1)
        for k in np.flatnonzero((n >= FEWEST) & (share >= SUM)):
            one, two, total_name = names[i], names[j], names[k]
            sizes = {n: len(values.levels[n]) for n in (total_name, one, two)}
            if k in (i, j):
                continue
            if sizes[total_name] >= 0.9 * max(sizes.values()):
                found.append(("sum", [one, two], total_name))
            else:
                # a small error in the wide part would be a large one in the narrow
                wide = np.nanstd(numbers[:, [i, j]], axis=0)
                part, other = (one, two) if wide[0] >= wide[1] else (two, one)
                found.append(("difference", [total_name, other], part))
    return found


def _link(values: _Values, how: str, sources: list[str], name: str) -> dict[str, Any]:
    """Return a link with its share on all rows, {} if it is not worth one."""
    own = values.all_of(name)
    told = [values.all_of(source) for source in sources]
    link: dict[str, Any] = {"column": sources, "how": how, "share": 0.0, "rows": 0}
    if how == "map":
        link["pairs"] = _pairs(told[0], own)
        if not link["pairs"]:
            return {}
    equal, known = agrees(link, implied(link, told), own)
    if known.sum() < FEWEST:
        return {}
    # a share that rounds to 1 has exceptions still
    share = float(equal.sum() / known.sum())
    link |= {"share": share, "rows": int(known.sum())}
    return link


def _pairs(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> list[list[Any]]:
    """Return each level of x with the commonest level of y there."""
    both = ~(pd.isna(x) | pd.isna(y))
    cx, of_x = pd.factorize(x[both])
    cy, of_y = pd.factorize(y[both])
    if not len(of_x) or len(of_x) > MOST_LEVELS:
        return []
    table = pd.crosstab(cx, cy).to_numpy()
    often = table.sum(axis=1) >= PER_LEVEL
    best = table.argmax(axis=1)
    return [[_plain(of_x[i]), _plain(of_y[best[i]])] for i in np.flatnonzero(often)]


def _plain(value: Any) -> str | int | float:
    if isinstance(value, str):
        return value
    return int(value) if float(value).is_integer() else float(value)


def find_links(
    frame: pd.DataFrame, schema: Schema, asked: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the columns that follow others, without circles.

    Parameters
    ----------
    frame : pandas.DataFrame
    schema : Schema
        Of the frame.
    asked : mapping of str to str, optional
        What the user has declared: a column, and the one that it follows, or
        `nothing`.

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> code = np.arange(600) * 7 % 40
    >>> frame = pd.DataFrame({"code": code, "name": [f"town {c}" for c in code]})
    >>> found = find_links(frame, infer_schema(frame))["name"]
    >>> found["column"], found["how"], found["share"], found["pairs"][0]
    (['code'], 'map', 1.0, [0, 'town 0'])
    """
    asked = asked or {}
    values = _Values(frame, schema)
    if len(values.columns) < 2:
        return {}
    place = {name: j for j, name in enumerate(values.columns)}
    found: dict[str, dict[str, Any]] = {}

    def leads_to(name: str, goal: str) -> bool:
        if name == goal:
            return True
        return any(leads_to(n, goal) for n in found.get(name, {}).get("column", []))

    def take(how: str, sources: list[str], name: str) -> None:
        free = name not in found and not any(leads_to(s, name) for s in sources)
        if free and (link := _link(values, how, sources, name)):
            found[name] = link

    for name, source in asked.items():
        if source != "nothing" and name in values.columns:
            if source not in values.columns:
                raise SchemaError(
                    f"column {name!r} is to follow {source!r}, which is no learned "
                    "column of numbers or levels"
                    + did_you_mean(source, list(values.columns))
                )
            equal, known = agrees({"how": "same"}, *map(values.all_of, (source, name)))
            mostly = 2 * equal.sum() > known.sum()
            take("same" if mostly else "map", [source], name)
    guesses = []
    pairs = [("same", *pair) for pair in _same(values)]
    pairs += [("map", *pair) for pair in _mapped(values)]
    for how, x, y in pairs[:MOST_GUESSES]:
        if y not in asked and (link := _link(values, how, [x], y)):
            # equal values say more than a map, and the earlier column tells the later
            rank = (-round(link["share"], 3), how == "map", place[x] > place[y])
            guesses.append((rank, place[y], x, y, link))
    guesses.sort(key=lambda guess: guess[:4])
    for *_, x, y, link in guesses:
        if y not in found and not leads_to(x, y):
            found[y] = link
    for how, sources, name in _sums(values):
        if name not in asked:
            take(how, sources, name)
    return found


def with_links(frame: pd.DataFrame, schema: Schema) -> Schema:
    """Return the schema with the columns that follow others.

    What the user has declared (`follows`) is looked up first.
    """
    asked = {
        column.name: (column.follows["column"] or ["nothing"])[0]
        for column in schema
        if column.follows is not None
    }
    found = find_links(frame, schema, asked)

    def linked(column: Column) -> Column:
        return replace(column, follows=found.get(column.name))

    return Schema(tuple(map(linked, schema)))


def without_links(schema: Schema) -> Schema:
    """Return the schema with every column learned by itself."""
    return Schema(tuple(replace(column, follows=None) for column in schema))
