"""Prepare the training on a table in parts: summaries, a sample, shards.

Three steps leave their results in a folder, where a killed fit finds them again:

1. Every part is summarized (levels, extremes, quantiles, missing values) and gives its
   share of a sample of `SAMPLE_ROWS` rows. The schema and the scaling are those of the
   whole table. What needs whole rows is learned from the sample: relations between
   columns, constraints, the model of missingness and the augmenter.
2. Every part is encoded, its missing cells are filled, and it is written as a shard.
3. The network is initialised from the sample and trained on the shards.

Parts are worked on by processes of this machine or by a Dask cluster, which must see
the same files. Neither their number nor their order changes a byte.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from augmask.augmentation import freeze
from augmask.augmentation.completions import CompletionPlan, complete
from augmask.augmentation.shards import (
    PATTERN,
    NumberedPart,
    ShardTask,
    open_shard,
    shard_name,
    write_shard,
)
from augmask.container import read_container, write_container
from augmask.engine import run_parts
from augmask.errors import UsageError, brief_repr
from augmask.files import as_path, atomic_write
from augmask.fitted_state import check_storable
from augmask.job_folder import JobFolder, digest_of
from augmask.missing.model import fit_missing_model
from augmask.packages import library_versions
from augmask.prepare import (
    FitRequest,
    FitSetup,
    Learned,
    build_setup,
    check_learnable,
    choose_networks,
    facts_of,
    learn_constraints_of,
    read_parameters,
    tell_notes,
)
from augmask.presets import AutoChoice
from augmask.progress import Progress, silent
from augmask.rng import stream
from augmask.table.codec import Codec
from augmask.table.frame_kinds import FrameKind
from augmask.table.frames import INFERRED, from_arrow
from augmask.table.holdout import Holdout, partitions_fingerprint, rows_to_hold_out
from augmask.table.infer import declared_settings, infer_schema
from augmask.table.partitions import (
    Part,
    PartitionedTable,
    is_dask,
    is_partitioned,
    partitioned_table,
    write_dask,
)
from augmask.table.schema import Column, Schema
from augmask.table.seen_combinations import with_links, without_links
from augmask.table.summary import (
    ColumnSummary,
    TableSummary,
    complete_column,
    fit_scalers,
    merge,
    summarize,
)
from augmask.table.table import Layout, Table
from augmask.train import parallel
from augmask.train.shards import ShardedData, validation_rows

log = logging.getLogger("augmask")

# As many as augmenters learn from.
SAMPLE_ROWS = 200_000
VALIDATION_ROWS = 4_096
# A table of at most so many cells is read as one, and everything about it is exact.
IN_MEMORY_CELLS = 20_000_000

PREPARED, SAMPLE, VALIDATION = "prepared", "sample.parquet", "validation"
TRAINED = "trained"  # an empty file that says so


# -- the parts, without the rows that are held out ----------------------------------


@dataclass(frozen=True, eq=False)
class _Sampled:
    """A part, the rows that are held out, and the others that go to the sample."""

    part: Part
    held_out: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]


def _summary_and_sample_of(
    sampled: _Sampled, na_values: Mapping[str, Any]
) -> tuple[dict[str, ColumnSummary], pd.DataFrame]:
    """Return the summary of a part and its share of the sample."""
    frame = sampled.part.read()
    sample = frame.iloc[np.setdiff1d(sampled.places, sampled.held_out)]
    if len(sampled.held_out):
        frame = frame.drop(index=sampled.held_out)
    return summarize(frame, na_values), sample.reset_index(drop=True)


def _held_out_places(
    table: PartitionedTable, held_out: Holdout | None, seed: int
) -> list[npt.NDArray[np.int64]]:
    """Return the rows of each part that nothing is learned from."""
    return table.places(
        np.zeros(0, np.int64) if held_out is None else held_out.chosen(seed)
    )


def _in_order(results: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    """Yield results in the order of the parts, whichever is finished first."""
    waiting: dict[int, Any] = {}
    turn = 0
    for i, result in results:
        waiting[i] = result
        while turn in waiting:
            yield waiting.pop(turn)
            turn += 1


def _summary(
    table: PartitionedTable,
    held_out: list[npt.NDArray[np.int64]],
    na_values: Mapping[str, Any],
    seed: int,
    scheduler: str | None,
    progress: Progress,
) -> TableSummary:
    places = table.sample_places(SAMPLE_ROWS, seed, "sample rows")
    tasks = [
        _Sampled(part, away, own)
        for part, away, own in zip(table.parts, held_out, places, strict=True)
    ]
    columns: dict[str, ColumnSummary] = {}
    samples = []
    results = run_parts(
        _summary_and_sample_of, tasks, shared=na_values, scheduler=scheduler
    )
    with closing(results):
        for done, (own, sample) in enumerate(_in_order(results), start=1):
            columns = merge(columns, own) if columns else own
            samples.append(sample)
            progress("read", done, len(tasks), {})
    sample = pd.concat(samples, ignore_index=True)
    sample.attrs[INFERRED] = True
    return TableSummary(columns, sample)


# -- what is learned of the whole ----------------------------------------------------


def _without_fake(column: Column) -> Column:
    """Return a column that gets placeholders in place of fakes.

    A fake must differ from every value, and a part does not know those of the others.
    """
    if column.fake in (None, "nothing"):
        return column
    log.info("column %r gets placeholders: fakes need a table in one file", column.name)
    return replace(column, fake=None, locale=None)


def _schema(
    summary: TableSummary, settings: Mapping[str, Mapping[str, Any]], links: str
) -> Schema:
    """Return the schema of the whole table."""
    keep = links == "keep"
    sample = summary.sample
    inferred = infer_schema(sample, settings, group_codes=keep)
    columns = tuple(
        complete_column(
            column,
            sample[column.label],
            summary.columns[column.name],
            settings.get(column.name, {}),
        )
        for column in inferred
    )
    schema = Schema(tuple(map(_without_fake, columns)))
    return with_links(sample, schema) if keep else without_links(schema)


def _prepare(
    job: JobFolder,
    table: PartitionedTable,
    held_out: list[npt.NDArray[np.int64]],
    request: FitRequest,
    settings: Mapping[str, Mapping[str, Any]],
    scheduler: str | None,
    progress: Progress,
) -> None:
    """Learn schema, scaling and sample of the whole table, and write them down."""
    na_values = {
        name: own["na_values"] for name, own in settings.items() if "na_values" in own
    }
    summary = _summary(table, held_out, na_values, request.seed, scheduler, progress)
    schema = _schema(summary, settings, request.settings.links)
    check_storable(schema)
    expected = request.settings.extremes == "expected"
    codec = Codec(schema, fit_scalers(schema, summary, request.tie_seed, expected))
    complete_table = all(
        own.observed == own.rows or not schema[name].learned
        for name, own in summary.columns.items()
    )
    with atomic_write(job.path / SAMPLE) as part:
        parquet.write_table(pa.Table.from_pandas(summary.sample), part)
    facts = {
        "schema": schema.to_dict(),
        "complete": complete_table,
    }
    write_container(_file(job, PREPARED), PREPARED, facts, codec.arrays())


def _file(job: JobFolder, name: str) -> Path:
    return job.path / f"{name}.safetensors"


def _read_prepared(job: JobFolder) -> tuple[Codec, pd.DataFrame, bool]:
    """Return codec and sample, and whether the table has no missing cell."""
    facts, arrays = read_container(_file(job, PREPARED), PREPARED)
    codec = Codec.from_arrays(Schema.from_dict(facts["schema"]), arrays)
    sample = from_arrow(parquet.read_table(job.path / SAMPLE), str(job.path / SAMPLE))
    sample.attrs[INFERRED] = True
    return codec, sample, bool(facts["complete"])


def _plan(request: FitRequest, complete_table: bool) -> CompletionPlan:
    """Return the plan of completions, "one" where all draws would be equal."""
    if complete_table or not getattr(request.filler, "stochastic", True):
        return CompletionPlan("one")
    return CompletionPlan.parse(request.settings.completions)


# -- the shards ----------------------------------------------------------------------


def _write_shards(
    job: JobFolder,
    table: PartitionedTable,
    held_out: list[npt.NDArray[np.int64]],
    request: FitRequest,
    codec: Codec,
    sample: Table,
    plan: CompletionPlan,
    scheduler: str | None,
    progress: Progress,
) -> None:
    """Fill the parts whose shards are absent, then choose the validation rows."""
    seed, total = request.seed, len(table.parts)
    augmenter = freeze(request.filler, sample, stream(seed, "freeze"), progress)
    # the layout that the augmenter makes, for the processes that fill nothing
    one = CompletionPlan("one")
    completed = complete(copy(augmenter), sample, one, stream(seed, "fill")).table
    absent = [
        NumberedPart(i, part, away)
        for i, (part, away) in enumerate(zip(table.parts, held_out, strict=True))
        if not (job.path / shard_name(i)).exists()
    ]
    task = ShardTask(
        job.path,
        codec,
        augmenter,
        plan,
        seed,
        request.tie_seed,
        request.settings.validation_fraction,
    )
    done = total - len(absent)
    written = run_parts(write_shard, absent, shared=task, scheduler=scheduler)
    with closing(written):
        for _ in written:
            done += 1
            progress("fill", done, total, {})
    shards = [open_shard(job.path / shard_name(i)) for i in range(total)]
    rows = validation_rows(shards, VALIDATION_ROWS)
    facts = {
        "cards": list(completed.layout.cards),
        "reserved": completed.layout.reserved,
    }
    arrays = {
        **rows,
        "sample.num": completed.num,
        "sample.cat": completed.cat,
    }
    write_container(_file(job, VALIDATION), VALIDATION, facts, arrays)


# -- all of it -----------------------------------------------------------------------


def _fingerprint(
    table: PartitionedTable,
    request: FitRequest,
    settings: Mapping[str, Any],
    held_out: int,
) -> str:
    """Identify what the shards depend on, which the network is no part of."""
    own = request.settings
    facts = [
        table.digest,
        settings,
        facts_of(request.augmenter),
        getattr(request.filler, "version", ""),
        [request.seed, own.ties, own.extremes, own.links, own.completions],
        [own.validation_fraction, held_out, SAMPLE_ROWS],
        library_versions("augmask", "lightgbm", "scikit-learn"),
    ]
    return digest_of(facts)


def prepare_fit_parts(
    model: Any,
    table: PartitionedTable,
    work_dir: Path,
    *,
    schema: Any = None,
    constraints: Any = None,
    private_extremes: bool = False,
    holdout: Any = 0,
    single: bool = False,
    scheduler: str | None = None,
    progress: Progress = silent,
) -> FitSetup:
    """Summarize, sample, encode and fill a table in parts, and build the trainers.

    Parameters
    ----------
    model : AugMask
        Its parameters are read; it is not changed.
    table : PartitionedTable
    work_dir : Path
        Where the results of the steps are, and are found again.
    schema, constraints, private_extremes, holdout, scheduler, progress
        As in `AugMask.fit`.
    single : bool
        Whether `ensemble="auto"` must give one member.
    """
    request = read_parameters(model)
    if private_extremes:
        raise UsageError(
            "private_extremes needs a table in one file; fold rare levels and trim "
            "extremes yourself, or fit a sample"
        )
    settings = declared_settings(schema, table.schema.names)
    for name, own in settings.items():
        if own.get("fake", "nothing") != "nothing":
            raise UsageError(
                f"column {name!r}: fakes need a table in one file, because none may "
                "equal a value of another part; declare fake as 'nothing'"
            )
    n = rows_to_hold_out(holdout, len(table), request.preset)
    held_out = None
    if n:
        held_out = Holdout(n / len(table), len(table), n, partitions_fingerprint(table))
        log.info("%s of %s rows are held out", f"{n:,}", f"{len(table):,}")
    away = _held_out_places(table, held_out, request.seed)
    fingerprint = _fingerprint(table, request, settings, n)
    stages = {
        "summary": (f"{PREPARED}.*", 1),
        "shards": (PATTERN, len(table.parts)),
        "training": (TRAINED, 1),
    }
    main = parallel.is_main_process()
    if main:
        job = JobFolder.open(work_dir, "fit", fingerprint, stages)
        (job.path / TRAINED).unlink(missing_ok=True)
        if not _file(job, PREPARED).exists():
            _prepare(job, table, away, request, settings, scheduler, progress)
    parallel.check_same(fingerprint, "all processes must fit the same table")
    job = JobFolder.open(work_dir, "fit", fingerprint, stages)
    codec, frame, complete_table = _read_prepared(job)
    tell_notes(codec.schema)
    sample = codec.encode(frame, request.tie_seed)
    check_learnable(sample)
    request, members = choose_networks(
        model, request, sample, single, progress, AutoChoice()
    )
    learned_constraints = learn_constraints_of(constraints, frame, codec, sample)
    plan = _plan(request, complete_table)
    if main and not _file(job, VALIDATION).exists():
        _write_shards(
            job, table, away, request, codec, sample, plan, scheduler, progress
        )
    parallel.check_same("shards", "the processes are out of step")
    shards = [open_shard(job.path / shard_name(i)) for i in range(len(table.parts))]
    facts, arrays = read_container(_file(job, VALIDATION), VALIDATION)
    layout = Layout(
        sample.layout.num_names,
        sample.layout.cat_names,
        tuple(facts["cards"]),
        bool(facts["reserved"]),
    )
    completed = sample.filled(
        arrays.pop("sample.num"), arrays.pop("sample.cat"), layout
    )
    missing_model = fit_missing_model(
        frame, codec, sample, stream(request.seed, "holes")
    )

    def make_data(shuffle: int) -> ShardedData:
        return ShardedData(
            shards, arrays, layout, plan, model.supervise, shuffle, request.device
        )

    learned = Learned(
        codec,
        sample,
        completed,
        missing_model,
        learned_constraints,
        "",
        None if held_out is None else held_out.to_dict(),
        FrameKind(),
        fingerprint,
    )
    return build_setup(model, request, learned, members, make_data)


@contextmanager
def kept_training(
    work_dir: str | Path | None, fingerprint: str, setup: FitSetup
) -> Iterator[Path | None]:
    """Give a checkpoint in a folder that the user named, and note the end there.

    Without a folder, or with several networks, there is none.
    """
    if work_dir is None:
        yield None
        return
    folder = _folder(work_dir)
    single = len(setup.trainers) == 1
    path = folder / f"training-{fingerprint[:12]}.checkpoint" if single else None
    yield path
    if parallel.is_main_process():
        if path is not None:
            path.unlink(missing_ok=True)
        (folder / TRAINED).touch()


# -- where the table is ---------------------------------------------------------------


@contextmanager
def opened_table(
    data: Any, work_dir: str | Path | None, scheduler: str | None
) -> Iterator[tuple[Any, Path | None]]:
    """Give the table, and the folder to work in if it is worked on in parts.

    A table in parts that is small enough is read as one, unless the caller names a
    folder or a scheduler. Without a name the folder is a temporary one.
    """
    if not is_partitioned(data):
        for name, value in (("work_dir", work_dir), ("scheduler", scheduler)):
            if value is not None:
                raise UsageError(
                    f"{name} is for a table in parts: a folder, a pattern or a list of "
                    f"Parquet files, or a Dask frame; got {brief_repr(data)}"
                )
        yield data, None
        return
    if work_dir is None and parallel.launched_by_torchrun():
        raise UsageError(
            "several processes need a work_dir that all of them see; name a folder"
        )
    with ExitStack() as stack:
        folder = None if work_dir is None else _folder(work_dir)
        if folder is None and (is_dask(data) or scheduler is not None):
            folder = _temporary_folder(stack)
        if is_dask(data):
            assert folder is not None
            table = _written_to_files(data, folder, scheduler)
        else:
            table = partitioned_table(data)
        small = len(table) * len(table.schema) <= IN_MEMORY_CELLS
        if small and work_dir is None and scheduler is None:
            frame = table.read()
            frame.attrs[INFERRED] = True
            yield frame, None
            return
        yield table, folder or _temporary_folder(stack)


def _folder(work_dir: str | Path) -> Path:
    """Return a folder by its whole path, since workers may run in other ones."""
    return as_path(work_dir).expanduser().absolute()


def _temporary_folder(stack: ExitStack) -> Path:
    return Path(
        stack.enter_context(tempfile.TemporaryDirectory(prefix="augmask-")), "fit"
    )


def _written_to_files(
    frame: Any, folder: Path, scheduler: str | None
) -> PartitionedTable:
    """Write a Dask frame as Parquet files beside the folder of the job, once."""
    target = folder.with_name(f"{folder.name}-input")
    done = target / "_complete"
    if not done.exists():
        write_dask(frame, target, scheduler)
        done.touch()
    return partitioned_table(target)
