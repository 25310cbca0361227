"""`python -m augmask`, which is also what torchrun starts."""

from .cli import main

main()
