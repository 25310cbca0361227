"""From a table and the parameters of a model to trainers that are ready to run."""

from __future__ import annotations

import dataclasses
import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from augmask.augmentation import DEFAULT_AUGMENTER, Augmenter, resolve_augmenter
from augmask.augmentation.completions import CompletionPlan, complete
from augmask.augmentation.shards import choose_held_out_cells
from augmask.config import SUPERVISE, Settings, check_int
from augmask.device import resolve_device
from augmask.diffusion import build_members, check_sampler, keywords_of
from augmask.diffusion.base import init_from_data
from augmask.errors import (
    AugMaskWarning,
    DataError,
    UsageError,
    brief_repr,
)
from augmask.fitted_state import CUSTOM, FittedState, check_storable, part_name
from augmask.job_folder import digest_of
from augmask.missing.model import MissingModel, fit_missing_model
from augmask.presets import (
    MOST_STARTED,
    AutoChoice,
    choose_for_size,
    choose_for_width,
    resolve_preset,
)
from augmask.progress import Progress, headline, silent
from augmask.rng import stream, stream_seed
from augmask.sample.constraints import Constraint, learn_constraints, read_constraints
from augmask.table.codec import Codec
from augmask.table.fakes import with_fakes
from augmask.table.frame_kinds import FrameKind, collected
from augmask.table.frames import read_frame
from augmask.table.holdout import Holdout, rows_to_hold_out
from augmask.table.infer import infer_schema, missing_mask
from augmask.table.notes import informative_notes
from augmask.table.private import anonymize_identifiers, suppress_rare_values
from augmask.table.schema import Schema
from augmask.table.seen_combinations import with_links, without_links
from augmask.table.table import Table
from augmask.train import parallel
from augmask.train.data import TrainingData, complete_once
from augmask.train.shards import ShardedData
from augmask.train.trainer import Trainer
from augmask.validation import ValueSpec

log = logging.getLogger("augmask")

FEWEST_ROWS = 10
MOST_MINUTES = 10**9


class FitSetup(NamedTuple):
    """A model that only lacks training, its encoded table, a trainer per member."""

    state: FittedState
    table: Table
    trainers: tuple[Trainer, ...]
    job: str = ""  # of a table in parts: which shards it is trained on

    @property
    def trainer(self) -> Trainer:
        """The trainer of the first member."""
        return self.trainers[0]


class TimeBudget:
    """The wall-clock time of a call of `fit`, which starts now.

    Parameters
    ----------
    max_minutes : float, optional
        None for no limit.
    """

    def __init__(self, max_minutes: float | None) -> None:
        if max_minutes is not None and not (
            isinstance(max_minutes, int | float | np.number)
            and 0 < max_minutes <= MOST_MINUTES
        ):
            raise UsageError(
                f"max_minutes must be above 0 and at most {MOST_MINUTES:,}, got "
                f"{brief_repr(max_minutes)}"
            )
        self.max_minutes = max_minutes
        self._start = time.monotonic()

    def seconds_left(self) -> float | None:
        """Return what is left for training, or None; raise if nothing is."""
        if self.max_minutes is None:
            return None
        elapsed = time.monotonic() - self._start
        seconds = parallel.broadcast_value(60 * self.max_minutes - elapsed)
        if seconds <= 0:
            raise self.used_up("before training began")
        return seconds

    def used_up(self, when: str) -> UsageError:
        """Return the error about a budget that is too small."""
        return UsageError(
            f"max_minutes={self.max_minutes} was used up {when}; give more, or choose "
            "a faster augmenter"
        )


def fingerprint(parts: Sequence[Any], settings: Settings, table: Table) -> str:
    """Return a digest of a run: two runs with the same one give the same result.

    Parameters
    ----------
    parts : sequence
        Seeds, names, backbones and augmenters.
    settings : Settings
    table : Table
    """
    facts = [[facts_of(part) for part in parts], dataclasses.asdict(settings)]
    return digest_of(facts, (table.num, table.cat, table.observed))


def facts_of(part: Any) -> list[Any]:
    """Return what distinguishes one backbone, augmenter or seed from another.

    Not its repr, which by default holds an address that no second process has.
    """
    if isinstance(part, str | int):
        return [part]
    plain = (str, int, float, bool, type(None))
    attributes = {} if isinstance(part, type) else getattr(part, "__dict__", {})
    return [
        part_name(part),
        getattr(part, "__module__", ""),
        sorted((k, v) for k, v in attributes.items() if isinstance(v, plain)),
    ]


def is_auto(value: Any) -> bool:
    """Whether a parameter is "auto"; arrays, for one, cannot be compared with text."""
    return isinstance(value, str) and value == "auto"


def _check_parameters(model: Any) -> None:
    """Raise on parameters of the wrong type, before the table is read."""
    ValueSpec(str, SUPERVISE).checked("supervise", model.supervise)
    for name in ("preset", "device"):
        ValueSpec(str).checked(name, getattr(model, name))
    if model.options is not None and not isinstance(model.options, Mapping):
        raise UsageError(
            "options must map names of settings to values, got "
            f"{brief_repr(model.options)}"
        )
    if not is_auto(model.ensemble) and (
        check_int("ensemble", model.ensemble, 1) > 1 and parallel.launched_by_torchrun()
    ):
        raise UsageError(
            "the members of an ensemble share one device; start without torchrun"
        )


def _resolve_settings(model: Any, device: torch.device) -> tuple[str, Settings]:
    """Return the name of the preset and the settings that the model asks for."""
    name, settings, reason = resolve_preset(
        model.preset,
        device.type,
        model.backbone if isinstance(model.backbone, str) else None,
        model.options,
        keywords_of(model.backbone),
    )
    check_sampler(
        model.backbone, settings.sampling_steps, settings.solver, **settings.network
    )
    log.info("preset %s (%s) on %s", name, reason, device)
    return name, settings


def _hold_out(
    frame: pd.DataFrame, holdout: Any, preset: str, seed: int
) -> tuple[pd.DataFrame, dict[str, Any] | None]:
    """Return the rows to learn from, and which others are held out."""
    n = rows_to_hold_out(holdout, len(frame), preset)
    if not n:
        return frame, None
    held_out = Holdout.of(frame, n)
    log.info(
        "%s of %s rows are held out to measure privacy and utility; holdout=0 learns "
        "from all",
        f"{n:,}",
        f"{len(frame):,}",
    )
    return held_out.split(frame, seed)[0], held_out.to_dict()


def _resolve_schema(
    frame: pd.DataFrame, schema: Any, links: str, private_extremes: bool, seed: int
) -> tuple[pd.DataFrame, Schema]:
    """Return the schema, and the frame without the extremes that stay private."""
    keep = links == "keep"
    inferred = infer_schema(frame, schema, group_codes=keep)
    if private_extremes:
        frame = suppress_rare_values(frame, inferred)
        inferred = anonymize_identifiers(infer_schema(frame, schema, group_codes=keep))
    inferred = with_fakes(frame, inferred, seed)
    if keep:
        return frame, with_links(frame, inferred)
    return frame, without_links(inferred)


def check_learnable(table: Table) -> None:
    """Raise if there is nothing to learn from."""
    if len(table) < FEWEST_ROWS:
        raise DataError(
            f"a table needs at least {FEWEST_ROWS} rows to learn from, got {len(table)}"
        )
    if table.layout.n_features == 0:
        raise DataError(
            "no column can be learned: all are constant, empty or identifiers; declare "
            "the kind of an identifier in the schema to learn it"
        )


def _coordinates(table: Table) -> int:
    """Return the number of numbers, and one less than the levels of each category."""
    layout = table.layout
    return layout.n_num + sum(layout.cards) - layout.n_cat


def _adapt_to_width(model: Any, table: Table, settings: Settings) -> Settings:
    """Return settings whose memory a very wide table does not exceed."""
    width = _coordinates(table)
    changes = choose_for_width(width, settings, model.options or ())
    if changes:
        warnings.warn(
            f"the table has {width:,} numbers and levels, and beyond {MOST_STARTED:,} "
            "the network does not start from their correlations, so dependence between "
            "columns may come out weaker; --set precondition=table starts from them "
            "and may take tens of gigabytes",
            AugMaskWarning,
            stacklevel=5,
        )
    return settings.replace(changes, keywords_of(model.backbone))


def _adapt_to_size(model: Any, table: Table, device: torch.device) -> AutoChoice:
    """Return what preset `auto` changes for the size of the table."""
    if model.preset != "auto":
        return AutoChoice()
    choice = choose_for_size(
        len(table),
        int(table.observed.sum()),
        _coordinates(table),
        device.type,
        model.backbone if isinstance(model.backbone, str) else None,
        model.options or (),
    )
    if choice.reason:
        log.info("auto: %s", choice.reason)
    if choice.warning:
        warnings.warn(choice.warning, AugMaskWarning, stacklevel=4)
    return choice


def learn_constraints_of(
    constraints: Any, frame: pd.DataFrame, codec: Codec, table: Table
) -> tuple[Constraint, ...]:
    """Return the constraints, checked on the observed cells of the table."""
    parsed = read_constraints(constraints, codec.schema)
    if not parsed:
        return ()
    rows = codec.decode(table.num, table.cat, np.random.default_rng(0), derive=False)
    named = frame.rename(columns=str)[list(codec.schema.names)]
    return learn_constraints(
        parsed, rows, ~missing_mask(named, codec.schema).to_numpy()
    )


def choice_text(
    preset: str, backbone: str, steps: int, augmenter: str, members: int
) -> str:
    """Return in one line what a fit uses.

    Examples
    --------
    >>> choice_text("fast", "cdtd", 4000, "lgbm-s", 1)
    'preset fast: cdtd, 4,000 steps, missing values filled by lgbm-s'
    >>> choice_text("fast", "custom:Net", 600, "ecdf", 4)
    'preset fast: 4 networks Net, 600 steps each, missing values filled by ecdf'
    """
    network, filler = (name.removeprefix(CUSTOM) for name in (backbone, augmenter))
    what = f"{network}, {steps:,} steps"
    if members > 1:
        what = f"{members} networks {network}, {steps:,} steps each"
    return f"preset {preset}: {what}, missing values filled by {filler}"


class FitRequest(NamedTuple):
    """What the parameters of a model ask for, known before the table is read."""

    seed: int
    device: torch.device
    preset: str
    settings: Settings
    augmenter: str | Augmenter
    filler: Augmenter

    @property
    def tie_seed(self) -> int | None:
        """The seed of dequantized ties."""
        return self.seed if self.settings.ties == "dequantize" else None


def read_parameters(model: Any) -> FitRequest:
    """Check the parameters of a model and resolve its names.

    A wrong one is an error before the table is read.
    """
    seed = check_int("seed", model.seed, 0)
    _check_parameters(model)
    device = parallel.local_device(resolve_device(model.device))
    preset, settings = _resolve_settings(model, device)
    augmenter = DEFAULT_AUGMENTER if is_auto(model.augmenter) else model.augmenter
    filler = resolve_augmenter(augmenter)
    return FitRequest(seed, device, preset, settings, augmenter, filler)


def tell_notes(schema: Schema, stacklevel: int = 4) -> None:
    """Warn of what the user should know about a schema."""
    informative = informative_notes(schema)
    for note in schema.notes():
        # nothing to act on: the relation is kept, and `inspect` shows it
        if note in informative:
            log.info("%s", note)
        else:
            warnings.warn(note, AugMaskWarning, stacklevel=stacklevel)


def choose_networks(
    model: Any,
    request: FitRequest,
    table: Table,
    single: bool,
    progress: Progress,
    choice: AutoChoice,
) -> tuple[FitRequest, int]:
    """Return the request with settings that fit the table, and how many to train.

    The choice is logged and shown in one line.
    """
    settings = request.settings.replace(choice.settings, keywords_of(model.backbone))
    settings = _adapt_to_width(model, table, settings)
    if not is_auto(model.ensemble):
        members = check_int("ensemble", model.ensemble, 1)
    else:
        alone = single or parallel.launched_by_torchrun()
        members = 1 if alone else choice.ensemble
    chosen = choice_text(
        request.preset,
        part_name(model.backbone),
        settings.steps,
        part_name(request.augmenter),
        members,
    )
    log.info("%s", chosen)
    headline(progress, chosen)
    return request._replace(settings=settings), members


class Learned(NamedTuple):
    """What is known of a table when the networks are built.

    `table` is encoded, `completed` is the same with its missing cells filled; of a
    table in parts both are a sample of its rows.
    """

    codec: Codec
    table: Table
    completed: Table
    missing_model: MissingModel
    constraints: tuple[Constraint, ...]
    chosen: str
    held_out: dict[str, Any] | None
    frame_kind: FrameKind
    job: str = ""


def build_setup(
    model: Any,
    request: FitRequest,
    learned: Learned,
    members: int,
    make_data: Callable[[int], TrainingData | ShardedData],
) -> FitSetup:
    """Build the networks and their trainers.

    Parameters
    ----------
    model : AugMask
    request : FitRequest
    learned : Learned
    members : int
        Number of networks.
    make_data : callable
        Returns the training data for the seed of a shuffle.
    """
    seed, settings, device = request.seed, request.settings, request.device
    layout = learned.completed.layout
    # the first member is the model that would be trained without others
    seeds = [seed] + [stream_seed(seed, "member", i) for i in range(1, members)]
    networks, backbone = build_members(
        model.backbone,
        layout,
        [stream_seed(each, "init") for each in seeds],
        **settings.network,
    )
    # with the true mask, whatever is supervised: strategies differ in nothing else
    for network in networks:
        init_from_data(network, learned.completed)
    backbone.to(device)
    # a module that the caller has built may start from any weights
    parallel.broadcast(backbone.state_dict().values())
    trainers = [
        Trainer(
            network, make_data(stream_seed(each, "shuffle")), settings, each, device
        )
        for network, each in zip(networks, seeds, strict=True)
    ]
    state = FittedState(
        parameters=model.get_params(deep=False),
        preset=request.preset,
        settings=settings,
        augmenter=request.augmenter,
        codec=learned.codec,
        layout=layout,
        backbone=backbone,
        missing_model=learned.missing_model,
        constraints=learned.constraints,
        training={"chosen": learned.chosen, "holdout": learned.held_out},
        frame_kind=learned.frame_kind,
    )
    return FitSetup(state, learned.table, tuple(trainers), learned.job)


def prepare_fit(
    model: Any,
    data: Any,
    *,
    schema: Any = None,
    constraints: Any = None,
    private_extremes: bool = False,
    holdout: Any = 0,
    single: bool = False,
    progress: Progress = silent,
) -> FitSetup:
    """Read, encode and complete the table, and build networks and trainers.

    Parameters
    ----------
    model : AugMask
        Its parameters are read; it is not changed.
    data, schema, constraints, private_extremes, holdout, progress
        As in `AugMask.fit`.
    single : bool
        Whether `ensemble="auto"` must give one member.
    """
    request = read_parameters(model)
    seed, device, settings = request.seed, request.device, request.settings
    data = collected(data)
    frame_kind = FrameKind.of(data)
    # first of all, so that nothing is learned from them: no level and no extreme
    frame, held_out = _hold_out(read_frame(data), holdout, request.preset, seed)
    frame, resolved = _resolve_schema(
        frame, schema, settings.links, private_extremes, seed
    )
    tell_notes(resolved)
    tie_seed = request.tie_seed
    expected = settings.extremes == "expected"
    codec = Codec.fit(frame, resolved, tie_seed, expected)
    table = codec.encode(frame, tie_seed)
    check_learnable(table)
    choice = _adapt_to_size(model, table, device)
    request, members = choose_networks(model, request, table, single, progress, choice)
    settings = request.settings
    if not expected and settings.extremes == "expected":
        # a small table, scaled once more
        codec = Codec.fit(frame, resolved, tie_seed, expected_extremes=True)
        table = codec.encode(frame, tie_seed)
    learned_constraints = learn_constraints_of(constraints, frame, codec, table)
    check_storable(codec.schema)
    if parallel.world_size() > 1:
        parallel.check_same(
            fingerprint([seed, device.type], settings, table),
            "all processes must fit the same table with the same settings and "
            "seed; start without torchrun to fit apart",
        )

    missing_model = fit_missing_model(frame, codec, table, stream(seed, "holes"))
    # the frame is the largest object, and the table holds all that is needed of it
    del frame, data
    pa.default_memory_pool().release_unused()
    plan = CompletionPlan.parse(settings.completions)
    completions = complete_once(
        lambda: complete(request.filler, table, plan, stream(seed, "fill"), progress),
        table,
        plan,
    )
    hidden = choose_held_out_cells(
        table.observed, settings.validation_fraction, stream(seed, "hidden")
    )
    device_bytes = settings.max_device_gib * 2**30 / members

    def make_data(shuffle: int) -> TrainingData:
        return TrainingData(
            completions, model.supervise, hidden, shuffle, device, device_bytes
        )

    learned = Learned(
        codec,
        table,
        completions.table,
        missing_model,
        learned_constraints,
        choice.reason,
        held_out,
        frame_kind,
    )
    return build_setup(model, request, learned, members, make_data)
