"""What is known of a noisy row before anything is learned.

Noise falls on every cell on its own, so part of denoising is arithmetic. A network that
is left to learn it on a wide table, from hundreds of noisy coordinates, learns little
else in a short run.

Numbers. If rows were normal with correlations R = U Λ Uᵀ, the denoised row would be
U Λ / (Λ + σ²) Uᵀ x, known up to a covariance of C = σ² U Λ / (Λ + σ²) Uᵀ. The network
adds what a normal row does not know, each number in units of its own uncertainty:

    z = Uᵀ x        goes in as U z / √(Λ + σ²)
    D = U Λ / (Λ + σ²) z + √(diag C) F

and with R = 1 it is the preconditioning of `edm`. Before the first step, rows are those
of a Gaussian copula.

What the network says of a number moves that number alone. With √C in place of its
diagonal, what it says of a missing value would be taught by the loss of observed ones.
A noisy value does pass to other columns, as it does inside the network: there a filled
value is context, as everywhere, and never a target.

Categories. As the noise of a cell x_j = v_k + σ ε says nothing of other cells,

    p(k | row) ∝ p(k | other cells) exp(x_j · v_k / σ²)

because all points v_k of a column have the same length. The network gives the logits
of the first factor, which start at the frequencies; the second is added. What goes in
is the mean point under the frequencies and the second factor: one number of variance at
most 1 per column, however many dimensions it has, and none where noise has left
nothing. So columns weigh alike, whatever their kind, and noise is not seen as signal.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from augmask.diffusion import edm
from augmask.diffusion.ragged import Ragged
from augmask.table.table import FloatArray, Table

# Smallest variance along an axis: what is narrower may be a rounding error.
NARROWEST = 1e-3
# A correlation is trusted by n / (n + this), n being the rows that show both cells.
PAIRS_TO_TRUST = 20
# Below this level every category is plain, and x · v / σ² would only lose its digits.
LEGIBLE = 1e-2


class Preconditioner(nn.Module):
    """The part of a denoiser that is arithmetic.

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
        """Take correlations from the cells of a table that were observed together."""
        self.log_prior.copy_(log_prior)
        variance, axes = np.linalg.eigh(_correlations(table))
        self.variance.copy_(torch.from_numpy(variance.clip(min=NARROWEST)))
        self.axes.copy_(torch.from_numpy(axes))

    def evidence(self, x_cat: Tensor, points: Tensor, s_cat: Tensor) -> Tensor:
        """Return x · v / σ², what a noisy category says of its own levels, [B, S]."""
        flat = x_cat.flatten(1) / s_cat.clamp(min=LEGIBLE).square()
        return flat @ self._block(points).T

    def inputs(
        self, x_num: Tensor, evidence: Tensor, points: Tensor, s_num: Tensor
    ) -> Tensor:
        """Return what the network sees, [B, 2 d_num + C e]."""
        white = x_num @ self.axes / (self.variance + s_num.square()).sqrt()
        p = self.ragged.softmax(evidence + self.log_prior)
        # points have the length √e
        block = self._block(points) / math.sqrt(points.shape[1])
        mean = (p - self.log_prior.exp()) @ block
        return torch.cat([white @ self.axes.T, edm.scaled_input(x_num, s_num), mean], 1)

    def denoised(self, x_num: Tensor, output: Tensor, s_num: Tensor) -> Tensor:
        """Return D from the noisy numbers and the network's output."""
        noise = s_num.square()
        total = self.variance + noise
        # what EDM would keep of x, and the rest: products on a GPU round to eleven bits
        # (TF32), and at low levels x must not pass through one
        rest = noise * (self.variance - 1) / (total * (1 + noise))
        skip = x_num / (1 + noise) + (rest * (x_num @ self.axes)) @ self.axes.T
        spread = s_num * ((self.variance / total) @ self.axes.square().T).sqrt()
        return skip + spread * output

    def _block(self, points: Tensor) -> Tensor:
        """Return the points of all levels, each in its column's place, [S, C e]."""
        member = self.ragged.member.to(points.dtype)
        return (member[:, :, None] * points[:, None, :]).flatten(1)


def _correlations(table: Table) -> FloatArray:
    """Return correlations of numbers, from rows that show both."""
    seen = table.num_observed.astype(np.float64)
    count = np.maximum(seen.sum(0), 1)
    x = np.where(table.num_observed, table.num, 0.0)
    x = np.where(table.num_observed, x - x.sum(0) / count, 0.0)
    both = seen.T @ seen
    scale = np.sqrt(np.maximum((x**2).sum(0) / count, np.finfo(np.float32).eps))
    found = (x.T @ x) / (both + PAIRS_TO_TRUST) / np.outer(scale, scale)
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)
