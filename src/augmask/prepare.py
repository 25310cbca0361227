"""From a table and the parameters of a model to a trainer that is ready to run."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from augmask.augmentation import resolve_augmenter
from augmask.augmentation.base import Augmenter
from augmask.augmentation.completions import CompletionPlan, Completions, complete
from augmask.autoconfig import Choice, Size, choose
from augmask.config import SUPERVISE, Settings
from augmask.device import resolve_device
from augmask.diffusion import build_members, check_sampler, keywords_of
from augmask.diffusion.base import Backbone, init_from_data
from augmask.errors import AugMaskWarning, DataError, UsageError, did_you_mean, shown
from augmask.missing.learned import fit_missing_model
from augmask.missing.model import MissingModel
from augmask.presets import AUGMENTER, resolve_preset
from augmask.progress import Progress
from augmask.rng import stream, stream_seed
from augmask.sample.constraints import Constraint, learn_constraints, read_constraints
from augmask.store import check_storable, fingerprint
from augmask.table.encode import Codec
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema, missing_mask
from augmask.table.link_facts import link_notes
from augmask.table.link_search import with_links, without_links
from augmask.table.private import without_extremes, without_traces
from augmask.table.table import Layout, Table
from augmask.train import parallel
from augmask.train.data import TrainingData, filled_once, hidden_cells
from augmask.train.trainer import Trainer

log = logging.getLogger("augmask")

FEWEST_ROWS = 10

# Beyond these a number is a slip of the pen that no machine could serve.
AT_MOST = {"n": 10**11, "n_draws": 10_000, "ensemble": 1_000, "seed": 2**64 - 1}


def whole_number(name: str, value: Any, lowest: int) -> int:
    """Return `value` as an int, or say what it should have been."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < lowest:
        raise UsageError(
            f"{name} must be a whole number of at least {lowest}, got {shown(value)}"
        )
    most = AT_MOST.get(name)
    if most is not None and value > most:
        raise UsageError(f"{name} must be at most {most:,}, got {shown(value)}")
    return int(value)


def _learnable(table: Table) -> Table:
    """Return the table if there is something in it to learn from."""
    if len(table) < FEWEST_ROWS:
        raise DataError(
            f"a table needs at least {FEWEST_ROWS} rows to learn from, got {len(table)}"
        )
    if table.layout.n_features == 0:
        raise DataError(
            "no column can be learned: all are constant, empty or identifiers; an "
            "identifier is learned if the schema declares its kind"
        )
    return table


@dataclass(frozen=True)
class FitSetup:
    """A trainer for every member, what they are made of, and their time."""

    table: Table
    codec: Codec
    holes: MissingModel
    constraints: tuple[Constraint, ...]
    layout: Layout
    backbone: Backbone
    settings: Settings
    preset: str
    augmenter: str | Augmenter
    choice: Choice
    trainers: tuple[Trainer, ...]
    max_minutes: float | None
    seconds: float | None

    @property
    def trainer(self) -> Trainer:
        """The trainer of the only, or the first, model."""
        return self.trainers[0]


def _filled(
    augmenter: Any,
    table: Table,
    settings: Settings,
    seed: int,
    progress: Progress,
) -> Completions:
    draws = CompletionPlan.parse(settings.completions)
    rng = stream(seed, "fill")
    return filled_once(
        lambda: complete(augmenter, table, draws, rng, progress), table, draws
    )


def _check_types(model: Any) -> None:
    """Raise unless what has a name is named by text, and options are a mapping."""
    for name in ("supervise", "preset", "device"):
        value = getattr(model, name)
        if not isinstance(value, str):
            raise UsageError(f"{name} must be a text, got {shown(value)}")
    if model.options is not None and not isinstance(model.options, Mapping):
        raise UsageError(
            f"options must map names of settings to values, got {shown(model.options)}"
        )


def _settings(model: Any, device: torch.device) -> tuple[str, Settings]:
    """Return the name of the preset and the settings that the model asks for."""
    name, settings, why = resolve_preset(
        model.preset,
        device.type,
        model.backbone if isinstance(model.backbone, str) else None,
        model.options,
        keywords_of(model.backbone),
    )
    check_sampler(
        model.backbone, settings.sampling_steps, settings.solver, **settings.network
    )
    log.info("preset %s (%s) on %s", name, why, device)
    return name, settings


def _choice(model: Any, table: Table, device: torch.device) -> Choice:
    """Return what the size of the table changes, if the model leaves it to us."""
    if model.preset != "auto":
        return Choice()
    name = model.backbone if isinstance(model.backbone, str) else None
    choice = choose(Size.of(table, device.type, name), model.options or ())
    if choice.told:
        log.info("auto: %s", choice.told)
    for text in choice.warnings:
        warnings.warn(text, AugMaskWarning, stacklevel=4)
    return choice


def _members(asked: Any, choice: Choice, alone: bool) -> int:
    """Return how many models are trained; `alone` if only one may be."""
    if asked == "auto":
        return 1 if alone else choice.ensemble or 1
    return whole_number("ensemble", asked, 1)


def _constraints(
    asked: Any, frame: pd.DataFrame, codec: Codec, table: Table
) -> tuple[Constraint, ...]:
    """Return the rules, checked on the observed cells of the table."""
    constraints = read_constraints(asked, codec.schema)
    if not constraints:
        return ()
    rows = codec.decode(table.num, table.cat, np.random.default_rng(0), derive=False)
    named = frame.rename(columns=str)[list(codec.schema.names)]
    return learn_constraints(
        constraints, rows, ~missing_mask(named, codec.schema).to_numpy()
    )


def prepare_fit(
    model: Any,
    data: Any,
    schema: Any,
    max_minutes: float | None,
    progress: Progress,
    constraints: Any = None,
    alone: bool = False,
    private_extremes: bool = False,
) -> FitSetup:
    """Read, encode and fill the table, and build what is to be trained.

    Parameters
    ----------
    model : AugMask
        Its parameters are read; it is not changed.
    data, schema, max_minutes, progress, rules, private_extremes
        As in `AugMask.fit`.
    alone : bool
        Whether only one member may be trained unless more are asked for.
    """
    began = time.monotonic()
    seed = whole_number("seed", model.seed, 0)
    if max_minutes is not None and not (
        isinstance(max_minutes, int | float | np.number)
        and 0 < max_minutes < float("inf")
    ):
        raise UsageError(f"max_minutes must be above 0, got {shown(max_minutes)}")
    _check_types(model)
    if model.supervise not in SUPERVISE:
        raise UsageError(
            f"supervise must be 'observed' or 'all', got {model.supervise!r}"
            + did_you_mean(str(model.supervise), SUPERVISE)
        )
    if _members(model.ensemble, Choice(), alone) > 1 and parallel.launched():
        raise UsageError(
            "the members of an ensemble share one device; start without torchrun"
        )
    device = parallel.own_device(resolve_device(model.device))
    preset, settings = _settings(model, device)
    auto = isinstance(model.augmenter, str) and model.augmenter == "auto"
    if not auto:
        # a slip is told before the table is read
        resolve_augmenter(model.augmenter, also=("auto",))

    frame = read_frame(data)
    found = infer_schema(frame, schema)
    if private_extremes:
        frame = without_extremes(frame, found)
        found = without_traces(infer_schema(frame, schema))
    keep = settings.links == "keep"
    found = with_links(frame, found) if keep else without_links(found)
    told = link_notes(found)
    for note in found.notes():
        # nothing to act on: the relation is kept, and `inspect` shows it
        if note in told:
            log.info("%s", note)
        else:
            warnings.warn(note, AugMaskWarning, stacklevel=3)
    spread = seed if settings.ties == "dequantize" else None
    codec = Codec.fit(frame, found, spread)
    table = _learnable(codec.encode(frame, spread))
    choice = _choice(model, table, device)
    settings = settings.replace(choice.settings, keywords_of(model.backbone))
    members = _members(model.ensemble, choice, alone or parallel.launched())
    fills = (choice.augmenter or AUGMENTER) if auto else model.augmenter
    augmenter = resolve_augmenter(fills)
    constraints = _constraints(constraints, frame, codec, table)
    check_storable(settings, codec)
    if parallel.size() > 1:
        parallel.check_same(
            fingerprint([seed, device.type], settings, table),
            "all processes must fit the same table with the same settings and "
            "seed; start without torchrun to fit apart",
        )

    holes = fit_missing_model(frame, codec, table, stream(seed, "holes"))
    # the frame is the largest thing around, and all is in the table now
    del frame
    pa.default_memory_pool().release_unused()
    completions = _filled(augmenter, table, settings, seed, progress)
    layout = completions.table.layout
    # the first member is the model without others
    seeds = [seed] + [stream_seed(seed, "member", i) for i in range(1, members)]
    networks, backbone = build_members(
        model.backbone,
        layout,
        [stream_seed(each, "init") for each in seeds],
        **settings.network,
    )
    # the true mask, whatever is supervised: strategies differ in nothing else
    for network in networks:
        init_from_data(network, completions.table)
    backbone.to(device)
    # a module that the caller has built may start anywhere
    parallel.copy_lead(backbone.state_dict().values())
    hidden = hidden_cells(table.observed, settings.holdout, stream(seed, "hidden"))
    resident = settings.max_device_gib * 2**30 / members
    batches = [
        TrainingData(
            completions,
            model.supervise,
            hidden,
            stream_seed(each, "shuffle"),
            device,
            resident,
        )
        for each in seeds
    ]
    seconds = None
    if max_minutes is not None:
        seconds = parallel.lead(60 * max_minutes - (time.monotonic() - began))
        if seconds <= 0:
            raise UsageError(
                f"max_minutes={max_minutes} was used up before training began; "
                "give more, or choose a faster augmenter"
            )
    trainers = tuple(
        Trainer(network, data, settings, each, device)
        for network, data, each in zip(networks, batches, seeds, strict=True)
    )
    return FitSetup(
        table,
        codec,
        holes,
        constraints,
        layout,
        backbone,
        settings,
        preset,
        fills,
        choice,
        trainers,
        max_minutes,
        seconds,
    )
