"""From a trained denoiser to rows: `draw` generates in batches, `stream` writes."""
