"""Mask, then reduce: the paper's two means, and their values across processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from augmask.diffusion.base import CellLoss
from augmask.diffusion.reduce import observed_mean, reduce_cells
from augmask.errors import UsageError

LOSSES = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
OBSERVED = torch.tensor([[True, False, True], [False, False, True]])


def test_batch_mean_divides_by_all_observed_cells():
    assert observed_mean(LOSSES, OBSERVED).item() == pytest.approx((1 + 3 + 6) / 3)


def test_row_mean_weighs_every_row_the_same():
    result = observed_mean(LOSSES, OBSERVED, over="row").item()
    assert result == pytest.approx(((1 + 3) / 2 + 6) / 2)


def test_a_row_without_observed_cells_counts_as_zero_in_the_row_mean():
    observed = torch.tensor([[True, True, True], [False, False, False]])
    assert observed_mean(LOSSES, observed, over="row").item() == pytest.approx(1.0)


def test_nothing_observed_gives_zero_and_zero_gradient():
    losses = LOSSES.clone().requires_grad_()
    loss = observed_mean(losses, torch.zeros_like(OBSERVED))
    loss.backward()
    assert loss.item() == 0.0
    assert not losses.grad.any()


def test_doubling_the_batch_leaves_the_loss_unchanged():
    for over in ("batch", "row"):
        twice = observed_mean(LOSSES.repeat(2, 1), OBSERVED.repeat(2, 1), over=over)
        once = observed_mean(LOSSES, OBSERVED, over=over)
        assert twice.item() == pytest.approx(once.item())


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        ("batch", (1 + 3 + 6) / 3),
        # numeric columns 0 and 1, categorical column 2
        ("batch-by-type", 1 / 1 + (3 + 6) / 2),
        ("row-by-type", (1 + 0) / 2 + (3 + 6) / 2),
    ],
)
def test_reductions_by_type(reduction, expected):
    cell = CellLoss(LOSSES, {"aux": 10 * LOSSES})
    result = reduce_cells(cell, OBSERVED, reduction, n_num=2).item()
    assert result == pytest.approx(11 * expected)


def test_shapes_must_agree():
    with pytest.raises(UsageError, match="same shape"):
        observed_mean(LOSSES, OBSERVED[:, :2])


def _one_of_two(rank: int, address: str, folder: str) -> None:
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    try:
        rows = slice(rank, rank + 1)
        for over in ("batch", "row"):
            weight = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
            loss = observed_mean(weight * LOSSES[rows], OBSERVED[rows], over=over)
            loss.backward()
            # what DDP does with gradients
            dist.all_reduce(weight.grad)
            np.save(f"{folder}/{over}{rank}.npy", [loss.item(), weight.grad.item() / 2])
    finally:
        dist.destroy_process_group()


def test_two_processes_give_the_loss_and_gradient_of_one(tmp_path):
    # the rows hold different numbers of observed cells, so a mean of means would differ
    address = f"file://{tmp_path}/rendezvous"
    mp.spawn(_one_of_two, args=(address, str(tmp_path)), nprocs=2)
    for over in ("batch", "row"):
        weight = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        loss = observed_mean(weight * LOSSES, OBSERVED, over=over)
        loss.backward()
        for rank in (0, 1):
            result = np.load(tmp_path / f"{over}{rank}.npy")
            np.testing.assert_allclose(result, [loss.item(), weight.grad.item()])
