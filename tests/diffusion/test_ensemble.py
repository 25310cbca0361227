"""Members of an ensemble are sampled in turn, and each as it would be alone."""

from __future__ import annotations

import pytest
import torch

from augmask.diffusion import BACKBONES, build_members
from augmask.diffusion.base import Batch
from augmask.diffusion.ensemble import Ensemble, EnsembleSampler
from augmask.diffusion.sampling import (
    InpaintTask,
    inpaint,
    inpainting_sampler,
    map_tensors,
)
from augmask.table.table import Layout

LAYOUT = Layout(("x", "y"), ("a",), (3,))
NETWORK = {"width": 16, "depth": 1, "time_width": 8}


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_a_single_member_is_no_ensemble():
    members, sampled = build_members("cdtd", LAYOUT, [5], **NETWORK)
    assert members == [sampled]


@pytest.mark.parametrize("backbone", list(BACKBONES))
@pytest.mark.parametrize("n", [1, 2, 7])
def test_rows_come_from_each_member_in_turn(backbone, n):
    members, both = build_members(backbone, LAYOUT, [1, 2, 3], **NETWORK)
    rows = both.sample(n, seeded(), steps=5)
    generator = seeded()
    k = min(n, 3)
    for i, member in enumerate(members[:k]):
        own = member.sample(len(range(i, n, k)), generator, steps=5)
        assert torch.equal(rows.num[i::k], own.num)
        assert torch.equal(rows.cat[i::k], own.cat)


@pytest.mark.parametrize("backbone", list(BACKBONES))
@pytest.mark.parametrize("n", [1, 5])
def test_known_cells_are_returned_and_the_others_are_sampled(backbone, n):
    _, both = build_members(backbone, LAYOUT, [1, 2], **NETWORK)
    num = torch.arange(2.0 * n).view(n, 2) / (2 * n)
    clean = Batch(num, torch.ones(n, 1, dtype=torch.long))
    known = torch.zeros(n, 2, dtype=torch.bool)
    known[:, 0] = True
    cells = InpaintTask(clean, known, torch.ones(n, 1, dtype=torch.bool))
    rows, _ = inpaint(inpainting_sampler(both), seeded(), cells)
    assert torch.equal(rows.num[:, 0], num[:, 0])
    assert torch.equal(rows.cat, clean.cat)
    assert not torch.equal(rows.num[:, 1], num[:, 1])


def test_the_sampler_has_the_attributes_of_the_members_samplers():
    members, both = build_members("cdtd", LAYOUT, [1, 2], **NETWORK)
    sampler = both.sampler(6, "dpmpp_2m")
    assert isinstance(both, Ensemble)
    assert isinstance(sampler, EnsembleSampler)
    assert (sampler.n_steps, sampler.deterministic) == (6, True)
    assert both.solvers == members[0].solvers


def test_an_ensemble_has_no_sampler_if_its_members_have_none():
    bare = Ensemble([torch.nn.Linear(1, 1)])
    assert not hasattr(bare, "sampler")


def test_selected_rows_stay_with_the_member_that_started_them():
    """`where` screens many starts and runs some of them again."""
    _, both = build_members("cdtd", LAYOUT, [1, 2, 3], **NETWORK)
    sampler, rows = both.sampler(5, "euler"), torch.tensor([0, 4, 5, 7])
    with torch.no_grad():
        for p in both.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=seeded()))
        starts = sampler.start(8, seeded())
        some = map_tensors(lambda part: part[rows], starts)
        step = torch.tensor(0)
        every = sampler.step(starts, step, seeded())
        same = sampler.for_rows(rows).step(some, step, seeded())
    torch.testing.assert_close(same.denoised_num, every.denoised_num[rows])
    wrong = sampler.step(some, step, seeded())
    assert not torch.allclose(wrong.denoised_num, every.denoised_num[rows])
