"""`paper` is what the paper prints; `auto` goes by the device."""

from __future__ import annotations

import inspect

import pytest

from augmask.diffusion import BACKBONES, keywords_of, resolve_backbone
from augmask.presets import OWN, PRESETS, resolve_preset

# Sections "Preprocessing", "Augmentation" and "Implementation" of the paper, and the
# published code that it refers to.
PRINTED = {
    "cdtd": {
        "network": {
            "width": 796,
            "depth": 5,
            "time_width": 256,
            "cat_width": 16,
            "low_noise": 3.0,
            "anchor": 0.0,
            "precondition": "cell",
        },
        "lr": 1e-3,
        "warmup": 1000,
        "beta2": 0.99,
        "ema": 0.999,
        "sampling_steps": 200,
        "sampler": "euler",
    },
    "tabdiff": {
        "network": {
            "width": 801,
            "depth": 5,
            "time_width": 256,
            "learnable": True,
            "anneal": True,
        },
        "lr": 1e-3,
        "ema": 0.997,
        "sampling_steps": 200,
        "sampler": "heun",
    },
    "tabddpm": {
        "network": {
            "width": 256,
            "depth": 3,
            "time_width": 128,
            "timesteps": 1000,
            "clip": 0.0,
            "normal_start": False,
        },
        "lr": 2e-4,
        "ema": 0.999,
        "sampling_steps": 1000,
        "sampler": "ancestral",
    },
}


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_paper_is_as_printed(backbone):
    _, settings, _ = resolve_preset("paper", "cuda", backbone)
    build = resolve_backbone(backbone)
    defaults = {k: p.default for k, p in inspect.signature(build).parameters.items()}
    printed = dict(PRINTED[backbone])
    network = defaults | dict(settings.network)
    wanted = printed.pop("network")
    assert {k: network[k] for k in wanted} == wanted
    assert (settings.solver or build.solvers[0]) == printed.pop("sampler")
    assert {k: getattr(settings, k) for k in printed} == printed
    # for all backbones alike
    assert (settings.steps, settings.batch_size) == (30_000, 4096)
    assert (settings.ties, settings.completions) == ("middle", "one")
    # no cell is kept from the loss, nothing stops early
    assert (settings.holdout, settings.patience) == (0.0, 0)


def test_best_has_the_papers_sizes():
    sizes = ("width", "depth", "time_width")
    for backbone in BACKBONES:
        paper, best = (resolve_preset(p, "", backbone)[1] for p in ("paper", "best"))
        for name in sizes:
            assert best.network[name] == paper.network[name]
        assert (best.steps, best.batch) == (paper.steps, paper.batch)
        assert (best.ties, best.completions) == ("spread", "stack:4")


def test_auto_goes_by_the_device():
    assert resolve_preset("auto", "cuda", "cdtd")[0] == "best"
    assert resolve_preset("auto", "mps", "cdtd")[0] == "best"
    assert resolve_preset("auto", "cpu", "cdtd")[0] == "fast"


def test_every_preset_knows_every_backbone_and_its_keywords():
    assert set(OWN) == set(PRESETS)
    for preset, own in OWN.items():
        assert set(own) == set(BACKBONES)
        for backbone in own:
            _, settings, _ = resolve_preset(preset, "cpu", backbone)
            assert set(settings.network) <= set(keywords_of(backbone))
