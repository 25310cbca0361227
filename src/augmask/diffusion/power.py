"""TabDiff's noise schedules: one learned exponent per column.

At time t in [0, 1] a numeric column j has the noise level σ_j(t) (power mean), and a
token of a categorical column is masked with probability m_j(t) (log-linear):

    σ_j(t) = ( σ_min^(1/r) + t (σ_max^(1/r) - σ_min^(1/r)) )^r      r_j > 5, or 7
    m_j(t) = (1 - 1e-3 - 1e-5) t^k + 1e-5                           k_j > 1, or 1

The second values are those of the fixed schedules, where all columns are alike.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

SIGMA_MIN, SIGMA_MAX = 0.002, 80.0
MASK_MIN = 1e-5
MASK_SPAN = 1 - 1e-3 - MASK_MIN
FIXED_R, FIXED_K = 7.0, 1.0
LOWEST_R, LOWEST_K = 5.0, 1.0
RAW_R, RAW_K = 7.0, -6.0  # published starts: r = 12.0009, k = 1.0025


def power_mean(t: Tensor, r: Tensor | float) -> Tensor:
    """Return the noise level σ(t).

    Examples
    --------
    >>> power_mean(torch.tensor([0.0, 1.0]), 7.0)
    tensor([2.0000e-03, 8.0000e+01])
    """
    low, high = SIGMA_MIN ** (1 / r), SIGMA_MAX ** (1 / r)
    level: Tensor = (low + t * (high - low)) ** r
    return level


def power_mean_time(sigma: Tensor, r: Tensor | float) -> Tensor:
    """Return the time at which the level is `sigma`; above 1 beyond the last level."""
    low, high = SIGMA_MIN ** (1 / r), SIGMA_MAX ** (1 / r)
    time: Tensor = (sigma ** (1 / r) - low) / (high - low)
    return time


def log_linear(t: Tensor, k: Tensor | float) -> Tensor:
    """Return the probability m(t) that a token is masked."""
    return MASK_SPAN * t**k + MASK_MIN


class PowerSchedules(nn.Module):
    """The schedules of all columns, learned until they are frozen.

    Parameters
    ----------
    n_num, n_cat : int
    learnable : bool
        False for the fixed exponents from the start.

    Shape
    -----
    - times t: [B], levels σ: [B, d_num], probabilities m: [B, C]

    Examples
    --------
    >>> PowerSchedules(1, 1).sigma(torch.tensor([1.0])).round().tolist()
    [[80.0]]
    """

    fixed: Tensor

    def __init__(self, n_num: int, n_cat: int, learnable: bool = True) -> None:
        super().__init__()
        self.raw_r = nn.Parameter(torch.full((n_num,), RAW_R))
        self.raw_k = nn.Parameter(torch.full((n_cat,), RAW_K))
        # on the device and part of the state: a recorded step and a saved model see it
        self.register_buffer("fixed", torch.tensor(not learnable))

    @property
    def r(self) -> Tensor:
        """Exponents of the numeric columns."""
        return torch.where(self.fixed, FIXED_R, LOWEST_R + softplus(self.raw_r))

    @property
    def k(self) -> Tensor:
        """Exponents of the categorical columns."""
        return torch.where(self.fixed, FIXED_K, LOWEST_K + softplus(self.raw_k))

    def sigma(self, t: Tensor) -> Tensor:
        """Return the noise level of every numeric column."""
        return power_mean(t[:, None], self.r)

    def mask(self, t: Tensor) -> Tensor:
        """Return the masking probability of every categorical column."""
        return log_linear(t[:, None], self.k)

    def mask_weight(self, t: Tensor) -> Tensor:
        """Return m'(t) / m(t), the weight of a masked token in the likelihood bound."""
        slope: Tensor = MASK_SPAN * self.k * t[:, None] ** (self.k - 1)
        return slope / self.mask(t)

    def time(self, sigma: Tensor) -> Tensor:
        """Return for levels [B, d_num] the earliest time at which a column has its."""
        return power_mean_time(sigma, self.r).amin(1)

    @torch.no_grad()
    def freeze(self) -> bool:
        """Fix the exponents for good; return whether they were learned until now."""
        learned = not bool(self.fixed)
        self.fixed.fill_(True)
        return learned
