"""hyperimpute through our binding, which keeps its noise contained."""

from __future__ import annotations

import warnings

from job import job

from augmask.augmentation import resolve_augmenter
from augmask.rng import stream
from augmask.table.codec import Codec
from augmask.table.infer import infer_schema

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    task = job()
    frame = task.frame()
    schema = infer_schema(frame, dict(task.kinds))
    codec = Codec.fit(frame, schema)
    rule = resolve_augmenter("hyperimpute")
    rule.seconds = 0.6 * task.seconds
    rng = stream(task.seed, "fill")
    drawn = rule.fit(codec.encode(frame), rng).draw(rng)
    task.write([codec.decode(drawn.num, drawn.cat, rng)])
