"""Learned noise levels: where on the noise axis training spends its time.

CDTD's time warp. Every group of columns (numeric, categorical) has a distribution
over scaled levels x = σ / σ_max in (0, 1), log-logistic in the odds of x:

    F(x) = sigmoid( ν (logit x - a) )          the warp, from level to time u
    f(x) = ν F (1 - F) / (x (1 - x))           its density
    Q(u) = sigmoid( a + logit(u) / ν )         its inverse, from time to level

Scaled by s, F is regressed on the loss as a function of the level. Drawing u uniformly
then spends most steps where the loss changes fastest.

A warp can be anchored: with the share α of the time it stays where it started, and

    G(x) = (1 - α) F(x) + α F₀(x)

is the warp from level to time. The published one has α = 0. The anchor is for training
alone: a sampler whose times were even in G would take most of its steps at high levels,
where rows hardly change, so it takes those that are even in F.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

# closer to 0 or 1 a float32 logit is noise
EDGE = 1e-7
STEEPNESS = 1.01
# halvings of an interval of odds, until float32 knows no better
HALVINGS = 32


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
    anchored : bool
        Whether a share of the time stays at the start; `anchor` then says which.

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
    anchor: Tensor

    def __init__(
        self,
        sigma_max: tuple[float, ...],
        low_noise: float = 3.0,
        anchored: bool = False,
    ) -> None:
        super().__init__()
        self.anchored = anchored
        self.register_buffer("anchor", torch.zeros(()), persistent=anchored)
        self.register_buffer("sigma_max", torch.tensor(sigma_max), persistent=False)
        ones = torch.ones(len(sigma_max))
        self.start = -math.log(low_noise) / STEEPNESS
        self.location = nn.Parameter(self.start * ones)
        self.raw_steepness = nn.Parameter(_inverse_softplus(STEEPNESS - 1) * ones)
        self.raw_scale = nn.Parameter(_inverse_softplus(1.0) * ones)

    @property
    def steepness(self) -> Tensor:
        """ν, always above 1 so that the density stays bounded."""
        return 1 + softplus(self.raw_steepness)

    def sigma(self, u: Tensor) -> Tensor:
        """Return the noise level of every group at times `u`, ends exact."""
        level = torch.sigmoid(self._odds(u.clamp(EDGE, 1 - EDGE)[:, None]))
        level = torch.where(u[:, None] <= 0, torch.zeros_like(level), level)
        level = torch.where(u[:, None] >= 1, torch.ones_like(level), level)
        return level * self.sigma_max

    def sampling_times(self, u: Tensor) -> Tensor:
        """Return the times [B] at which levels are what a free warp has at `u` [B].

        A row has one time for all groups, so it is the mean of theirs. Ends are exact.
        """
        if not self.anchored:
            return u
        odds = self.location + torch.logit(u.clamp(EDGE, 1 - EDGE)[:, None]) / (
            self.steepness
        )
        times = self._time(odds).mean(1)
        return torch.where((u <= 0) | (u >= 1), u, times)

    def time(self, sigma: Tensor, group: int) -> Tensor:
        """Return the times [B] at which `group` has the levels `sigma` [B]."""
        x = (sigma / self.sigma_max[group]).clamp(EDGE, 1 - EDGE)[:, None]
        return self._time(torch.logit(x))[:, group]

    def _time(self, odds: Tensor) -> Tensor:
        """Return G where a level has these logarithmic odds, [B, G]."""
        free = torch.sigmoid(self.steepness * (odds - self.location))
        if not self.anchored:
            return free
        return torch.lerp(
            free, torch.sigmoid(STEEPNESS * (odds - self.start)), self.anchor
        )

    def _odds(self, u: Tensor) -> Tensor:
        """Return the logarithmic odds of the levels at times u [B, 1]."""
        free = self.location + torch.logit(u) / self.steepness
        if not self.anchored:
            return free
        first = self.start + torch.logit(u) / STEEPNESS
        # G has no inverse in closed form, but that lies between those of its parts
        low, high = torch.minimum(free, first), torch.maximum(free, first)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            above = self._time(middle) < u
            low = torch.where(above, middle, low)
            high = torch.where(above, high, middle)
        return (low + high) / 2

    def _density(self, odds: Tensor) -> Tensor:
        """Return the density of levels that are drawn evenly in time, [B, G]."""
        z = self.steepness * (odds - self.location)
        # sigmoid(-z) keeps the digits that 1 - sigmoid(z) loses
        free = self.steepness * torch.sigmoid(z) * torch.sigmoid(-z)
        if self.anchored:
            z = STEEPNESS * (odds - self.start)
            first = STEEPNESS * torch.sigmoid(z) * torch.sigmoid(-z)
            free = torch.lerp(free, first, self.anchor)
        return free / (torch.sigmoid(odds) * torch.sigmoid(-odds))

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
        odds = torch.logit((sigma.detach() / self.sigma_max).clamp(EDGE, 1 - EDGE))
        cdf = torch.sigmoid(self.steepness * (odds - self.location))
        density = self._density(odds).detach()
        predicted = softplus(self.raw_scale) * cdf
        error = predicted.index_select(1, group) - losses.detach()
        return error.square() / (density[:, group] + EDGE)
