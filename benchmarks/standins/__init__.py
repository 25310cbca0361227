"""Plain PyTorch stand-ins for the backbones that run like their published code.

Each file is one backbone, rewritten from its paper and from how its published code
executes: rows on the host, loops over columns, values read back in every step. Networks
and formulas are ours, so both sides do the same arithmetic; a test compares the losses
of both. `speed.py` measures the two alternately.

A stand-in is built from our backbone, whose sizes and weights it copies, and has

    steps(num, cat, batch)     train on host tensors; yields after every step
    sample(n, steps)           return numbers and codes of n rows, on the host
"""
