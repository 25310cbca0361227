from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from augmask.errors import DataError, UsageError
from augmask.files import atomic_write, check_apart, check_writable


def test_the_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "new.txt"
    with atomic_write(path) as part:
        part.write_text("half")
        assert not path.exists()
        assert part.parent == tmp_path
        part.write_text("complete")
    assert path.read_text() == "complete"
    assert list(tmp_path.iterdir()) == [path]


def test_the_result_is_as_readable_as_any_new_file(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    with atomic_write(tmp_path / "ours") as part:
        part.touch()
    assert stat.S_IMODE(plain.stat().st_mode) == stat.S_IMODE(
        (tmp_path / "ours").stat().st_mode
    )


@pytest.mark.parametrize("error", [ValueError("ours"), KeyboardInterrupt()])
def test_a_failure_keeps_the_old_file_and_its_own_type(tmp_path, error):
    path = tmp_path / "old.txt"
    path.write_text("old")

    def fail():
        with atomic_write(path) as part:
            part.write_text("new")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_error_of_the_system_becomes_a_sentence(tmp_path):
    path = tmp_path / "out.txt"
    with (
        pytest.raises(DataError, match=r"cannot write .*out\.txt: No space left"),
        atomic_write(path),
        Path("/dev/full").open("w") as full,
    ):
        full.write("x" * 100_000)
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_removes_its_file_is_an_error(tmp_path):
    with (
        pytest.raises(DataError, match="cannot write"),
        atomic_write(tmp_path / "out.txt") as part,
    ):
        part.unlink()
    assert list(tmp_path.iterdir()) == []


def test_paths_that_cannot_be_written_are_named(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="it is a directory"):
        check_writable(tmp_path)
    with pytest.raises(DataError, match="there is no directory"):
        check_writable(tmp_path / "no" / "file")
    # tests may run as root, whom no file mode stops
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DataError, match="no permission"):
        check_writable(tmp_path / "file")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_the_mode_of_an_old_file_is_kept(tmp_path, mode):
    path = tmp_path / "secret.csv"
    path.write_text("old")
    path.chmod(mode)
    with atomic_write(path) as part:
        assert stat.S_IMODE(part.stat().st_mode) & 0o077 == 0
        part.write_text("new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    link.symlink_to(real)
    with atomic_write(link) as part:
        assert part.parent == real.parent
        part.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_link_to_a_new_file_creates_its_target(tmp_path):
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "real.csv")
    with atomic_write(link) as part:
        part.write_text("new")
    assert link.is_symlink()
    assert (tmp_path / "real.csv").read_text() == "new"


def test_a_link_that_leads_nowhere_is_refused(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(DataError, match="cannot write"):
        check_writable(tmp_path / "a")
    (tmp_path / "c").symlink_to(tmp_path / "no" / "file")
    with pytest.raises(DataError, match="there is no directory"):
        check_writable(tmp_path / "c")


def test_a_pipe_and_a_device_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", Path("/dev/null")):
        with pytest.raises(DataError, match="pipe or a device"):
            check_writable(path)


def test_unfinished_files_have_a_hidden_name(tmp_path):
    with atomic_write(tmp_path / "rows.csv") as part:
        part.touch()
        assert part.name.startswith(".rows.csv.")
        assert part.suffix == ".part"


WRITER = """
import signal, sys, time
# a parent such as nohup may have passed on that it ignores this
signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))
from augmask.cli.terminal import graceful_shutdown
from augmask.files import atomic_write
with graceful_shutdown(), atomic_write("rows.csv") as part:
    part.write_text("half")
    print("ready", flush=True)
    time.sleep(60)
"""


def start_writer(folder, sighup="SIG_DFL"):
    """Return a process that is in the middle of writing rows.csv."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, sighup],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    with writer.stdout as output:
        assert output.readline() == "ready\n"
    return writer


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_writer_leaves_nothing(tmp_path, sent):
    writer = start_writer(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    writer.send_signal(sent)
    assert writer.wait(20) == 128 + sent
    assert list(tmp_path.iterdir()) == []


def test_a_writer_under_nohup_outlives_its_terminal(tmp_path):
    writer = start_writer(tmp_path, "SIG_IGN")
    writer.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        writer.wait(0.3)
    writer.kill()
    writer.wait(20)


def test_the_next_writer_removes_leftovers_of_a_killed_one(tmp_path):
    killed, living = start_writer(tmp_path), start_writer(tmp_path)
    killed.kill()
    killed.wait(20)
    assert len(list(tmp_path.iterdir())) == 2
    other = tmp_path / ".other.csv.abc.part"
    other.touch()
    with atomic_write(tmp_path / "rows.csv") as part:
        part.write_text("whole")
    # the file of the living writer stays
    left = sorted(path.name for path in tmp_path.iterdir())
    living.kill()
    living.wait(20)
    assert len(left) == 3
    assert other.name in left
    assert "rows.csv" in left


def test_an_output_must_not_be_an_input_whatever_it_is_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "t.csv"
    data.write_text("a\n1\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.csv").symlink_to(data)
    os.link(data, tmp_path / "hard.csv")
    for out in ("t.csv", "sub/../t.csv", "link.csv", "hard.csv", data):
        with pytest.raises(UsageError, match="--out must not be an input"):
            check_apart("--out", Path(out), Path("t.csv"), None)
    check_apart("--out", Path("new.csv"), Path("t.csv"), Path("absent.csv"))
    (tmp_path / "to-new.csv").symlink_to(tmp_path / "new.csv")
    with pytest.raises(UsageError, match="--out must not be an input"):
        check_apart("--out", Path("to-new.csv"), Path("new.csv"))
