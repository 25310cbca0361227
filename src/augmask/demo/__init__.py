"""A made-up table, `clinic`, and a comparison of training strategies on it."""
