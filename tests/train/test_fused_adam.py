"""AdamW without decay, written out, is torch's."""

from __future__ import annotations

import torch
from torch import nn

from augmask.train.fused_adam import EPS, move


def test_the_step_written_out_is_that_of_torch():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, 50, generator=generator, dtype=torch.float64)
    theirs = nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([theirs], betas=(0.9, 0.99), weight_decay=0, eps=EPS)
    mine, average = start.clone(), start.clone()
    followed = start.clone()
    memory = {
        "step": torch.zeros((), dtype=torch.float64),
        "exp_avg": torch.zeros_like(start),
        "exp_avg_sq": torch.zeros_like(start),
    }
    for step in range(30):
        gradient = torch.randn(2, 50, generator=generator, dtype=torch.float64)
        rate, ema_weight = 0.1 / (1 + step), 1 / (2 + step)
        optimizer.param_groups[0]["lr"] = rate
        theirs.grad = gradient
        optimizer.step()
        followed += ema_weight * (theirs.detach() - followed)
        move(
            mine,
            gradient,
            memory,
            average,
            torch.tensor(rate, dtype=torch.float64),
            torch.tensor(ema_weight, dtype=torch.float64),
            0.99,
        )
    torch.testing.assert_close(mine, theirs.detach())
    torch.testing.assert_close(average, followed)
