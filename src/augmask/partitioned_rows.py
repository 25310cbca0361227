"""Rows in many files: partitions that workers draw or impute, each from its own seed.

A partition is drawn by one process with one thread, from a seed that follows from its
number, so its bytes depend neither on the worker nor on how many there are. Files
appear as a whole, and those that a folder lacks are drawn by the same call again.
Workers read the model from a file in the folder, which goes at the end.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from augmask.config import check_int
from augmask.device import one_thread, resolve_device
from augmask.engine import run_parts
from augmask.errors import AugMaskError, UsageError, brief_repr
from augmask.files import as_path, atomic_write, same_file
from augmask.fitted_state import CUSTOM, FittedState, part_name, read_model, write_model
from augmask.job_folder import MANIFEST, JobFolder, digest_of
from augmask.missing.model import MissingModel
from augmask.progress import Progress, silent
from augmask.rng import stream_seed
from augmask.sample.constraints import Predicate
from augmask.sample.generate import (
    adjusted_missing_model,
    check_missing,
    generate,
    is_partial_rows,
)
from augmask.sample.impute import UnknownLevels, impute, warn_of_unknown
from augmask.sample.row_generator import RowGenerator
from augmask.sample.write import SUFFIXES, arrow_types, write_frames, write_table
from augmask.table.codec import write_formats
from augmask.table.partitions import (
    Part,
    PartitionedTable,
    is_dask,
    is_partitioned,
    partitioned_table,
)

Result = TypeVar("Result")

PATTERN = "part-*.parquet"
# Readers of Parquet folders skip names that begin with an underscore.
MODEL = "_model.augmask"
# Where a file of imputed rows says how many of its cells were missing.
FILLED = "augmask.filled"


# -- what workers need ---------------------------------------------------------------


@dataclass(frozen=True)
class _SavedModel:
    """A model file that workers read, and the user's code that it cannot hold."""

    path: str
    device: str
    backbone: Any
    functions: tuple[Callable[[pd.DataFrame], Any], ...]

    @classmethod
    def of(cls, state: FittedState, path: Path, device: str) -> _SavedModel:
        backbone = state.parameters["backbone"]
        custom = part_name(backbone).startswith(CUSTOM)
        functions = tuple(
            each.function for each in state.constraints if isinstance(each, Predicate)
        )
        return cls(str(path), device, backbone if custom else None, functions)

    def read(self) -> FittedState:
        return read_model(self.path, self.backbone, self.functions)


def _source(state: FittedState, device: str, seed: int, first: int = 0) -> RowGenerator:
    """Return the generator of the rows of a partition."""
    place = resolve_device(device)
    backbone = state.backbone.to(place)
    return RowGenerator(backbone, state.codec, state.settings, place, seed, first)


# -- the job --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """Files of rows in a folder that also holds the model, and who works on them."""

    folder: Path
    model: _SavedModel
    scheduler: str | None
    n_jobs: int | None

    def file(self, i: int) -> Path:
        return self.folder / f"part-{i:05d}.parquet"

    def run(
        self,
        function: Callable[..., Result],
        parts: Sequence[Any],
        plan: Any,
        rows: Sequence[int],
        report: Callable[[int, int, Result | None], None],
    ) -> None:
        """Run the parts whose files are absent; report the rows of all files so far."""
        absent = [i for i in range(len(parts)) if not self.file(i).exists()]
        total = sum(rows)
        done = total - sum(rows[i] for i in absent)
        if done:
            report(done, total, None)
        results = run_parts(
            function,
            [parts[i] for i in absent],
            shared=plan,
            scheduler=self.scheduler,
            n_jobs=self.n_jobs,
        )
        with closing(results):
            for place, result in results:
                done += rows[absent[place]]
                report(done, total, result)


@contextmanager
def _opened_job(
    path: str | Path,
    name: str,
    state: FittedState,
    device: str,
    facts: Sequence[Any],
    partitions: int,
    scheduler: str | None,
    n_jobs: int | None,
) -> Iterator[_Job]:
    """Context manager: the job in its folder, with the model while it runs."""
    path = as_path(path).expanduser().absolute()
    made = not path.exists()
    with tempfile.TemporaryDirectory(prefix="augmask-") as scratch:
        own = Path(scratch, MODEL)
        write_model(own, state)
        digest = hashlib.sha256(own.read_bytes()).hexdigest()
        folder = JobFolder.open(
            path,
            name,
            digest_of([digest, device, *facts]),
            {"rows": (PATTERN, partitions)},
        )
        model = folder.path / MODEL
        with atomic_write(model) as part:
            shutil.copyfile(own, part)
    try:
        saved = _SavedModel.of(state, model, device)
        yield _Job(folder.path, saved, scheduler, n_jobs)
    finally:
        model.unlink(missing_ok=True)
        if not any(path.glob(PATTERN)):
            # nothing to resume: the folder is free for another job
            (path / MANIFEST).unlink(missing_ok=True)
            if made:
                with suppress(OSError):
                    path.rmdir()


def check_folder(path: str | Path) -> Path:
    """Return `path` unless its name is that of a file; call it before long work."""
    path = as_path(path)
    if path.name.lower().endswith(SUFFIXES):
        raise UsageError(
            f"partitions are written to a folder of Parquet files, got {path.name}; "
            "name a folder"
        )
    return path


def _jobs(n_jobs: int | None, scheduler: str | None, device: str) -> int | None:
    """Return the number of processes here: one where all would share a GPU."""
    if n_jobs is not None:
        n_jobs = check_int("n_jobs", n_jobs, 1)
    if scheduler is not None:
        if not isinstance(scheduler, str):
            raise UsageError(
                "scheduler must be the address of a Dask scheduler, such as "
                f"tcp://10.0.0.5:8786, got {brief_repr(scheduler)}"
            )
        if n_jobs is not None:
            raise UsageError(
                "n_jobs is the number of processes of this machine, and a scheduler "
                "has workers of its own; leave out one of the two"
            )
        return None
    return 1 if n_jobs is None and resolve_device(device).type != "cpu" else n_jobs


# -- drawing ---------------------------------------------------------------------------


class _DrawnPart(NamedTuple):
    path: str
    first: int
    rows: int
    seed: int


class _DrawPlan(NamedTuple):
    model: _SavedModel
    where: Any
    missing: MissingModel | None


def _missing_model_getter(
    model: MissingModel | None,
) -> Callable[[], MissingModel] | None:
    return None if model is None else lambda: model


def _draw(part: _DrawnPart, plan: _DrawPlan) -> float | None:
    """Write a partition; return the share of rows that satisfy the condition."""
    rate = None

    def note(_: str, __: int, ___: int, numbers: Mapping[str, float]) -> None:
        nonlocal rate
        rate = numbers.get("rate", rate)

    with one_thread():
        state = plan.model.read()
        source = _source(state, plan.model.device, part.seed, part.first)
        missing = _missing_model_getter(plan.missing)
        frames = generate(
            source, part.rows, plan.where, state.constraints, note, missing
        )
        write_frames(
            frames,
            part.path,
            lambda frame: write_formats(frame, state.codec.schema),
            types=arrow_types(state.codec.schema),
        )
    return rate


def _facts_of_where(where: Any) -> Any:
    """Return a condition as JSON holds it, the same for the same condition.

    Examples
    --------
    >>> _facts_of_where({"sex": {"f", "m"}, "age": (30, None)})
    [['age', '(30, None)'], ['sex', ["'f'", "'m'"]]]
    """
    if not isinstance(where, Mapping):
        return where
    several = list | set | frozenset | np.ndarray | pd.Index | pd.Series
    return sorted(
        [
            str(label),
            sorted(map(repr, value)) if isinstance(value, several) else repr(value),
        ]
        for label, value in where.items()
    )


def sample_partitions(
    state: FittedState,
    path: str | Path,
    n: int | None,
    partitions: int,
    *,
    device: str,
    where: Any,
    missing: Any,
    seed: int,
    scheduler: str | None,
    n_jobs: int | None,
    progress: Progress,
) -> int:
    """Write `n` rows to a folder of Parquet files; see `AugMask.sample_to`."""
    check_folder(path)
    k = check_int("partitions", partitions, 1)
    check_missing(missing)
    if is_partial_rows(where):
        raise UsageError(
            "partial rows are completed in one file; leave out partitions, or impute "
            "the table with impute_to"
        )
    n = check_int("n", n, 1)
    if k > n:
        raise UsageError(
            f"partitions must be at most the number of rows, {n:,}, got {k:,}"
        )
    n_jobs = _jobs(n_jobs, scheduler, device)
    learned = state.missing_model if missing is not None else None
    # refuses a condition that cannot be read, before any row is drawn
    generate(
        _source(state, device, seed),
        n,
        where,
        state.constraints,
        silent,
        _missing_model_getter(learned),
    )
    facts = [n, k, seed, _facts_of_where(where), missing]
    with _opened_job(path, "sample", state, device, facts, k, scheduler, n_jobs) as job:
        ends = [n * i // k for i in range(k + 1)]
        parts = [
            _DrawnPart(
                str(job.file(i)),
                ends[i],
                ends[i + 1] - ends[i],
                stream_seed(seed, "partition", i),
            )
            for i in range(k)
        ]
        if learned is not None:
            own = int(state.parameters["seed"])
            with one_thread():
                learned = adjusted_missing_model(
                    _source(state, device, own), state.constraints, learned
                )
        rates: list[float] = []

        def report(done: int, total: int, rate: float | None) -> None:
            if rate is not None:
                rates.append(rate)
            numbers = {"rate": sum(rates) / len(rates)} if rates else {}
            progress("sample", done, total, numbers)

        plan = _DrawPlan(job.model, where, learned)
        job.run(_draw, parts, plan, [part.rows for part in parts], report)
    return n


# -- imputing --------------------------------------------------------------------------


class ImputedRows(NamedTuple):
    """How many rows were written, and how many of their cells had been missing."""

    rows: int
    filled: int


class _ImputedPart(NamedTuple):
    path: str
    part: Part
    seed: int


class _ImputePlan(NamedTuple):
    model: _SavedModel
    n_draws: int


def _without_levels(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with text where `schema` has it: levels differ between parts."""
    for i, name in enumerate(table.column_names):
        if pa.types.is_dictionary(table.column(i).type) and name in schema.names:
            table = table.set_column(i, name, table[name].cast(schema.field(name).type))
    return table


def _impute(part: _ImputedPart, plan: _ImputePlan) -> UnknownLevels:
    """Write a completed part; return the levels that were not learned."""
    unknown: UnknownLevels = {}
    with one_thread():
        state = plan.model.read()
        source = _source(state, plan.model.device, part.seed)
        try:
            completed = impute(
                part.part.arrow(), source, plan.n_draws, tell=unknown.update
            )
        except AugMaskError as error:
            raise type(error)(f"{part.part.name}: {error}") from error
    table = completed[0] if plan.n_draws == 1 else completed.long()
    filled = {FILLED: str(completed.n_imputed)}
    table = _without_levels(table, part.part.schema)
    write_table(table.replace_schema_metadata(filled), part.path)
    return unknown


def _table_of(data: Any) -> PartitionedTable:
    """Return the table of many files that a user passed, or raise."""
    if is_partitioned(data) and not is_dask(data):
        return partitioned_table(data)
    if isinstance(data, str | Path) and Path(data).suffix == ".parquet":
        return partitioned_table([data])
    raise UsageError(
        "impute_to reads a folder, a pattern or a list of Parquet files, got "
        f"{brief_repr(data)}; pass other tables to impute"
    )


def check_outside(path: Path, table: PartitionedTable) -> None:
    """Raise if files of a table lie in the folder to write to, or it among them."""
    for folder in {
        Path(piece.path).parent for part in table.parts for piece in part.pieces
    }:
        if same_file(path, folder) or any(same_file(path, up) for up in folder.parents):
            raise UsageError(
                f"the output must not be the folder of the input, {path} holds the "
                "table; name another folder"
            )
    source = Path(table.source).expanduser()
    if source.is_dir() and any(same_file(source, up) for up in path.absolute().parents):
        raise UsageError(
            f"the output must not lie in the folder of the input, {path} is in "
            f"{source}; name another folder"
        )


def impute_partitions(
    state: FittedState,
    data: Any,
    path: str | Path,
    *,
    n_draws: int,
    device: str,
    seed: int,
    scheduler: str | None,
    n_jobs: int | None,
    progress: Progress,
) -> ImputedRows:
    """Write a completed table of many files; see `AugMask.impute_to`."""
    path = check_folder(path)
    n_draws = check_int("n_draws", n_draws, 1)
    n_jobs = _jobs(n_jobs, scheduler, device)
    table = _table_of(data)
    check_outside(path.expanduser(), table)
    k = len(table.parts)
    facts = [table.digest, k, seed, n_draws]
    with _opened_job(path, "impute", state, device, facts, k, scheduler, n_jobs) as job:
        parts = [
            _ImputedPart(str(job.file(i)), part, stream_seed(seed, "partition", i))
            for i, part in enumerate(table.parts)
        ]
        unknown: UnknownLevels = {}

        def report(done: int, total: int, found: UnknownLevels | None) -> None:
            for name, levels in (found or {}).items():
                known = unknown.setdefault(name, [])
                known += [level for level in levels if level not in known]
            progress("impute", done, total, {})

        plan = _ImputePlan(job.model, n_draws)
        job.run(_impute, parts, plan, [part.rows for part in table.parts], report)
        warn_of_unknown(unknown)
        footers = [pq.read_metadata(job.file(i)) for i in range(k)]
    return ImputedRows(
        sum(footer.num_rows for footer in footers),
        sum(int(footer.metadata[FILLED.encode()]) for footer in footers),
    )
