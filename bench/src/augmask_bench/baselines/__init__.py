"""The generators that AugMask is compared with, each at its published strength."""
