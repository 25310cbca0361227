"""`Score`: one number and the table it was averaged from."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True, eq=False)
class Score:
    """The result of a metric.

    Parameters
    ----------
    value : float
        The metric itself; 1 is best.
    table : pandas.DataFrame
        What the value summarises: one line per column, per pair of columns, or per
        level, as the metric says.

    Examples
    --------
    >>> Score(0.5, pd.DataFrame({"column": ["age"], "score": [0.5]})).value
    0.5
    """

    value: float
    table: pd.DataFrame
