from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.errors import UsageError
from augmask.table.holdout import (
    HEAD_ROWS,
    Holdout,
    partitions_fingerprint,
    rows_to_hold_out,
    table_fingerprint,
)
from augmask.table.partitions import partitioned_table


def people(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n).astype(float),
            "pay": rng.normal(size=n),
            "sex": rng.choice(["f", "m"], n),
            "ok": rng.random(n) < 0.5,
            "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(n), "D"),
        }
    )
    frame.loc[rng.random(n) < 0.2, "age"] = np.nan
    return frame


@pytest.mark.parametrize(
    ("holdout", "rows", "preset", "expected"),
    [
        ("auto", 1_999, "fast", 0),  # every row counts
        ("auto", 2_000, "fast", 100),
        ("auto", 10_000, "best", 300),
        ("auto", 10_000, "paper", 0),  # as printed
        ("auto", 10_000_000, "fast", 5_000),
        (0.1, 500, "paper", 50),
        (0, 10_000, "fast", 0),
        (0.0001, 500, "fast", 0),
    ],
)
def test_how_many_rows_are_held_out(holdout, rows, preset, expected):
    assert rows_to_hold_out(holdout, rows, preset) == expected


@pytest.mark.parametrize("holdout", [-0.1, 0.5, 1, True, None, "most", float("nan")])
def test_what_is_no_share_is_refused(holdout):
    with pytest.raises(UsageError, match="holdout must be 'auto' or a share"):
        rows_to_hold_out(holdout, 3000, "fast")


def test_the_choice_follows_from_seed_and_number_of_rows():
    frame = people()
    held_out = Holdout.of(frame, 90)
    other = Holdout.of(people(seed=1), 90)
    assert (held_out.chosen(3) == other.chosen(3)).all()
    assert (held_out.chosen(3) != held_out.chosen(4)).any()
    learned, test = held_out.split(frame, 3)
    assert (len(learned), len(test)) == (2910, 90)
    joined = pd.concat([learned, test]).sort_values(list(frame), ignore_index=True)
    assert joined.equals(frame.sort_values(list(frame), ignore_index=True))


def test_a_table_is_recognised_however_it_is_stored(tmp_path):
    frame = people()
    held_out = Holdout.of(frame, 90)
    frame.drop(columns="seen").to_csv(tmp_path / "t.csv", index=False)
    again = pd.read_csv(tmp_path / "t.csv")
    assert Holdout.of(frame.drop(columns="seen"), 90).matches(again)
    assert held_out.matches(frame.convert_dtypes())
    assert held_out.matches(frame.astype({"sex": "category", "pay": "float32"}))
    assert not held_out.matches(frame[:-1])
    for change in ({"age": 0.5}, {"sex": "x"}, {"ok": None}, {"seen": pd.NaT}):
        (name, value), changed = *change.items(), frame.copy()
        changed[name] = changed[name].astype(object)
        changed.loc[7, name] = value
        assert not held_out.matches(changed), name
    assert not held_out.matches(frame.rename(columns={"pay": "wage"}))
    assert not held_out.matches(frame[::-1].reset_index(drop=True))


def test_the_fingerprint_is_short():
    # Eight digits do not identify the value of a cell.
    assert len(table_fingerprint(people())) == 8


@pytest.mark.parametrize(
    "change",
    [
        {"rows": "3000"},
        {"rows": 10},
        {"held_out": 0},
        {"held_out": True},
        {"share": 2.0},
        {"share": float("nan")},
        {"fingerprint": 7},
        {"fingerprint": "x" * 64},
        {"more": 1},
    ],
)
def test_invalid_facts_of_a_file_are_refused(change):
    data = Holdout.of(people(), 90).to_dict()
    assert Holdout.from_dict(data) == Holdout.of(people(), 90)
    with pytest.raises(ValueError, match=r"hold|held"):
        Holdout.from_dict(data | change)


def test_a_table_of_many_files_is_recognised_wherever_it_lies(tmp_path):
    frame = people(HEAD_ROWS + 500)
    for name in ("here", "there"):
        folder = tmp_path / name
        folder.mkdir()
        frame.to_parquet(folder / "rows.parquet", index=False)
    here, there = (partitioned_table(tmp_path / name) for name in ("here", "there"))
    assert here.digest != there.digest
    seen = partitions_fingerprint(here)
    assert len(seen) == 8
    assert partitions_fingerprint(there) == seen
    held_out = Holdout(0.1, len(frame), 150, seen)
    assert held_out.matches(there)
    for changed in (frame[:-1], frame.assign(pay=frame["pay"] + 1)):
        changed.to_parquet(tmp_path / "there" / "rows.parquet", index=False)
        assert not held_out.matches(partitioned_table(tmp_path / "there"))
