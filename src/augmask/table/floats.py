"""A numeric or date column as plain floats, holes as NaN."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd


def as_floats(series: pd.Series) -> npt.NDArray[np.float64] | None:
    """Return the column as float64, NaN in holes; None if it holds something else.

    Dates become seconds, not ticks: two tables may store different time units.

    Examples
    --------
    >>> as_floats(pd.Series(pd.to_datetime(["1970-01-02", None]))).tolist()
    [86400.0, nan]
    >>> as_floats(pd.Series(["a", "b"])) is None
    True
    """
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    if series.dtype.kind in "mM":
        ticks = series.to_numpy().astype(f"{series.dtype.kind}8[us]")
        return np.where(np.isnat(ticks), np.nan, ticks.astype(np.int64) / 1e6)
    try:
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        return None
    return np.asarray(values, dtype=np.float64)
