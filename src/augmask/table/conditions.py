"""Conditions on rows: `sex == "F" and (30 <= age <= 40 or income is missing)`.

You write a mapping or a text. Both become a `Where`: one condition per column, checked
against the schema (`Exactly` a value, `OneOf` several, `Between` two bounds, or
`Without` some values), which columns are missing, and alternatives (`or`). A range over
the ordered levels of a category becomes the set of levels within it.

Python's own parser reads a text, and only names, constants, lists, comparisons, `and`
and `or` are accepted. Everything else is refused by name, so that a text cannot call,
look up or compute anything.
"""

from __future__ import annotations

import ast
import datetime as dt
import math
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import ConditionError, brief_repr, did_you_mean
from augmask.table.cells import MAX_NUMBER, type_name
from augmask.table.dtype_recovery import NUMPY_UNITS
from augmask.table.formats import read_format
from augmask.table.schema import NUMERIC, Column, Schema

QUOTE = "'"
BoolArray = npt.NDArray[np.bool_]
_SETS = (list, set, frozenset, np.ndarray, pd.Index, pd.Series)
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NOT_LEARNED = {
    "identifier": "it is an identifier, for which new values are made",
    "constant": "it is constant",
    "all-missing": "it was never observed",
}
MAX_LENGTH = 10_000
ALLOWED = (
    "names, values, lists, comparisons (== != < <= > >= in, not in, is missing, is not "
    "missing), `and`, `or` and parentheses"
)
EXAMPLE = "'sex == \"F\" and 30 <= age <= 40'"

_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is missing",
    ast.IsNot: "is not missing",
}
_ISO = re.compile(r"\d{4}-\d\d-\d\d")
LISTED = ("in", "not in")
MISSING = ("is missing", "is not missing")
# Quoted text matches first, so that a backtick inside it stays as it is.
_QUOTED = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`([^`]*)`""")


# -- text to comparisons ----------------------------------------------------------


@dataclass(frozen=True)
class Name:
    """The name of a column, as written."""

    text: str


@dataclass(frozen=True)
class Comparison:
    """`left sign right`, where each side is a `Name` or a value.

    For `is missing` and `is not missing`, `right` is None.
    """

    left: Any
    sign: str
    right: Any


@dataclass(frozen=True)
class Joined:
    """Expressions joined by `and` or by `or`."""

    word: str
    parts: tuple[Expression, ...]


Expression = Comparison | Joined


# What people who know SQL or pandas write, and what to write instead. Quoted text is
# blanked out before the search.
_FOREIGN = (
    (r"<>", "write != for unequal"),
    (r"=>|=<", "write >= or <="),
    (r"&&?|\bAND\b", "write `and`"),
    (r"\|\|?|\bOR\b", "write `or`"),
    (r"(?i)\bis (not )?(null|none|nan|na|empty)\b", "write e.g. 'age is missing'"),
    (r"(?i)\bbetween\b", "write e.g. '30 <= age <= 40'"),
    (r"\b(IN|NOT|IS)\b", "write `in`, `not in` and `is missing` in small letters"),
    (r"(?i)\blike\b", 'list the values: \'city in ["Pau", "Metz"]\''),
    (r"(?<![=!<>])=(?!=)", "write == for equal"),
    (r"^\s*\(*\s*not\b|\b(and|or)\s+\(*not\b", "turn the comparison around"),
)


def _advice(text: str) -> str:
    """Return the end of a message about a text that is no condition."""
    plain = without_quoted(text)
    hints = [advice for pattern, advice in _FOREIGN if re.search(pattern, plain)]
    return f"; {hints[0]}" if hints else ""


class _Reader:
    """Walks the syntax tree of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.quoted: dict[str, str] = {}
        self.plain = _QUOTED.sub(self._hide, text).strip()

    def _hide(self, match: re.Match[str]) -> str:
        """Replace a name in backticks by a valid Python name."""
        if match.group(1) is None:
            return match.group(0)
        word = f"quoted_{len(self.quoted)}_"
        while word in self.text:
            word += "_"
        self.quoted[word] = match.group(1)
        return word

    def _refuse(self, node: ast.AST) -> ConditionError:
        piece = ast.get_source_segment(self.plain, node) or type(node).__name__
        for word, name in self.quoted.items():
            piece = piece.replace(word, f"`{name}`")
        hint = ""
        if isinstance(node, ast.Attribute):
            hint = "; put a name that is not a plain word in `backticks`"
        if isinstance(node, ast.Constant) and node.value is None:
            hint = "; write e.g. 'age is missing'"
        hint = hint or _advice(self.text)
        return ConditionError(
            f"a condition may have {ALLOWED}, but {piece[:60]!r} is none of them{hint}"
        )

    def _side(self, node: ast.expr) -> Any:
        """Return one side of a comparison: a name, a value or a list of values."""
        if isinstance(node, ast.Name):
            return Name(self.quoted.get(node.id, node.id))
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            values = [self._side(item) for item in node.elts]
            if any(isinstance(value, Name | list) for value in values):
                raise self._refuse(node)
            return values
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        inner = node.operand if isinstance(node, ast.UnaryOp) else node
        if isinstance(inner, ast.Constant) and (negative or inner is node):
            value = inner.value
            if negative and isinstance(value, int | float):
                return -value
            if not negative and isinstance(value, str | int | float):
                return value
        raise self._refuse(node)

    def _comparisons(self, node: ast.Compare) -> Iterator[Comparison]:
        left = self._side(node.left)
        for operator, right_node in zip(node.ops, node.comparators, strict=True):
            sign = _SIGNS[type(operator)]
            if sign in MISSING:
                word = right_node.id if isinstance(right_node, ast.Name) else ""
                if word != "missing" or len(node.ops) > 1 or not isinstance(left, Name):
                    raise self._refuse(node)
                yield Comparison(left, sign, None)
                return
            right = self._side(right_node)
            if isinstance(right, list) != (sign in LISTED) or isinstance(left, list):
                raise self._refuse(node)
            yield Comparison(left, sign, right)
            left = right

    def _expression(self, node: ast.expr) -> Expression:
        if isinstance(node, ast.BoolOp):
            word = "and" if isinstance(node.op, ast.And) else "or"
            return Joined(word, tuple(map(self._expression, node.values)))
        if not isinstance(node, ast.Compare):
            raise self._refuse(node)
        comparisons = tuple(self._comparisons(node))
        return comparisons[0] if len(comparisons) == 1 else Joined("and", comparisons)

    def read(self, example: str) -> Expression:
        try:
            with warnings.catch_warnings():
                # Python warns about odd but valid comparisons.
                warnings.simplefilter("ignore")
                tree = ast.parse(self.plain, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            advice = _advice(self.text) or (
                f"; write e.g. {example}, with `backticks` around names that are not "
                "plain words"
            )
            raise ConditionError(
                f"{self.text[:60]!r} cannot be read as a condition{advice}"
            ) from error
        try:
            return self._expression(tree.body)
        except RecursionError as error:
            raise ConditionError(
                f"{self.text[:60]!r} cannot be read as a condition: it has too many "
                "parentheses"
            ) from error


def read_expression(text: str, example: str = EXAMPLE) -> Expression:
    """Return the comparisons of a text and how they are joined.

    Examples
    --------
    >>> either = read_expression("30 <= age or `home town` not in ['Pau']")
    >>> either.word, [comparison.sign for comparison in either.parts]
    ('or', ['<=', 'not in'])
    >>> read_expression("__import__('os').remove('x') == 1")
    Traceback (most recent call last):
    ...
    augmask.errors.ConditionError: a condition may have names, values, lists, ...
    """
    if len(text) > MAX_LENGTH:
        raise ConditionError(
            f"a condition may have at most {MAX_LENGTH:,} characters, got {len(text):,}"
        )
    return _Reader(text).read(example)


def without_quoted(text: str) -> str:
    """Return a text with what stands in quotes or backticks blanked out.

    Examples
    --------
    >>> without_quoted("`a, b` <= c")
    '       <= c'
    """
    return _QUOTED.sub(lambda match: " " * len(match[0]), text)


# -- values in terms of a column --------------------------------------------------


def _wrong_type(column: Column, value: Any, holds: str) -> ConditionError:
    return ConditionError(
        f"column {column.name!r} holds {holds}, so it cannot be compared with the "
        f"{type_name(value)} {brief_repr(value, 40).strip(QUOTE)!r}"
    )


def _number(column: Column, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type(column, value, "numbers")
    # `math.isnan` cannot convert larger integers to a float.
    if (isinstance(value, int) and abs(value) > MAX_NUMBER) or math.isnan(value):
        raise _wrong_type(column, value, f"numbers up to {MAX_NUMBER:g}")
    return value


def _instant(column: Column, value: Any) -> pd.Timestamp:
    if not isinstance(value, str | dt.date | np.datetime64 | pd.Timestamp):
        raise _wrong_type(column, value, "dates")
    try:
        instant = pd.Timestamp(value)
    except (ValueError, OverflowError) as error:
        raise _wrong_type(column, value, "dates such as '2024-02-29'") from error
    if instant is pd.NaT:
        raise _wrong_type(column, value, "dates")
    if column.tz is not None:
        if instant.tz is not None:
            return instant
        # If the clock repeats the hour, the first; if it skips it, the next instant.
        return instant.tz_localize(
            column.tz, ambiguous=True, nonexistent="shift_forward"
        )
    if instant.tz is not None:
        raise ConditionError(
            f"column {column.name!r} has no time zone, so it cannot be compared with "
            f"{str(value)!r}; leave the zone out"
        )
    return instant


def _in_format(column: Column, text: str) -> Any:
    """Return what a text means that is written as in the table, or as an ISO date."""
    form = read_format(str(column.format))
    value = form.parse([text])[0]
    if value == value:
        return pd.Timestamp(value) if column.kind == "datetime" else value.item()
    timed = column.kind == "datetime" and getattr(form, "is_time", False)
    if column.kind == "datetime" and not timed and _ISO.match(text):
        return text
    dtype = "datetime64[s]" if column.kind == "datetime" else np.float64
    example = form.write(np.array([_limits(column)[0]], dtype=dtype))[0]
    raise _wrong_type(column, text, f"values such as {example!r}")


def _levels(column: Column) -> list[Any]:
    """Return all levels, in their order if they have one."""
    every = column.all_levels
    if column.ordered and column.categories:
        return [level for level in column.categories if level in every]
    if not isinstance(every[0], str):
        return sorted(every)
    return list(column.levels) if column.ordered else every


def _level(column: Column, value: Any) -> Any:
    levels = _levels(column)
    text = isinstance(levels[0], str)
    if isinstance(value, str) != text or isinstance(value, bool) != isinstance(
        levels[0], bool
    ):
        holds = "text" if text else f"{type_name(levels[0])}s"
        raise _wrong_type(column, value, f"{holds} such as {levels[0]!r}")
    if value not in levels:
        raise ConditionError(
            f"column {column.name!r} has no level {brief_repr(value)}"
            + did_you_mean(brief_repr(value).strip("'"), map(str, levels))
        )
    return levels[levels.index(value)]


def _checked_value(column: Column, value: Any) -> Any:
    """Return a plain value, or raise if it is missing or too large."""
    value = value.item() if isinstance(value, np.bool_ | np.number) else value
    if value is None or value is pd.NA or value is pd.NaT:
        raise ConditionError(
            f"column {column.name!r} must be compared with a value, got {value!r}; for "
            f"missing values write where='`{column.name}` is missing' and pass "
            "missing='learned'"
        )
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise ConditionError(
            f"column {column.name!r} must be compared with a number that it can hold, "
            f"got {brief_repr(value)}"
        )
    return value


def _value(column: Column, value: Any) -> Any:
    """Return a value as the column represents it, or raise."""
    value = _checked_value(column, value)
    if column.format is not None and isinstance(value, str):
        value = _in_format(column, value)
    if column.kind == "datetime":
        return _instant(column, value)
    return (_number if column.kind in NUMERIC else _level)(column, value)


def _bound(column: Column, value: Any) -> Any:
    """Return the bound of a range; for numeric levels it may be any number."""
    if column.kind in ("boolean", "category"):
        first = _levels(column)[0]
        if isinstance(first, str | bool) and not column.ordered:
            raise ConditionError(
                f"column {column.name!r} cannot have a range, because its levels "
                "have no order; list those you want"
            )
        if not isinstance(first, str):
            return _number(column, _checked_value(column, value))
    return _value(column, value)


def _limits(column: Column) -> tuple[Any, Any]:
    """Return the smallest and the largest value of a numeric column."""
    if column.kind != "datetime":
        return column.low, column.high
    stored = np.array([column.low, column.high], np.int64)
    low, high = map(
        pd.Timestamp, stored.astype(f"datetime64[{NUMPY_UNITS[str(column.unit)]}]")
    )
    if column.tz is None:
        return low, high
    if column.unit == "D":
        return _instant(column, low), _instant(column, high)
    low, high = (end.tz_localize("UTC").tz_convert(column.tz) for end in (low, high))
    return low, high


# -- conditions on one column -----------------------------------------------------


@dataclass(frozen=True)
class Exactly:
    """The cell has this value."""

    value: Any

    def holds(self, cells: pd.Series) -> BoolArray:
        """Return for each cell whether it is the value."""
        return _true(cells == self.value)


@dataclass(frozen=True)
class OneOf:
    """The cell has one of these values."""

    values: tuple[Any, ...]

    def holds(self, cells: pd.Series) -> BoolArray:
        """Return for each cell whether it is one of the values."""
        return _true(cells.isin(list(self.values)))


@dataclass(frozen=True)
class Between:
    """The cell lies between two bounds, which are inclusive unless open."""

    low: Any
    high: Any
    open_low: bool = False
    open_high: bool = False

    def holds(self, cells: pd.Series) -> BoolArray:
        """Return for each cell whether it lies within."""
        above = cells > self.low if self.open_low else cells >= self.low
        below = cells < self.high if self.open_high else cells <= self.high
        return _true(above) & _true(below)


@dataclass(frozen=True)
class Without:
    """The cell lies between two bounds and has none of these values."""

    bounds: Between
    values: tuple[Any, ...]

    def holds(self, cells: pd.Series) -> BoolArray:
        """Return for each cell whether it lies within and is none of the values."""
        return self.bounds.holds(cells) & ~_true(cells.isin(list(self.values)))


Condition = Exactly | OneOf | Between | Without


def _true(answers: pd.Series) -> BoolArray:
    """Return plain booleans; a missing value satisfies no condition."""
    return np.asarray(answers.fillna(False), dtype=np.bool_)


class _Comparisons:
    """Collects the comparisons with one column and joins them into a condition."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.values: list[Any] | None = None
        self.excluded: list[Any] = []
        self.missing: bool | None = None
        self.low: tuple[Any, bool] | None = None
        self.high: tuple[Any, bool] | None = None

    def is_one_of(self, values: Iterable[Any]) -> None:
        allowed = [_value(self.column, value) for value in values]
        if self.values is not None:
            allowed = [value for value in allowed if value in self.values]
        self.values = list(dict.fromkeys(allowed))

    def is_none_of(self, values: Iterable[Any]) -> None:
        self.excluded += [_value(self.column, value) for value in values]

    def is_missing(self, missing: bool) -> None:
        if self.missing not in (None, missing):
            raise ConditionError(
                f"column {self.column.name!r} cannot be missing and not missing"
            )
        self.missing = missing

    @property
    def has_values(self) -> bool:
        """Whether anything is said about the values of the column."""
        bounds = (self.values, self.low, self.high)
        return bool(self.excluded) or any(part is not None for part in bounds)

    def is_beyond(self, sign: str, value: Any) -> None:
        bound = _bound(self.column, value), sign in ("<", ">")
        # Of two equal bounds the open one is tighter.
        if sign in (">", ">="):
            self.low = bound if self.low is None else max(self.low, bound)
        else:
            bounds = [bound] if self.high is None else [self.high, bound]
            self.high = min(bounds, key=lambda end: (end[0], not end[1]))

    def _contradiction(self) -> ConditionError:
        if self.column.kind in NUMERIC:
            low, high = _limits(self.column)
            possible = f"was observed from {low} to {high}"
        else:
            levels = _levels(self.column)
            possible = "has the levels " + ", ".join(map(repr, levels[:5]))
            possible += ", ..." if len(levels) > 5 else ""
        return ConditionError(
            f"no value of column {self.column.name!r} satisfies the condition; it is "
            f"of kind {self.column.kind} and {possible}"
        )

    def _within(self, value: Any, rank: Callable[[Any], Any]) -> bool:
        """Whether a value lies within both bounds, compared by `rank`."""
        at = rank(value)
        if self.low is not None:
            low, open_low = rank(self.low[0]), self.low[1]
            if at < low or (at == low and open_low):
                return False
        if self.high is not None:
            high, open_high = rank(self.high[0]), self.high[1]
            return bool(at < high or (at == high and not open_high))
        return True

    def condition(self) -> Condition:
        """Return the condition, or raise if no value satisfies it."""
        column, allowed = self.column, self.values
        if self.missing:
            raise ConditionError(
                f"column {column.name!r} cannot be missing and have a value; join the "
                "two with `or`"
            )
        rank: Callable[[Any], Any] = lambda value: value  # noqa: E731
        if column.kind not in NUMERIC:
            levels = _levels(column)
            allowed = levels if allowed is None else allowed
            rank = levels.index if isinstance(levels[0], str) else rank
        elif allowed is None:
            return self._range()
        else:
            low, high = _limits(column)
            allowed = [value for value in allowed if low <= value <= high]
            if column.kind == "integer":
                allowed = [int(value) for value in allowed if value == int(value)]
        allowed = [
            value
            for value in allowed
            if value not in self.excluded and self._within(value, rank)
        ]
        if not allowed:
            raise self._contradiction()
        return Exactly(allowed[0]) if len(allowed) == 1 else OneOf(tuple(allowed))

    def _range(self) -> Condition:
        first, last = _limits(self.column)
        low, open_low = max(self.low or (first, False), (first, False))
        high, open_high = self.high or (last, False)
        if high > last:
            high, open_high = last, False
        if low > high:
            raise self._contradiction()
        if self.column.kind == "integer":
            low = math.floor(low) + 1 if open_low else math.ceil(low)
            high = math.ceil(high) - 1 if open_high else math.floor(high)
            open_low = open_high = False
        if low > high or (low == high and (open_low or open_high)):
            raise self._contradiction()
        excluded = [value for value in self.excluded if low <= value <= high]
        if low == high:
            if excluded:
                raise self._contradiction()
            return Exactly(low)
        if self.column.kind == "integer":
            excluded = [int(value) for value in excluded if value == int(value)]
            if len(set(excluded)) > high - low:
                raise self._contradiction()
        bounds = Between(low, high, open_low, open_high)
        return Without(bounds, tuple(dict.fromkeys(excluded))) if excluded else bounds


@dataclass(frozen=True)
class Where:
    """What a row must satisfy: all of its parts.

    Parameters
    ----------
    conditions : dict from column label to Condition
        On the values of single columns.
    missing : dict from column label to bool
        Whether these columns are missing.
    alternatives : tuple of tuple of Where
        At least one of each group must hold.

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> frame = pd.DataFrame({"age": [*range(20, 50)] * 2, "sex": ["f", "m", "m"] * 20})
    >>> where = read_where("sex == 'f' and 30 < age <= 40", infer_schema(frame))
    >>> where.conditions["age"]
    Between(low=31, high=40, open_low=False, open_high=False)
    >>> frame[where.holds(frame)]["age"].tolist()
    [32, 35, 38, 32, 35, 38]
    """

    conditions: dict[Any, Condition] = field(default_factory=dict)
    missing: dict[Any, bool] = field(default_factory=dict)
    alternatives: tuple[tuple[Where, ...], ...] = ()

    @property
    def exact(self) -> dict[Any, Any]:
        """The columns that must have one value, and that value."""
        return {
            label: condition.value
            for label, condition in self.conditions.items()
            if isinstance(condition, Exactly)
        }

    @property
    def columns(self) -> tuple[Any, ...]:
        """The labels of all columns that it names."""
        labels = [*self.conditions, *self.missing]
        labels += [x for group in self.alternatives for w in group for x in w.columns]
        return tuple(dict.fromkeys(labels))

    @property
    def missing_columns(self) -> dict[Any, bool]:
        """Columns that it asks about being missing; True where one may have to be."""
        asked = dict(self.missing)
        for where in (where for group in self.alternatives for where in group):
            for label, missing in where.missing_columns.items():
                asked[label] = asked.get(label, False) or missing
        return asked

    def split(self, complete: Collection[Any]) -> tuple[Where, Where]:
        """Return what complete rows can be tested for, and the rest.

        Parameters
        ----------
        complete : collection of labels
            Columns whose missing values are part of a complete row.
        """

        def tests_rows(where: Where) -> bool:
            return where.missing_columns.keys() <= set(complete)

        rows: tuple[dict[Any, bool], list[tuple[Where, ...]]] = ({}, [])
        rest: tuple[dict[Any, bool], list[tuple[Where, ...]]] = ({}, [])
        for label, missing in self.missing.items():
            (rows if label in complete else rest)[0][label] = missing
        for group in self.alternatives:
            (rows if all(map(tests_rows, group)) else rest)[1].append(group)
        return (
            Where(self.conditions, rows[0], tuple(rows[1])),
            Where({}, rest[0], tuple(rest[1])),
        )

    def holds(
        self, frame: pd.DataFrame, incomplete: pd.DataFrame | None = None
    ) -> BoolArray:
        """Return for each row whether it satisfies everything.

        Parameters
        ----------
        frame : DataFrame
        incomplete : DataFrame, optional
            The same rows with missing values, if `frame` has them before these were
            removed.
        """
        shown = frame if incomplete is None else incomplete
        rows = np.ones(len(frame), dtype=np.bool_)
        for label, condition in self.conditions.items():
            rows &= condition.holds(frame[label])
        for label, missing in self.missing.items():
            rows &= np.asarray(shown[label].isna(), dtype=np.bool_) == missing
        for group in self.alternatives:
            rows &= np.any([where.holds(frame, incomplete) for where in group], axis=0)
        return rows


def learned_column(name: Any, schema: Schema, what: str) -> Column:
    """Return the learned column of that name; `what` is the subject of messages."""
    column = next((each for each in schema if each.name == str(name)), None)
    if column is None:
        # Python's parser has normalised the letters of an unquoted name.
        same = [c for c in schema if unicodedata.normalize("NFKC", c.name) == str(name)]
        column = same[0] if len(same) == 1 else None
    if column is None:
        raise ConditionError(
            f"{what} names the column {str(name)!r}, which the model does not have"
            + did_you_mean(str(name), schema.names)
        )
    if not column.learned:
        raise ConditionError(
            f"{what} names the column {str(name)!r}, which was not learned: "
            f"{_NOT_LEARNED[column.kind]}"
        )
    return column


class _Conjunction:
    """Collects what is joined by `and`, column by column."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.columns: dict[Any, _Comparisons] = {}
        self.alternatives: list[tuple[Where, ...]] = []

    def about(self, name: Any) -> _Comparisons:
        column = learned_column(name, self.schema, "the condition")
        return self.columns.setdefault(column.label, _Comparisons(column))

    def add(self, expression: Expression) -> None:
        """Add a comparison, or several that are joined by `and` or `or`."""
        if isinstance(expression, Comparison):
            self._add_comparison(expression)
        elif expression.word == "and":
            for part in expression.parts:
                self.add(part)
        elif (values := _one_column(expression)) is not None:
            self.add(values)
        else:
            group = []
            for part in expression.parts:
                branch = _Conjunction(self.schema)
                branch.add(part)
                group.append(branch.where())
            self.alternatives.append(tuple(group))

    def _add_comparison(self, comparison: Comparison) -> None:
        left, sign, right = comparison.left, comparison.sign, comparison.right
        if sign in MISSING:
            self.about(left.text).is_missing(sign == "is missing")
            return
        if isinstance(left, Name) and isinstance(right, Name):
            self._refuse_bare_level(left, sign, right)
        if isinstance(left, Name) == isinstance(right, Name):
            raise ConditionError(
                "a comparison in a condition must have one column and one value, got "
                f"{getattr(left, 'text', left)} {sign} {getattr(right, 'text', right)}"
                "; pass constraints between columns to fit"
            )
        if isinstance(right, Name):
            if sign in LISTED:
                raise ConditionError(f"`{sign}` must have a column on its left")
            left, sign, right = right, _MIRRORED[sign], left
        comparisons = self.about(left.text)
        if sign in ("==", "in"):
            comparisons.is_one_of(right if sign == "in" else [right])
        elif sign in ("!=", "not in"):
            comparisons.is_none_of(right if sign == "not in" else [right])
        else:
            comparisons.is_beyond(sign, right)

    def _refuse_bare_level(self, left: Name, sign: str, right: Name) -> None:
        """Raise if one side is a column and the other a word without quotes."""
        names = self.schema.names
        for name, word in ((left, right), (right, left)):
            if name.text in names and word.text not in names:
                said = f"put a value in quotes, {name.text} {sign} '{word.text}'"
                if word.text.lower() in ("true", "false"):
                    said = f"write {word.text.capitalize()}"
                elif word.text.lower() in ("null", "none", "nan", "na", "missing"):
                    said = f"write '{name.text} is missing'"
                raise ConditionError(
                    f"there is no column {word.text!r}; {said}"
                    + did_you_mean(word.text, names, every=False)
                )

    def where(self) -> Where:
        """Return all of it, or raise if no row can satisfy it."""
        return Where(
            {
                label: each.condition()
                for label, each in self.columns.items()
                if each.has_values
            },
            {
                label: each.missing
                for label, each in self.columns.items()
                if each.missing is not None
            },
            tuple(self.alternatives),
        )


def _one_column(either: Joined) -> Comparison | None:
    """Return `age == 30 or age == 40` as `age in [30, 40]`; None for anything else."""
    values: list[Any] = []
    names = set()
    for part in either.parts:
        if not isinstance(part, Comparison) or not isinstance(part.left, Name):
            return None
        if part.sign not in ("==", "in") or isinstance(part.right, Name):
            return None
        names.add(part.left)
        values += part.right if part.sign == "in" else [part.right]
    return Comparison(names.pop(), "in", values) if len(names) == 1 else None


def _from_mapping(
    where: Mapping[Any, Any], about: Callable[[Any], _Comparisons]
) -> None:
    for name, value in where.items():
        comparisons = about(name)
        if isinstance(value, tuple):
            if len(value) != 2 or all(end is None for end in value):
                raise ConditionError(
                    f"a range of column {str(name)!r} must be a tuple (low, high), one "
                    f"of them may be None, got {brief_repr(value)}; pass several "
                    "values as a list"
                )
            for sign, end in zip((">=", "<="), value, strict=True):
                if end is not None:
                    comparisons.is_beyond(sign, end)
        elif isinstance(value, _SETS):
            comparisons.is_one_of(list(value))
        else:
            comparisons.is_one_of([value])


def read_where(where: Any, schema: Schema) -> Where:
    """Return conditions on rows, checked against a schema.

    Parameters
    ----------
    where : mapping or str
        ``{"sex": "F", "age": (30, 40), "city": ["A", "B"]}``: a value, a tuple for an
        inclusive range (None for no bound), a list or set for several values. Or a
        text: ``'sex == "F" and (age < 30 or city not in ["A", "B"])'``.
    schema : Schema

    Raises
    ------
    ConditionError
        If it is unreadable, names no learned column, or no value satisfies it.
    """
    collected = _Conjunction(schema)
    if isinstance(where, str):
        collected.add(read_expression(where))
    elif isinstance(where, Mapping):
        _from_mapping(where, collected.about)
    else:
        raise ConditionError(
            "where must be a mapping of column to value, a text such as 'age > 30', or "
            f"a frame of partial rows, got {type(where).__name__}"
        )
    result = collected.where()
    if not result.columns:
        raise ConditionError("where must name at least one column, got none")
    return result
