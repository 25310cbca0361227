"""Shuffled batches: every row comes, and every completion of it."""

from __future__ import annotations

import gc
import math
import threading
import weakref

import numpy as np
import pytest
import torch

from augmask.augmentation import resolve_augmenter
from augmask.augmentation.completions import CompletionPlan, complete
from augmask.train.data import TrainingData, hidden_cells
from augmask.train.streams import Lane

CPU = torch.device("cpu")


def training_data(
    table, draws="one", supervise="observed", hidden=None, resident=math.inf
):
    completions = complete(
        resolve_augmenter("ecdf"),
        table,
        CompletionPlan.parse(draws),
        np.random.default_rng(0),
    )
    if hidden is None:
        hidden = np.zeros_like(table.observed)
    return TrainingData(completions, supervise, hidden, 0, CPU, resident)


@pytest.mark.parametrize("size", [7, 60, 100])
def test_every_row_comes_once_a_pass_whatever_the_batch_size(make_table, size):
    table = make_table(n=60, n_num=1, cards=(), holes=0.0)
    data = training_data(table)
    values = torch.cat(
        [data.at(data.shuffle.take(size))[0].num[:, 0] for _ in range(60)]
    )
    for start in range(0, 60 * size - 60, 60):
        found = np.sort(values[start : start + 60].numpy())
        np.testing.assert_array_equal(found, np.sort(table.num[:, 0].astype("f4")))


def test_stack_visits_every_pair_of_row_and_completion(make_table):
    table = make_table(n=30, n_num=2, cards=(3,), holes=0.5)
    data = training_data(table, "stack:3")
    batch, _ = data.at(data.shuffle.take(90))
    found = {tuple(row) for row in torch.cat([batch.num, batch.cat], 1).tolist()}
    expected = {
        (*num, *cat)
        for i in range(3)
        for num, cat in zip(
            data.completions.completion(i).num.astype("f4").tolist(),
            data.completions.completion(i).cat.tolist(),
            strict=True,
        )
    }
    assert found == expected


def test_cycle_shows_one_completion_a_pass(make_table):
    table = make_table(n=30, n_num=2, cards=(3,), holes=0.5)
    data = training_data(table, "cycle:2")
    for epoch in range(4):
        batch, _ = data.at(data.shuffle.take(30))
        expected = data.completions.completion(epoch % 2)
        np.testing.assert_allclose(
            batch.num.sum(0).numpy(), expected.num.sum(0), rtol=1e-5
        )
        np.testing.assert_array_equal(batch.cat.sum(0).numpy(), expected.cat.sum(0))


def test_observed_cells_are_the_same_in_every_completion(make_table):
    table = make_table(n=30, holes=0.5)
    data = training_data(table, "stack:4")
    rows = torch.arange(30)
    for draw in range(4):
        batch, _ = data.at(draw * len(table) + rows)
        seen = table.num_observed
        np.testing.assert_array_equal(
            batch.num.numpy()[seen], table.num[seen].astype("f4")
        )
        seen = table.cat_observed
        np.testing.assert_array_equal(batch.cat.numpy()[seen], table.cat[seen])


def test_supervision_and_hidden_cells(make_table):
    table = make_table(n=200, holes=0.4)
    hidden = hidden_cells(table.observed, 0.2, np.random.default_rng(0))
    assert not hidden[~table.observed].any()
    assert hidden.sum() / table.observed.sum() == pytest.approx(0.2, abs=0.05)
    for supervise, expected in (
        ("observed", table.observed & ~hidden),
        ("all", ~hidden),
    ):
        data = training_data(table, supervise=supervise, hidden=hidden)
        _, counted = data.at(torch.arange(len(table)))
        np.testing.assert_array_equal(counted.numpy(), expected)


@pytest.mark.parametrize("size", [16, 25, 120])
def test_the_shuffle_goes_on_from_its_state(make_table, monkeypatch, size):
    table = make_table(n=50, holes=0.3)
    shuffle = training_data(table, "anchor:3:0.5").shuffle
    for _ in range(5):
        shuffle.take(size)
    state = {name: value.clone() for name, value in shuffle.state().items()}
    expected = [shuffle.take(size) for _ in range(20)]

    def goes_on(again):
        return all(torch.equal(again.take(size), numbers) for numbers in expected)

    again = training_data(table, "anchor:3:0.5").shuffle
    again.restore(state)
    assert goes_on(again)
    # the same where orders are drawn a pass ahead, as on a GPU
    monkeypatch.setattr(Lane, "beside", True)
    early = training_data(table, "anchor:3:0.5").shuffle
    for _ in range(5):
        early.take(size)
    for name, value in early.state().items():
        assert torch.equal(value, state[name])
    assert goes_on(early)
    early.restore(state)
    assert goes_on(early)


@pytest.mark.parametrize("draws", ["one", "stack:3", "anchor:2:0.5"])
@pytest.mark.parametrize("supervise", ["observed", "all"])
def test_a_streamed_table_gives_the_same_batches(make_table, draws, supervise):
    table = make_table(n=50, holes=0.4)
    hidden = hidden_cells(table.observed, 0.2, np.random.default_rng(0))
    kept = training_data(table, draws, supervise, hidden)
    streamed = training_data(table, draws, supervise, hidden, resident=0)
    assert streamed.streamed
    assert not kept.streamed
    share = slice(3, 13)
    for _ in range(30):
        kept.stage(16, share)
        streamed.stage(16, share)
        (batch, counted), (other, also) = kept.staged(), streamed.staged()
        assert torch.equal(batch.num, other.num)
        assert torch.equal(batch.cat, other.cat)
        assert torch.equal(counted, also)
    (batch, cells), (other, also) = kept.watched(9), streamed.watched(9)
    assert torch.equal(batch.num, other.num)
    assert torch.equal(cells, also)
    assert cells.any(1).all()


def test_staged_batches_are_those_of_the_pairs_in_tensors_that_stay(make_table):
    table = make_table(n=50, holes=0.4)
    data, again = training_data(table, "stack:3"), training_data(table, "stack:3")
    data.stage(16)
    pointers = {data._pairs.data_ptr()}
    for _ in range(12):
        batch, counted = data.staged()
        expected, mask = again.at(again.shuffle.take(16))
        assert torch.equal(batch.num, expected.num)
        assert torch.equal(counted, mask)
        data.stage(16)
        pointers.add(data._pairs.data_ptr())
    streamed = training_data(table, "stack:3", resident=0)
    streamed.stage(16)
    places = [part.data_ptr() for part in streamed._ahead.staged]
    streamed.stage(16)
    assert [part.data_ptr() for part in streamed._ahead.staged] == places
    assert len(pointers) == 1


def test_what_was_gathered_ahead_is_not_in_the_state(make_table):
    table = make_table(n=50, holes=0.3)
    data = training_data(table, "stack:2", resident=0)
    for _ in range(5):
        data.stage(16)
    state = {name: value.clone() for name, value in data.state().items()}
    expected = []
    for _ in range(12):
        data.stage(16)
        expected.append(data.staged()[0].num.clone())
    again = training_data(table, "stack:2", resident=0)
    again.stage(16)
    for resumed in (again, data):
        resumed.restore(state)
        for num in expected:
            resumed.stage(16)
            assert torch.equal(resumed.staged()[0].num, num)


def test_an_error_of_the_gathering_thread_reaches_the_trainer(make_table):
    data = training_data(make_table(n=50), resident=0)
    del data._store["num"]
    with pytest.raises(KeyError, match="num"):
        data.stage(16)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_graph_reads_streamed_batches(make_table):
    """Batches arrive in place while the thread gathers, also during the recording."""
    table = make_table(n=500, holes=0.4)
    here = training_data(table, "stack:3", resident=0)
    there = TrainingData(
        here.completions,
        "observed",
        np.zeros_like(table.observed),
        0,
        torch.device("cuda"),
        resident=0,
    )
    there.stage(64)
    graph, found = torch.cuda.CUDAGraph(), torch.zeros(64, 4, device="cuda")
    with torch.cuda.graph(graph):
        batch, counted = there.staged()
        found.copy_(torch.cat([batch.num, batch.cat], 1) * counted)
    for step in range(200):
        if step:
            there.stage(64)
        graph.replay()
        here.stage(64)
        batch, counted = here.staged()
        expected = torch.cat([batch.num, batch.cat], 1) * counted
        assert torch.equal(found.cpu(), expected)


def test_a_table_that_was_streamed_goes_with_its_last_user(make_table):
    """Not when the garbage collector comes by: it may be most of the memory."""
    data = training_data(make_table(n=50), resident=0)
    data.stage(16)
    store = weakref.ref(data._store["num"])
    gc.disable()
    try:
        del data
        for thread in threading.enumerate():
            if thread.name.startswith("augmask-batches"):
                thread.join(5)
        assert store() is None
    finally:
        gc.enable()
