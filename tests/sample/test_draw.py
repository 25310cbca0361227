from __future__ import annotations

import numpy as np
import pytest
import torch

from augmask.config import Settings
from augmask.diffusion import BACKBONES, build_backbone
from augmask.sample.draw import draw_batches
from augmask.table.table import Layout

CPU = torch.device("cpu")
SETTINGS = Settings(sampling_batch=10, sampling_steps=3)


class Echo:
    """A backbone whose rows are the noise that it was given."""

    def __init__(self):
        self.sizes = []

    def modules(self):
        return iter(())

    def sample(self, n, generator, steps, **options):
        assert steps == SETTINGS.sampling_steps
        self.options = options
        self.sizes.append(n)
        noise = torch.randn(n, 2, generator=generator)
        return noise, torch.randint(5, (n, 1), generator=generator)


def drawn(n, seed=0):
    rows = list(draw_batches(Echo(), n, seed, SETTINGS, CPU))
    return np.concatenate([r.num for r in rows])


@pytest.mark.parametrize(("n", "sizes"), [(1, [1]), (10, [10]), (23, [10, 10, 3])])
def test_any_number_in_batches(n, sizes):
    backbone, reports = Echo(), []
    rows = list(
        draw_batches(
            backbone, n, 0, SETTINGS, CPU, lambda *report: reports.append(report[:3])
        )
    )
    assert backbone.sizes == sizes
    assert [r.start for r in rows] == list(range(0, n, 10))
    assert reports[-1] == ("sample", n, n)


def test_no_batch_repeats_another():
    rows = drawn(40)
    assert len(np.unique(rows, axis=0)) == 40


def test_whole_batches_stay_when_more_rows_are_asked_for():
    assert np.array_equal(drawn(40)[:20], drawn(20))


def test_the_seed_decides():
    assert np.array_equal(drawn(15, seed=3), drawn(15, seed=3))
    assert not np.array_equal(drawn(15, seed=3), drawn(15, seed=4))
    # a batch of one seed must not be another batch of the next seed
    both = np.concatenate([drawn(30, seed=3), drawn(30, seed=4)])
    assert len(np.unique(both, axis=0)) == 60


def test_nothing_is_drawn_before_it_is_asked_for():
    backbone = Echo()
    rows = draw_batches(backbone, 10**12, 0, SETTINGS, CPU)
    assert backbone.sizes == []
    next(rows)
    assert backbone.sizes == [10]


@pytest.mark.parametrize("solver", ["", "heun"])
def test_only_a_chosen_solver_is_passed_on(solver):
    backbone = Echo()
    settings = SETTINGS.replace({"solver": solver})
    list(draw_batches(backbone, 3, 0, settings, CPU))
    assert backbone.options == ({"solver": solver} if solver else {})


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_a_fused_step_draws_the_same_rows(backbone, monkeypatch):
    # that a compiler keeps the numbers is torch's promise; this is about the noise
    monkeypatch.setattr(torch, "compile", lambda f, **_: f)
    layout = Layout(("x",), ("a",), (3,))
    network = {"width": 8, "depth": 1, "time_width": 8}
    model = build_backbone(backbone, layout, 0, **network)
    plain = SETTINGS.replace({"sampling_batch": 20})
    fused = plain.replace({"compile": "always"})
    for a, b in zip(
        draw_batches(model, 50, 0, plain, CPU),
        draw_batches(model, 50, 0, fused, CPU),
        strict=True,
    ):
        np.testing.assert_array_equal(a.num, b.num)
        np.testing.assert_array_equal(a.cat, b.cat)
