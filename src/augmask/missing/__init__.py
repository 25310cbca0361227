"""The holes themselves: `simulate` makes them, `describe` counts them."""
