"""What tells one run from another, and survives a new process."""

from __future__ import annotations

from augmask.augmentation.boosted import LgbmS
from augmask.augmentation.marginal import Ecdf
from augmask.config import Settings
from augmask.diffusion.cdtd import CDTD
from augmask.store import fingerprint


def test_equal_parts_have_equal_fingerprints(make_table):
    table = make_table()
    runs = [
        fingerprint([CDTD, LgbmS(eta=0.5), lambda layout: layout], Settings(), table)
        for _ in range(2)
    ]
    # another object of the same kind is the same run: no address may enter
    assert runs[0] == runs[1]


def test_anything_that_changes_the_result_changes_the_fingerprint(make_table):
    table = make_table()
    runs = [
        fingerprint([CDTD, LgbmS()], Settings(), table),
        fingerprint([CDTD, LgbmS(eta=0.5)], Settings(), table),
        fingerprint([CDTD, Ecdf()], Settings(), table),
        fingerprint(["cdtd", LgbmS()], Settings(), table),
        fingerprint([CDTD, LgbmS()], Settings(steps=7), table),
        fingerprint([CDTD, LgbmS()], Settings(), make_table(seed=1)),
    ]
    assert len(set(runs)) == len(runs)
