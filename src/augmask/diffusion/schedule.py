"""Learned noise levels: where on the noise axis training spends its time.

CDTD's time warp. Every group of columns (numeric, categorical) has a distribution
over scaled levels x = σ / σ_max in (0, 1), log-logistic in the odds of x:

    F(x) = sigmoid( ν (logit x - a) )          the warp, from level to time u
    f(x) = ν F (1 - F) / (x (1 - x))           its density
    Q(u) = sigmoid( a + logit(u) / ν )         its inverse, from time to level

Scaled by s, F is regressed on the loss as a function of the level. Drawing u uniformly
then spends most steps where the loss changes fastest.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from augmask.diffusion.noise import Noise, uniform_number

# closer to 0 or 1 a float32 logit is noise
EDGE = 1e-7
STEEPNESS = 1.01


def low_discrepancy(rows: Tensor, generator: Noise) -> Tensor:
    """Return a uniform time for each row: one draw, then equal steps around (0, 1)."""
    kind: dict[str, Any] = {"dtype": rows.dtype, "device": rows.device}
    start = uniform_number(rows, generator)
    return (start + torch.arange(len(rows), **kind) / len(rows)) % 1.0


def _inverse_softplus(value: float) -> float:
    return math.log(math.expm1(value))


class TimeWarp(nn.Module):
    """The warps of G groups of columns, three learned numbers each.

    Parameters
    ----------
    sigma_max : tuple of float
        The largest noise level of every group.
    low_noise : float
        How many times more time the lower half of the levels gets at the start than
        the upper half; 3 as published. It is learned from there, a thousandth a step,
        so a short run should start where long ones end, near 100.

    Shape
    -----
    - times u: [B], levels σ: [B, G]

    Examples
    --------
    >>> warp = TimeWarp((80.0, 100.0))
    >>> warp.sigma(torch.tensor([0.0, 1.0])).tolist()
    [[0.0, 0.0], [80.0, 100.0]]
    """

    sigma_max: Tensor

    def __init__(self, sigma_max: tuple[float, ...], low_noise: float = 3.0) -> None:
        super().__init__()
        self.register_buffer("sigma_max", torch.tensor(sigma_max), persistent=False)
        ones = torch.ones(len(sigma_max))
        self.location = nn.Parameter(-math.log(low_noise) / STEEPNESS * ones)
        self.raw_steepness = nn.Parameter(_inverse_softplus(STEEPNESS - 1) * ones)
        self.raw_scale = nn.Parameter(_inverse_softplus(1.0) * ones)

    @property
    def steepness(self) -> Tensor:
        """ν, always above 1 so that the density stays bounded."""
        return 1 + softplus(self.raw_steepness)

    def sigma(self, u: Tensor) -> Tensor:
        """Return the noise level of every group at times `u`, ends exact."""
        odds = torch.logit(u.clamp(EDGE, 1 - EDGE))[:, None]
        level = torch.sigmoid(self.location + odds / self.steepness)
        level = torch.where(u[:, None] <= 0, torch.zeros_like(level), level)
        level = torch.where(u[:, None] >= 1, torch.ones_like(level), level)
        return level * self.sigma_max

    def time(self, sigma: Tensor, group: int) -> Tensor:
        """Return the times [B] at which `group` has the levels `sigma` [B]."""
        x = (sigma / self.sigma_max[group]).clamp(EDGE, 1 - EDGE)
        return torch.sigmoid(
            self.steepness[group] * (torch.logit(x) - self.location[group])
        )

    def fit_loss(self, sigma: Tensor, losses: Tensor, group: Tensor) -> Tensor:
        """Regress the scaled warp on the losses seen at levels `sigma`.

        Parameters
        ----------
        sigma : Tensor [B, G]
        losses : Tensor [B, d]
            Taken as constants.
        group : Tensor [d]
            The group of every column.

        Returns
        -------
        Tensor [B, d]
            Squared errors over the density, which undoes that levels were drawn
            through the warp itself.
        """
        x = (sigma.detach() / self.sigma_max).clamp(EDGE, 1 - EDGE)
        cdf = torch.sigmoid(self.steepness * (torch.logit(x) - self.location))
        density = (self.steepness * cdf * (1 - cdf) / (x * (1 - x))).detach()
        predicted = softplus(self.raw_scale) * cdf
        error = predicted.index_select(1, group) - losses.detach()
        return error.square() / (density[:, group] + EDGE)
