"""Shuffled batches: every row appears, with every completion."""

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
from augmask.augmentation.shards import choose_held_out_cells
from augmask.train.accelerated.prefetch import PrefetchedShuffle
from augmask.train.accelerated.step import FixedIndices
from augmask.train.data import TrainingData

CPU = torch.device("cpu")


def training_data(
    table, plan="one", supervise="observed", held_out=None, max_bytes=math.inf
):
    completions = complete(
        resolve_augmenter("ecdf"),
        table,
        CompletionPlan.parse(plan),
        np.random.default_rng(0),
    )
    if held_out is None:
        held_out = np.zeros_like(table.observed)
    return TrainingData(completions, supervise, held_out, 0, CPU, max_bytes)


def next_batch(data, size=16, rows=slice(None)):
    data.advance(size, rows)
    return data.batch()


@pytest.mark.parametrize("size", [7, 60, 100])
def test_an_epoch_visits_every_row_once_for_any_batch_size(make_table, size):
    table = make_table(n=60, n_num=1, cards=(), missing=0.0)
    data = training_data(table)
    values = torch.cat([next_batch(data, size)[0].num[:, 0] for _ in range(60)])
    for start in range(0, 60 * size - 60, 60):
        epoch = np.sort(values[start : start + 60].numpy())
        np.testing.assert_array_equal(epoch, np.sort(table.num[:, 0].astype("f4")))


def test_stack_visits_every_pair_of_row_and_completion(make_table):
    table = make_table(n=30, n_num=2, cards=(3,), missing=0.5)
    data = training_data(table, "stack:3")
    batch, _ = next_batch(data, 90)
    rows = {tuple(row) for row in torch.cat([batch.num, batch.cat], 1).tolist()}
    expected = {
        (*num, *cat)
        for i in range(3)
        for num, cat in zip(
            data.completions.completion(i).num.astype("f4").tolist(),
            data.completions.completion(i).cat.tolist(),
            strict=True,
        )
    }
    assert rows == expected


def test_cycle_uses_one_completion_per_epoch(make_table):
    table = make_table(n=30, n_num=2, cards=(3,), missing=0.5)
    data = training_data(table, "cycle:2")
    for epoch in range(4):
        batch, _ = next_batch(data, 30)
        expected = data.completions.completion(epoch % 2)
        np.testing.assert_allclose(
            batch.num.sum(0).numpy(), expected.num.sum(0), rtol=1e-5
        )
        np.testing.assert_array_equal(batch.cat.sum(0).numpy(), expected.cat.sum(0))


def test_observed_cells_are_the_same_in_every_completion(make_table):
    table = make_table(n=30, missing=0.5)
    data = training_data(table, "stack:4")
    rows = torch.arange(30)
    for completion in range(4):
        batch, _ = data.gather(completion * len(table) + rows)
        mask = table.num_observed
        np.testing.assert_array_equal(
            batch.num.numpy()[mask], table.num[mask].astype("f4")
        )
        mask = table.cat_observed
        np.testing.assert_array_equal(batch.cat.numpy()[mask], table.cat[mask])


def test_supervised_and_held_out_cells(make_table):
    table = make_table(n=200, missing=0.4)
    held_out = choose_held_out_cells(table.observed, 0.2, np.random.default_rng(0))
    assert not held_out[~table.observed].any()
    assert held_out.sum() / table.observed.sum() == pytest.approx(0.2, abs=0.05)
    for supervise, expected in (
        ("observed", table.observed & ~held_out),
        ("all", ~held_out),
    ):
        data = training_data(table, supervise=supervise, held_out=held_out)
        _, supervised = data.gather(torch.arange(len(table)))
        np.testing.assert_array_equal(supervised.numpy(), expected)
        np.testing.assert_array_equal(data.held_out.numpy(), held_out)


@pytest.mark.parametrize("size", [16, 25, 120])
def test_the_shuffle_continues_from_its_state(make_table, size):
    table = make_table(n=50, missing=0.3)
    shuffle = training_data(table, "anchor:3:0.5").shuffle
    for _ in range(5):
        shuffle.take(size)
    state = {name: value.clone() for name, value in shuffle.state().items()}
    expected = [shuffle.take(size) for _ in range(20)]

    def continues(resumed):
        return all(torch.equal(resumed.take(size), indices) for indices in expected)

    resumed = training_data(table, "anchor:3:0.5").shuffle
    resumed.restore(state)
    assert continues(resumed)
    # the same where the next epoch is drawn in advance, as on a GPU
    completions = training_data(table, "anchor:3:0.5").completions
    ahead = PrefetchedShuffle(completions, 0, CPU, synchronized=True)
    for _ in range(5):
        ahead.take(size)
    for name, value in ahead.state().items():
        assert torch.equal(value, state[name])
    assert continues(ahead)
    ahead.restore(state)
    assert continues(ahead)


@pytest.mark.parametrize("plan", ["one", "stack:3", "anchor:2:0.5"])
@pytest.mark.parametrize("supervise", ["observed", "all"])
def test_a_streamed_table_gives_the_same_batches(make_table, plan, supervise):
    table = make_table(n=50, missing=0.4)
    held_out = choose_held_out_cells(table.observed, 0.2, np.random.default_rng(0))
    resident = training_data(table, plan, supervise, held_out)
    streamed = training_data(table, plan, supervise, held_out, max_bytes=0)
    assert streamed.streamed
    assert not resident.streamed
    for _ in range(30):
        (batch, mask), (other, other_mask) = (
            next_batch(data, 16, slice(3, 13)) for data in (resident, streamed)
        )
        assert torch.equal(batch.num, other.num)
        assert torch.equal(batch.cat, other.cat)
        assert torch.equal(mask, other_mask)
    (batch, cells), (other, other_cells) = (
        data.held_out_batch(9) for data in (resident, streamed)
    )
    assert torch.equal(batch.num, other.num)
    assert torch.equal(cells, other_cells)
    assert cells.any(1).all()


def test_batches_for_a_cuda_graph_are_read_from_fixed_addresses(make_table):
    table = make_table(n=50, missing=0.4)
    fixed, plain = training_data(table, "stack:3"), training_data(table, "stack:3")
    indices, addresses = FixedIndices(), set()
    for _ in range(12):
        fixed.advance(16)
        indices.load([fixed])
        addresses.add(fixed.indices.data_ptr())
        batch, supervised = fixed.batch()
        expected, mask = next_batch(plain)
        assert torch.equal(batch.num, expected.num)
        assert torch.equal(supervised, mask)
    assert len(addresses) == 1
    streamed = training_data(table, "stack:3", max_bytes=0)
    addresses = set()
    for _ in range(3):
        streamed.advance(16)
        indices.load([streamed])
        addresses.add(streamed.batch()[0].num.data_ptr())
    assert len(addresses) == 1


def test_prefetched_batches_are_not_part_of_the_state(make_table):
    table = make_table(n=50, missing=0.3)
    data = training_data(table, "stack:2", max_bytes=0)
    for _ in range(5):
        data.advance(16)
    state = {name: value.clone() for name, value in data.state().items()}
    expected = [next_batch(data)[0].num.clone() for _ in range(12)]
    other = training_data(table, "stack:2", max_bytes=0)
    other.advance(16)
    for resumed in (other, data):
        resumed.restore(state)
        for num in expected:
            assert torch.equal(next_batch(resumed)[0].num, num)


def test_an_error_in_the_prefetching_thread_reaches_the_trainer(make_table):
    data = training_data(make_table(n=50), max_bytes=0)
    del data._store["num"]
    with pytest.raises(KeyError, match="num"):
        data.advance(16)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_graph_reads_streamed_batches(make_table):
    """Batches arrive in place while the thread gathers, also during the capture."""
    table = make_table(n=500, missing=0.4)
    here = training_data(table, "stack:3", max_bytes=0)
    there = TrainingData(
        here.completions,
        "observed",
        np.zeros_like(table.observed),
        0,
        torch.device("cuda"),
        max_bytes=0,
    )
    there.advance(64)
    graph, result = torch.cuda.CUDAGraph(), torch.zeros(64, 4, device="cuda")
    with torch.cuda.graph(graph):
        batch, supervised = there.batch()
        result.copy_(torch.cat([batch.num, batch.cat], 1) * supervised)
    for step in range(200):
        if step:
            there.advance(64)
        graph.replay()
        batch, supervised = next_batch(here, 64)
        expected = torch.cat([batch.num, batch.cat], 1) * supervised
        assert torch.equal(result.cpu(), expected)


def test_a_streamed_table_is_freed_with_its_last_user(make_table):
    """Without waiting for the garbage collector: it may be most of the memory."""
    data = training_data(make_table(n=50), max_bytes=0)
    data.advance(16)
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
