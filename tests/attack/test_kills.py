"""kill -9 at any moment: the next run gives the same bytes and leaves no files."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from augmask.cli import main
from augmask.train.checkpoint import Checkpoint
from augmask_bench.ranks import METRICS

from .budget import budget, report
from .victims import fit, make_frame

pytestmark = pytest.mark.slow

FIT = "fit t.csv --out out.augmask --checkpoint run.checkpoint --augmenter ecdf"
FIT += " --preset fast --device cpu --steps 300 --set width=8 --set depth=1"
FIT += " --set batch_size=16 --set sampling_steps=3"
COMMANDS = {
    "fit": (FIT, "out.augmask"),
    "sample": ("sample m.augmask -n 20000 --device cpu --out out.csv", "out.csv"),
    "impute": (
        "impute m.augmask t.csv --n-draws 40 --device cpu --out o.parquet",
        "o.parquet",
    ),
}
PLAN = """
ratios = [0.3]
device = "cpu"
keep = true

[[datasets]]
name = "clinic"
rows = 300

[[methods]]
generator = "cdtd"
strategy = ["NoAug", "AugFull"]
preset = "fast"
options = { steps = 5, batch_size = 32, width = 8, depth = 1, sampling_steps = 3 }
"""


def _run(folder: Path, line: str) -> None:
    """Run a command in this forked process, and end it."""
    os.chdir(folder)
    Checkpoint.due = True  # type: ignore[assignment, method-assign]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.argv = ["augmask", *line.split()]
    try:
        main()
    except SystemExit as end:
        os._exit(int(end.code or 0))
    os._exit(0)


def start(folder: Path, line: str) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(
        target=_run, args=(folder, line)
    )
    process.start()
    return process


def one_kill(
    folder: Path, name: str, expected: bytes, after: float
) -> list[str] | None:
    """Kill a command, run it again, return errors; None if it ended before the kill."""
    line, out = COMMANDS[name][0], folder / COMMANDS[name][1]
    process = start(folder, line)
    process.join(after)
    if not process.is_alive():
        process.join()
        out.unlink()
        return None
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    bad = []
    # the output is complete or absent
    if out.exists() and out.read_bytes() != expected:
        bad.append(f"{name}: the output is incomplete")
    out.unlink(missing_ok=True)
    again = start(folder, line)
    again.join()
    if again.exitcode != 0 or out.read_bytes() != expected:
        bad.append(f"{name}: other bytes after a kill ({again.exitcode})")
    out.unlink(missing_ok=True)
    return bad


def test_kills_of_commands(tmp_path):
    make_frame(400).to_csv(tmp_path / "t.csv", index=False)
    fit(make_frame(400), options={"sampling_batch": 500}).save(tmp_path / "m.augmask")
    inputs = sorted(path.name for path in tmp_path.iterdir())
    expected, lasts = {}, {}
    for name, (line, out) in COMMANDS.items():
        began = time.monotonic()
        whole = start(tmp_path, line)
        whole.join()
        assert whole.exitcode == 0, name
        lasts[name] = time.monotonic() - began
        expected[name] = (tmp_path / out).read_bytes()
        (tmp_path / out).unlink()
    rng = np.random.default_rng(5)
    kills = dict.fromkeys(COMMANDS, 0)
    bad: list[str] = []
    for _ in range(-(-budget("kills") * 19 // (20 * len(COMMANDS)))):
        for name in COMMANDS:
            wrong = None
            while wrong is None:
                after = float(rng.uniform(0, lasts[name]))
                wrong = one_kill(tmp_path, name, expected[name], after)
            kills[name] += 1
            bad += wrong
            left = sorted(path.name for path in tmp_path.iterdir())
            if left != inputs:
                bad.append(f"{name}: left {set(left) - set(inputs)}")
        report("kill -9 of commands", **kills, bad=len(bad))
    assert not bad, "\n".join(bad[:20])


def _results(folder: Path) -> dict[str, bytes]:
    """Return the results of a grid without its clock times.

    Which runs trained together, and for how long, depends on where it was killed.
    """
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.name != "results.parquet"
        and path.parent.name != "groups"
    }
    plain = {}
    for name, data in files.items():
        if name.endswith(".json"):
            record = json.loads(data)
            scores = {key: record.get(key) for key in METRICS}
            data = json.dumps([record["run"], record["status"], scores]).encode()
        # completions that runs share hold their clock time
        plain[name] = b"" if name.endswith(".npz") else data
    return plain


def test_kills_of_a_grid(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)

    def grid(out: str) -> subprocess.Popen[bytes]:
        line = f"bench run plan.toml --out {out} --jobs 1"
        return subprocess.Popen(
            [sys.executable, "-m", "augmask", *line.split()],
            cwd=tmp_path,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    began = time.monotonic()
    assert grid("whole").wait() == 0
    lasts = time.monotonic() - began
    expected = _results(tmp_path / "whole")
    rng, bad, kills = np.random.default_rng(6), [], 0
    for turn in range(max(budget("kills") // 20, 1)):
        out = f"grid-{turn}"
        process = grid(out)
        try:
            process.wait(float(rng.uniform(0.3, 1.0)) * lasts)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
        if grid(out).wait() != 0 or _results(tmp_path / out) != expected:
            bad.append(f"turn {turn}")
        report("kill -9 of a grid", kills=kills, bad=len(bad))
    assert not bad, "\n".join(bad)
