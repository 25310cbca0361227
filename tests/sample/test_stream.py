from __future__ import annotations

import gzip
import itertools

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError, UsageError
from augmask.sample.stream import SUFFIXES, check_output, write_frames
from augmask.table.frames import read_frame


def make_rows(start: int, n: int) -> pd.DataFrame:
    at = np.arange(start, start + n)
    levels = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    return pd.DataFrame(
        {
            "whole": at * 1_000_003,
            "part": at / 7,
            "flag": at % 3 == 0,
            "word": [f'ä, {i}\n"x"' for i in at],
            # one batch may lack a level that another has
            "grade": pd.Categorical.from_codes(at // 4 % 3, dtype=levels),
            "day": pd.Timestamp("2020-02-28") + pd.to_timedelta(at, "D"),
            "zoned": pd.date_range("2024-01-01", periods=start + n, tz="Europe/Berlin")[
                start:
            ],
            7: at.astype("int8"),
        }
    )


def batches():
    return (make_rows(start, 4) for start in range(0, 12, 4))


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_typed_files_keep_every_type(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    assert write_frames(batches(), path) == 12
    read = pd.read_parquet if suffix == ".parquet" else pd.read_feather
    expected = make_rows(0, 12).rename(columns=str)
    pd.testing.assert_frame_equal(read(path), expected)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_text_files_keep_every_value(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    assert write_frames(batches(), path) == 12
    read = read_frame(path)
    expected = make_rows(0, 12).rename(columns=str)
    assert read["whole"].equals(expected["whole"])
    assert read["part"].equals(expected["part"])
    assert read["flag"].equals(expected["flag"])
    assert read["word"].tolist() == expected["word"].tolist()
    assert read["grade"].tolist() == expected["grade"].tolist()
    assert (pd.to_datetime(read["day"]) == expected["day"]).all()
    assert read["7"].tolist() == expected["7"].tolist()


def test_batches_do_not_show_in_text(tmp_path):
    write_frames(batches(), tmp_path / "three.csv")
    write_frames([make_rows(0, 12)], tmp_path / "one.csv")
    assert (tmp_path / "three.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_same_rows_same_bytes_under_any_name_at_any_time(tmp_path, suffix, monkeypatch):
    clock = itertools.count(1_000_000_000, 60)
    monkeypatch.setattr("time.time", lambda: next(clock))
    one, two = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"
    write_frames(batches(), one)
    write_frames(batches(), two)
    assert one.read_bytes() == two.read_bytes()


def test_gzip_is_gzip(tmp_path):
    write_frames(batches(), tmp_path / "a.csv")
    write_frames(batches(), tmp_path / "a.csv.gz")
    packed = (tmp_path / "a.csv.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "a.csv").read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failure_half_way_leaves_the_old_file(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    path.write_text("old")

    def broken():
        yield make_rows(0, 4)
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match=r"cannot write .*No space left on device"):
        write_frames(broken(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_unknown_suffixes_are_refused_before_anything_is_drawn(tmp_path):
    def never():
        raise AssertionError("a frame was asked for")
        yield

    for name in ("rows.xlsx", "rows", "csv", "rows.gz"):
        with pytest.raises(UsageError, match="must end in one of"):
            write_frames(never(), tmp_path / name)
    assert check_output(tmp_path / "ROWS.CSV.GZ").name == "ROWS.CSV.GZ"
