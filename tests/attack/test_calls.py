"""Calls of the public API: a result or an `AugMaskError`."""

from __future__ import annotations

import time
import traceback
import warnings
from collections import Counter

import numpy as np
import pytest

from augmask.errors import AugMaskError

from .budget import budget, report
from .calls import Calls
from .victims import fit, make_frame, make_rich_frame

pytestmark = pytest.mark.slow


def test_calls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = fit(make_frame())
    model.save("m.augmask")
    good = make_frame()
    good.to_csv("t.csv", index=False)
    good.to_csv("t.tsv", index=False, sep="\t")
    good.to_csv("t.zip", index=False)
    good.assign(day=good["day"].dt.tz_localize(None)).to_excel("t.xlsx", index=False)
    richer = fit(make_rich_frame(200), options={"links": "keep"})
    calls = Calls(model, richer, tmp_path / "m.augmask")
    outcomes: Counter[str] = Counter()
    bad, slowest, began = [], 0.0, time.process_time()
    for seed in range(budget("commands and calls") // 2):
        rng = np.random.default_rng([11, seed])
        call = calls.every[rng.integers(len(calls.every))]
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                call(rng)
                outcomes["done"] += 1
            except AugMaskError:
                outcomes["refused"] += 1
            except Exception:
                outcomes["foreign"] += 1
                bad.append(
                    f"seed {seed}, {call.__name__}: {traceback.format_exc()[-1200:]}"
                )
        slowest = max(slowest, time.process_time() - start)
    report(
        "calls",
        calls=sum(outcomes.values()),
        **{name: outcomes[name] for name in ("done", "refused", "foreign")},
        slowest_seconds=round(slowest, 1),
        cpu_seconds=round(time.process_time() - began),
    )
    assert not bad, "\n\n".join([f"{len(bad)} in all", *bad])
