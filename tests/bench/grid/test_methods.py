"""Methods: what strategies imply, what generators need, what identifies a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from augmask.augmentation import AUGMENTERS, resolve_augmenter
from augmask.augmentation.boosted import LgbmS
from augmask.diffusion import keywords_of, resolve_backbone
from augmask.errors import UsageError
from augmask.presets import BACKBONE_SETTINGS, PRESETS
from augmask_bench.generators import Generated, Generator
from augmask_bench.methods import (
    GENERATORS,
    Method,
    complete_method,
    find_generator,
)


@pytest.mark.parametrize("generator", ["cdtd", "tabdiff", "tabddpm"])
def test_strategies_are_pairs_of_augmenter_and_supervision(generator):
    settings = {
        name: (full.augmenter, full.supervise, full.completions)
        for name in ("NoAug", "AugFull", "AugMask")
        for full in [complete_method(Method(generator, name))]
    }
    assert settings == {
        "NoAug": ("mean", "all", "one"),
        "AugFull": ("lgbm-s", "all", "one"),
        "AugMask": ("lgbm-s", "observed", "one"),
    }


def test_labels_distinguish_methods():
    def label(**settings):
        return complete_method(Method(**settings)).label

    mask = {"generator": "tabdiff", "strategy": "AugMask"}
    assert label(**mask) == "TabDiff + AugMask"
    assert label(**mask, completions="stack:4") == "TabDiff + AugMask (stack:4)"
    assert label(**mask, augmenter="ecdf") == "TabDiff + AugMask (ECDF)"
    perturbed = label(**mask, eta=0.5, lam=0.0)
    assert perturbed == "TabDiff + AugMask (eta 0.5, lam 0)"
    assert label(generator="fill", augmenter="lgbm-s") == "fill: LGBM-S"
    assert label(**mask, label="mine") == "mine"


def test_identity_contains_all_settings_and_no_names(monkeypatch):
    method = complete_method(Method("cdtd", "AugMask", preset="fast"))
    same = [
        replace(method, label="other"),
        replace(method, strategy="mine"),
        # the preset's value, set explicitly
        replace(method, options=(("lr", 2e-3),)),
    ]
    assert all(other.identity() == method.identity() for other in same)
    others = [
        replace(method, augmenter="ecdf"),
        replace(method, supervise="all"),
        replace(method, completions="stack:2"),
        replace(method, eta=0.5),
        replace(method, preset="balanced"),
        replace(method, options=(("width", 8),)),
        replace(method, generator="tabddpm"),
    ]
    assert all(other.identity() != method.identity() for other in others)
    before = method.identity()
    newer = replace(GENERATORS["cdtd"], version="newer")
    monkeypatch.setitem(GENERATORS, "cdtd", newer)
    assert method.identity() != before
    monkeypatch.undo()
    changed = PRESETS["fast"].replace({"batch_size": 7})
    monkeypatch.setitem(PRESETS, "fast", changed)
    assert method.identity() != before


@pytest.mark.parametrize("generator", ["cdtd", "tabdiff", "tabddpm"])
def test_identity_contains_the_defaults_of_a_backbone(generator, monkeypatch):
    method = complete_method(Method(generator, "AugMask"))
    before = method.identity()
    network = before["settings"]["network"]
    assert network.keys() == set(keywords_of(generator))
    # an explicit default is the same run
    written = {**network, "solver": before["settings"]["solver"]}
    for option in written.items():
        assert replace(method, options=(option,)).identity() == before
    published = resolve_backbone(generator).solvers[0]
    explicit, default = (
        replace(method, options=(("solver", solver),)) for solver in (published, "")
    )
    assert explicit.identity() == default.identity()
    integer = replace(method, options=(("lr", 1),))
    assert integer.identity() == replace(method, options=(("lr", 1.0),)).identity()
    # a changed default gives another run
    built = resolve_backbone(generator)
    name = next(
        n
        for n, v in network.items()
        if n not in dict(BACKBONE_SETTINGS["paper"][generator])
    )
    changed = {**built.__init__.__kwdefaults__, name: "another"}
    monkeypatch.setattr(built.__init__, "__kwdefaults__", changed)
    assert method.identity() != before


def test_identity_contains_the_augmenter_s_version_and_settings(monkeypatch):
    method = complete_method(Method("cdtd", "AugMask"))
    before = method.identity()
    monkeypatch.setattr(LgbmS, "version", "newer")
    assert method.identity() != before
    monkeypatch.undo()
    monkeypatch.setitem(AUGMENTERS, "lgbm-s", lambda: LgbmS(learn_rows=7))
    assert method.identity() != before
    # the number of processes does not change the result
    monkeypatch.setitem(AUGMENTERS, "lgbm-s", lambda: LgbmS(n_jobs=7))
    assert method.identity() == before


@pytest.mark.parametrize("name", AUGMENTERS)
def test_every_augmenter_declares_a_version(name):
    assert isinstance(resolve_augmenter(name).version, str)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Method("cdtd", "AugMaks"), "did you mean 'AugMask'"),
        (Method("cdtd", "AugMask", augmenter="lgbms"), "did you mean 'lgbm-s'"),
        (Method("cdtd", "AugMask", supervise="seen"), "supervise must be one of"),
        (Method("cdtd", "AugMask", completions="pile"), "completions must be"),
        (Method("cdtd", "NoAug", eta=0.5), "applies to LightGBM augmenters only"),
        (Method("fill", "AugMask", augmenter="mean"), "takes no strategy"),
        (Method("fill"), "set augmenter"),
    ],
)
def test_invalid_methods_are_refused(method, message):
    with pytest.raises(UsageError, match=message):
        complete_method(method)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Method("cdtd", options=(("stepps", 3),)), "did you mean 'steps'"),
        (Method("cdtd", options=(("solver", "magic"),)), "solver must be one of"),
        (Method("cdtd", preset="auto"), "must not be 'auto'"),
    ],
)
def test_options_are_checked_before_a_grid_starts(method, message):
    with pytest.raises(UsageError, match=message):
        find_generator("cdtd").check(method)


def test_a_generator_reports_what_is_missing(monkeypatch):
    def generate(request):
        return Generated(request.table)

    assert Generator("a", "A", generate).why_unavailable() == ""
    reason = Generator("a", "A", generate, package="no_such_package").why_unavailable()
    assert "no_such_package" in reason
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "GPU" in Generator("a", "A", generate, gpu=True).why_unavailable()
    assert "GPU" in find_generator("cdtd").why_unavailable("cuda")
    assert find_generator("cdtd").why_unavailable("cpu") == ""
    # an augmenter alone does not use the device of the plan
    assert find_generator("fill").why_unavailable("cuda") == ""
