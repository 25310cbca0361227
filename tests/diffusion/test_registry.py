"""The registry of backbones, and the keywords that they accept."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

import pytest
import torch

from augmask.config import Settings, read_settings
from augmask.diffusion import (
    BACKBONES,
    build_backbone,
    check_sampler,
    keywords_of,
    resolve_backbone,
)
from augmask.errors import UsageError
from augmask.presets import BACKBONE_SETTINGS
from augmask.table.table import Layout
from augmask.validation import ValueSpec

if TYPE_CHECKING:
    from nowhere import TableLayout

Mode = Literal["fast", "slow"]
LAYOUT = Layout(("x",), ("c",), (3,))


class UserBackbone:
    """A user's backbone, whose layout is imported for type checking only."""

    def __init__(
        self,
        layout: TableLayout,
        *,
        width: int = 3,
        bias: bool = True,
        mode: Mode = "fast",
        other=None,
    ) -> None:
        pass


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_every_keyword_of_our_backbones_is_typed_and_bounded(backbone):
    for spec in keywords_of(backbone).values():
        assert spec.plain is not None or spec.choices
        if spec.plain in (int, float):
            assert spec.lowest is not None or spec.above is not None
        if spec.plain is int:
            assert spec.highest is not None


@pytest.mark.parametrize("backbone", list(BACKBONES))
@pytest.mark.parametrize("preset", list(BACKBONE_SETTINGS))
def test_presets_use_valid_keywords(backbone, preset):
    own = BACKBONE_SETTINGS[preset][backbone]
    settings = Settings().replace(own, keywords_of(backbone))
    assert {name: own[name] for name in settings.network} == settings.network


@pytest.mark.parametrize(
    ("backbone", "name", "text"),
    [
        *(("cdtd", "width", text) for text in ("-1", "0", "abc", "nan", "1e99", "1.5")),
        ("cdtd", "width", "100001"),
        ("cdtd", "depth", "0"),
        ("cdtd", "depth", "101"),
        ("cdtd", "depth", "x"),
        ("cdtd", "time_width", "1"),
        ("cdtd", "cat_width", "0"),
        ("cdtd", "low_noise", "0"),
        ("tabdiff", "anneal", "maybe"),
        ("tabdiff", "token_width", "-4"),
        ("tabddpm", "clip", "-1"),
        ("tabddpm", "clip", "inf"),
        ("tabddpm", "timesteps", "1e9"),
    ],
)
def test_invalid_keyword_values_are_refused(backbone, name, text):
    specs = keywords_of(backbone)
    options = read_settings({name: text}, specs)
    with pytest.raises(UsageError, match=f"^{name} must be"):
        Settings().replace(options, specs)


def test_annotations_of_a_users_backbone_are_used():
    assert keywords_of(UserBackbone) == {
        "width": ValueSpec(int),
        "bias": ValueSpec(bool),
        "mode": ValueSpec(None, ("fast", "slow")),
        "other": ValueSpec(),
    }
    texts = {"width": "-7", "bias": "no", "mode": "slow", "other": "3"}
    options = read_settings(texts, keywords_of(UserBackbone))
    assert options == {"width": -7, "bias": False, "mode": "slow", "other": 3}
    for wrong in ({"width": "7"}, {"bias": 0}, {"mode": "slower"}):
        with pytest.raises(UsageError, match=f"^{next(iter(wrong))} must be"):
            Settings().replace(wrong, keywords_of(UserBackbone))


def test_a_partial_has_the_annotations_of_its_function():
    specs = keywords_of(functools.partial(UserBackbone, width=9))
    assert specs is not None
    assert specs["bias"] == ValueSpec(bool)


def test_a_backbone_with_any_keywords_accepts_what_can_be_stored():
    def any_backbone(_layout, **_more): ...

    assert keywords_of(any_backbone) is None
    assert Settings().replace({"any": [1, "a"]}, None).network == {"any": [1, "a"]}
    with pytest.raises(UsageError, match=r"^any must be"):
        Settings().replace({"any": object()}, None)


def test_a_backbone_that_lacks_methods_is_refused_by_name():
    with pytest.raises(UsageError, match=r"no backbone 'cdtt'; did you mean 'cdtd'"):
        resolve_backbone("cdtt")
    with pytest.raises(UsageError, match="a backbone is a name, a class, or a module"):
        resolve_backbone(3)
    with pytest.raises(UsageError, match="and Linear lacks cell_loss, sample; see"):
        build_backbone(lambda _layout: torch.nn.Linear(1, 1), LAYOUT, 0)


def test_sampling_settings_are_checked_before_training():
    check_sampler("tabddpm", 50, "", timesteps=50)
    with pytest.raises(UsageError, match="between 1 and 50 for TabDDPM, got 51"):
        check_sampler("tabddpm", 51, "", timesteps=50)
    with pytest.raises(UsageError, match=r"solver must be one of .*got 'heun'"):
        check_sampler("cdtd", 50, "heun")


def test_a_module_is_copied_for_every_fit():
    module = build_backbone("cdtd", LAYOUT, 0, width=4, depth=1, time_width=2)
    one, two = (build_backbone(module, LAYOUT, seed) for seed in (1, 2))
    with torch.no_grad():
        one.embedding.zero_()
    assert module.embedding.any()
    assert torch.equal(two.embedding, module.embedding)
