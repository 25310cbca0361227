"""Constraints between columns that every generated row satisfies.

Three forms: an order ("start <= end"), a fixed combination (["city", "zip"] or "city,
zip": only observed pairs), and a Python function that returns one boolean per row of a
frame. A constraint says nothing about a row in which one of its cells is missing.

`suggest_constraints` finds orders that a table always satisfies.
"""

from __future__ import annotations

import operator
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from keyword import iskeyword
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import AugMaskWarning, DataError, UsageError
from augmask.missing.model import with_missing
from augmask.table.codec import parse_formats
from augmask.table.conditions import (
    LISTED,
    MISSING,
    Comparison,
    Expression,
    Name,
    learned_column,
    read_expression,
    without_quoted,
)
from augmask.table.infer import missing_mask
from augmask.table.schema import Column, Schema
from augmask.table.table import BoolArray

# Beyond this share of violations the constraint is wrong, not the rows.
MAX_VIOLATIONS = 0.05
# With more combinations per row than this, only copies of rows would be allowed.
MAX_COMBINATIONS = 0.5

# Suggestions: rows, columns and constraints at most.
MAX_ROWS, MAX_COLUMNS, MAX_SUGGESTIONS = 5_000, 80, 10
# Rows with both cells, and the share of rows that must violate a suggested order when
# one column is shuffled: otherwise it only reflects two separate ranges.
MIN_ROWS, MIN_SHUFFLED_VIOLATIONS = 200, 0.1

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# Kinds that can be compared with each other.
_ORDERED = {"integer": "number", "float": "number", "datetime": "date"}
_COMBINED = ("integer", "category", "boolean")


def _complete(frame: pd.DataFrame) -> BoolArray:
    return np.asarray(frame.notna().all(axis=1), dtype=np.bool_)


@dataclass(frozen=True)
class Order:
    """Comparisons of columns with columns.

    Parameters
    ----------
    text : str
        As the user wrote it.
    columns : tuple
        Labels of the columns.
    pairs : tuple of (label, operator, label)
    """

    text: str
    columns: tuple[Any, ...]
    pairs: tuple[tuple[Any, str, Any], ...]

    def holds(self, frame: pd.DataFrame) -> BoolArray:
        """Return which rows satisfy the constraint."""
        result = ~_complete(frame[list(self.columns)])
        rows = frame[~result]
        valid = np.ones(len(rows), dtype=np.bool_)
        for left, sign, right in self.pairs:
            compare = _OPERATORS[sign]
            valid &= np.asarray(compare(rows[left], rows[right]), dtype=np.bool_)
        result[~result] = valid
        return result

    def to_dict(self) -> dict[str, Any]:
        """Return the constraint ready for JSON."""
        return {"order": self.text}


@dataclass(frozen=True, eq=False)
class Combination:
    """Cells of these columns occur only in observed combinations.

    Parameters
    ----------
    text : str
    columns : tuple
        Labels of the columns.
    levels : tuple of tuple
        The observed levels of each column.
    combinations : int array [k, columns]
        The observed combinations, as positions in `levels`; None before `fit`.
    """

    text: str
    columns: tuple[Any, ...]
    levels: tuple[tuple[Any, ...], ...] = ()
    combinations: npt.NDArray[np.int64] | None = None

    def fit(self, frame: pd.DataFrame) -> Combination:
        """Return the constraint with the combinations of a frame's complete rows."""
        rows = frame.loc[_complete(frame[list(self.columns)]), list(self.columns)]
        coded = [pd.factorize(rows[label], sort=True) for label in self.columns]
        unique = np.unique(np.stack([codes for codes, _ in coded], axis=1), axis=0)
        if len(unique) > MAX_COMBINATIONS * len(rows):
            raise DataError(
                f"the constraint {self.text} would allow nothing but copies: its "
                f"{len(rows):,} rows have {len(unique):,} different combinations; "
                "leave a column out"
            )
        levels = tuple(tuple(pd.Index(values).astype(object)) for _, values in coded)
        return replace(self, levels=levels, combinations=unique.astype(np.int64))

    def _keys(self, codes: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        """Return one number per combination."""
        keys = np.zeros(len(codes[0]), np.int64)
        for column, levels in zip(codes, self.levels, strict=True):
            keys = keys * (len(levels) + 1) + column
        return keys

    def holds(self, frame: pd.DataFrame) -> BoolArray:
        """Return which rows satisfy the constraint."""
        if self.combinations is None:
            return np.ones(len(frame), dtype=np.bool_)
        codes = []
        for label, levels in zip(self.columns, self.levels, strict=True):
            index = pd.Index(list(levels), dtype=object)
            place = index.get_indexer(frame[label].astype(object))
            # A level that was never observed is in no combination.
            codes.append(np.where(place < 0, len(levels), place).astype(np.int64))
        allowed = np.isin(self._keys(codes), self._keys(list(self.combinations.T)))
        return allowed | ~_complete(frame[list(self.columns)])

    def to_dict(self) -> dict[str, Any]:
        """Return the constraint ready for JSON, without the array of combinations."""
        return {
            "combination": [str(label) for label in self.columns],
            "levels": [list(levels) for levels in self.levels],
        }


@dataclass(frozen=True)
class Predicate:
    """A Python function; it may use every column."""

    function: Callable[[pd.DataFrame], Any]
    columns: tuple[Any, ...] = ()

    @property
    def text(self) -> str:
        """The name of the function."""
        function = self.function
        return str(getattr(function, "__name__", type(function).__name__))

    def holds(self, frame: pd.DataFrame) -> BoolArray:
        """Return which rows satisfy the constraint."""
        result = np.asarray(self.function(frame.copy()))
        if result.shape != (len(frame),) or result.dtype.kind not in "bO":
            raise UsageError(
                f"the constraint {self.text} must return one boolean for each of the "
                f"{len(frame)} rows, got {result.dtype} of shape {result.shape}"
            )
        return np.asarray(result, dtype=np.bool_)

    def to_dict(self) -> dict[str, Any]:
        """Return the name: a file does not contain code."""
        return {"own": self.text}


Constraint = Order | Combination | Predicate


EXAMPLE = "'start <= end'"


def _comparisons(expression: Expression) -> Iterator[Comparison | None]:
    """Yield comparisons that are joined by `and`; None for anything else."""
    if isinstance(expression, Comparison):
        yield None if expression.sign in (*LISTED, *MISSING) else expression
    elif expression.word == "and":
        for part in expression.parts:
            yield from _comparisons(part)
    else:
        yield None


def _read_order(text: str, schema: Schema) -> Order:
    labels: list[Any] = []
    pairs = []
    for comparison in _comparisons(read_expression(text, EXAMPLE)):
        # in a constraint, what stands in quotes is a name as well
        sides = [
            Name(side) if isinstance(side, str) else side
            for side in (comparison and (comparison.left, comparison.right)) or ()
        ]
        if comparison is None or not all(isinstance(side, Name) for side in sides):
            raise UsageError(
                f"a constraint compares columns with columns, like {EXAMPLE}, got "
                f"{text!r}; pass conditions on one column to sample as where"
            )
        columns = [
            learned_column(side.text, schema, f"the constraint {text!r}")
            for side in sides
        ]
        kinds = [_ORDERED.get(column.kind) for column in columns]
        naive = [column.tz is None for column in columns]
        if None in kinds or kinds[0] != kinds[1] or naive[0] != naive[1]:
            one, two = (f"{c.name!r} ({c.kind})" for c in columns)
            raise UsageError(
                f"the constraint {text!r} must compare two columns of numbers or of "
                f"dates, got {one} and {two}"
            )
        left, right = (column.label for column in columns)
        labels += [left, right]
        pairs.append((left, comparison.sign, right))
    return Order(text, tuple(dict.fromkeys(labels)), tuple(pairs))


def _read_text(text: str, schema: Schema) -> Order | Combination:
    """Return an order, or for names with commas between them a combination."""
    plain = without_quoted(text)
    if "," not in plain or set("<>=!") & set(plain):
        return _read_order(text, schema)
    ends = [i for i, letter in enumerate(plain) if letter == ","]
    parts = [
        text[start + 1 : end].strip()
        for start, end in zip([-1, *ends], [*ends, len(text)], strict=True)
    ]
    quoted = [
        part[1:-1]
        if len(part) > 1 and part[0] == part[-1] and part[0] in "`\"'"
        else part
        for part in parts
    ]
    return _read_combination(quoted, schema)


def _read_combination(names: Sequence[Any], schema: Schema) -> Combination:
    text = f"[{', '.join(map(repr, names))}]"
    columns = [learned_column(name, schema, f"the constraint {text}") for name in names]
    if len({column.name for column in columns}) < 2 or len(columns) != len(set(names)):
        raise UsageError(
            f"a fixed combination needs two or more different columns, got {text}"
        )
    for column in columns:
        if column.kind not in _COMBINED:
            raise UsageError(
                f"a fixed combination needs categories or integers, but column "
                f"{column.name!r} in the constraint {text} is of kind {column.kind}"
            )
    return Combination(text, tuple(column.label for column in columns))


def read_constraints(constraints: Any, schema: Schema) -> tuple[Constraint, ...]:
    """Parse constraints and check them against a schema.

    Parameters
    ----------
    constraints : sequence, or a single string or function
        Each a string such as ``"start <= end"`` or ``"city, zip"``, a list of column
        names, or a function from a frame to one boolean per row. Names that are not
        plain words stand in backticks or quotes.
    schema : Schema

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> frame = pd.DataFrame({"a": [*range(20)] * 3, "b": [*range(1, 21)] * 3})
    >>> (constraint,) = read_constraints("a <= b", infer_schema(frame))
    >>> constraint.holds(pd.DataFrame({"a": [1, 5, None], "b": [2, 4, 1]})).tolist()
    [True, False, True]
    """
    if constraints is None:
        return ()
    if isinstance(constraints, str) or callable(constraints):
        constraints = [constraints]
    if isinstance(constraints, Mapping) or not isinstance(constraints, Sequence):
        kind = type(constraints).__name__
        raise UsageError(f"constraints must be a list, got {kind}")
    parsed: list[Constraint] = []
    for constraint in constraints:
        if isinstance(constraint, str):
            parsed.append(_read_text(constraint, schema))
        elif isinstance(constraint, list | tuple):
            parsed.append(_read_combination(constraint, schema))
        elif callable(constraint):
            parsed.append(Predicate(constraint))
        else:
            raise UsageError(
                "a constraint must be a string, a list of column names or a function, "
                f"got {type(constraint).__name__}"
            )
    return tuple(parsed)


def learn_constraints(
    constraints: tuple[Constraint, ...], rows: pd.DataFrame, known: BoolArray
) -> tuple[Constraint, ...]:
    """Check constraints on the observed cells of a table, and fit combinations.

    Parameters
    ----------
    constraints : tuple of Constraint
    rows : pandas.DataFrame
        The table in the dtypes of generated rows; unobserved cells are ignored.
    known : bool array [n, d]
        True where a cell is observed, columns as in `rows`.

    Raises
    ------
    DataError
        When more than 5 % of the complete rows violate a constraint. Fewer give a
        warning.
    """
    place = {label: j for j, label in enumerate(rows.columns)}
    fitted = []
    for constraint in constraints:
        at = [place[label] for label in constraint.columns] or list(place.values())
        frame = rows[known[:, at].all(axis=1)].reset_index(drop=True)
        if not len(frame):
            warnings.warn(
                f"the constraint {constraint.text} could not be checked: no row has "
                "all of its cells",
                AugMaskWarning,
                stacklevel=4,
            )
        elif isinstance(constraint, Combination):
            constraint = constraint.fit(frame)
        else:
            _check(constraint, frame)
        fitted.append(constraint)
    return tuple(fitted)


def _check(constraint: Order | Predicate, frame: pd.DataFrame) -> None:
    n = int((~constraint.holds(frame)).sum())
    if not n:
        return
    text = f"{n:,} of {len(frame):,} rows violate the constraint {constraint.text}"
    if n > MAX_VIOLATIONS * len(frame):
        raise DataError(
            f"{text} ({n / len(frame):.1%}), and at most {MAX_VIOLATIONS:.0%} may; "
            "correct the constraint or the rows"
        )
    warnings.warn(
        f"{text}; all generated rows will satisfy it", AugMaskWarning, stacklevel=5
    )


def stored_constraints(
    constraints: tuple[Constraint, ...],
) -> tuple[list[dict[str, Any]], dict[str, npt.NDArray[np.int64]]]:
    """Return constraints as JSON contents and arrays, for a model file."""
    arrays = {
        str(i): constraint.combinations
        for i, constraint in enumerate(constraints)
        if isinstance(constraint, Combination) and constraint.combinations is not None
    }
    return [constraint.to_dict() for constraint in constraints], arrays


def restored_constraints(
    stored: Sequence[Mapping[str, Any]],
    arrays: Mapping[str, npt.NDArray[np.int64]],
    schema: Schema,
    own: Sequence[Callable[[pd.DataFrame], Any]],
) -> tuple[Constraint, ...]:
    """Rebuild from `stored_constraints`; functions come from `own`, by name."""
    functions = {Predicate(function).text: function for function in own}
    constraints: list[Constraint] = []
    for i, facts in enumerate(stored):
        if "own" in facts:
            constraints.append(Predicate(functions[facts["own"]]))
        elif "order" in facts:
            constraints.append(_read_order(facts["order"], schema))
        else:
            constraint = _read_combination(facts["combination"], schema)
            levels = tuple(tuple(values) for values in facts["levels"])
            codes = arrays.get(str(i))
            sizes = [len(values) for values in levels]
            if (codes is None) != (not levels) or not (
                codes is None
                or (
                    codes.ndim == 2
                    and codes.dtype.kind in "iu"
                    and codes.shape[1] == len(sizes) == len(constraint.columns)
                    and (codes >= 0).all()
                    and (codes < sizes).all()
                )
            ):
                raise ValueError(
                    f"the stored constraint {constraint.text} does not match its levels"
                )
            constraints.append(replace(constraint, levels=levels, combinations=codes))
    return tuple(constraints)


# -- suggestions -------------------------------------------------------------------


def _quoted(column: Column) -> str:
    """Return a column name as a constraint writes it."""
    plain = column.name.isidentifier() and not iskeyword(column.name)
    return column.name if plain else f"`{column.name}`"


def _as_numbers(series: pd.Series, column: Column) -> np.ndarray:
    """Return a column as floats, NaN where it is missing."""
    if column.kind != "datetime":
        plain = pd.to_numeric(series, errors="coerce")
        return np.asarray(plain.to_numpy(dtype=np.float64, na_value=np.nan))
    # without the format, all cells must look like the first
    dates = pd.to_datetime(series, errors="coerce", utc=True, format="ISO8601")
    naive = dates.dt.tz_localize(None).astype("datetime64[us]")
    numbers = naive.astype("int64").to_numpy(dtype=np.float64)
    return np.where(np.asarray(naive.isna()), np.nan, numbers)


def suggest_constraints(frame: pd.DataFrame, schema: Schema) -> list[str]:
    """Return orders of two numbers or dates that every row satisfies.

    Orders that many rows would violate with one column shuffled come first; those that
    few would violate only reflect two separate ranges and are left out.

    Parameters
    ----------
    frame : pandas.DataFrame
    schema : Schema
        Of the frame.

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> start = np.arange(300) * 7 % 90
    >>> frame = pd.DataFrame({"start": start, "end": start + np.arange(300) % 11})
    >>> suggest_constraints(frame, infer_schema(frame))
    ['start <= end']
    """
    suggestions: list[tuple[float, str]] = []
    rng = np.random.default_rng(0)
    frame = parse_formats(frame, schema)
    missing = missing_mask(frame, schema)
    observed = with_missing(frame, ~missing.to_numpy())
    for kinds in (("integer", "float"), ("datetime",)):
        columns = [
            column
            for column in schema
            if column.kind in kinds
            and not column.is_determined
            and "`" not in column.name
        ][:MAX_COLUMNS]
        numbers = [_as_numbers(observed[column.label], column) for column in columns]
        if len(numbers) < 2:
            continue
        table = np.stack(numbers, axis=1)
        sample = table
        if len(table) > MAX_ROWS:
            sample = table[np.sort(rng.permutation(len(table))[:MAX_ROWS])]
        shuffled = rng.permuted(sample, axis=0)
        for i, low in enumerate(columns):
            both = ~np.isnan(sample) & ~np.isnan(sample[:, [i]])
            holds = ((sample[:, [i]] <= sample) | ~both).all(axis=0)
            for j in np.flatnonzero(holds & (both.sum(axis=0) >= MIN_ROWS)):
                high = columns[j]
                same_zone = (low.tz is None) == (high.tz is None)
                if i == j or not same_zone or (table[:, i] > table[:, j]).any():
                    continue
                violations = float(np.mean(sample[:, i] > shuffled[:, j]))
                equal = np.nanmean(sample[:, i] == sample[:, j])
                if violations >= MIN_SHUFFLED_VIOLATIONS and equal < 1:
                    text = f"{_quoted(low)} <= {_quoted(high)}"
                    suggestions.append((-violations, text))
    return [text for _, text in sorted(suggestions)[:MAX_SUGGESTIONS]]


def suggestion_notes(orders: list[str], in_python: bool = False) -> list[str]:
    """Return a note on suggested constraints, if there are any."""
    if not orders:
        return []
    option = f"--constraint {shlex.quote(orders[0])}"
    if in_python:
        option = f"constraints=[{orders[0]!r}]"
    return [
        f"every row satisfies {', '.join(orders)}; to make generated rows satisfy it "
        f"too, fit with {option}"
    ]
