"""What a user may decide about a column, as TOML.

A schema file holds one `[columns."name"]` table per column with the editable settings;
the reason for each guess stands above them as a comment.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from augmask.errors import SchemaError, did_you_mean, shown
from augmask.files import as_path, written_whole

Kind = Literal[
    "integer",
    "float",
    "boolean",
    "category",
    "datetime",
    "constant",
    "all-missing",
    "identifier",
]
KINDS: tuple[str, ...] = get_args(Kind)
MISSING_AS = ("unknown", "level")
MAX_DECIMALS = 6
SETTINGS = (
    "kind",
    "missing_as",
    "na_values",
    "ordered",
    "levels",
    "decimals",
    "follows",
)


def toml_value(value: object) -> str:
    """Return a plain value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, save that TOML also wants DEL escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return repr(value)


def _is_scalar(value: object) -> bool:
    if isinstance(value, (int, float)):
        # no table holds a larger number, and no model file infinity
        return abs(value) <= sys.float_info.max
    return isinstance(value, str)


def check_settings(name: str, settings: object) -> dict[str, Any]:
    """Return the settings of one column in plain form, or raise `SchemaError`.

    A bare string is a kind, and a single hole code may stand without a list.

    Examples
    --------
    >>> check_settings("age", "integer")
    {'kind': 'integer'}
    >>> check_settings("age", {"na_values": -999})
    {'na_values': (-999,)}
    """
    if isinstance(settings, str):
        settings = {"kind": settings}
    if not isinstance(settings, Mapping):
        raise SchemaError(
            f"the settings of column {name!r} must be a kind or a table of settings, "
            f"got {shown(settings)}"
        )
    plain: dict[str, Any] = {}
    for key, value in settings.items():
        ok = True
        if key == "kind":
            if value not in KINDS:
                raise SchemaError(
                    f"column {name!r} has the unknown kind {shown(value)}"
                    + did_you_mean(value if isinstance(value, str) else "", KINDS)
                )
        elif key == "missing_as":
            ok = value in MISSING_AS
        elif key == "na_values":
            value = (value,) if _is_scalar(value) else value
            ok = isinstance(value, (list, tuple)) and all(map(_is_scalar, value))
            value = tuple(value) if ok else value
        elif key == "levels":
            ok = isinstance(value, (list, tuple)) and all(map(_is_scalar, value))
            ok = ok and 0 < len(value) == len(set(value))
            value = tuple(value) if ok else value
        elif key == "ordered":
            ok = isinstance(value, bool)
        elif key == "follows":
            ok = isinstance(value, str) and value != name
        elif key == "decimals":
            ok = type(value) is int and 0 <= value <= MAX_DECIMALS
        else:
            raise SchemaError(
                f"column {name!r} has the unknown setting {key!r}"
                + did_you_mean(str(key), SETTINGS)
            )
        if not ok:
            expected = {
                "missing_as": "'unknown' or 'level'",
                "na_values": "a list of codes, each a text or a finite number",
                "levels": "a list of different levels",
                "ordered": "true or false",
                "follows": "the name of another column, or 'nothing'",
                "decimals": f"a whole number from 0 to {MAX_DECIMALS}",
            }[key]
            raise SchemaError(
                f"{key} of column {name!r} must be {expected}, got {shown(value)}"
            )
        plain[key] = value
    return plain


def write_overrides(
    path: str | os.PathLike[str], columns: Mapping[str, tuple[str, Mapping[str, Any]]]
) -> None:
    """Write name -> (reason, settings) as a TOML file that `read_overrides` reads."""
    lines = [
        "# What augmask takes each column to be. Change a setting, delete what may be",
        "# guessed again, and pass this file as the schema.",
        f"# kind: {', '.join(KINDS)}",
        "# missing_as: unknown (integrated out) or level (kept as a value of its own)",
        "# na_values: codes that stand for a hole in this column",
        "# follows: the column that this one is a function of, or nothing",
    ]
    for name, (reason, settings) in columns.items():
        lines += ["", f"[columns.{toml_value(name)}]"]
        lines += ["# " + " ".join(reason.split())] if reason else []
        lines += [f"{key} = {toml_value(value)}" for key, value in settings.items()]
    with written_whole(Path(path).expanduser()) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_overrides(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Read the settings per column from a TOML file.

    Parameters
    ----------
    path : str or path
        A file as `Schema.to_toml` writes it; columns and settings may be left out.

    Returns
    -------
    dict
        Column name -> settings.
    """
    file = as_path(path).expanduser()
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SchemaError(f"schema file {path} cannot be read: {reason}") from error
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"a schema file must be encoded in UTF-8, {path} is not: {error}; "
            "save it as UTF-8"
        ) from error
    except RecursionError as error:
        raise SchemaError(
            f"schema file {path} is nested too deeply; it holds a table of plain "
            "settings for each column"
        ) from error
    # besides wrong TOML: a number of more digits than Python reads
    except ValueError as error:
        raise SchemaError(f"schema file {path} is not valid TOML: {error}") from error
    unknown = [key for key in document if key != "columns"]
    columns = document.get("columns", {})
    if unknown or not isinstance(columns, dict):
        raise SchemaError(
            f'schema file {path} must hold tables named [columns."name"], got '
            f"{unknown[0] if unknown else 'columns'!r}"
        )
    return {name: check_settings(name, given) for name, given in columns.items()}
