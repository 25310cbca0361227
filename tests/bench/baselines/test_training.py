"""Shuffled batches, Adam, and when it ends."""

from __future__ import annotations

import math
import time

import pytest
import torch
from torch import nn

from augmask.diffusion.random_draws import normal_like, seeded_init
from augmask_bench.baselines.training import (
    Best,
    Clock,
    Plateau,
    Schedule,
    Trainer,
    generator,
    held_out,
    train,
)

CPU = torch.device("cpu")


def watched(n, batch_size):
    """Return a trainer and the batches it asks for."""
    weight, batches = nn.Parameter(torch.zeros(())), []

    def loss(rows):
        batches.append(rows.clone())
        return (weight - 1) ** 2

    return Trainer(loss, [weight], n, batch_size, 0.1, 0.0, generator(CPU, 0)), batches


@pytest.mark.parametrize(
    ("n", "batch_size"), [(10, 4), (10, 5), (3, 8), (7, 1), (9, 7)]
)
def test_every_pass_visits_every_row_once(n, batch_size):
    trainer, batches = watched(n, batch_size)
    trainer.steps(3 * n)
    assert {len(rows) for rows in batches} == {min(n, batch_size)}
    visited = torch.cat(batches)
    for start in range(0, len(visited) - n + 1, n):
        assert sorted(visited[start : start + n].tolist()) == list(range(n))


def test_an_epoch_ends_where_a_pass_ends():
    trainer, batches = watched(10, 4)
    ends = []
    for _ in range(4):
        trainer.epoch()
        ends.append(len(batches))
    # 10, 20, 30 and 40 rows seen, or the first batch beyond
    assert ends == [3, 5, 8, 10]
    assert trainer.done == 10


def test_steps_are_those_of_adam():
    rows = torch.randn(5, 3, generator=generator(CPU, 1))
    ours, theirs = (nn.Parameter(torch.ones(3)) for _ in range(2))
    adam = torch.optim.Adam([theirs], lr=0.1, weight_decay=0.3)
    ours_loss = []
    trainer = Trainer(
        lambda at: ((rows[at] - ours) ** 2).mean(),
        [ours],
        5,
        5,
        0.1,
        0.3,
        generator(CPU, 0),
    )
    for i in range(6):
        if i == 3:
            trainer.lr = 0.02
            adam.param_groups[0]["lr"] = 0.02
        ours_loss.append(trainer.steps(1))
        adam.zero_grad()
        loss = ((rows - theirs) ** 2).mean()
        loss.backward()
        adam.step()
        assert ours_loss[-1] == pytest.approx(loss.item(), rel=1e-5)
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert trainer.lr == 0.02


def test_a_parameter_without_entries_does_no_harm():
    weight, empty = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(0, 4))

    def loss(_rows):
        return (weight - 1).square().sum() + empty.sum()

    trainer = Trainer(loss, [weight, empty], 4, 2, 0.1, 0.0, generator(CPU, 0))
    assert trainer.steps(30) < 2


def test_the_same_generator_gives_the_same_weights():
    def learned(seed):
        noise = generator(CPU, seed)
        weight = nn.Parameter(torch.zeros(3))

        def loss(rows):
            return (weight - rows[0] - normal_like(weight, noise)).square().mean()

        Trainer(loss, [weight], 20, 4, 0.1, 0.0, noise).steps(10)
        return weight.detach()

    assert torch.equal(learned(0), learned(0))
    assert not torch.equal(learned(0), learned(1))


def test_first_weights_leave_the_global_state_alone():
    before = torch.get_rng_state()
    with seeded_init(5):
        one = nn.Linear(3, 3)
    assert torch.equal(torch.get_rng_state(), before)
    with seeded_init(5):
        again = nn.Linear(3, 3)
    assert torch.equal(one.weight, again.weight)


def test_a_plateau_counts_like_that_of_torch():
    weight = nn.Parameter(torch.zeros(()))
    adam = torch.optim.Adam([weight], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(adam, factor=0.5, patience=3)
    ours, lr = Plateau(3), 1.0
    noise = torch.rand(60, generator=generator(CPU, 0)).tolist()
    for i, wobble in enumerate(noise):
        loss = 1 / (1 + i // 7) + 0.3 * wobble - 0.4
        theirs.step(loss)
        lr *= 0.5 if ours.stalls(loss) else 1.0
        assert lr == pytest.approx(adam.param_groups[0]["lr"])
    assert lr < 1.0


def test_the_best_weights_are_kept_and_come_back_in_place():
    layer = nn.Linear(2, 1)
    where, best = layer.weight.data_ptr(), Best(layer)
    for value, loss in ((1.0, 0.5), (2.0, 0.2), (3.0, math.nan), (4.0, 0.3)):
        nn.init.constant_(layer.weight, value)
        best.record(loss)
    assert (best.loss, best.since) == (0.2, 2)
    best.restore()
    assert layer.weight.tolist() == [[2.0, 2.0]]
    assert layer.weight.data_ptr() == where


def scripted(losses):
    """Return a descent whose loss falls as written, and its module."""
    module = nn.Linear(1, 1)
    numbers = iter(losses)

    def loss(_rows):
        return next(numbers) + 0 * module.weight.sum()

    return Trainer(loss, module.parameters(), 2, 2, 1.0, 0.0, generator(CPU, 0)), module


def test_it_ends_after_patience_at_a_lower_rate():
    trainer, module = scripted([3.0, 2.0, *[2.5] * 50])
    facts = train(trainer, module, Schedule(40, 0.5, 3, 9), Clock())
    assert facts == {"steps": 11, "loss": 2.0, "ended": "patience"}
    assert trainer.lr == 0.25


def test_it_ends_after_its_steps_a_bad_loss_or_its_time():
    trainer, module = scripted([1 / (i + 1) for i in range(50)])
    facts = train(trainer, module, Schedule(7, 0.5, 3, 9), Clock())
    assert (facts["steps"], facts["ended"]) == (7, "steps")
    trainer, module = scripted([1.0, math.nan, 1.0])
    facts = train(trainer, module, Schedule(7, 0.5, 3, 9), Clock())
    assert (facts["steps"], facts["ended"]) == (2, "loss not finite")
    trainer, module = scripted([1.0] * 50)
    facts = train(trainer, module, Schedule(50, 0.5, 99, 99), Clock(0.0))
    assert (facts["steps"], facts["ended"]) == (1, "time")


def test_clocks():
    assert not Clock().over
    assert Clock().part(0.1).seconds == math.inf
    clock = Clock(10.0)
    assert clock.part(0.5).seconds == pytest.approx(5.0, abs=0.1)
    short = Clock(0.01)
    time.sleep(0.02)
    assert short.over
    assert short.part(0.5).seconds == 0.0


@pytest.mark.parametrize(
    ("n", "expected"), [(100, 10), (4, 1), (2, 1), (10**6, 16_384)]
)
def test_rows_held_out_and_rows_to_learn_from_are_all_rows(n, expected):
    learn, check = held_out(n, 0.1, seed=0)
    assert len(check) == expected
    assert torch.equal(torch.cat([learn, check]).sort().values, torch.arange(n))


def test_of_one_row_both_are_made():
    learn, check = held_out(1, 0.1, seed=0)
    assert learn.tolist() == check.tolist() == [0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_captured_step_equals_a_plain_step(monkeypatch):
    def learned(recorded):
        if not recorded:
            monkeypatch.setattr(
                "augmask_bench.baselines.training.cuda_graphed", lambda step, *_: step
            )
        noise = generator(torch.device("cuda"), 0)
        with seeded_init(0):
            layer = nn.Linear(3, 2).cuda()
        rows = torch.randn(50, 3, generator=generator(CPU, 0)).cuda()

        def loss(at):
            some = rows.index_select(0, at)
            return (layer(some) - normal_like(layer(some), noise)).square().mean()

        trainer = Trainer(loss, layer.parameters(), 50, 16, 0.1, 0.0, noise)
        losses = [trainer.steps(5)]
        trainer.lr = 0.01
        losses += [trainer.steps(20)]
        return losses, layer.weight.detach().cpu()

    (losses, weights), (expected, others) = learned(True), learned(False)
    assert losses == pytest.approx(expected, rel=1e-4)
    assert torch.allclose(weights, others, atol=1e-4)
