"""CDTD's preconditioning by correlations and frequencies (`precondition="table"`).

Noise is independent between cells, so part of denoising has a closed form. On a wide
table a network that must learn it, from hundreds of noisy coordinates, learns little
else in a short run.

Numbers. If rows were normal with correlations R = U Λ Uᵀ, the denoised row would be
U Λ / (Λ + σ²) Uᵀ x, with covariance C = σ² U Λ / (Λ + σ²) Uᵀ. The network adds what
normal rows do not explain, each number in units of its own uncertainty:

    z = Uᵀ x        enters as U z / √(Λ + σ²)
    D = U Λ / (Λ + σ²) z + √(diag C) F

With R = 1 this is the preconditioning of `edm`. An untrained model samples from a
Gaussian copula.

The output F of a number moves that number alone. With √C instead of its diagonal, the
loss of observed cells would train the predictions of missing ones. A noisy value does
reach other columns, as it does inside the network: a filled value is context there and
never a target.

Categories. As the noise of a cell x_j = v_k + σ ε is independent of the other cells,

    p(k | row) ∝ p(k | other cells) exp(x_j · v_k / σ²)

because all points v_k of a column have the same length. The network predicts the logits
of the first factor, which start at the frequencies; the second is added. The input of a
column is its mean point under the frequencies and the second factor: of total variance
at most 1 however many dimensions it has, and 0 in pure noise. So all columns weigh
alike, and noise is not mistaken for signal.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from augmask.diffusion import edm_preconditioning as edm
from augmask.diffusion.ragged import Ragged
from augmask.table.table import FloatArray, Table

MIN_VARIANCE = 1e-3  # along an axis; less may be a rounding error
# A correlation shrinks by n / (n + this), n being the rows with both cells observed.
SHRINKAGE = 20
# Below this sigma every category is certain, and x · v / σ² would only lose digits.
MIN_SIGMA = 1e-2


def point_blocks(ragged: Ragged, points: Tensor) -> Tensor:
    """Return the points of all levels, each in its column's block, [S, C e]."""
    member = ragged.member.to(points.dtype)
    return (member[:, :, None] * points[:, None, :]).flatten(1)


def level_evidence(
    ragged: Ragged, x_cat: Tensor, points: Tensor, s_cat: Tensor
) -> Tensor:
    """Return x · v / σ², a noisy category's evidence for its levels, [B, S]."""
    flat = x_cat.flatten(1) / s_cat.clamp(min=MIN_SIGMA).square()
    return flat @ point_blocks(ragged, points).T


class Preconditioner(nn.Module):
    """The part of a denoiser that has a closed form.

    Parameters
    ----------
    n_num : int
        Numeric columns.
    ragged : Ragged
        Categorical columns.

    Shape
    -----
    - x_num: [B, d_num], x_cat: [B, C, e], points: [S, e], s_num and s_cat: [B, 1]
    """

    axes: Tensor
    variance: Tensor
    log_prior: Tensor

    def __init__(self, n_num: int, ragged: Ragged) -> None:
        super().__init__()
        self.ragged = ragged
        self.register_buffer("axes", torch.eye(n_num))
        self.register_buffer("variance", torch.ones(n_num))
        self.register_buffer("log_prior", torch.zeros(ragged.n_slots))

    @torch.no_grad()
    def init_from_data(self, table: Table, log_prior: Tensor) -> None:
        """Estimate correlations from cells that were observed together."""
        self.log_prior.copy_(log_prior)
        variance, axes = np.linalg.eigh(_correlations(table))
        self.variance.copy_(torch.from_numpy(variance.clip(min=MIN_VARIANCE)))
        self.axes.copy_(torch.from_numpy(axes))

    def evidence(self, x_cat: Tensor, points: Tensor, s_cat: Tensor) -> Tensor:
        """Return x · v / σ², a noisy category's evidence for its levels, [B, S]."""
        return level_evidence(self.ragged, x_cat, points, s_cat)

    def inputs(
        self, x_num: Tensor, evidence: Tensor, points: Tensor, s_num: Tensor
    ) -> Tensor:
        """Return the input of the network, [B, 2 d_num + C e]."""
        white = x_num @ self.axes / (self.variance + s_num.square()).sqrt()
        p = self.ragged.softmax(evidence + self.log_prior)
        # points have the length √e
        block = point_blocks(self.ragged, points) / math.sqrt(points.shape[1])
        mean = (p - self.log_prior.exp()) @ block
        return torch.cat([white @ self.axes.T, edm.scaled_input(x_num, s_num), mean], 1)

    def denoised(self, x_num: Tensor, output: Tensor, s_num: Tensor) -> Tensor:
        """Return D from the noisy numbers and the network's output."""
        noise = s_num.square()
        total = self.variance + noise
        # EDM's share of x, and the rest: TF32 rounds to eleven bits, and at low sigma x
        # must not pass through such a product
        rest = noise * (self.variance - 1) / (total * (1 + noise))
        skip = x_num / (1 + noise) + (rest * (x_num @ self.axes)) @ self.axes.T
        spread = s_num * ((self.variance / total) @ self.axes.square().T).sqrt()
        return skip + spread * output


def _correlations(table: Table) -> FloatArray:
    """Return correlations of numbers, from rows with both observed."""
    observed = table.num_observed.astype(np.float64)
    count = np.maximum(observed.sum(0), 1)
    x = np.where(table.num_observed, table.num, 0.0)
    x = np.where(table.num_observed, x - x.sum(0) / count, 0.0)
    both = observed.T @ observed
    scale = np.sqrt(np.maximum((x**2).sum(0) / count, np.finfo(np.float32).eps))
    correlations = (x.T @ x) / (both + SHRINKAGE) / np.outer(scale, scale)
    np.fill_diagonal(correlations, 1.0)
    return np.asarray(correlations)
