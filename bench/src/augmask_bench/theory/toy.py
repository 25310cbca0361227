"""When does it help to supervise filled cells? The paper's Gaussian toy.

One factor S ~ N(0, 1) is shared by all d columns of a row (eq:toy_obs, eq:toy_mis):

    X_k = S + η_k,  η_k ~ N(0, σ_o²)   for the d - 1 observed columns, with mean Y
    X_j = ρ S + η_j,  η_j ~ N(0, σ_m²)  for the one that is missing with probability p

A hole is filled with Z = X_j + b + ν, ν ~ N(0, τ²) (eq:toy_Z), and A is X_j where it is
observed and Z where not (eq:toy_A_def). One number Ŷ per row reconstructs the observed
columns as Ŷ and column j as ρ Ŷ. AugMask counts the observed columns only and ends at
Ŷ = Y; AugFull counts A as well and ends at Ỹ = ((d - 1) Y + ρ A) / K with
K = d - 1 + ρ² (eq:Y_tilde_A_d). Both are judged by E(Ŷ - S)².

The paper's three formulas were derived again and hold as printed, with one exception:
where the right side of the crossover inequality is exactly 0 and the filling is perfect
(p (b² + τ²) = 0) the two are equal, and AugMask is not "strictly preferable". One
caution about what they say: Z is built from the true X_j, which no rule can see, so the
toy is kinder to AugFull than any table.
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
    """One setting of the toy.

    Parameters
    ----------
    rho : float
        Coupling ρ of the missing column to the shared factor.
    d : int
        Columns, at least 2.
    p : float
        Share of rows in which column j is missing.
    b, tau : float
        Bias and additional spread of the filled values.
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
                "The toy takes d of at least 2, p in [0, 1] and finite numbers, with "
                f"tau, sigma_o and sigma_m of at least 0; got {self}."
            )


def mse_mask(toy: Toy) -> float:
    """Return E(Y - S)² = σ_o² / (d - 1), eq:mse_mask."""
    return toy.sigma_o**2 / (toy.d - 1)


def mismatch(toy: Toy) -> float:
    """Return δ²_aug = p (b² + τ²), how wrong filled values are on average."""
    return toy.p * (toy.b**2 + toy.tau**2)


def mse_full(toy: Toy) -> float:
    """Return E(Ỹ - S)² = [(d - 1) σ_o² + ρ² σ_m² + ρ² δ²_aug] / K², eq:mse_full."""
    observed, squared = toy.d - 1, toy.rho**2
    noise = observed * toy.sigma_o**2 + squared * (toy.sigma_m**2 + mismatch(toy))
    return noise / (observed + squared) ** 2


def tolerance(toy: Toy) -> float:
    """Return σ_o² (2 + ρ² / (d - 1)) - σ_m²: the mismatch at which both are equal.

    The right side of eq:crossover_final. It may be negative; then no filling is good
    enough for AugFull.
    """
    return toy.sigma_o**2 * (2 + toy.rho**2 / (toy.d - 1)) - toy.sigma_m**2


def full_is_better(toy: Toy) -> bool:
    """Return whether δ²_aug lies below the tolerance, eq:crossover_final.

    Without coupling, ρ = 0, the filled column teaches nothing and both are equal.
    """
    return toy.rho != 0 and mismatch(toy) < tolerance(toy)


@dataclass(frozen=True, eq=False)
class Errors:
    """Squared errors (Ŷ - S)² of simulated rows, the same rows for both strategies."""

    mask: Floats
    full: Floats


def simulate(toy: Toy, n: int, rng: np.random.Generator) -> Errors:
    """Draw rows, fill them, and minimise both objectives for every row.

    The minimisers are found as least squares over the cells of a row, with the design
    (1, ..., 1, ρ), not by the formulas above, so that each can check the other.

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
