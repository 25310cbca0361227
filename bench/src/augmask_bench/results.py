"""Results: one small file a run, collected into one table.

A record is a flat JSON object in `runs/<name>.json` of the grid's folder. Files appear
whole or not at all, so a grid can be killed at any moment: a run is either done or
still to do.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from augmask.files import written_whole
from augmask_bench.methods import find_generator
from augmask_bench.plan import Run
from augmask_bench.ranks import METRICS

Record = dict[str, Any]

SECONDS = ("fit_seconds", "augment_seconds", "sample_seconds", "score_seconds")
# the columns of the table, and their types; texts are empty and numbers NaN if absent
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
# what a reader of a published result file wants of them
PUBLISHED = (
    *("dataset", "mechanism", "ratio", "seed", "method", "status", "reason"),
    *(*METRICS, "mle_real", "mle_synthetic", *SECONDS, "steps", "device"),
    *("commit", "versions", "date"),
)
TABLE = "results.parquet"
RANKS = ("ranks-*.md", "ranks-*.csv", "ranks-*.tex")
# made from records, beside them
DERIVED = (TABLE, *RANKS, "figures/*.svg", "figures/*.png")
# whether it ran depends on the machine; on another one it is tried again
FINAL = ("done", "failed")


def facts_of(run: Run) -> Record:
    """Return what is known of a run before it starts."""
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


def failed(run: Run, reason: str) -> Record:
    """Return the record of a run that was asked for and broke."""
    return {**facts_of(run), "status": "failed", "reason": reason}


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: no NaN, no infinity, nowhere in it."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _file(out: Path, name: str) -> Path:
    return out / "runs" / f"{name}.json"


def write(out: Path, record: Mapping[str, Any]) -> Path:
    """Write the record of a run; it appears whole, in place of an older one.

    A finished run stays what it is: one that is done again for its rows, and breaks or
    cannot run, leaves no trace.
    """
    path = _file(out, record["run"])
    before = read(out, record["run"])
    if before and before["status"] == "done" and record["status"] != "done":
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_plain(record), indent=1)
    with written_whole(path) as part:
        part.write_text(text + "\n", encoding="utf-8")
    return path


def read(out: Path, name: str) -> Record | None:
    """Return the record of a run; None if there is none that can be read."""
    try:
        record = json.loads(_file(out, name).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return record if isinstance(record, dict) and "status" in record else None


def sample_file(out: Path, run: Run) -> Path:
    """Return where the synthetic rows of a run are kept."""
    return out / "samples" / f"{run.name}.parquet"


def real_file(out: Path, dataset: str, seed: int, real: str) -> Path:
    """Return where the complete training rows are kept; `real` is their hash."""
    return out / "real" / f"{dataset}-{seed}-{real}.parquet"


def pending(out: Path, runs: Iterable[Run], retry_failed: bool = False) -> list[Run]:
    """Return the runs that are still to do.

    A run is over when it is done or failed. One that could not run on the machine
    where it was tried is tried again, and so is one whose rows are wanted now and were
    not kept.
    """
    left = []
    for run in runs:
        record = read(out, run.name)
        over = record is not None and record["status"] in FINAL
        if over and record is not None and record["status"] == "failed":
            over = not retry_failed
        elif over and run.keep:
            over = sample_file(out, run).exists()
        if not over:
            left.append(run)
    return left


def _frame(records: list[Record]) -> pd.DataFrame:
    """Return records as a table whose columns and types do not depend on them."""
    frame = pd.DataFrame(records, columns=list(COLUMNS))
    for name, kind in COLUMNS.items():
        if kind == "str":
            texts = ["" if v is None or v != v else str(v) for v in frame[name]]
            frame[name] = pd.Series(texts, dtype="str", index=frame.index)
        else:
            frame[name] = frame[name].astype(kind)
    return frame


def stale(out: Path, runs: Iterable[Run]) -> list[str]:
    """Return the names of records that are of no run of a plan.

    Their settings, versions or tables are others than the plan now asks for, so they
    are never shown. They stay: a plan may come back to them. Half-written files of a
    killed run are passed over.
    """
    name = re.compile(r"[0-9a-f]+")
    found = {path.stem for path in out.glob("runs/*.json")}
    others = found - {run.name for run in runs}
    return sorted(
        stem for stem in others if name.fullmatch(stem) and read(out, stem) is not None
    )


def forget(out: Path, patterns: Iterable[str]) -> None:
    """Remove what was made from records, so that none of it outlives them."""
    for pattern in patterns:
        for path in out.glob(pattern):
            path.unlink()


def collect(out: Path, runs: Iterable[Run]) -> pd.DataFrame:
    """Return the table of results, one row a run.

    Parameters
    ----------
    out : Path
        The grid's folder.
    runs : iterable of Run
        Those of a plan: only they are collected, in the plan's order and under the
        plan's names. Records of other names are not those of the plan any more.
    """
    records = [
        {**record, **facts_of(run)}
        for run in runs
        if (record := read(out, run.name)) is not None
    ]
    return _frame(records)


def save_table(out: Path, frame: pd.DataFrame) -> Path:
    """Write the table of results as one Parquet file; it appears whole."""
    path = out / TABLE
    out.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        frame.to_parquet(part, index=False)
    return path


def save_scores(path: Path, frame: pd.DataFrame) -> None:
    """Write the scores of all runs as text to keep or to publish, one line each."""
    with written_whole(path) as part:
        frame[list(PUBLISHED)].round(4).to_csv(part, index=False, lineterminator="\n")
