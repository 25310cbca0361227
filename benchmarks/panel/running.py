"""One contender on one table: a process of its own with a limit, and its result kept.

A run lives in `WORK/runs/TABLE/TASK/NAME/`: what was asked (`job.json`), the rows
(`0.parquet`, ...), and `done.json` with the seconds, or why there are no rows. A folder
with `done.json` is not run again.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import data

ROOT = Path(__file__).resolve().parents[2]
# What went wrong fits a line; the log beside it has the rest.
SHORT = 160


@dataclass(frozen=True)
class Contender:
    """A method with its options.

    Parameters
    ----------
    method : str
        A name of the panel file.
    options : dict
        Only ours take any.
    """

    method: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in results: ours with what was asked of it.

        Examples
        --------
        >>> Contender("augmask", {"preset": "fast", "backbone": "cdtd"}).name
        'augmask backbone=cdtd preset=fast'
        """
        said = [f"{k}={v}" for k, v in sorted(self.options.items())]
        return " ".join([self.method, *said])


def commit() -> str:
    """Return the commit of this checkout, with a plus if files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def interpreter(environment: str | None) -> Path | str:
    """Return a contender's Python, or why there is none."""
    if environment is None:
        return Path(sys.executable)
    folders = [ROOT, *os.environ.get("AUGMASK_ENVIRONMENTS", "").split(os.pathsep)]
    for folder in folders:
        python = Path(folder or ".") / environment / "bin" / "python"
        if python.exists():
            return python
    return f"its environment is absent; run `make {environment}/.ready`"


def too_much(method: dict[str, Any], rows: int, columns: int) -> str:
    """Return why a contender is not even started; empty if it is."""
    work = rows * columns**2
    if work <= method.get("work", work):
        return ""
    return (
        f"not started: {rows:,} x {columns} columns would take it longer than the "
        "limit, by what smaller tables took"
    )


def seconds_here(limit: float) -> float:
    """Return the seconds on the wall that the limit is on this machine, now.

    A contender is not to lose for what others do to the machine: while more processes
    want to run than there are cores, the limit is longer by as much, four times at
    most.
    """
    crowd = (os.getloadavg()[0] + 1) / (os.cpu_count() or 1)
    return limit * min(max(1.0, crowd), 4.0)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait for a process and its children; return why it did not finish."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        # Workers of its own belong to its group.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"over the limit of {seconds:.0f} s"
    return "" if process.returncode == 0 else "failed"


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip()[:SHORT] if lines else "no word"


def run_folder(work: Path, table: str, task: str, contender: Contender) -> Path:
    """Return the folder of a run; ours have one per commit."""
    name = contender.name
    if contender.method == "augmask":
        name += f" @{commit()}"
    return work / "runs" / table / task / name


def run(
    work: Path, table: str, task: str, contender: Contender, seed: int, again: bool
) -> dict[str, Any]:
    """Run one contender on one table unless that was done; return `done.json`."""
    folder = run_folder(work, table, task, contender)
    done = folder / "done.json"
    if done.exists() and not again:
        return {**json.loads(done.read_text()), "fresh": False}
    whole, facts = data.panel(), data.facts(work, table)
    settings, method = whole["settings"], whole["methods"][contender.method]
    folder.mkdir(parents=True, exist_ok=True)
    source = work / "tables" / table
    file = "train" if task == "synthesize" else "impute-holed"
    rows = facts["rows"]
    if task == "impute":
        rows = min(rows, settings["impute_rows"])
    columns = len(facts["kinds"])
    python = interpreter(method.get("environment"))
    why = too_much(method, rows, columns)
    found: dict[str, Any] = {
        "table": table,
        "task": task,
        "method": contender.name,
        "commit": commit() if contender.method == "augmask" else "",
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "rows": rows,
        "seed": seed,
        "seconds": None,
        "cpu_seconds": None,
    }
    if isinstance(python, str):
        return {**found, "why": python, "fresh": True}
    if not why:
        allowed = seconds_here(settings["limit"])
        job = {
            "task": task,
            "table": str(source / f"{file}.parquet"),
            "kinds": facts["kinds"],
            "rows": rows,
            "seed": seed,
            "draws": settings["draws"],
            "seconds": allowed,
            "out": str(folder),
            "options": contender.options or method.get("options", {}),
        }
        (folder / "job.json").write_text(json.dumps(job, indent=1))
        adapter = data.HERE / "adapters" / method["adapter"]
        shared = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        log = folder / "log.txt"
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        with log.open("wb") as out:
            process = subprocess.Popen(
                [python, adapter, folder / "job.json"],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | shared,
                cwd=folder,
                start_new_session=True,
            )
            why = _wait(process, allowed)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found["seconds"] = round(time.monotonic() - began, 1)
        found["cpu_seconds"] = round(used, 1)
        found["load"] = round(os.getloadavg()[1], 1)
        if why == "failed":
            why = f"failed: {_last_line(log)}"
    found["why"] = why
    done.write_text(json.dumps(found, indent=1))
    return {**found, "fresh": True}
