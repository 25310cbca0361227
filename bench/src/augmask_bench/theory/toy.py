"""The paper's Gaussian example of when to supervise augmented cells.

All d columns of a row share one factor S ~ N(0, 1) (eq:toy_obs, eq:toy_mis):

    X_k = S + η_k,  η_k ~ N(0, σ_o²)   for the d - 1 observed columns, with mean Y
    X_j = ρ S + η_j,  η_j ~ N(0, σ_m²)  for the column missing with probability p

A missing value is augmented with Z = X_j + b + ν, ν ~ N(0, τ²) (eq:toy_Z), and A is X_j
if observed and Z if not (eq:toy_A_def). One number Ŷ per row reconstructs the observed
columns as Ŷ and column j as ρ Ŷ. The loss of AugMask counts the observed columns only
and has its minimum at Ŷ = Y; that of AugFull also counts A and has its minimum at
Ỹ = ((d - 1) Y + ρ A) / K with K = d - 1 + ρ² (eq:Y_tilde_A_d). Both are compared by
E(Ŷ - S)².

The paper's three formulas hold as printed, with one exception: if the right side of the
crossover inequality is exactly 0 and the augmentation is perfect (p (b² + τ²) = 0), the
two are equal, and AugMask is not "strictly preferable". Note that Z is built from the
true X_j, which no augmenter knows, so the example favours AugFull more than real tables
do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from augmask.errors import UsageError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Toy:
    """One setting of the example.

    Parameters
    ----------
    rho : float
        Coupling ρ of the missing column to the shared factor.
    d : int
        Number of columns, at least 2.
    p : float
        Share of rows in which column j is missing.
    b, tau : float
        Bias and additional spread of the augmented values.
    sigma_o, sigma_m : float
        Noise of the observed columns and of column j.

    Examples
    --------
    >>> perfect, biased = Toy(rho=1, d=5, p=0.5), Toy(rho=1, d=5, p=0.5, b=3)
    >>> mse_mask(perfect), mse_full(perfect), mse_full(biased)
    (0.25, 0.2, 0.38)
    >>> full_is_better(perfect), full_is_better(biased)
    (True, False)
    """

    rho: float
    d: int
    p: float
    b: float = 0.0
    tau: float = 0.0
    sigma_o: float = 1.0
    sigma_m: float = 1.0

    def __post_init__(self) -> None:
        numbers = (self.rho, self.b, self.tau, self.sigma_o, self.sigma_m)
        if not (
            self.d >= 2
            and 0.0 <= self.p <= 1.0
            and min(self.tau, self.sigma_o, self.sigma_m) >= 0.0
            and all(map(math.isfinite, numbers))
        ):
            raise UsageError(
                "d must be at least 2, p in [0, 1], tau, sigma_o and sigma_m at least "
                f"0, and all finite, got {self}"
            )


def mse_mask(toy: Toy) -> float:
    """Return E(Y - S)² = σ_o² / (d - 1), eq:mse_mask."""
    return toy.sigma_o**2 / (toy.d - 1)


def mismatch(toy: Toy) -> float:
    """Return δ²_aug = p (b² + τ²), the mean squared error of augmented values."""
    return toy.p * (toy.b**2 + toy.tau**2)


def mse_full(toy: Toy) -> float:
    """Return E(Ỹ - S)² = [(d - 1) σ_o² + ρ² σ_m² + ρ² δ²_aug] / K², eq:mse_full."""
    observed, squared = toy.d - 1, toy.rho**2
    noise = observed * toy.sigma_o**2 + squared * (toy.sigma_m**2 + mismatch(toy))
    return noise / (observed + squared) ** 2


def tolerance(toy: Toy) -> float:
    """Return σ_o² (2 + ρ² / (d - 1)) - σ_m²: the mismatch at which both are equal.

    The right side of eq:crossover_final. If it is negative, no augmentation is good
    enough for AugFull.
    """
    return toy.sigma_o**2 * (2 + toy.rho**2 / (toy.d - 1)) - toy.sigma_m**2


def full_is_better(toy: Toy) -> bool:
    """Return whether δ²_aug is below the tolerance, eq:crossover_final.

    Without coupling, ρ = 0, the augmented column has no effect and both are equal.
    """
    return toy.rho != 0 and mismatch(toy) < tolerance(toy)


@dataclass(frozen=True, eq=False)
class Errors:
    """Squared errors (Ŷ - S)² of the same simulated rows for both strategies."""

    mask: Floats
    full: Floats


def simulate(toy: Toy, n: int, rng: np.random.Generator) -> Errors:
    """Draw rows, augment them, and minimise both objectives for every row.

    The minimisers are computed by least squares over the cells of a row, with the
    design (1, ..., 1, ρ), independently of the formulas above.

    Examples
    --------
    >>> toy = Toy(rho=1, d=5, p=0.5, b=3)
    >>> errors = simulate(toy, 100_000, np.random.default_rng(0))
    >>> round(float(errors.mask.mean()), 2), round(float(errors.full.mean()), 2)
    (0.25, 0.38)
    """
    s = rng.standard_normal(n)
    observed = s[:, None] + toy.sigma_o * rng.standard_normal((n, toy.d - 1))
    x_j = toy.rho * s + toy.sigma_m * rng.standard_normal(n)
    z = x_j + toy.b + toy.tau * rng.standard_normal(n)
    a = np.where(rng.random(n) < toy.p, z, x_j)

    design = np.append(np.ones(toy.d - 1), toy.rho)
    cells = np.column_stack([observed, a])
    best_mask = observed.mean(axis=1)
    best_full = cells @ design / (design @ design)
    return Errors((best_mask - s) ** 2, (best_full - s) ** 2)
