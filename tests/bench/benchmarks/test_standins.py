"""Stand-ins compute what our backbones compute: same rows, weights and noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from standins.cdtd import CDTDStandIn
from standins.cdtd import Draws as CDTDDraws
from standins.tabddpm import Draws as TabDDPMDraws
from standins.tabddpm import TabDDPMStandIn
from standins.tabdiff import Draws as TabDiffDraws
from standins.tabdiff import TabDiffStandIn

from augmask.diffusion import build_backbone
from augmask.diffusion.base import Batch
from augmask.diffusion.random_draws import ReplayRNG, log_time
from augmask.diffusion.tabddpm import cosine_signal
from augmask.table.table import Layout

ROWS = 64
SIZES = {"width": 16, "depth": 2, "time_width": 8}
MIXED = Layout(("a", "b", "c"), ("d", "e", "f"), (2, 5, 3))
STAND_INS = {"cdtd": CDTDStandIn, "tabdiff": TabDiffStandIn, "tabddpm": TabDDPMStandIn}


def backbone_of(name: str, layout: Layout, **more):
    """Return a float64 backbone whose every weight has moved away from its start."""
    model = build_backbone(name, layout, 0, **SIZES, **more)
    generator = torch.Generator().manual_seed(1)
    model.double()
    with torch.no_grad():
        for p in model.parameters():
            step = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            p.add_(0.1 * step)
    return model


def batch_of(layout: Layout) -> Batch:
    rng = np.random.default_rng(2)
    num = torch.from_numpy(rng.normal(size=(ROWS, layout.n_num)))
    cat = torch.from_numpy(rng.integers(0, layout.cards, (ROWS, layout.n_cat)))
    return Batch(num, cat)


def draws_of(*shapes: tuple[int, ...], uniform: tuple[int, ...] = ()) -> list:
    """Return draws of these shapes, normal unless their number says otherwise."""
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.rand if i in uniform else torch.randn)(
            shape, generator=generator, dtype=torch.float64
        )
        for i, shape in enumerate(shapes)
    ]


def times(start: torch.Tensor) -> torch.Tensor:
    return (start + torch.arange(ROWS, dtype=torch.float64) / ROWS) % 1.0


def same_gradients(pairs) -> None:
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-8)
        assert ours.grad.abs().max() > 0


def cdtd_losses(layout: Layout):
    ours = backbone_of("cdtd", layout)
    theirs = CDTDStandIn(ours, layout.cards)
    batch = batch_of(layout)
    start, num, cat = draws_of(
        (), (ROWS, layout.n_num), (ROWS, layout.n_cat, 16), uniform=(0,)
    )
    cell = ours.cell_loss(
        batch, ReplayRNG([times(start), log_time(times(start)), num, cat])
    )
    main, warp, weight = theirs.losses(*batch, CDTDDraws(times(start), cat, num))
    # the stand-in has categories first
    order = [*range(layout.n_cat, layout.n_features), *range(layout.n_cat)]
    return ours, theirs, batch, cell, (main[:, order], warp, weight)


def test_cdtd_has_our_denoising_loss_and_its_gradients():
    ours, theirs, _, cell, (main, _, _) = cdtd_losses(MIXED)
    torch.testing.assert_close(main, cell.main, rtol=1e-6, atol=1e-8)
    cell.main.mean().backward()
    main.mean().backward()
    same_gradients(
        [
            (ours.net.project.weight, theirs.project.weight),
            (ours.net.hidden[0].weight, theirs.hidden[0].weight),
            (ours.embedding, theirs.embedding.weight),
        ]
    )


def test_cdtd_fits_its_warp_to_row_means_of_each_kind():
    # with one column of each kind a mean over columns is the cell itself
    _, _, _, cell, (_, warp, _) = cdtd_losses(Layout(("a",), ("b",), (4,)))
    # categories first
    torch.testing.assert_close(warp.flip(1), cell.aux["warp"], rtol=1e-5, atol=1e-9)


def test_cdtd_fits_its_weights_to_every_row_of_the_batch_as_published():
    ours, _, _, cell, (_, _, weight) = cdtd_losses(MIXED)
    start, *_ = draws_of((), uniform=(0,))
    rho = ours.log_weight(0.25 * log_time(times(start))).exp()
    means = (cell.main * rho[:, None]).mean(1)
    assert weight.shape == (ROWS, ROWS)
    expected = (rho[:, None] - means[None]).square()
    torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-8)


def test_tabddpm_has_our_loss_and_its_gradients():
    ours = backbone_of("tabddpm", MIXED, log_onehot=True)
    theirs = TabDDPMStandIn(ours, MIXED.cards)
    batch = batch_of(MIXED)
    start, noise, stay, level = draws_of(
        (), (ROWS, 3), (ROWS, 3), (ROWS, 3), uniform=(0, 2, 3)
    )
    cell = ours.cell_loss(batch, ReplayRNG([times(start), noise, stay, level]))
    t = (times(start) * 1000).long()
    signal = torch.from_numpy(cosine_signal(1000))[t]
    other = (level * torch.tensor(MIXED.cards)).long()
    codes = torch.where(stay < signal[:, None], batch.cat, other)
    log_cat = theirs.log_onehot(codes)
    multi, gauss = theirs.losses(*batch, TabDDPMDraws(t, noise, log_cat))
    # one running sum over all columns loses digits: see the specification, 4.8
    torch.testing.assert_close(gauss, cell.main[:, :3].mean(1), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(multi, cell.main[:, 3:].mean(1), rtol=1e-5, atol=1e-5)
    cell.main[:, :3].mean().add(cell.main[:, 3:].mean()).backward()
    gauss.mean().add(multi.mean()).backward()
    torch.testing.assert_close(
        ours.hidden[0].weight.grad, theirs.hidden[0].weight.grad, rtol=1e-4, atol=1e-6
    )


def test_tabdiff_has_our_loss_and_its_gradients():
    ours = backbone_of("tabdiff", MIXED)
    theirs = TabDiffStandIn(ours, MIXED.cards)
    batch = batch_of(MIXED)
    start, noise, coin = draws_of((), (ROWS, 3), (ROWS, 3), uniform=(0, 2))
    cell = ours.cell_loss(batch, ReplayRNG([times(start), noise, coin]))
    # two Gumbels differ by a logistic draw
    gumbels = [
        torch.stack([torch.zeros_like(u), torch.logit(u)], 1) for u in coin.unbind(1)
    ]
    draws = TabDiffDraws(times(start), noise, gumbels)
    categories, numbers = theirs.losses(*batch, draws)
    theirs_cells = torch.cat([numbers, categories], 1)
    torch.testing.assert_close(theirs_cells, cell.main, rtol=1e-6, atol=1e-8)
    cell.main.mean().backward()
    theirs_cells.mean().backward()
    same_gradients(
        [
            (ours.net.project.weight, theirs.project.weight),
            (ours.net.encoder[1].up.weight, theirs.encoder[1].up.weight),
            (ours.schedules.raw_r, theirs.raw_r),
        ]
    )


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("name", STAND_INS)
def test_stand_ins_train_and_sample_complete_rows(name, monkeypatch):
    monkeypatch.setattr("standins.tabdiff.WORKERS", 0)
    ours = build_backbone(name, MIXED, 0, **SIZES)
    theirs = STAND_INS[name](ours, MIXED.cards)
    num, cat = batch_of(MIXED)
    before = [p.detach().clone() for p in theirs.parameters()]
    sampler = theirs.steps(num.float(), cat, 16)
    for _ in range(5):  # one more than a pass
        next(sampler)
    assert all(p.isfinite().all() for p in theirs.parameters())
    after = list(theirs.parameters())
    moved = [not torch.equal(p, q) for p, q in zip(after, before, strict=True)]
    assert sum(moved) > len(moved) // 2
    num, cat = theirs.sample(7, 1000 if name == "tabddpm" else 5)
    assert num.shape == cat.shape == (7, 3)
    assert num.isfinite().all()
    assert (cat >= 0).all()
    assert (cat < torch.tensor(MIXED.cards)).all()
