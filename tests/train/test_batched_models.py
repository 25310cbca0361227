"""Models that take their steps as one are the models that each would be alone."""

from __future__ import annotations

import pytest
import torch
from tests.train.trainers import trainer

from augmask.diffusion import BACKBONES, tokens
from augmask.errors import TrainingDiverged
from augmask.train import batched_models as stack
from augmask.train.batched_models import Stack, alike
from augmask.train.loop import train, train_many


@pytest.fixture
def stack_anywhere(monkeypatch):
    """Let models be stacked on a CPU too, where it gains nothing."""

    def stacked(trainers):
        return [Stack(trainers)]

    monkeypatch.setattr("augmask.train.loop.stacked", stacked)
    # made for a CPU's cache, and only for one model at a time
    monkeypatch.setattr(tokens, "feed_forward", lambda x, up, down: down(up(x).relu()))


@pytest.fixture
def table(make_table):
    return make_table(n=120, n_num=2, cards=(2, 5))


def felt(trainer):
    """Return the averaged weights by name, less those that no output depends on.

    The bias of an attention's keys moves all scores of a query alike. Its gradient is
    rounding, which Adam makes steps of full size from.
    """
    weights = trainer.flat.by_name(trainer.average.weights[0].clone())
    for name, value in weights.items():
        if name.endswith("qkv.bias"):
            value.chunk(3)[1].zero_()
    return weights


@pytest.mark.parametrize(
    ("backbone", "network"),
    [*((name, {}) for name in BACKBONES), ("cdtd", {"precondition": "table"})],
)
def test_each_of_a_stack_is_what_it_is_alone(table, stack_anywhere, backbone, network):
    alone = [trainer(table, backbone, seed, **network) for seed in range(3)]
    expected = [train(t) for t in alone]
    others = [trainer(table, backbone, seed, **network) for seed in range(3)]
    found = train_many(others)
    for mine, theirs, a, b in zip(alone, others, expected, found, strict=True):
        for left, right in zip(a.history, b.history, strict=True):
            assert left["loss"] == pytest.approx(right["loss"], rel=1e-4)
            assert left["held_out"] == pytest.approx(
                right["held_out"], rel=1e-4, nan_ok=True
            )
        torch.testing.assert_close(felt(mine), felt(theirs), rtol=1e-3, atol=1e-4)
        # and they are three models
        assert len({run.history[-1]["loss"] for run in found}) == 3


def test_one_may_leave_and_nobody_notices(table):
    alone = [trainer(table, "cdtd", seed) for seed in range(3)]
    others = [trainer(table, "cdtd", seed) for seed in range(3)]
    together = Stack(others)
    for step in range(30):
        if step == 12:
            others[1].leave()
        for each in (*alone, *others):
            each.step(step / 60)
        together.advance()
    assert together.members == [others[0], others[2]]
    for mine, theirs in zip(alone, others, strict=True):
        assert mine.window() == pytest.approx(theirs.window(), rel=1e-5)
        torch.testing.assert_close(
            mine.flat.weights, theirs.flat.weights, rtol=1e-4, atol=1e-5
        )
        for name, value in mine.state().items():
            torch.testing.assert_close(value, theirs.state()[name], rtol=1, atol=1e-3)


def test_one_that_breaks_for_good_does_not_stop_the_others(table, stack_anywhere):
    bad, good = trainer(table, "tabddpm", 0), trainer(table, "tabddpm", 1)
    with torch.no_grad():
        bad.flat.weights[:] = torch.nan
    found = train_many([bad, good])
    assert isinstance(found[0], TrainingDiverged)
    alone = train(trainer(table, "tabddpm", 1))
    assert found[1].history[-1]["loss"] == pytest.approx(alone.history[-1]["loss"])


def test_where_no_stack_works_models_take_turns_and_that_is_told(
    table, stack_anywhere, monkeypatch, caplog
):
    def refuses(*_args, **_kwargs):
        raise RuntimeError("no batching rule for that\nlong story")

    monkeypatch.setattr(stack, "vmap", refuses)
    expected = [train(trainer(table, "cdtd", s)).history[-1]["loss"] for s in range(2)]
    found = train_many([trainer(table, "cdtd", seed) for seed in range(2)])
    assert [run.history[-1]["loss"] for run in found] == expected
    (record,) = caplog.records
    assert record.getMessage() == (
        "models are trained in turns, not as one: no batching rule for that"
    )


def test_only_models_of_one_make_are_stacked(table, make_table):
    first = trainer(table, "cdtd", 0)
    assert alike(first, trainer(table, "cdtd", 1))
    assert not alike(first, trainer(table, "tabddpm", 1))
    assert not alike(first, trainer(table, "cdtd", 1, lr=2e-3))
    wider = make_table(n=120, n_num=2, cards=(2, 6))
    assert not alike(first, trainer(wider, "cdtd", 1))
    # as many levels in all, but of other columns
    other = make_table(n=120, n_num=2, cards=(3, 4))
    assert not alike(first, trainer(other, "cdtd", 1))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_on_a_gpu_they_are_stacked_and_what_they_are_alone(
    table, backbone, fuse, caplog
):
    kinds = {"device": "cuda", "compile": "never"}
    alone = [train(trainer(table, backbone, s, **kinds)) for s in range(3)]
    kinds["compile"] = fuse
    found = train_many([trainer(table, backbone, s, **kinds) for s in range(3)])
    for a, b in zip(alone, found, strict=True):
        for left, right in zip(a.history, b.history, strict=True):
            assert left["loss"] == pytest.approx(right["loss"], rel=0.02)
    assert not [r for r in caplog.records if "trained" in r.getMessage()]
