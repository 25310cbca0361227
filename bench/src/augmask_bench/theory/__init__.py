"""The paper's theory as code: a Gaussian toy, and diagnostics of a fitted denoiser."""
