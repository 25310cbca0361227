"""Parameters side by side in one tensor, of which the modules use views."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from augmask.errors import UsageError
from augmask.train.flat_params import FlatParams


def test_modules_share_memory_with_the_rows_until_released():
    modules = [nn.Linear(3, 2) for _ in range(2)]
    flat = FlatParams(modules)
    modules[1](torch.ones(1, 3)).sum().backward()
    flat.collect_gradients()
    first, second = (flat.by_name(row) for row in flat.weights.grad)
    assert first["weight"].tolist() == [[0.0] * 3] * 2
    assert second["weight"].tolist() == [[1.0] * 3] * 2
    assert second["bias"].tolist() == [1.0] * 2
    # the padding has no gradient
    assert flat.weights.grad.sum() == 8
    with torch.no_grad():
        flat.weights[1] = 2.0
    assert modules[1](torch.ones(1, 3)).tolist() == [[8.0, 8.0]]
    flat.release()
    with torch.no_grad():
        flat.weights[1] = 3.0
    assert modules[1](torch.ones(1, 3)).tolist() == [[8.0, 8.0]]


def test_every_parameter_is_aligned_to_16_bytes():
    layers = [nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1)) for _ in range(2)]
    flat = FlatParams(layers)
    for row in flat.weights:
        assert all(part.data_ptr() % 16 == 0 for part in flat.by_name(row).values())


def test_parameters_of_two_dtypes_are_refused():
    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    with pytest.raises(UsageError, match=r"one floating-point type.*float32.*float64"):
        FlatParams([layers])
