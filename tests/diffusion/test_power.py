"""TabDiff's schedules: published end points and starts, inverses, the switch."""

from __future__ import annotations

import math

import pytest
import torch

from augmask.diffusion.power import PowerSchedules


def moved() -> PowerSchedules:
    """Return float64 schedules that have learned something."""
    schedules = PowerSchedules(3, 2).double()
    with torch.no_grad():
        schedules.raw_r.copy_(torch.tensor([-3.0, 2.0, 9.0]))
        schedules.raw_k.copy_(torch.tensor([-2.0, 1.5]))
    return schedules


def test_they_start_where_the_published_code_starts():
    schedules = PowerSchedules(1, 1).double()
    assert schedules.r.item() == pytest.approx(12.0009, abs=1e-4)
    assert schedules.k.item() == pytest.approx(1.0025, abs=1e-4)


@pytest.mark.parametrize("learnable", [True, False])
def test_end_points_do_not_depend_on_the_exponents(learnable):
    schedules = moved()
    schedules.fixed.fill_(not learnable)
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    expected = torch.tensor([[0.002] * 3, [80.0] * 3], dtype=torch.float64)
    torch.testing.assert_close(schedules.sigma(ends), expected)
    expected = torch.tensor([[1e-5] * 2, [0.999] * 2], dtype=torch.float64)
    torch.testing.assert_close(schedules.mask(ends), expected)


def test_formulas_between_the_ends():
    schedules = moved()
    t = torch.tensor([0.3], dtype=torch.float64)
    r = [5 + math.log1p(math.exp(raw)) for raw in (-3.0, 2.0, 9.0)]
    k = [1 + math.log1p(math.exp(raw)) for raw in (-2.0, 1.5)]
    sigma = [
        (0.002 ** (1 / a) + 0.3 * (80 ** (1 / a) - 0.002 ** (1 / a))) ** a for a in r
    ]
    mask = [(1 - 1e-3 - 1e-5) * 0.3**a + 1e-5 for a in k]
    weight = [
        (1 - 1e-3 - 1e-5) * a * 0.3 ** (a - 1) / m for a, m in zip(k, mask, strict=True)
    ]
    for found, expected in (
        (schedules.sigma(t), sigma),
        (schedules.mask(t), mask),
        (schedules.mask_weight(t), weight),
    ):
        assert found[0].tolist() == pytest.approx(expected, rel=1e-9)


def test_time_is_the_earliest_at_which_a_column_has_its_level():
    schedules = moved()
    t = torch.linspace(0, 1, 20, dtype=torch.float64)
    torch.testing.assert_close(schedules.time(schedules.sigma(t)), t)
    # one column further along does not matter, one further back does
    further, behind = schedules.sigma(t[10:11]), schedules.sigma(t[10:11])
    further[0, 1] *= 2
    behind[0, 1] /= 2
    assert schedules.time(further).item() == pytest.approx(t[10].item())
    assert schedules.time(behind).item() < t[10].item() - 0.01


def test_freezing_gives_the_fixed_exponents_and_no_gradient():
    schedules = moved()
    t = torch.tensor([0.3], dtype=torch.float64)
    assert schedules.freeze()
    assert not schedules.freeze()
    assert schedules.r.tolist() == [7.0] * 3
    assert schedules.k.tolist() == [1.0] * 2
    (schedules.sigma(t).sum() + schedules.mask_weight(t).sum()).backward()
    assert not schedules.raw_r.grad.any()
    assert not schedules.raw_k.grad.any()
    # a saved model remembers
    other = PowerSchedules(3, 2)
    other.load_state_dict(schedules.state_dict())
    assert other.r.tolist() == [7.0] * 3
