"""`ReadOptions`: what you say about a file that it does not say itself."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from augmask.errors import UsageError, brief_repr

Code = str | int | float
AUTO = "auto"


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file.

    Parameters
    ----------
    na : tuple
        Codes that mean a missing value in every column.
    na_by_column : tuple of (name, codes)
        Codes of single columns.
    na_auto : bool
        Whether to take everything that looks like such a code.
    sep : str or None
        What separates the columns of a text file; None recognises it. A blank stands
        for any number of blanks.
    header : bool or None
        Whether the first line names the columns; None takes it for names, unless it
        looks like data, which is an error.
    encoding : str or None
        Of a text file; None is UTF-8, or what its first bytes declare.
    sheet : str, int or None
        Name, or number from 1, of a sheet; None is the first.

    Examples
    --------
    >>> read_options(na={"income": -999}, sep=";").na_by_column
    (('income', (-999,)),)
    >>> read_options(na=["?", "auto"]).na_auto
    True
    """

    na: tuple[Code, ...] = ()
    na_by_column: tuple[tuple[str, tuple[Code, ...]], ...] = ()
    na_auto: bool = False
    sep: str | None = None
    header: bool | None = None
    encoding: str | None = None
    sheet: str | int | None = None

    def codes_of(self, name: str) -> tuple[Code, ...]:
        """Return the codes of a column, in all columns or in this one."""
        own = (codes for column, codes in self.na_by_column if column == name)
        return (*self.na, *(code for codes in own for code in codes))

    def flags(self) -> list[str]:
        """Return the options of a command that say the same.

        Examples
        --------
        >>> read_options(na={"income": -999}, sep=";", header=False).flags()
        ['--na', 'income=-999', '--sep', ';', '--no-header']
        """
        codes = [str(code) for code in self.na]
        codes += [f"{name}={c}" for name, own in self.na_by_column for c in own]
        words = [w for code in codes + [AUTO] * self.na_auto for w in ("--na", code)]
        if self.sep is not None:
            words += ["--sep", {"\t": "tab", " ": "space"}.get(self.sep, self.sep)]
        if self.header is not None:
            words.append("--header" if self.header else "--no-header")
        if self.encoding is not None:
            words += ["--encoding", self.encoding]
        if self.sheet is not None:
            words += ["--sheet", str(self.sheet)]
        return words

    def keeps_words(self, name: str) -> bool:
        """Whether NA, None and the like are values here: an empty code is declared."""
        return "" in self.codes_of(name)


@dataclass(frozen=True)
class TableFile:
    """A file and how to read it, accepted wherever a path is."""

    path: Path
    options: ReadOptions


def _is_number(code: Any) -> bool:
    """Whether a code is a number that a column can hold."""
    if isinstance(code, bool) or not isinstance(code, int | float):
        return False
    try:
        return math.isfinite(code)
    except OverflowError:
        return False


def _codes(given: Any) -> tuple[Code, ...]:
    one = isinstance(given, str) or not isinstance(given, Iterable)
    codes = [c.item() if hasattr(c, "item") else c for c in ([given] if one else given)]
    for code in codes:
        if not isinstance(code, str) and not _is_number(code):
            raise UsageError(
                "na must hold text or numbers that mean a missing value, got "
                f"{brief_repr(code)}"
            )
    return tuple(codes)


def _checked_sep(sep: Any) -> str | None:
    names = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
    sep = names.get(sep, sep) if isinstance(sep, str) else sep
    if sep is None:
        return None
    # The parser takes one byte.
    single = isinstance(sep, str) and len(sep) == 1 and sep.isascii()
    if single and sep not in '"\r\n\0':
        return str(sep)
    raise UsageError(
        f"sep must be one ASCII character, or 'tab' or 'space', got {brief_repr(sep)}"
    )


def _checked_encoding(encoding: Any) -> str | None:
    if encoding is None:
        return None
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)
    except (LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"there is no encoding {brief_repr(encoding)}; use one such as utf-8, "
            "cp1252, latin-1 or utf-16"
        ) from error
    # A mark at the start of the file is no part of its first name.
    return "utf-8-sig" if name == "utf-8" else name


def read_options(
    na: Any = None,
    sep: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    sheet: str | int | None = None,
) -> ReadOptions:
    """Return checked options; the parameters are those of `read_table`."""
    by_column: dict[str, tuple[Code, ...]] = {}
    everywhere: tuple[Code, ...] = ()
    if isinstance(na, Mapping):
        by_column = {str(name): _codes(codes) for name, codes in na.items()}
    elif na is not None:
        everywhere = _codes(na)
    if header is not None and not isinstance(header, bool):
        raise UsageError(
            f"header must be True, False or None, got {brief_repr(header)}"
        )
    number = isinstance(sheet, int) and not isinstance(sheet, bool) and sheet >= 1
    if sheet is not None and not number and not isinstance(sheet, str):
        raise UsageError(
            f"sheet must be a name or a number from 1, got {brief_repr(sheet)}"
        )
    return ReadOptions(
        na=tuple(code for code in everywhere if code != AUTO),
        na_by_column=tuple(by_column.items()),
        na_auto=AUTO in everywhere,
        sep=_checked_sep(sep),
        header=header,
        encoding=_checked_encoding(encoding),
        sheet=sheet,
    )


def options_from_texts(na: Iterable[str], **others: Any) -> ReadOptions:
    """Return checked options with the values of `--na` as texts.

    Examples
    --------
    >>> options = options_from_texts(["?", "income=-999", "age=99"], sep=";")
    >>> options.na, options.na_by_column
    (('?',), (('income', ('-999',)), ('age', ('99',))))
    """
    everywhere: list[str] = []
    by_column: dict[str, list[str]] = {}
    for text in na:
        name, equals, code = text.rpartition("=")
        if equals and name:
            by_column.setdefault(name, []).append(code)
        else:
            everywhere.append(text)
    options = read_options(by_column, **others)
    plain = read_options(everywhere)
    return replace(options, na=plain.na, na_auto=plain.na_auto)
