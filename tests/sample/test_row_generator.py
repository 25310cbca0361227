from __future__ import annotations

import numpy as np
import pytest
import torch

from augmask.config import Settings
from augmask.diffusion import BACKBONES, build_backbone
from augmask.presets import BACKBONE_SETTINGS
from augmask.sample.row_generator import complete_rows, generate_batches
from augmask.table.table import Layout

CPU = torch.device("cpu")
SETTINGS = Settings(sampling_batch=10, sampling_steps=3)


class Echo:
    """A backbone whose rows are its noise."""

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


def generate(n, seed=0):
    rows = list(generate_batches(Echo(), n, seed, SETTINGS, CPU))
    return np.concatenate([r.num for r in rows])


@pytest.mark.parametrize(("n", "sizes"), [(1, [1]), (10, [10]), (23, [10, 10, 3])])
def test_rows_come_in_batches(n, sizes):
    backbone, reports = Echo(), []
    rows = list(
        generate_batches(
            backbone, n, 0, SETTINGS, CPU, lambda *report: reports.append(report[:3])
        )
    )
    assert backbone.sizes == sizes
    assert [r.start for r in rows] == list(range(0, n, 10))
    assert reports[-1] == ("sample", n, n)


def test_batches_differ():
    rows = generate(40)
    assert len(np.unique(rows, axis=0)) == 40


def test_full_batches_do_not_depend_on_the_number_of_rows():
    assert np.array_equal(generate(40)[:20], generate(20))


def test_the_seed_decides():
    assert np.array_equal(generate(15, seed=3), generate(15, seed=3))
    assert not np.array_equal(generate(15, seed=3), generate(15, seed=4))
    # no batch of one seed is a batch of the next seed
    both = np.concatenate([generate(30, seed=3), generate(30, seed=4)])
    assert len(np.unique(both, axis=0)) == 60


def test_batches_are_generated_lazily():
    backbone = Echo()
    rows = generate_batches(backbone, 10**12, 0, SETTINGS, CPU)
    assert backbone.sizes == []
    next(rows)
    assert backbone.sizes == [10]


@pytest.mark.parametrize("solver", ["", "heun"])
def test_the_backbone_chooses_the_solver_unless_the_settings_do(solver):
    backbone = Echo()
    settings = SETTINGS.replace({"solver": solver})
    list(generate_batches(backbone, 3, 0, settings, CPU))
    assert backbone.options == ({"solver": solver} if solver else {})


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_a_compiled_step_generates_the_same_rows(backbone, monkeypatch):
    # torch guarantees that compilation keeps the numbers; this tests the noise
    monkeypatch.setattr(torch, "compile", lambda f, **_: f)
    layout = Layout(("x",), ("a",), (3,))
    network = {"width": 8, "depth": 1, "time_width": 8}
    model = build_backbone(backbone, layout, 0, **network)
    plain = SETTINGS.replace({"sampling_batch": 20})
    compiled = plain.replace({"compile": "always"})
    for a, b in zip(
        generate_batches(model, 50, 0, plain, CPU),
        generate_batches(model, 50, 0, compiled, CPU),
        strict=True,
    ):
        np.testing.assert_array_equal(a.num, b.num)
        np.testing.assert_array_equal(a.cat, b.cat)


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_all_missing_patterns_are_completed_in_one_pass(
    make_table, backbone, monkeypatch
):
    table = make_table(n=300, n_num=6, cards=(2, 3, 4, 2, 2, 3))
    model = build_backbone(backbone, table.layout, 0, width=8, depth=1, time_width=4)
    model.init_from_data(table)
    assert len(np.unique(table.observed, axis=0)) > 250
    calls, name = [], "predict" if backbone == "tabddpm" else "denoise"
    inner = getattr(model, name)
    monkeypatch.setattr(
        model, name, lambda x, *a: (calls.append(len(x)), inner(x, *a))[1]
    )
    num, cat, _ = complete_rows(
        model, table.num, table.cat, table.observed, torch.Generator().manual_seed(0)
    )
    # one pass for all patterns, with fewer network calls than three samplings
    assert set(calls) == {300}
    assert len(calls) < 3 * BACKBONE_SETTINGS["fast"][backbone]["sampling_steps"]
    num_known, cat_known = table.num_observed, table.cat_observed
    np.testing.assert_array_equal(num[num_known], table.num[num_known].astype("f4"))
    np.testing.assert_array_equal(cat[cat_known], table.cat[cat_known])
    assert np.isfinite(num).all()
    assert ((cat >= 0) & (cat < table.layout.cards)).all()
