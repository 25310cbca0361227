"""A checkpoint that was damaged or tampered with is refused, and a full disk is not
the end of a training."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from augmask.errors import ArtifactError, AugMaskWarning, DataError
from augmask.train import checkpoint as module
from augmask.train.checkpoint import Checkpoint, checksum
from augmask.train.loop import train

from .trainers import trainer

STEPS = 30


def make(make_table, steps: int = STEPS):
    return trainer(make_table(n=50), "cdtd", seed=0, steps=steps)


@pytest.fixture
def path(make_table, tmp_path, monkeypatch):
    """Return the checkpoint of a run that has 10 of 30 steps before it."""
    monkeypatch.setattr("augmask.train.loop.LOOK", 10)
    path = tmp_path / "run.checkpoint"
    monkeypatch.setattr(Checkpoint, "save", _once(Checkpoint.save))
    train(make(make_table), checkpoint=Checkpoint(path, "x", every=0))
    monkeypatch.undo()
    monkeypatch.setattr("augmask.train.loop.LOOK", 10)
    return path


def _once(save):
    def only_first(self, tensors, facts):
        if not self.path.exists():
            save(self, tensors, facts)

    return only_first


def go_on(make_table, path):
    return train(make(make_table), checkpoint=Checkpoint(path, "x", every=1e9))


def read(path):
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, dict(file.metadata())


def write_sealed(path, tensors, header):
    header = {k: v for k, v in header.items() if k != "sha256"}
    header["sha256"] = checksum(tensors, header)
    path.write_bytes(save(tensors, metadata=header))


def test_no_flipped_bit_is_trained_on(make_table, path):
    whole = path.read_bytes()
    tensors, header = Checkpoint(path, "x").load()
    rng = np.random.default_rng(0)
    refused = 0
    for at in rng.integers(0, len(whole), 150):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            found, facts = Checkpoint(path, "x").load()
        except ArtifactError:
            refused += 1
            continue
        assert json.dumps(facts) == json.dumps(header)
        assert found.keys() == tensors.keys()
        assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert refused > 140


TENSORS = {
    "no weights": lambda t: t.pop("weights"),
    "a tensor more": lambda t: t.update(more=torch.zeros(2)),
    "other weights": lambda t: t.update(weights=torch.zeros(3)),
    "weights of doubles": lambda t: t.update(weights=t["weights"].double()),
    "weights without end": lambda t: t["weights"].fill_(torch.inf),
    "steps beyond the run": lambda t: t["counters"].fill_(10**6),
    "steps before the run": lambda t: t["counters"].fill_(-1),
    "no step at all": lambda t: t["counters"].fill_(torch.nan),
    "half a step": lambda t: t["counters"].fill_(0.5),
    "a row beyond the table": lambda t: t["data/position"].fill_(10**6),
    "a row before the table": lambda t: t["data/position"].fill_(-3),
    "other noise": lambda t: t.update(noise=t["noise"][:100]),
    "no noise": lambda t: t["noise"].fill_(255),
    "other best weights": lambda t: t.update(best=torch.zeros(3)),
}


@pytest.mark.parametrize("change", TENSORS.values(), ids=TENSORS.keys())
def test_tensors_that_no_run_has_are_refused(make_table, path, change):
    tensors, header = read(path)
    change(tensors)
    write_sealed(path, tensors, header)
    with pytest.raises(ArtifactError, match="remove it"):
        go_on(make_table, path)


FACTS = {
    "no object": [1],
    "another name": {"hystory": []},
    "a history of text": {"history": "long"},
    "a history of numbers": {"history": [1, 2]},
    "a history of nothing": {"history": [{}]},
    "a loss in words": {"best_loss": "low"},
    "seconds before the run": {"seconds": -1e9},
    "a step in words": {"best_step": "first"},
    "no restarts": {"restarts": -4},
    "a stop of numbers": {"stopped": 5},
}


@pytest.mark.parametrize("facts", FACTS.values(), ids=FACTS.keys())
def test_facts_that_no_run_has_are_refused(make_table, path, facts):
    tensors, header = read(path)
    known = json.loads(header["facts"])
    facts = known | facts if isinstance(facts, dict) else facts
    write_sealed(path, tensors, header | {"facts": json.dumps(facts)})
    with pytest.raises(ArtifactError, match="remove it"):
        go_on(make_table, path)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "run.checkpoint")
    with pytest.raises(DataError, match="a pipe or a device"):
        Checkpoint(tmp_path / "run.checkpoint", "x").load()


def test_what_is_sealed_and_untouched_goes_on(make_table, path):
    tensors, header = read(path)
    write_sealed(path, tensors, header)
    assert go_on(make_table, path).history[-1]["step"] == STEPS


def test_a_full_disk_is_told_once_and_training_goes_on(
    make_table, tmp_path, monkeypatch
):
    monkeypatch.setattr("augmask.train.loop.LOOK", 10)
    expected = train(make(make_table)).history

    @contextmanager
    def full(path):
        raise DataError(f"cannot write {path}: No space left; nothing was kept")
        yield

    monkeypatch.setattr(module, "written_whole", full)
    saved = Checkpoint(tmp_path / "run.checkpoint", "x", every=0)
    with pytest.warns(AugMaskWarning, match="No space left.*goes on") as told:
        found = train(make(make_table), checkpoint=saved).history
    assert len(told) == 1
    assert [row["loss"] for row in found] == [row["loss"] for row in expected]
