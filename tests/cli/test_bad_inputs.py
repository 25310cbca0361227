"""Bad inputs through the real command line.

Each ends in one sentence on standard error and the right exit code, without a
traceback, and leaves every directory as it was.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from .bad import BAD_DATA, FIT_BAD, FIT_GOOD, USAGE
from .bad_conditions import CONDITIONS
from .bad_models import MODELS
from .bad_options import OPTIONS, OUTPUTS, PARTS
from .bad_scores import SCORES
from .bad_tables import SCHEMAS, TABLES
from .conftest import TINY, Result, make_frame

EVERY = TABLES + SCHEMAS + OPTIONS + OUTPUTS + PARTS + MODELS + SCORES + CONDITIONS


@pytest.fixture
def desk(tmp_path, monkeypatch, good_model) -> Path:
    """Return the working directory of a user, with a good table and a good model."""
    monkeypatch.chdir(tmp_path)
    make_frame().to_csv("good.csv", index=False)
    shutil.copy(good_model, "good.augmask")
    Path("folder").mkdir()
    return tmp_path


def listing(folder: Path) -> dict[str, bytes | None]:
    """Return every file under `folder` with its contents."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def check(result: Result, code: int, says: tuple[str, ...], typed: bool) -> None:
    assert result.code == code, result.err
    assert "Traceback" not in result.err
    lines = [line for line in result.err.splitlines() if not line.startswith("note:")]
    if not typed:
        assert len(lines) == 1, result.err
        assert lines[0].startswith("augmask: ")
        assert result.out == ""
    at = 0
    for part in says:
        at = result.err.find(part, at)
        assert at >= 0, f"{part!r} is not said in: {result.err}"


def test_the_table_of_bad_inputs_is_long_enough():
    assert len({bad.name for bad in EVERY}) == len(EVERY) >= 30


@pytest.mark.parametrize("bad", EVERY, ids=lambda bad: bad.name.replace(" ", "-"))
def test_ends_in_one_sentence_and_leaves_nothing(bad, desk, run_cli):
    bad.prepare()
    before = listing(desk)
    arguments = shlex.split(bad.run)
    if arguments[0] == "fit" and not bad.typed:
        # what the case says comes last and counts
        arguments = ["fit", *TINY, *arguments[1:]]
    check(run_cli(*arguments), bad.code, bad.says, bad.typed)
    assert listing(desk) == before


def refuse_to_sync(handle: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "command",
    [
        FIT_GOOD,
        "sample good.augmask -n 5 --out old.csv",
        "sample good.augmask -n 5 --out new.csv.gz",
        "sample good.augmask -n 5 --out new.parquet",
        "sample good.augmask -n 5 --out new.feather",
        "inspect good.csv --save-schema new.toml",
    ],
)
def test_a_full_disk_keeps_the_old_file_and_nothing_else(
    command, desk, run_cli, monkeypatch
):
    Path("old.csv").write_text("precious")
    before = listing(desk)
    monkeypatch.setattr(os, "fsync", refuse_to_sync)
    arguments = command.split()
    tiny = TINY if arguments[0] == "fit" else []
    result = run_cli(*arguments, *tiny)
    check(result, BAD_DATA, ("cannot write", "No space left on device"), typed=False)
    assert listing(desk) == before


@pytest.mark.parametrize(
    ("before", "command", "code", "says"),
    [
        ("", f"{FIT_BAD}", BAD_DATA, ("no such file", "bad.csv")),
        ("", "sample good.augmask -n 0 --out rows.csv", USAGE, ("n must", "0")),
        # a limit of 8 KiB a file stops the writer half-way, as a full disk does
        (
            "ulimit -f 8; ",
            "sample good.augmask -n 20000 --out rows.csv",
            BAD_DATA,
            ("cannot write rows.csv", "File too large"),
        ),
    ],
    ids=["absent", "no rows", "full"],
)
def test_in_a_shell(before, command, code, says, desk):
    program = Path(sys.executable).with_name("augmask")
    files = listing(desk)
    done = subprocess.run(
        ["bash", "-c", f"{before}{program} {command}"],
        cwd=desk,
        capture_output=True,
        text=True,
        check=False,
    )
    check(Result(done.returncode, done.stdout, done.stderr), code, says, typed=False)
    assert listing(desk) == files


def test_a_full_disk_under_a_checkpoint(desk, run_cli, monkeypatch):
    from augmask.train.checkpoint import Checkpoint

    monkeypatch.setattr(Checkpoint, "due", True)
    monkeypatch.setattr(os, "fsync", refuse_to_sync)
    before = listing(desk)
    result = run_cli(*FIT_GOOD.split(), *TINY, "--checkpoint", "run.checkpoint")
    # the checkpoint is told of, training goes on, and here no model can be kept either
    says = ("note: cannot write run.checkpoint: No space", "cannot write m.augmask")
    check(result, BAD_DATA, says, typed=False)
    assert listing(desk) == before


def test_a_file_that_may_not_be_read(desk, run_cli, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    # tests may run as root, whom no file mode stops
    monkeypatch.setattr("augmask.table.text_files._open_bytes", refuse)
    result = run_cli("inspect", "good.csv")
    check(result, BAD_DATA, ("no permission to read good.csv",), typed=False)


def test_one_column_is_enough(desk, run_cli):
    for name in ("age", "weight", "job", "smokes"):
        make_frame()[[name]].to_csv("one.csv", index=False)
        model, out = f"{name}.augmask", f"{name}.csv"
        assert run_cli("fit", "one.csv", "--out", model, *TINY).code == 0
        assert run_cli("sample", model, "-n", 7, "--out", out).code == 0
        rows = pd.read_csv(out)
        assert rows.shape == (7, 1)
        assert not rows.isna().any().any()
