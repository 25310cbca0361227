"""A table to try things on, made up by the package itself: `clinic`."""
