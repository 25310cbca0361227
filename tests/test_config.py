"""Settings are checked when they are set, whatever they come from."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from augmask.config import (
    AT_MOST,
    COMPILE_ROWS,
    COMPILE_STEPS,
    STRATEGIES,
    SUPERVISE,
    Settings,
    check_int,
    read_settings,
)
from augmask.errors import UsageError
from augmask.validation import ValueSpec

PLAIN = [each.name for each in dataclasses.fields(Settings) if each.name != "network"]


def test_settings_are_frozen_and_changes_give_new_ones():
    settings = Settings()
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.steps = 3
    changed = settings.replace({"steps": 3, "lr": 1})
    assert (changed.steps, changed.lr) == (3, 1.0)
    assert settings == Settings()
    assert changed.replace({"steps": settings.steps, "lr": settings.lr}) == settings


def test_values_become_plain_python_values():
    """What numpy counts is as good, and a model file can hold it."""
    settings = Settings(steps=np.int64(7), lr=np.float32(0.5), validation_fraction=0)
    assert type(settings.steps) is int
    assert type(settings.lr) is float
    assert type(settings.validation_fraction) is float


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("value", [None, True, [1], "x", float("nan"), -1])
def test_no_setting_takes_a_value_of_another_type(name, value):
    if name in ("solver", "completions") and value == "x":
        pytest.skip("text is the right type")
    with pytest.raises(UsageError, match=f"{name} must be"):
        Settings(**{name: value})


BOUNDS = {
    "steps": (1, 10**9, 0, 10**9 + 1),
    "warmup": (0, 10**9, -1, 10**9 + 1),
    "batch_size": (1, 10**7, 0, 10**7 + 1),
    "sampling_steps": (1, 5_000, 0, 5_001),
    "sampling_batch": (1, 10**6, 0, 10**6 + 1),
    "patience": (0, 10**9, -1, 10**9 + 1),
    "validation_fraction": (0.0, 0.499, -0.001, 0.5),
    "ema": (0.001, 0.9999, 0.0, 1.0),
    "beta2": (0.001, 0.9999, 0.0, 1.0),
    "lr": (1e-9, 1e9, 0.0, 1e10),
    "max_device_gib": (0.0, 1e9, -1.0, 1e10),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_every_number_has_bounds(name):
    lowest, highest, below, above = BOUNDS[name]
    for value in (lowest, highest):
        assert getattr(Settings(**{name: value}), name) == value
    for value in (below, above):
        with pytest.raises(UsageError, match=f"{name} must be"):
            Settings(**{name: value})


def test_bounds_cover_every_number():
    numbers = {
        each.name
        for each in dataclasses.fields(Settings)
        if each.type in ("int", "float")
    }
    assert numbers == set(BOUNDS)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ties", ("midpoint", "dequantize")),
        ("extremes", ("far", "expected")),
        ("links", ("ignore", "keep")),
        ("matmul_precision", ("auto", "bf16", "tf32")),
        ("compile", ("auto", "always", "never")),
        ("completions", ("one", "stack:4", "cycle:10", "anchor:30:0.8")),
    ],
)
def test_named_choices(name, values):
    for value in values:
        assert getattr(Settings(**{name: value}), name) == value
    with pytest.raises(UsageError):
        Settings(**{name: "other"})


def test_keywords_of_the_network_are_checked_by_their_specs():
    keywords = {"width": ValueSpec(int, lowest=1), "bias": ValueSpec(bool)}
    settings = Settings().replace({"width": 8, "bias": False, "lr": 0.1}, keywords)
    assert settings.network == {"width": 8, "bias": False}
    # what was set before stays
    again = settings.replace({"width": 16}, keywords)
    assert again.network == {"width": 16, "bias": False}
    with pytest.raises(UsageError, match="width must be a whole number of at least 1"):
        settings.replace({"width": 0}, keywords)
    with pytest.raises(UsageError, match="no setting 'widht'; did you mean 'width'"):
        settings.replace({"widht": 8}, keywords)
    # a backbone that takes any keyword
    assert settings.replace({"colour": "red"}, None).network["colour"] == "red"


def test_text_is_read_by_the_type_of_its_setting():
    texts = {"steps": "12", "lr": "1e-3", "ties": "midpoint", "bias": "no", "x": "1.5"}
    values = read_settings(texts, {"bias": ValueSpec(bool)})
    assert values == {
        "steps": 12,
        "lr": 1e-3,
        "ties": "midpoint",
        "bias": False,
        "x": 1.5,
    }
    # what cannot be read stays text, which `replace` refuses
    assert read_settings({"steps": "many"}, None) == {"steps": "many"}


@pytest.mark.parametrize(
    ("compile_", "device", "steps", "expected"),
    [
        ("auto", "cuda", COMPILE_STEPS, True),
        ("auto", "cuda", COMPILE_STEPS - 1, False),
        ("auto", "cpu", COMPILE_STEPS, False),
        ("always", "cpu", 1, True),
        ("never", "cuda", COMPILE_STEPS, False),
    ],
)
def test_when_the_loss_is_compiled(compile_, device, steps, expected):
    assert Settings(compile=compile_, steps=steps).compiled(device) is expected


def test_when_the_sampler_is_compiled():
    auto = Settings()
    assert auto.compiled_sampling("cuda", COMPILE_ROWS)
    assert not auto.compiled_sampling("cuda", COMPILE_ROWS - 1)
    assert not auto.compiled_sampling("cpu", COMPILE_ROWS)
    assert Settings(compile="always").compiled_sampling("cpu", 1)
    assert not Settings(compile="never").compiled_sampling("cuda", COMPILE_ROWS)


def test_the_strategies_are_those_of_the_paper():
    assert STRATEGIES == {
        "NoAug": ("mean", "all"),
        "AugFull": ("lgbm-s", "all"),
        "AugMask": ("lgbm-s", "observed"),
    }
    assert {supervise for _, supervise in STRATEGIES.values()} == set(SUPERVISE)


@pytest.mark.parametrize("value", [-1, 1.0, True, "3", None, 10**40, np.zeros(2)])
def test_integer_parameters_are_refused_in_one_sentence(value):
    with pytest.raises(UsageError, match="seed must be a whole number of at least 0"):
        check_int("seed", value, 0)


def test_integer_parameters_become_int():
    assert type(check_int("n", np.int32(4), 1)) is int
    assert check_int("seed", AT_MOST["seed"], 0) == 2**64 - 1
    assert check_int("anything", 10**30, 0) == 10**30
