"""Shards: the parts of a table, encoded and completed, as arrays on disk.

A shard is what one part of a large table becomes before training: numbers, codes, one
byte of flags per cell, and the further completions of its missing cells. It is a
container of plain arrays, of which any run of rows can be read alone. Which draws it
holds depends on the number of the part and the seed only, not on the process that made
it, so that any number of workers gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from augmask.augmentation import Augmenter
from augmask.augmentation.completions import CompletionPlan, Completions, complete
from augmask.container import read_metadata, write_container
from augmask.errors import DataError
from augmask.rng import stream, stream_seed
from augmask.table.table import BoolArray, Layout

if TYPE_CHECKING:
    # training reads shards, and loads no pandas
    from augmask.table.codec import Codec
    from augmask.table.partitions import Part

Arrays = dict[str, npt.NDArray[Any]]

# Flags of a cell, in one byte.
OBSERVED, HELD_OUT = 1, 2
# Rows per chunk, where random numbers for a whole table would exceed the table itself.
CHUNK = 65_536
KIND = "shard"
PATTERN = "shard-*.safetensors"


def shard_name(i: int) -> str:
    """Return the file name of the shard of part `i`."""
    return f"shard-{i:06d}.safetensors"


# -- the arrays ----------------------------------------------------------------------


def choose_held_out_cells(
    observed: BoolArray, fraction: float, rng: np.random.Generator
) -> BoolArray:
    """Choose the observed cells that are left out of the loss, for validation.

    They are chosen cell by cell, so every column is validated and no row is lost.
    """
    held_out = np.zeros_like(observed)
    if fraction == 0:
        return held_out
    for start in range(0, len(observed), CHUNK):
        chunk = observed[start : start + CHUNK]
        held_out[start : start + CHUNK] = chunk & (rng.random(chunk.shape) < fraction)
    return held_out


def _fill_offsets(observed: BoolArray) -> npt.NDArray[np.integer]:
    """Return the number of missing values before each row."""
    missing = observed.shape[1] - np.count_nonzero(observed, axis=1)
    offsets: npt.NDArray[np.integer] = np.cumsum(missing) - missing
    fits = not len(offsets) or offsets[-1] < 2**31
    return offsets.astype(np.int32) if fits else offsets


def training_arrays(completions: Completions, held_out: BoolArray) -> Arrays:
    """Return the arrays that batches are gathered from.

    `flags` says of each cell whether it is observed and whether it is held out. With
    several completions, row b's imputed values begin at `num_offset[b]` in `num_fill`.
    """
    table = completions.table
    flags = table.observed.astype(np.uint8) * OBSERVED
    flags[held_out] |= HELD_OUT
    arrays = {
        "num": table.num.astype(np.float32, copy=False),
        "cat": table.cat,
        "flags": flags,
    }
    if completions.n_draws > 1:
        arrays |= {
            "num_offset": _fill_offsets(table.num_observed),
            "cat_offset": _fill_offsets(table.cat_observed),
            "num_fill": completions.num_fill,
            "cat_fill": completions.cat_fill,
        }
    return arrays


# -- writing -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ShardTask:
    """What every part needs to become a shard.

    Parameters
    ----------
    folder : Path
    codec : Codec
    augmenter : Augmenter
        A frozen one.
    plan : CompletionPlan
        One completion for an augmenter that is not stochastic.
    seed : int
    tie_seed : int, optional
        Of dequantized ties.
    validation_fraction : float
    """

    folder: Path
    codec: Codec
    augmenter: Augmenter
    plan: CompletionPlan
    seed: int
    tie_seed: int | None
    validation_fraction: float


@dataclass(frozen=True, eq=False)
class NumberedPart:
    """A part, its number, and which of its rows are held out of the whole fit."""

    number: int
    part: Part
    held_out: npt.NDArray[np.int64]


def _code_dtype(layout: Layout) -> type[np.signedinteger] | type[np.unsignedinteger]:
    most = max(layout.cards, default=0)
    return np.uint8 if most <= 2**8 else np.int16 if most <= 2**15 else np.int32


def write_shard(numbered: NumberedPart, task: ShardTask) -> int:
    """Read, encode and complete a part, and write its shard; return its rows."""
    i = numbered.number
    frame = numbered.part.read()
    if len(numbered.held_out):
        frame = frame.drop(index=numbered.held_out).reset_index(drop=True)
    ties = None if task.tie_seed is None else stream_seed(task.tie_seed, "part", i)
    table = task.codec.encode(frame, ties)
    del frame
    completions = complete(
        task.augmenter, table, task.plan, stream(task.seed, "fill", i)
    )
    if completions.n_draws < task.plan.n_draws:
        # nothing is missing here, and the other parts have several completions
        k = task.plan.n_draws
        fills = completions.num_fill[[0] * k], completions.cat_fill[[0] * k]
        completions = Completions(completions.table, *fills, task.plan)
    held_out = choose_held_out_cells(
        table.observed, task.validation_fraction, stream(task.seed, "hidden", i)
    )
    arrays = training_arrays(completions, held_out)
    codes = _code_dtype(completions.table.layout)
    for name in {"cat", "cat_fill"} & arrays.keys():
        arrays[name] = arrays[name].astype(codes)
    write_container(task.folder / shard_name(i), KIND, {"rows": len(table)}, arrays)
    return len(table)


# -- reading -------------------------------------------------------------------------


@dataclass(frozen=True)
class Shard:
    """A shard on disk.

    Parameters
    ----------
    path : Path
    rows : int
    """

    path: Path
    rows: int

    def read(self, runs: Iterable[tuple[int, int]]) -> Arrays:
        """Return runs of rows, `(first, end)` each, one after the other.

        The file is mapped into memory meanwhile only.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path, "np") as file:
                views = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
                return joined([self._run(views, *run) for run in runs])
        except (SafetensorError, OSError, KeyError) as error:
            raise DataError(
                f"{self.path} is damaged or gone: {error}; remove it and start again: "
                "it will be made again"
            ) from error

    def _run(self, views: Mapping[str, Any], first: int, end: int) -> Arrays:
        arrays = {name: views[name][first:end] for name in ("num", "cat", "flags")}
        if "num_fill" not in views:
            return arrays
        missing = (arrays["flags"] & OBSERVED) == 0
        n_num = arrays["num"].shape[1]
        for kind, own in (("num", missing[:, :n_num]), ("cat", missing[:, n_num:])):
            offset = views[f"{kind}_offset"][first:end].astype(np.int64)
            start = int(offset[0]) if len(offset) else 0
            count, stored = int(own.sum()), views[f"{kind}_fill"]
            fill = stored[:, start : start + count] if count else _nothing(stored)
            arrays |= {f"{kind}_offset": offset - start, f"{kind}_fill": fill}
        return arrays


def _nothing(stored: Any) -> npt.NDArray[Any]:
    """Return no columns of a stored array: a slice past its end is an error."""
    return np.zeros((stored.get_shape()[0], 0), stored[:0].dtype)


def joined(runs: Sequence[Arrays]) -> Arrays:
    """Return the arrays of several runs of rows as those of one."""
    whole: Arrays = {}
    for name in runs[0]:
        if name.endswith("_offset"):
            fills = [run[name.replace("offset", "fill")].shape[1] for run in runs]
            starts = np.cumsum([0, *fills[:-1]])
            parts = [run[name] + s for run, s in zip(runs, starts, strict=True)]
            whole[name] = np.concatenate(parts)
        else:
            axis = 1 if name.endswith("_fill") else 0
            whole[name] = np.concatenate([run[name] for run in runs], axis=axis)
    return whole


def open_shard(path: Path) -> Shard:
    """Return a shard, whose size is read and not its rows."""
    return Shard(path, int(read_metadata(path, KIND)["rows"]))
