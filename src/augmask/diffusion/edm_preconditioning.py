"""EDM's preconditioning for data of unit variance (Karras et al., 2022, table 1).

The network gets a noisy number x = x0 + σ ε as c_in x, and its output F gives the
denoised number D = c_skip x + c_out F, with

    c_in = 1 / √(1 + σ²)      c_skip = 1 / (1 + σ²)      c_out = σ / √(1 + σ²)

so input and target of the network have unit variance at every σ.
"""

from __future__ import annotations

from torch import Tensor


def scaled_input(x: Tensor, sigma: Tensor) -> Tensor:
    """Return c_in x."""
    return x / (1 + sigma.square()).sqrt()


def denoised(x: Tensor, output: Tensor, sigma: Tensor) -> Tensor:
    """Return D from the noisy numbers and the network's output."""
    skip = 1 / (1 + sigma.square())
    return skip * x + sigma * skip.sqrt() * output


def target(clean: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:
    """Return the output for which D is exact.

    The weighted loss (1 + σ²) / σ² (D - x0)² is (F - target)². In this form nothing is
    divided by a small σ, so float32 loses no digits.

    Examples
    --------
    >>> import torch
    >>> clean, noise, sigma = torch.tensor([[0.3], [-2.0], [0.5]])
    >>> output = target(clean, noise, sigma)
    >>> torch.allclose(denoised(clean + sigma * noise, output, sigma), clean)
    True
    """
    return (sigma * clean - noise) / (1 + sigma.square()).sqrt()
