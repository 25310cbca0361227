"""`paper` is what the paper prints; `auto` goes by device and size of the table."""

from __future__ import annotations

import inspect

import pytest

from augmask.config import Settings
from augmask.diffusion import BACKBONES, keywords_of, resolve_backbone
from augmask.errors import UsageError
from augmask.presets import (
    BACKBONE_SETTINGS,
    MOST_STARTED,
    PRESETS,
    SMALL_MEMBERS,
    SMALL_ROWS,
    STARTED_STEPS,
    AutoChoice,
    choose_for_size,
    choose_for_width,
    resolve_preset,
)

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
    assert (settings.ties, settings.completions) == ("midpoint", "one")
    # no cell is kept from the loss, nothing stops early
    assert (settings.validation_fraction, settings.patience) == (0.0, 0)


def test_best_has_the_papers_sizes():
    sizes = ("width", "depth", "time_width")
    for backbone in BACKBONES:
        paper, best = (resolve_preset(p, "", backbone)[1] for p in ("paper", "best"))
        for name in sizes:
            assert best.network[name] == paper.network[name]
        assert (best.steps, best.batch_size) == (paper.steps, paper.batch_size)
        assert (best.ties, best.completions) == ("dequantize", "stack:4")


def test_auto_goes_by_the_device():
    assert resolve_preset("auto", "cuda", "cdtd")[0] == "best"
    assert resolve_preset("auto", "mps", "cdtd")[0] == "best"
    assert resolve_preset("auto", "cpu", "cdtd")[0] == "fast"


def test_every_preset_knows_every_backbone_and_its_keywords():
    assert set(BACKBONE_SETTINGS) == set(PRESETS)
    for preset, own in BACKBONE_SETTINGS.items():
        assert set(own) == set(BACKBONES)
        for backbone in own:
            _, settings, _ = resolve_preset(preset, "cpu", backbone)
            assert set(settings.network) <= set(keywords_of(backbone))


def test_an_unknown_preset_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match="no preset 'fats'; did you mean 'fast'"):
        resolve_preset("fats", "cpu", "cdtd")


# -- small tables --------------------------------------------------------------


def choice(rows: int, observed: int | None = None, **changes) -> AutoChoice:
    arguments = {"device": "cpu", "backbone": "cdtd", "coordinates": 9} | changes
    return choose_for_size(
        rows, 5 * rows if observed is None else observed, **arguments
    )


def test_steps_grow_with_the_observed_cells_and_end_where_tables_are_not_small():
    steps = [
        choice(500, observed).settings["steps"]
        for observed in (100, 3_000, 5_000, 20_000)
    ]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]
    assert choice(SMALL_ROWS - 1).ensemble == SMALL_MEMBERS
    assert choice(SMALL_ROWS) == AutoChoice()


def test_all_members_together_take_no_more_rows_than_the_preset_alone():
    _, fast, _ = resolve_preset("fast", "cpu", "cdtd")
    largest = choice(SMALL_ROWS - 1, observed=10**6)
    rows = largest.settings["steps"] * largest.settings["batch_size"]
    assert largest.ensemble * rows <= fast.steps * fast.batch_size


def test_options_of_the_user_stay():
    changed = choice(200, options=("batch_size",)).settings
    assert "batch_size" not in changed
    assert "validation_fraction" in changed
    # the steps are the budget: no further members are trained with it
    assert choice(200, options=("steps",)) == AutoChoice()


@pytest.mark.parametrize("backbone", [*BACKBONES, None])
def test_the_changes_apply_to_every_backbone(backbone):
    changes = choice(200, backbone=backbone).settings
    # no keyword of one backbone, which another would refuse
    settings = Settings().replace(changes, keywords_of(backbone) if backbone else ())
    applied = {**vars(settings), **settings.network}
    assert {name: applied[name] for name in changes} == changes
    assert settings.steps < Settings().steps


def test_a_linear_model_of_all_columns_needs_a_cpu_and_few_levels():
    assert choice(200).settings["precondition"] == "joint"
    for others in (
        {"backbone": "tabddpm"},
        {"device": "cuda"},
        {"coordinates": 2_000},
        {"options": ("precondition",)},
    ):
        assert "precondition" not in choice(200, **others).settings


def test_a_network_that_starts_from_the_table_takes_fewer_steps():
    short = choice(200).settings
    assert short["steps"] == STARTED_STEPS[0][1]
    assert short["warmup"] < short["steps"]
    for others in ({"backbone": "tabddpm"}, {"device": "cuda"}):
        assert choice(200, **others).settings["steps"] > short["steps"]


@pytest.mark.parametrize("preset", ["fast", "balanced"])
def test_a_very_wide_table_is_not_started_from(preset):
    """Its correlations, and a direct path from all to all, take gigabytes."""
    _, settings, _ = resolve_preset(preset, "cpu", "cdtd")
    assert choose_for_width(MOST_STARTED, settings) == {}
    wide = choose_for_width(MOST_STARTED + 1, settings)
    assert wide == {"precondition": "cell"}
    assert choose_for_width(MOST_STARTED + 1, settings, ["precondition"]) == {}


@pytest.mark.parametrize(
    ("preset", "backbone"), [("paper", "cdtd"), ("fast", "tabdiff")]
)
def test_what_grows_with_the_width_only_is_left_alone(preset, backbone):
    _, settings, _ = resolve_preset(preset, "cpu", backbone)
    assert choose_for_width(10**6, settings) == {}
