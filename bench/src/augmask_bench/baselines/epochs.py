"""A fixed number of passes over the rows, at rates that are set beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable

from augmask.errors import TrainingDiverged
from augmask_bench.baselines.descent import Clock, Descent

# steps between two looks at the clock: a pass may be long
LOOK = 20


def _facts(epochs: int, descent: Descent, loss: float) -> dict[str, object]:
    return {"epochs": epochs, "steps": descent.done, "loss": loss}


def learn_for(
    descent: Descent,
    epochs: int,
    clock: Clock,
    rate: Callable[[int], float] | None = None,
) -> dict[str, object]:
    """Pass over the rows `epochs` times; the last weights count, not the best.

    Parameters
    ----------
    descent : Descent
    epochs : int
    clock : Clock
        Ends it before.
    rate : callable, optional
        The learning rate of every epoch, counted from 0.

    Returns
    -------
    dict
        Whole epochs and steps done, the mean loss of the last one and why it ended.
    """
    loss = math.nan
    for epoch in range(epochs):
        if rate is not None:
            descent.rate = rate(epoch)
        count = left = descent.steps_of_epoch
        total = 0.0
        while left:
            part = min(LOOK, left)
            total += part * descent.steps(part)
            left -= part
            if not math.isfinite(total):
                raise TrainingDiverged(
                    f"the loss must stay finite, got {total / (count - left)} in "
                    f"epoch {epoch}; lower the learning rate"
                )
            if clock.over and (left or epoch < epochs - 1):
                facts = _facts(epoch + (not left), descent, total / (count - left))
                return facts | {"ended": "time"}
        loss = total / count
    return _facts(epochs, descent, loss) | {"ended": "epochs"}
