"""Batches from shards: all rows, once an epoch, in an order that any process knows."""

import numpy as np
import pytest
import torch

from augmask.augmentation.completions import CompletionPlan, complete
from augmask.augmentation.marginal import Ecdf
from augmask.augmentation.shards import (
    HELD_OUT,
    OBSERVED,
    choose_held_out_cells,
    open_shard,
    shard_name,
    training_arrays,
)
from augmask.container import write_container
from augmask.errors import DataError, UsageError
from augmask.table.table import Table
from augmask.train import parallel, shards
from augmask.train.shards import ShardedData, validation_rows

CPU = torch.device("cpu")
BATCH = 48


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(shards, "BLOCK_ROWS", 8)
    monkeypatch.setattr(shards, "WINDOW_BLOCKS", 12)


def numbered(make_table, n=400):
    """Return a table whose first number is the row's own, always observed."""
    table = make_table(n=n)
    num, observed = table.num.copy(), table.observed.copy()
    num[:, 0], observed[:, 0] = np.arange(n), True
    return Table(num, table.cat, observed, table.layout)


def write(folder, table, plan, sizes, fraction=0.1):
    """Write the rows of a table as shards of these sizes."""
    rng = np.random.default_rng(0)
    ends = np.cumsum(sizes)
    for i, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        rows = slice(end - size, end)
        part = Table(
            table.num[rows], table.cat[rows], table.observed[rows], table.layout
        )
        completions = complete(Ecdf(), part, plan, rng)
        hidden = choose_held_out_cells(part.observed, fraction, rng)
        hidden[:, 0] = False
        arrays = training_arrays(completions, hidden)
        write_container(folder / shard_name(i), "shard", {"rows": size}, arrays)
    return [open_shard(folder / shard_name(i)) for i in range(len(sizes))]


def loader(found, table, plan, supervise="observed", seed=0):
    return ShardedData(
        found, validation_rows(found, 64), table.layout, plan, supervise, seed, CPU
    )


def rows_of(data, batches):
    taken = []
    for _ in range(batches):
        data.advance(BATCH)
        batch, _ = data.batch()
        taken.append(batch.num[:, 0].long().tolist())
    # a thread would go on reading ahead
    data.restore(data.state())
    return taken


@pytest.mark.parametrize("plan", ["one", "stack:3", "cycle:2", "anchor:2:0.5"])
@pytest.mark.parametrize("sizes", [(400,), (100, 150, 150), (25,) * 16])
def test_an_epoch_visits_every_pair_once(make_table, tmp_path, plan, sizes):
    table, plan = numbered(make_table), CompletionPlan.parse(plan)
    data = loader(write(tmp_path, table, plan, sizes), table, plan)
    times = plan.n_draws if plan.kind == "stack" else 1
    seen = np.zeros(len(table), int)
    # a batch may span two epochs, so lanes are followed one by one
    for lane in data.lanes:
        for position, n in lane.take(lane.rows * times):
            assert position.epoch == 0
            num, _, _ = lane.read(position, n)
            np.add.at(seen, num[:, 0].long().numpy(), 1)
        assert lane.position == (1, 0, 0)
    assert (seen == times).all()


def test_every_lane_gives_its_share_of_every_batch(make_table, tmp_path):
    table, plan = numbered(make_table), CompletionPlan("one")
    found = write(tmp_path, table, plan, (25,) * 16)
    data = loader(found, table, plan)
    assert len(data.lanes) == shards.LANES
    for taken in rows_of(data, 20):
        lanes = [row // 25 % shards.LANES for row in taken]
        assert np.bincount(lanes, minlength=8).tolist() == [BATCH // 8] * 8


def test_observed_cells_are_the_tables_and_held_out_ones_are_not_learned(
    make_table, tmp_path
):
    table, plan = numbered(make_table), CompletionPlan("stack", 2)
    found = write(tmp_path, table, plan, (150, 250))
    observed, everything = (
        loader(found, table, plan, supervise) for supervise in ("observed", "all")
    )
    flags = np.concatenate([shard.read([(0, shard.rows)])["flags"] for shard in found])
    for _ in range(10):
        observed.advance(BATCH)
        everything.advance(BATCH)
        batch, mask = observed.batch()
        _, all_cells = everything.batch()
        rows = batch.num[:, 0].long().numpy()
        assert (mask.numpy() == (flags[rows] == OBSERVED)).all()
        assert (all_cells.numpy() == (flags[rows] < HELD_OUT)).all()
        here = table.observed[rows]
        exact = table.num[rows].astype(np.float32)
        assert (batch.num.numpy() == exact)[here[:, :2]].all()
        assert (batch.cat.numpy() == table.cat[rows])[here[:, 2:]].all()


def test_several_completions_differ_in_missing_cells_only(make_table, tmp_path):
    table, plan = numbered(make_table), CompletionPlan("stack", 2)
    (shard,) = write(tmp_path, table, plan, (400,))
    (lane,) = loader([shard], table, plan).lanes
    first: dict[int, np.ndarray] = {}
    differ = np.zeros(table.layout.n_features, bool)
    for position, n in lane.take(800):
        num, cat, flags = (part.numpy() for part in lane.read(position, n))
        for cells, own in zip(np.hstack([num, cat]), flags, strict=True):
            row = int(cells[0])
            changed = first.setdefault(row, cells) != cells
            assert not (changed & (own != 0)).any()
            differ |= changed
    assert differ[1:].all()


def test_neighbours_are_far_apart(make_table, tmp_path):
    """A table sorted by time must not come to the network in that order."""
    table, plan = numbered(make_table, 4_000), CompletionPlan("one")
    data = loader(write(tmp_path, table, plan, (500,) * 8), table, plan)
    rows = np.concatenate(rows_of(data, 20))
    assert abs(np.corrcoef(np.arange(len(rows)), rows)[0, 1]) < 0.1
    # a quarter of the table is in memory, from all over it
    assert np.ptp(rows[:BATCH]) > 3_000


def test_a_saved_position_continues_with_the_same_batches(make_table, tmp_path):
    table, plan = numbered(make_table), CompletionPlan("stack", 2)
    found = write(tmp_path, table, plan, (100, 300))
    one, other = (loader(found, table, plan) for _ in range(2))
    rows_of(one, 7)
    state = {name: value.clone() for name, value in one.state().items()}
    other.restore(state)
    assert rows_of(one, 30) == rows_of(other, 30)
    other.restore(state)
    assert rows_of(other, 3) != rows_of(one, 3)
    with pytest.raises(ValueError, match="there is no window"):
        other.restore({"position": torch.full((2, 3), 99)})


def test_the_seed_decides_the_order(make_table, tmp_path):
    table, plan = numbered(make_table), CompletionPlan("one")
    found = write(tmp_path, table, plan, (400,))
    one, same, other = (
        rows_of(loader(found, table, plan, seed=s), 5) for s in (0, 0, 1)
    )
    assert one == same != other


@pytest.mark.parametrize("processes", [2, 3, 8])
def test_processes_share_the_batch_of_one_and_read_their_own_shards(
    make_table, tmp_path, monkeypatch, processes
):
    table, plan = numbered(make_table), CompletionPlan("stack", 2)
    found = write(tmp_path, table, plan, (20,) * 20)
    alone = rows_of(loader(found, table, plan), 12)
    together = [[] for _ in alone]
    opened = []
    for rank in range(processes):
        read = set()
        monkeypatch.setattr(parallel, "world_size", lambda: processes)
        monkeypatch.setattr(parallel, "rank", lambda rank=rank: rank)
        original = shards.Shard.read

        def noted(self, runs, original=original, read=read):
            read.add(self.path)
            return original(self, runs)

        data = loader(found, table, plan)
        with monkeypatch.context() as patch:
            patch.setattr(shards.Shard, "read", noted)
            for batch, own in zip(together, rows_of(data, 12), strict=True):
                batch += own
        opened.append(read)
    assert [sorted(batch) for batch in together] == [sorted(batch) for batch in alone]
    assert sum(map(len, opened)) == len(set().union(*opened)) == len(found)


def test_more_processes_than_parts_are_refused(make_table, tmp_path, monkeypatch):
    table, plan = numbered(make_table), CompletionPlan("one")
    found = write(tmp_path, table, plan, (200, 200))
    monkeypatch.setattr(parallel, "world_size", lambda: 3)
    with pytest.raises(UsageError, match="3 processes need as many parts"):
        loader(found, table, plan)


def test_validation_rows_come_from_all_shards(make_table, tmp_path):
    table, plan = numbered(make_table), CompletionPlan("one")
    found = write(tmp_path, table, plan, (200, 100, 100))
    rows = validation_rows(found, 40)
    held_out = rows["flags"] >= HELD_OUT
    assert held_out.any(axis=1).all()
    shard_of = np.digitize(rows["num"][:, 0], [200, 300])
    assert np.bincount(shard_of).tolist() == [20, 10, 10]
    data = loader(found, table, plan)
    batch, mask = data.held_out_batch(16)
    assert len(batch.num) == 16
    assert mask.any(dim=1).all()
    assert data.validates


def test_without_held_out_cells_nothing_is_validated(make_table, tmp_path):
    table, plan = numbered(make_table), CompletionPlan("one")
    found = write(tmp_path, table, plan, (400,), fraction=0)
    assert not loader(found, table, plan).validates


def test_a_damaged_shard_is_named(make_table, tmp_path):
    table, plan = numbered(make_table), CompletionPlan("one")
    (shard,) = write(tmp_path, table, plan, (400,))
    shard.path.unlink()
    with pytest.raises(
        DataError, match=r"shard-000000\.safetensors is damaged or gone"
    ):
        shard.read([(0, 5)])
