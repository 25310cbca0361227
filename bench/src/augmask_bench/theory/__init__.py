"""The paper's theory as code: a Gaussian example and diagnostics of a denoiser."""
