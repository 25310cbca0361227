"""Which runs are compiled, and on a real GPU: a recorded step is the plain step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from augmask.augmentation import resolve_augmenter
from augmask.augmentation.completions import CompletionPlan, complete
from augmask.config import Settings
from augmask.diffusion import BACKBONES, build_backbone
from augmask.train.data import TrainingData
from augmask.train.trainer import Trainer


@pytest.mark.parametrize(
    ("compile", "device", "steps", "expected"),
    [
        ("auto", "cuda", 30_000, True),
        ("auto", "cuda", 100, False),
        ("auto", "cpu", 30_000, False),
        ("always", "cpu", 100, True),
        ("never", "cuda", 30_000, False),
    ],
)
def test_long_runs_on_a_gpu_are_compiled(fuse, device, steps, expected):
    assert Settings(compile=fuse, steps=steps).compiled(device) is expected


def trainer_on(device: torch.device, table, backbone: str) -> Trainer:
    network = {"width": 64, "depth": 2, "time_width": 32}
    settings = Settings().replace(network | {"batch": 128, "steps": 200}, None)
    rng = np.random.default_rng(0)
    filled = complete(resolve_augmenter("ecdf"), table, CompletionPlan("stack", 2), rng)
    model = build_backbone(backbone, filled.table.layout, 0, **network)
    model.init_from_data(filled.table)
    model.to(device)
    hidden = np.zeros_like(table.observed)
    data = TrainingData(filled, "observed", hidden, 0, device)
    return Trainer(model, data, settings, 0, device)


@torch.no_grad()
def copy_weights(source: Trainer, to: Trainer) -> None:
    """Let both start the next step from the same weights, each with its own noise.

    Rounding grows in training: 1e-7 becomes 1e-2 in 200 steps of TabDiff on a CPU.
    """
    places = to._tensors()
    for name, value in source._tensors().items():
        places[name].copy_(value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
# torch remarks on streams and on missing libraries; the numbers are what counts here
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_captured_and_plain_steps_have_the_same_losses(make_table, backbone):
    table = make_table(n=500, n_num=3, cards=(2, 5, 9))
    device = torch.device("cuda")
    captured, plain = (trainer_on(device, table, backbone) for _ in range(2))
    plain._replay = None
    losses = []
    for step in range(200):
        for trainer in (captured, plain):
            trainer.step(step / 200)
        losses.append([captured.window(), plain.window()])
        copy_weights(plain, captured)
    assert not captured._replay.failed
    assert captured._replay._graph is not None
    np.testing.assert_allclose(*np.array(losses).T, rtol=1e-3)


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_trainers_from_the_same_weights_take_the_same_step(make_table, backbone):
    # what the test above does on a GPU, with steps that differ by their noise only
    table = make_table(n=300, n_num=3, cards=(2, 5, 9))
    device = torch.device("cpu")
    one, other = (trainer_on(device, table, backbone) for _ in range(2))
    other.reseed_noise(1)
    for trainer in (one, other):
        for step in range(5):
            trainer.step(step / 200)
    losses = [one.window(), other.window()]
    assert losses[0] != losses[1]
    assert not torch.equal(one.flat.weights, other.flat.weights)
    copy_weights(one, other)
    other.noise.set_state(one.noise.get_state())
    for trainer in (one, other):
        trainer.step(5 / 200)
    assert one.window() == other.window()
    for name, value in one._tensors().items():
        assert torch.equal(value, other._tensors()[name]), name


def test_a_state_may_be_written_over_an_earlier_one(make_table):
    trainer = trainer_on(torch.device("cpu"), make_table(n=300, holes=0.3), "cdtd")
    trainer.step(0.1)
    earlier = trainer.state()
    weights = earlier["weights"].clone()
    trainer.step(0.1)
    fresh, written = trainer.state(), trainer.state(earlier)
    assert not torch.equal(fresh["weights"], weights)
    assert written["weights"] is earlier["weights"]
    assert written.keys() == fresh.keys()
    assert all(torch.equal(value, written[name]) for name, value in fresh.items())
    # and it is a copy: the next step leaves it alone
    trainer.step(0.1)
    assert torch.equal(written["weights"], fresh["weights"])
