"""kill -9 at any moment: the next run gives the same bytes and leaves no files."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from augmask.cli import main
from augmask.train.checkpoint import Checkpoint

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
# what the kills are shared among
KILLED = (*COMMANDS, "grid")
# where a file of rows says what made them
FACTS = b"augmask_bench"
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
    os.setsid()
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
    except BaseException:
        # not into the test that this process is a copy of
        os._exit(1)
    os._exit(0)


def start(folder: Path, line: str) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(
        target=_run, args=(folder, line)
    )
    process.start()
    return process


def kill(process: multiprocessing.Process) -> None:
    """Kill a command and the processes that it has started."""
    assert process.pid is not None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        # it has not made its group yet
        process.kill()
    process.join()


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
    kill(process)
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
    for _ in range(budget("kills") // len(KILLED)):
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


SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def test_signals_leave_nothing(tmp_path):
    """Unlike after kill -9, nothing is left for the next command to remove."""
    make_frame(400).to_csv(tmp_path / "t.csv", index=False)
    fit(make_frame(400), options={"sampling_batch": 500}).save(tmp_path / "m.augmask")
    inputs = sorted(path.name for path in tmp_path.iterdir())
    rng, bad, sent = np.random.default_rng(7), [], 0
    for name in ("sample", "impute"):
        line, output = COMMANDS[name]
        began = time.monotonic()
        whole = start(tmp_path, line)
        whole.join()
        lasts = time.monotonic() - began
        out = tmp_path / output
        expected = out.read_bytes()
        out.unlink()
        for _ in range(max(budget("kills") // 10, 2)):
            for number in SIGNALS:
                process = start(tmp_path, line)
                process.join(float(rng.uniform(0, lasts)))
                assert process.pid is not None
                if process.is_alive():
                    os.kill(process.pid, number)
                    sent += 1
                process.join()
                if out.exists() and out.read_bytes() != expected:
                    bad.append(f"{name}, {number.name}: the output is incomplete")
                out.unlink(missing_ok=True)
                left = {path.name for path in tmp_path.iterdir()} - set(inputs)
                bad += [f"{name}, {number.name}: left {each}" for each in left]
                for each in left:
                    (tmp_path / each).unlink()
        report("SIGTERM, SIGHUP, SIGINT", sent=sent, bad=len(bad))
    assert not bad, "\n".join(bad[:20])


# What the clock says, and how many runs shared a training: where a kill was changes it.
CLOCK = ("date", "seconds", "spent", "together")

# Files that are there or not, as the clock says.
BY_THE_CLOCK = (("groups", ".json"), ("augmentations", ".npz"))


def _timeless(facts: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in facts.items() if k.split("_")[-1] not in CLOCK}


def _contents(path: Path) -> Any:
    """Return what a file of a grid holds besides clock times."""
    if path.suffix == ".json":
        return _timeless(json.loads(path.read_bytes()))
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            plain = {name: array.tobytes() for name, array in arrays.items()}
            if "facts" in plain:
                plain["facts"] = _timeless(json.loads(str(arrays["facts"])))
        return _timeless(plain)
    if path.suffix == ".parquet":
        table = parquet.read_table(path)
        facts = json.loads((table.schema.metadata or {}).get(FACTS, b"{}"))
        rows = table.select(list(_timeless(dict.fromkeys(table.column_names))))
        return rows.to_pylist(), _timeless(facts)
    return path.read_bytes()


def results(folder: Path) -> dict[str, Any]:
    """Return the contents of all files of a grid, by name.

    How runs were grouped to train together depends on where the grid was killed, and
    whether an augmentation took long enough to be cached on the load of the machine.
    """
    return {
        str(path.relative_to(folder)): repr(_contents(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (path.parent.name, path.suffix) not in BY_THE_CLOCK
    }


def test_kills_of_a_grid(tmp_path):
    # what a forked process need not import again
    for name in ("augmask_bench.run", "augmask_bench.score", "xgboost", "distributed"):
        importlib.import_module(name)
    (tmp_path / "plan.toml").write_text(PLAN)

    def grid(out: str) -> multiprocessing.Process:
        return start(tmp_path, f"bench run plan.toml --out {out} --jobs 1")

    began = time.monotonic()
    whole = grid("whole")
    whole.join()
    assert whole.exitcode == 0
    lasts = time.monotonic() - began
    expected = results(tmp_path / "whole")
    rng, bad, kills, turn = np.random.default_rng(6), [], 0, 0
    while kills < budget("kills") // len(KILLED):
        turn += 1
        out = f"grid-{turn}"
        process = grid(out)
        process.join(float(rng.uniform(0.05, 1.0)) * lasts)
        if process.is_alive():
            kill(process)
            kills += 1
        else:
            # it was slower under load
            lasts *= 0.8
        process.join()
        again = grid(out)
        again.join()
        if again.exitcode != 0:
            bad.append(f"turn {turn}: exit code {again.exitcode}")
        elif results(tmp_path / out) != expected:
            bad.append(f"turn {turn}: other results")
        report("kill -9 of a grid", kills=kills, bad=len(bad))
    assert not bad, "\n".join(bad)
