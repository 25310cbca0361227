"""Models that share their steps end as they would alone."""

from __future__ import annotations

import pytest
import torch
from tests.train.trainers import trainer

from augmask.diffusion import BACKBONES, nets
from augmask.errors import TrainingDiverged
from augmask.train.accelerated import batched_models
from augmask.train.accelerated.batched_models import BatchedModels, can_batch
from augmask.train.loop import train, train_many


@pytest.fixture
def batch_on_cpu(monkeypatch):
    """Batch models on a CPU too, where it gains nothing."""
    monkeypatch.setattr(
        "augmask.train.loop.batch_models", lambda trainers: [BatchedModels(trainers)]
    )
    # written for a CPU's cache, and for one model at a time
    monkeypatch.setattr(nets, "feed_forward", lambda x, up, down: down(up(x).relu()))


@pytest.fixture
def table(make_table):
    return make_table(n=120, n_num=2, cards=(2, 5))


def ema_weights(trainer):
    """Return the EMA weights by name, without those that no output depends on.

    The bias of attention keys shifts all scores of a query alike. Its gradient is
    rounding error, from which Adam takes steps of full size.
    """
    weights = trainer.flat.by_name(trainer.ema.weights[0].clone())
    for name, value in weights.items():
        if name.endswith("qkv.bias"):
            value.chunk(3)[1].zero_()
    return weights


@pytest.mark.parametrize(
    ("backbone", "network"),
    [
        *((name, {}) for name in BACKBONES),
        ("cdtd", {"precondition": "table"}),
        ("cdtd", {"precondition": "joint"}),
    ],
)
def test_each_batched_model_is_what_it_is_alone(table, batch_on_cpu, backbone, network):
    alone = [trainer(table, backbone, seed, **network) for seed in range(3)]
    expected = [train(t) for t in alone]
    batched = [trainer(table, backbone, seed, **network) for seed in range(3)]
    runs = train_many(batched)
    for one, other, a, b in zip(alone, batched, expected, runs, strict=True):
        for left, right in zip(a.history, b.history, strict=True):
            assert left["loss"] == pytest.approx(right["loss"], rel=1e-4)
            assert left["held_out"] == pytest.approx(
                right["held_out"], rel=1e-4, nan_ok=True
            )
        torch.testing.assert_close(
            ema_weights(one), ema_weights(other), rtol=1e-3, atol=1e-4
        )
    # and they are three different models
    assert len({run.history[-1]["loss"] for run in runs}) == 3


def test_a_trainer_can_leave_without_affecting_the_others(table):
    alone = [trainer(table, "cdtd", seed) for seed in range(3)]
    trainers = [trainer(table, "cdtd", seed) for seed in range(3)]
    batch = BatchedModels(trainers)
    for step in range(30):
        if step == 12:
            trainers[1].detach()
        for each in (*alone, *trainers):
            each.step(step / 60)
        batch.step()
    assert batch.members == [trainers[0], trainers[2]]
    for one, other in zip(alone, trainers, strict=True):
        assert one.mean_loss() == pytest.approx(other.mean_loss(), rel=1e-5)
        torch.testing.assert_close(
            one.flat.weights, other.flat.weights, rtol=1e-4, atol=1e-5
        )
        for name, value in one.state().items():
            torch.testing.assert_close(value, other.state()[name], rtol=1, atol=1e-3)


def test_a_model_that_diverges_does_not_stop_the_others(table, batch_on_cpu):
    bad, good = trainer(table, "tabddpm", 0), trainer(table, "tabddpm", 1)
    with torch.no_grad():
        bad.flat.weights[:] = torch.nan
    results = train_many([bad, good])
    assert isinstance(results[0], TrainingDiverged)
    alone = train(trainer(table, "tabddpm", 1))
    assert results[1].history[-1]["loss"] == pytest.approx(alone.history[-1]["loss"])


def test_where_batching_fails_models_are_trained_one_at_a_time(
    table, batch_on_cpu, monkeypatch, caplog
):
    def fails(*_args, **_kwargs):
        raise RuntimeError("no batching rule for that\nlong story")

    monkeypatch.setattr(batched_models, "vmap", fails)
    expected = [train(trainer(table, "cdtd", s)).history[-1]["loss"] for s in range(2)]
    runs = train_many([trainer(table, "cdtd", seed) for seed in range(2)])
    assert [run.history[-1]["loss"] for run in runs] == expected
    (record,) = caplog.records
    assert record.getMessage() == (
        "batched training failed (no batching rule for that); "
        "training models one at a time"
    )


def test_where_compilation_fails_models_are_batched_without_it(
    table, batch_on_cpu, monkeypatch, caplog
):
    def compile_function(_function):
        def fails(*_args):
            raise RuntimeError("no compiler")

        return fails

    monkeypatch.setattr(batched_models, "compile_function", compile_function)
    expected = [train(trainer(table, "cdtd", s)).history[-1]["loss"] for s in range(2)]
    runs = train_many(
        [trainer(table, "cdtd", seed, compile="always") for seed in range(2)]
    )
    losses = [run.history[-1]["loss"] for run in runs]
    assert losses == pytest.approx(expected, rel=1e-4)
    (record,) = caplog.records
    assert record.getMessage() == (
        "torch.compile failed (no compiler); falling back to eager batched training"
    )


def test_only_models_of_one_architecture_are_batched(table, make_table):
    first = trainer(table, "cdtd", 0)
    assert can_batch(first, trainer(table, "cdtd", 1))
    assert not can_batch(first, trainer(table, "tabddpm", 1))
    assert not can_batch(first, trainer(table, "cdtd", 1, lr=2e-3))
    wider = make_table(n=120, n_num=2, cards=(2, 6))
    assert not can_batch(first, trainer(wider, "cdtd", 1))
    # the same total number of levels, in other columns
    other = make_table(n=120, n_num=2, cards=(3, 4))
    assert not can_batch(first, trainer(other, "cdtd", 1))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_models_batched_on_a_gpu_are_what_they_are_alone(
    table, backbone, compile, caplog
):
    def make(seed, compile):
        return trainer(table, backbone, seed, device="cuda", compile=compile)

    alone = [train(make(seed, "never")) for seed in range(3)]
    runs = train_many([make(seed, compile) for seed in range(3)])
    for a, b in zip(alone, runs, strict=True):
        for left, right in zip(a.history, b.history, strict=True):
            assert left["loss"] == pytest.approx(right["loss"], rel=0.02)
    assert not [r for r in caplog.records if "failed" in r.getMessage()]
