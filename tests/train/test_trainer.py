"""The training step: plain, compiled and, on a real GPU, captured as a CUDA graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.train.trainers import trainer

from augmask.config import Settings
from augmask.diffusion import BACKBONES
from augmask.train.accelerated.step import AcceleratedStep
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
def test_long_runs_on_a_gpu_are_compiled(compile, device, steps, expected):
    assert Settings(compile=compile, steps=steps).compiled(device) is expected


def make_trainer(table, backbone: str, device="cpu", **changes) -> Trainer:
    sizes = {"width": 64, "time_width": 32, "batch_size": 128, "steps": 200}
    return trainer(table, backbone, 0, device=device, **sizes, **changes)


@torch.no_grad()
def copy_tensors(source: Trainer, target: Trainer) -> None:
    """Let both start the next step from the same weights, each with its own noise.

    Rounding grows in training: 1e-7 becomes 1e-2 in 200 steps of TabDiff on a CPU.
    """
    for name, value in source.tensors.items():
        target.tensors[name].copy_(value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
# torch warns about streams and missing libraries; only the numbers matter here
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_captured_and_plain_steps_have_the_same_losses(make_table, backbone):
    table = make_table(n=500, n_num=3, cards=(2, 5, 9))
    captured, plain = (make_trainer(table, backbone, "cuda") for _ in range(2))
    plain.accelerated = None
    losses = []
    for step in range(200):
        for each in (captured, plain):
            each.step(step / 200)
        losses.append([captured.mean_loss(), plain.mean_loss()])
        copy_tensors(plain, captured)
    graph = captured.accelerated.graph
    assert not graph.failed
    assert graph._graph is not None
    np.testing.assert_allclose(*np.array(losses).T, rtol=1e-3)


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_the_accelerated_step_is_the_plain_step(make_table, backbone):
    """Without compiler and CUDA graph, bit for bit."""
    table = make_table(n=300, n_num=3, cards=(2, 5, 9))
    plain, fast = (make_trainer(table, backbone) for _ in range(2))
    assert plain.accelerated is None
    fast.accelerated = AcceleratedStep(fast, compiled=False, graphed=False)
    for each in (plain, fast):
        for step in range(5):
            each.step(step / 200)
    assert plain.mean_loss() == fast.mean_loss()
    for name, value in plain.state().items():
        assert torch.equal(value, fast.state()[name]), name


def test_a_compiled_step_has_the_loss_of_the_plain_step(make_table, monkeypatch):
    """With an identity for a compiler: the noise is drawn first, in the same order."""
    monkeypatch.setattr(
        "augmask.diffusion.compiled.compile_function", lambda function: function
    )
    table = make_table(n=300, n_num=3, cards=(2, 5, 9))
    plain = make_trainer(table, "cdtd")
    compiled = make_trainer(table, "cdtd", compile="always")
    for each in (plain, compiled):
        for step in range(5):
            each.step(step / 200)
    assert compiled.accelerated is not None
    assert plain.mean_loss() == compiled.mean_loss()


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_trainers_from_the_same_state_take_the_same_step(make_table, backbone):
    # what the CUDA test above does, with steps that differ by their noise only
    table = make_table(n=300, n_num=3, cards=(2, 5, 9))
    one, other = (make_trainer(table, backbone) for _ in range(2))
    other.reseed_noise(1)
    for each in (one, other):
        for step in range(5):
            each.step(step / 200)
    assert one.mean_loss() != other.mean_loss()
    assert not torch.equal(one.flat.weights, other.flat.weights)
    copy_tensors(one, other)
    other.noise.set_state(one.noise.get_state())
    for each in (one, other):
        each.step(5 / 200)
    assert one.mean_loss() == other.mean_loss()
    for name, value in one.tensors.items():
        assert torch.equal(value, other.tensors[name]), name


def test_a_step_is_adamw_on_the_masked_mean_of_the_cell_losses(make_table):
    """The first step of Adam moves every weight by the learning rate, downhill."""
    one = make_trainer(make_table(n=300, missing=0.3), "cdtd", warmup=1)
    before, noise = one.flat.weights.detach().clone(), one.noise.get_state()
    one.step(0.0)
    change = one.flat.weights.detach() - before
    gradient = one.flat.weights.grad
    clear = gradient.abs() > 1e-4
    expected = -one.settings.lr * gradient.sign()
    torch.testing.assert_close(change[clear], expected[clear], rtol=1e-3, atol=1e-6)
    # the loss is that of the batch at the weights before the step
    loss = one.mean_loss()
    with torch.no_grad():
        one.flat.weights.copy_(before)
    one.noise.set_state(noise)
    batch, supervised = one.data.batch()
    again, cells = one.loss(one.noise, batch, supervised, torch.zeros(()))
    assert loss == again.item()
    assert torch.equal(cells, one.last[0])


def test_a_state_may_reuse_the_memory_of_an_earlier_one(make_table):
    one = make_trainer(make_table(n=300, missing=0.3), "cdtd")
    one.step(0.1)
    earlier = one.state()
    weights = earlier["weights"].clone()
    one.step(0.1)
    fresh, reused = one.state(), one.state(earlier)
    assert not torch.equal(fresh["weights"], weights)
    assert reused["weights"] is earlier["weights"]
    assert reused.keys() == fresh.keys()
    assert all(torch.equal(value, reused[name]) for name, value in fresh.items())
    # and it is a copy: the next step does not change it
    one.step(0.1)
    assert torch.equal(reused["weights"], fresh["weights"])
