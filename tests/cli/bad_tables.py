"""Tables and schemas that cannot be learned from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from .bad import BAD_DATA, FIT_BAD, FIT_GOOD, FIT_SCHEMA, Bad, write
from .conftest import make_frame


def frame(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[], object]:
    return lambda: change(make_frame()).to_csv("bad.csv", index=False)


def rows(text: str) -> Callable[[], object]:
    return write("bad.csv", text)


def damaged_parquet() -> None:
    make_frame().to_parquet("bad.parquet")
    data = bytearray(Path("bad.parquet").read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    Path("bad.parquet").write_bytes(data)


def schema(text: str) -> Callable[[], object]:
    return write("s.toml", text)


TABLES = [
    Bad("absent file", BAD_DATA, "fit absent.csv --out m.augmask", ("no such file",)),
    Bad(
        "directory",
        BAD_DATA,
        "fit folder --out m.augmask",
        ("no Parquet file in folder",),
    ),
    Bad("empty file", BAD_DATA, FIT_BAD, ("bad.csv is empty",), rows("")),
    Bad("header only", BAD_DATA, FIT_BAD, ("at least one row",), rows("a,b\n")),
    Bad(
        "duplicate names", BAD_DATA, FIT_BAD, ("unique", "'a'"), rows("a,b,a\n1,2,3\n")
    ),
    Bad("ragged, long", BAD_DATA, FIT_BAD, ("line 3", "3"), rows("a,b\n1,2\n1,2,3\n")),
    Bad("ragged, short", BAD_DATA, FIT_BAD, ("line 3", "1"), rows("a,b\n1,2\n1\n")),
    Bad("semicolons", BAD_DATA, FIT_BAD, ("bad.csv", "--sep"), rows("a;b\n1;2;3\n4")),
    Bad("open quote", BAD_DATA, FIT_BAD, ("bad.csv",), rows('a,b\n1,"2\n3,4\n')),
    Bad("null bytes", BAD_DATA, FIT_BAD, ("bad.csv",), write("bad.csv", b"\0" * 100)),
    Bad(
        "undecodable bytes",
        BAD_DATA,
        FIT_BAD,
        ("bad.csv", "UTF-8"),
        write("bad.csv", "name\nJürgen\n".encode("latin-1")),
    ),
    Bad(
        "utf-16 without a mark",
        BAD_DATA,
        FIT_BAD,
        ("bad.csv", "--encoding utf-16-le"),
        write("bad.csv", "a,b\n1,2\n".encode("utf-16-le")),
    ),
    Bad(
        "fake gzip",
        BAD_DATA,
        "fit bad.csv.gz --out m.augmask",
        ("bad.csv.gz", "gzip"),
        write("bad.csv.gz", "a,b\n1,2\n"),
    ),
    Bad(
        "damaged parquet",
        BAD_DATA,
        "fit bad.parquet --out m.augmask",
        ("bad.parquet cannot be read as Parquet",),
        damaged_parquet,
    ),
    Bad(
        "csv named parquet",
        BAD_DATA,
        "inspect bad.parquet",
        ("bad.parquet cannot be read as Parquet",),
        write("bad.parquet", "a,b\n1,2\n"),
    ),
    Bad(
        "damaged feather",
        BAD_DATA,
        "inspect bad.feather",
        ("bad.feather cannot be read as Feather",),
        write("bad.feather", b"ARROW1\0\0" + b"x" * 50),
    ),
    Bad(
        "wrong file type",
        BAD_DATA,
        "fit book.xls --out m.augmask",
        ("must end in .csv", "book.xls"),
        write("book.xls", b"PK"),
    ),
    Bad(
        "infinite values",
        BAD_DATA,
        FIT_BAD,
        ("'weight'", "inf"),
        frame(lambda f: f.assign(weight=[np.inf, *f["weight"][1:]])),
    ),
    Bad(
        "numbers with intruders",
        BAD_DATA,
        FIT_BAD,
        ("'mixed'", "'bad'", "na_values"),
        lambda: pd.DataFrame(
            {"mixed": [*(str(i / 7) for i in range(300)), *["bad"] * 4]}
        ).to_csv("bad.csv", index=False),
    ),
    Bad(
        "all columns missing",
        BAD_DATA,
        FIT_BAD,
        ("no column can be learned",),
        frame(lambda f: f[["age"]].mask(f["age"].notna() | True)),
    ),
    Bad(
        "all columns constant",
        BAD_DATA,
        FIT_BAD,
        ("no column can be learned",),
        frame(lambda f: f[[]].assign(a=1, b="x")),
    ),
    Bad(
        "all columns identifiers",
        BAD_DATA,
        FIT_BAD,
        ("no column can be learned", "schema"),
        frame(lambda f: f[[]].assign(id=range(len(f)))),
    ),
    Bad(
        "lists in cells",
        BAD_DATA,
        "fit bad.parquet --out m.augmask",
        ("'tags'", "numbers, text, booleans or dates"),
        lambda: make_frame().assign(tags=[["a"]] * 60).to_parquet("bad.parquet"),
    ),
    Bad(
        "durations",
        BAD_DATA,
        "fit bad.parquet --out m.augmask",
        ("'stay'", "convert it to a number"),
        lambda: (
            make_frame()
            .assign(stay=pd.to_timedelta(range(60), unit="h"))
            .to_parquet("bad.parquet")
        ),
    ),
    Bad(
        "one row", BAD_DATA, FIT_BAD, ("rows", "1"), frame(lambda f: f.dropna().head(1))
    ),
    Bad("nine rows", BAD_DATA, FIT_BAD, ("10 rows", "9"), frame(lambda f: f.head(9))),
]

SCHEMAS = [
    Bad("schema absent", BAD_DATA, FIT_SCHEMA, ("s.toml cannot be read",)),
    Bad(
        "schema is a folder",
        BAD_DATA,
        f"{FIT_GOOD} --schema folder",
        ("folder cannot",),
    ),
    Bad(
        "bad TOML",
        BAD_DATA,
        FIT_SCHEMA,
        ("not valid TOML", "line"),
        schema("[columns\n"),
    ),
    Bad(
        "a deep nest in a schema",
        BAD_DATA,
        FIT_SCHEMA,
        ("s.toml", "nested too deeply"),
        schema("[columns.age]\nlevels = " + "[" * 20_000 + "]" * 20_000 + "\n"),
    ),
    Bad(
        "a deep nest of tables in a schema",
        BAD_DATA,
        FIT_SCHEMA,
        ("s.toml", "nested too deeply"),
        schema("columns = " + "{a = " * 3_000 + "1" + "}" * 3_000 + "\n"),
    ),
    Bad(
        "a long way of names in a schema",
        BAD_DATA,
        FIT_SCHEMA,
        ("'age'", "unknown setting 'a'"),
        schema("columns.age" + ".a" * 3_000 + " = 1\n"),
    ),
    Bad(
        "too many digits in a schema",
        BAD_DATA,
        FIT_SCHEMA,
        ("s.toml", "not valid TOML", "digits"),
        schema("[columns.age]\ndecimals = " + "9" * 9_000 + "\n"),
    ),
    Bad(
        "many digits in a schema",
        BAD_DATA,
        FIT_SCHEMA,
        ("'age'", "decimals", "whole number"),
        schema("[columns.age]\ndecimals = " + "9" * 4_000 + "\n"),
    ),
    Bad(
        "a shallow nest in a schema",
        BAD_DATA,
        FIT_SCHEMA,
        ("'job'", "levels"),
        schema("[columns.job]\nlevels = " + "[" * 300 + "]" * 300 + "\n"),
    ),
    Bad(
        "a number of many digits as a code",
        BAD_DATA,
        FIT_SCHEMA,
        ("'age'", "na_values"),
        schema(f"[columns.age]\nna_values = [0x{'f' * 9_000}]\n"),
    ),
    Bad(
        "schema in latin-1",
        BAD_DATA,
        FIT_SCHEMA,
        ("s.toml", "UTF-8"),
        write("s.toml", "[columns.ä]\n".encode("latin-1")),
    ),
    Bad(
        "schema without columns table",
        BAD_DATA,
        FIT_SCHEMA,
        ('[columns."name"]', "age"),
        schema('[age]\nkind = "float"\n'),
    ),
    Bad(
        "unknown column",
        BAD_DATA,
        FIT_SCHEMA,
        ("unknown column 'agee'", "did you mean 'age'"),
        schema('[columns.agee]\nkind = "float"\n'),
    ),
    Bad(
        "unknown kind",
        BAD_DATA,
        FIT_SCHEMA,
        ("'age'", "kind must be one of", "'integr'", "did you mean 'integer'"),
        schema('[columns.age]\nkind = "integr"\n'),
    ),
    Bad(
        "unknown setting",
        BAD_DATA,
        FIT_SCHEMA,
        ("'age'", "unknown setting 'kinds'", "did you mean 'kind'"),
        schema('[columns.age]\nkinds = "integer"\n'),
    ),
    Bad(
        "impossible kind",
        BAD_DATA,
        FIT_SCHEMA,
        ("'job'", "kind 'float'", "is not a number"),
        schema('[columns.job]\nkind = "float"\n'),
    ),
    Bad(
        "levels without one of them",
        BAD_DATA,
        FIT_SCHEMA,
        ("levels of column 'job'", "'smith' is not among them"),
        schema('[columns.job]\nlevels = ["cook", "clerk"]\n'),
    ),
]
