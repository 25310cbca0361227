"""What a peer's package could leave changed behind it."""

import os
import random

import numpy as np
import torch


def all_states():
    """Return the states of the global generators, and the environment."""
    return (
        random.getstate(),
        str(np.random.get_state()),  # noqa: NPY002
        torch.get_rng_state().tolist(),
        dict(os.environ),
    )
