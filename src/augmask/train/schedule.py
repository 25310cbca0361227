"""The learning rate over a run whose end may be a step or a moment."""

from __future__ import annotations

LOWEST = 1e-6


def learning_rate(peak: float, step: int, warmup: int, done: float) -> float:
    """Return the rate: up over `warmup` steps, then down in a line to almost 0.

    Parameters
    ----------
    peak : float
    step : int
        From 0.
    warmup : int
    done : float
        Share of the run behind us, by steps or by the clock, whichever is further: a
        run that must end early still ends with a low rate.

    Examples
    --------
    >>> [round(learning_rate(1.0, s, 2, s / 10), 2) for s in (0, 1, 5, 10)]
    [0.5, 0.9, 0.5, 0.0]
    """
    return max(peak * min((step + 1) / max(warmup, 1), 1.0) * (1 - done), LOWEST)
