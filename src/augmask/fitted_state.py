"""`FittedState`: what `fit` learns, `save` writes to a model file and `load` reads.

A model file of a few kilobytes may claim to hold a network of terabytes, a time zone
that does not exist, or levels of two types. So reading compares sizes with the stored
arrays before anything is built: the network is first built of shapes only, which takes
no memory. What cannot be compared is tried out on a few rows. Any failure means that
the file is invalid, and raises `ArtifactError`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from augmask.augmentation import Augmenter
from augmask.config import SUPERVISE, Settings
from augmask.container import ADVICE, read_container, write_container
from augmask.diffusion import build_members, keywords_of
from augmask.diffusion.base import Backbone
from augmask.errors import ArtifactError, DataError, UsageError, brief_repr
from augmask.missing.model import MissingModel, draw_missing
from augmask.packages import library_versions
from augmask.sample.constraints import (
    Constraint,
    Predicate,
    restored_constraints,
    stored_constraints,
)
from augmask.table.codec import Codec
from augmask.table.frame_kinds import FrameKind
from augmask.table.holdout import Holdout
from augmask.table.schema import Column, Schema
from augmask.table.table import Layout
from augmask.train.loop import TrainingRun
from augmask.validation import AnyOf, RecordSpec, ValueSpec

Arrays = Mapping[str, np.ndarray]

CUSTOM = "custom:"  # prefix of the name of a user's own backbone or augmenter
LIBRARIES = ("augmask", "torch", "numpy", "pandas", "lightgbm", "scikit-learn")
# TabDDPM's number of timesteps is in no stored array; the paper's is 1,000.
MAX_TIMESTEPS = 100_000
# Normal scores to try out: far out in both tails, and in the middle.
SCORES = (-9.0, -1.0, 0.0, 1.0, 9.0)
HISTORY = {"step", "loss", "held_out"}
# The parameters of `AugMask` that a file holds: all but the device.
TEXTS = ("backbone", "augmenter", "supervise", "preset")
PARAMETERS = RecordSpec(
    {
        **dict.fromkeys(TEXTS, ValueSpec(str)),
        "supervise": ValueSpec(str, SUPERVISE),
        "options": ValueSpec(),  # checked with the settings
        "seed": ValueSpec(int, lowest=0),
        "ensemble": AnyOf(ValueSpec(int, lowest=1), ValueSpec(str, ("auto",))),
    }
)


@dataclass(frozen=True)
class FittedState:
    """Everything that a fitted model consists of.

    Parameters
    ----------
    parameters : mapping
        The parameters of `AugMask` that it was fitted with.
    preset : str
        The preset in use; never `auto`.
    settings : Settings
    augmenter : str or Augmenter
        The augmenter in use; never `auto`.
    codec : Codec
        Encodes and decodes rows; has the schema.
    layout : Layout
        The features that the network was built for.
    backbone : Backbone
        The network, or an ensemble of networks.
    missing_model : MissingModel
    constraints : tuple of Constraint
    training : mapping
        Summary of the training.
    history : DataFrame
        The course of the training.
    frame_kind : FrameKind
        What the table was: what generated rows come as.
    """

    parameters: Mapping[str, Any]
    preset: str
    settings: Settings
    augmenter: str | Augmenter
    codec: Codec
    layout: Layout
    backbone: Backbone
    missing_model: MissingModel
    constraints: tuple[Constraint, ...]
    training: Mapping[str, Any]
    history: pd.DataFrame = field(default_factory=pd.DataFrame)
    frame_kind: FrameKind = field(default_factory=FrameKind)

    def with_runs(self, runs: Sequence[TrainingRun]) -> FittedState:
        """Return the state after its backbone was trained by these runs."""
        frames = [pd.DataFrame(run.history) for run in runs]
        if len(runs) > 1:
            frames = [frame.assign(member=i) for i, frame in enumerate(frames)]
        training = {
            "best_step": max(run.best_step for run in runs),
            "restarts": sum(run.restarts for run in runs),
            "seconds": max(run.seconds for run in runs),
            "stopped": runs[0].stopped,
            "members": len(runs),
        }
        return dataclasses.replace(
            self,
            training=training | dict(self.training),
            history=pd.concat(frames, ignore_index=True).astype("float64"),
        )


# -- writing -------------------------------------------------------------------


def part_name(part: Any) -> str:
    """Return the name of a backbone or an augmenter; the user's own are marked."""
    if isinstance(part, str):
        return part
    return CUSTOM + getattr(part, "__name__", type(part).__name__)


def check_storable(schema: Schema) -> None:
    """Raise before the training if a model could not be written after it."""
    for column in schema:
        try:
            text = json.dumps(column.to_dict(), allow_nan=False)
            same = Column.from_dict(json.loads(text)) == column
        except (TypeError, ValueError) as error:
            raise DataError(
                f"column {column.name!r} cannot be written to a model file: {error}; "
                "convert or drop it"
            ) from error
        if not same:
            raise DataError(
                f"column {column.name!r} would change in a model file; convert or drop "
                "it"
            )


def _plain_parameters(state: FittedState) -> dict[str, Any]:
    """Return the parameters of the fit, except for the device, as JSON holds them."""
    parameters = state.parameters
    values = {**vars(state.settings), **state.settings.network}
    options, ensemble = parameters["options"], parameters["ensemble"]
    return {
        "backbone": part_name(parameters["backbone"]),
        "augmenter": part_name(parameters["augmenter"]),
        "supervise": parameters["supervise"],
        "preset": parameters["preset"],
        # the settings hold the options as plain Python values
        "options": None if options is None else {k: values[k] for k in options},
        "seed": int(parameters["seed"]),
        "ensemble": ensemble if ensemble == "auto" else int(ensemble),
    }


def write_model(path: str | Path, state: FittedState) -> None:
    """Write a model file; without clock times, the same model gives the same bytes."""
    history = state.history.drop(columns="seconds", errors="ignore")
    constraints, combinations = stored_constraints(state.constraints)
    groups: dict[str, Mapping[str, Any]] = {
        "weights": {k: v.cpu().numpy() for k, v in state.backbone.state_dict().items()},
        "codec": state.codec.arrays(),
        "history": {str(k): v.to_numpy() for k, v in history.items()},
        "constraints": combinations,
        "missing_model": state.missing_model.arrays(),
    }
    manifest = {
        "libraries": library_versions(*LIBRARIES),
        "parameters": _plain_parameters(state),
        "augmenter": part_name(state.augmenter),
        "preset": state.preset,
        "settings": dataclasses.asdict(state.settings),
        "layout": dataclasses.asdict(state.layout),
        "schema": state.codec.schema.to_dict(),
        "training": {k: v for k, v in state.training.items() if k != "seconds"},
        "missing_model": state.missing_model.to_dict(),
        "constraints": constraints,
    }
    if state.frame_kind != FrameKind():
        manifest["frame"] = state.frame_kind.to_dict()
    arrays = {
        f"{group}/{name}": array
        for group, members in groups.items()
        for name, array in members.items()
    }
    write_container(path, "model", manifest, arrays)


# -- checks of what a file claims; each raises `ValueError` ---------------------


def _check_parameters(parameters: Mapping[str, Any], training: Any, preset: Any) -> int:
    """Return the number of members, after checking what is not checked elsewhere."""
    if not isinstance(training, dict) or type(training.get("best_step")) is not int:
        raise ValueError("it does not say how it was trained")
    if training.get("holdout") is not None:
        Holdout.from_dict(training["holdout"])
    members = training.get("members")
    if type(members) is not int or members < 1:
        raise ValueError(f"its ensemble has {members!r} members")
    ensemble = PARAMETERS.checked("its record of parameters", parameters)["ensemble"]
    if ensemble not in ("auto", members):
        raise ValueError(f"its ensemble has {members} members, not {ensemble!r}")
    ValueSpec(str).checked("its preset in use", preset)
    return members


def _check_same_features(layout: Layout, decoded: Layout) -> None:
    """Check that the codec can decode the network's output, less the placeholder."""
    cards = tuple(card - layout.reserved for card in layout.cards)
    if type(layout.reserved) is not bool or (
        (layout.num_names, layout.cat_names, cards)
        != (decoded.num_names, decoded.cat_names, decoded.cards)
    ):
        raise ValueError("its columns are not those that its network was built for")


def _check_keywords(network: Mapping[str, Any], weights: Arrays) -> None:
    """Check that no size of a network exceeds all sizes of its weights."""
    sizes = [size for array in weights.values() for size in array.shape]
    largest = max([len(weights), *sizes])
    for name, value in network.items():
        limit = MAX_TIMESTEPS if name == "timesteps" else largest
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} of its network is {value}")
        if not isinstance(value, str | int | float | None):
            raise ValueError(f"{name} of its network is {type(value).__name__}")
        if isinstance(value, int) and not 0 <= value <= limit:
            raise ValueError(
                f"{name} of its network is {value}, and its weights allow {limit}"
            )


def _check_weights(expected: Mapping[str, torch.Tensor], weights: Arrays) -> None:
    """Check that stored weights are finite and have a network's shapes and types."""

    def facts(value: torch.Tensor | np.ndarray | None) -> tuple[Any, str]:
        if value is None:
            return None, "none"
        return tuple(value.shape), str(value.dtype).removeprefix("torch.")

    for name in sorted(expected.keys() | weights.keys()):
        shape, dtype = facts(weights.get(name))
        needed_shape, needed_dtype = facts(expected.get(name))
        if shape != needed_shape:
            raise ValueError(
                f"weight {name!r} has the shape {shape}, and its network needs "
                f"{needed_shape}"
            )
        if dtype != needed_dtype:
            raise ValueError(
                f"weight {name!r} is of type {dtype}, and its network needs "
                f"{needed_dtype}"
            )
    for name, array in weights.items():
        if not np.isfinite(array).all():
            raise ValueError(f"weight {name!r} is not finite")


def _check_network(
    backbone: str, layout: Layout, members: int, settings: Settings, weights: Arrays
) -> None:
    """Check that a network of augmask's, built of shapes only, fits its weights."""
    _check_keywords(settings.network, weights)
    if members > len(weights):
        raise ValueError(
            f"its ensemble of {members} members has {len(weights)} weights"
        )
    with torch.device("meta"):
        _, network = build_members(backbone, layout, [0] * members, **settings.network)
    _check_weights(network.state_dict(), weights)
    sampler: Any = network
    steps, solver = settings.sampling_steps, settings.solver or sampler.solvers[0]
    sampler.check_sampler(steps, solver)


def _check_history(history: Arrays) -> None:
    """Check that the curves of a training are numbers, all of one length."""
    shapes = {array.shape for array in history.values()}
    if not history.keys() >= HISTORY or len(shapes) != 1 or len(shapes.pop()) != 1:
        raise ValueError("its history lacks curves, or they differ in length")
    if not all(array.size and array.dtype.kind in "fiu" for array in history.values()):
        raise ValueError("its history holds no numbers")


def _check_edges(arrays: Arrays) -> None:
    """Check that the edges of bins ascend."""
    for name, edges in arrays.items():
        if name.startswith("edges") and not (
            edges.ndim == 1 and np.isfinite(edges).all() and (np.diff(edges) >= 0).all()
        ):
            raise ValueError(f"its bins {name!r} do not ascend")


def _try_out(
    codec: Codec, missing_model: MissingModel, constraints: Sequence[Constraint]
) -> None:
    """Decode, encode and mask a few rows, which contain every level."""
    layout = codec.layout
    n = max([len(SCORES), *layout.cards])
    num = np.resize(np.array(SCORES), n)[:, None].repeat(layout.n_num, axis=1)
    cards = np.array(layout.cards, np.int64)
    cat = (np.arange(n)[:, None] % cards).astype(np.int32)
    with np.errstate(invalid="raise", over="raise", divide="raise"):
        rows = codec.decode(num, cat, np.random.default_rng(0))
        codec.encode(rows)
    complete = [c.label for c in codec.schema if c.learned and not c.missing_is_level]
    if rows[complete].isna().to_numpy().any():
        raise ValueError("its rows have missing values")
    draw_missing(missing_model, rows, np.random.default_rng(0))
    for constraint in constraints:
        # a constraint without columns is the user's function, not part of the file
        if constraint.columns:
            constraint.holds(rows)


# -- reading -------------------------------------------------------------------


def _choose_backbone(
    path: str | Path, manifest: Mapping[str, Any], backbone: Any
) -> Any:
    """Return the backbone to build: the one that the file names, or the user's own."""
    parameters = manifest.get("parameters")
    name = parameters.get("backbone") if isinstance(parameters, dict) else None
    custom = str(name).startswith(CUSTOM)
    if custom and backbone is None:
        label = str(name).removeprefix(CUSTOM)
        raise UsageError(
            f"{path} was fitted with the custom backbone {label}, which a file cannot "
            "hold; pass it as load(path, backbone=...)"
        )
    if backbone is not None and not custom:
        raise UsageError(
            f"{path} was fitted with augmask's backbone {name!r}; load it without "
            "backbone="
        )
    return backbone if custom else name


def _check_functions(
    path: str | Path, manifest: Mapping[str, Any], functions: Sequence[Any]
) -> None:
    """Raise unless `functions` are those among the constraints of the fit."""
    constraints = manifest.get("constraints")
    stored = constraints if isinstance(constraints, list) else []
    fitted = {str(c["own"]) for c in stored if isinstance(c, dict) and "own" in c}
    listed = isinstance(functions, list | tuple)
    if not listed or not all(callable(each) for each in functions):
        raise UsageError(
            "constraints of load must be a list of Python functions, got "
            f"{brief_repr(functions)}; a file holds all other constraints"
        )
    passed = {Predicate(function).text for function in functions}
    for name in sorted(fitted - passed):
        raise UsageError(
            f"{path} was fitted with the Python constraint {name}, which a file cannot "
            "hold; pass it as load(path, constraints=[...])"
        )
    for name in sorted(passed - fitted):
        raise UsageError(
            f"{path} was fitted without the constraint {name}; pass constraints to fit"
        )


def read_model(
    path: str | Path, backbone: Any = None, constraints: Sequence[Any] = ()
) -> FittedState:
    """Read and check a model file; see `augmask.load`."""
    manifest, arrays = read_container(path, "model")
    backbone_or_name = _choose_backbone(path, manifest, backbone)
    _check_functions(path, manifest, constraints)
    try:
        return _restore(manifest, arrays, backbone_or_name, constraints)
    # whatever is wrong with a file may surface anywhere
    except Exception as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        reason = reason if len(reason) < 300 else reason[:300] + "..."
        raise ArtifactError(
            f"invalid model file {path}: {reason}; {ADVICE['model']}"
        ) from error


def _restore(
    manifest: Mapping[str, Any], arrays: Arrays, backbone: Any, functions: Sequence[Any]
) -> FittedState:
    """Build what a model file holds, checking that its parts fit together."""
    groups: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        group, _, member = name.partition("/")
        groups.setdefault(group, {})[member] = array
    weights, history = groups["weights"], groups["history"]
    settings = Settings(**manifest["settings"])
    keywords = keywords_of(backbone)
    settings = settings.replace(settings.network, keywords)
    parameters = dict(manifest["parameters"])
    Settings().replace(dict(parameters["options"] or {}), keywords)
    stored = manifest["layout"]
    layout = Layout(
        tuple(stored["num_names"]),
        tuple(stored["cat_names"]),
        tuple(stored["cards"]),
        stored["reserved"],
    )
    codec = Codec.from_arrays(
        Schema.from_dict(manifest["schema"]), groups.get("codec", {})
    )
    _check_same_features(layout, codec.layout)
    members = _check_parameters(parameters, manifest["training"], manifest["preset"])
    if isinstance(backbone, str):
        _check_network(backbone, layout, members, settings, weights)
    _, network = build_members(backbone, layout, [0] * members, **settings.network)
    _check_weights(network.state_dict(), weights)
    network.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
    _check_history(history)
    edges = groups.get("missing_model", {})
    _check_edges(edges)
    missing_model = MissingModel.from_parts(manifest["missing_model"], edges)
    if tuple(missing_model.columns_) != codec.schema.names:
        raise ValueError("its model of missing values has other columns")
    constraints = restored_constraints(
        manifest["constraints"], groups.get("constraints", {}), codec.schema, functions
    )
    _try_out(codec, missing_model, constraints)
    frame_kind = FrameKind()
    if "frame" in manifest:
        frame_kind = FrameKind.from_dict(manifest["frame"])
    return FittedState(
        parameters=parameters | {"backbone": backbone},
        preset=manifest["preset"],
        settings=settings,
        augmenter=str(manifest["augmenter"]),
        codec=codec,
        layout=layout,
        backbone=network,
        missing_model=missing_model,
        constraints=constraints,
        training=dict(manifest["training"]),
        history=pd.DataFrame(history),
        frame_kind=frame_kind,
    )
