"""Tables and options that cannot be scored."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from .bad import BAD_DATA, USAGE, Bad, write
from .conftest import make_frame


def complete() -> pd.DataFrame:
    """Return rows as a generator gives them."""
    return make_frame(300).dropna()[:60].assign(age=lambda f: f["age"].astype(int))


def rows(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[], object]:
    def prepare() -> None:
        change(complete()).to_csv("rows.csv", index=False)

    return prepare


def whole_and_incomplete() -> None:
    frame = complete().reset_index(drop=True)
    frame.to_csv("whole.csv", index=False)
    frame["weight"] = frame["weight"].mask(frame.index < 3)
    frame.to_csv("rows.csv", index=False)


SCORE = "evaluate good.csv rows.csv"
same = rows(lambda f: f)

SCORES = [
    Bad("scored file absent", BAD_DATA, SCORE, ("synthetic", "no such file: rows.csv")),
    Bad(
        "no common columns",
        BAD_DATA,
        SCORE,
        ("no scored column in common", "'age'", "'x_age'"),
        rows(lambda f: f.add_prefix("x_")),
    ),
    Bad(
        "scored column absent",
        BAD_DATA,
        SCORE,
        ("'weight' is absent from the synthetic table", "did you mean 'weights'"),
        rows(lambda f: f.rename(columns={"weight": "weights"})),
    ),
    Bad(
        "different dtypes",
        BAD_DATA,
        SCORE,
        ("'weight' is float in the real table", "text", "'heavy'"),
        rows(lambda f: f.assign(weight="heavy")),
    ),
    Bad(
        "empty synthetic",
        BAD_DATA,
        SCORE,
        ("synthetic", "at least one row", "rows.csv has none"),
        rows(lambda f: f[:0]),
    ),
    Bad(
        "missing values in synthetic rows only",
        BAD_DATA,
        "evaluate whole.csv rows.csv",
        ("'weight'", "3 missing values", "the real one has none", "augmask sample"),
        whole_and_incomplete,
    ),
    Bad(
        "nothing but constants",
        BAD_DATA,
        "evaluate bad.csv bad.csv",
        ("all 1 are set aside", "constant"),
        write("bad.csv", "a\n" + "1\n" * 20),
    ),
    Bad(
        "target absent",
        BAD_DATA,
        f"{SCORE} --target jobb",
        ("'jobb' to predict", "did you mean 'job'"),
        same,
    ),
    Bad(
        "test of another table",
        BAD_DATA,
        f"{SCORE} --test other.csv",
        ("no scored column in common", "'a'"),
        lambda: (same(), write("other.csv", "a\n" + "1\n2\n" * 9)()),
    ),
    Bad(
        "subsample of nothing",
        USAGE,
        f"{SCORE} --subsample 0",
        ("subsample", "at least 10", "0"),
        same,
    ),
    Bad("negative seed of scores", USAGE, f"{SCORE} --seed -1", ("seed", "-1"), same),
    Bad(
        "scores over the data",
        USAGE,
        f"{SCORE} --out good.csv",
        (".json", "good.csv"),
        same,
    ),
    Bad(
        "scores into no folder",
        BAD_DATA,
        f"{SCORE} --out no/s.json",
        ("no directory no",),
        same,
    ),
]
