from __future__ import annotations

import gzip
import itertools
import threading
import time

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError, UsageError
from augmask.sample.write import SUFFIXES, arrow_types, check_output, write_frames
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema


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


def test_text_files_do_not_depend_on_batches(tmp_path):
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


def test_gzip_contains_the_csv(tmp_path):
    write_frames(batches(), tmp_path / "a.csv")
    write_frames(batches(), tmp_path / "a.csv.gz")
    compressed = (tmp_path / "a.csv.gz").read_bytes()
    assert gzip.decompress(compressed) == (tmp_path / "a.csv").read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failure_keeps_the_old_file(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    path.write_text("old")

    def broken():
        yield make_rows(0, 4)
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match=r"cannot write .*No space left on device"):
        write_frames(broken(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_unknown_suffixes_are_refused_before_any_row_is_generated(tmp_path):
    def never():
        raise AssertionError("a frame was generated")
        yield

    for name in ("rows.xlsx", "rows", "csv", "rows.gz"):
        with pytest.raises(UsageError, match="must end in one of"):
            write_frames(never(), tmp_path / name)
    assert check_output(tmp_path / "ROWS.CSV.GZ").name == "ROWS.CSV.GZ"


def writers():
    return [t for t in threading.enumerate() if t.name.startswith("augmask-writes")]


def test_batches_are_converted_while_the_next_one_is_generated(tmp_path):
    """Each side waits for the other, so the test hangs unless they overlap."""
    converted = threading.Event()

    def generated():
        yield 0
        yield 4
        # the first batch is converted while this one is generated
        assert converted.wait(10)
        yield 8

    def to_frame(start):
        converted.set()
        return make_rows(start, 4)

    path = tmp_path / "rows.parquet"
    assert write_frames(generated(), path, to_frame) == 12
    expected = make_rows(0, 12).rename(columns=str)
    pd.testing.assert_frame_equal(pd.read_parquet(path), expected)
    assert not writers()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_error_of_the_writing_thread_stops_the_generator(tmp_path, suffix):
    generated = []

    def endless():
        for start in itertools.count(0, 4):
            generated.append(start)
            yield start

    def to_frame(start):
        if start == 8:
            raise ZeroDivisionError("third batch")
        return make_rows(start, 4)

    with pytest.raises(ZeroDivisionError, match="third batch"):
        write_frames(endless(), tmp_path / f"rows{suffix}", to_frame)
    # one that failed, one in the queue, one being generated
    assert len(generated) <= 6
    assert not list(tmp_path.iterdir())
    assert not writers()


@pytest.mark.parametrize("after", [0, 1, 5])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_generator_leaves_no_file_and_no_thread(tmp_path, after, error):
    def stopped():
        yield from (make_rows(4 * i, 4) for i in range(after))
        raise error

    with pytest.raises(error):
        write_frames(stopped(), tmp_path / "rows.parquet")
    assert not list(tmp_path.iterdir())
    assert not writers()


def test_a_slow_writer_blocks_the_generator(tmp_path):
    """So memory stays constant on a slow disk."""
    lead = []
    written = [0]

    def generated():
        for i in range(8):
            lead.append(i - written[0])
            yield 4 * i

    def to_frame(start):
        time.sleep(0.02)
        written[0] += 1
        return make_rows(start, 4)

    write_frames(generated(), tmp_path / "rows.csv", to_frame)
    assert max(lead) <= 3


FORMULAS = ["=1+1", "+49 30", "-cmd|' /C calc'!A0", "@SUM(A1)", "\tx", "\rx", "plain"]


@pytest.mark.parametrize("dtype", ["str", "object", "category"])
def test_csv_safe_escapes_formulas(tmp_path, dtype):
    frame = pd.DataFrame({"=head": pd.Series(FORMULAS, dtype=dtype), "n": range(-3, 4)})
    write_frames([frame], tmp_path / "plain.csv")
    assert pd.read_csv(tmp_path / "plain.csv")["=head"][0] == "=1+1"
    write_frames([frame], tmp_path / "safe.csv", csv_safe=True)
    safe = pd.read_csv(tmp_path / "safe.csv")
    assert safe["'=head"].tolist() == [*(f"'{text}" for text in FORMULAS[:-1]), "plain"]
    # a negative number is not a formula
    assert safe["n"].tolist() == list(range(-3, 4))


def test_csv_safe_applies_to_csv_only(tmp_path):
    frame = pd.DataFrame({"x": FORMULAS})
    with pytest.raises(UsageError, match="csv_safe applies to CSV files only"):
        write_frames([frame], tmp_path / "t.parquet", csv_safe=True)
    assert list(tmp_path.iterdir()) == []


def test_a_carriage_return_does_not_end_a_row(tmp_path):
    frame = pd.DataFrame({"word": ["a\rb", "c\r\nd", "e"], "n": [1, 2, 3]})
    write_frames([frame], tmp_path / "t.csv")
    back = pd.read_csv(tmp_path / "t.csv")
    pd.testing.assert_frame_equal(back, frame)
    pd.testing.assert_frame_equal(read_frame(tmp_path / "t.csv"), frame)


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_a_column_that_begins_with_missing_values_keeps_its_type(tmp_path, suffix):
    first = pd.DataFrame({"b": [None, None], "t": [None, None]}, dtype=object)
    later = pd.DataFrame({"b": [True, None], "t": ["x", None]}, dtype=object)
    schema = infer_schema(pd.concat([later, later.assign(b=[False, None], t="y")]))
    path = tmp_path / f"rows{suffix}"
    for frames, values in (([first, later], [True]), ([first], [])):
        write_frames(frames, path, types=arrow_types(schema))
        rows = read_frame(path)
        assert rows["b"].dropna().tolist() == values
        assert str(rows["b"].dtype) == "boolean"
        assert len(rows["t"].dropna()) == len(values)


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_cells_that_a_file_cannot_hold_are_a_data_error(tmp_path, suffix):
    """Arrow has no column of whole numbers that floats do not hold beside floats."""
    rows = pd.DataFrame({"x": pd.Series([2**60 + 1, 0.5], dtype=object)})
    path = tmp_path / f"rows{suffix}"
    with pytest.raises(DataError, match=r"cannot write .*x.*; write a \.csv file"):
        write_frames([rows], path)
    assert not list(tmp_path.iterdir())


def test_neutralised_names_do_not_take_the_place_of_others(tmp_path):
    path = tmp_path / "rows.csv"
    rows = pd.DataFrame({"=a": [1], "'=a": [2], "''=a": [3]})
    write_frames([rows], path, csv_safe=True)
    header, cells = path.read_text().splitlines()
    assert cells == "1,2,3"
    names = header.split(",")
    assert len(set(names)) == 3
    assert not any(name.startswith("=") for name in names)
