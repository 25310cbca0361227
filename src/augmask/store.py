"""A fitted model as a manifest and arrays, and back."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from augmask.augmentation.base import Augmenter
from augmask.claims import (
    check_edges,
    check_history,
    check_network,
    check_parameters,
    check_weights,
    rehearse,
)
from augmask.config import Settings
from augmask.diffusion import build_members, keywords_of
from augmask.diffusion.base import Backbone
from augmask.errors import ArtifactError, DataError, UsageError
from augmask.missing.model import MissingModel
from augmask.sample.constraints import (
    Constraint,
    Predicate,
    restored_constraints,
    stored_constraints,
)
from augmask.table.encode import Codec
from augmask.table.schema import Column, Schema
from augmask.table.table import Layout, Table

Arrays = dict[str, np.ndarray]
OWN = "own:"  # starts the name of what the user brought


@dataclass(frozen=True)
class Stored:
    """What a model file holds: a fitted model without its methods."""

    parameters: dict[str, Any]
    augmenter: str | Augmenter
    settings: Settings
    preset: str
    layout: Layout
    codec: Codec
    backbone: Backbone
    history: pd.DataFrame
    training: dict[str, Any]
    holes: MissingModel
    constraints: tuple[Constraint, ...]


def _name(part: Any) -> str:
    """Return the name of a backbone or augmenter; the user's own are marked."""
    if isinstance(part, str):
        return part
    return OWN + getattr(part, "__name__", type(part).__name__)


def _facts(part: Any) -> list[Any]:
    """Return what tells one backbone, augmenter or seed from another.

    Not its repr: by default that holds an address, which no second process has.
    """
    if isinstance(part, str | int):
        return [part]
    plain = (str, int, float, bool, type(None))
    held = {} if isinstance(part, type) else getattr(part, "__dict__", {})
    return [
        _name(part),
        getattr(part, "__module__", ""),
        sorted((k, v) for k, v in held.items() if isinstance(v, plain)),
    ]


def fingerprint(parts: Sequence[Any], settings: Settings, table: Table) -> str:
    """Return a digest of a run: two with the same one do the same."""
    facts = [[_facts(part) for part in parts], dataclasses.asdict(settings)]
    digest = hashlib.sha256(json.dumps(facts).encode())
    for array in (table.num, table.cat, table.observed):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _plain_parameters(model: Stored) -> dict[str, Any]:
    """Return the parameters that a model was fitted with, as JSON has them."""
    given = model.parameters
    values = {**vars(model.settings), **model.settings.network}
    asked, asked_members = given["options"], given["ensemble"]
    return {
        "backbone": _name(given["backbone"]),
        "augmenter": _name(given["augmenter"]),
        "supervise": given["supervise"],
        "preset": given["preset"],
        # from the settings, which hold them as plain values
        "options": None if asked is None else {name: values[name] for name in asked},
        "seed": int(given["seed"]),
        "ensemble": asked_members if asked_members == "auto" else int(asked_members),
    }


def check_storable(settings: Settings, codec: Codec) -> None:
    """Raise now if a model of these could not be written after its training."""
    for name, value in (dataclasses.asdict(settings) | dict(settings.network)).items():
        if name == "network":
            continue
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"the setting {name} must be one that a model file can hold, got "
                f"{value!r}: {error}; use a plain number or text"
            ) from error
    for column in codec.schema:
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


def packed(model: Stored) -> tuple[dict[str, Any], Arrays]:
    """Return manifest and arrays of a fitted model; no clock times are in them."""
    weights = model.backbone.state_dict()
    arrays = {f"weights/{k}": v.cpu().numpy() for k, v in weights.items()}
    arrays |= {f"codec/{k}": v for k, v in model.codec.arrays().items()}
    history = model.history.drop(columns="seconds", errors="ignore")
    arrays |= {f"history/{k}": v.to_numpy() for k, v in history.items()}
    constraints, combinations = stored_constraints(model.constraints)
    arrays |= {f"constraints/{k}": v for k, v in combinations.items()}
    arrays |= {f"missing_model/{k}": v for k, v in model.holes.arrays().items()}
    manifest = {
        "parameters": _plain_parameters(model),
        "augmenter": _name(model.augmenter),
        "preset": model.preset,
        "settings": dataclasses.asdict(model.settings),
        "layout": dataclasses.asdict(model.layout),
        "schema": model.codec.schema.to_dict(),
        "training": {k: v for k, v in model.training.items() if k != "seconds"},
        "missing_model": model.holes.to_dict(),
        "constraints": constraints,
    }
    return manifest, arrays


def _same_features(layout: Layout, decoded: Layout) -> bool:
    """Whether codes of one layout, less the placeholder, can be decoded by another."""
    cards = tuple(card - layout.reserved for card in layout.cards)
    return (layout.num_names, layout.cat_names, cards) == (
        decoded.num_names,
        decoded.cat_names,
        decoded.cards,
    )


def _load_weights(backbone: Backbone, weights: Mapping[str, np.ndarray]) -> None:
    """Put stored weights into a backbone; raise `ValueError` where they do not fit."""
    check_weights(backbone.state_dict(), weights)
    backbone.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})


def _choose_backbone(path: str | Path, manifest: Mapping[str, Any], given: Any) -> Any:
    """Return the backbone to build: the one named in the file, or the user's own."""
    parameters = manifest.get("parameters")
    named = parameters.get("backbone") if isinstance(parameters, dict) else None
    own = str(named).startswith(OWN)
    if own and given is None:
        label = str(named).removeprefix(OWN)
        raise UsageError(
            f"{path} was made with a backbone of your own, {label}; "
            "hand it over as load(path, backbone=...)"
        )
    if given is not None and not own:
        raise UsageError(
            f"{path} was made with the backbone {named!r} of augmask; "
            "load it without backbone="
        )
    return given if own else named


def _check_own_constraints(
    path: str | Path, manifest: Mapping[str, Any], given: Sequence[Any]
) -> None:
    """Raise unless exactly the functions that a model was fitted with are given."""
    stored = manifest.get("constraints")
    known = stored if isinstance(stored, list) else []
    found = [constraint for constraint in known if isinstance(constraint, dict)]
    wanted = {str(constraint["own"]) for constraint in found if "own" in constraint}
    names = {Predicate(function).text for function in given}
    for name in sorted(wanted - names):
        raise UsageError(
            f"{path} was made with a rule of your own, {name}; "
            "hand it over as load(path, constraints=[...])"
        )
    for name in sorted(names - wanted):
        raise UsageError(
            f"{path} was made without a rule {name}; rules between columns are given "
            "to fit"
        )


def restore(
    path: str | Path,
    manifest: Mapping[str, Any],
    arrays: Arrays,
    backbone: Any = None,
    constraints: Sequence[Any] = (),
) -> Stored:
    """Build what a model file holds, checking that its parts fit together."""
    chosen = _choose_backbone(path, manifest, backbone)
    _check_own_constraints(path, manifest, constraints)
    try:
        parts: dict[str, Arrays] = {}
        for name, array in arrays.items():
            part, _, rest = name.partition("/")
            parts.setdefault(part, {})[rest] = array
        settings = Settings(**manifest["settings"])
        keywords = keywords_of(chosen)
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
            Schema.from_dict(manifest["schema"]), parts.get("codec", {})
        )
        if type(layout.reserved) is not bool or not _same_features(
            layout, codec.layout
        ):
            raise ValueError("its columns are not those that its network was made for")
        members = check_parameters(
            manifest["parameters"], manifest["training"], manifest["preset"]
        )
        if backbone is None:
            check_network(chosen, layout, members, settings, parts["weights"])
        _, built = build_members(chosen, layout, [0] * members, **settings.network)
        _load_weights(built, parts["weights"])
        check_history(parts["history"])
        check_edges(parts.get("missing_model", {}))
        holes = MissingModel.from_parts(
            manifest["missing_model"], parts.get("missing_model", {})
        )
        if tuple(holes.columns_) != codec.schema.names:
            raise ValueError("its holes are not those of its columns")
        kept = restored_constraints(
            manifest.get("constraints", ()),
            parts.get("constraints", {}),
            codec.schema,
            constraints,
        )
        rehearse(codec, holes, kept)
        return Stored(
            parameters | {"backbone": chosen},
            str(manifest["augmenter"]),
            settings,
            manifest["preset"],
            layout,
            codec,
            built,
            pd.DataFrame(parts["history"]),
            dict(manifest["training"]),
            holes,
            kept,
        )
    # what is wrong with a file may surface anywhere, and is the file's fault
    except Exception as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ArtifactError(
            f"{path} does not hold together: {reason}; fit the model again"
        ) from error
