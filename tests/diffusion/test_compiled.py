"""Compiled functions draw the same numbers, and fall back to the plain ones."""

from __future__ import annotations

import pytest
import torch

from augmask.diffusion import BACKBONES, build_backbone
from augmask.diffusion.compiled import Compiled, CompiledSampler
from augmask.diffusion.random_draws import RecordingRNG, ReplayRNG, uniform_like
from augmask.diffusion.sampling import run_sampler
from augmask.table.table import Layout

PAIR = torch.zeros(2)


def expected_draws(count: int) -> list[float]:
    generator = torch.Generator().manual_seed(3)
    return [uniform_like(PAIR, generator).sum().item() for _ in range(count)]


def losses_of(compiled: Compiled, count: int) -> list[float]:
    generator = torch.Generator().manual_seed(3)
    return [compiled(generator, PAIR) for _ in range(count)]


def replayable_sum(noise, pair) -> float:
    return uniform_like(pair, noise).sum().item()


def generator_sum(noise, pair) -> float:
    return torch.rand(pair.shape, generator=noise).sum().item()


@pytest.mark.parametrize("function", [replayable_sum, generator_sum])
def test_a_compiled_function_draws_the_same_numbers(monkeypatch, caplog, function):
    monkeypatch.setattr(torch, "compile", lambda f, **_: lambda *a: 100 + f(*a))
    first, *later = losses_of(Compiled(function, "training"), 3)
    expected = expected_draws(3)
    # the first call runs plainly, to record what is drawn
    assert first == expected[0]
    assert later == [100 + value for value in expected[1:]]
    assert not caplog.records


def test_numbers_are_drawn_before_the_compiled_part(monkeypatch):
    types = []

    def watched(noise, pair) -> float:
        types.append(type(noise))
        return replayable_sum(noise, pair)

    monkeypatch.setattr(torch, "compile", lambda f, **_: f)
    losses_of(Compiled(watched, "training"), 3)
    assert types == [RecordingRNG, ReplayRNG, ReplayRNG]


def test_a_failed_compilation_falls_back_with_a_warning(monkeypatch, caplog):
    def refuses(plain, **_):
        def call(values, pair):
            plain(values, pair)  # some noise is used up before it breaks
            raise RuntimeError("no compiler found\nlong story")

        return call

    monkeypatch.setattr(torch, "compile", refuses)
    assert losses_of(Compiled(replayable_sum, "training"), 3) == expected_draws(3)
    (record,) = caplog.records
    assert record.getMessage() == (
        "torch.compile failed (no compiler found); training continues uncompiled"
    )


def test_an_error_of_the_function_itself_is_raised(monkeypatch, caplog):
    def broken(_noise, _pair):
        raise ValueError("shapes do not fit")

    monkeypatch.setattr(torch, "compile", lambda f, **_: f)
    with pytest.raises(ValueError, match="shapes do not fit"):
        losses_of(Compiled(broken, "training"), 1)
    assert not caplog.records


# torch warns of an autograd function that it traces itself
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_torch_can_trace_a_samplers_step_as_one_graph(monkeypatch, caplog, backbone):
    """With its NamedTuple state and numbers that were drawn before."""
    plain_compile, traced = torch.compile, []

    def whole_graph(function, **_):
        traced.append(function)
        return plain_compile(function, backend="eager", fullgraph=True)

    monkeypatch.setattr(torch, "compile", whole_graph)
    model = build_backbone(
        backbone, Layout(("x",), ("c",), (3,)), 0, width=8, depth=1, time_width=4
    )
    sampler = model.sampler(4, model.solvers[0])
    plain, fast = (
        run_sampler(each, 6, torch.Generator().manual_seed(0))
        for each in (sampler, CompiledSampler(sampler))
    )
    assert len(traced) == 1
    assert not [record for record in caplog.records if record.name == "augmask"]
    torch.testing.assert_close(fast.num, plain.num)
    assert torch.equal(fast.cat, plain.cat)
