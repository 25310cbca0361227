"""EDM's preconditioning: both forms of the loss agree."""

from __future__ import annotations

import torch

from augmask.diffusion.edm_preconditioning import denoised, scaled_input, target
from augmask.diffusion.random_draws import normal_like


def test_the_error_of_the_output_is_the_weighted_error_of_the_denoised_number():
    generator = torch.Generator().manual_seed(0)
    clean = torch.randn(4, 200, generator=generator, dtype=torch.float64)
    noise, output = (normal_like(clean, generator) for _ in range(2))
    sigma = torch.tensor([0.002, 0.5, 3.0, 80.0], dtype=torch.float64)[:, None]
    x = clean + sigma * noise
    weighted = (1 + sigma**2) / sigma**2 * (denoised(x, output, sigma) - clean) ** 2
    ours = (output - target(clean, noise, sigma)) ** 2
    torch.testing.assert_close(ours, weighted, rtol=1e-6, atol=1e-12)


def test_input_and_target_have_unit_variance_at_every_sigma():
    generator = torch.Generator().manual_seed(0)
    clean = torch.randn(4, 100_000, generator=generator)
    noise = normal_like(clean, generator)
    sigma = torch.tensor([0.002, 0.5, 3.0, 80.0])[:, None]
    for values in (
        scaled_input(clean + sigma * noise, sigma),
        target(clean, noise, sigma),
    ):
        torch.testing.assert_close(values.var(1), torch.ones(4), rtol=0, atol=0.02)
