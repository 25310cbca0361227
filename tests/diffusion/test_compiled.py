"""The same step by fused kernels, and as it is where none can be made."""

from __future__ import annotations

import pytest
import torch

from augmask.diffusion.compiled import Compiled
from augmask.diffusion.noise import RecordingRNG, ReplayRNG, uniform_like

PAIR = torch.zeros(2)


def expected_draws(count: int) -> list[float]:
    generator = torch.Generator().manual_seed(3)
    return [uniform_like(PAIR, generator).sum().item() for _ in range(count)]


def losses_of(compiled: Compiled, count: int) -> list[float]:
    generator = torch.Generator().manual_seed(3)
    return [compiled(generator, PAIR) for _ in range(count)]


def drawn_sum(noise, pair) -> float:
    return uniform_like(pair, noise).sum().item()


def drawn_by_hand(noise, pair) -> float:
    return torch.rand(pair.shape, generator=noise).sum().item()


@pytest.mark.parametrize("function", [drawn_sum, drawn_by_hand])
def test_fused_kernels_draw_the_same_noise(monkeypatch, caplog, function):
    monkeypatch.setattr(torch, "compile", lambda f, **_: lambda *a: 100 + f(*a))
    first, *later = losses_of(Compiled(function, "training"), 3)
    expected = expected_draws(3)
    # the first call runs as it is, to see what is drawn
    assert first == expected[0]
    assert later == [100 + value for value in expected[1:]]
    assert not caplog.records


def test_noise_is_drawn_before_the_fused_part_where_that_is_possible(monkeypatch):
    seen = []

    def watched(noise, pair) -> float:
        seen.append(type(noise))
        return drawn_sum(noise, pair)

    monkeypatch.setattr(torch, "compile", lambda f, **_: f)
    losses_of(Compiled(watched, "training"), 3)
    assert seen == [RecordingRNG, ReplayRNG, ReplayRNG]


def test_where_none_can_be_made_the_losses_are_as_they_are_and_that_is_told(
    monkeypatch, caplog
):
    def refuses(plain, **_):
        def call(values, pair):
            plain(values, pair)  # some noise is used up before it breaks
            raise RuntimeError("no compiler found\nlong story")

        return call

    monkeypatch.setattr(torch, "compile", refuses)
    assert losses_of(Compiled(drawn_sum, "training"), 3) == expected_draws(3)
    (record,) = caplog.records
    assert record.getMessage() == (
        "training goes on without fused kernels: no compiler found"
    )


def test_a_fault_of_the_loss_itself_is_raised(monkeypatch, caplog):
    def broken(_noise, _pair):
        raise ValueError("shapes do not fit")

    monkeypatch.setattr(torch, "compile", lambda f, **_: f)
    with pytest.raises(ValueError, match="shapes do not fit"):
        losses_of(Compiled(broken, "training"), 1)
    assert not caplog.records
