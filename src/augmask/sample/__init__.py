"""From a trained denoiser to rows: generate, condition, impute, write."""
