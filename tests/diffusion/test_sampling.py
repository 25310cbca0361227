"""The loop behind every sampler: what it visits, and what it does to known cells."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from augmask.diffusion import BACKBONES, build_backbone, resolve_backbone
from augmask.diffusion.base import Batch
from augmask.diffusion.sampling import (
    Known,
    _Held,
    inpaint,
    inpainting_sampler,
    run_sampler,
)
from augmask.errors import UsageError

SIZES = {"width": 12, "depth": 1, "time_width": 8}

every_solver = pytest.mark.parametrize(
    ("backbone", "solver"),
    [(name, solver) for name in BACKBONES for solver in resolve_backbone(name).solvers],
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def model_of(backbone, table):
    model = build_backbone(backbone, table.layout, 0, **SIZES)
    model.init_from_data(table)
    return model


def batch_of(table) -> Batch:
    return Batch(
        torch.from_numpy(table.num).float(), torch.from_numpy(table.cat).long()
    )


def place(i: int) -> torch.Tensor:
    return torch.tensor(i)


class NoReads(TorchDispatchMode):
    """Raises where Python would wait for a number from the device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default
        assert func is not torch.ops.aten.nonzero.default
        return func(*args, **(kwargs or {}))


@every_solver
def test_a_step_can_be_recorded(make_table, backbone, solver):
    """It asks the device for nothing, and its state keeps shapes and types."""
    table = make_table(n=5)
    model, none = model_of(backbone, table), torch.zeros(5, 2, dtype=torch.bool)
    sampler = model.sampler(4, solver)
    held = _Held(sampler, Known(batch_of(table), none, none))
    assert len(sampler.levels) > sampler.n_steps
    for taken in (sampler, held):
        with torch.no_grad():
            state, i = taken.start(5, seeded()), place(1)
            for move in (taken.step, taken.renoise):
                with NoReads():
                    new = move(state, i, seeded())
                assert [p.shape for p in new] == [p.shape for p in state]
                assert [p.dtype for p in new] == [p.dtype for p in state]


@every_solver
@pytest.mark.parametrize(("n_num", "cards"), [(2, (2, 4)), (2, ()), (0, (3, 2))])
def test_known_cells_come_back_and_the_rest_is_legal(
    make_table, backbone, solver, n_num, cards
):
    table = make_table(n=30, n_num=n_num, cards=cards)
    model, batch = model_of(backbone, table), batch_of(table)
    mask = torch.from_numpy(table.observed)
    known = Known(
        batch, mask[:, :n_num], mask[:, n_num:], rounds=2, repeated=(0.1, 3.0)
    )
    sampler = model.sampler(5, solver)
    (num, cat), class_probs = inpaint(sampler, seeded(), known)
    assert class_probs.shape == (30, 0)
    assert torch.equal(num[known.num], batch.num[known.num])
    assert torch.equal(cat[known.cat], batch.cat[known.cat])
    assert num.isfinite().all()
    assert (cat >= 0).all()
    assert (cat < torch.tensor(cards, dtype=torch.long)).all()
    same, _ = inpaint(sampler, seeded(), known)
    assert torch.equal(same.num, num)
    assert torch.equal(same.cat, cat)


@every_solver
def test_without_known_cells_nothing_changes(make_table, backbone, solver):
    table = make_table(n=30)
    model, none = model_of(backbone, table), torch.zeros(30, 2, dtype=torch.bool)
    sampler = model.sampler(5, solver)
    free = run_sampler(sampler, 30, seeded())
    known = Known(batch_of(table), none, none)
    held, _ = inpaint(sampler, seeded(), known)
    assert torch.equal(free.num, held.num)
    assert torch.equal(free.cat, held.cat)


@every_solver
@pytest.mark.parametrize("reserved", [False, True])
def test_beliefs_are_collected_for_every_level_that_can_be_emitted(
    make_table, backbone, solver, reserved
):
    table = make_table(n=30, cards=(2, 5))
    if reserved:
        table = table.filled(
            table.num, table.cat, replace(table.layout, cards=(3, 6), reserved=True)
        )
    model, mask = model_of(backbone, table), torch.from_numpy(table.observed)
    known = Known(batch_of(table), mask[:, :2], mask[:, 2:], believe=True)
    rows, class_probs = inpaint(model.sampler(20, solver), seeded(), known)
    assert class_probs.shape == (30, 2 + 5)
    assert (class_probs >= 0).all()
    sums = torch.stack([class_probs[:, :2].sum(1), class_probs[:, 2:].sum(1)], 1)
    # as often for every row and column, and at least once
    assert sums.min() > 0.99
    torch.testing.assert_close(sums, sums[:1, :1].expand_as(sums))
    # and the rows are those of somebody who does not ask
    silent = Known(batch_of(table), mask[:, :2], mask[:, 2:])
    same, _ = inpaint(model.sampler(20, solver), seeded(), silent)
    assert torch.equal(rows.num, same.num)
    assert torch.equal(rows.cat, same.cat)


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_going_up_undoes_the_level_of_a_step_down(make_table, backbone):
    """Noise of place i + 1, raised, has the variance of place i."""
    table = make_table(n=40_000, n_num=1, cards=(3,))
    model = model_of(backbone, table)
    sampler = inpainting_sampler(model)
    zeros = Batch(torch.zeros(40_000, 1), torch.zeros(40_000, 1, dtype=torch.long))
    i = sampler.n_steps // 2
    with torch.no_grad():
        state = sampler.start(40_000, seeded())
        offset = (
            torch.randn(40_000, 1, generator=seeded(3)),
            *sampler.offset(zeros)[1:],
        )
        every = torch.ones(40_000, 1, dtype=torch.bool)
        below, here = (
            sampler.apply_known(
                state,
                sampler.noise_known(zeros, offset, place(k), seeded()),
                every,
                every,
            )
            for k in (i + 1, i)
        )
        raised = sampler.renoise(below, place(i), seeded(4))
    assert raised[0].std().item() == pytest.approx(here[0].std().item(), rel=0.02)
    assert raised[0].std() > 1.01 * below[0].std()


def test_few_times_are_enough_for_known_cells(make_table):
    table = make_table()
    model = build_backbone("tabddpm", table.layout, 0, timesteps=7, **SIZES)
    assert inpainting_sampler(model).n_steps == 6


def test_a_backbone_without_a_way_is_refused_in_one_sentence():
    with pytest.raises(UsageError, match=r"needs the method way .* object lacks it"):
        inpainting_sampler(object())
