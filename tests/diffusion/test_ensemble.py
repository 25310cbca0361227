"""Members are sampled from in turn, and each draws as it would alone."""

from __future__ import annotations

import pytest
import torch

from augmask.diffusion import BACKBONES, build_members
from augmask.diffusion.base import Batch
from augmask.diffusion.ensemble import Ensemble, EnsembleSampler
from augmask.diffusion.sampling import Known, inpaint, inpainting_sampler
from augmask.table.table import Layout

LAYOUT = Layout(("x", "y"), ("a",), (3,))
NETWORK = {"width": 16, "depth": 1, "time_width": 8}


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_one_member_is_no_ensemble():
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
def test_known_cells_come_back_and_the_others_are_drawn(backbone, n):
    _, both = build_members(backbone, LAYOUT, [1, 2], **NETWORK)
    num = torch.arange(2.0 * n).view(n, 2) / (2 * n)
    clean = Batch(num, torch.ones(n, 1, dtype=torch.long))
    known = torch.zeros(n, 2, dtype=torch.bool)
    known[:, 0] = True
    cells = Known(clean, known, torch.ones(n, 1, dtype=torch.bool))
    rows, _ = inpaint(inpainting_sampler(both), seeded(), cells)
    assert torch.equal(rows.num[:, 0], num[:, 0])
    assert torch.equal(rows.cat, clean.cat)
    assert not torch.equal(rows.num[:, 1], num[:, 1])


def test_a_way_has_what_the_members_ways_have():
    members, both = build_members("cdtd", LAYOUT, [1, 2], **NETWORK)
    sampler = both.sampler(6, "dpmpp_2m")
    assert isinstance(both, Ensemble)
    assert isinstance(sampler, EnsembleSampler)
    assert (sampler.n_steps, sampler.drawn_at_start) == (6, True)
    assert both.solvers == members[0].solvers


def test_what_no_member_has_an_ensemble_has_not():
    bare = Ensemble([torch.nn.Linear(1, 1)])
    assert not hasattr(bare, "sampler")
