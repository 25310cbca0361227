"""Time and memory of fitting and sampling as the table grows.

    python benchmarks/scale.py --rows 100000 1000000 --columns 20 --augmenter lgbm-s

Writes an incomplete table of mixed kinds (30 % missing completely at random, dependent
columns) to a Parquet file, chunk by chunk. A separate process reads it, fits a small
network and samples, while this one monitors that process and its workers. Memory is
their total: the private pages of each, and the shared ones once.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

CHUNK = 250_000
CARDS = (3, 12, 5, 30, 2, 8)
PAGE = os.sysconf("SC_PAGE_SIZE")
OPTIONS = {"width": 128, "depth": 2, "sampling_steps": 20}


def chunk(n: int, d: int, start: int) -> pa.Table:
    """Return `n` rows of `d` columns: floats, integers, booleans and text."""
    rng = np.random.default_rng([start, d])
    z = rng.normal(size=(n, 3))
    columns = {}
    for j in range(d):
        x = z[:, j % 3] + 0.6 * rng.normal(size=n)
        missing = rng.random(n) < 0.3
        kind = j % 5
        if kind == 0:
            columns[f"x{j}"] = pa.array(np.exp(x), mask=missing)
        elif kind == 1:
            columns[f"r{j}"] = pa.array(np.round(20 + 5 * x, 2), mask=missing)
        elif kind == 2:
            columns[f"n{j}"] = pa.array(np.rint(40 + 12 * x).astype("i8"), mask=missing)
        else:
            card = CARDS[(j // 5 * 2 + kind - 3) % len(CARDS)]
            codes = np.clip((x + 2.5) / 5 * card, 0, card - 1).astype("i4")
            if card == 2:
                columns[f"b{j}"] = pa.array(codes == 1, mask=missing)
                continue
            levels = pa.array([f"level {k:02d}" for k in range(card)])
            codes = pa.array(codes, mask=missing)
            columns[f"c{j}"] = pa.DictionaryArray.from_arrays(
                codes, levels
            ).dictionary_decode()
    return pa.table(columns)


def make_table(path: Path, n: int, d: int) -> None:
    """Write the table with only one chunk in memory."""
    first = chunk(min(CHUNK, n), d, 0)
    with pa.parquet.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for start in range(CHUNK, n, CHUNK):
            writer.write_table(chunk(min(CHUNK, n - start), d, start))


def announced(function: Callable[..., Any], phase: str) -> Callable[..., Any]:
    """Return the function such that each call first announces the phase."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        say(phase)
        return function(*arguments, **keywords)

    return call


def say(phase: str) -> None:
    """Tell the monitoring process which phase begins."""
    print(f"phase {phase}", flush=True)


def fit_and_sample(path: Path, augmenter: str, steps: int, rows: int) -> None:
    """Fit and sample with the public functions, and announce their phases."""
    import augmask as am
    from augmask import model, prepare

    prepare.read_frame = announced(prepare.read_frame, "read")
    prepare.infer_schema = announced(prepare.infer_schema, "infer")
    prepare.Codec.fit = announced(prepare.Codec.fit, "encode")
    prepare.complete = announced(prepare.complete, "fill")
    prepare.init_from_data = announced(prepare.init_from_data, "ready")
    model.train = announced(model.train, "train")
    options = {**OPTIONS, "steps": steps}
    fitted = am.AugMask(
        augmenter=augmenter, preset="fast", options=options, device="cpu"
    ).fit(path, holdout=0)
    say("sample")
    fitted.sample_to(path.with_name("sampled.parquet"), rows)


def family(root: int) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rsplit(")", 1)[1].split()[1])
    ids = [root]
    for process in ids:
        ids += [child for child, parent in parents.items() if parent == process]
    return ids


def memory(root: int) -> float:
    """Return the memory of a process and its workers, in bytes."""
    private = shared = 0
    for process in family(root):
        try:
            fields = Path(f"/proc/{process}/statm").read_text().split()
        except OSError:
            continue
        private += int(fields[1]) - int(fields[2])
        shared = max(shared, int(fields[2]))
    return (private + shared) * PAGE


def watch(command: list[str]) -> dict[str, dict[str, float]]:
    """Run a command that announces phases; return their seconds and peak GiB."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    phases = {"start": {"from": time.monotonic(), "GiB": 0.0}}

    def listen() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("phase "):
                phase = line.split()[1]
                phases[phase] = {"from": time.monotonic(), "GiB": 0.0}

    listener = threading.Thread(target=listen)
    listener.start()
    while child.poll() is None:
        now = list(phases)[-1]
        phases[now]["GiB"] = max(phases[now]["GiB"], memory(child.pid) / 2**30)
        time.sleep(0.1)
    listener.join()
    if child.returncode:
        raise SystemExit(f"the fit failed with exit status {child.returncode}")
    ends = [part["from"] for part in list(phases.values())[1:]] + [time.monotonic()]
    for part, end in zip(phases.values(), ends, strict=True):
        part["seconds"] = end - part.pop("from")
    return phases


def show(n: int, sampled: int, phases: dict[str, dict[str, float]]) -> None:
    """Print the phases as a table."""
    print(f"\n{n:,} rows\n{'phase':>8} {'seconds':>9} {'us/row':>8} {'GiB':>6}")
    for phase, part in phases.items():
        rows = sampled if phase == "sample" else n
        each = 1e6 * part["seconds"] / rows
        print(f"{phase:>8} {part['seconds']:9.1f} {each:8.2f} {part['GiB']:6.2f}")
    total = sum(part["seconds"] for part in phases.values())
    peak = max(part["GiB"] for part in phases.values())
    print(f"{'all':>8} {total:9.1f} {'':>8} {peak:6.2f}", flush=True)


def main() -> None:
    """Run every size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--augmenter", default="lgbm-s")
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--sampled", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--of", type=Path, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.of:
        fit_and_sample(a.of, a.augmenter, a.steps, a.sampled)
        return
    results = {}
    for n in a.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.parquet"
            make_table(path, n, a.columns)
            command = [sys.executable, __file__, "--of", str(path)]
            for name in ("augmenter", "steps", "sampled"):
                command += [f"--{name}", str(getattr(a, name))]
            results[n] = watch(command)
        show(n, a.sampled, results[n])
    if a.json:
        facts = {
            "columns": a.columns,
            "augmenter": a.augmenter,
            "steps": a.steps,
            "sampled": a.sampled,
            "cores": os.cpu_count(),
            "machine": platform.processor() or platform.machine(),
            "date": time.strftime("%Y-%m-%d"),
            "rows": results,
        }
        a.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
