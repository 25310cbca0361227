"""Checkpoints resume a run exactly; damaged or tampered ones are refused."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from tests.sealed import read_parts, with_arrays, with_metadata, write_parts

from augmask.container import write_container
from augmask.errors import ArtifactError, AugMaskWarning, DataError
from augmask.train.checkpoint import Checkpoint, check_state
from augmask.train.loop import HISTORY, train

from .trainers import trainer

STEPS = 30


def make(make_table, steps: int = STEPS):
    return trainer(make_table(n=50), "cdtd", seed=0, steps=steps)


@pytest.fixture
def path(make_table, tmp_path, monkeypatch):
    """Return the checkpoint of a run after 10 of 30 steps."""
    monkeypatch.setattr("augmask.train.loop.LOG_EVERY", 10)
    path = tmp_path / "run.checkpoint"
    monkeypatch.setattr(Checkpoint, "save", _once(Checkpoint.save))
    train(make(make_table), checkpoint=Checkpoint(path, "x", every=0))
    monkeypatch.undo()
    monkeypatch.setattr("augmask.train.loop.LOG_EVERY", 10)
    return path


def _once(save):
    def only_first(self, tensors, facts):
        if not self.path.exists():
            save(self, tensors, facts)

    return only_first


def resume(make_table, path):
    return train(make(make_table), checkpoint=Checkpoint(path, "x", every=1e9))


def test_a_resumed_run_ends_as_one_that_was_never_stopped(make_table, path):
    expected, resumed = make(make_table), make(make_table)
    history = train(expected).history
    run = train(resumed, checkpoint=Checkpoint(path, "x", every=1e9))
    assert [row["loss"] for row in run.history] == [row["loss"] for row in history]
    for name, tensor in expected.state().items():
        assert torch.equal(resumed.state()[name], tensor), name


def test_tensors_and_facts_come_back(tmp_path):
    tensors = {
        "weights": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
        "counters": torch.tensor([1.0, 2.0], dtype=torch.float64),
        "noise": torch.arange(9, dtype=torch.uint8),
        "position": torch.tensor(5),
        "view": torch.arange(12.0).reshape(3, 4)[:, 1:3],
    }
    # the best loss of a run without held-out cells is infinite
    facts = {"best_loss": float("inf"), "history": [{"held_out": 0.5}]}
    saved = Checkpoint(tmp_path / "run", "x")
    assert saved.load() is None
    saved.save(tensors, facts)
    loaded, loaded_facts = Checkpoint(tmp_path / "run", "x").load()
    assert loaded_facts == facts
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_a_checkpoint_of_another_run_or_of_a_model_is_refused(tmp_path):
    path = tmp_path / "run"
    Checkpoint(path, "one").save({"weights": torch.zeros(2)}, {})
    with pytest.raises(ArtifactError, match="other data, settings or seed; remove it"):
        Checkpoint(path, "two").load()
    write_container(path, "model", {"fingerprint": "one", "facts": "{}"}, {})
    with pytest.raises(ArtifactError, match=r"invalid checkpoint file .*'model'"):
        Checkpoint(path, "one").load()


def test_it_is_due_some_time_after_the_last_save(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("augmask.train.checkpoint.time.monotonic", lambda: now[0])
    saved = Checkpoint(tmp_path / "run", "x", every=60)
    assert not saved.due
    now[0] = 60.0
    assert saved.due
    saved.save({}, {})
    assert not saved.due


def test_a_checkpoint_may_also_hold_best_weights_and_noise_of_other_processes():
    own = {"weights": torch.zeros(2), "noise": torch.zeros(3, dtype=torch.uint8)}
    more = {"best": torch.ones(2), "noise/1": torch.ones(3, dtype=torch.uint8)}
    check_state(own | more, own)
    for name in more:
        with pytest.raises(ValueError, match=f"'{name}' has the shape or type"):
            check_state(own | more | {name: torch.zeros(9)}, own)


def test_no_flipped_bit_is_trained_on(path):
    data = path.read_bytes()
    tensors, header = Checkpoint(path, "x").load()
    rng = np.random.default_rng(0)
    refused = 0
    for at in rng.integers(0, len(data), 150):
        damaged = bytearray(data)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            loaded, facts = Checkpoint(path, "x").load()
        except ArtifactError:
            refused += 1
            continue
        assert json.dumps(facts) == json.dumps(header)
        assert loaded.keys() == tensors.keys()
        assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)
    assert refused > 140


TENSORS = {
    "no weights": lambda t: t.pop("weights"),
    "a tensor more": lambda t: t.update(more=torch.zeros(2)),
    "other weights": lambda t: t.update(weights=torch.zeros(3)),
    "weights of doubles": lambda t: t.update(weights=t["weights"].double()),
    "infinite weights": lambda t: t["weights"].fill_(torch.inf),
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
    def change_arrays(arrays):
        tensors = {name: torch.from_numpy(a) for name, a in arrays.items()}
        change(tensors)
        arrays.clear()
        arrays.update({name: tensor.numpy() for name, tensor in tensors.items()})

    write_parts(path, with_arrays(read_parts(path), change_arrays))
    with pytest.raises(ArtifactError, match=r"invalid checkpoint file .*remove it"):
        resume(make_table, path)


FACTS = {
    "no object": [1],
    "another name": {"hystory": []},
    "a history of text": {"history": "long"},
    "a history of numbers": {"history": [1, 2]},
    "a history of nothing": {"history": [{}]},
    "rows of other columns": {
        "history": [dict.fromkeys(HISTORY, 1.0), dict.fromkeys((*HISTORY, "x"), 1.0)]
    },
    "a loss in words": {"best_loss": "low"},
    "seconds before the run": {"seconds": -1e9},
    "a step in words": {"best_step": "first"},
    "no restarts": {"restarts": -4},
    "a stop of numbers": {"stopped": 5},
}


@pytest.mark.parametrize("facts", FACTS.values(), ids=FACTS.keys())
def test_facts_that_no_run_has_are_refused(make_table, path, facts):
    def change(metadata):
        known = json.loads(metadata["facts"])
        changed = known | facts if isinstance(facts, dict) else facts
        metadata["facts"] = json.dumps(changed)

    write_parts(path, with_metadata(read_parts(path), change))
    with pytest.raises(ArtifactError, match=r"invalid checkpoint file .*remove it"):
        resume(make_table, path)


@pytest.mark.parametrize("text", [None, 5, "", "{", "[" * 10**5])
def test_facts_that_are_not_json_are_refused(path, text):
    parts = with_metadata(read_parts(path), lambda m: m.update(facts=text))
    write_parts(path, parts)
    with pytest.raises(ArtifactError, match="it does not describe a run"):
        Checkpoint(path, "x").load()


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "run.checkpoint")
    with pytest.raises(DataError, match="a pipe or a device"):
        Checkpoint(tmp_path / "run.checkpoint", "x").load()


def test_an_unchanged_file_that_is_sealed_again_resumes(make_table, path):
    write_parts(path, read_parts(path))
    assert resume(make_table, path).history[-1]["step"] == STEPS


def test_a_full_disk_is_warned_about_once_and_training_continues(
    make_table, tmp_path, monkeypatch
):
    monkeypatch.setattr("augmask.train.loop.LOG_EVERY", 10)
    expected = train(make(make_table)).history

    @contextmanager
    def full(path):
        raise DataError(f"cannot write {path}: No space left; nothing was written")
        yield

    monkeypatch.setattr("augmask.container.atomic_write", full)
    saved = Checkpoint(tmp_path / "run.checkpoint", "x", every=0)
    with pytest.warns(
        AugMaskWarning, match=r"No space left.*training continues"
    ) as record:
        history = train(make(make_table), checkpoint=saved).history
    assert len(record) == 1
    assert [row["loss"] for row in history] == [row["loss"] for row in expected]
