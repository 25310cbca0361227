"""Rules between columns that every generated row keeps.

Three forms: an order ("start <= end"), a fixed combination (["city", "zip"]: only pairs
that were seen), and a function of one's own that says of each row of a frame whether it
is allowed. A rule says something about a row only where all its cells are known.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import AugMaskWarning, DataError, UsageError
from augmask.table.schema import Column, Schema
from augmask.table.table import BoolArray
from augmask.table.where import learned_column
from augmask.table.where_text import Name, read_comparisons

# Beyond this share of broken rows it is the rule that is wrong, not the rows.
MOST_BROKEN = 0.05
# With more combinations a row than this, only copies of rows would be allowed.
MOST_COMBINATIONS = 0.5

_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# What can be compared with what.
_ORDERED = {"integer": "number", "float": "number", "datetime": "date"}
_COMBINED = ("integer", "category", "boolean")


def _known(frame: pd.DataFrame) -> BoolArray:
    return np.asarray(frame.notna().all(axis=1), dtype=np.bool_)


@dataclass(frozen=True)
class Order:
    """Comparisons of columns with columns.

    Parameters
    ----------
    text : str
        As the user wrote it.
    columns : tuple
        Labels of the columns it names.
    pairs : tuple of (label, sign, label)
    """

    text: str
    columns: tuple[Any, ...]
    pairs: tuple[tuple[Any, str, Any], ...]

    def holds(self, frame: pd.DataFrame) -> BoolArray:
        """Say of each row whether it keeps the rule."""
        kept = ~_known(frame[list(self.columns)])
        rows = frame[~kept]
        good = np.ones(len(rows), dtype=np.bool_)
        for left, sign, right in self.pairs:
            good &= np.asarray(_SIGNS[sign](rows[left], rows[right]), dtype=np.bool_)
        kept[~kept] = good
        return kept

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe contents."""
        return {"order": self.text}


@dataclass(frozen=True, eq=False)
class Combination:
    """Cells of these columns come only in combinations that were seen.

    Parameters
    ----------
    text : str
    columns : tuple
        Labels of the columns.
    levels : tuple of tuple
        The levels of each column that were seen.
    seen : int array [k, columns]
        The combinations, as positions in `levels`.
    """

    text: str
    columns: tuple[Any, ...]
    levels: tuple[tuple[Any, ...], ...] = ()
    seen: npt.NDArray[np.int64] | None = None

    def learned(self, frame: pd.DataFrame) -> Combination:
        """Return the rule with the combinations of a frame's known rows."""
        rows = frame.loc[_known(frame[list(self.columns)]), list(self.columns)]
        coded = [pd.factorize(rows[label], sort=True) for label in self.columns]
        seen = np.unique(np.stack([codes for codes, _ in coded], axis=1), axis=0)
        if len(seen) > MOST_COMBINATIONS * len(rows):
            raise DataError(
                f"the rule {self.text} allows only combinations that were seen, but "
                f"the {len(rows):,} rows have {len(seen):,} of them, nearly one each, "
                "so nothing but copies would be allowed; leave a column out"
            )
        levels = tuple(tuple(pd.Index(found).astype(object)) for _, found in coded)
        return replace(self, levels=levels, seen=seen.astype(np.int64))

    def _keys(self, codes: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        """Return one number per combination."""
        keys = np.zeros(len(codes[0]), np.int64)
        for column, levels in zip(codes, self.levels, strict=True):
            keys = keys * (len(levels) + 1) + column
        return keys

    def holds(self, frame: pd.DataFrame) -> BoolArray:
        """Say of each row whether it keeps the rule."""
        if self.seen is None:
            return np.ones(len(frame), dtype=np.bool_)
        codes = []
        for label, levels in zip(self.columns, self.levels, strict=True):
            index = pd.Index(list(levels), dtype=object)
            found = index.get_indexer(frame[label].astype(object))
            # A level that was never seen is in no combination.
            codes.append(np.where(found < 0, len(levels), found).astype(np.int64))
        allowed = np.isin(self._keys(codes), self._keys(list(self.seen.T)))
        return allowed | ~_known(frame[list(self.columns)])

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe contents, less the array of combinations."""
        return {
            "combination": [str(label) for label in self.columns],
            "levels": [list(levels) for levels in self.levels],
        }


@dataclass(frozen=True)
class Predicate:
    """A function of the user's own; it may look at every column."""

    function: Callable[[pd.DataFrame], Any]
    columns: tuple[Any, ...] = ()

    @property
    def text(self) -> str:
        """Its name."""
        function = self.function
        return str(getattr(function, "__name__", type(function).__name__))

    def holds(self, frame: pd.DataFrame) -> BoolArray:
        """Say of each row whether it keeps the rule."""
        answers = np.asarray(self.function(frame.copy()))
        if answers.shape != (len(frame),) or answers.dtype.kind not in "bO":
            raise UsageError(
                f"the rule {self.text} must return one True or False for each of the "
                f"{len(frame)} rows, got {answers.dtype} of shape {answers.shape}"
            )
        return np.asarray(answers, dtype=np.bool_)

    def to_dict(self) -> dict[str, Any]:
        """Return its name: a file cannot carry code."""
        return {"own": self.text}


Constraint = Order | Combination | Predicate


def _read_order(text: str, schema: Schema) -> Order:
    columns: dict[Any, Column] = {}
    pairs = []
    for found in read_comparisons(text):
        sides = [found.left, found.right]
        if found.sign == "in" or not all(isinstance(side, Name) for side in sides):
            raise UsageError(
                f"a rule compares columns with columns, like 'start <= end', got "
                f"{text!r}; what one column must satisfy is given to sample as where"
            )
        named = [
            learned_column(side.text, schema, f"the rule {text!r}") for side in sides
        ]
        kinds = [_ORDERED.get(column.kind) for column in named]
        zoned = [column.tz is None for column in named]
        if None in kinds or kinds[0] != kinds[1] or zoned[0] != zoned[1]:
            one, two = (f"{c.name!r} ({c.kind})" for c in named)
            raise UsageError(
                f"the rule {text!r} must compare two columns of numbers or of dates, "
                f"got {one} and {two}"
            )
        columns |= {column.label: column for column in named}
        pairs.append((named[0].label, found.sign, named[1].label))
    return Order(text, tuple(columns), tuple(pairs))


def _read_combination(names: Sequence[Any], schema: Schema) -> Combination:
    text = f"[{', '.join(map(repr, names))}]"
    columns = [learned_column(name, schema, f"the rule {text}") for name in names]
    if len({column.name for column in columns}) < 2 or len(columns) != len(set(names)):
        raise UsageError(
            f"a fixed combination takes two or more different columns, got {text}"
        )
    for column in columns:
        if column.kind not in _COMBINED:
            raise UsageError(
                f"a fixed combination is one of levels or whole numbers, but column "
                f"{column.name!r} in the rule {text} is of kind {column.kind}"
            )
    return Combination(text, tuple(column.label for column in columns))


def read_constraints(constraints: Any, schema: Schema) -> tuple[Constraint, ...]:
    """Return rules in their normal form, checked against a schema.

    Parameters
    ----------
    rules : sequence, or a single text or function
        Each a text such as ``"start <= end"``, a list of column names, or a function
        from a frame to one boolean per row.
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
        raise UsageError(f"rules must be a list, got {type(constraints).__name__}")
    found: list[Constraint] = []
    for constraint in constraints:
        if isinstance(constraint, str):
            found.append(_read_order(constraint, schema))
        elif isinstance(constraint, list | tuple):
            found.append(_read_combination(constraint, schema))
        elif callable(constraint):
            found.append(Predicate(constraint))
        else:
            raise UsageError(
                "a rule is a text, a list of column names or a function, got "
                f"{type(constraint).__name__}"
            )
    return tuple(found)


def learn_constraints(
    constraints: tuple[Constraint, ...], rows: pd.DataFrame, known: BoolArray
) -> tuple[Constraint, ...]:
    """Check rules on the known cells of a table; return them with what they learned.

    Parameters
    ----------
    rules : tuple of Rule
    rows : pandas.DataFrame
        The table in the dtypes of generated rows; what stands in holes is ignored.
    known : bool array [n, d]
        False in holes, columns as in `rows`.

    Raises
    ------
    DataError
        When more than 5 % of the rows that a rule speaks about break it. Fewer are
        told in a warning.
    """
    place = {label: j for j, label in enumerate(rows.columns)}
    learned = []
    for constraint in constraints:
        at = [place[label] for label in constraint.columns] or list(place.values())
        frame = rows[known[:, at].all(axis=1)].reset_index(drop=True)
        if not len(frame):
            warnings.warn(
                f"the rule {constraint.text} could not be checked: no row has all of its "
                "cells",
                AugMaskWarning,
                stacklevel=4,
            )
        elif isinstance(constraint, Combination):
            constraint = constraint.learned(frame)
        else:
            _check(constraint, frame)
        learned.append(constraint)
    return tuple(learned)


def _check(constraint: Order | Predicate, frame: pd.DataFrame) -> None:
    broken = int((~constraint.holds(frame)).sum())
    if not broken:
        return
    share = f"{broken:,} of {len(frame):,} rows break the rule {constraint.text}"
    if broken > MOST_BROKEN * len(frame):
        raise DataError(
            f"{share} ({broken / len(frame):.1%}), and at most {MOST_BROKEN:.0%} may; "
            "correct the rule or the rows"
        )
    warnings.warn(
        f"{share}; generated rows will all keep it", AugMaskWarning, stacklevel=5
    )


def stored_constraints(
    constraints: tuple[Constraint, ...],
) -> tuple[list[dict[str, Any]], dict[str, npt.NDArray[np.int64]]]:
    """Return rules as JSON-safe contents and arrays, for a model file."""
    arrays = {
        str(i): constraint.seen
        for i, constraint in enumerate(constraints)
        if isinstance(constraint, Combination) and constraint.seen is not None
    }
    return [constraint.to_dict() for constraint in constraints], arrays


def restored_constraints(
    stored: Sequence[Mapping[str, Any]],
    arrays: Mapping[str, npt.NDArray[np.int64]],
    schema: Schema,
    own: Sequence[Callable[[pd.DataFrame], Any]],
) -> tuple[Constraint, ...]:
    """Rebuild from `stored_constraints`; functions are taken from `own`, by name."""
    given = {Predicate(function).text: function for function in own}
    constraints: list[Constraint] = []
    for i, facts in enumerate(stored):
        if "own" in facts:
            constraints.append(Predicate(given[facts["own"]]))
        elif "order" in facts:
            constraints.append(_read_order(facts["order"], schema))
        else:
            constraint = _read_combination(facts["combination"], schema)
            levels = tuple(tuple(found) for found in facts["levels"])
            seen = arrays.get(str(i))
            sizes = [len(found) for found in levels]
            if (seen is None) != (not levels) or not (
                seen is None
                or (
                    seen.ndim == 2
                    and seen.dtype.kind in "iu"
                    and seen.shape[1] == len(sizes) == len(constraint.columns)
                    and (seen >= 0).all()
                    and (seen < sizes).all()
                )
            ):
                raise ValueError(
                    f"the stored rule {constraint.text} does not fit its levels"
                )
            constraints.append(replace(constraint, levels=levels, seen=seen))
    return tuple(constraints)
