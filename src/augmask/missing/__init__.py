"""Missing values: simulate them, describe them, and model P(observed | row)."""
