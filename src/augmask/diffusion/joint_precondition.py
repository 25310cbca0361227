"""CDTD's preconditioning by one linear model of all columns (`precondition="joint"`).

`table` knows correlations of numbers, and categories one by one. A table of a few
hundred rows has too little for a network to learn the rest from, but enough for a
linear model of numbers and levels together: the normal law with the mean and covariance
of the numbers and the levels' indicators, estimated by EM from observed cells and
shrunk towards independent columns.

The indicators of a category enter as w = Bᵀ (h - p), of covariance 1. A noisy category
has probabilities q by frequencies and noise alone, and q - p = a (h - p) + a noise of
covariance a (1 - a) Cov h, with a from 1 (certain) to 0 (pure noise). So z = Bᵀ (q - p)
/ a is w with noise of variance (1 - a) / a, as a noisy number is x with noise σ²; N
holds these variances. With P = (R + N)⁻¹ the closed form is

    D = R P z                      numbers, with the covariance R - R P R
    m = z_j - P_jj⁻¹ (P z)_j       category j from all other cells,
                                   with the covariance V = P_jj⁻¹ - N_jj

From m and V, the levels k of a category follow by the linear discriminant,

    log p(k | others) = log p_k + w_k · V⁻¹ m - w_k · (V⁻¹ - R_jj⁻¹) w_k / 2 + const

The network adds to D in units of the uncertainty of D, and to the logits.

The matrices depend on sigma, so in training `SHARED` rows have the same one. Points of
levels are not learned, because `a` is tabulated for them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from augmask.diffusion import edm_preconditioning as edm
from augmask.diffusion.ragged import Ragged
from augmask.diffusion.table_precondition import (
    MIN_SIGMA,
    level_evidence,
    point_blocks,
)
from augmask.table.table import FloatArray, Table

SHARED = 16  # rows of a batch with the same sigma
# The covariance shrinks towards independent columns as if this many rows had been added
# in which they are.
PRIOR_ROWS = 4.0
# How many times the covariance between two columns that chance alone gives is taken
# away; 1 is James and Stein's rule.
CHANCE = 1.5
EM_ROUNDS = 30
EM_TOLERANCE = 1e-3  # largest change of a correlation in a round
# Added to the variances of indicators: a level of few rows is not blown up.
RARE = 2e-3
MIN_GAIN = 1e-4
# Where the gain a is tabulated, and from how many noisy points per level.
GRID = (-3.0, 5.0, 49)  # log sigma
N_NOISE = 128
REPULSIONS = 200


class Start(NamedTuple):
    """What the closed form says of noisy rows, and the input of the network."""

    inputs: Tensor  # [B, 2 d_num + C e]
    mean: Tensor  # [B, d_num]
    spread: Tensor  # [B, d_num]
    logits: Tensor  # [B, S]


class _Gains(NamedTuple):
    """The closed form at G pairs of sigmas."""

    to_num: Tensor  # [G, D, d_num]
    spread: Tensor  # [G, d_num]
    to_residual: Tensor  # [G, D, d_num]
    to_logits: Tensor  # [G, D, S]
    offset: Tensor  # [G, S]


def spread_points(cards: tuple[int, ...], width: int) -> Tensor:
    """Return directions of levels that keep apart from others of their column, [S, e].

    Examples
    --------
    >>> a, b = spread_points((2,), 4)
    >>> round(float(a @ b), 3)
    -1.0
    """
    columns = []
    for card in cards:
        x = normalize(torch.randn(card, width), dim=1)
        for _ in range(REPULSIONS):
            apart = x[:, None] - x[None]
            near = (apart.square().sum(2) + torch.eye(card)).pow(-1.5)
            push = (near[:, :, None] * apart).sum(1)
            largest = push.norm(dim=1).max().clamp(min=1e-12)
            x = normalize(x + 0.1 * push / largest, dim=1)
        columns.append(x)
    return torch.cat([torch.empty(0, width), *columns])


def shared(values: Tensor) -> Tensor:
    """Return every `SHARED`-th value for as many rows in turn."""
    return values[::SHARED].repeat_interleave(SHARED)[: len(values)]


class JointPreconditioner(nn.Module):
    """The part of a denoiser that a linear model of all columns gives.

    Parameters
    ----------
    n_num : int
        Numeric columns.
    ragged : Ragged
        Categorical columns.

    Shape
    -----
    - D = d_num + Σ (K_j - 1) coordinates z
    - x_num: [B, d_num], evidence: [B, S], points: [S, e], sigma: [B or 1, 2]
    """

    mean: Tensor
    covariance: Tensor
    basis: Tensor
    gain: Tensor
    log_prior: Tensor

    def __init__(self, n_num: int, ragged: Ragged) -> None:
        super().__init__()
        self.n_num, self.ragged = n_num, ragged
        self.blocks: list[tuple[slice, slice]] = []  # slots and coordinates
        slot, place = 0, n_num
        for card in ragged.member.sum(0).long().tolist():
            end = place + max(card - 1, 0)
            self.blocks.append((slice(slot, slot + card), slice(place, end)))
            slot, place = slot + card, end
        self.register_buffer("mean", torch.zeros(place))
        self.register_buffer("covariance", torch.eye(place))
        self.register_buffer("basis", torch.zeros(ragged.n_slots, place - n_num))
        self.register_buffer("gain", torch.ones(GRID[2], len(self.blocks)))
        self.register_buffer("log_prior", torch.zeros(ragged.n_slots))

    @torch.no_grad()
    def init_from_data(self, table: Table, log_prior: Tensor, points: Tensor) -> None:
        """Estimate mean and covariance, and tabulate the gains of the points."""
        self.log_prior.copy_(log_prior)
        p = self.log_prior.double().exp().cpu().numpy()
        basis = np.zeros(self.basis.shape)
        x, observed = [table.num], [table.num_observed]
        for j, (slots, place) in enumerate(self.blocks):
            one = p[slots] / p[slots].sum()
            variance, axes = np.linalg.eigh(np.diag(one) - np.outer(one, one))
            # the smallest is that of the sum of all indicators, which is constant
            own = axes[:, 1:] / np.sqrt(variance[1:] + RARE)
            basis[slots, place.start - self.n_num : place.stop - self.n_num] = own
            x.append((np.eye(len(one)) - one)[table.cat[:, j]] @ own)
            seen = table.cat_observed[:, [j]]
            observed.append(np.repeat(seen, own.shape[1], 1))
        mean, covariance = _mean_and_covariance(
            np.concatenate(x, 1, dtype=np.float64), np.concatenate(observed, 1)
        )
        columns = [slice(j, j + 1) for j in range(self.n_num)]
        columns += [place for _, place in self.blocks if place.start < place.stop]
        covariance = _without_chance(covariance, columns, table.observed)
        self.basis.copy_(torch.from_numpy(basis))
        self.mean.copy_(torch.from_numpy(mean))
        self.covariance.copy_(torch.from_numpy(covariance))
        self.gain.copy_(self._tabulated_gain(points))

    def _tabulated_gain(self, points: Tensor) -> Tensor:
        """Return a = tr Cov(q, h) / tr Cov(h) of every column at every sigma."""
        p = self.log_prior.exp()
        pure = self.ragged.total(p.square()[None])
        # the same noise at every sigma and for every level: gains are smooth and fall
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(N_NOISE, points.shape[1], generator=generator).to(points)
        gains = []
        for log_sigma in torch.linspace(*GRID).tolist():
            sigma = max(math.exp(log_sigma), MIN_SIGMA)
            noisy = points[:, None] + sigma * noise  # [S, n, e]
            evidence = noisy @ points.T / sigma**2  # [S, n, S]
            own = self.ragged.column[:, None] == self.ragged.column
            logits = (evidence + self.log_prior).masked_fill(~own[:, None], -torch.inf)
            q = logits.softmax(2).mean(1).diagonal()
            found = self.ragged.total((p * q)[None])
            gains.append((found - pure) / (1 - pure).clamp(min=1e-6))
        return torch.cat(gains).clamp(MIN_GAIN, 1.0)

    def evidence(self, x_cat: Tensor, points: Tensor, s_cat: Tensor) -> Tensor:
        """Return x · v / σ², a noisy category's evidence for its levels, [B, S]."""
        return level_evidence(self.ragged, x_cat, points, s_cat)

    def start(
        self, x_num: Tensor, evidence: Tensor, points: Tensor, sigma: Tensor
    ) -> Start:
        """Return the closed form for noisy rows.

        If there are several sigmas, each counts for `SHARED` rows in turn.
        """
        gains, a = self._at(sigma[::SHARED])
        p = self.log_prior.exp()
        q = self.ragged.softmax(evidence + self.log_prior)
        if len(sigma) > 1:
            a = a.repeat_interleave(SHARED, 0)[: len(sigma)]
        scaled = (q - p) / a.index_select(1, self.ragged.column)
        z = torch.cat([x_num, scaled @ self.basis], 1) - self.mean
        mean = _apply(z, gains.to_num) + self.mean[: self.n_num]
        residual = _apply(z, gains.to_residual)
        spread, offset = gains.spread, gains.offset
        if len(sigma) > 1:
            spread, offset = (
                part.repeat_interleave(SHARED, 0)[: len(sigma)]
                for part in (spread, offset)
            )
        logits = _apply(z, gains.to_logits) + offset + evidence
        posterior = self.ragged.softmax(logits)
        block = point_blocks(self.ragged, points)
        expected = (posterior - p) @ block / math.sqrt(points.shape[1])
        scaled_num = edm.scaled_input(x_num, sigma[:, :1])
        inputs = torch.cat([residual, scaled_num, expected], 1)
        return Start(inputs, mean, spread.expand_as(mean), logits)

    @torch.no_grad()
    def _at(self, sigma: Tensor) -> tuple[_Gains, Tensor]:
        """Return the closed form and the gains a at pairs of sigmas [G, 2]."""
        kind = sigma.dtype
        low, high, count = GRID
        place = (sigma[:, 1].clamp(min=MIN_SIGMA).log() - low) / (high - low)
        place = (place * (count - 1)).clamp(0, count - 1)
        below = place.floor().long().clamp(max=count - 2)
        share = (place - below)[:, None]
        a = torch.lerp(self.gain[below], self.gain[below + 1], share.to(self.gain))
        n, r = self.n_num, self.covariance.double()
        noise = [sigma[:, :1].double().square().expand(-1, n)]
        for j, (_, at) in enumerate(self.blocks):
            of = a[:, j, None].double()
            noise.append(((1 - of) / of).expand(-1, at.stop - at.start))
        variance = torch.cat(noise, 1)
        total = r + torch.diag_embed(variance)
        p = torch.cholesky_inverse(torch.linalg.cholesky(total))
        gain = r @ p  # [G, D, D]
        rest = (r - gain @ r).diagonal(dim1=1, dim2=2)[:, :n]
        scale = p.diagonal(dim1=1, dim2=2)[:, None, :n].sqrt()
        to_logits = r.new_zeros(len(sigma), len(r), self.ragged.n_slots)
        offset = self.log_prior.double().repeat(len(sigma), 1)
        for slots, at in self.blocks:
            if at.start == at.stop:
                continue
            one = torch.eye(at.stop - at.start, dtype=r.dtype, device=r.device)
            own = torch.linalg.inv(p[:, at, at])
            others = -own @ p[:, at]
            others[:, :, at] += one
            precision = torch.linalg.inv(own - torch.diag_embed(variance[:, at]))
            added = precision - torch.linalg.inv(r[at, at])
            levels = self._levels(slots, at)
            to_logits[:, :, slots] = (levels @ precision @ others).mT
            offset[:, slots] -= ((levels @ added) * levels).sum(2) / 2
        found = _Gains(
            gain[:, :n].mT,
            rest.clamp(min=1e-12).sqrt(),
            p[:, :, :n] / scale,
            to_logits,
            offset,
        )
        return _Gains(*(part.to(kind) for part in found)), a.to(kind)

    def _levels(self, slots: slice, at: slice) -> Tensor:
        """Return the coordinates w_k of a column's levels, [K, K - 1]."""
        p = self.log_prior[slots].double().exp()
        basis = self.basis[slots, at.start - self.n_num : at.stop - self.n_num]
        return basis.double() - p @ basis.double() - self.mean[at].double()


def _apply(z: Tensor, matrices: Tensor) -> Tensor:
    """Return the products of rows, `SHARED` in turn, with their matrices."""
    if len(matrices) == 1:
        return z @ matrices[0]
    n = len(z)
    padded = nn.functional.pad(z, (0, 0, 0, len(matrices) * SHARED - n))
    blocks = padded.reshape(len(matrices), SHARED, padded.shape[1])
    return (blocks @ matrices).flatten(0, 1)[:n]


def _mean_and_covariance(
    x: FloatArray, observed: np.ndarray
) -> tuple[FloatArray, FloatArray]:
    """Return the shrunken normal law of rows with missing cells, by EM."""
    n, d = x.shape
    count = np.maximum(observed.sum(0), 1)
    mean = np.where(observed, x, 0.0).sum(0) / count
    prior = PRIOR_ROWS * np.eye(d)
    covariance = np.eye(d)
    patterns, which = np.unique(observed, axis=0, return_inverse=True)
    rows = [np.flatnonzero(which.ravel() == i) for i in range(len(patterns))]
    for _ in range(EM_ROUNDS):
        filled, uncertain = np.where(observed, x, mean), np.zeros((d, d))
        for seen, at in zip(patterns, rows, strict=True):
            unseen = np.flatnonzero(~seen)
            if not len(unseen):
                continue
            cross = covariance[np.ix_(unseen, seen)]
            slope = np.linalg.solve(covariance[np.ix_(seen, seen)], cross.T)
            filled[np.ix_(at, unseen)] += (x[at][:, seen] - mean[seen]) @ slope
            rest = covariance[np.ix_(unseen, unseen)] - cross @ slope
            uncertain[np.ix_(unseen, unseen)] += len(at) * rest
        mean = filled.mean(0)
        centred = filled - mean
        new = (centred.T @ centred + uncertain + prior) / (n + PRIOR_ROWS)
        change = np.abs(new - covariance).max()
        covariance = new
        if change < EM_TOLERANCE:
            break
    return mean, covariance


def _without_chance(
    covariance: FloatArray, columns: list[slice], observed: np.ndarray
) -> FloatArray:
    """Shrink what two columns have in common by what they would have by chance.

    A covariance of c coordinates that is 0 has squares that sum to c / n; a strong one
    is estimated more precisely. Too few rows for a column with many levels then count
    for little, and two numbers that are strongly related keep their relation.

    Parameters
    ----------
    covariance : float array [D, D]
        With a diagonal of about 1.
    columns : list of slice
        The coordinates of every column.
    observed : bool array [n, d]
    """
    seen = observed.astype(np.float64)
    together = np.maximum(seen.T @ seen, 1.0)
    shrunken = covariance.copy()
    for i, one in enumerate(columns):
        for j, other in enumerate(columns[:i]):
            block = covariance[one, other]
            found = max(float((block**2).sum()), np.finfo(np.float32).tiny)
            unexplained = max(0.0, 1 - found / min(block.shape))
            chance = block.size * unexplained / together[i, j]
            kept = max(0.0, 1 - CHANCE * chance / found)
            shrunken[one, other] *= kept
            shrunken[other, one] *= kept
    # Shrunken one by one, blocks need not form a covariance; part of the way they do.
    least = np.linalg.eigvalsh(covariance)[0] / 2
    share = 1.0
    while share > 0.01:
        mixed = share * shrunken + (1 - share) * covariance
        if np.linalg.eigvalsh(mixed)[0] >= least:
            return np.asarray(mixed)
        share *= 0.9
    return covariance
