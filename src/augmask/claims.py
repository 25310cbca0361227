"""What a model file claims is held against what it holds, before anything is built.

A file of a few kilobytes may name a network of terabytes, a time zone that does not
exist, or levels of two types. Sizes are compared with the stored arrays first: the
network is built of shapes only, which takes no memory. What cannot be compared is
rehearsed on a few rows. Whatever goes wrong here is the file's fault.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from augmask.config import SUPERVISE, Settings
from augmask.diffusion import build_members
from augmask.missing.learned import draw_missing
from augmask.missing.model import MissingModel
from augmask.sample.constraints import Constraint
from augmask.table.encode import Codec
from augmask.table.table import Layout

Arrays = Mapping[str, np.ndarray]

# T of TabDDPM, of which nothing is stored; the paper's is 1,000.
MOST_TIMESTEPS = 100_000
# Scores far out in both tails, and in the middle.
SCORES = (-9.0, -1.0, 0.0, 1.0, 9.0)
HISTORY = {"step", "loss", "held_out"}


def check_parameters(parameters: Any, training: Any, preset: Any) -> int:
    """Return the number of members; raise `ValueError` on what no fit has written."""
    if not isinstance(training, dict) or type(training.get("best_step")) is not int:
        raise ValueError("it does not say how it was trained")
    members, seed = training.get("members"), parameters.get("seed")
    if type(members) is not int or members < 1:
        raise ValueError(f"its ensemble has {members!r} members")
    if type(seed) is not int or seed < 0:
        raise ValueError(f"its seed is {seed!r}")
    asked = parameters.get("ensemble")
    if asked != "auto" and (type(asked) is not int or asked != members):
        raise ValueError(f"its ensemble was asked to have {asked!r} members")
    if parameters.get("supervise", "observed") not in SUPERVISE:
        raise ValueError(f"it supervises {parameters['supervise']!r}")
    texts = {"augmenter": parameters.get("augmenter", ""), "preset": preset}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise ValueError(f"its {name} is {value!r}")
    return members


def _check_keywords(network: Mapping[str, Any], weights: Arrays) -> None:
    """Raise unless the sizes of a network are among those of its weights."""
    sizes = [size for array in weights.values() for size in array.shape]
    most = max([len(weights), *sizes])
    for name, value in network.items():
        limit = MOST_TIMESTEPS if name == "timesteps" else most
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} of its network is {value}")
        if not isinstance(value, str | int | float | None):
            raise ValueError(f"{name} of its network is {type(value).__name__}")
        if isinstance(value, int) and not 0 <= value <= limit:
            raise ValueError(
                f"{name} of its network is {value}, and its weights allow {limit}"
            )


def check_weights(wanted: Mapping[str, torch.Tensor], weights: Arrays) -> None:
    """Raise `ValueError` unless weights have the shapes and types of a network's."""
    for name in sorted(wanted.keys() | weights.keys()):
        one, two = wanted.get(name), weights.get(name)
        shapes = [None if v is None else tuple(v.shape) for v in (two, one)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"weight {name!r} has the shape {shapes[0]}, and its network needs "
                f"{shapes[1]}"
            )
        kinds = [
            str(v.dtype).removeprefix("torch.") for v in (two, one) if v is not None
        ]
        if kinds[0] != kinds[1]:
            raise ValueError(
                f"weight {name!r} is of type {kinds[0]}, and its network needs "
                f"{kinds[1]}"
            )
    for name, array in weights.items():
        if not np.isfinite(array).all():
            raise ValueError(f"weight {name!r} is not finite")


def check_network(
    backbone: str, layout: Layout, members: int, settings: Settings, weights: Arrays
) -> None:
    """Raise unless a network of our own, built of shapes only, fits its weights."""
    _check_keywords(settings.network, weights)
    if members > len(weights):
        raise ValueError(
            f"its ensemble of {members} members has {len(weights)} weights"
        )
    with torch.device("meta"):
        _, network = build_members(backbone, layout, [0] * members, **settings.network)
    check_weights(network.state_dict(), weights)
    sampler: Any = network
    steps, solver = settings.sampling_steps, settings.solver or sampler.solvers[0]
    sampler.check_sampler(steps, solver)


def check_history(history: Arrays) -> None:
    """Raise unless the curves of a training are there, of one length."""
    lengths = {array.shape for array in history.values()}
    if not history.keys() >= HISTORY or len(lengths) != 1 or len(lengths.pop()) != 1:
        raise ValueError("its history is not one")
    if not all(array.size and array.dtype.kind in "fiu" for array in history.values()):
        raise ValueError("its history holds no numbers")


def check_edges(arrays: Arrays) -> None:
    """Raise unless the edges of bins ascend."""
    for name, edges in arrays.items():
        if name.startswith("edges") and not (
            edges.ndim == 1 and np.isfinite(edges).all() and (np.diff(edges) >= 0).all()
        ):
            raise ValueError(f"its bins {name!r} have no order")


def rehearse(
    codec: Codec, holes: MissingModel, constraints: Sequence[Constraint]
) -> None:
    """Decode, encode and empty a few rows, every level among them; raise as it may."""
    layout = codec.layout
    n = max([len(SCORES), *layout.cards])
    num = np.resize(np.array(SCORES), n)[:, None].repeat(layout.n_num, axis=1)
    cards = np.array(layout.cards, np.int64)
    cat = (np.arange(n)[:, None] % cards).astype(np.int32)
    with np.errstate(invalid="raise", over="raise", divide="raise"):
        rows = codec.decode(num, cat, np.random.default_rng(0))
        codec.encode(rows)
    whole = [c.label for c in codec.schema if c.learned and not c.gated]
    if rows[whole].isna().to_numpy().any():
        raise ValueError("its rows have holes")
    draw_missing(holes, rows, np.random.default_rng(0))
    for constraint in constraints:
        # a function of the user's own is not the file's
        if constraint.columns:
            constraint.holds(rows)
