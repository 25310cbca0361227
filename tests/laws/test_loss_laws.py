"""What must hold for every backbone: only observed cells are ever supervised."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from augmask.augmentation import resolve_augmenter
from augmask.diffusion import BACKBONES, build_backbone
from augmask.diffusion.base import Batch, CellLoss
from augmask.diffusion.reduce import observed_mean, reduce_cells

SIZES = {"width": 16, "depth": 2, "time_width": 16}
MIXES = [(2, (2, 4)), (3, ()), (0, (3, 2)), (1, ())]

everywhere = pytest.mark.parametrize("backbone", list(BACKBONES))


def batch_of(table):
    return Batch(
        torch.from_numpy(table.num).float(), torch.from_numpy(table.cat).long()
    )


def build(backbone, table):
    model = build_backbone(backbone, table.layout, 0, **SIZES)
    model.init_from_data(table)
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
            p.add_(0.1 * noise)
    return model


def gradients(model, cell, observed, n_num):
    loss = reduce_cells(cell, observed, model.reduction, n_num)
    parameters = list(model.parameters())
    return loss, torch.autograd.grad(
        loss, parameters, allow_unused=True, retain_graph=True
    )


@everywhere
@pytest.mark.parametrize(("n_num", "cards"), MIXES)
def test_losses_under_the_mask_change_neither_loss_nor_gradient(
    make_table, backbone, n_num, cards
):
    table = make_table(n=40, n_num=n_num, cards=cards, missing=0.5)
    model = build(backbone, table)
    observed = torch.from_numpy(table.observed)
    cell = model.cell_loss(batch_of(table), torch.Generator().manual_seed(0))
    loss, plain = gradients(model, cell, observed, n_num)

    nan = torch.tensor(float("nan"))
    corrupted = CellLoss(
        torch.where(observed, cell.main, nan),
        {name: torch.where(observed, aux, nan) for name, aux in cell.aux.items()},
    )
    other, same = gradients(model, corrupted, observed, n_num)
    assert torch.equal(loss, other)
    for a, b in zip(plain, same, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b)


@everywhere
def test_no_loss_has_a_gradient_in_a_missing_cell(make_table, backbone):
    table = make_table(n=40, missing=0.5)
    model = build(backbone, table)
    observed = torch.from_numpy(table.observed)
    cell = model.cell_loss(batch_of(table), torch.Generator().manual_seed(0))
    parts = [cell.main, *cell.aux.values()]
    loss = reduce_cells(cell, observed, model.reduction, table.layout.n_num)
    for gradient in torch.autograd.grad(loss, parts):
        assert not gradient[~observed].any()
        assert gradient[observed].all()


@everywhere
def test_filled_cells_are_context(make_table, backbone):
    """The mask applies to the loss, not to the input."""
    table = make_table(n=40, missing=0.5)
    model = build(backbone, table)
    observed = torch.from_numpy(table.observed)
    losses = []
    for shift in (0.0, 3.0):
        num = np.where(table.num_observed, table.num, table.num + shift)
        cell = model.cell_loss(
            batch_of(table.filled(num, table.cat)), torch.Generator().manual_seed(0)
        )
        losses.append(
            reduce_cells(cell, observed, model.reduction, table.layout.n_num).item()
        )
    assert losses[0] != losses[1]


@everywhere
def test_a_constant_fill_with_observed_supervision_is_missdiffs_objective(
    make_table, backbone
):
    """Zero fill, then the mean of the observed cells' losses: nothing else enters."""
    table = make_table(n=40, missing=0.5)
    rng = np.random.default_rng(0)
    filled = resolve_augmenter("zero").fit(table, rng).draw(rng)
    model = build(backbone, filled)
    cell = model.cell_loss(batch_of(filled), torch.Generator().manual_seed(0))
    observed = torch.from_numpy(table.observed)
    ours = reduce_cells(CellLoss(cell.main), observed, "batch", table.layout.n_num)
    expected = sum(
        cell.main[b, j].item() for b, j in zip(*np.nonzero(table.observed), strict=True)
    ) / int(table.observed.sum())
    assert ours.item() == pytest.approx(expected, rel=1e-5)
    assert (filled.num[~table.num_observed] == 0).all()


@everywhere
@pytest.mark.parametrize("size", [1, 49])
def test_a_column_without_observed_cells_adds_nothing_to_the_loss(
    make_table, backbone, size
):
    table = make_table(n=size, missing=0.5)
    observed = torch.from_numpy(table.observed).clone()
    observed[:, 0], observed[:, 1] = True, False
    model = build(backbone, table)
    cell = model.cell_loss(batch_of(table), torch.Generator().manual_seed(0))
    n_num = table.layout.n_num
    loss = reduce_cells(cell, observed, model.reduction, n_num)
    others = [j for j in range(observed.shape[1]) if j != 1]
    without = CellLoss(
        cell.main[:, others], {name: aux[:, others] for name, aux in cell.aux.items()}
    )
    expected = reduce_cells(without, observed[:, others], model.reduction, n_num - 1)
    torch.testing.assert_close(loss, expected)
    assert 0 < loss.item() < 1e6


@everywhere
def test_validation_losses_do_not_depend_on_global_randomness(make_table, backbone):
    table = make_table(n=30)
    model = build(backbone, table)
    before = torch.get_rng_state()
    losses = [
        model.validation_loss(batch_of(table), torch.Generator().manual_seed(2))
        for _ in range(2)
    ]
    assert torch.equal(*losses)
    assert losses[0].shape == (30, 4)
    assert torch.equal(before, torch.get_rng_state())


def test_building_a_backbone_leaves_the_global_generator_alone(make_table):
    before = torch.get_rng_state()
    first, second, other = (
        build_backbone("cdtd", make_table().layout, seed, **SIZES) for seed in (1, 1, 2)
    )
    assert torch.equal(before, torch.get_rng_state())
    weights = [model.net.project.weight for model in (first, second, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_observed_mean_in_a_users_training_loop():
    """`observed_mean` works without the rest of the package."""
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    observed = torch.rand(64, 3, generator=torch.Generator().manual_seed(1)) < 0.5
    net = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    first = last = None
    for _ in range(200):
        loss = observed_mean((net(x) - x).square(), observed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first, last = first or loss.item(), loss.item()
    assert last < 0.1 * first


@everywhere
def test_gradients_are_the_same_bits_with_two_threads(make_table, backbone):
    """Same seed, same bytes: no gradient is summed in the order of threads."""
    table = make_table(n=4096, n_num=3, cards=(2, 7, 40), missing=0.3)
    model = build(backbone, table)
    observed = torch.from_numpy(table.observed)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        runs = []
        for _ in range(8):
            cell = model.cell_loss(batch_of(table), torch.Generator().manual_seed(0))
            runs.append(gradients(model, cell, observed, 3)[1])
    finally:
        torch.set_num_threads(before)
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], run, strict=True))
