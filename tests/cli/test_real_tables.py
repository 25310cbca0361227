"""Four really incomplete tables, with no options but the path."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from augmask.table.frames import read_frame

HERE = Path(__file__).parents[2]
DATA = Path(os.environ.get("AUGMASK_DATA", HERE.parent / "shared" / "data"))
NAMES = ("nafld1", "smoking", "storms", "loans")
ROWS = 2_000

pytestmark = pytest.mark.skipif(
    not all((DATA / f"incomplete-{name}.csv.gz").is_file() for name in NAMES),
    reason=f"the real tables are not in {DATA}; set AUGMASK_DATA to their folder",
)


def value_kind(column: pd.Series) -> str:
    """Return what a user sees in a column that was read from a CSV file."""
    seen = column.dropna()
    if pd.api.types.is_bool_dtype(seen.infer_objects()):
        return "flag"
    if pd.api.types.is_numeric_dtype(seen):
        return "whole" if (seen == seen.round()).all() else "number"
    return "text"


@pytest.mark.parametrize("name", NAMES)
def test_fit_and_sample(name, tmp_path, monkeypatch, run_cli):
    monkeypatch.chdir(tmp_path)
    source = read_frame(DATA / f"incomplete-{name}.csv.gz")
    source = source.sample(min(ROWS, len(source)), random_state=0)
    source.to_csv("t.csv", index=False)
    assert run_cli("inspect", "t.csv").code == 0
    fitted = run_cli("fit", "t.csv", "--out", "m.augmask", "--steps", "100")
    assert fitted.code == 0, fitted.err
    assert all(line.startswith("note: ") for line in fitted.err.splitlines())
    drawn = run_cli("sample", "m.augmask", "-n", 500, "--out", "rows.csv")
    assert drawn.code == 0, drawn.err

    source, rows = read_frame("t.csv"), read_frame("rows.csv")
    assert rows.columns.tolist() == source.columns.tolist()
    assert len(rows) == 500
    empty = source.columns[source.isna().all()]
    # what is not applicable is missing, and nothing else is
    kept = {
        "smoking": ("smoke", ("No",), ["amt_weekends", "amt_weekdays", "type"]),
        "loans": (
            "application_type",
            ("individual",),
            ["annual_income_joint", "debt_to_income_joint"],
        ),
        "storms": (
            "status",
            tuple(set(source.get("status", [])) - {"hurricane"}),
            ["category"],
        ),
    }
    about, levels, columns = kept.get(name, (None, (), []))
    for column in columns:
        assert (rows[column].isna() == rows[about].isin(levels)).all()
        assert f"'{column}'" in fitted.err
    assert rows.drop(columns=[*empty, *columns]).notna().all().all()
    assert rows[empty].isna().all().all()
    for column in source.drop(columns=empty):
        kinds = value_kind(source[column]), value_kind(rows[column])
        # a column of decimals may happen to be drawn whole, never the reverse
        assert kinds in {(kinds[0], kinds[0]), ("number", "whole")}, column
