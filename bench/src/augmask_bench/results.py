"""Results: rows and one small record per run, collected into one table.

Generated rows are stored in `samples/<name>.parquet` of the grid's folder before they
are scored, with what is known about their training; the result of a run is a flat JSON
object in `runs/<name>.json`. Files are written atomically, so a grid can be killed at
any moment: a run is pending, trained or completed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from augmask.errors import DataError
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
    **dict.fromkeys(["rows", "columns", "steps", "together"], "float64"),
    **dict.fromkeys(["real", "stopped", "device", "commit", "versions", "date"], "str"),
}
# Columns of a published score file.
PUBLISHED = (
    *("dataset", "mechanism", "ratio", "seed", "method", "status", "reason"),
    *(*METRICS, "mle_real", "mle_synthetic", *SECONDS, "steps", "together", "device"),
    *("commit", "versions", "date"),
)
TABLE = "results.parquet"
RANKS = tuple(
    f"{name}-*.{suffix}"
    for name in ("ranks", "datasets")
    for suffix in ("md", "csv", "tex")
)
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


def _plain_json(value: Any) -> Any:
    """Return a value with None in place of NaN and infinity, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: _plain_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_json(part) for part in value]
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
    text = json.dumps(_plain_json(result), indent=1)
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


# Key of a rows file's metadata.
FACTS = b"augmask_bench"


def store_rows(path: Path, rows: pd.DataFrame, facts: Mapping[str, Any]) -> None:
    """Write generated rows and what is known about their training to one file."""
    table = pa.Table.from_pandas(rows, preserve_index=False)
    plain = json.dumps(_plain_json(facts)).encode()
    table = table.replace_schema_metadata(
        {**(table.schema.metadata or {}), FACTS: plain}
    )
    # Levels become codes. Bytes of numbers compress better grouped by their place.
    floats = [f.name for f in table.schema if pa.types.is_floating(f.type)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        pq.write_table(
            *(table, part),
            compression="zstd",
            use_dictionary=[n for n in table.column_names if n not in floats],
            use_byte_stream_split=floats,
        )


def read_rows(path: Path) -> tuple[pd.DataFrame, RunResult]:
    """Return stored rows and the facts of their training."""
    try:
        table = pq.read_table(path)
        facts = json.loads((table.schema.metadata or {})[FACTS])
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise DataError(
            f"cannot read the rows {path} ({type(error).__name__}); delete the file, "
            "and the run is trained again"
        ) from error
    return table.to_pandas(), facts


def real_file(out: Path, dataset: str, seed: int, real: str) -> Path:
    """Return the file of the complete training rows; `real` is their hash."""
    return out / "real" / f"{dataset}-{seed}-{real}.parquet"


def _is_over(out: Path, run: Run, retry_failed: bool) -> bool:
    """Whether nothing is left to do for a run."""
    result = read(out, run.name)
    if result is None or result["status"] not in FINAL:
        return False
    if result["status"] == "failed":
        return not retry_failed
    return not run.keep or sample_file(out, run).exists()


def pending(out: Path, runs: Iterable[Run], retry_failed: bool = False) -> list[Run]:
    """Return the runs that are neither completed nor failed.

    One that was not available on the machine where it was tried is tried again, and so
    is one whose rows were not kept if the plan now keeps rows.
    """
    return [run for run in runs if not _is_over(out, run, retry_failed)]


def untrained(out: Path, runs: Iterable[Run], retry_failed: bool = False) -> list[Run]:
    """Return the pending runs that have no rows yet, here or on another machine."""
    elsewhere = trained_elsewhere(out)
    return [
        run
        for run in pending(out, runs, retry_failed)
        if run.name not in elsewhere and not sample_file(out, run).exists()
    ]


def unscored(out: Path, runs: Iterable[Run]) -> list[Run]:
    """Return the runs whose rows are stored and have no scores yet."""
    todo = []
    for run in runs:
        result = read(out, run.name)
        done = result is not None and result["status"] == "done"
        if not done and sample_file(out, run).exists():
            todo.append(run)
    return todo


def _elsewhere(out: Path) -> Path:
    return out / "elsewhere.json"


def trained_elsewhere(out: Path) -> set[str]:
    """Return the names of the runs that another machine has rows or results of."""
    try:
        names = json.loads(_elsewhere(out).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return set()
    return {str(name) for name in names} if isinstance(names, list) else set()


def set_trained_elsewhere(out: Path, names: Iterable[str]) -> None:
    """Note which runs another machine has rows or results of."""
    with atomic_write(_elsewhere(out)) as part:
        part.write_text(json.dumps(sorted(names)), encoding="utf-8")


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
    """Write the scores of all runs as CSV, one line per run, with all digits.

    Rounding would make ties, and ranks could not be computed from the file again.
    """
    with atomic_write(path) as part:
        frame[list(PUBLISHED)].to_csv(part, index=False, lineterminator="\n")
