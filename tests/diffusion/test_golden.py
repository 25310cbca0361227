"""Numbers that must not change: one tiny float64 model per backbone.

`golden.json` holds losses per cell, the reduced loss, a gradient norm per parameter,
five sampled rows per solver, and the norms of the initial weights. The slow references
beside this file check that losses are right; this file checks that they stay the same.
It catches what no other test does: another order of draws from the generator, another
initialisation, another rounding of a schedule, a sampler that visits other times, a
release of torch whose generator draws differently. Published results would then no
longer follow from their seeds.

Weights come from a formula and buffers are float64, so that the numbers do not depend
on how a processor rounds in float32. After an intended change, rewrite the file:

    python tests/diffusion/test_golden.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from augmask.diffusion import BACKBONES, build_backbone
from augmask.diffusion.base import Batch, type_weights
from augmask.diffusion.reduce import reduce_cells
from augmask.table.table import Layout, Table

GOLDEN = Path(__file__).with_name("golden.json")
NETWORK = {"width": 6, "depth": 2, "time_width": 6}
DIGITS = 12


def make_table() -> Table:
    """Return six rows without a random generator: two numbers, two categories."""
    cell = np.arange(24).reshape(6, 4)
    num = np.sin(1.0 + 2.3 * cell[:, :2])
    cat = cell[:, 2:] * 7 // 3 % np.array([2, 4])
    observed = cell % 5 != 2
    return Table(num, cat, observed, Layout(("x", "y"), ("a", "b"), (2, 4)))


def make_model(backbone: str, table: Table) -> Any:
    model = build_backbone(backbone, table.layout, 0, **NETWORK).double()
    buffers = [(name, b) for name, b in model.named_buffers() if "frequencies" in name]
    with torch.no_grad():
        for i, (_, value) in enumerate([*model.named_parameters(), *buffers]):
            place = torch.arange(value.numel(), dtype=torch.float64)
            wave = torch.sin(1 + i + 2.3 * place).view_as(value)
            value.copy_(wave / value.shape[-1] ** 0.5)
    model.init_from_data(table)
    return model


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def recompute(backbone: str) -> dict[str, Any]:
    """Return the entries of a backbone in the file."""
    table = make_table()
    start = build_backbone(backbone, table.layout, 0, **NETWORK)
    model = make_model(backbone, table)
    batch = Batch(torch.from_numpy(table.num), torch.from_numpy(table.cat).long())
    cell = model.cell_loss(batch, seeded())
    loss = reduce_cells(
        cell,
        torch.from_numpy(table.observed),
        model.reduction,
        table.layout.n_num,
        type_weights(model, torch.tensor(0.25)),
    )
    loss.backward()
    samples = {s: model.sample(5, seeded(), 6, solver=s) for s in model.solvers}
    return {
        "start": {name: p.norm().item() for name, p in start.named_parameters()},
        "main": cell.main.tolist(),
        "aux": {name: aux.tolist() for name, aux in cell.aux.items()},
        "probe": model.validation_loss(batch, seeded()).tolist(),
        "loss": loss.item(),
        "gradients": {
            name: 0.0 if p.grad is None else p.grad.norm().item()
            for name, p in model.named_parameters()
        },
        "samples": {s: torch.cat(rows, 1).tolist() for s, rows in samples.items()},
    }


def assert_close(actual: Any, expected: Any, rtol: float, where: str) -> None:
    """Compare two trees of numbers."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), where
        for name, value in expected.items():
            assert_close(actual[name], value, rtol, f"{where}/{name}")
    else:
        np.testing.assert_allclose(
            actual, expected, rtol=rtol, atol=1e-12, err_msg=where
        )


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_the_numbers_are_those_of_the_file(backbone):
    expected = json.loads(GOLDEN.read_text())[backbone]
    actual = recompute(backbone)
    # initial weights are float32, and processors round its logarithms differently
    assert_close(actual.pop("start"), expected.pop("start"), 1e-5, "start")
    assert_close(actual, expected, 1e-9, backbone)


def test_every_parameter_is_covered_and_a_change_of_1e_8_fails():
    stored = json.loads(GOLDEN.read_text())
    assert stored.keys() == BACKBONES.keys()
    for backbone, expected in stored.items():
        assert all(expected["gradients"].values())
        assert len(expected["samples"]) > 1
        with pytest.raises(AssertionError, match="loss"):
            assert_close(
                expected | {"loss": expected["loss"] * (1 + 1e-8)},
                expected,
                1e-9,
                backbone,
            )


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return float(f"{value:.{DIGITS}g}")


def rewrite() -> None:
    """Write the file anew, one line per entry."""
    lines = []
    for backbone in BACKBONES:
        parts = ",\n".join(
            f'  "{name}": {json.dumps(rounded(value))}'
            for name, value in recompute(backbone).items()
        )
        lines.append(f'"{backbone}": {{\n{parts}\n}}')
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    rewrite()
