"""Functional dependencies: columns that are (nearly) functions of others.

This year's school is last year's in 96 of 100 rows; a code determines a name; a total
is the sum of its parts. A network that learns such columns side by side gets each right
and the pair wrong. So a column that others determine gets a binary feature, "y follows
x": observed where all these cells are. The column itself is encoded as usual. In
decoding, the cell is what the other columns imply wherever the feature says so. A
dependency without exceptions needs no feature: it always applies.

The search looks for three forms: equal values in two columns, a level that is a
function of another column's level, and a number that is the sum of two others. It works
on a sample of rows and columns, so that wide tables take seconds; what it finds is then
counted on all rows.

A dependency is plain data, `Column.determined_by`: the parent `columns`, `how` they
determine the column (same, map, sum, difference), the `share` of the `rows` with all
cells observed in which they do, and the `pairs` of a map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import SchemaError, did_you_mean
from augmask.table.cells import Cells
from augmask.table.dtype_recovery import to_boolean, to_float
from augmask.table.notes import OPERATORS
from augmask.table.schema import Column, Schema, column_cells, searched_rows

Bools = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]
Dependency = dict[str, Any]

# Kinds that can determine or be determined. Dates can be written in too many ways.
KINDS = ("integer", "float", "category", "boolean")
# Relative rounding error of sums.
NOISE = 1e-7
# Rows of the search, and columns compared for equal values, for maps and for sums.
MOST_ROWS = 2_000
MOST_SAME, MOST_MAPPED, MOST_SUMMED = 400, 150, 60
# Rows with all cells observed.
FEWEST = 100
# Levels that a map may start from, and rows that each needs; the rarer of two needs
# more, because two rare flags may coincide by chance.
MOST_LEVELS, PER_LEVEL, PER_FLAG = 1_000, 3, 10
# Agreement beyond chance of equal values, of a map with exceptions, and of a map to
# fewer than MANY levels, which a network learns by itself unless it is nearly exact.
SAME, MAPPED, EXACT, SUM = 0.9, 0.9, 0.98, 0.98
MANY = 8
MOST_GUESSES = 400


# -- features and values ----------------------------------------------------------


def dependency_name(column: Column) -> str:
    """Return the name of the feature that says where the dependency applies."""
    dependency = column.determined_by or {}
    operator = OPERATORS.get(dependency.get("how", ""), "")
    return f"{column.name} follows {operator.join(dependency.get('columns', []))}"


def has_exceptions(column: Column) -> bool:
    """Whether a dependency has exceptions and therefore needs a feature."""
    return column.is_determined and (column.determined_by or {})["share"] < 1


def _objects(values: Any, missing: Bools) -> Values:
    plain: Values = np.asarray(values, dtype=object).copy()
    plain[missing] = None
    return plain


def cell_values(cells: Cells, column: Column) -> Values:
    """Return comparable values: floats with NaN, or texts as objects with None."""
    convert = to_boolean if column.kind == "boolean" else to_float
    if not column.has_text_levels and cells.form != "empty":
        numbers = convert(cells)
        if numbers is not None:
            return np.where(cells.observed, numbers.values.astype(np.float64), np.nan)
    return _objects(cells.values, ~cells.observed)


def series_values(series: pd.Series) -> Values:
    """Return comparable values of a decoded column."""
    values = series.astype(object)
    missing = np.asarray(values.isna())
    known = values[~missing]
    if len(known) and all(isinstance(v, (bool, int, float)) for v in known.unique()):
        numbers: Values = values.where(~missing, np.nan).to_numpy(dtype=np.float64)
        return numbers
    return _objects(values, missing)


def plain_value(value: Any) -> str | int | float:
    """Return a comparable value as a schema stores it."""
    if isinstance(value, str):
        return value
    return int(value) if float(value).is_integer() else float(value)


def level_places(values: Values, levels: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return the place of each comparable value among the levels, -1 for others."""
    dtype: Any = object if isinstance(levels[0], str) else np.float64
    if values.dtype != dtype:
        return np.full(len(values), -1, np.int64)
    index = pd.Index(np.array(levels, dtype))
    return np.asarray(index.get_indexer(values), np.int64)


# -- applying a dependency --------------------------------------------------------


def implied_values(dependency: Mapping[str, Any], parents: Sequence[Values]) -> Values:
    """Return what the parents imply; NaN or None where they imply nothing."""
    if dependency["how"] == "sum":
        total: Values = parents[0] + parents[1]
        return total
    if dependency["how"] == "difference":
        difference: Values = parents[0] - parents[1]
        return difference
    (parent,) = parents
    if dependency["how"] == "same":
        return parent
    keys, values = zip(*dependency["pairs"], strict=True)
    dtype: Any = object if isinstance(keys[0], str) else np.float64
    at = pd.Index(list(keys), dtype=dtype).get_indexer(parent.astype(dtype))
    dtype = object if isinstance(values[0], str) else np.float64
    # Index -1, a key that is not in the map, selects the last value.
    lookup = np.array([*values, None if dtype is object else np.nan], dtype)
    result: Values = lookup[at]
    return result


def _agreement(
    dependency: Mapping[str, Any], implied: Values, own: Values
) -> tuple[Bools, Bools]:
    """Return where the column equals the implied value, and where both are known."""
    known = ~(pd.isna(implied) | pd.isna(own))
    numeric = implied.dtype != object and own.dtype != object
    if numeric and dependency["how"] in OPERATORS:
        near = np.abs(implied - own) <= NOISE * np.maximum(np.abs(own), 1.0)
        return known & near, known
    return known & (implied == own), known


def observed_agreement(
    column: Column, parents: Sequence[Values], own: Values
) -> tuple[Bools, Bools]:
    """Return where the dependency of a column applies, and where that is observed."""
    dependency = column.determined_by or {}
    return _agreement(dependency, implied_values(dependency, parents), own)


def apply_dependency(
    column: Column,
    decoded: pd.Series,
    parents: Sequence[pd.Series],
    where: Bools | None,
) -> pd.Series:
    """Return a decoded column with the values that its decoded parents imply.

    `where` says where the dependency applies, None everywhere. Missing cells, and those
    for which a value is implied that the column never had, stay as they are.
    """
    dependency = column.determined_by or {}
    implied = implied_values(dependency, [series_values(p) for p in parents])
    at = ~pd.isna(implied) & ~np.asarray(decoded.isna())
    if where is not None:
        at &= where
    if column.kind in ("integer", "float"):
        assert column.low is not None
        assert column.high is not None
        number = np.where(at, implied, column.low).astype(np.float64)
        if column.kind == "float" and column.decimals is not None:
            number = number.round(column.decimals)
        if column.kind == "integer":
            at &= number == np.rint(number)
        at &= (number >= column.low) & (number <= column.high)
        values: Any = number[at]
        if column.kind == "integer":
            values = values.astype(np.int64)
    else:
        levels: list[Any] = column.all_levels
        index = level_places(implied, levels)
        at &= index >= 0
        values = [levels[i] for i in index[at]]
    if not at.any():
        return decoded
    result = decoded.copy()
    result[at] = pd.Series(values, index=result.index[at]).astype(decoded.dtype)
    return result


def parents_of(column: Column) -> list[str]:
    """Return the columns that a decoded cell of this one depends on."""
    parents: list[str] = []
    if column.is_determined:
        parents += (column.determined_by or {})["columns"]
    if column.seen_with is not None:
        parents += column.seen_with["columns"]
    return parents


def dependency_order(schema: Schema) -> list[Column]:
    """Return the columns that depend on others in decoding, each after its parents."""
    dependent = {column.name: column for column in schema if parents_of(column)}
    parents = {name: parents_of(column) for name, column in dependent.items()}
    order = TopologicalSorter(parents).static_order()
    return [dependent[name] for name in order if name in dependent]


# -- finding dependencies ---------------------------------------------------------


class _Sample:
    """Codes and levels of a sample of rows, and on demand the values of all rows."""

    def __init__(self, frame: pd.DataFrame, schema: Schema) -> None:
        self.columns = {c.name: c for c in schema if c.kind in KINDS}
        self.frame = frame
        self._all: dict[str, Values] = {}
        self.codes: dict[str, npt.NDArray[np.int64]] = {}
        self.levels: dict[str, Any] = {}
        sample = searched_rows(frame, MOST_ROWS)
        for name in self.columns:
            codes, levels = pd.factorize(self._values(sample, name))
            self.codes[name], self.levels[name] = codes.astype(np.int64), levels

    def _values(self, frame: pd.DataFrame, name: str) -> Values:
        column = self.columns[name]
        cells = column_cells(frame[column.label], column)
        return cell_values(cells, column)

    def all_rows(self, name: str) -> Values:
        """Return the values of every row."""
        if name not in self._all:
            self._all[name] = self._values(self.frame, name)
        return self._all[name]


def _beyond_chance(same: Bools, x: Values, y: Values) -> float:
    """Return the agreement beyond chance: kappa, without the most frequent value."""
    values, codes, counts = np.unique(x, return_inverse=True, return_counts=True)
    share_y = np.array([(y == v).mean() for v in values[np.argsort(-counts)[:50]]])
    share_x = np.sort(counts)[::-1][:50] / len(x)
    chance = float(share_x @ share_y)
    kappa = (float(same.mean()) - chance) / max(1 - chance, 1e-9)
    # Two columns of mostly zeros agree in them; the other values count.
    other = codes != np.argmax(counts)
    return min(kappa, float(same[other].mean()) if other.sum() >= PER_LEVEL else 0.0)


def _equal_columns(sample: _Sample) -> list[tuple[str, str]]:
    """Return pairs (earlier, later) of columns with equal values."""
    candidates = [n for n in sample.columns if len(sample.levels[n]) >= MANY]
    pairs = []
    for textual in (False, True):
        names = [
            name
            for name in candidates[:MOST_SAME]
            if (sample.levels[name].dtype == object) == textual
        ]
        if len(names) < 2:
            continue
        shared: dict[Any, int] = {}
        table = np.full((len(next(iter(sample.codes.values()))), len(names)), -1)
        for j, name in enumerate(names):
            codes = [shared.setdefault(v, len(shared)) for v in sample.levels[name]]
            lookup = np.append(np.array(codes, np.int64), -1)
            table[:, j] = lookup[sample.codes[name]]
        observed = table >= 0
        for i, name in enumerate(names[:-1]):
            both = observed[:, i + 1 :] & observed[:, [i]]
            equal = (table[:, i + 1 :] == table[:, [i]]) & both
            n = both.sum(axis=0)
            share = equal.sum(axis=0) / np.maximum(n, 1)
            for k in np.flatnonzero((n >= FEWEST) & (share >= SAME)).tolist():
                rows, j = both[:, k], i + 1 + k
                score = _beyond_chance(equal[rows, k], table[rows, i], table[rows, j])
                if score >= SAME:
                    pairs.append((name, names[j]))
    return pairs


def _mapped_columns(sample: _Sample) -> list[tuple[str, str]]:
    """Return pairs (x, y) of columns where the level of x determines that of y."""
    names = [
        name
        for name, column in sample.columns.items()
        if column.kind != "float" and 2 <= len(sample.levels[name]) <= MOST_LEVELS
    ][:MOST_MAPPED]
    pairs = []
    for x in names:
        n_x = len(sample.levels[x])
        for y in names:
            n_y = len(sample.levels[y])
            # A column of few levels cannot determine one of many.
            if x == y or 2 * n_y > 3 * n_x:
                continue
            cx, cy = sample.codes[x], sample.codes[y]
            both = (cx >= 0) & (cy >= 0)
            n = int(both.sum())
            if n < FEWEST or n < 2 * n_x:
                continue
            counts = np.bincount(cx[both] * n_y + cy[both], minlength=n_x * n_y)
            counts = counts.reshape(n_x, n_y)
            rows = counts.sum(axis=1)
            if n_x == 2 and rows.min() < PER_FLAG:
                continue
            correct = counts.max(axis=1)[rows >= PER_LEVEL].sum() / n
            base = counts.sum(axis=0).max() / n
            score = (correct - base) / max(1 - base, 1e-9)
            if score >= (MAPPED if n_y >= MANY else EXACT):
                pairs.append((x, y))
    return pairs


def _sums(sample: _Sample) -> list[tuple[str, list[str], str]]:
    """Return (how, parents, column) of numbers that add up.

    A round total cannot be the sum of generated parts: then a part is the difference.
    """
    names = [
        name
        for name, column in sample.columns.items()
        if column.kind in ("integer", "float") and len(sample.levels[name]) > MANY
    ][:MOST_SUMMED]
    if len(names) < 3:
        return []
    numbers = np.stack(
        [
            np.append(sample.levels[n].astype(np.float64), np.nan)[sample.codes[n]]
            for n in names
        ],
        axis=1,
    )
    sums = []
    for i, j in combinations(range(len(names)), 2):
        total = numbers[:, [i]] + numbers[:, [j]]
        near = np.abs(numbers - total) <= 1e-9 * np.maximum(np.abs(total), 1)
        known = ~np.isnan(numbers - total)
        # A part that is 0 fits any sum: both must contribute.
        matter = known & (numbers[:, [i]] != 0) & (numbers[:, [j]] != 0)
        n = matter.sum(axis=0)
        share = (near & matter).sum(axis=0) / np.maximum(n, 1)
        for k in np.flatnonzero((n >= FEWEST) & (share >= SUM)):
            one, two, total_name = names[i], names[j], names[k]
            sizes = {n: len(sample.levels[n]) for n in (total_name, one, two)}
            if k in (i, j):
                continue
            if sizes[total_name] >= 0.9 * max(sizes.values()):
                sums.append(("sum", [one, two], total_name))
            else:
                # Derive the wider part: its errors would be large in the narrow one.
                width = np.nanstd(numbers[:, [i, j]], axis=0)
                part, other = (one, two) if width[0] >= width[1] else (two, one)
                sums.append(("difference", [total_name, other], part))
    return sums


def _pairs(x: Values, y: Values) -> list[list[Any]]:
    """Return each level of x with the most frequent level of y there."""
    both = ~(pd.isna(x) | pd.isna(y))
    cx, x_levels = pd.factorize(x[both])
    cy, y_levels = pd.factorize(y[both])
    if not len(x_levels) or len(x_levels) > MOST_LEVELS:
        return []
    table = pd.crosstab(cx, cy).to_numpy()
    frequent = table.sum(axis=1) >= PER_LEVEL
    best = table.argmax(axis=1)
    return [
        [plain_value(x_levels[i]), plain_value(y_levels[best[i]])]
        for i in np.flatnonzero(frequent)
    ]


def _dependency(
    sample: _Sample, how: str, parents: list[str], name: str
) -> Dependency | None:
    """Return a dependency with its share of all rows, None if it has too few rows."""
    own = sample.all_rows(name)
    values = [sample.all_rows(parent) for parent in parents]
    dependency: Dependency = {"columns": parents, "how": how, "share": 0.0, "rows": 0}
    if how == "map":
        dependency["pairs"] = _pairs(values[0], own)
        if not dependency["pairs"]:
            return None
    equal, known = _agreement(dependency, implied_values(dependency, values), own)
    if known.sum() < FEWEST:
        return None
    # Not rounded: a share that rounds to 1 may still have exceptions.
    share = float(equal.sum() / known.sum())
    return dependency | {"share": share, "rows": int(known.sum())}


def find_dependencies(
    frame: pd.DataFrame, schema: Schema, declared: Mapping[str, str] | None = None
) -> dict[str, Dependency]:
    """Return the columns that others determine, without cycles.

    Parameters
    ----------
    frame : pandas.DataFrame
    schema : Schema
        Of the frame.
    declared : mapping of str to str, optional
        Column -> the column that you have declared to determine it, or `nothing`.

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> code = np.arange(600) * 7 % 40
    >>> frame = pd.DataFrame({"code": code, "name": [f"town {c}" for c in code]})
    >>> name = find_dependencies(frame, infer_schema(frame))["name"]
    >>> name["columns"], name["how"], name["share"], name["pairs"][0]
    (['code'], 'map', 1.0, [0, 'town 0'])
    """
    declared = declared or {}
    sample = _Sample(frame, schema)
    if len(sample.columns) < 2:
        return {}
    position = {name: j for j, name in enumerate(sample.columns)}
    result: dict[str, Dependency] = {}

    def depends(name: str, on: str) -> bool:
        parents = result.get(name, {}).get("columns", [])
        return name == on or any(depends(parent, on) for parent in parents)

    def is_free(name: str, parents: list[str]) -> bool:
        return name not in result and not any(depends(p, name) for p in parents)

    def add(how: str, parents: list[str], name: str) -> None:
        if is_free(name, parents):
            dependency = _dependency(sample, how, parents, name)
            if dependency:
                result[name] = dependency

    for name, parent in declared.items():
        if parent != "nothing" and name in sample.columns:
            if parent not in sample.columns:
                raise SchemaError(
                    f"column {name!r}: determined_by must name a learned column of "
                    f"numbers or levels, got {parent!r}"
                    + did_you_mean(parent, list(sample.columns))
                )
            values = map(sample.all_rows, (parent, name))
            equal, known = _agreement({"how": "same"}, *values)
            mostly = 2 * equal.sum() > known.sum()
            add("same" if mostly else "map", [parent], name)
    guesses = []
    pairs = [("same", *pair) for pair in _equal_columns(sample)]
    pairs += [("map", *pair) for pair in _mapped_columns(sample)]
    for how, x, y in pairs[:MOST_GUESSES]:
        dependency = None if y in declared else _dependency(sample, how, [x], y)
        if dependency:
            # Prefer equal values to a map, and an earlier column as the parent.
            later = position[x] > position[y]
            rank = (-round(dependency["share"], 3), how == "map", later)
            guesses.append((rank, position[y], x, y, dependency))
    guesses.sort(key=lambda guess: guess[:4])
    for *_, x, y, dependency in guesses:
        if is_free(y, [x]):
            result[y] = dependency
    for how, parents, name in _sums(sample):
        if name not in declared:
            add(how, parents, name)
    return result


def with_dependencies(frame: pd.DataFrame, schema: Schema) -> Schema:
    """Return the schema with the dependencies found, declared ones first."""
    declared = {
        column.name: (column.determined_by["columns"] or ["nothing"])[0]
        for column in schema
        if column.determined_by is not None
    }
    dependencies = find_dependencies(frame, schema, declared)
    return Schema(
        tuple(replace(c, determined_by=dependencies.get(c.name)) for c in schema)
    )
