"""SDV's Gaussian copula. Its rows keep missing values of their own."""

from __future__ import annotations

import warnings

from job import DATES, LEVELS, job
from sdv.metadata import Metadata
from sdv.single_table import GaussianCopulaSynthesizer

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    task = job()
    frame = task.frame()
    told = {
        name: {
            "sdtype": "categorical"
            if kind in LEVELS
            else "datetime"
            if kind == DATES
            else "numerical"
        }
        for name, kind in task.kinds.items()
    }
    for name, kind in task.kinds.items():
        if kind == DATES:
            # It takes any other unit for nanoseconds and answers with 1970.
            frame[name] = frame[name].astype("datetime64[ns]")
    metadata = Metadata.load_from_dict({"tables": {"table": {"columns": told}}})
    model = GaussianCopulaSynthesizer(metadata)
    model.fit({"table": frame})
    made = model.sample(task.rows)
    task.write([made["table"] if isinstance(made, dict) else made])
