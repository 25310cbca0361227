"""Time and memory of every process as a table of many files grows.

    python benchmarks/lake.py --rows 1000000 10000000 100000000 --json results.json

Writes an incomplete table of mixed kinds (30 % missing completely at random, dependent
columns) as a folder of Parquet files. A separate process fits a small network to it and
writes rows as a folder of Parquet files, both in parts, while this one watches that
process and its workers: the largest resident memory of any of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet
from scale import CHUNK, OPTIONS, chunk, family, say

import augmask as am

FILE_ROWS = 1_000_000


def make_lake(folder: Path, n: int, d: int) -> None:
    """Write the table with only one chunk in memory."""
    folder.mkdir()
    for first in range(0, n, FILE_ROWS):
        end = min(first + FILE_ROWS, n)
        path = folder / f"{first:012d}.parquet"
        writer = None
        for start in range(first, end, CHUNK):
            rows = chunk(min(CHUNK, end - start), d, start)
            writer = writer or pyarrow.parquet.ParquetWriter(path, rows.schema)
            writer.write_table(rows)
        assert writer is not None
        writer.close()


class Phases:
    """A progress callback that announces every new phase."""

    def __init__(self) -> None:
        self.phase = ""

    def __call__(
        self, phase: str, done: int, total: int, numbers: Mapping[str, float]
    ) -> None:
        """Announce the phase if it is a new one."""
        del done, total, numbers
        if phase != self.phase:
            self.phase = phase
            say(phase)


def fit_and_write(folder: Path, augmenter: str, steps: int, rows: int) -> None:
    """Fit and write rows with the public functions, and announce their phases."""
    say("read")
    model = am.AugMask(
        augmenter=augmenter,
        preset="fast",
        options={**OPTIONS, "steps": steps},
        device="cpu",
    ).fit(folder / "lake", work_dir=folder / "job", progress=Phases())
    say("sample")
    model.sample_to(
        folder / "rows", rows, partitions=max(2, rows // 250_000), progress=False
    )


def resident(root: int) -> dict[int, int]:
    """Return the resident memory in bytes of a process and its descendants."""
    found = {}
    for process in family(root):
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        for line in status.splitlines():
            if line.startswith("VmRSS"):
                found[process] = int(line.split()[1]) * 1024
    return found


def cpu_seconds(root: int) -> float:
    """Return the processor time of a process and its descendants, also ended ones."""
    ticks = 0
    for process in family(root):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        # user and system time, its own and that of children that have ended
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def watch(command: list[str]) -> dict[str, dict[str, float]]:
    """Run a command; return seconds, processor seconds and peak GiB of its phases."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    phases = {"start": {"from": time.monotonic(), "cpu": 0.0, "GiB": 0.0}}

    def listen() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("phase "):
                phases[line.split()[1]] = {
                    "from": time.monotonic(),
                    "cpu": cpu_seconds(child.pid),
                    "GiB": 0.0,
                }

    listener = threading.Thread(target=listen)
    listener.start()
    used = 0.0
    while child.poll() is None:
        own = resident(child.pid)
        part = phases[list(phases)[-1]]
        part["GiB"] = max(part["GiB"], max(own.values(), default=0) / 2**30)
        used = max(used, cpu_seconds(child.pid))
        time.sleep(0.2)
    listener.join()
    if child.returncode:
        raise SystemExit(f"the fit failed with exit status {child.returncode}")
    parts = list(phases.values())
    ends = [part["from"] for part in parts[1:]] + [time.monotonic()]
    uses = [part["cpu"] for part in parts[1:]] + [used]
    for part, end, cpu in zip(parts, ends, uses, strict=True):
        part["seconds"] = round(end - part.pop("from"), 1)
        part["cpu"] = round(cpu - part["cpu"], 1)
        part["GiB"] = round(part["GiB"], 2)
    return phases


def show(n: int, phases: dict[str, dict[str, float]]) -> None:
    """Print the phases as a table."""
    print(f"\n{n:,} rows\n{'phase':>8} {'seconds':>9} {'cpu s':>9} {'GiB':>6}")
    for phase, part in phases.items():
        print(
            f"{phase:>8} {part['seconds']:9.1f} {part['cpu']:9.1f} {part['GiB']:6.2f}",
            flush=True,
        )


def commit() -> str:
    """Return the commit that is measured."""
    run = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(run, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Run every size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--augmenter", default="ecdf")
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--share", type=float, default=0.1, help="rows to write")
    parser.add_argument("--json", type=Path, help="add the results to this file")
    parser.add_argument("--keep", type=Path, help="where the tables are, and stay")
    parser.add_argument("--of", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sampled", type=int, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.of:
        fit_and_write(a.of, a.augmenter, a.steps, a.sampled)
        return
    known: dict[str, Any] = (
        json.loads(a.json.read_text()) if a.json and a.json.exists() else {}
    )
    for n in a.rows:
        folder = Path(tempfile.mkdtemp(prefix="augmask-lake-"))
        try:
            if a.keep and (a.keep / str(n)).exists():
                (folder / "lake").symlink_to(a.keep / str(n))
            else:
                make_lake(folder / "lake", n, a.columns)
            command = [sys.executable, __file__, "--of", str(folder)]
            command += ["--augmenter", a.augmenter, "--steps", str(a.steps)]
            command += ["--sampled", str(round(a.share * n))]
            phases = watch(command)
            shards = sum(p.stat().st_size for p in (folder / "job").iterdir())
        finally:
            shutil.rmtree(folder)
        show(n, phases)
        known[f"{a.augmenter} {n}"] = {
            "columns": a.columns,
            "steps": a.steps,
            "written": round(a.share * n),
            "shards_gib": round(shards / 2**30, 2),
            "cores": os.cpu_count(),
            "date": time.strftime("%Y-%m-%d"),
            "commit": commit(),
            "phases": phases,
        }
        if a.json:
            a.json.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
