"""Training: completed rows in, averaged weights out.

`data` keeps the rows on the device, `shuffle` says which come next, `average` and
`schedule` are what the optimiser needs besides itself, `checkpoint` makes a killed run
resumable, `loop` ties them together.
"""
