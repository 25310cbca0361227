"""Comparisons written as text, read without running anything.

    sex == "F" and 30 <= age <= 40 and `home town` in ["Pau", "Metz"]

Python's own parser makes the tree, and a white list walks it: names, constants, signs,
lists, comparisons and `and`. Everything else is refused by name, so nothing in the text
can call, look up or compute anything.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from augmask.errors import ConditionError

LONGEST = 10_000
ALLOWED = "names, values, lists, comparisons (== < <= > >= in) and `and`"

_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
}
# Quoted text is matched first, so that a backtick within it stays what it is.
_QUOTED = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`([^`]*)`""")


@dataclass(frozen=True)
class Name:
    """A column, as it was written."""

    text: str


@dataclass(frozen=True)
class Comparison:
    """`left sign right`, where each side is a `Name` or a value."""

    left: Any
    sign: str
    right: Any


class _Reader:
    """Walks the tree of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.quoted: dict[str, str] = {}
        self.plain = _QUOTED.sub(self._hide, text).strip()

    def _hide(self, match: re.Match[str]) -> str:
        """Replace a name in backticks by a word that Python can read."""
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
            hint = "; a name that is no plain word stands in `backticks`"
        return ConditionError(
            f"a condition may hold {ALLOWED}, but {piece[:60]!r} is none of them{hint}"
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

    def _comparisons(self, node: ast.expr) -> Iterator[Comparison]:
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for part in node.values:
                yield from self._comparisons(part)
            return
        if not isinstance(node, ast.Compare):
            raise self._refuse(node)
        left = self._side(node.left)
        for operator, right_node in zip(node.ops, node.comparators, strict=True):
            sign = _SIGNS.get(type(operator))
            if sign is None:
                raise self._refuse(node)
            right = self._side(right_node)
            if isinstance(right, list) != (sign == "in") or isinstance(left, list):
                raise self._refuse(node)
            yield Comparison(left, sign, right)
            left = right

    def read(self) -> list[Comparison]:
        try:
            with warnings.catch_warnings():
                # Python remarks on odd spellings, which are values to us.
                warnings.simplefilter("ignore")
                tree = ast.parse(self.plain, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ConditionError(
                f"a condition is written like 'sex == \"F\" and 30 <= age <= 40', with "
                f"`backticks` around names that are no plain words; {self.text[:60]!r} "
                "cannot be read"
            ) from error
        return list(self._comparisons(tree.body))


def read_comparisons(text: str) -> list[Comparison]:
    """Return the comparisons that a text joins by `and`.

    Examples
    --------
    >>> for found in read_comparisons("30 <= age < 40 and `home town` in ['Pau']"):
    ...     print(found.left, found.sign, found.right)
    30 <= Name(text='age')
    Name(text='age') < 40
    Name(text='home town') in ['Pau']
    >>> read_comparisons("__import__('os').remove('x') == 1")
    Traceback (most recent call last):
    ...
    augmask.errors.ConditionError: a condition may hold names, values, lists, ...
    """
    if len(text) > LONGEST:
        raise ConditionError(
            f"a condition has at most {LONGEST:,} characters, got {len(text):,}"
        )
    return _Reader(text).read()
