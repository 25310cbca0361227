"""Results: one small file per run, collected into one table.

A result is a flat JSON object in `runs/<name>.json` of the grid's folder. Files are
written atomically, so a grid can be killed at any moment: a run is either completed or
pending.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from augmask.files import atomic_write
from augmask_bench.methods import find_generator
from augmask_bench.plan import Run
from augmask_bench.ranks import METRICS

RunResult = dict[str, Any]

SECONDS = ("fit_seconds", "augment_seconds", "sample_seconds", "score_seconds")
# The columns of the table and their types; a missing text is empty, a number NaN.
COLUMNS: dict[str, str] = {
    **dict.fromkeys(["run", "dataset", "mechanism"], "str"),
    "ratio": "float64",
    "seed": "int64",
    **dict.fromkeys(["method", "generator", "strategy", "augmenter"], "str"),
    "supervise": "str",
    "aware": "bool",
    "completions": "str",
    **dict.fromkeys(["eta", "lam"], "float64"),
    **dict.fromkeys(["status", "reason"], "str"),
    **dict.fromkeys([*METRICS, "mle_real", "mle_synthetic", *SECONDS], "float64"),
    **dict.fromkeys(["rows", "columns", "steps"], "float64"),
    **dict.fromkeys(["real", "stopped", "device", "commit", "versions", "date"], "str"),
}
# Columns of a published score file.
PUBLISHED = (
    *("dataset", "mechanism", "ratio", "seed", "method", "status", "reason"),
    *(*METRICS, "mle_real", "mle_synthetic", *SECONDS, "steps", "device"),
    *("commit", "versions", "date"),
)
TABLE = "results.parquet"
RANKS = ("ranks-*.md", "ranks-*.csv", "ranks-*.tex")
# Files derived from the results.
DERIVED = (TABLE, *RANKS, "figures/*.svg", "figures/*.png")
# A run that is unable to start here is tried again: another machine may be able to.
FINAL = ("done", "failed")


def facts_of(run: Run) -> RunResult:
    """Return what is known about a run before it starts."""
    dataset, mechanism, ratio, seed = run.block
    method = run.method
    return {
        "run": run.name,
        "dataset": dataset,
        "mechanism": mechanism,
        "ratio": ratio,
        "seed": seed,
        "method": method.label,
        "generator": method.generator,
        "strategy": method.strategy,
        "augmenter": method.augmenter,
        "supervise": method.supervise,
        "aware": find_generator(method.generator).aware,
        "completions": method.completions,
        "eta": method.eta,
        "lam": method.lam,
    }


def failed_result(run: Run, reason: str) -> RunResult:
    """Return the result of a run that ended without one."""
    return {**facts_of(run), "status": "failed", "reason": reason}


def _plain(value: Any) -> Any:
    """Return a value with None in place of NaN and infinity, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _file(out: Path, name: str) -> Path:
    return out / "runs" / f"{name}.json"


def write(out: Path, result: Mapping[str, Any]) -> Path:
    """Write the result of a run atomically; it replaces an older one.

    A completed run stays completed: if it is repeated for its rows and fails, the
    failure is not written.
    """
    path = _file(out, result["run"])
    before = read(out, result["run"])
    if before and before["status"] == "done" and result["status"] != "done":
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_plain(result), indent=1)
    with atomic_write(path) as part:
        part.write_text(text + "\n", encoding="utf-8")
    return path


def read(out: Path, name: str) -> RunResult | None:
    """Return the result of a run; None if there is none or it cannot be read."""
    try:
        result = json.loads(_file(out, name).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return result if isinstance(result, dict) and "status" in result else None


def sample_file(out: Path, run: Run) -> Path:
    """Return the file of the synthetic rows of a run."""
    return out / "samples" / f"{run.name}.parquet"


def real_file(out: Path, dataset: str, seed: int, real: str) -> Path:
    """Return the file of the complete training rows; `real` is their hash."""
    return out / "real" / f"{dataset}-{seed}-{real}.parquet"


def pending(out: Path, runs: Iterable[Run], retry_failed: bool = False) -> list[Run]:
    """Return the runs that still have to be executed.

    A run is over if it completed or failed. One that was not available on the machine
    where it was tried is tried again, and so is one whose rows were not kept if the
    plan now keeps rows.
    """
    todo = []
    for run in runs:
        result = read(out, run.name)
        over = result is not None and result["status"] in FINAL
        if over and result is not None and result["status"] == "failed":
            over = not retry_failed
        elif over and run.keep:
            over = sample_file(out, run).exists()
        if not over:
            todo.append(run)
    return todo


def _frame(results: list[RunResult]) -> pd.DataFrame:
    """Return results as a table with fixed columns and types."""
    frame = pd.DataFrame(results, columns=list(COLUMNS))
    for name, kind in COLUMNS.items():
        if kind == "str":
            texts = ["" if v is None or v != v else str(v) for v in frame[name]]
            frame[name] = pd.Series(texts, dtype="str", index=frame.index)
        else:
            frame[name] = frame[name].astype(kind)
    return frame


def stale(out: Path, runs: Iterable[Run]) -> list[str]:
    """Return the names of results that belong to no run of a plan.

    They were made with other settings, versions or tables, so they are never shown.
    They are not deleted: the plan may return to these settings. Partly written files
    of a killed run are ignored.
    """
    name = re.compile(r"[0-9a-f]+")
    stems = {path.stem for path in out.glob("runs/*.json")}
    others = stems - {run.name for run in runs}
    return sorted(
        stem for stem in others if name.fullmatch(stem) and read(out, stem) is not None
    )


def remove_derived(out: Path, patterns: Iterable[str]) -> None:
    """Remove derived files, so that they do not outlive their results."""
    for pattern in patterns:
        for path in out.glob(pattern):
            path.unlink()


def collect(out: Path, runs: Iterable[Run]) -> pd.DataFrame:
    """Return the table of results, one row per run.

    Parameters
    ----------
    out : Path
        The grid's folder.
    runs : iterable of Run
        Those of a plan: only they are collected, in the plan's order and under the
        plan's names. RunResults of other names are not those of the plan any more.
    """
    records = [
        {**record, **facts_of(run)}
        for run in runs
        if (record := read(out, run.name)) is not None
    ]
    return _frame(records)


def save_table(out: Path, frame: pd.DataFrame) -> Path:
    """Write the table of results as a Parquet file, atomically."""
    path = out / TABLE
    out.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        frame.to_parquet(part, index=False)
    return path


def save_scores(path: Path, frame: pd.DataFrame) -> None:
    """Write the scores of all runs as CSV, one line per run."""
    with atomic_write(path) as part:
        frame[list(PUBLISHED)].round(4).to_csv(part, index=False, lineterminator="\n")
