"""Rows as vectors and back."""

from __future__ import annotations

import numpy as np
import torch

from augmask.table.table import Layout
from augmask_bench.baselines.one_hot import Blocks, in_chunks, on_device

LAYOUT = Layout(("x", "y"), ("a", "b"), (2, 3))


def test_the_matrix_and_back_for_every_pair_of_codes():
    blocks = Blocks(LAYOUT)
    cat = torch.tensor([[a, b] for a in range(2) for b in range(3)])
    num = torch.randn(6, 2)
    matrix = blocks.matrix(num, cat)
    assert matrix.shape == (6, blocks.width) == (6, 7)
    assert (matrix[:, 2:].sum(1) == 2).all()
    back, block = blocks.split(matrix)
    assert torch.equal(back, num)
    assert torch.equal(blocks.codes(block), cat)


def test_a_mask_covers_the_whole_block_of_a_cell():
    blocks = Blocks(LAYOUT)
    mask = torch.tensor([[True, False, True, False], [False, True, False, True]])
    expected = [[1, 0, 1, 1, 0, 0, 0], [0, 1, 0, 0, 1, 1, 1]]
    assert blocks.expanded(mask).int().tolist() == expected


def test_a_placeholder_never_wins():
    blocks = Blocks(Layout((), ("a",), (3,), reserved=True))
    assert blocks.codes(torch.tensor([[0.1, 0.2, 9.0]])).tolist() == [[1]]


def test_tables_of_one_kind():
    only_num, only_cat = (
        Blocks(Layout(("x",), (), ())),
        Blocks(Layout((), ("a",), (2,))),
    )
    nothing = torch.zeros(3, 0)
    matrix = only_num.matrix(torch.ones(3, 1), nothing.long())
    assert matrix.shape == (3, 1)
    assert only_num.codes(only_num.split(matrix)[1]).shape == (3, 0)
    matrix = only_cat.matrix(nothing, torch.tensor([[0], [1], [1]]))
    num, block = only_cat.split(matrix)
    assert num.shape == (3, 0)
    assert only_cat.codes(block).tolist() == [[0], [1], [1]]


def test_chunks_cover_exactly_n_rows():
    sizes = []

    def draw(size):
        sizes.append(size)
        start = sum(sizes[:-1])
        return torch.arange(start, start + size)[:, None], torch.zeros(size, 1)

    num, cat = in_chunks(draw, 7, chunk=3)
    assert sizes == [3, 3, 1]
    assert num[:, 0].tolist() == list(range(7))
    assert (num.dtype, cat.dtype) == (np.float32, np.int32)
    assert in_chunks(draw, 0)[0].shape == (0, 1)


def test_the_device_gets_a_copy(make_table):
    table = make_table(n=5)
    num, cat, observed = on_device(table, torch.device("cpu"))
    assert (num.dtype, cat.dtype, observed.dtype) == (
        torch.float32,
        torch.int64,
        torch.bool,
    )
    before = table.num.copy()
    num += 1
    assert np.array_equal(table.num, before)
