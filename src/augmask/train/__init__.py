"""Training: completed rows in, averaged weights out.

`loop` runs a training from the first step to the last, `trainer` holds one model and
its training step, `data` and `shuffle` supply the batches, `optimizer` has AdamW, the
EMA and the learning-rate schedule, `flat_params` keeps all weights in one tensor,
`checkpoint` makes a killed run resumable, `parallel` connects several processes.
`accelerated` holds what exists for speed only; everything works without it.
"""
