"""Mutated checkpoints: refused, or the same model results."""

from __future__ import annotations

import json
import traceback
import warnings
from collections import Counter

import numpy as np
import pytest
from tests.sealed import read_parts, with_arrays, with_metadata, write_parts

from augmask import AugMask
from augmask.errors import ArtifactError
from augmask.train.checkpoint import Checkpoint

from .budget import budget, report
from .mutators import mutate_fields, mutate_file
from .victims import TINY, make_frame

pytestmark = pytest.mark.slow

STEPS = 40


def make() -> AugMask:
    options = TINY | {"steps": STEPS, "validation_fraction": 0.1}
    return AugMask(augmenter="ecdf", preset="fast", options=options, device="cpu")


def mutate_sealed(path, rng) -> None:
    """Turn a checkpoint into one that no run can have written, sealed again."""
    parts = read_parts(path)

    def change_arrays(arrays) -> None:
        names = sorted(arrays)
        name = names[rng.integers(len(names))]
        choice = int(rng.integers(5))
        if choice == 0:
            del arrays[name if name != "best" else "weights"]
        elif choice == 1:
            arrays[f"{name}x"] = np.zeros(2, np.float32)
        elif choice == 2:
            arrays[name] = np.concatenate([arrays[name].reshape(-1)] * 2)
        elif choice == 3:
            other = np.float64 if arrays[name].dtype != np.float64 else np.int16
            arrays[name] = arrays[name].astype(other)
        else:
            bad = [-1.0, 1e6, 0.5, float("nan"), 1e300]
            arrays["counters"][0] = bad[rng.integers(len(bad))]

    def change_facts(metadata) -> None:
        facts = json.loads(metadata["facts"])
        key = sorted(facts)[rng.integers(len(facts))]
        facts[key] = [{}, "x", -5, None, [1]][rng.integers(5)]
        if key == "best_loss":
            facts["more"] = 1
        metadata["facts"] = json.dumps(facts)

    choice = int(rng.integers(7))
    if choice < 5:
        parts = with_arrays(parts, change_arrays)
    elif choice == 5:
        parts = with_metadata(parts, change_facts)
    else:
        before = parts
        # a further field of the header is none of a run's business
        while parts.fields.items() >= before.fields.items():
            parts = mutate_fields(before, rng)
    write_parts(path, parts)


def test_mutated_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr("augmask.train.loop.LOG_EVERY", 10)
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

    outcomes: Counter[str] = Counter()
    bad = []
    for seed in range(budget("checkpoints")):
        rng = np.random.default_rng([3, seed])
        path.write_bytes(states[1])
        sealed = seed % 2 == 0
        if sealed:
            mutate_sealed(path, rng)
        else:
            path.write_bytes(mutate_file(states[1], rng))
        try:
            same = end() == expected
        except ArtifactError:
            outcomes["refused"] += 1
        except Exception:
            outcomes["foreign"] += 1
            bad.append(f"seed {seed}: {traceback.format_exc()[-800:]}")
        else:
            outcomes["harmless" if same else "other model"] += 1
            if not same or sealed:
                bad.append(f"seed {seed}: was resumed from ({same=})")
    names = ("refused", "harmless", "other model", "foreign")
    report(
        "mutated checkpoints",
        **{name.replace(" ", "_"): outcomes[name] for name in names},
    )
    assert not bad, "\n".join(bad[:10])
