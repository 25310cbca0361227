"""What a quantile sketch changes in generated rows, on Adult repeated to ten million.

    AUGMASK_DATA=../shared/data python benchmarks/sketch.py --json results.json

The parts of a large table are summarized, and a column of more distinct numbers than
are counted is scaled by the quantiles of a t-digest. Here every numeric column is, with
Adult as each of 205 parts. A model of Adult is fitted with exact quantiles; its rows
are decoded once with these and once with those of the digest, and both are scored.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
from lake import commit

import augmask as am
from augmask.evaluation.fidelity import shape
from augmask.table import summary
from augmask.table.codec import Codec
from augmask.table.schema import NUMERIC

ROWS = 10_000_000


def digested(frame: pd.DataFrame, copies: int) -> summary.TableSummary:
    """Return the summary of a table repeated so often, with nothing counted."""
    counted, summary.MAX_DISTINCT = summary.MAX_DISTINCT, 1
    try:
        own = summary.summarize(frame, {})
        merged = own
        for _ in range(copies - 1):
            merged = summary.merge(merged, own)
    finally:
        summary.MAX_DISTINCT = counted
    return summary.TableSummary(merged, frame)


def main() -> None:
    """Fit, decode twice, score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    folder = Path(os.environ.get("AUGMASK_DATA", "../shared/data"))
    frame = am.read_table(folder / "adult.csv.gz")
    incomplete = am.ampute(frame, mechanism="mcar", ratio=0.3, seed=0)
    options = {"steps": a.steps, "width": 128}
    model = am.AugMask(augmenter="ecdf", preset="fast", options=options)
    model.fit(incomplete, holdout=0, progress=False)
    copies = ROWS // len(frame)
    scalers = summary.fit_scalers(model.schema_, digested(incomplete, copies), 0)
    sketched = Codec(model.schema_, scalers)
    source = model._source(0)
    batches = list(source.batches(len(frame), lambda *_: None))
    num = np.concatenate([batch.num for batch in batches])
    cat = np.concatenate([batch.cat for batch in batches])
    numeric = [c.name for c in model.schema_ if c.kind in NUMERIC]
    categorical = [c.name for c in model.schema_ if c.kind not in NUMERIC]
    scores = {}
    for name, codec in (("exact", model.codec_), ("sketch", sketched)):
        rows = codec.decode(num, cat, np.random.default_rng(0))
        score = shape(frame, rows, numeric, categorical)
        columns = dict(zip(score.table["column"], score.table["score"], strict=True))
        scores[name] = {"Shape": score.value} | {n: columns[n] for n in numeric}
    result = {
        "rows": copies * len(frame),
        "date": str(pd.Timestamp.now().date()),
        "commit": commit(),
        **scores,
        "largest difference": max(
            abs(scores["exact"][n] - scores["sketch"][n]) for n in scores["exact"]
        ),
    }
    print(json.dumps(result, indent=1))
    if a.json:
        a.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
