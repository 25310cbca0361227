"""AdamW and EMA: the fused formula, and the plain update, against torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from augmask.config import Settings
from augmask.train.accelerated.step import FusedUpdate, adam_ema_step
from augmask.train.optimizer import EMA, EPS, FlatAdamW

STEPS = 30


def reference(start, gradients, beta2=0.99):
    """Return weights and EMA after torch's AdamW with a changing learning rate."""
    weights = nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW(
        [weights], betas=(0.9, beta2), weight_decay=0, eps=EPS
    )
    ema = start.clone()
    for step, gradient in enumerate(gradients):
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        weights.grad = gradient
        optimizer.step()
        ema += (weights.detach() - ema) / (2 + step)
    return weights.detach(), ema


@pytest.fixture
def start_and_gradients():
    generator = torch.Generator().manual_seed(0)
    start, *gradients = torch.randn(
        STEPS + 1, 2, 50, generator=generator, dtype=torch.float64
    )
    return start, gradients


def test_the_fused_step_is_torch_adamw_followed_by_the_ema(start_and_gradients):
    start, gradients = start_and_gradients
    weights, ema = start.clone(), start.clone()
    state = {
        "step": torch.zeros((), dtype=torch.float64),
        "exp_avg": torch.zeros_like(start),
        "exp_avg_sq": torch.zeros_like(start),
    }
    for step, gradient in enumerate(gradients):
        lr = torch.tensor(0.1 / (1 + step), dtype=torch.float64)
        ema_weight = torch.tensor(1 / (2 + step), dtype=torch.float64)
        adam_ema_step(weights, gradient, state, ema, lr, ema_weight, 0.99)
    expected, expected_ema = reference(start, gradients)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(ema, expected_ema)


def test_a_failed_compilation_falls_back_to_torch_adamw(
    start_and_gradients, monkeypatch, caplog
):
    def fails(*_args):
        raise RuntimeError("no compiler\nlong story")

    start, gradients = start_and_gradients
    start, gradients = start.float(), [gradient.float() for gradient in gradients]
    weights = nn.Parameter(start.clone())
    settings = Settings(beta2=0.99)
    optimizer, ema = FlatAdamW(weights, settings), EMA(weights, 0.999)
    update = FusedUpdate(optimizer, ema, settings)
    monkeypatch.setattr(update, "_fused", fails)
    for step, gradient in enumerate(gradients):
        optimizer.set_lr(0.1 / (1 + step))
        ema.step_weight.fill_(1 / (2 + step))
        weights.grad = gradient
        update()
    expected, expected_ema = reference(start, gradients)
    torch.testing.assert_close(weights.detach(), expected)
    torch.testing.assert_close(ema.weights, expected_ema)
    (record,) = caplog.records
    assert record.getMessage() == (
        "torch.compile failed (no compiler); falling back to torch.optim.AdamW"
    )


def test_the_ema_forgets_early_steps_and_leaves_the_live_weights_alone():
    live = torch.tensor([1.0])
    ema = EMA(live, 0.9)
    assert ema.weight_at(0) == 0.9  # decay 1 / 10
    assert ema.weight_at(10**6) == pytest.approx(0.1)
    live.fill_(3.0)
    ema.step_weight.fill_(0.5)
    ema.update()
    assert ema.weights.item() == 2.0
    with ema.applied():
        assert live.item() == 2.0
    assert live.item() == 3.0
