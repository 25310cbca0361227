"""Schema files: what you may declare about a column, as TOML.

A schema file has one `[columns."name"]` table per column with its editable settings;
the reason for each inferred setting stands above them as a comment.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from numbers import Real
from typing import Any, Literal, get_args

from augmask.errors import SchemaError
from augmask.files import as_path, atomic_write
from augmask.table.formats import MAX_DECIMALS, is_pattern
from augmask.table.personal import FAKES
from augmask.validation import AnyOf, ListSpec, RecordSpec, Refined, ValueSpec

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

TEXT, BOOLEAN, NUMBER = ValueSpec(str), ValueSpec(bool), ValueSpec(Real)
LEVEL = AnyOf(TEXT, NUMBER, BOOLEAN)
FAKE = ValueSpec(None, (*FAKES, "nothing"))
LOCALE = Refined(
    TEXT,
    lambda text: bool(re.fullmatch("[a-z]{2,3}(_[A-Z]{2})?", text)),
    "a language and a country such as 'de_DE'",
)
SETTINGS = RecordSpec(
    {
        "kind": ValueSpec(None, KINDS),
        "missing_as": ValueSpec(None, MISSING_AS),
        "na_values": ListSpec(LEVEL, single=True),
        "ordered": BOOLEAN,
        "levels": ListSpec(LEVEL, shortest=1, distinct=True),
        "unseen_levels": BOOLEAN,
        "decimals": ValueSpec(int, lowest=0, highest=MAX_DECIMALS),
        "format": Refined(
            TEXT,
            is_pattern,
            "a pattern such as '%d/%m/%Y', '%H:%M', '$#,##0' or '0 %'",
        ),
        "determined_by": TEXT,
        "fake": FAKE,
        "locale": LOCALE,
    },
    required=(),
    noun="setting",
)


def check_settings(name: str, settings: object) -> dict[str, Any]:
    """Return the declared settings of a column in plain form, or raise `SchemaError`.

    A string is short for a kind, and a single NA value needs no list. Fakes are for
    identifiers.

    Examples
    --------
    >>> check_settings("age", "integer")
    {'kind': 'integer'}
    >>> check_settings("age", {"na_values": -999})
    {'na_values': (-999,)}
    >>> check_settings("guest", {"fake": "name"})
    {'fake': 'name', 'kind': 'identifier'}
    """
    if isinstance(settings, str):
        settings = {"kind": settings}
    plain = SETTINGS.checked(f"column {name!r}", settings, SchemaError)
    if plain.get("determined_by") == name:
        raise SchemaError(
            f"column {name!r}: determined_by must be the name of another column or "
            f"'nothing', got {name!r}"
        )
    if plain.get("fake", "nothing") != "nothing":
        kind = plain.setdefault("kind", "identifier")
        if kind != "identifier":
            raise SchemaError(
                f"column {name!r} is of kind {kind!r}, and only an identifier has a "
                "fake; leave one of them out"
            )
    return {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}


def toml_value(value: object) -> str:
    """Return a plain value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, except that TOML also escapes DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return repr(value)


def write_overrides(
    path: str | os.PathLike[str],
    columns: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]],
) -> None:
    """Write name -> (reason, settings, hints) as TOML that `read_overrides` reads.

    Hints are settings that may apply, as comments.
    """
    lines = [
        "# The schema that augmask inferred. Change settings, delete those that may be",
        "# inferred again, and pass this file as the schema.",
        f"# kind: {', '.join(KINDS)}",
        "# missing_as: unknown (integrated out) or level (learned and generated)",
        "# na_values: values that encode a missing value in this column",
        "# format: how text spells dates (%d/%m/%Y) or numbers ($#,##0)",
        "# determined_by: the column that this one is a function of, or nothing",
        f"# fake: what a text identifier is replaced by: {', '.join(FAKES)}",
        "#   (in the language of locale), or nothing to keep the form of its values",
    ]
    for name, (reason, settings, hints) in columns.items():
        lines += ["", f"[columns.{toml_value(name)}]"]
        lines += ["# " + " ".join(reason.split())] if reason else []
        lines += [f"{key} = {toml_value(value)}" for key, value in settings.items()]
        lines += [
            f"# {key} = {toml_value(value)}  # if these mean a missing value"
            for key, value in hints.items()
        ]
    with atomic_write(as_path(path).expanduser()) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_overrides(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Read the settings of each column from a TOML file.

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
            f"schema file {path} must be encoded in UTF-8: {error}; save it as UTF-8"
        ) from error
    except RecursionError as error:
        raise SchemaError(
            f"schema file {path} is nested too deeply; write one table of plain "
            "settings per column"
        ) from error
    # Not only invalid TOML: Python also refuses to parse numbers of very many digits.
    except ValueError as error:
        raise SchemaError(f"schema file {path} is not valid TOML: {error}") from error
    unknown = [key for key in document if key != "columns"]
    columns = document.get("columns", {})
    if unknown or not isinstance(columns, dict):
        raise SchemaError(
            f'schema file {path} must hold tables named [columns."name"], got '
            f"{unknown[0] if unknown else 'columns'!r}"
        )
    return {name: check_settings(name, value) for name, value in columns.items()}
