"""Checkpoints that were tampered with: refused, or the very same model."""

from __future__ import annotations

import json
import traceback
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from augmask import AugMask
from augmask.errors import ArtifactError
from augmask.train.checkpoint import Checkpoint, checksum

from .budget import budget, report
from .mutators import spoil_file
from .victims import TINY, make_frame

pytestmark = pytest.mark.slow

STEPS = 40


def make() -> AugMask:
    options = TINY | {"steps": STEPS, "holdout": 0.1}
    return AugMask(augmenter="ecdf", preset="fast", options=options, device="cpu")


def spoil_sealed(path, rng) -> bytes:
    """Return a checkpoint that cannot be one of a run, with a right checksum."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = dict(file.metadata())
    header.pop("sha256")
    names = sorted(tensors)
    name = names[rng.integers(len(names))]
    way = int(rng.integers(6))
    if way == 0:
        del tensors[name if name != "best" else "weights"]
    elif way == 1:
        tensors[f"{name}x"] = torch.zeros(2)
    elif way == 2:
        tensors[name] = torch.cat([tensors[name].reshape(-1)] * 2)
    elif way == 3:
        other = torch.float64 if tensors[name].dtype != torch.float64 else torch.int16
        tensors[name] = tensors[name].to(other)
    elif way == 4:
        bad = [-1.0, 1e6, 0.5, float("nan"), 1e300]
        tensors["counters"][0] = bad[rng.integers(len(bad))]
    else:
        facts = json.loads(header["facts"])
        key = sorted(facts)[rng.integers(len(facts))]
        facts[key] = [{}, "x", -5, None, [1]][rng.integers(5)]
        if key == "best_loss":
            facts["more"] = 1
        header["facts"] = json.dumps(facts)
    header["sha256"] = checksum(tensors, header)
    return save(tensors, metadata=header)


def test_tampered_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr("augmask.train.loop.LOOK", 10)
    monkeypatch.setattr(Checkpoint, "due", True)
    frame, path, out = make_frame(), tmp_path / "run", tmp_path / "m.augmask"

    def end(**more) -> bytes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make().fit(frame, checkpoint=path, **more).save(out)
        return out.read_bytes()

    states = []
    keep = Checkpoint.save

    def spy(self, tensors, facts):
        keep(self, tensors, facts)
        states.append(path.read_bytes())

    monkeypatch.setattr(Checkpoint, "save", spy)
    expected = end()
    monkeypatch.setattr(Checkpoint, "save", lambda *_: None)
    path.write_bytes(states[1])
    assert end() == expected

    found: Counter[str] = Counter()
    bad = []
    for seed in range(budget("checkpoints")):
        rng = np.random.default_rng([3, seed])
        path.write_bytes(states[1])
        sealed = seed % 2 == 0
        data = spoil_sealed(path, rng) if sealed else spoil_file(states[1], rng)
        path.write_bytes(data)
        try:
            same = end() == expected
        except ArtifactError:
            found["refused"] += 1
        except Exception:
            found["foreign"] += 1
            bad.append(f"seed {seed}: {traceback.format_exc()[-800:]}")
        else:
            found["harmless" if same else "other model"] += 1
            if not same or sealed:
                bad.append(f"seed {seed}: was trained on ({same=})")
    names = ("refused", "harmless", "other model", "foreign")
    report(
        "tampered checkpoints",
        **{name.replace(" ", "_"): found[name] for name in names},
    )
    assert not bad, "\n".join(bad[:10])
