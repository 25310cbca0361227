"""What backbones can be built with."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

import pytest

from augmask.config import Settings, read_settings
from augmask.diffusion import BACKBONES, keywords_of
from augmask.errors import UsageError
from augmask.presets import OWN
from augmask.validation import ValueSpec

if TYPE_CHECKING:
    from nowhere import Layout

Mode = Literal["fast", "slow"]


class Own:
    """A backbone of a user, whose layout is named for a type checker only."""

    def __init__(
        self,
        layout: Layout,
        *,
        width: int = 3,
        bias: bool = True,
        mode: Mode = "fast",
        other=None,
    ) -> None:
        pass


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_every_keyword_of_ours_is_typed_and_bounded(backbone):
    for kind in keywords_of(backbone).values():
        assert kind.plain is not None or kind.choices
        if kind.plain in (int, float):
            assert kind.lowest is not None or kind.above is not None
        if kind.plain is int:
            assert kind.highest is not None


@pytest.mark.parametrize("backbone", list(BACKBONES))
@pytest.mark.parametrize("preset", list(OWN))
def test_presets_keep_to_it(backbone, preset):
    own = OWN[preset][backbone]
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
def test_what_no_network_can_have_is_refused(backbone, name, text):
    kinds = keywords_of(backbone)
    options = read_settings({name: text}, kinds)
    with pytest.raises(UsageError, match=f"^{name} must be"):
        Settings().replace(options, kinds)


def test_the_annotations_of_a_users_backbone_count():
    assert keywords_of(Own) == {
        "width": ValueSpec(int),
        "bias": ValueSpec(bool),
        "mode": ValueSpec(None, ("fast", "slow")),
        "other": ValueSpec(),
    }
    texts = {"width": "-7", "bias": "no", "mode": "slow", "other": "3"}
    options = read_settings(texts, keywords_of(Own))
    assert options == {"width": -7, "bias": False, "mode": "slow", "other": 3}
    for wrong in ({"width": "7"}, {"bias": 0}, {"mode": "slower"}):
        with pytest.raises(UsageError, match=f"^{next(iter(wrong))} must be"):
            Settings().replace(wrong, keywords_of(Own))


def test_a_partial_has_the_annotations_of_what_it_calls():
    kinds = keywords_of(functools.partial(Own, width=9))
    assert kinds is not None
    assert kinds["bias"] == ValueSpec(bool)


def test_a_backbone_that_takes_any_keyword_takes_what_can_be_stored():
    def any_backbone(_layout, **_more): ...

    assert keywords_of(any_backbone) is None
    assert Settings().replace({"any": [1, "a"]}, None).network == {"any": [1, "a"]}
    with pytest.raises(UsageError, match=r"^any must be"):
        Settings().replace({"any": object()}, None)
