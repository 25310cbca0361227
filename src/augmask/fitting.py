"""From a table and the parameters of a model to a trainer that is ready to run."""

from __future__ import annotations

import logging
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from augmask.augmentation import resolve_augmenter
from augmask.augmentation.draws import Completions, Draws, complete
from augmask.config import SUPERVISE, Settings
from augmask.device import resolve_device
from augmask.diffusion import build_backbone, check_sampler, keywords_of
from augmask.diffusion.base import Backbone, init_from_data
from augmask.errors import AugMaskWarning, DataError, UsageError, did_you_mean
from augmask.presets import resolve_preset
from augmask.progress import Progress
from augmask.rng import stream, stream_seed
from augmask.store import fingerprint
from augmask.table.carrier import Layout, Table
from augmask.table.encode import Codec
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema
from augmask.train import parallel
from augmask.train.data import TrainingData, filled_once, hidden_cells
from augmask.train.trainer import Trainer

log = logging.getLogger("augmask")

FEWEST_ROWS = 10


def whole_number(name: str, value: Any, lowest: int) -> int:
    """Return `value` as an int, or say what it should have been."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < lowest:
        raise UsageError(
            f"{name} must be a whole number of at least {lowest}, got {value!r}"
        )
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
class Ready:
    """A trainer, what it was made of, and how long it may take."""

    table: Table
    codec: Codec
    layout: Layout
    backbone: Backbone
    settings: Settings
    preset: str
    trainer: Trainer
    max_minutes: float | None
    seconds: float | None


def _filled(
    augmenter: Any, table: Table, settings: Settings, seed: int, progress: Progress
) -> Completions:
    draws = Draws.parse(settings.draws)
    return filled_once(
        lambda: complete(augmenter, table, draws, stream(seed, "fill"), progress),
        table,
        draws,
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


def make_ready(
    model: Any,
    data: Any,
    schema: Any,
    max_minutes: float | None,
    progress: Progress,
) -> Ready:
    """Read, encode and fill the table, and build what is to be trained.

    Parameters
    ----------
    model : AugMask
        Its parameters are read; it is not changed.
    data, schema, max_minutes, progress
        As in `AugMask.fit`.
    """
    began = time.monotonic()
    seed = whole_number("seed", model.seed, 0)
    if max_minutes is not None and not 0 < max_minutes < float("inf"):
        raise UsageError(f"max_minutes must be above 0, got {max_minutes!r}")
    if model.supervise not in SUPERVISE:
        raise UsageError(
            f"supervise must be 'observed' or 'all', got {model.supervise!r}"
            + did_you_mean(str(model.supervise), SUPERVISE)
        )
    augmenter = resolve_augmenter(model.augmenter)
    device = parallel.own_device(resolve_device(model.device))
    preset, settings = _settings(model, device)

    frame = read_frame(data)
    found = infer_schema(frame, schema)
    for note in found.notes():
        warnings.warn(note, AugMaskWarning, stacklevel=3)
    spread = seed if settings.ties == "spread" else None
    codec = Codec.fit(frame, found, spread)
    table = _learnable(codec.encode(frame, spread))
    if parallel.size() > 1:
        parallel.check_same(
            fingerprint([seed, device.type], settings, table),
            "all processes must fit the same table with the same settings and "
            "seed; start without torchrun to fit apart",
        )

    completions = _filled(augmenter, table, settings, seed, progress)
    layout = completions.table.layout
    backbone = build_backbone(
        model.backbone, layout, stream_seed(seed, "init"), **settings.network
    )
    init_from_data(backbone, completions.table)
    backbone.to(device)
    # a module that the caller has built may start anywhere
    parallel.copy_lead(backbone.state_dict().values())
    hidden = hidden_cells(table.observed, settings.holdout, stream(seed, "hidden"))
    training = TrainingData(
        completions, model.supervise, hidden, stream_seed(seed, "shuffle"), device
    )
    seconds = None
    if max_minutes is not None:
        seconds = parallel.lead(60 * max_minutes - (time.monotonic() - began))
        if seconds <= 0:
            raise UsageError(
                f"max_minutes={max_minutes} was used up before training began; "
                "give more, or choose a faster augmenter"
            )
    trainer = Trainer(backbone, training, settings, seed, device)
    return Ready(
        table,
        codec,
        layout,
        backbone,
        settings,
        preset,
        trainer,
        max_minutes,
        seconds,
    )
