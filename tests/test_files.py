from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from augmask.errors import DataError
from augmask.files import check_writable, written_whole


def test_the_file_appears_when_all_is_written(tmp_path):
    path = tmp_path / "new.txt"
    with written_whole(path) as part:
        part.write_text("half")
        assert not path.exists()
        assert part.parent == tmp_path
        part.write_text("whole")
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_the_result_is_as_readable_as_any_new_file(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    with written_whole(tmp_path / "ours") as part:
        part.touch()
    assert stat.S_IMODE(plain.stat().st_mode) == stat.S_IMODE(
        (tmp_path / "ours").stat().st_mode
    )


@pytest.mark.parametrize("error", [ValueError("ours"), KeyboardInterrupt()])
def test_a_failure_keeps_the_old_file_and_its_own_type(tmp_path, error):
    path = tmp_path / "old.txt"
    path.write_text("old")

    def fail():
        with written_whole(path) as part:
            part.write_text("new")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_what_the_system_says_becomes_a_sentence(tmp_path):
    path = tmp_path / "out.txt"
    with (
        pytest.raises(DataError, match=r"cannot write .*out\.txt: No space left"),
        written_whole(path),
        Path("/dev/full").open("w") as full,
    ):
        full.write("x" * 100_000)
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_removes_its_file_is_an_error(tmp_path):
    with (
        pytest.raises(DataError, match="cannot write"),
        written_whole(tmp_path / "out.txt") as part,
    ):
        part.unlink()
    assert list(tmp_path.iterdir()) == []


def test_places_without_room_for_a_file_are_named(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="it is a directory"):
        check_writable(tmp_path)
    with pytest.raises(DataError, match="there is no directory"):
        check_writable(tmp_path / "no" / "file")
    # tests may run as root, whom no file mode stops
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DataError, match="no permission"):
        check_writable(tmp_path / "file")
