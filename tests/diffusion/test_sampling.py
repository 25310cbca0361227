"""The reverse process of every backbone, with and without known cells."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from augmask.diffusion import BACKBONES, build_backbone, resolve_backbone
from augmask.diffusion.base import Batch
from augmask.diffusion.sampling import (
    InpaintingSampler,
    InpaintTask,
    inpaint,
    inpainting_sampler,
    map_tensors,
    run_sampler,
    tensors,
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


class NoReads(TorchDispatchMode):
    """Raises where Python would read a number from the device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default
        assert func is not torch.ops.aten.nonzero.default
        return func(*args, **(kwargs or {}))


@every_solver
def test_a_step_can_be_captured(make_table, backbone, solver):
    """It reads nothing from the device, and its state keeps shapes and types."""
    table = make_table(n=5)
    model, none = model_of(backbone, table), torch.zeros(5, 2, dtype=torch.bool)
    sampler = model.sampler(4, solver)
    inpainting = InpaintingSampler(sampler, InpaintTask(batch_of(table), none, none))
    assert len(sampler.sigmas) > sampler.n_steps
    for each in (sampler, inpainting):
        with torch.no_grad():
            state, i = each.start(5, seeded()), torch.tensor(1)
            for move in (each.step, each.renoise):
                with NoReads():
                    new = move(state, i, seeded())
                assert type(new) is type(state)
                before, after = list(tensors(state)), list(tensors(new))
                assert [p.shape for p in after] == [p.shape for p in before]
                assert [p.dtype for p in after] == [p.dtype for p in before]


@every_solver
@pytest.mark.parametrize(("n_num", "cards"), [(2, (2, 4)), (2, ()), (0, (3, 2))])
def test_known_cells_are_returned_and_the_others_are_valid(
    make_table, backbone, solver, n_num, cards
):
    table = make_table(n=30, n_num=n_num, cards=cards)
    model, batch = model_of(backbone, table), batch_of(table)
    mask = torch.from_numpy(table.observed)
    known = InpaintTask(
        batch, mask[:, :n_num], mask[:, n_num:], rounds=2, resample_sigmas=(0.1, 3.0)
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
def test_inpainting_without_known_cells_is_plain_sampling(make_table, backbone, solver):
    table = make_table(n=30)
    model, none = model_of(backbone, table), torch.zeros(30, 2, dtype=torch.bool)
    sampler = model.sampler(5, solver)
    free = run_sampler(sampler, 30, seeded())
    known = InpaintTask(batch_of(table), none, none)
    rows, _ = inpaint(sampler, seeded(), known)
    assert torch.equal(free.num, rows.num)
    assert torch.equal(free.cat, rows.cat)


@every_solver
@pytest.mark.parametrize("reserved", [False, True])
def test_class_probs_are_collected_for_every_level_that_can_be_emitted(
    make_table, backbone, solver, reserved
):
    table = make_table(n=30, cards=(2, 5))
    if reserved:
        table = table.filled(
            table.num, table.cat, replace(table.layout, cards=(3, 6), reserved=True)
        )
    model, mask = model_of(backbone, table), torch.from_numpy(table.observed)
    known = InpaintTask(batch_of(table), mask[:, :2], mask[:, 2:], class_probs=True)
    rows, class_probs = inpaint(model.sampler(20, solver), seeded(), known)
    assert class_probs.shape == (30, 2 + 5)
    assert (class_probs >= 0).all()
    sums = torch.stack([class_probs[:, :2].sum(1), class_probs[:, 2:].sum(1)], 1)
    # equally often for every row and column, and at least once
    assert sums.min() > 0.99
    torch.testing.assert_close(sums, sums[:1, :1].expand_as(sums))
    # and collecting them does not change the rows
    without = InpaintTask(batch_of(table), mask[:, :2], mask[:, 2:])
    same, _ = inpaint(model.sampler(20, solver), seeded(), without)
    assert torch.equal(rows.num, same.num)
    assert torch.equal(rows.cat, same.cat)


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_renoise_returns_to_the_sigma_before_the_step(make_table, backbone):
    """Noise at sigmas[i + 1], raised, has the variance of noise at sigmas[i]."""
    table = make_table(n=40_000, n_num=1, cards=(3,))
    model = model_of(backbone, table)
    sampler = inpainting_sampler(model)
    zeros = Batch(torch.zeros(40_000, 1), torch.zeros(40_000, 1, dtype=torch.long))
    i = sampler.n_steps // 2
    with torch.no_grad():
        state = sampler.start(40_000, seeded())
        e = torch.randn(40_000, 1, generator=seeded(3))
        offset = map_tensors(
            lambda zero: e if zero.shape == e.shape else zero, sampler.offset(zeros)
        )
        every = torch.ones(40_000, 1, dtype=torch.bool)
        below, here = (
            sampler.apply_known(
                state,
                sampler.noise_known(zeros, offset, torch.tensor(k), seeded()),
                every,
                every,
            )
            for k in (i + 1, i)
        )
        raised = sampler.renoise(below, torch.tensor(i), seeded(4))
    assert raised.num.std().item() == pytest.approx(here.num.std().item(), rel=0.02)
    assert raised.num.std() > 1.01 * below.num.std()


def test_inpainting_takes_no_more_steps_than_there_are_timesteps(make_table):
    table = make_table()
    model = build_backbone("tabddpm", table.layout, 0, timesteps=7, **SIZES)
    assert inpainting_sampler(model).n_steps == 6


def test_a_backbone_without_a_sampler_cannot_inpaint():
    with pytest.raises(
        UsageError, match=r"needs the method sampler .* object lacks it"
    ):
        inpainting_sampler(object())
