"""Train diffusion models on incomplete tables, generate complete ones (temporary)."""
