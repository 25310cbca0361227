"""Plain-PyTorch stand-ins: the backbones, run the way their published code runs.

Each file is one backbone, written anew from its paper and from what its published code
does on a machine: rows on the host, loops over columns, numbers read back every step.
The networks and the formulas are ours, so both sides do the same arithmetic; a test
holds the losses of both against each other. `speed.py` lets the two take turns.

A stand-in is built from our backbone, whose sizes and weights it takes over, and has

    steps(num, cat, batch)     train on host tensors; gives way after every step
    sample(n, steps)           return numbers and codes of n rows, on the host
"""
